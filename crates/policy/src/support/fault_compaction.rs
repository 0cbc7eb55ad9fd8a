//! Compaction for faults: what Linux does when a fault finds no free block for a huge page (`defrag`).
//!
//! The fault waits while pages are reclaimed and copied until a block is free (*direct* compaction), or takes a base page
//! and leaves the work to a daemon (`kcompactd`), or takes a base page and leaves it at that.
//!
//! **Source.** Linux 6.12: `Documentation/admin-guide/mm/transhuge.rst` for the settings; `mm/compaction.c`
//! (`defer_compaction`, `compaction_deferred`) for the attempts that are skipped after failures.
//!
//! **Left open.** *How hard a fault tries*: both passes of [`Compactor`], as khugepaged does; Linux leaves the synchronous
//! one to areas with advice. *Faults at the same time*: one compaction after the other. *Failures of khugepaged* defer
//! nothing here: it has its own sleep after them.

use super::{Compaction, Compactor, Progress};
use crate::{Choice, Fault, MemorySystem, Moment, PageId, Placement, Report, Signal};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use terrace_model::{PageSize, TierId};

/// What a fault does that finds no free block for a huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Defrag {
    /// The fault waits for direct reclaim and compaction.
    #[choice("always")]
    Always,
    /// The fault takes a base page and wakes the daemon that compacts.
    #[choice("defer")]
    Defer,
    /// The first where the program asked for huge pages (`MADV_HUGEPAGE`), else the second.
    #[choice("defer+madvise")]
    DeferMadvise,
    /// The fault waits where the program asked for huge pages, else takes a base page.
    #[choice("madvise")]
    Madvise,
    /// The fault takes a base page.
    #[default]
    #[choice("never")]
    Never,
}

impl Defrag {
    /// Whether anything follows under it when a fault finds no block.
    pub fn acts(self) -> bool {
        self != Defrag::Never
    }

    fn waits(self, advised: bool) -> bool {
        match self {
            Defrag::Always => true,
            Defrag::DeferMadvise | Defrag::Madvise => advised,
            Defrag::Defer | Defrag::Never => false,
        }
    }

    fn wakes_the_daemon(self) -> bool {
        matches!(self, Defrag::Defer | Defrag::DeferMadvise)
    }
}

/// Attempts that are skipped after failures: 2^n - 1 of them after the n-th in a row, 63 at most (Linux:
/// `COMPACT_MAX_DEFER_SHIFT`).
#[derive(Clone, Copy, Debug, Default)]
struct Deferral {
    considered: u32,
    shift: u32,
}

const MOST_SHIFT: u32 = 6;

impl Deferral {
    /// An attempt is due: whether it is to be skipped.
    fn skips(&mut self) -> bool {
        self.considered = (self.considered + 1).min(1 << self.shift);
        self.considered < 1 << self.shift
    }

    fn answered(&mut self, freed: bool) {
        self.considered = 0;
        self.shift = if freed { 0 } else { (self.shift + 1).min(MOST_SHIFT) };
    }
}

/// What became of the faults that found no block.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    succeeded: u64,
    failed: u64,
    deferred: u64,
    /// Compactions by the daemon.
    background: u64,
}

/// Compacts for faults.
#[derive(Clone, Debug)]
pub struct FaultCompaction {
    defrag: Defrag,
    compactor: Compactor,
    deferrals: BTreeMap<TierId, Deferral>,
    /// Faults that wait, the first one for the compaction under way.
    waiting: VecDeque<(PageId, TierId)>,
    /// The tier of a compaction under way that no fault waits for.
    background: Option<TierId>,
    /// Ranges whose fault has waited and comes back.
    tried: BTreeSet<PageId>,
    counts: Counts,
}

