//! What was done, in the names that the simulator uses and, where the kernel counts the same, the kernel's.

use terrace_model::{PageSize, Stats, TierId, Unit};

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Base pages moved to a faster tier.
    pub promoted: u64,
    /// Base pages moved to a slower tier.
    pub demoted: u64,
    /// Pieces of orders that failed.
    pub failed: u64,
    /// Huge pages moved whole.
    pub huge_moved: u64,
    /// Pairs exchanged.
    pub exchanged: u64,
    /// Huge pages split.
    pub split: u64,
    /// Huge pages made.
    pub collapsed: u64,
    /// Pages that came back from a compressed tier because the program touched them.
    pub returned: u64,
    /// Watched pages that were accessed.
    pub hint_faults: u64,
    /// Accesses counted on watched pages, before correction.
    pub count_faults: u64,
    /// Times that a watched page was in memory after it had been sent to swap: it did not go, or was back at once.
    pub stayed: u64,
    /// Accesses sampled by the processor.
    pub samples: u64,
    /// Pieces of orders that a dry run did not carry out.
    pub planned: u64,
    /// Processes taken under management.
    pub adopted: u64,
    /// Base pages shown to the policy.
    pub scanned: u64,
}

/// Pages that moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// Base pages.
    pub pages: u64,
    /// Larger pages, whose base pages are among those.
    pub huge: u64,
}

impl Moved {
    pub fn add(&mut self, size: PageSize) {
        self.pages += size.base_pages();
        self.huge += u64::from(size != PageSize::Base);
    }
}

impl Counters {
    pub(super) fn moved(&mut self, from: TierId, to: TierId, moved: Moved) {
        if to < from {
            self.promoted += moved.pages;
        } else {
            self.demoted += moved.pages;
        }
        self.huge_moved += moved.huge;
    }

    /// Into a statistics tree.
    pub fn collect(&self, stats: &mut Stats) {
        let moved = self.promoted + self.demoted;
        stats.count("vmstat.pgpromote_success", self.promoted, Unit::Pages);
        stats.count("vmstat.pgdemote_policy", self.demoted, Unit::Pages);
        stats.count("vmstat.pgmigrate_success", moved, Unit::Pages);
        stats.count("vmstat.pgmigrate_fail", self.failed, Unit::Pages);
        stats.count("vmstat.thp_migration_success", self.huge_moved, Unit::Count);
        stats.count("vmstat.thp_split_page", self.split, Unit::Count);
        stats.count("vmstat.thp_collapse_alloc", self.collapsed, Unit::Count);
        stats.count("vmstat.numa_hint_faults", self.hint_faults, Unit::Count);
        stats.count("policy.exchanges", self.exchanged, Unit::Count);
        stats.count("policy.copied_bytes", moved << 12, Unit::Bytes);
        stats.count("policy.count_faults", self.count_faults, Unit::Count);
        stats.count("policy.scanned_pages", self.scanned, Unit::Count);
        stats.count("policy.samples", self.samples, Unit::Count);
        stats.count("live.returned", self.returned, Unit::Pages);
        stats.count("live.stayed", self.stayed, Unit::Count);
        stats.count("live.planned", self.planned, Unit::Count);
        stats.count("live.processes", self.adopted, Unit::Count);
    }
}
