//! Minor faults of a process's shared memory, taken by a userfaultfd that the process has handed over: an access to a page
//! that is in memory and has no page-table entry. Whoever makes it waits until it is answered.
//!
//! A thread for each process answers, so that one process never waits for what holds up another. It does nothing else: it
//! takes no lock, writes no log, allocates nothing. An answer that the kernel refuses is followed by the next gentler one,
//! down to giving the descriptor up, which ends all registrations and wakes everybody ([`answered`]).

use super::Sample;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// How the first fault in a range is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The base page gets its entry; the range stays registered.
    Page,
    /// The whole range, a huge page, is registered no longer, so that the kernel can map it as a whole again.
    Whole,
}

/// The minor faults of one process. They are answered as long as this lives.
pub trait Faults: Send {
    /// Reports and answers minor faults in this range, the process's own shared memory, from now on.
    ///
    /// # Errors
    /// The memory is of another kind, or someone else's; too many huge pages; nothing is answered any more (`ENOTTY`).
    fn begin(&mut self, start: u64, bytes: u64, answer: Answer) -> io::Result<()>;

    /// Ends the reports of faults in this range. Whoever waits there goes on.
    ///
    /// # Errors
    /// The memory has gone, or is of another kind now.
    fn end(&mut self, start: u64, bytes: u64) -> io::Result<()>;

    /// Reports each fault since the last call, oldest first; returns how many more were lost. Faults of Terrace's own
    /// accesses have its own process number.
    fn read(&mut self, found: &mut dyn FnMut(Sample)) -> u64;

    /// Faults taken up to now. An entry that the answer to a fault has made is seen only after that fault was taken.
    fn taken(&self) -> u64;

    /// How many of the faults taken, oldest first, are answered and can be read, or are lost.
    fn reported(&self) -> u64;
}

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
/// Huge pages registered at a time.
const WIDE: usize = 1024;
/// Faults that are kept until they are read.
const KEPT: usize = 8192;
/// Faults taken at a time.
const TAKEN: usize = 16;

/// `_IOWR(0xaa, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
/// `_IOR(0xaa, 0x01, struct uffdio_range)`.
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_aa01_u32 as libc::Ioctl;
/// `_IOR(0xaa, 0x02, struct uffdio_range)`.
const UFFDIO_WAKE: libc::Ioctl = 0x8010_aa02_u32 as libc::Ioctl;
/// `_IOWR(0xaa, 0x07, struct uffdio_continue)`.
const UFFDIO_CONTINUE: libc::Ioctl = 0xc020_aa07_u32 as libc::Ioctl;
/// `UFFDIO_REGISTER_MODE_MINOR`.
const REGISTER_MINOR: u64 = 1 << 2;
/// `UFFD_EVENT_PAGEFAULT`.
const PAGE_FAULT: u8 = 0x12;
/// `UFFD_PAGEFAULT_FLAG_WRITE`.
const STORE: u64 = 1 << 0;

/// `struct uffd_msg` of linux/userfaultfd.h, as it is for a fault.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u32,
    unused: u32,
}

const _: () = assert!(size_of::<Message>() == 32);

/// What is asked of the kernel; an error is its number.
trait Requests {
    /// Gives a page its entry, and wakes who waits for it.
    fn carry_on(&self, page: u64) -> Result<(), i32>;
    /// Takes a range out of the registration, and wakes who waits there.
    fn release(&self, start: u64, bytes: u64) -> Result<(), i32>;
    /// Lets those who wait for a page try again.
    fn wake(&self, page: u64) -> Result<(), i32>;
}

struct Descriptor(OwnedFd);

