//! The shared last level.

use super::super::level::Home;
use super::{Below, Hierarchy, Served};
use crate::memory::Initiator;
use terrace_model::{CacheLine, CoreId, Time};

impl Hierarchy {
    /// Gets a line from another core, the last level or memory. The line is not in `core`'s caches.
    #[inline(always)]
    pub(super) fn fetch_from_llc<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        write: bool,
        start: Time,
        by: Initiator,
        below: &mut B,
    ) -> (Served, bool) {
        let mut writable = true;
        if self.directory.is_some() {
            let supplied;
            (supplied, writable) = self.consult_directory(core, line, write, start, below);
            if supplied {
                // The owner's copy counts as the last level's hit: the lookup found the data on chip.
                self.counters.llc.hits += 1;
                let done = start + self.cache_to_cache_latency;
                return (Served { done, cache_start: start, cache_end: done }, writable);
            }
        }
        let looked_up = start + self.llc_latency;
        let home = self.llc.home(line);
        if self.llc.touch(home).is_some() {
            self.counters.llc.hits += 1;
            return (Served { done: looked_up, cache_start: start, cache_end: looked_up }, writable);
        }
        self.counters.llc.misses += 1;
        self.seen.note(line);
        let sent = self.llc_misses.start(looked_up);
        let filled = below.fill(line, sent, by);
        let done = filled.max(self.install_llc(home, false, sent, below));
        self.llc_misses.occupy(sent, done);
        (Served { done, cache_start: start, cache_end: looked_up }, writable)
    }

    /// A dirty line arrives at the last level from above.
    #[inline(always)]
    pub(super) fn write_to_llc<B: Below>(&mut self, line: CacheLine, now: Time, below: &mut B) -> Time {
        let home = self.llc.home(line);
        if let Some(held) = self.llc.touch(home) {
            self.llc.set_dirty(held.slot);
            Time::ZERO
        } else {
            self.install_llc(home, true, now, below)
        }
    }

    #[inline(always)]
    pub(super) fn install_llc<B: Below>(
        &mut self,
        home: Home,
        dirty: bool,
        now: Time,
        below: &mut B,
    ) -> Time {
        debug_assert!(self.seen.may_hold(self.llc.line_of(home)), "a line came in unseen");
        let (_, evicted) = self.llc.insert(home, dirty, true);
        let Some(evicted) = evicted else { return Time::ZERO };
        let mut dirty = evicted.dirty;
        if self.inclusive {
            dirty |= self.evict_from_private(evicted.line);
        }
        if dirty {
            self.counters.llc.writebacks += 1;
            return below.evict(evicted.line, now);
        }
        Time::ZERO
    }
}
