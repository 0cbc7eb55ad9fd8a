//! What the operating system counts.

/// Counters of the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsCounters {
    /// Page faults, by the size of the page they brought in.
    pub faults: [u64; 3],
    /// Writes to a page shared since a fork.
    pub copy_on_write_faults: u64,
    /// Pages that were wanted larger than they came, for want of an aligned free block.
    pub huge_fallbacks: u64,
    /// Pages that were wanted larger than they came, since smaller pages lay in the larger one's place already.
    pub huge_occupied: u64,
    /// Base pages where the huge page around them would reach beyond their mapping.
    pub huge_unfit: u64,
    /// Huge pages split into base pages because a part was unmapped.
    pub splits: u64,
    /// Accesses to addresses that no event had mapped; each mapped its page.
    pub unmapped_accesses: u64,
    /// Base pages given back.
    pub pages_freed: u64,
}
