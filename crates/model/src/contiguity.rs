//! How contiguous memory is.

use serde::Serialize;

/// How contiguous memory was at one moment, in the metrics of Translation Ranger (Yan, thesis, 2019, section 4.5): runs of
/// pages that are neighbours both in an address space and in physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ContiguityPoint {
    /// Since the start.
    pub seconds: f64,
    /// Runs that cover all pages.
    pub regions: u64,
    /// Share of the pages in the 32 largest of them, 0 to 1.
    pub coverage_32: f64,
    /// In the 128 largest.
    pub coverage_128: f64,
}
