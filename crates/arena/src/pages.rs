//! Which memory of this process is there, and in pages of which size: `PAGEMAP_SCAN` (Linux 6.7) and `/proc/self/pagemap`.

use crate::system::{self, File};
use crate::{BASE, HUGE};
use std::mem::size_of;
use std::ops::Range;

/// `_IOWR('f', 16, struct pm_scan_arg)` of linux/fs.h.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610;
/// `PAGE_IS_WRITTEN`, without write protection by `userfaultfd`; `PAGE_IS_FILE`, `PAGE_IS_PRESENT`, `PAGE_IS_SWAPPED`,
/// `PAGE_IS_HUGE`.
const WRITTEN: u64 = 1 << 1;
const OF_FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const IS_HUGE: u64 = 1 << 6;
/// Bits of an entry of `pagemap`: the page is in memory; no other process maps it.
const IN_MEMORY: u64 = 1 << 63;
const EXCLUSIVE: u64 = 1 << 56;
/// Runs per system call.
const RUNS: usize = 64;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Arguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Categories that a page has to have: any of these, all of those, and none of the last.
#[derive(Clone, Copy, Default)]
struct Wanted {
    any: u64,
    all: u64,
    none: u64,
}

/// The page table of this process.
#[derive(Debug)]
pub struct PageTable(File);

impl PageTable {
    /// Opens it; none where the kernel is older than 6.7 or the process may not look at itself.
    pub fn open() -> Option<PageTable> {
        let table = PageTable(File::open(c"/proc/thread-self/pagemap")?);
        table.runs(0..BASE, &mut |_, _| {}).then_some(table)
    }

    /// Shows the runs of pages in memory, by address, and whether they lie in huge pages. False where the kernel refused.
    pub fn runs(&self, range: Range<usize>, visit: &mut dyn FnMut(Range<usize>, bool)) -> bool {
        let any = PRESENT;
        self.scan(range, Wanted { any, ..Wanted::default() }, &mut |run, categories| {
            visit(run, categories & IS_HUGE != 0)
        })
    }

    /// Shows the runs of pages that hold something: in memory, or in swap. False where the kernel refused.
    pub fn data(&self, range: Range<usize>, visit: &mut dyn FnMut(Range<usize>)) -> bool {
        self.scan(range, Wanted { any: PRESENT | SWAPPED, ..Wanted::default() }, &mut |run, _| visit(run))
    }

    /// Shows the runs of pages that hold something and that `userfaultfd` does not protect from stores. False where the
    /// kernel refused.
    pub fn unprotected(&self, range: Range<usize>, visit: &mut dyn FnMut(Range<usize>)) -> bool {
        let wanted = Wanted { any: PRESENT | SWAPPED, all: WRITTEN, none: 0 };
        self.scan(range, wanted, &mut |run, _| visit(run))
    }

    /// Shows the runs of pages of a private mapping that were written, so that they are no longer the file's. False
    /// where the kernel refused.
    pub fn private(&self, range: Range<usize>, visit: &mut dyn FnMut(Range<usize>)) -> bool {
        let wanted = Wanted { any: PRESENT | SWAPPED, all: 0, none: OF_FILE };
        self.scan(range, wanted, &mut |run, _| visit(run))
    }

    /// Shows the runs of pages of such categories, with what they have.
    fn scan(&self, range: Range<usize>, wanted: Wanted, visit: &mut dyn FnMut(Range<usize>, u64)) -> bool {
        let mut found = [Region::default(); RUNS];
        let mut arguments = Arguments {
            size: size_of::<Arguments>() as u64,
            start: range.start as u64,
            end: range.end as u64,
            vec: found.as_mut_ptr() as u64,
            vec_len: RUNS as u64,
            category_anyof_mask: wanted.any,
            category_inverted: wanted.none,
            category_mask: wanted.all | wanted.none,
            return_mask: PRESENT | SWAPPED | IS_HUGE,
            ..Arguments::default()
        };
        while arguments.start < arguments.end {
            // SAFETY: The structure is the one that the request names, with its size; `vec` holds `vec_len` regions.
            let count = unsafe { libc::ioctl(self.0.number(), PAGEMAP_SCAN, &raw mut arguments) };
            let Ok(count) = usize::try_from(count) else { return false };
            for region in &found[..count] {
                visit(region.start as usize..region.end as usize, region.categories);
            }
            if arguments.walk_end <= arguments.start {
                return false;
            }
            arguments.start = arguments.walk_end;
        }
        true
    }

