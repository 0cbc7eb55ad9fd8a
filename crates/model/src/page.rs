//! Page sizes of x86-64 and the frames that back them.

use crate::{Line, PhysAddr};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Sub;

/// What Terrace needs on a kernel whose base pages have another size than 4 KiB.
pub const KERNEL_OF_BASE_PAGES: &str =
    "a kernel that is built for base pages of 4 KiB (CONFIG_ARM64_4K_PAGES=y)";

/// Why Terrace cannot work on a kernel with base pages of so many bytes; `None` where they have 4 KiB. Kernels for x86-64
/// have no others; those for Arm may have base pages of 16 or 64 KiB. [`KERNEL_OF_BASE_PAGES`] says what to do.
pub fn other_base_page(bytes: u64) -> Option<String> {
    let others = bytes != PageSize::Base.bytes();
    others.then(|| format!("Terrace knows base pages of 4 KiB, and this kernel's have {} KiB", bytes >> 10))
}

/// The three page sizes of x86-64.
///
/// In statistics and options they are written `4k`, `2m` and `1g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PageSize {
    /// 4 KiB, the base page.
    #[serde(rename = "4k")]
    Base,
    /// 2 MiB, 512 base pages.
    #[serde(rename = "2m")]
    Huge,
    /// 1 GiB, 512 huge pages.
    #[serde(rename = "1g")]
    Giant,
}

impl PageSize {
    /// All sizes, smallest first.
    pub const ALL: [PageSize; 3] = [PageSize::Base, PageSize::Huge, PageSize::Giant];

    /// Base-2 logarithm of the size in bytes: 12, 21 or 30.
    #[inline]
    pub const fn shift(self) -> u32 {
        match self {
            PageSize::Base => 12,
            PageSize::Huge => 21,
            PageSize::Giant => 30,
        }
    }

    /// Size in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// Number of base pages: 1, 512 or 262,144.
    #[inline]
    pub const fn base_pages(self) -> u64 {
        1 << (self.shift() - 12)
    }

    /// Buddy-allocator order: 0, 9 or 18.
    #[inline]
    pub const fn order(self) -> u32 {
        self.shift() - 12
    }

    /// Position in [`PageSize::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name used in statistics and options: `4k`, `2m`, `1g`.
    pub const fn name(self) -> &'static str {
        match self {
            PageSize::Base => "4k",
            PageSize::Huge => "2m",
            PageSize::Giant => "1g",
        }
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A 4 KiB frame of physical memory, by number: physical address divided by 4096.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Frame(pub u64);

impl Frame {
    /// Physical address of the frame's first byte.
    #[inline]
    pub const fn addr(self) -> PhysAddr {
        PhysAddr(self.0 << 12)
    }

    /// The frame's first cache line.
    #[inline]
    pub const fn line(self) -> Line {
        self.addr().line()
    }

    /// The frame `frames` frames further up.
    #[inline]
    pub const fn plus(self, frames: u64) -> Frame {
        Frame(self.0 + frames)
    }
}

impl Sub for Frame {
    type Output = u64;
    /// The distance in frames from the lower frame `other`.
    #[inline]
    fn sub(self, other: Frame) -> u64 {
        self.0 - other.0
    }
}
