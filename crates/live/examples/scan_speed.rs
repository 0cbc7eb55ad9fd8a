//! What looking at all pages of a process costs beside the bare `PAGEMAP_SCAN` over the same memory, in pairs. Only this
//! program's own memory is looked at.
//!
//! `cargo run --release -p terrace-live --example scan_speed [GIB] [ROUNDS]`

use std::error::Error;
use std::time::{Duration, Instant};
use terrace_live::facts::TierMap;
use terrace_live::kernel::{Kernel, Linux, PageRun, PageScan, Process, category};
use terrace_live::space::{Dirtiness, Space};
use terrace_policy::SpaceId;

const WANTED: u64 = category::PRESENT | category::SWAPPED;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let gib: u64 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(15), |text| text.parse())?;
    let tiers = TierMap::discover(&Linux);
    println!(
        "{gib} GiB, {rounds} pairs, tiers of this machine: {}; medians",
        tiers.topology.tiers.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>().join(", ")
    );
    for (pages, advice) in [("4 KiB", libc::MADV_NOHUGEPAGE), ("2 MiB", libc::MADV_HUGEPAGE)] {
        let memory = touched(gib << 30, advice)?;
        let process = Linux.open(std::process::id())?;
        let mut space = Space::new(SpaceId(0), process, "own".to_owned(), tiers.topology.tiers.len().max(1));
        let first = Instant::now();
        space.refresh(&Linux, &tiers, Dirtiness::Unknown)?;
        let first = first.elapsed();
        let (mut bare, mut looked, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let started = Instant::now();
            scan(&space.process, &memory)?;
            bare.push(started.elapsed());
            let started = Instant::now();
            space.refresh(&Linux, &tiers, Dirtiness::Unknown)?;
            looked.push(started.elapsed());
            ratios.push(looked[looked.len() - 1].as_secs_f64() / bare[bare.len() - 1].as_secs_f64());
        }
        ratios.sort_by(f64::total_cmp);
        println!(
            "pages of {pages}: first look {first:.2?}; bare scan {:.2?}, look {:.2?}, ratio {:.3} (from {:.3} to {:.3})",
            median(bare),
            median(looked),
            ratios[rounds / 2],
            ratios[0],
            ratios[rounds - 1],
        );
        // SAFETY: the mapping was made by `touched`, and nothing refers to it any more.
        unsafe { libc::munmap(memory.start as *mut _, (memory.end - memory.start) as usize) };
    }
    Ok(())
}

/// The kernel's work alone, with the same question and the same buffer.
fn scan(process: &Process, memory: &std::ops::Range<u64>) -> std::io::Result<()> {
    let mut runs = vec![PageRun::default(); 8192];
    let mut at = memory.start;
    while at < memory.end {
        let scan = PageScan {
            start: at,
            end: memory.end,
            any_of: WANTED,
            tell: WANTED | category::HUGE | category::ZERO,
            ..PageScan::default()
        };
        (_, at) = Linux.scan_pages(process, &scan, &mut runs)?;
    }
    Ok(())
}

/// New memory whose pages are all there.
fn touched(bytes: u64, advice: libc::c_int) -> std::io::Result<std::ops::Range<u64>> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping wherever there is room, of which nothing is known to others.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: advice about our own mapping changes no contents; refused, the pages have the machine's usual size.
    unsafe { libc::madvise(start, bytes as usize, advice) };
    let start = start as u64;
    for page in (start..start + bytes).step_by(4096) {
        // SAFETY: inside the mapping, which is writable.
        unsafe { (page as *mut u64).write_volatile(1) };
    }
    Ok(start..start + bytes)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
