//! How contiguous the memory of a process is: runs of pages that are neighbours both in its address space and in physical memory.
//!
//! The metrics are those of Translation Ranger (Yan, PhD thesis, Rutgers 2019, §4.5: `TotalNum_ContigRegions`,
//! `MemCoverage_32Regions`, `MemCoverage_128Regions`).

use crate::kernel::{Kernel, Process, read_text};
use crate::space::parse_maps;
use serde::Serialize;
use std::io;

/// An entry of `pagemap`: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// An entry of `pagemap`: the number of the frame, or zero where the reader may not know.
const FRAME: u64 = (1 << 55) - 1;
/// Entries per read.
const ENTRIES: usize = 32_768;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Contiguity {
    /// Base pages in memory.
    pub pages: u64,
    /// Runs that cover them all.
    pub regions: u64,
    /// Base pages of the largest runs, largest first; at most 128.
    pub largest: Vec<u64>,
}

impl Contiguity {
    /// Share of the pages that lie in the `count` largest runs, 0 to 1; at most 128 are known.
    pub fn coverage(&self, count: usize) -> f64 {
        let covered: u64 = self.largest.iter().take(count).sum();
        if self.pages == 0 { 0.0 } else { covered as f64 / self.pages as f64 }
    }
}

/// Collects runs from frames in the order of their pages.
#[derive(Debug, Default)]
struct Runs {
    lengths: Vec<u64>,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    next_page: u64,
    next_frame: u64,
    pages: u64,
}

impl Runs {
    fn add(&mut self, page: u64, frame: u64) {
        match &mut self.open {
            Some(open) if open.next_page == page && open.next_frame == frame => {
                *open = Open { next_page: page + 1, next_frame: frame + 1, pages: open.pages + 1 };
            }
            _ => {
                self.close();
                self.open = Some(Open { next_page: page + 1, next_frame: frame + 1, pages: 1 });
            }
        }
    }

    fn close(&mut self) {
        self.lengths.extend(self.open.take().map(|open| open.pages));
    }

    fn finish(mut self) -> Contiguity {
        self.close();
        let (pages, regions) = (self.lengths.iter().sum(), self.lengths.len() as u64);
        self.lengths.sort_unstable_by(|a, b| b.cmp(a));
        self.lengths.truncate(128);
        Contiguity { pages, regions, largest: self.lengths }
    }
}

/// Looks at the memory that is the program's own: anonymous, shared without a file, stacks and reserved huge pages.
///
/// # Errors
/// The process has ended, may not be looked into, or the kernel hides frame numbers from this user (`EPERM`).
pub fn measure(kernel: &dyn Kernel, process: &Process) -> io::Result<Contiguity> {
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
            for (at, entry) in entries[..count].iter().enumerate().filter(|(_, entry)| **entry & PRESENT != 0)
            {
                if entry & FRAME == 0 {
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                runs.add(page + at as u64, entry & FRAME);
            }
            page += count as u64;
        }
        // Two mappings that touch are two areas, whatever their frames.
        runs.close();
    }
    Ok(runs.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(pages: &[(u64, u64)]) -> Contiguity {
        let mut runs = Runs::default();
        pages.iter().for_each(|(page, frame)| runs.add(*page, *frame));
        runs.finish()
    }

    #[test]
    fn a_run_ends_where_either_side_jumps() {
        let found = of(&[(10, 100), (11, 101), (12, 102), (13, 50), (15, 51), (16, 52)]);
        assert_eq!(found, Contiguity { pages: 6, regions: 3, largest: vec![3, 2, 1] });
        assert_eq!((found.coverage(1), found.coverage(2), found.coverage(32)), (0.5, 5.0 / 6.0, 1.0));
        assert_eq!(Contiguity::default().coverage(32), 0.0);
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

    proptest! {
        /// The obvious reference: a page begins a run unless the page before it is there and in the frame before.
        #[test]
        fn regions_are_counted_as_by_hand(frames in proptest::collection::btree_map(0u64..200, 1u64..60, 0..150)) {
            let pages: Vec<(u64, u64)> = frames.iter().map(|(page, frame)| (*page, *frame)).collect();
            let begins = pages.iter().filter(|(page, frame)| {
                page.checked_sub(1).and_then(|before| frames.get(&before)) != Some(&(frame - 1))
            });
            let found = of(&pages);
            prop_assert_eq!(found.regions, begins.count() as u64);
            prop_assert_eq!(found.pages, pages.len() as u64);
            prop_assert!(found.largest.windows(2).all(|pair| pair[0] >= pair[1]));
        }
    }
}
