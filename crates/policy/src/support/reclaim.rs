//! Demotion under memory pressure, as Linux's reclaim does it.

use super::{List, Pending, TwoLists};
use crate::{Clear, MemorySystem, Move, MoveOptions, Outcome, PageRange, ScanHand, Scope, Signal, Step};
use terrace_model::{Bytes, TierId};

/// Two watermarks: below the lower one demotion begins, at the upper one it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    /// Free base pages below which pages are demoted.
    pub low: u64,
    /// Free base pages up to which they are.
    pub high: u64,
}

impl Watermarks {
    /// Watermarks as shares of a tier, at least one page.
    pub fn of(capacity: Bytes, low: f64, high: f64) -> Watermarks {
        let pages = |share: f64| ((capacity.0 >> 12) as f64 * share).ceil().max(1.0) as u64;
        Watermarks { low: pages(low), high: pages(high).max(pages(low)) }
    }
}

/// Ages the pages of a tier while it is short of memory and demotes those that are inactive.
///
/// Pages are aged from where the last time stopped, one lap at most each time, so that a page must stay untouched
/// between two visits of the hand to become inactive.
#[derive(Clone, Debug)]
pub struct Reclaim {
    lists: TwoLists,
    hand: ScanHand,
    from: TierId,
    to: TierId,
    watermarks: Watermarks,
    pending: Pending,
    /// Something of the last demotion succeeded.
    progress: bool,
    /// Base pages demoted so far, failures included.
    pub ordered: u64,
}

impl Reclaim {
    /// Demotes from one tier to another.
    pub fn new(from: TierId, to: TierId, watermarks: Watermarks, first: List) -> Reclaim {
        Reclaim {
            lists: TwoLists::new(first),
            hand: ScanHand::default(),
            from,
            to,
            watermarks,
            pending: Pending::default(),
            progress: false,
            ordered: 0,
        }
    }

    /// Asks to be woken when the tier falls below the lower watermark. Call it once, at the start.
    pub fn arm(&self, memory: &mut dyn MemorySystem) {
        memory.wake_below(self.from, Bytes(self.watermarks.low << 12));
    }

    /// Takes a signal. Answers whether it says that memory is short.
    pub fn hear(&mut self, signal: &Signal) -> bool {
        if let Some((_, _, Outcome::Done)) = self.pending.hear(signal) {
            self.progress = true;
        }
        if let Signal::Unmapped { range } = signal {
            self.forget(*range);
        }
        matches!(signal, Signal::LowWater { tier, .. } if *tier == self.from)
    }

    /// Forgets pages that are no longer mapped.
    pub fn forget(&mut self, range: PageRange) {
        self.lists.forget(range);
    }

    /// The upper watermark, in base pages.
    pub fn high(&self) -> u64 {
        self.watermarks.high
    }

    /// Whether the last demotion is over and achieved something, so that going on at once leads somewhere.
    pub fn progressed(&self) -> bool {
        self.progress && self.pending.is_empty()
    }

    /// Whether free memory is below the lower watermark.
    pub fn is_short(&self, memory: &dyn MemorySystem) -> bool {
        memory.topology().free_pages(self.from) < self.watermarks.low
    }

    /// Demotes inactive pages until the upper watermark, and `extra` base pages beyond, are free. Does nothing while the
    /// last demotions are under way.
    pub fn demote(&mut self, extra: u64, memory: &mut dyn MemorySystem) {
        let free = memory.topology().free_pages(self.from);
        let room = memory.topology().free_pages(self.to);
        let wanted = (self.watermarks.high + extra).saturating_sub(free).min(room);
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
