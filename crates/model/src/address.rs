//! Address spaces, one newtype each, so that a virtual address cannot be used as a physical one.

use crate::{Frame, PageSize};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a cache line, on every machine Terrace models.
pub const LINE_BYTES: u64 = 64;

macro_rules! address_spaces {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The first address of page number `number` of `size`.
            #[inline]
            pub const fn of_page(number: PageNumber, size: PageSize) -> $name {
                $name(number.0 << size.shift())
            }

            /// The page number at `size`: the address divided by the page size.
            #[inline]
            pub const fn page_number(self, size: PageSize) -> PageNumber {
                PageNumber(self.0 >> size.shift())
            }

            /// The address of the page of `size` that holds this address.
            #[inline]
            pub const fn align_down(self, size: PageSize) -> $name {
                $name(self.0 & !(size.bytes() - 1))
            }

            /// The first address of a page of `size` at or above this address; none above the last such page.
            #[inline]
            pub const fn align_up(self, size: PageSize) -> Option<$name> {
                match self.0.checked_add(size.bytes() - 1) {
                    Some(sum) => Some($name(sum & !(size.bytes() - 1))),
                    None => None,
                }
            }

            /// Whether a page of `size` can begin here.
            #[inline]
            pub const fn is_aligned(self, size: PageSize) -> bool {
                self.page_offset(size) == 0
            }

            /// The distance in bytes from the start of the page of `size`.
            #[inline]
            pub const fn page_offset(self, size: PageSize) -> u64 {
                self.0 & (size.bytes() - 1)
            }

            /// The address `bytes` further up; at most the last of the address space.
            #[inline]
            pub const fn saturating_add(self, bytes: u64) -> $name {
                $name(self.0.saturating_add(bytes))
            }

            /// The address `bytes` further up; none beyond the end of the address space.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<$name> {
                match self.0.checked_add(bytes) {
                    Some(sum) => Some($name(sum)),
                    None => None,
                }
            }
        }

        impl Add<u64> for $name {
            type Output = $name;
            #[inline]
            fn add(self, bytes: u64) -> $name {
                $name(self.0 + bytes)
            }
        }

        impl AddAssign<u64> for $name {
            #[inline]
            fn add_assign(&mut self, bytes: u64) {
                self.0 += bytes;
            }
        }

        impl Sub<u64> for $name {
            type Output = $name;
            #[inline]
            fn sub(self, bytes: u64) -> $name {
                $name(self.0 - bytes)
            }
        }

        impl Sub for $name {
            type Output = u64;
            /// The distance in bytes from the lower address `other`.
            #[inline]
            fn sub(self, other: $name) -> u64 {
                self.0 - other.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    )*};
}

address_spaces! {
    /// A virtual address of one address space.
    VirtAddr,
    /// An address that a guest's operating system takes for physical. The hypervisor translates it once more: to the
    /// hypervisor, a guest's memory is an address space, and this is an address in it.
    GuestPhysAddr,
    /// An address in the physical memory of the (simulated or real) machine.
    PhysAddr,
}

impl VirtAddr {
    /// The number of the base page that holds this address, as a [`PageId`](crate::PageId) says it.
    #[inline(always)]
    pub const fn vpn(self) -> u64 {
        self.page_number(PageSize::Base).0
    }

    /// The distance in bytes from the start of the line.
    #[inline(always)]
    pub const fn line_offset(self) -> u64 {
        self.0 % LINE_BYTES
    }

    /// The first address of the next line.
    #[inline(always)]
    pub const fn next_line(self) -> VirtAddr {
        VirtAddr((self.0 / LINE_BYTES + 1) * LINE_BYTES)
    }

    /// The address of base page number `vpn`.
    #[inline(always)]
    pub const fn of_vpn(vpn: u64) -> VirtAddr {
        VirtAddr::of_page(PageNumber(vpn), PageSize::Base)
    }
}

impl GuestPhysAddr {
    /// This address as the hypervisor's operating system names it: a virtual address in the space that holds the guest's
    /// memory.
    #[inline]
    pub const fn in_host_space(self) -> VirtAddr {
        VirtAddr(self.0)
    }

    /// The address at `addr` in the space that holds the guest's memory. The inverse of
    /// [`GuestPhysAddr::in_host_space`].
    #[inline]
    pub const fn from_host_space(addr: VirtAddr) -> GuestPhysAddr {
        GuestPhysAddr(addr.0)
    }

    /// The guest's frame that holds this address, by the guest's own numbering.
    #[inline]
    pub const fn frame(self) -> Frame {
        Frame(self.page_number(PageSize::Base).0)
    }
}

impl PhysAddr {
    /// The cache line that holds this address.
    #[inline]
    pub const fn line(self) -> Line {
        Line(self.0 / LINE_BYTES)
    }

    /// The frame that holds this address.
    #[inline]
    pub const fn frame(self) -> Frame {
        Frame(self.page_number(PageSize::Base).0)
    }
}

