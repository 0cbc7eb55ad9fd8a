//! Compaction: base pages are copied until a large block of memory is free.
//!
//! **Normal** (Linux; Trident §5.1.3, Figure 6a): two cursors that persist across calls. The source cursor goes up over
//! occupied frames, the target cursor goes down over free ones, until a free block of the wanted size exists. It does
//! not look at how full a block is, and an unmovable frame in it wastes what was copied out of it before. As in Linux
//! it looks at the mobility of pageblocks, begins anew when the cursors have met, and has two passes; `normal.rs` says how.
//!
//! **Smart** (Trident §5.1.3, Figure 6b): the region with most free frames and without unmovable ones is emptied into
//! the fullest ones that have room.
//!
//! Orders take time, so a compaction is a state machine: [`Compactor::start`] begins it and [`Compactor::handle`] drives
//! it by the answers to its orders.
//!
//! **Left open by the sources.** *Ties*: the lowest region. *A frame that is busy*: another pass over the source, three
//! at most. *Failure half-way*: the source is given up, and what was copied out of it stays where it is. *A source that
//! cannot be emptied for want of free frames elsewhere*: is not begun. *Huge pages in a 1 GiB source*: go whole to a
//! free 2 MiB block; without one the source is given up. *Batches*: 512 pages, of which 32 are in flight
//! (`COMPACT_CLUSTER_MAX` of Linux). *What Linux does and this does not*: marks on blocks without free
//! frames, which only save it time. Deferring after failures is for who compacts: faults do (`fault_compaction.rs`).

mod normal;
mod smart;
#[cfg(test)]
mod tests;

use super::Pending;
use crate::{
    Choice, CopyBy, FrameState, MemorySystem, Moment, MoveOptions, Outcome, PhysicalMemory, Relocate, Report,
    Signal, Subject,
};
use normal::Normal;
use smart::Smart;
use std::num::NonZeroU32;
use terrace_model::{Bytes, Frame, PageSize, TierId, Time};

/// Pages per order.
const BATCH: usize = 512;
/// Pages of a batch that are between unmap and map at once.
const IN_FLIGHT: Option<NonZeroU32> = NonZeroU32::new(32);

/// How memory is compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Compaction {
    /// Two cursors, as in Linux.
    Normal,
    /// By counters per region, as in Trident.
    #[default]
    Smart,
    /// Not at all.
    None,
}

/// How smart compaction knows that a region cannot be emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Unmovable {
    /// By the counter of its unmovable frames (Trident §5.1.3).
    #[default]
    Counter,
    /// By the mobility of its pageblocks: a region with a pageblock that is not kept for movable pages counts as unmovable,
    /// any other region does not, whatever lies in them (Trident's released code, which keeps the counter and does not read
    /// it).
    Mobility,
}

/// Limits of smart compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmartLimits {
    /// Sources per compaction, at most.
    pub retries: u32,
    /// Time for which a source that was tried is not chosen again.
    pub timeout: Time,
    /// How regions that cannot be emptied are recognized.
    pub unmovable: Unmovable,
}

/// How a compaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Orders are under way.
    Working,
    /// A block of the wanted size is free.
    Free,
    /// There is none, and none could be made.
    Failed,
}

/// What compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Compactions begun.
    pub runs: u64,
    /// Compactions that freed a block.
    pub succeeded: u64,
    /// Blocks that compaction began to empty.
    pub sources: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Bytes copied out of blocks that could not be emptied.
    pub wasted: u64,
}

/// What a step of a compaction came to.
enum Next {
    Order(Vec<Relocate>),
    Over(Progress),
}

#[derive(Clone, Debug)]
enum Method {
    Normal(Normal),
    Smart(Smart),
    None,
}

/// Frees blocks by copying, one at a time.
#[derive(Clone, Debug)]
pub struct Compactor {
    method: Method,
    /// The block that is wanted.
    wanted: Option<(TierId, PageSize)>,
    pending: Pending,
    work: Work,
    copy: CopyBy,
}

impl Compactor {
    /// Compacts in this way, smart compaction as in Trident's released code: at most five sources per compaction, and none
    /// again within 120 s.
    pub fn as_released(kind: Compaction) -> Compactor {
        let timeout = crate::spans::seconds(120);
        Compactor::new(kind, SmartLimits { retries: 5, timeout, unmovable: Unmovable::Counter })
    }

    /// Compacts in this way.
    pub fn new(kind: Compaction, limits: SmartLimits) -> Compactor {
        let method = match kind {
            Compaction::Normal => Method::Normal(Normal::default()),
            Compaction::Smart => Method::Smart(Smart::new(limits)),
            Compaction::None => Method::None,
        };
        let (pending, work) = (Pending::default(), Work::default());
        Compactor { method, wanted: None, pending, work, copy: CopyBy::Bytes }
    }

    /// What it moves, and what is collapsed after it, gets to its new place in this way.
    #[must_use]
    pub fn by(self, copy: CopyBy) -> Compactor {
        Compactor { copy, ..self }
    }

    /// How that is.
    pub fn copy(&self) -> CopyBy {
        self.copy
    }

    /// Whether a compaction is under way.
    pub fn is_busy(&self) -> bool {
        self.wanted.is_some()
    }

