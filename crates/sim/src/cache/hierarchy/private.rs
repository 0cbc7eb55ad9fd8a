//! The private levels of a core: L1 and L2, what misses them, and what leaves them.

use super::super::level::{Home, Level, Slot};
use super::super::prefetcher::StridePrefetcher;
use super::super::registers::MissRegisters;
use super::{Below, Hierarchy, Served};
use crate::memory::Initiator;
use terrace_model::{CacheLine, CoreId, Time};

/// When a line's data arrives, and how long that takes from the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub ready: Time,
    latency: Time,
}

impl Arrival {
    /// The arrival of a line that was asked for at a time.
    #[inline(always)]
    pub fn of(asked: Time, ready: Time) -> Arrival {
        Arrival { ready, latency: ready.saturating_sub(asked) }
    }

    /// The arrival of a line whose data is there.
    pub const PAST: Arrival = Arrival { ready: Time::ZERO, latency: Time::ZERO };

    /// When the data is there for an access at `now`. One that was simulated after the request and comes before it in time
    /// would have been the one to ask: the line arrives as much sooner, for all that follow.
    #[inline(always)]
    pub fn for_access(&mut self, now: Time) -> Time {
        let own = now + self.latency;
        if own < self.ready {
            self.ready = own;
        }
        self.ready
    }
}

/// Arrivals of the lines of a level where few come in before their data: a bit for each slot says whether its arrival is to
/// come, and all bits together stay in the host's caches.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    slots: Vec<Arrival>,
    is_early: Vec<u64>,
}

impl Arrivals {
    /// So many slots, all of whose data are there.
    pub fn of(slots: usize) -> Arrivals {
        Arrivals { slots: vec![Arrival::PAST; slots], is_early: vec![0; slots.div_ceil(64)] }
    }

    /// Notes when a slot's data arrives.
    #[inline(always)]
    fn set(&mut self, slot: usize, arrival: Arrival) {
        let Some(word) = self.is_early.get_mut(slot / 64) else { return };
        let bit = 1 << (slot % 64);
        if arrival.ready == Time::ZERO {
            *word &= !bit;
        } else {
            *word |= bit;
            self.slots[slot] = arrival;
        }
    }

    /// [`Arrival::for_access`] of a slot.
    #[inline(always)]
    fn for_access(&mut self, slot: usize, now: Time) -> Time {
        match self.is_early.get(slot / 64) {
            Some(word) if word >> (slot % 64) & 1 != 0 => self.slots[slot].for_access(now),
            _ => Time::ZERO,
        }
    }
}

/// A line that was the most recent of its L1 set: until another takes its place, using it again changes nothing, and
/// the level need not be looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    pub line: CacheLine,
    pub arrival: Arrival,
    /// The line is dirty and writable, so that a store changes nothing either.
    pub owned: bool,
}

const NO_LINE: CacheLine = CacheLine(u64::MAX);
pub(super) const NOTHING_RECENT: Recent = Recent { line: NO_LINE, arrival: Arrival::PAST, owned: false };

#[derive(Clone, Debug)]
pub(super) struct Private {
    /// One per L1 set; a single, unused one where a set is not given by a line's lowest bits.
    pub recent: Box<[Recent]>,
    pub l1: Level,
    pub l2: Level,
    /// When each L1 slot's data arrives.
    pub l1_arrivals: Vec<Arrival>,
    /// When each L2 slot's data arrives; only prefetches are that early, so empty without a prefetcher.
    pub l2_arrivals: Arrivals,
    pub l1_misses: MissRegisters,
    pub l2_misses: MissRegisters,
    pub prefetcher: Option<StridePrefetcher>,
}

impl Private {
    /// When the data of an L1 slot is there for an access at `now`.
    #[inline(always)]
    pub fn l1_arrival(&mut self, slot: Slot, now: Time) -> Arrival {
        let arrival = &mut self.l1_arrivals[self.l1.slot_index(slot)];
        arrival.for_access(now);
        *arrival
    }

    #[inline(always)]
    fn set_l2_arrival(&mut self, slot: Slot, arrival: Arrival) {
        self.l2_arrivals.set(self.l2.slot_index(slot), arrival);
    }

    #[inline(always)]
    pub fn recent_index(&self, line: CacheLine) -> usize {
        line.0 as usize & (self.recent.len() - 1)
    }

    #[inline(always)]
    pub fn remember(&mut self, recent: Recent) {
        if self.recent.len() > 1 {
            let index = self.recent_index(recent.line);
            self.recent[index] = recent;
        }
    }

    /// The line's state changed other than by the core's own accesses.
    pub fn forget(&mut self, line: CacheLine) {
        let index = self.recent_index(line);
        self.recent[index] = NOTHING_RECENT;
    }
}

