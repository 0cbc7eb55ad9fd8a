//! Free blocks are filled with zeros before a fault wants them.

use super::Pending;
use crate::{MemorySystem, Moment, Outcome, Report, Signal};
use terrace_model::{Frame, PageSize, Time};

/// A daemon that zeroes free blocks of one size (Trident §5.1.2; HawkEye).
#[derive(Clone, Debug)]
pub struct Zeroing {
    size: PageSize,
    period: Time,
    per_wake: u64,
    /// No more once so many free blocks of a tier are zeroed; 0 for no limit.
    enough: u64,
    wakes: Moment,
    pending: Pending,
    zeroed: u64,
}

impl Zeroing {
    /// Zeroes at most `per_wake` blocks of `size` every `period`.
    pub fn new(size: PageSize, period: Time, per_wake: u64, enough: u64) -> Zeroing {
        let pending = Pending::default();
        Zeroing { size, period, per_wake, enough, wakes: Moment::START, pending, zeroed: 0 }
    }

    /// When it wants to be called.
    pub fn next(&self) -> Moment {
        self.wakes
    }

    /// Zeroes blocks if its time has come and the last ones are done.
    pub fn tick(&mut self, now: Moment, memory: &mut dyn MemorySystem) {
        if self.wakes > now {
            return;
        }
        self.wakes = now.plus(self.period);
        if !self.pending.is_empty() {
            return;
        }
        let tiers = memory.topology().ids();
        let Some(physical) = memory.physical() else { return };
        let mut left = self.per_wake;
        for tier in tiers {
            let (free, zeroed) = physical.free_blocks(tier, self.size);
            let wanted = if self.enough == 0 { free } else { self.enough.min(free) };
            let count = wanted.saturating_sub(zeroed).min(left) as usize;
            if count == 0 {
                continue;
            }
            let mut blocks: Vec<Frame> = Vec::new();
            physical.regions(tier, self.size, &mut |region| {
                let whole = region.free == self.size.base_pages() && !region.zeroed;
                if whole && blocks.len() < count {
                    blocks.push(region.first);
                }
            });
            left -= blocks.len() as u64;
            let ticket = physical.zero(&blocks, self.size);
            self.pending.ordered(ticket, blocks.len());
        }
    }

    /// Takes a signal; returns whether it was about one of its blocks.
    pub fn handle(&mut self, signal: &Signal) -> bool {
        let Some((_, _, outcome)) = self.pending.handle(signal) else { return false };
        self.zeroed += u64::from(outcome == Outcome::Done);
        true
    }

    /// Adds what it did.
    pub fn report(&self, report: &mut Report) {
        report.bytes("zeroed_ahead", self.zeroed * self.size.bytes());
    }
}
