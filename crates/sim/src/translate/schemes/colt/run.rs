//! Runs of pages that one entry can cover, and how a walk finds them.

use crate::os::{Leaf, PageTable, Pte};
use crate::translate::{TlbEntry, TlbHit};
use terrace_model::{AddressRange, Frame, PageNumber, PageSize, VirtAddr};

/// Pages of one size in a row, in frames in a row, with the same attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// Number of the first page, at its size.
    pub first: PageNumber,
    /// How many.
    pub pages: u64,
    /// Base frame of the first byte.
    pub frame: Frame,
    /// Whether stores may go ahead without visiting the page table.
    pub dirty: bool,
}

impl PageRun {
    /// The run around the page of `addr` in its aligned group of `pages`. `pte` is the entry that `leaf` was found in, as
    /// the walk left it.
    pub fn around(table: &PageTable, leaf: &Leaf, pte: Pte, addr: VirtAddr, pages: u64) -> PageRun {
        let size = leaf.size;
        let page = addr.page_number(size);
        let alone = PageRun { first: page, pages: 1, frame: pte.frame(), dirty: pte.is_writable_in_tlb() };
        if pages == 1 || !pte.is_plain() {
            return alone;
        }
        let number = leaf.table(size.index() as u32 + 1);
        let agrees = |other: u64| {
            let frame =
                alone.frame.0.wrapping_add(other.wrapping_sub(page.0).wrapping_mul(size.base_pages()));
            table.leaf_in(number, VirtAddr::of_page(PageNumber(other), size), size).is_some_and(|entry| {
                entry.is_plain()
                    && entry.is_accessed()
                    && entry.is_dirty() == pte.is_dirty()
                    && entry.frame().0 == frame
            })
        };
        let group = page.0 & !(pages - 1);
        let (mut first, mut end) = (page.0, page.0 + 1);
        while first > group && agrees(first - 1) {
            first -= 1;
        }
        while end < group + pages && agrees(end) {
            end += 1;
        }
        let frame = Frame(alone.frame.0 - (page.0 - first) * size.base_pages());
        PageRun { first: PageNumber(first), pages: end - first, frame, dirty: alone.dirty }
    }

    /// What it covers.
    pub fn range(&self, size: PageSize) -> AddressRange {
        AddressRange { start: VirtAddr::of_page(self.first, size), bytes: self.pages * size.bytes() }
    }

    /// The page of `addr` by itself.
    pub fn alone(addr: VirtAddr, hit: TlbHit) -> PageRun {
        let first = addr.page_number(hit.size);
        PageRun { first, pages: 1, frame: hit.entry.frame(), dirty: hit.entry.is_dirty() }
    }

    #[inline(always)]
    /// Whether a page, by its number, is one of them.
    pub fn holds(&self, page: PageNumber) -> bool {
        page.0.wrapping_sub(self.first.0) < self.pages
    }

    /// Whether it has a page of another run of pages of the same size.
    pub fn overlaps(&self, other: &PageRun) -> bool {
        self.first < other.first + other.pages && other.first < self.first + self.pages
    }

    /// The part of the run that lies in the aligned group of `pages` around `page`.
    pub fn within(&self, page: PageNumber, pages: u64, size: PageSize) -> PageRun {
        let group = PageNumber(page.0 & !(pages - 1));
        let first = self.first.max(group);
        let end = (self.first + self.pages).min(group + pages);
        let frame = self.frame.plus((first - self.first) * size.base_pages());
        PageRun { first, pages: end - first, frame, ..*self }
    }

    /// What a TLB answers for one of its pages.
    pub fn hit(&self, page: PageNumber, size: PageSize) -> TlbHit {
        let frame = self.frame.plus((page - self.first) * size.base_pages());
        TlbHit { entry: TlbEntry::new(frame, self.dirty), size }
    }
}