impl Hierarchy {
    /// Brings a line into a hardware thread's L1, where it belongs at `home`.
    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    pub(super) fn miss_l1<B: Below>(
        &mut self,
        thread: CoreId,
        line: CacheLine,
        home: Home,
        write: bool,
        now: Time,
        by: Initiator,
        below: &mut B,
    ) -> Served {
        self.counters.l1.misses += 1;
        let core = self.caches_of(thread);
        let own = self.thread_misses.get(thread.index()).map_or(now, |misses| misses.start(now));
        let start = self.private[core.index()].l1_misses.start(own);
        let (mut served, writable) = self.fetch(core, line, write, start, by, below);
        let private = &mut self.private[core.index()];
        private.l1_misses.occupy(start, served.done);
        if let Some(misses) = self.thread_misses.get_mut(thread.index()) {
            misses.occupy(start, served.done);
        }
        let (slot, evicted) = private.l1.insert(home, write, writable);
        let index = private.l1.slot_index(slot);
        let arrival = Arrival::of(start, served.done);
        private.l1_arrivals[index] = arrival;
        if private.l1.hit_after_insert_changes_nothing() {
            private.remember(Recent { line, arrival, owned: write && writable });
        } else {
            private.forget(line);
        }
        if let Some(evicted) = evicted {
            let taken = self.leave_l1(core, evicted.line, evicted.dirty, start, below);
            served.done = served.done.max(taken);
        }
        // Last, so that what it pushes out of L2 cannot be taken for a line that nobody holds.
        self.prefetch(core, line, start, below);
        served
    }

    /// Gets a line from L2 or further down. Also returns whether the core owns it afterwards.
    #[inline(always)]
    pub(super) fn fetch<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        write: bool,
        start: Time,
        by: Initiator,
        below: &mut B,
    ) -> (Served, bool) {
        let private = &mut self.private[core.index()];
        let home = private.l2.home(line);
        if let Some(held) = private.l2.touch(home) {
            self.counters.l2.hits += 1;
            let arrival = private.l2_arrivals.for_access(private.l2.slot_index(held.slot), start);
            let mut done = arrival.max(start + self.l2_latency);
            let mut writable = held.writable;
            if write && !writable {
                self.invalidate_others(core, line, start, below);
                self.private[core.index()].l2.set_writable(held.slot);
                writable = true;
                done = done.max(start + self.llc_latency);
            }
            return (Served { done, cache_start: start, cache_end: done }, writable);
        }
        self.counters.l2.misses += 1;
        let start = private.l2_misses.start(start);
        let usable = below.translated(start);
        let (mut served, writable) = self.fetch_from_llc(core, line, write, start, by, below);
        served.done = served.done.max(usable);
        let private = &mut self.private[core.index()];
        private.l2_misses.occupy(start, served.done);
        let taken = self.install_l2(core, home, writable, Arrival::PAST, start, below);
        served.done = served.done.max(taken);
        (served, writable)
    }

    /// A line left `core`'s L1.
    #[inline(always)]
    pub(super) fn leave_l1<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        dirty: bool,
        now: Time,
        below: &mut B,
    ) -> Time {
        if dirty {
            self.counters.l1.writebacks += 1;
            let private = &mut self.private[core.index()];
            let home = private.l2.home(line);
            if let Some(held) = private.l2.touch(home) {
                private.l2.set_dirty(held.slot);
            } else {
                let (slot, evicted) = private.l2.insert(home, true, true);
                self.host_prefetch_next_victim(core, home);
                self.private[core.index()].set_l2_arrival(slot, Arrival::PAST);
                if let Some(evicted) = evicted {
                    return self.leave_l2(core, evicted.line, evicted.dirty, now, below);
                }
            }
        } else if self.directory.is_some() && !self.private[core.index()].l2.holds(line) {
            self.depart(core, line);
        }
        Time::ZERO
    }

    /// Puts a clean line into `core`'s L2.
    #[inline(always)]
    pub(super) fn install_l2<B: Below>(
        &mut self,
        core: CoreId,
        home: Home,
        writable: bool,
        arrival: Arrival,
        now: Time,
        below: &mut B,
    ) -> Time {
        let private = &mut self.private[core.index()];
        // A back-invalidation on the way down cannot have brought the line back in.
        let (slot, evicted) = private.l2.insert(home, false, writable);
        self.host_prefetch_next_victim(core, home);
        self.private[core.index()].set_l2_arrival(slot, arrival);
        match evicted {
            Some(evicted) => self.leave_l2(core, evicted.line, evicted.dirty, now, below),
            None => Time::ZERO,
        }
    }

    /// A line left `core`'s L2.
    #[inline(always)]
    pub(super) fn leave_l2<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        dirty: bool,
        now: Time,
        below: &mut B,
    ) -> Time {
        let mut taken = Time::ZERO;
        if dirty {
            self.counters.l2.writebacks += 1;
            taken = self.write_to_llc(line, now, below);
        }
        if self.directory.is_some() && !self.private[core.index()].l1.holds(line) {
            self.depart(core, line);
        }
        taken
    }

    /// Whether the private caches of this number hold a line.
    #[inline]
    pub(super) fn in_private(&self, core: CoreId, line: CacheLine) -> bool {
        self.private[core.index()].l1.holds(line) || self.private[core.index()].l2.holds(line)
    }

    /// Whether a hardware thread's private caches hold a line.
    #[inline]
    pub fn is_private(&self, thread: CoreId, line: CacheLine) -> bool {
        self.in_private(self.caches_of(thread), line)
    }

    /// Whether a hardware thread's own caches or the last level hold a line.
    #[inline]
    pub fn is_cached(&self, thread: CoreId, line: CacheLine) -> bool {
        self.is_private(thread, line) || self.llc.holds(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_arrives_sooner_where_an_earlier_access_would_have_asked_for_it() {
        let mut arrival = Arrival::of(Time(20_000), Time(20_100));
        assert_eq!(arrival.for_access(Time(20_050)), Time(20_100), "on its way");
        assert_eq!(arrival.for_access(Time(500)), Time(600), "as long as the request took");
        assert_eq!(arrival.for_access(Time(550)), Time(600), "for all that follow");
    }
}
