//! Areas of an address space, and what a scan shows of one page.

use terrace_model::{Frame, PageId, PageRange, PageSize, TierId};

/// What backs an area of an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AreaKind {
    /// Private memory without a file, the heap included.
    #[default]
    Anonymous,
    /// A stack.
    Stack,
    /// Pages of a file.
    File,
    /// Memory that several spaces may map.
    Shared,
    /// A reservation of huge pages.
    HugeTlb,
}

/// A data structure of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// The place in the program that allocated it, equal in every run.
    pub site: u64,
    /// The pages it lies in.
    pub range: PageRange,
}

/// A mapping of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Area {
    /// What it covers.
    pub range: PageRange,
    /// What backs it.
    pub kind: AreaKind,
    /// Whether the program may store to it.
    pub writable: bool,
    /// Whether the program asked for huge pages in it, or for none (`madvise`); none where it did not say, or the world
    /// does not know.
    pub huge_advice: Option<bool>,
    /// The data structure at the address that was asked for, where the world knows it.
    pub object: Option<Object>,
}

/// A block of a program: a data structure, or what a memory controller manages as one (VBI).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The pages that it lies in, in their order.
    pub parts: Vec<PageRange>,
    /// The place in the program that allocated it, where the world knows it.
    pub site: Option<u64>,
    /// Accesses that reached memory since the blocks were last asked for, where the world counts them by block.
    pub accesses: Option<u64>,
}

impl Area {
    /// The largest page that can hold `page` without leaving the area ("S-mappable", Trident §5.1.2).
    pub fn largest_page(&self, page: PageId) -> PageSize {
        let fits = |size: &PageSize| self.range.covers(PageRange::of(page.aligned(*size), *size));
        [PageSize::Giant, PageSize::Huge].into_iter().find(fits).unwrap_or(PageSize::Base)
    }
}

/// What a scan shows of one mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageView {
    /// The page.
    pub page: PageId,
    /// The page's size.
    pub size: PageSize,
    /// Where it lies.
    pub tier: TierId,
    /// Referenced since the bit was last cleared. As hardware sets it: by a page walk, so not while a TLB holds the
    /// translation.
    pub accessed: bool,
    /// Stored to since the bit was last cleared.
    pub dirty: bool,
    /// The page table permits stores.
    pub writable: bool,
    /// A ticket for this page is not done yet.
    pub in_flight: bool,
    /// Where it lies exactly, in worlds that know.
    pub frame: Option<Frame>,
}

impl PageView {
    /// Base pages in it.
    #[inline]
    pub const fn base_pages(&self) -> u64 {
        self.size.base_pages()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappable_sizes_of_an_area() {
        let range = PageRange::new(PageId::new(0, 0x100), 0x40650);
        let area = Area { range, kind: AreaKind::Anonymous, writable: true, huge_advice: None, object: None };
        assert_eq!(area.largest_page(PageId::new(0, 0x1ff)), PageSize::Base);
        assert_eq!(area.largest_page(PageId::new(0, 0x200)), PageSize::Huge);
        assert_eq!(area.largest_page(PageId::new(0, 0x40700)), PageSize::Base);
        let wide = Area { range: PageRange::new(PageId::new(0, 0), 0x80000), ..area };
        assert_eq!(wide.largest_page(PageId::new(0, 0x40001)), PageSize::Giant);
    }
}
