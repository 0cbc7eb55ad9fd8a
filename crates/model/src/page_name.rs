//! Pages by a name that survives whatever is done to them.

use crate::{PageSize, VirtAddr};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An address space, by number: a process, or the memory of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct SpaceId(pub u32);

impl SpaceId {
    /// As an index into tables with an entry per space.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

    /// The base page of `space` that holds `addr`.
    #[inline]
    pub const fn of(space: SpaceId, addr: VirtAddr) -> PageId {
        PageId { space, vpn: addr.vpn() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_split_and_collapse() {
        let page = PageId::new(1, 0x403);
        assert_eq!(page.aligned(PageSize::Huge), PageId::new(1, 0x400));
        assert!(page.aligned(PageSize::Huge).is_aligned(PageSize::Huge) && !page.is_aligned(PageSize::Huge));
        assert_eq!(page.aligned(PageSize::Huge).plus(3), page);
        assert_eq!(PageId::of(SpaceId(1), VirtAddr(0x40_3fff)), page);
    }
}