/// A page by number: an address divided by the size of its page. Whoever has the number knows the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PageNumber(pub u64);

impl Add<u64> for PageNumber {
    type Output = PageNumber;
    /// The page `pages` pages of the same size further up.
    #[inline(always)]
    fn add(self, pages: u64) -> PageNumber {
        PageNumber(self.0 + pages)
    }
}

impl Sub for PageNumber {
    type Output = u64;
    /// The distance in pages from the lower page `other` of the same size.
    #[inline(always)]
    fn sub(self, other: PageNumber) -> u64 {
        self.0 - other.0
    }
}

/// A cache line of physical memory, by number: physical address divided by [`LINE_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Line(pub u64);

impl Line {
    /// Lines in a base page.
    pub const PER_FRAME: u64 = PageSize::Base.bytes() / LINE_BYTES;

    /// The address of the line's first byte.
    #[inline]
    pub const fn addr(self) -> PhysAddr {
        PhysAddr(self.0 * LINE_BYTES)
    }

    /// The frame that holds the line.
    #[inline]
    pub const fn frame(self) -> Frame {
        Frame(self.0 / Line::PER_FRAME)
    }

    /// The line's name in caches that are physically tagged.
    #[inline(always)]
    pub const fn in_caches(self) -> CacheLine {
        CacheLine(self.0)
    }
}

impl Add<u64> for Line {
    type Output = Line;
    /// The line `lines` lines further up.
    #[inline]
    fn add(self, lines: u64) -> Line {
        Line(self.0 + lines)
    }
}

impl AddAssign<u64> for Line {
    #[inline]
    fn add_assign(&mut self, lines: u64) {
        self.0 += lines;
    }
}

impl Sub for Line {
    type Output = u64;
    /// The distance in lines from the lower line `other`.
    #[inline]
    fn sub(self, other: Line) -> u64 {
        self.0 - other.0
    }
}

/// A line by the name that the machine's caches have for it: its number in physical memory, or what a translation scheme
/// whose caches are virtually tagged calls it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CacheLine(pub u64);

impl CacheLine {
    /// The physical line of this name, where caches are physically tagged.
    #[inline(always)]
    pub const fn as_physical(self) -> Line {
        Line(self.0)
    }
}

impl Add<u64> for CacheLine {
    type Output = CacheLine;
    /// The name `lines` further up.
    #[inline(always)]
    fn add(self, lines: u64) -> CacheLine {
        CacheLine(self.0 + lines)
    }
}

/// A core of the machine, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct CoreId(pub u32);

impl CoreId {
    /// The core at an index of a table with an entry per core. Tables have at most 2^32 entries.
    #[inline(always)]
    pub const fn at(index: usize) -> CoreId {
        debug_assert!(index <= u32::MAX as usize);
        CoreId(index as u32)
    }

    /// The first `count` cores, in order.
    #[inline]
    pub fn first(count: usize) -> impl DoubleEndedIterator<Item = CoreId> + ExactSizeIterator {
        (0..count).map(CoreId::at)
    }

    /// Each entry of a table of cores with its core.
    #[inline]
    pub fn number<T>(entries: impl IntoIterator<Item = T>) -> impl Iterator<Item = (CoreId, T)> {
        entries.into_iter().enumerate().map(|(index, entry)| (CoreId::at(index), entry))
    }

    /// As an index into tables with an entry per core.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node of the machine, by number: processors, and the memory that they reach without a link. Memory behind a link is a
/// node too, without processors where nobody stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NodeId(pub u8);

impl NodeId {
    /// The cores' node.
    pub const CPU: NodeId = NodeId(0);
    /// The node of a GPU beside them.
    pub const GPU: NodeId = NodeId(1);

    /// The node of the `at`th tier, where no processor stands beside it.
    #[inline]
    pub const fn of_memory(at: u8) -> NodeId {
        NodeId(2 + at)
    }
}

/// A half-open range `[start, start + bytes)` of virtual addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddressRange {
    /// First address of the range.
    pub start: VirtAddr,
    /// Length in bytes.
    pub bytes: u64,
}

impl AddressRange {
    /// A range from its first address and its length in bytes.
    pub const fn new(start: u64, bytes: u64) -> Self {
        Self { start: VirtAddr(start), bytes }
    }

    /// The range from `start` up to `end`, which is not in it.
    #[inline]
    pub const fn between(start: VirtAddr, end: VirtAddr) -> Self {
        Self { start, bytes: end.0 - start.0 }
    }

    /// All addresses but the last.
    pub const ALL: AddressRange = AddressRange::new(0, u64::MAX);

    /// The page of `size` that holds `addr`.
    #[inline]
    pub const fn of_page(addr: VirtAddr, size: PageSize) -> Self {
        Self { start: addr.align_down(size), bytes: size.bytes() }
    }

