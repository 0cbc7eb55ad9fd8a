//! Which base pages of the test double hold only zeros: all that were never stored to.

use super::InMemory;
use terrace_model::PageSize;
use terrace_seam::{PageId, PageRange};

impl InMemory {
    /// Whether `page` has no frame and reads as zeros all the same.
    pub fn reads_as_zeros(&self, page: PageId) -> bool {
        self.zeros.contains(&page)
    }

    /// Blocks that are kept from the allocator.
    pub fn isolated_blocks(&self) -> usize {
        self.frames.iter().map(super::Frames::isolated).sum()
    }

    fn bounds(range: PageRange) -> std::ops::Range<PageId> {
        range.first..PageId { space: range.first.space, vpn: range.end() }
    }

    /// Base pages of `range` that were stored to.
    pub(super) fn stored_in(&self, range: PageRange) -> u64 {
        self.stored.range(Self::bounds(range)).count() as u64
    }

    pub(super) fn forget_stores(&mut self, range: PageRange) {
        let gone: Vec<PageId> = self.stored.range(Self::bounds(range)).copied().collect();
        gone.iter().for_each(|page| {
            self.stored.remove(page);
        });
    }

    pub(super) fn forget_zeros(&mut self, range: PageRange) {
        let gone: Vec<PageId> = self.zeros.range(Self::bounds(range)).copied().collect();
        gone.iter().for_each(|page| {
            self.zeros.remove(page);
        });
    }

    /// Splits a page and gives back its parts that hold only zeros.
    pub(super) fn land_drop_zeros(&mut self, first: PageId) {
        let Some(size) = self.pages.get(&first).map(|page| page.size) else { return };
        if size > PageSize::Base {
            self.split(first, PageSize::Base);
        }
        for part in (0..size.base_pages()).map(|at| first.plus(at)) {
            if !self.stored.contains(&part) {
                self.release(part);
                self.zeros.insert(part);
            }
        }
    }
}
