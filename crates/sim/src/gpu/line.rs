//! Lines as a GPU's caches have them: 128 bytes, two lines of memory, in four sectors of 32 bytes.

use super::parameters::GPU_LINE;
use terrace_model::{Frame, LINE_BYTES, Line, PhysAddr};

/// Lines of memory in one of the GPU's.
pub const HALVES: u64 = GPU_LINE / LINE_BYTES;
/// All sectors of a line: a bit for each.
pub const ALL_SECTORS: u8 = 0b1111;
/// Lines of the GPU in a base page.
const PAGE_LINES: u64 = 4096 / GPU_LINE;

/// A line of physical memory as a GPU's caches have it, by number: physical address divided by 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct GpuLine(pub u64);

impl GpuLine {
    /// The line that holds a line of memory.
    #[inline(always)]
    pub const fn of(line: Line) -> GpuLine {
        GpuLine(line.0 / HALVES)
    }

    /// The line at an address.
    #[inline(always)]
    pub const fn at(addr: PhysAddr) -> GpuLine {
        GpuLine(addr.0 / GPU_LINE)
    }

    /// The lines of a frame, in order.
    #[inline]
    pub fn of_frame(frame: Frame) -> impl Iterator<Item = GpuLine> + Clone {
        (frame.0 * PAGE_LINES..(frame.0 + 1) * PAGE_LINES).map(GpuLine)
    }

    /// The line of memory that is one half of it: the first for 0, the second for 1.
    #[inline(always)]
    pub const fn half(self, half: u64) -> Line {
        Line(self.0 * HALVES + half)
    }

    /// The frame that holds it.
    #[inline(always)]
    pub const fn frame(self) -> Frame {
        Frame(self.0 / PAGE_LINES)
    }
}

/// The sectors of a half of a line.
#[inline(always)]
pub const fn of_half(half: u64) -> u8 {
    0b11 << (2 * half)
}

/// The halves of a line that sectors lie in.
#[inline(always)]
pub fn halves_of(sectors: u8) -> impl Iterator<Item = u64> {
    (0..HALVES).filter(move |half| sectors & of_half(*half) != 0)
}
