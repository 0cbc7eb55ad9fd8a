//! What entry dropping costs a program: taking out the entry of a page of shared memory, and the next load or store, which
//! makes a new one. Beside them the same loads and stores with the entries in place. Only this program's own memory is
//! touched. Times are the thread's own processor time, so that other work on the machine does not count.
//!
//! `cargo run --release -p terrace-live --example entry_drop_cost [MIB] [ROUNDS]`

use std::error::Error;
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;
use terrace_live::kernel::{Kernel, Linux, PageRun, PageScan, category};

const PAGE: u64 = 4096;
/// `UFFDIO_API` with its version, and `UFFD_FEATURE_WP_HUGETLBFS_SHMEM`, `_WP_UNPOPULATED` and `_WP_ASYNC`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
const API: [u64; 3] = [0xaa, 1 << 12 | 1 << 13 | 1 << 15, 0];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mib: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(9), |text| text.parse())?;
    let mut process = Linux.open(std::process::id())?;
    process.tracker = Some(tracker()?);
    let memory = shared(mib << 20)?;
    let pages = (memory.end - memory.start) / PAGE;
    Linux.track_writes(&process, memory.start, memory.end - memory.start)?;
    let protect = || -> std::io::Result<()> {
        let mut runs = [PageRun::default(); 512];
        let mut scan = PageScan {
            start: memory.start,
            end: memory.end,
            all_of: category::WRITE_TRACKED | category::WRITTEN,
            tell: category::WRITTEN,
            protect: true,
            ..PageScan::default()
        };
        while scan.start < scan.end {
            (_, scan.start) = Linux.scan_pages(&process, &scan, &mut runs)?;
        }
        Ok(())
    };
    let mut times: [Vec<f64>; 5] = Default::default();
    for _ in 0..rounds {
        // Loads with entries in place; then after a drop; stores with entries that allow them, and after a drop.
        times[0].push(each(&memory, false));
        protect()?;
        times[1].push(drop_entries(&memory)?);
        times[2].push(each(&memory, false));
        each(&memory, true);
        times[3].push(each(&memory, true));
        protect()?;
        drop_entries(&memory)?;
        times[4].push(each(&memory, true));
    }
    let [load, dropped, first_load, store, first_store] = times.map(|mut some| {
        some.sort_by(f64::total_cmp);
        some[some.len() / 2]
    });
    println!("{pages} pages, {rounds} rounds; medians in ns per page");
    println!(
        "drop_entries {dropped:.0}; load {load:.0}, after a drop_entries {first_load:.0}; store {store:.0}, after a drop_entries {first_store:.0}"
    );
    Ok(())
}

fn tracker() -> std::io::Result<OwnedFd> {
    let mut api = API;
    // SAFETY: a new descriptor comes back or an error; three numbers are the structure that the request names.
    unsafe {
        // A descriptor for user code only: any user may have one.
        let number = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) as i32;
        if number < 0 || libc::ioctl(number, UFFDIO_API, api.as_mut_ptr()) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(number))
    }
}

fn shared(bytes: u64) -> std::io::Result<Range<u64>> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping wherever there is room, of which nothing is known to others.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    let memory = start as u64..start as u64 + bytes;
    each(&memory, true);
    Ok(memory)
}

/// Processor time of this thread.
fn used() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Nanoseconds per page of an access to each.
fn each(memory: &Range<u64>, store: bool) -> f64 {
    let started = used();
    for page in (memory.start..memory.end).step_by(PAGE as usize) {
        let word = page as *mut u64;
        // SAFETY: inside the mapping, which is readable and writable.
        unsafe {
            match store {
                true => word.write_volatile(page),
                false => _ = word.read_volatile(),
            }
        }
    }
    (used() - started).as_nanos() as f64 / ((memory.end - memory.start) / PAGE) as f64
}

/// Nanoseconds per page of taking out the entries, in pieces as the library does it.
fn drop_entries(memory: &Range<u64>) -> std::io::Result<f64> {
    let started = used();
    for piece in (memory.start..memory.end).step_by(2 << 20) {
        let bytes = (memory.end - piece).min(2 << 20) as usize;
        // SAFETY: the mapping is shared, so its data stay.
        if unsafe { libc::madvise(piece as *mut _, bytes, libc::MADV_DONTNEED) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok((used() - started).as_nanos() as f64 / ((memory.end - memory.start) / PAGE) as f64)
}
