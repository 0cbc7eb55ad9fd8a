//! Demotion under memory pressure, as Linux's reclaim does it.

use super::{List, Pending, TwoLists};
use crate::{Clear, MemorySystem, Move, MoveOptions, Outcome, ScanHand, Scope, Signal, Step, Topology};
use terrace_model::{Bytes, TierId};

/// Two watermarks: below the lower one demotion begins, at the upper one it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Watermarks {
    /// Free base pages below which pages are demoted.
    low: u64,
    /// Free base pages up to which they are.
    high: u64,
}

impl Watermarks {
    /// Watermarks as shares of a tier, at least one page.
    fn of(capacity: Bytes, low: f64, high: f64) -> Watermarks {
        let pages = |share: f64| ((capacity.0 >> 12) as f64 * share).ceil().max(1.0) as u64;
        Watermarks { low: pages(low), high: pages(high).max(pages(low)) }
    }
}

/// Ages the pages of a tier while it is short of memory and demotes those that are inactive.
///
/// Pages are aged from where the last time stopped, one lap at most each time, so that a page must stay untouched
/// between two visits of the hand to become inactive.
#[derive(Clone, Debug)]
struct Reclaim {
    lists: TwoLists,
    hand: ScanHand,
    from: TierId,
    to: TierId,
    watermarks: Watermarks,
    pending: Pending,
    /// Something of the last demotion succeeded.
    progress: bool,
    /// The world has said that memory is short.
    is_notified: bool,
    /// Base pages demoted so far, failures included.
    ordered: u64,
}

impl Reclaim {
    fn handle(&mut self, signal: &Signal) {
        if let Some((_, _, Outcome::Done)) = self.pending.handle(signal) {
            self.progress = true;
        }
        match signal {
            Signal::Unmapped { range } => self.lists.forget(*range),
            Signal::LowWater { tier, .. } if *tier == self.from => self.is_notified = true,
            _ => {}
        }
    }

    /// Whether the last demotion is over and achieved something, so that going on at once leads somewhere.
    fn progressed(&self) -> bool {
        self.progress && self.pending.is_empty()
    }

    fn is_short(&self, memory: &dyn MemorySystem) -> bool {
        memory.topology().free_pages(self.from) < self.watermarks.low
    }

    /// Demotes inactive pages until the upper watermark is free. Does nothing while the last demotions are under way.
    fn demote(&mut self, memory: &mut dyn MemorySystem) {
        let free = memory.topology().free_pages(self.from);
        let room = memory.topology().free_pages(self.to);
        let wanted = self.watermarks.high.saturating_sub(free).min(room);
        if wanted == 0 || !self.pending.is_empty() {
            return;
        }
        self.progress = false;
        let (mut found, to, lists) = (0, self.to, &mut self.lists);
        let mut moves = Vec::new();
        let clear = Clear::ACCESSED.flushed_where_offered(memory);
        memory.scan(Scope::Tier(self.from), &mut self.hand, clear, &mut |view| {
            if found >= wanted {
                return Step::Stop;
            }
            if lists.look(view) == List::Inactive && !view.accessed && !view.in_flight {
                moves.push(Move { page: view.page, to });
                found += view.base_pages();
                return Step::Keep;
            }
            Step::Clear
        });
        let ticket = memory.migrate(&moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
        self.ordered += found;
    }
}

/// Demotion from every tier but the slowest to the next slower one, each with watermarks of its own.
#[derive(Clone, Debug)]
pub struct Cascade {
    /// From the fastest tier on.
    steps: Vec<Reclaim>,
}

impl Cascade {
    /// Watermarks are shares of each tier, and pages start on the list that `first` says.
    pub fn new(topology: &Topology, low: f64, high: f64, first: List) -> Cascade {
        let step = |(from, to): (TierId, TierId)| Reclaim {
            lists: TwoLists::new(first),
            hand: ScanHand::default(),
            from,
            to,
            watermarks: Watermarks::of(topology.tier(from).capacity, low, high),
            pending: Pending::default(),
            progress: false,
            is_notified: false,
            ordered: 0,
        };
        Cascade { steps: topology.ids().zip(topology.ids().skip(1)).map(step).collect() }
    }

    /// Asks to be woken when a tier falls below its lower watermark. Call it once, at the start.
    pub fn arm(&self, memory: &mut dyn MemorySystem) {
        for step in &self.steps {
            memory.wake_below(step.from, Bytes(step.watermarks.low << 12));
        }
    }

    /// Takes a signal.
    pub fn handle(&mut self, signal: &Signal) {
        self.steps.iter_mut().for_each(|step| step.handle(signal));
    }

    /// Demotes from the tiers of which the world has said that they are short, and at a tick or after a demotion that got
    /// somewhere from those that still are. The slowest goes first and makes room for the others.
    pub fn demote(&mut self, tick: bool, memory: &mut dyn MemorySystem) {
        for step in self.steps.iter_mut().rev() {
            let notified = std::mem::take(&mut step.is_notified);
            if notified || (tick || step.progressed()) && step.is_short(memory) {
                step.demote(memory);
            }
        }
    }

    /// The upper watermark of the fastest tier, in base pages.
    pub fn high(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.watermarks.high)
    }

    /// Base pages demoted so far, failures included.
    pub fn ordered(&self) -> u64 {
        self.steps.iter().map(|step| step.ordered).sum()
    }
}