impl FaultCompaction {
    /// As `defrag` says, by two cursors.
    pub fn new(defrag: Defrag) -> FaultCompaction {
        FaultCompaction {
            defrag,
            compactor: Compactor::as_released(Compaction::Normal),
            deferrals: BTreeMap::new(),
            waiting: VecDeque::new(),
            background: None,
            tried: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// The placement of a fault, which waits for a block where it may and has not done so.
    pub fn place(&self, fault: &Fault, placement: Placement) -> Placement {
        if self.tried.contains(&fault.page.aligned(PageSize::Huge)) {
            return placement;
        }
        let waits = self.defrag.waits(fault.area.huge_advice == Some(true));
        placement.or_waits(waits).or_notifies(!waits && self.defrag.wakes_the_daemon())
    }

    /// A fault has brought in a page.
    pub fn allocated(&mut self, page: PageId) {
        self.tried.remove(&page.aligned(PageSize::Huge));
    }

    /// Takes a signal. Returns whether it was about this compaction.
    pub fn handle(&mut self, signal: &Signal, now: Moment, memory: &mut dyn MemorySystem) -> bool {
        match *signal {
            Signal::Stalled { page, tier, .. } => {
                self.waiting.push_back((page, tier));
                self.serve(now, memory);
                return true;
            }
            Signal::Refused { tier, .. } => {
                self.wake_the_daemon(tier, now, memory);
                return true;
            }
            _ => {}
        }
        match self.compactor.handle(signal, now, memory) {
            None => return false,
            Some(Progress::Working) => {}
            Some(progress) => {
                self.over(progress == Progress::Free, memory);
                self.serve(now, memory);
            }
        }
        true
    }

    /// Goes on with the faults that wait.
    fn serve(&mut self, now: Moment, memory: &mut dyn MemorySystem) {
        while !self.compactor.is_busy()
            && let Some((page, tier)) = self.waiting.front().copied()
        {
            if self.deferrals.entry(tier).or_default().skips() {
                self.counts.deferred += 1;
                self.waiting.pop_front();
                self.resume(page, memory);
            } else {
                self.start(tier, now, memory);
            }
        }
    }

    fn wake_the_daemon(&mut self, tier: TierId, now: Moment, memory: &mut dyn MemorySystem) {
        if !self.compactor.is_busy() && !self.deferrals.entry(tier).or_default().skips() {
            self.counts.background += 1;
            self.background = Some(tier);
            self.start(tier, now, memory);
        }
    }

    fn start(&mut self, tier: TierId, now: Moment, memory: &mut dyn MemorySystem) {
        let progress = self.compactor.start(tier, PageSize::Huge, now, memory);
        if progress != Progress::Working {
            self.over(progress == Progress::Free, memory);
        }
    }

    /// The compaction under way has `freed` a block, or failed.
    fn over(&mut self, freed: bool, memory: &mut dyn MemorySystem) {
        let tier = if let Some(tier) = self.background.take() {
            tier
        } else if let Some((page, tier)) = self.waiting.pop_front() {
            *(if freed { &mut self.counts.succeeded } else { &mut self.counts.failed }) += 1;
            self.resume(page, memory);
            tier
        } else {
            return;
        };
        self.deferrals.entry(tier).or_default().answered(freed);
    }

    fn resume(&mut self, page: PageId, memory: &mut dyn MemorySystem) {
        self.tried.insert(page);
        memory.resume(page);
    }

    /// Adds what it did to a policy's report.
    pub fn report(&self, report: &mut Report) {
        report.count("compact_success", self.counts.succeeded);
        report.count("compact_fail", self.counts.failed);
        report.count("compact_deferred", self.counts.deferred);
        report.count("compact_daemon", self.counts.background);
        report.bytes("fault_compaction_bytes", self.compactor.work().copied);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_skipped_after_failures_as_linux_skips_them() {
        let mut deferral = Deferral::default();
        let mut skipped_before_next = || {
            let mut skipped = 0;
            while deferral.skips() {
                skipped += 1;
            }
            deferral.answered(false);
            skipped
        };
        let skipped: Vec<u32> = (0..9).map(|_| skipped_before_next()).collect();
        assert_eq!(skipped, [0, 1, 3, 7, 15, 31, 63, 63, 63]);
        assert!(deferral.skips());
        deferral.answered(true);
        assert!(!deferral.skips(), "a success ends it");
    }

    #[test]
    fn who_waits_under_which_setting() {
        use Defrag::{Always, Defer, DeferMadvise, Madvise, Never};
        let all = [Always, Defer, DeferMadvise, Madvise, Never];
        let table = all.map(|defrag| (defrag.waits(false), defrag.waits(true), defrag.wakes_the_daemon()));
        let (t, f) = (true, false);
        assert_eq!(table, [(t, t, f), (f, f, t), (f, t, t), (f, t, f), (f, f, f)]);
    }
}