impl Descriptor {
    fn request<const N: usize>(&self, request: libc::Ioctl, mut arguments: [u64; N]) -> Result<(), i32> {
        // SAFETY: the callers pass as many numbers as the structure has that the request names; the range is the other
        // process's, and the kernel checks it.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, arguments.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

impl Requests for Descriptor {
    fn carry_on(&self, page: u64) -> Result<(), i32> {
        // The range, no mode, what was done.
        self.request(UFFDIO_CONTINUE, [page, PAGE, 0, 0])
    }

    fn release(&self, start: u64, bytes: u64) -> Result<(), i32> {
        self.request(UFFDIO_UNREGISTER, [start, bytes])?;
        // The kernel itself wakes only who waits for missing pages.
        self.request(UFFDIO_WAKE, [start, bytes])
    }

    fn wake(&self, page: u64) -> Result<(), i32> {
        self.request(UFFDIO_WAKE, [page, PAGE])
    }
}

/// The first addresses of the ranges that are answered as a whole; 0 is none. Looked through by the thread without any lock.
struct Wide([AtomicU64; WIDE]);

impl Wide {
    fn put(&self, start: u64) -> bool {
        let free =
            |slot: &AtomicU64| slot.compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        self.0.iter().any(free)
    }

    /// Whether it was there; from now on it is not.
    fn take(&self, start: u64) -> bool {
        let same =
            |slot: &AtomicU64| slot.compare_exchange(start, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        self.0.iter().any(same)
    }
}

/// Resolves a fault; false where nothing helps but to give up the descriptor.
fn answered(kernel: &impl Requests, wide: &Wide, address: u64) -> bool {
    let page = address & !(PAGE - 1);
    let whole = address & !(HUGE - 1);
    if wide.take(whole) && kernel.release(whole, HUGE).is_ok() {
        return true;
    }
    match kernel.carry_on(page) {
        Ok(()) => true,
        // Another thread's fault on the page was answered (EEXIST), the page was punched out of its file (EFAULT), the
        // mapping is another one now (ENOENT), or is about to be (EAGAIN): the access is made again and finds out itself.
        Err(libc::EEXIST | libc::EFAULT | libc::ENOENT | libc::EAGAIN) => kernel.wake(page).is_ok(),
        // Without memory for an entry, or with a broken page: the kernel does then what it does without us.
        Err(_) => kernel.release(page, PAGE).is_ok(),
    }
}

struct Shared {
    descriptor: Descriptor,
    wide: Wide,
    lost: AtomicU64,
    /// As [`Faults::taken`] and [`Faults::reported`] say; only the thread stores to both.
    taken: AtomicU64,
    reported: AtomicU64,
}

/// Takes the descriptor's place at the end of the thread, however that comes, so that nobody waits for one that is gone.
struct GiveUp<'a> {
    shared: &'a Shared,
    stop: PipeReader,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        // SAFETY: both are open. What had the number is closed, the last of its kind; the number stays valid for its owner.
        unsafe {
            let number = self.shared.descriptor.0.as_raw_fd();
            libc::dup3(self.stop.as_raw_fd(), number, libc::O_CLOEXEC);
        }
    }
}

/// The engine's side.
struct Served {
    shared: Arc<Shared>,
    faults: Receiver<Sample>,
    /// The end of a pipe: closing it ends the thread.
    _stop: PipeWriter,
}

/// Starts the thread that answers the faults of a process.
pub(super) fn serve(pid: u32, tracker: OwnedFd) -> io::Result<Box<dyn Faults>> {
    // SAFETY: the descriptor is open. The kernel reports faults only to those that do not wait in `read`.
    if unsafe { libc::fcntl(tracker.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let (until, stop) = io::pipe()?;
    let (sender, faults) = sync_channel(KEPT);
    let wide = Wide(std::array::from_fn(|_| AtomicU64::new(0)));
    let [lost, taken, reported] = std::array::from_fn(|_| AtomicU64::new(0));
    let shared = Arc::new(Shared { descriptor: Descriptor(tracker), wide, lost, taken, reported });
    let theirs = shared.clone();
    std::thread::Builder::new()
        .name("faults".to_owned())
        .spawn(move || answer_all(&GiveUp { shared: &theirs, stop: until }, pid, &sender))?;
    Ok(Box::new(Served { shared, faults, _stop: stop }))
}

/// The thread.
fn answer_all(serving: &GiveUp<'_>, pid: u32, sender: &SyncSender<Sample>) {
    let (shared, own) = (serving.shared, std::process::id());
    let poll = |file: i32| libc::pollfd { fd: file, events: libc::POLLIN, revents: 0 };
    let mut files = [poll(shared.descriptor.0.as_raw_fd()), poll(serving.stop.as_raw_fd())];
    let mut messages = [Message::default(); TAKEN];
    loop {
        // SAFETY: two structures, as is said. A call that is interrupted is made again, for then there is nothing to read.
        unsafe { libc::poll(files.as_mut_ptr(), files.len() as libc::nfds_t, -1) };
        if files[1].revents != 0 {
            return;
        }
        // SAFETY: the buffer has as many bytes as is said, and any bytes are a message.
        let read = unsafe { libc::read(files[0].fd, messages.as_mut_ptr().cast(), size_of_val(&messages)) };
        if read < 0 {
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => continue,
                _ => return,
            }
        }
        let time = super::clock(libc::CLOCK_BOOTTIME).as_nanos() as u64;
        let count = read as usize / size_of::<Message>();
        let taken = shared.taken.load(Ordering::Relaxed) + count as u64;
        shared.taken.store(taken, Ordering::SeqCst);
        for message in messages.iter().take(count) {
            if message.event != PAGE_FAULT {
                continue;
            }
            if !answered(&shared.descriptor, &shared.wide, message.address) {
                return;
            }
            // SAFETY: no signal is sent with number 0: it shows whether the thread is one of ours.
            let ours = unsafe { libc::syscall(libc::SYS_tgkill, own, message.thread, 0) } == 0;
            let sample = Sample {
                pid: if ours { own } else { pid },
                time,
                address: message.address,
                store: message.flags & STORE != 0,
            };
            if sender.try_send(sample).is_err() {
                shared.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        shared.reported.store(taken, Ordering::SeqCst);
    }
}

impl Faults for Served {
    fn begin(&mut self, start: u64, bytes: u64, answer: Answer) -> io::Result<()> {
        let shared = &self.shared;
        if answer == Answer::Whole && !shared.wide.put(start) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        // The range, the mode, the requests that it allows.
        shared.descriptor.request(UFFDIO_REGISTER, [start, bytes, REGISTER_MINOR, 0]).map_err(|error| {
            shared.wide.take(start);
            io::Error::from_raw_os_error(error)
        })
    }

    fn end(&mut self, start: u64, bytes: u64) -> io::Result<()> {
        self.shared.wide.take(start);
        self.shared.descriptor.release(start, bytes).map_err(io::Error::from_raw_os_error)
    }

    fn read(&mut self, found: &mut dyn FnMut(Sample)) -> u64 {
        self.faults.try_iter().for_each(found);
        self.shared.lost.swap(0, Ordering::Relaxed)
    }

    fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::SeqCst)
    }

    fn reported(&self) -> u64 {
        self.shared.reported.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A kernel that refuses; what it was asked, in order.
    #[derive(Default)]
    struct Refusing {
        carry_on: Option<i32>,
        release: Option<i32>,
        asked: RefCell<Vec<(&'static str, u64)>>,
    }

    impl Refusing {
        fn asked(&self, what: &'static str, at: u64, refusal: Option<i32>) -> Result<(), i32> {
            self.asked.borrow_mut().push((what, at));
            refusal.map_or(Ok(()), Err)
        }
    }

    impl Requests for Refusing {
        fn carry_on(&self, page: u64) -> Result<(), i32> {
            self.asked("carry on", page, self.carry_on)
        }

        fn release(&self, start: u64, _: u64) -> Result<(), i32> {
            self.asked("release", start, self.release)
        }

        fn wake(&self, page: u64) -> Result<(), i32> {
            self.asked("wake", page, None)
        }
    }

    const ADDRESS: u64 = 3 * HUGE + 5 * PAGE + 17;

    fn answers(kernel: &Refusing, wide: &Wide) -> (bool, Vec<(&'static str, u64)>) {
        let answered = answered(kernel, wide, ADDRESS);
        (answered, kernel.asked.take())
    }

    fn none_wide() -> Wide {
        Wide(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[test]
    fn whatever_the_kernel_refuses_nobody_is_left_waiting() {
        let (wide, page) = (none_wide(), 3 * HUGE + 5 * PAGE);
        assert_eq!(answers(&Refusing::default(), &wide), (true, vec![("carry on", page)]));
        for error in [libc::EEXIST, libc::EFAULT, libc::ENOENT, libc::EAGAIN] {
            let kernel = Refusing { carry_on: Some(error), ..Refusing::default() };
            assert_eq!(answers(&kernel, &wide), (true, vec![("carry on", page), ("wake", page)]));
        }
        for error in [libc::ENOMEM, libc::EIO, libc::EINVAL, libc::ESRCH, libc::EPERM] {
            let kernel = Refusing { carry_on: Some(error), ..Refusing::default() };
            assert_eq!(answers(&kernel, &wide), (true, vec![("carry on", page), ("release", page)]));
            // Where no call works, the descriptor is given up, which wakes all.
            let kernel = Refusing { release: Some(libc::ENOMEM), ..kernel };
            assert!(!answers(&kernel, &wide).0, "{error}");
        }
    }

    #[test]
    fn a_huge_page_is_released_as_a_whole_once() {
        let (wide, page) = (none_wide(), 3 * HUGE + 5 * PAGE);
        assert!(wide.put(3 * HUGE) && wide.put(9 * HUGE));
        assert_eq!(answers(&Refusing::default(), &wide), (true, vec![("release", 3 * HUGE)]));
        assert_eq!(answers(&Refusing::default(), &wide), (true, vec![("carry on", page)]));
        // Some of it is other memory by now.
        assert!(wide.put(3 * HUGE));
        let kernel = Refusing { release: Some(libc::EINVAL), ..Refusing::default() };
        assert_eq!(answers(&kernel, &wide), (true, vec![("release", 3 * HUGE), ("carry on", page)]));
        assert!(wide.take(9 * HUGE) && !wide.take(9 * HUGE));
        assert_eq!((0..=WIDE as u64).filter(|at| wide.put(at * HUGE + HUGE)).count(), WIDE);
    }
}
