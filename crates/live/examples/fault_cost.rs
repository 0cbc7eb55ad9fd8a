//! What sampled faults cost a program: taking out the entry of one page of shared memory, and how long the next access to it
//! waits until the fault is answered. Only this program's own memory is touched; it is as if Terrace were another process.
//!
//! `cargo run --release -p terrace-live --example fault_cost [PAGES]`

use std::error::Error;
use std::time::{Duration, Instant};
use terrace_handover::userfaultfd;
use terrace_live::kernel::{Answer, Kernel, Linux};

const PAGE: u64 = 4096;
/// `UFFD_FEATURE_THREAD_ID`, `UFFD_FEATURE_MINOR_SHMEM`, `UFFD_FEATURE_EXACT_ADDRESS`.
const FEATURES: u64 = 1 << 8 | 1 << 10 | 1 << 11;

fn main() -> Result<(), Box<dyn Error>> {
    let pages: u64 = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse())?;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping wherever there is room, of which nothing is known to others.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), (pages * PAGE) as usize, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    let all = (0..pages).map(|page| start as u64 + page * PAGE);
    // SAFETY: inside the mapping, as below.
    all.clone().for_each(|page| unsafe { (page as *mut u64).write_volatile(page) });
    let tracker = userfaultfd(0, FEATURES).ok_or("no userfaultfd for minor faults; run it as root")?;
    // SAFETY: the number is open; the copy is the server's own.
    let tracker = unsafe { std::os::fd::BorrowedFd::borrow_raw(tracker.number()) }.try_clone_to_owned()?;
    let mut faults = Linux.faults(std::process::id(), tracker)?;
    faults.begin(start as u64, pages * PAGE, Answer::Page)?;
    let before = Linux.cpu_time();
    let (mut drops, mut waits) = (Vec::new(), Vec::new());
    for page in all {
        // Now and then, as samples come.
        std::thread::sleep(Duration::from_micros(50));
        let began = Instant::now();
        // SAFETY: the mapping is shared, so its data stay.
        if unsafe { libc::madvise(page as *mut _, PAGE as usize, libc::MADV_DONTNEED) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        let dropped = Instant::now();
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { (page as *mut u64).read_volatile() }, page);
        waits.push(dropped.elapsed());
        drops.push(dropped - began);
    }
    let (mut reported, cpu) = (0u64, Linux.cpu_time() - before);
    let lost = faults.read(&mut |_| reported += 1);
    println!(
        "{pages} pages, {reported} faults told, {lost} beyond what is kept; {cpu:.1?} of processor time for all"
    );
    for (what, mut times) in [("drop_entries", drops), ("access after it", waits)] {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "{what}: median {:.1?}, 99 % within {:.1?}, 99.9 % within {:.1?}, longest {:.1?}",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
    Ok(())
}