    /// Whether all of the 2 MiB from `start` on is one huge page.
    pub fn is_huge(&self, start: usize) -> bool {
        let mut huge = 0;
        self.runs(start..start + HUGE, &mut |run, is_huge| huge += if is_huge { run.len() } else { 0 });
        huge == HUGE
    }

    /// Whether this process alone maps all pages in memory of the 2 MiB from `start` on. A page that a forked child has too
    /// is not: to join it would be to copy it.
    pub fn is_own(&self, start: usize) -> bool {
        let mut entries = [0u8; HUGE / BASE * 8];
        let read = self.0.read_at(&mut entries, (start / BASE * 8) as u64);
        read == entries.len()
            && entries.chunks_exact(8).all(|bytes| {
                let entry = bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
                entry & IN_MEMORY == 0 || entry & EXCLUSIVE != 0
            })
    }
}

/// Base pages of the 2 MiB from `start` on that hold zeros alone; none where something of it is not mapped. It may be
/// otherwise a moment later.
pub fn zeros(start: usize) -> Option<u64> {
    // Not on the stack, which a thread may have little of.
    let mut piece = vec![0u8; 16 * BASE];
    let mut zeros = 0;
    for at in (0..HUGE).step_by(piece.len()) {
        if !system::peek(start + at, &mut piece) {
            return None;
        }
        zeros += piece.chunks_exact(BASE).filter(|page| page.iter().all(|byte| *byte == 0)).count() as u64;
    }
    Some(zeros)
}

/// Whether this kernel gives back zeros where a huge page is taken apart (Linux 6.12). It is tried.
pub fn gives_zeros_back(table: &PageTable) -> bool {
    let Ok(place) = system::map(2 * HUGE) else { return false };
    let start = (place as usize).next_multiple_of(HUGE);
    system::advise_huge(start, HUGE);
    // SAFETY: Within the mapping.
    unsafe { ((start + BASE) as *mut u8).write(1) };
    let gives = table.is_huge(start) && system::split(start).is_ok() && !table.is_huge(start) && {
        let mut entries = [0u8; HUGE / BASE * 8];
        table.0.read_at(&mut entries, (start / BASE * 8) as u64);
        // What is given back is the page of zeros, which is not this process's alone.
        entries.chunks_exact(8).filter(|entry| entry[7] & 1 != 0).count() == 1
    };
    // SAFETY: Mapped above, and no longer used.
    unsafe { system::unmap(place, 2 * HUGE) };
    gives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_counted_without_a_fault() {
        let place = system::map(2 * HUGE).unwrap();
        let start = (place as usize).next_multiple_of(HUGE);
        for page in [3usize, 400] {
            // SAFETY: Within the mapping.
            unsafe { ((start + page * BASE + 77) as *mut u8).write(1) };
        }
        assert_eq!(zeros(start), Some(510));
        // SAFETY: Mapped above, and no longer used.
        assert!(unsafe { system::unmap(place, 2 * HUGE) });
        assert_eq!(zeros(start), None);
    }

    #[test]
    fn what_was_touched_is_shown_and_is_own() {
        let Some(table) = PageTable::open() else { return };
        let bytes = 2 * HUGE;
        let memory = system::map(bytes).unwrap() as usize;
        let at = memory.next_multiple_of(HUGE);
        let touched = [0, 1, 2, 7];
        for page in touched {
            // SAFETY: Within the mapping.
            unsafe { ((at + page * BASE) as *mut u8).write(1) };
        }
        let mut found = 0;
        let mut huge = false;
        assert!(table.runs(at..at + HUGE, &mut |run, is_huge| {
            found += run.len() / BASE;
            huge |= is_huge;
        }));
        assert!(found == 4 && !huge || huge && found == HUGE / BASE, "{found}");
        assert!(table.is_own(at));
        // SAFETY: Mapped above, and no longer used.
        assert!(unsafe { system::unmap(memory as *mut u8, bytes) });
        let mut none = true;
        table.runs(at..at + HUGE, &mut |_, _| none = false);
        assert!(none);
    }
}
