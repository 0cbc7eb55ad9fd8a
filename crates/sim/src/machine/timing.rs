//! Latencies of a design as times.

use crate::design::{Design, ZeroStores};
use terrace_model::{BytesPerSec, LINE_BYTES, PageSize, Time};

/// Lines of a base page.
pub(super) const BASE_LINES: u64 = 4096 / LINE_BYTES;

/// Latencies of the design as times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub cycle: Time,
    pub l2_tlb: Time,
    pub page_walk_cache: Time,
    pub nested_tlb: Time,
    pub l2: Time,
    pub llc: Time,
    pub fault: Time,
    pub zeroing: Zeroing,
    pub context_switch: Time,
    pub timeslice: Time,
}

/// How fast a core zeroes new pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zeroing {
    /// Time per line of a base page, and of a larger one where caches hold the line.
    pub(super) near: Time,
    /// Time per other line of larger pages.
    pub(super) far: Time,
    /// Whether zeros stay in caches.
    pub(super) stores: ZeroStores,
}

impl Zeroing {
    pub fn new(design: &Design) -> Zeroing {
        let per_line = |rate: BytesPerSec| Time((LINE_BYTES as f64 * 1e15 / rate.0.max(1.0)).round() as u64);
        Zeroing {
            near: per_line(design.os.zero_bandwidth),
            far: per_line(design.os.huge_zero_bandwidth),
            stores: design.os.zero_stores,
        }
    }

    /// Time per line of a page whose lines no cache holds, away from where it is accessed.
    pub(super) fn pace(&self, size: PageSize) -> Time {
        if size == PageSize::Base { self.near } else { self.far }
    }

    /// Time of a page whose lines no cache holds.
    pub(super) fn page(&self, size: PageSize) -> Time {
        self.near.times(BASE_LINES) + self.far.times(size.bytes() / LINE_BYTES - BASE_LINES)
    }
}