    /// The first address after the range; saturates at the top of the address space.
    #[inline]
    pub const fn end(&self) -> VirtAddr {
        VirtAddr(self.start.0.saturating_add(self.bytes))
    }

    /// Whether `addr` lies inside.
    #[inline]
    pub const fn contains(&self, addr: VirtAddr) -> bool {
        addr.0 >= self.start.0 && addr.0 < self.end().0
    }

    /// Whether all of `other` lies inside.
    #[inline]
    pub const fn covers(&self, other: &AddressRange) -> bool {
        other.start.0 >= self.start.0 && other.end().0 <= self.end().0
    }

    /// The first address of every base page that has an address in the range.
    pub fn base_pages(&self) -> impl Iterator<Item = VirtAddr> + use<> {
        let (first, end) = (self.start.vpn(), self.end().0.div_ceil(PageSize::Base.bytes()));
        (first..end).map(VirtAddr::of_vpn)
    }

    /// The base pages whose middle byte lies in the range.
    pub fn pages_by_middle(&self) -> AddressRange {
        let page = |addr: VirtAddr| addr.saturating_add(2047).align_down(PageSize::Base);
        AddressRange::between(page(self.start), page(self.end()))
    }

    /// Whether the two ranges share an address.
    pub const fn overlaps(&self, other: &AddressRange) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }

    /// The smallest range of whole pages of `size` that covers this one.
    pub const fn page_cover(&self, size: PageSize) -> AddressRange {
        let start = self.start.align_down(size).0;
        let mask = size.bytes() - 1;
        let end = self.end().0.saturating_add(mask) & !mask;
        AddressRange { start: VirtAddr(start), bytes: end - start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_arithmetic_by_hand() {
        let addr = VirtAddr(0x4020_1234);
        assert_eq!(addr.page_number(PageSize::Base), PageNumber(0x4_0201));
        assert_eq!(addr.page_number(PageSize::Huge), PageNumber(0x201));
        assert_eq!(addr.page_number(PageSize::Giant), PageNumber(1));
        assert_eq!(addr.align_down(PageSize::Huge), VirtAddr(0x4020_0000));
        assert_eq!(addr.page_offset(PageSize::Base), 0x234);
        assert_eq!(addr.align_up(PageSize::Giant), Some(VirtAddr(0x8000_0000)));
        assert_eq!(VirtAddr(u64::MAX).align_up(PageSize::Base), None);
        assert!(!addr.is_aligned(PageSize::Base) && (addr - 0x234).is_aligned(PageSize::Base));
        assert_eq!(VirtAddr::of_page(PageNumber(0x201), PageSize::Huge) + 0x1234, addr);
        assert_eq!(addr - VirtAddr(0x4020_0000), 0x1234);
    }

    #[test]
    fn lines_and_frames_by_hand() {
        let addr = PhysAddr(0x1_2345);
        assert_eq!((addr.line(), addr.frame()), (Line(0x48d), Frame(0x12)));
        assert_eq!((addr.line().addr(), addr.line().frame()), (PhysAddr(0x1_2340), Frame(0x12)));
        assert_eq!(Frame(0x12).line() + Line::PER_FRAME, Frame(0x13).line());
        assert_eq!(Line(70) - Line(6), Line::PER_FRAME);
    }

    #[test]
    fn a_guests_physical_address_is_virtual_to_its_host() {
        let addr = GuestPhysAddr(0x5000);
        assert_eq!((addr.in_host_space(), addr.frame()), (VirtAddr(0x5000), Frame(5)));
        assert_eq!(GuestPhysAddr::from_host_space(addr.in_host_space()), addr);
    }

    #[test]
    fn cover_rounds_outwards() {
        let cover = AddressRange::new(0x1fff, 2).page_cover(PageSize::Base);
        assert_eq!(cover, AddressRange::new(0x1000, 0x2000));
    }

    #[test]
    fn pages_of_ranges_by_hand() {
        let range = AddressRange::new(0x1801, 0x1800);
        assert_eq!(range, AddressRange::between(VirtAddr(0x1801), VirtAddr(0x3001)));
        let pages: Vec<u64> = range.base_pages().map(VirtAddr::vpn).collect();
        assert_eq!(pages, [1, 2, 3]);
        assert_eq!(range.pages_by_middle(), AddressRange::new(0x2000, 0x1000));
        assert_eq!(
            AddressRange::of_page(VirtAddr(0x20_1234), PageSize::Huge),
            AddressRange::new(0x20_0000, 0x20_0000)
        );
        assert!(range.covers(&range.pages_by_middle()) && !range.pages_by_middle().covers(&range));
    }

    #[test]
    fn lines_of_virtual_addresses_by_hand() {
        let addr = VirtAddr(0x1_2345);
        assert_eq!((addr.vpn(), addr.line_offset(), addr.next_line()), (0x12, 5, VirtAddr(0x1_2380)));
        assert_eq!(VirtAddr::of_vpn(0x12), VirtAddr(0x1_2000));
    }
}
