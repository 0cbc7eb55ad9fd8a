//! Address spaces, one newtype each, so that a virtual address cannot be used as a physical one.

use crate::PageSize;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes in a cache line, on every machine Terrace models.
pub const LINE_BYTES: u64 = 64;

/// A virtual address of one process.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VirtAddr(pub u64);

/// An address in the physical memory of the (simulated or real) machine.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PhysAddr(pub u64);

impl VirtAddr {
    /// The page number at `size`: the address divided by the page size.
    #[inline]
    pub const fn page_number(self, size: PageSize) -> u64 {
        self.0 >> size.shift()
    }

    /// The address of the page of `size` that holds this address.
    #[inline]
    pub const fn align_down(self, size: PageSize) -> VirtAddr {
        VirtAddr(self.0 & !(size.bytes() - 1))
    }

    /// The distance in bytes from the start of the page of `size`.
    #[inline]
    pub const fn page_offset(self, size: PageSize) -> u64 {
        self.0 & (size.bytes() - 1)
    }
}

impl PhysAddr {
    /// The number of the cache line that holds this address.
    #[inline]
    pub const fn line(self) -> u64 {
        self.0 / LINE_BYTES
    }
}

macro_rules! hex_formats {
    ($($name:ident),*) => {$(
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
hex_formats!(VirtAddr, PhysAddr);

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
        assert_eq!(addr.page_number(PageSize::Base), 0x4_0201);
        assert_eq!(addr.page_number(PageSize::Huge), 0x201);
        assert_eq!(addr.page_number(PageSize::Giant), 1);
        assert_eq!(addr.align_down(PageSize::Huge), VirtAddr(0x4020_0000));
        assert_eq!(addr.page_offset(PageSize::Base), 0x234);
    }

    #[test]
    fn cover_rounds_outwards() {
        let cover = AddressRange::new(0x1fff, 2).page_cover(PageSize::Base);
        assert_eq!(cover, AddressRange::new(0x1000, 0x2000));
    }
}
