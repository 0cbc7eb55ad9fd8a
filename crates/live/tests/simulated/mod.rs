//! A kernel in memory: processes with pages on nodes or in swap, the files that Terrace reads and writes, and a plan of
//! what goes wrong.
//!
//! It does what Linux 6.12 does as far as Terrace can tell, the unpleasant parts included: `move_pages` that stops half
//! way, that has moved pages although it fails, advice that is taken for a part, processes that end between two calls.

#![allow(dead_code, reason = "each test file uses its part")]

mod files;
mod machine;

pub use files::Files;
pub use machine::{Machine, Page, Place};

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use terrace_live::kernel::{
    Advice, Event, Faults, Kernel, PageRun, PageScan, Probe, Process, Sample, Samples, category,
};
use terrace_model::PageSize;
use terrace_policy::Random;

/// What goes wrong, each one time in so many; 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// A call fails as a whole.
    pub call: u64,
    /// A question where pages are, or which there are, fails.
    pub ask: u64,
    /// A page is refused.
    pub page: u64,
    /// A call stops before a page; it may say that it failed.
    pub partial: u64,
    /// A process ends before a call.
    pub end: u64,
    /// A program does something before a call.
    pub churn: u64,
    /// A file says something else than it should.
    pub garbage: u64,
    /// The refusal of exactly this attempt to move a page, counted from 0.
    pub attempt: Option<u64>,
}

impl Plan {
    /// All of it.
    pub const HARSH: Plan =
        Plan { call: 12, ask: 12, page: 9, partial: 60, end: 400, churn: 15, garbage: 30, attempt: None };
    /// What leaves the world's knowledge right, as far as it goes.
    pub const REFUSALS: Plan =
        Plan { call: 12, ask: 0, page: 6, partial: 40, end: 0, churn: 0, garbage: 0, attempt: None };
}

/// The kernel.
#[derive(Clone, Debug)]
pub struct Simulated {
    machine: Arc<Mutex<Machine>>,
}

fn error<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

impl Simulated {
    /// A machine like the fixture of this name, with so many pages of memory on each node.
    pub fn new(fixture: &str, capacity: &[u64], swap: u64, seed: u64) -> Simulated {
        let machine = Machine::new(Files::fixture(fixture), capacity, swap, Random::new(seed));
        Simulated { machine: Arc::new(Mutex::new(machine)) }
    }

    /// To look at, and to arrange.
    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap()
    }

    /// From now on this goes wrong.
    pub fn plan(&self, plan: Plan) {
        self.machine().plan = plan;
    }

    pub fn pass(&self, time: Duration) {
        self.machine().clock += time;
    }

    /// Time passes, programs run and end, and the call may fail as a whole.
    fn enter(&self, one_in: u64, errors: &[i32]) -> io::Result<MutexGuard<'_, Machine>> {
        let mut machine = self.machine();
        machine.clock += Duration::from_micros(2);
        let plan = machine.plan;
        if machine.chance(plan.churn) {
            machine.live();
        }
        if machine.chance(plan.end) {
            machine.end_one();
        }
        if machine.chance(one_in) {
            let which = machine.random.below(errors.len() as u64) as usize;
            return error(errors[which]);
        }
        Ok(machine)
    }

    /// As `enter`, for a call about a process, which may have ended.
    fn enter_for(
        &self,
        process: &Process,
        one_in: u64,
        errors: &[i32],
    ) -> io::Result<MutexGuard<'_, Machine>> {
        let mut machine = self.enter(one_in, errors)?;
        if machine.processes.contains_key(&process.pid) {
            return Ok(machine);
        }
        // `EINVAL` is what `move_pages(2)` says while an ended process was not yet waited for.
        let which = machine.random.below(2);
        error([libc::ESRCH, libc::EINVAL][which as usize])
    }
}