    /// What was done so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Begins to free a block of `size` in `tier`; a compaction under way goes on instead.
    pub fn start(
        &mut self,
        tier: TierId,
        size: PageSize,
        now: Moment,
        memory: &mut dyn MemorySystem,
    ) -> Progress {
        if self.is_busy() {
            return Progress::Working;
        }
        if matches!(self.method, Method::None) || memory.physical().is_none() {
            return Progress::Failed;
        }
        if let Some(physical) = memory.physical() {
            let free = physical.watermarks(tier).low.0 + gap(size).0;
            physical.reclaim(tier, Bytes(free));
        }
        self.work.runs += 1;
        self.wanted = Some((tier, size));
        match &mut self.method {
            Method::Normal(normal) => normal.begin(tier, memory),
            Method::Smart(smart) => smart.begin(),
            Method::None => {}
        }
        self.go_on(now, memory)
    }

    /// Takes a signal. Returns none if it is not about this compaction.
    pub fn handle(
        &mut self,
        signal: &Signal,
        now: Moment,
        memory: &mut dyn MemorySystem,
    ) -> Option<Progress> {
        let Signal::Done { cost, .. } = signal else { return None };
        let (_, subject, outcome) = self.pending.handle(signal)?;
        let copied = cost.copied;
        self.work.copied += copied;
        let Subject::Frame(_) = subject else { return Some(Progress::Working) };
        match &mut self.method {
            Method::Normal(normal) => normal.answered(outcome, copied),
            Method::Smart(smart) => smart.answered(outcome, copied),
            Method::None => {}
        }
        Some(if self.pending.is_empty() { self.go_on(now, memory) } else { Progress::Working })
    }

    fn go_on(&mut self, now: Moment, memory: &mut dyn MemorySystem) -> Progress {
        let Some((tier, size)) = self.wanted else { return Progress::Failed };
        let next = match &mut self.method {
            Method::Normal(normal) => normal.step(tier, size, &mut self.work, memory),
            Method::Smart(smart) => smart.step(tier, size, now, &mut self.work, memory),
            Method::None => Next::Over(Progress::Failed),
        };
        match next {
            Next::Order(moves) => {
                let how = MoveOptions { in_flight: IN_FLIGHT, copy: self.copy, ..MoveOptions::default() };
                if let Some(physical) = memory.physical() {
                    let ticket = physical.relocate(&moves, how);
                    self.pending.ordered(ticket, moves.len());
                }
                Progress::Working
            }
            Next::Over(progress) => {
                self.wanted = None;
                self.work.succeeded += u64::from(progress == Progress::Free);
                progress
            }
        }
    }

    /// Adds what was done to a policy's report.
    pub fn report(&self, report: &mut Report) {
        report.count("compactions", self.work.runs);
        report.count("compactions_succeeded", self.work.succeeded);
        report.count("compaction_sources", self.work.sources);
        report.bytes("compaction_bytes", self.work.copied);
        report.bytes("compaction_bytes_wasted", self.work.wasted);
    }
}

/// What a walk over a block met besides pages that can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    /// Nothing: it came to the end, or has enough pages.
    Nothing,
    Unmovable,
    Busy,
}

/// Pages to be moved, from frame `at` on, up to `end`.
struct Walk {
    pages: Vec<(Frame, PageSize)>,
    /// Where it stopped.
    at: u64,
    met: Met,
}

/// Collects at most [`BATCH`] pages in frames `at..end`, until it meets one that does not move.
fn walk(at: u64, end: u64, memory: &mut dyn MemorySystem) -> Walk {
    let mut walk = Walk { pages: Vec::new(), at, met: Met::Nothing };
    while walk.at < end && walk.pages.len() < BATCH {
        let frame = Frame(walk.at);
        let state = memory.physical().map_or(FrameState::Unmovable, |physical| physical.state(frame));
        let (met, size) = match state {
            FrameState::Free { .. } => (Met::Nothing, None),
            FrameState::MovableOther => (Met::Nothing, Some(PageSize::Base)),
            FrameState::Unmovable => (Met::Unmovable, None),
            FrameState::Busy => (Met::Busy, None),
            FrameState::Movable(page) => match memory.page(page) {
                Some(view) if view.frame == Some(frame) && walk.at + view.base_pages() <= end => {
                    (Met::Nothing, Some(view.size))
                }
                // A page that reaches beyond the block.
                _ => (Met::Unmovable, None),
            },
        };
        walk.met = met;
        if met != Met::Nothing {
            break;
        }
        walk.pages.extend(size.map(|size| (frame, size)));
        walk.at += size.map_or(1, PageSize::base_pages);
    }
    walk
}

/// Free memory that has to be there above the low watermark to copy to: twice the block (Linux, mm/internal.h,
/// compact_gap).
fn gap(size: PageSize) -> Bytes {
    Bytes(2 * size.bytes())
}

fn is_free(frame: u64, memory: &mut dyn MemorySystem) -> bool {
    let state = memory.physical().map(|physical| physical.state(Frame(frame)));
    matches!(state, Some(FrameState::Free { .. }))
}

fn is_free_block(first: u64, size: PageSize, memory: &mut dyn MemorySystem) -> bool {
    (first..first + size.base_pages()).all(|frame| is_free(frame, memory))
}

/// Whether the allocator has a block of `size`.
fn has_block(tier: TierId, size: PageSize, memory: &mut dyn MemorySystem) -> bool {
    memory.physical().is_some_and(|physical| physical.free_blocks(tier, size).0 > 0)
}

/// A page whose answer says that its block cannot be emptied.
fn is_stuck(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Unmovable | Outcome::Unsupported)
}

/// Regions of `size` with their counters: first frame, frames, free ones, unmovable ones.
fn regions(tier: TierId, size: PageSize, physical: &dyn PhysicalMemory) -> Vec<crate::FrameRegion> {
    let mut regions = Vec::new();
    physical.regions(tier, size, &mut |region| regions.push(region));
    regions
}
