//! Lines whose content is replaced as a whole: those of freed and of newly zeroed pages.

use super::private::Arrival;
use super::{Below, Hierarchy};
use std::ops::Range;
use terrace_model::{CacheLine, CoreId, Time};

impl Hierarchy {
    /// Removes a line from all caches without writing it back: its memory was freed or replaced, or a copy of its page
    /// took it from there. Returns whether any held it.
    pub fn discard(&mut self, line: CacheLine) -> bool {
        if !self.seen.may_hold(line) {
            return false;
        }
        let in_llc = self.llc.invalidate(self.llc.home(line)).is_some();
        let (holders, _) = self.drop_everywhere(line);
        in_llc || holders > 0
    }

    /// Removes all lines with these names: one by one, or by looking at what the caches hold, whichever is less.
    pub fn discard_range(&mut self, names: Range<CacheLine>) {
        for line in self.held_of(names) {
            self.discard(line);
        }
    }

    /// Writes the dirty lines with these names to memory; they leave the caches.
    pub fn flush_range<B: Below>(&mut self, names: Range<CacheLine>, now: Time, below: &mut B) {
        for line in self.held_of(names) {
            let in_llc = self.llc.invalidate(self.llc.home(line)) == Some(true);
            let (_, modified) = self.drop_everywhere(line);
            if in_llc || modified {
                self.counters.llc.writebacks += 1;
                below.evict(line, now);
            }
        }
    }

    /// The lines with these names that a cache may hold, in the order of their names.
    fn held_of(&self, names: Range<CacheLine>) -> Vec<CacheLine> {
        let private: usize = self.private.iter().map(|p| p.l1.lines() + p.l2.lines()).sum();
        if names.end.0.saturating_sub(names.start.0) <= (private + self.llc.lines()) as u64 {
            return (names.start.0..names.end.0).map(CacheLine).collect();
        }
        let above = self.private.iter().flat_map(|p| p.l1.resident().chain(p.l2.resident()));
        let mut held: Vec<CacheLine> =
            above.chain(self.llc.resident()).filter(|line| names.contains(line)).collect();
        held.sort_unstable();
        held.dedup();
        held
    }

    /// A core writes zeros over a whole line and keeps it in its L1, modified. Nothing is read, since no old byte stays.
    /// Returns whether a cache held the line before, and when the device has taken what had to leave for it.
    pub fn zero_in_l1<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        now: Time,
        below: &mut B,
    ) -> (bool, Time) {
        let core = self.caches_of(core);
        let held = self.seen.zero(line) && self.discard(line);
        self.counters.zero_fills += 1;
        let mut taken = Time::ZERO;
        if self.inclusive {
            taken = self.install_llc(self.llc.home(line), false, now, below);
        }
        self.record_sole(core, line, now, below);
        let private = &mut self.private[core.index()];
        let (slot, evicted) = private.l1.insert(private.l1.home(line), true, true);
        let index = private.l1.slot_index(slot);
        private.l1_arrivals[index] = Arrival::of(now, now);
        private.forget(line);
        if let Some(evicted) = evicted {
            taken = taken.max(self.leave_l1(core, evicted.line, evicted.dirty, now, below));
        }
        (held, taken)
    }

    /// A core writes zeros over a line that lies in the last level alone afterwards.
    pub fn zero_in_llc<B: Below>(&mut self, line: CacheLine, now: Time, below: &mut B) -> (bool, Time) {
        let held = self.seen.zero(line) && self.discard(line);
        self.counters.zero_fills += 1;
        (held, self.install_llc(self.llc.home(line), true, now, below))
    }
}