impl Kernel for Simulated {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let call = self.machine().plan.call;
        let mut machine = self.enter(call * 4, &[libc::EIO, libc::EACCES, libc::EINTR, libc::ENOMEM])?;
        let text = machine.text(path).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        let mut bytes = text.into_bytes();
        // A setting that is misread would be put back as it was read: of those the kernel is trusted.
        let garbage = if path.starts_with("/sys/kernel/mm") { 0 } else { machine.plan.garbage };
        if machine.chance(garbage) && !bytes.is_empty() {
            let at = machine.random.below(bytes.len() as u64) as usize;
            match machine.random.below(4) {
                0 => bytes.clear(),
                1 => bytes.truncate(at),
                2 => bytes[at] = machine.random.next() as u8,
                _ => bytes[at..].iter_mut().for_each(|byte| *byte = b'9'),
            }
        }
        Ok(bytes)
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        let call = self.machine().plan.call;
        let mut machine = self.enter(call, &[libc::EINVAL, libc::EBUSY, libc::ENOMEM, libc::EPERM])?;
        machine.write(path, value)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let call = self.machine().plan.call;
        let machine = self.enter(call * 4, &[libc::EACCES, libc::EIO])?;
        if path == Path::new("/proc") {
            return Ok(machine.processes.keys().map(u32::to_string).collect());
        }
        machine.files.list(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let call = self.machine().plan.call;
        self.enter(call, &[libc::EACCES, libc::ENOMEM])?.files.make_folder(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let call = self.machine().plan.call;
        self.enter(call, &[libc::EBUSY])?.files.remove_folder(path)
    }

    fn stream(&self, path: &Path) -> io::Result<File> {
        let call = self.machine().plan.call;
        let machine = self.enter(call, &[libc::EACCES, libc::EMFILE])?;
        match machine.files.get(path) {
            Some(_) => File::open("/dev/null"),
            None => error(libc::ENOENT),
        }
    }

    fn open(&self, pid: u32) -> io::Result<Process> {
        let process = Process { pid, pidfd: None, pagemap: None, image: None, tracker: None };
        let call = self.machine().plan.call;
        if self.machine().hidden.contains(&pid) {
            return error(libc::EACCES);
        }
        let image = self.enter_for(&process, call, &[libc::EPERM, libc::EMFILE])?.image(pid);
        Ok(Process { image, ..process })
    }

    fn is_alive(&self, process: &Process) -> bool {
        self.machine().processes.contains_key(&process.pid)
    }

    fn has_same_memory(&self, process: &Process) -> bool {
        let image = self.machine().image(process.pid);
        image.is_some() && image == process.image
    }

    fn shares_memory(&self, pid: u32, other: u32) -> bool {
        self.machine().shares_memory(pid, other)
    }

    fn move_pages(
        &self,
        process: &Process,
        pages: &[u64],
        nodes: Option<&[i32]>,
        status: &mut [i32],
    ) -> io::Result<()> {
        const ERRORS: &[i32] = &[libc::EPERM, libc::ENOMEM, libc::EINTR, libc::EFAULT, libc::EACCES];
        let plan = self.machine().plan;
        let Some(nodes) = nodes else {
            let machine = self.enter_for(process, plan.ask, ERRORS)?;
            for (page, status) in pages.iter().zip(status) {
                *status = match machine.page(process.pid, page >> 12).map(|(_, page)| page.place) {
                    Some(Place::Node(node)) => node as i32,
                    _ => -libc::ENOENT,
                };
            }
            return Ok(());
        };
        let mut machine = self.enter_for(process, plan.call, ERRORS)?;
        let mut room = machine.room();
        for ((page, node), status) in pages.iter().zip(nodes).zip(status) {
            if machine.chance(plan.partial) {
                // The rest stays unreported; what was done before is done, whether the call says that it failed or not.
                return if machine.random.below(2) == 0 { Ok(()) } else { error(libc::ENOMEM) };
            }
            let attempt = machine.attempts;
            machine.attempts += 1;
            let refused = machine.chance(plan.page) || plan.attempt == Some(attempt);
            *status = if refused {
                let which = machine.random.below(5) as usize;
                -[libc::EBUSY, libc::ENOMEM, libc::ENOENT, libc::EACCES, libc::EFAULT][which]
            } else {
                match machine.move_page(process.pid, page >> 12, *node as usize, &mut room) {
                    Ok(()) => *node,
                    // A full node fails the call as a whole.
                    Err(libc::ENOMEM) => return error(libc::ENOMEM),
                    Err(errno) => -errno,
                }
            };
        }
        Ok(())
    }

    fn advise(&self, process: &Process, ranges: &[(u64, u64)], advice: Advice) -> io::Result<u64> {
        let plan = self.machine().plan;
        let errors = &[libc::EPERM, libc::ENOMEM, libc::EINTR, libc::EAGAIN];
        let mut machine = self.enter_for(process, plan.call, errors)?;
        let mut advised = 0;
        for (start, bytes) in ranges {
            let pages = start >> 12..(start + bytes) >> 12;
            let stop = machine.chance(plan.partial).then(|| machine.random.below(pages.end - pages.start));
            let end = pages.start + stop.unwrap_or(pages.end - pages.start);
            if let Err(errno) = machine.advise(process.pid, pages.start..end, advice) {
                return if advised > 0 { Ok(advised) } else { error(errno) };
            }
            advised += (end - pages.start) << 12;
            if stop.is_some() {
                return Ok(advised);
            }
        }
        Ok(advised)
    }

    fn scan_pages(
        &self,
        process: &Process,
        scan: &PageScan,
        runs: &mut [PageRun],
    ) -> io::Result<(usize, u64)> {
        let plan = self.machine().plan;
        let mut machine =
            self.enter_for(process, plan.ask * 4, &[libc::EINTR, libc::ENOMEM, libc::EFAULT])?;
        let mut count = 0;
        let (first, end) = (scan.start >> 12, scan.end >> 12);
        // The file was opened for a memory that may be over; what is mapped now does not show in it.
        let same = machine.image(process.pid) == process.image;
        let found: Vec<(u64, Page)> =
            if same { machine.pages_in(process.pid, first..end) } else { Vec::new() };
        for (head, page) in found {
            let tracked = if page.tracked { category::WRITE_TRACKED } else { 0 };
            let flag = |on: bool, bit: u64| if on { bit } else { 0 };
            let categories = tracked
                | flag(page.place == Place::Swap, category::SWAPPED)
                | flag(page.place != Place::Swap, category::PRESENT)
                | flag(page.size == PageSize::Huge, category::HUGE)
                | flag(page.dirty, category::SOFT_DIRTY)
                | flag(page.written, category::WRITTEN);
            if categories & scan.all_of != scan.all_of || scan.any_of != 0 && categories & scan.any_of == 0 {
                continue;
            }
            let (start, stop) = (head.max(first) << 12, (head + page.size.base_pages()).min(end) << 12);
            let matching = categories & scan.tell;
            let joins = count > 0 && runs[count - 1].end == start && runs[count - 1].categories == matching;
            if !joins && count == runs.len() || machine.chance(plan.partial * 8) {
                return Ok((count, start));
            }
            if joins {
                runs[count - 1].end = stop;
            } else {
                runs[count] = PageRun { start, end: stop, categories: matching };
                count += 1;
            }
            if scan.protect {
                machine.page_mut(process.pid, head).expect("it was found").1.written = false;
            }
        }
        Ok((count, scan.end))
    }

    fn track_writes(&self, process: &Process, start: u64, bytes: u64) -> io::Result<()> {
        let call = self.machine().plan.call;
        let errors = &[libc::ESRCH, libc::EBUSY, libc::ENOMEM, libc::EINVAL];
        let mut machine = self.enter_for(process, call, errors)?;
        for (head, _) in machine.pages_in(process.pid, start >> 12..(start + bytes) >> 12) {
            machine.page_mut(process.pid, head).expect("it was found").1.tracked = true;
        }
        Ok(())
    }

    fn faults(&self, _: u32, _: OwnedFd) -> io::Result<Box<dyn Faults>> {
        error(libc::ENOSYS)
    }

    fn pagemap(&self, process: &Process, first: u64, entries: &mut [u64]) -> io::Result<usize> {
        let machine = self.enter_for(process, 0, &[])?;
        for (at, entry) in entries.iter_mut().enumerate() {
            *entry = match machine.page(process.pid, first + at as u64) {
                Some((_, Page { place: Place::Swap, .. })) => 1 << 62,
                Some(_) => 1 << 63,
                None => 0,
            };
        }
        Ok(entries.len())
    }

    fn touch(&self, process: &Process, addresses: &[u64]) -> io::Result<usize> {
        let plan = self.machine().plan;
        let mut machine = self.enter_for(process, plan.call, &[libc::EPERM, libc::ENOMEM])?;
        let mut read = 0;
        for address in addresses {
            if machine.chance(plan.partial) {
                break;
            }
            read += usize::from(machine.touch(process.pid, address >> 12));
        }
        Ok(read)
    }

    fn sample(&self, event: Event, cpu: u32) -> io::Result<Box<dyn Samples>> {
        let call = self.machine().plan.call;
        self.enter(call, &[libc::EACCES, libc::EMFILE])?.sampled.push((event, cpu));
        Ok(Box::new(Ring { machine: self.machine.clone(), event, cpu, seen: 0 }))
    }

    fn probe(&self, what: Probe) -> io::Result<u64> {
        let machine = self.machine();
        let answers = machine.files.get(Path::new("/probes")).unwrap_or_default();
        let answer = answers.lines().find_map(|line| line.strip_prefix(what.name())?.strip_prefix(' '));
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        answer.and_then(number).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))
    }

    fn now(&self) -> Duration {
        let mut machine = self.machine();
        machine.clock += Duration::from_micros(1);
        machine.clock
    }

    fn cpu_time(&self) -> Duration {
        let machine = self.machine();
        machine.clock / 100 + machine.busy
    }

    fn sleep(&self, span: Duration) {
        self.pass(span);
    }
}

/// What the machine has noted of an event since the ring was opened, all on its first processor.
struct Ring {
    machine: Arc<Mutex<Machine>>,
    event: Event,
    cpu: u32,
    seen: usize,
}

impl Samples for Ring {
    fn read(&mut self, found: &mut dyn FnMut(Sample)) -> u64 {
        let mut machine = self.machine.lock().unwrap();
        let noted = machine.noted.get(&self.event).map_or(&[][..], Vec::as_slice);
        let new = noted[self.seen..].to_vec();
        self.seen = noted.len();
        let call = machine.plan.call;
        match self.cpu == 0 {
            false => return 0,
            true if machine.chance(call) => return new.len() as u64,
            true => new.iter().for_each(|sample| found(*sample)),
        }
        0
    }
}
