//! What of this process's memory is there, and in pages of which size: `PAGEMAP_SCAN` (Linux 6.7) and `/proc/self/pagemap`.

use crate::system::File;
use crate::{BASE, HUGE};
use std::mem::size_of;
use std::ops::Range;

/// `_IOWR('f', 16, struct pm_scan_arg)` of linux/fs.h.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610;
/// `PAGE_IS_PRESENT`, `PAGE_IS_HUGE`.
const PRESENT: u64 = 1 << 3;
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
        let mut found = [Region::default(); RUNS];
        let mut arguments = Arguments {
            size: size_of::<Arguments>() as u64,
            start: range.start as u64,
            end: range.end as u64,
            vec: found.as_mut_ptr() as u64,
            vec_len: RUNS as u64,
            category_mask: PRESENT,
            return_mask: PRESENT | IS_HUGE,
            ..Arguments::default()
        };
        while arguments.start < arguments.end {
            // SAFETY: The structure is the one that the request names, with its size; `vec` holds `vec_len` regions.
            let count = unsafe { libc::ioctl(self.0.number(), PAGEMAP_SCAN, &raw mut arguments) };
            let Ok(count) = usize::try_from(count) else { return false };
            for region in &found[..count] {
                visit(region.start as usize..region.end as usize, region.categories & IS_HUGE != 0);
            }
            if arguments.walk_end <= arguments.start {
                return false;
            }
            arguments.start = arguments.walk_end;
        }
        true
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;

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
