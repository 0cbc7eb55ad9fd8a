//! Pages by the name that survives whatever is done to them, and what a scan shows of one.

use std::fmt;
use terrace_model::{Frame, PageSize, TierId, VirtAddr};

/// An address space under management, by number: a process, or a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u32);

/// A page, named by the first 4 KiB of virtual memory in it.
///
/// The name survives migration, split and collapse: a 2 MiB page and the first of the 512 base pages that it splits
/// into have the same name. Order: by space, then by address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The address space.
    pub space: SpaceId,
    /// Virtual address divided by 4096.
    pub vpn: u64,
}

impl PageId {
    /// The page at 4 KiB page number `vpn` of space `space`.
    pub const fn new(space: u32, vpn: u64) -> PageId {
        PageId { space: SpaceId(space), vpn }
    }

    /// The page of `size` that holds this one.
    #[inline]
    pub const fn aligned(self, size: PageSize) -> PageId {
        PageId { space: self.space, vpn: self.vpn & !(size.base_pages() - 1) }
    }

    /// Whether a page of `size` can begin here.
    #[inline]
    pub const fn is_aligned(self, size: PageSize) -> bool {
        self.vpn & (size.base_pages() - 1) == 0
    }

    /// The page `base_pages` base pages further up.
    #[inline]
    pub const fn plus(self, base_pages: u64) -> PageId {
        PageId { space: self.space, vpn: self.vpn + base_pages }
    }

    /// The virtual address of its first byte.
    #[inline]
    pub const fn addr(self) -> VirtAddr {
        VirtAddr(self.vpn << 12)
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.space.0, self.vpn)
    }
}

/// A run of base pages of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageRange {
    /// The first page.
    pub first: PageId,
    /// How many base pages.
    pub pages: u64,
}

impl PageRange {
    /// `pages` base pages from `first`.
    pub const fn new(first: PageId, pages: u64) -> PageRange {
        PageRange { first, pages }
    }

    /// What the page of `size` that begins at `first` covers.
    pub const fn of(first: PageId, size: PageSize) -> PageRange {
        PageRange { first, pages: size.base_pages() }
    }

    /// The page number after the last one.
    pub const fn end(&self) -> u64 {
        self.first.vpn + self.pages
    }

    /// Whether `page` lies inside.
    pub fn contains(&self, page: PageId) -> bool {
        page.space == self.first.space && page.vpn >= self.first.vpn && page.vpn < self.end()
    }

    /// Whether all of `other` lies inside.
    pub fn covers(&self, other: PageRange) -> bool {
        other.first.space == self.first.space
            && other.first.vpn >= self.first.vpn
            && other.end() <= self.end()
    }
}

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
    /// Its size.
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
    /// Where it lies exactly, in worlds that tell.
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
    fn names_survive_split_and_collapse() {
        let page = PageId::new(1, 0x403);
        assert_eq!(page.aligned(PageSize::Huge), PageId::new(1, 0x400));
        assert!(page.aligned(PageSize::Huge).is_aligned(PageSize::Huge) && !page.is_aligned(PageSize::Huge));
        assert_eq!(page.aligned(PageSize::Huge).plus(3), page);
    }

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
