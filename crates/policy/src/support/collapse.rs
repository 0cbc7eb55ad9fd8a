//! One collapse after the other, with compaction where no block is free.

use super::{Compactor, Pending, Progress, Tries};
use crate::{MemorySystem, Moment, Outcome, PageId, Report, Resize, Signal};
use terrace_model::{PageSize, TierId};

/// A range that is to become one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The range's first page.
    pub page: PageId,
    /// The size of the page.
    pub size: PageSize,
    /// The tier in which most of it lies.
    pub tier: TierId,
}

/// What became of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed {
    /// Which.
    pub candidate: Candidate,
    /// [`Outcome::NoSpace`]: no block was free, and compaction made none.
    pub outcome: Outcome,
}

/// Collapses ranges, one at a time, as khugepaged does.
#[derive(Clone, Debug)]
pub struct Collapser {
    compactor: Compactor,
    candidate: Option<Candidate>,
    /// The candidate's block was compacted for.
    compacted: bool,
    pending: Pending,
    huge: Tries,
    giant: Tries,
}

impl Collapser {
    /// Makes room with `compactor`.
    pub fn new(compactor: Compactor) -> Collapser {
        Collapser {
            compactor,
            candidate: None,
            compacted: false,
            pending: Pending::default(),
            huge: Tries::default(),
            giant: Tries::default(),
        }
    }

    /// Whether a candidate is being worked on.
    pub fn is_busy(&self) -> bool {
        self.candidate.is_some()
    }

    /// Allocations for pages of `size` that were asked for, and those that failed.
    pub fn tries(&self, size: PageSize) -> Tries {
        if size == PageSize::Giant { self.giant } else { self.huge }
    }

    /// What compaction did.
    pub fn compactor(&self) -> &Compactor {
        &self.compactor
    }

    /// Begins with a candidate; a busy collapser takes none.
    pub fn begin(&mut self, candidate: Candidate, memory: &mut dyn MemorySystem) {
        if !self.is_busy() {
            self.candidate = Some(candidate);
            self.compacted = false;
            self.order(candidate, memory);
        }
    }

    fn order(&mut self, candidate: Candidate, memory: &mut dyn MemorySystem) {
        let ticket =
            memory.resize_by(&[Resize { page: candidate.page, to: candidate.size }], self.compactor.copy());
        self.pending.ordered(ticket, 1);
    }

    /// Takes a signal. Returns what became of the candidate once that is known.
    pub fn handle(
        &mut self,
        signal: &Signal,
        now: Moment,
        memory: &mut dyn MemorySystem,
    ) -> Option<Collapsed> {
        let candidate = self.candidate?;
        let progress = if let Some((_, _, outcome)) = self.pending.handle(signal) {
            if outcome != Outcome::NoSpace || self.compacted {
                return Some(self.finish(candidate, outcome));
            }
            self.compacted = true;
            self.compactor.start(candidate.tier, candidate.size, now, memory)
        } else {
            self.compactor.handle(signal, now, memory)?
        };
        match progress {
            Progress::Working => None,
            Progress::Free => {
                self.order(candidate, memory);
                None
            }
            Progress::Failed => Some(self.finish(candidate, Outcome::NoSpace)),
        }
    }

    fn finish(&mut self, candidate: Candidate, outcome: Outcome) -> Collapsed {
        let tries = if candidate.size == PageSize::Giant { &mut self.giant } else { &mut self.huge };
        // Other outcomes say nothing about the allocator.
        tries.tried += u64::from(matches!(outcome, Outcome::Done | Outcome::NoSpace));
        tries.failed += u64::from(outcome == Outcome::NoSpace);
        self.candidate = None;
        Collapsed { candidate, outcome }
    }

    /// Adds tries, failures and what compaction did.
    pub fn report(&self, report: &mut Report) {
        for (name, tries) in [("2m", self.huge), ("1g", self.giant)] {
            report.count(&format!("promotion_{name}_tried"), tries.tried);
            report.count(&format!("promotion_{name}_failed"), tries.failed);
        }
        self.compactor.report(report);
    }
}
