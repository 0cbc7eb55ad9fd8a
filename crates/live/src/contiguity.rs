//! How contiguous the memory of a process is, from the frame numbers that the kernel shows of it.

use crate::facts::system::{base_page, other_base_page};
use crate::kernel::{IN_MEMORY, Kernel, Process, read_text};
use crate::space::parse_maps;
use serde::Serialize;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_model::KERNEL_OF_BASE_PAGES;
use terrace_policy::Runs;

pub use terrace_policy::Contiguity;

/// An entry of `pagemap`: the number of the frame, or zero where the reader may not know.
const FRAME: u64 = (1 << 55) - 1;
/// Entries per read.
const ENTRIES: usize = 32_768;
/// Between two looks whether to stop.
const SLEEP: Duration = Duration::from_millis(100);

/// Looks at the memory that is the program's own: anonymous, shared without a file, stacks and reserved huge pages.
///
/// # Errors
/// The process has ended, may not be looked into, or the kernel hides frame numbers from this user (`EPERM`), or has base
/// pages of another size.
pub fn measure(kernel: &dyn Kernel, process: &Process) -> io::Result<Contiguity> {
    if let Some(reason) = other_base_page(&base_page(kernel)) {
        return Err(io::Error::other(format!("{reason}; it needs {KERNEL_OF_BASE_PAGES}")));
    }
    let maps = read_text(kernel, format!("/proc/{}/maps", process.pid))?;
    let mut runs = Runs::default();
    let mut entries = vec![0; ENTRIES];
    for mapping in parse_maps(&maps) {
        let mut page = mapping.first;
        while page < mapping.end {
            let wanted = ENTRIES.min((mapping.end - page) as usize);
            let count = kernel.pagemap(process, page, &mut entries[..wanted])?;
            if count == 0 {
                break;
            }
            for (at, entry) in
                entries[..count].iter().enumerate().filter(|(_, entry)| **entry & IN_MEMORY != 0)
            {
                if entry & FRAME == 0 {
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                runs.add(page + at as u64, entry & FRAME, 1);
            }
            page += count as u64;
        }
        // Two mappings that touch are two areas, whatever their frames.
        runs.close();
    }
    Ok(runs.finish())
}

/// What one look found, in the metrics of Translation Ranger.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Since the first look began.
    pub seconds: f64,
    /// The share of the memory that the largest 32 runs cover.
    pub coverage_32: f64,
    /// The share of the memory that the largest 128 runs cover.
    pub coverage_128: f64,
    /// All of it.
    #[serde(flatten)]
    pub contiguity: Contiguity,
}

/// Looks at a process again and again, until it ends.
pub struct Looks<'a> {
    kernel: &'a dyn Kernel,
    process: &'a Process,
    every: Option<Duration>,
    length: Option<Duration>,
    stop: &'a AtomicBool,
    begun: Instant,
    taken: u32,
}

impl<'a> Looks<'a> {
    /// A look now, and where `every` is given one each time that it has passed, until `length` has, or `stop` is set.
    pub fn new(
        kernel: &'a dyn Kernel,
        process: &'a Process,
        every: Option<Duration>,
        length: Option<Duration>,
        stop: &'a AtomicBool,
    ) -> Looks<'a> {
        Looks { kernel, process, every, length, stop, begun: Instant::now(), taken: 0 }
    }

    fn look(&self) -> io::Result<Sample> {
        let contiguity = measure(self.kernel, self.process)?;
        Ok(Sample {
            seconds: self.begun.elapsed().as_secs_f64(),
            coverage_32: contiguity.coverage(32),
            coverage_128: contiguity.coverage(128),
            contiguity,
        })
    }
}

impl Iterator for Looks<'_> {
    type Item = io::Result<Sample>;

    fn next(&mut self) -> Option<io::Result<Sample>> {
        if self.taken > 0 {
            let next = self.every?.saturating_mul(self.taken);
            if self.length.is_some_and(|length| next > length) {
                return None;
            }
            while let Some(rest) = next.checked_sub(self.begun.elapsed()).filter(|rest| !rest.is_zero())
                && !self.stop.load(Ordering::Relaxed)
            {
                std::thread::sleep(rest.min(SLEEP));
            }
            if self.stop.load(Ordering::Relaxed) || !self.kernel.is_alive(self.process) {
                return None;
            }
        }
        let sample = self.look();
        // The process may end while the look goes on.
        if sample.is_err() && self.taken > 0 && !self.kernel.is_alive(self.process) {
            return None;
        }
        self.taken = self.taken.saturating_add(1);
        Some(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_end_when_stop_is_set() {
        let process = crate::kernel::Linux.open(std::process::id()).unwrap();
        let stop = AtomicBool::new(false);
        let hour = Some(Duration::from_secs(3600));
        let mut looks = Looks::new(&crate::kernel::Linux, &process, hour, None, &stop);
        // Without privileges the look itself may fail.
        assert!(looks.next().is_some());
        stop.store(true, Ordering::Relaxed);
        assert!(looks.next().is_none());
    }

    #[test]
    fn a_huge_page_of_this_process_is_one_run() {
        let found = measure(
            &crate::kernel::Linux,
            &crate::kernel::Kernel::open(&crate::kernel::Linux, std::process::id()).unwrap(),
        );
        match found {
            Ok(found) => assert!(found.pages > 0 && found.regions <= found.pages),
            // Without privileges the kernel hides the frames; then there is no half an answer.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
    }
}
