//! When observers look.

use super::Engine;
use crate::outcome::{AccessPath, MemoryMap, PlacementMap};
use terrace_model::Time;

/// The access that is watched.
#[derive(Debug)]
pub(super) struct AccessWatch {
    /// The access's number in the region of interest, from 0 on.
    number: u64,
    /// Accesses before the region.
    before: u64,
    /// The access's steps, once it was made.
    pub path: Option<AccessPath>,
}

impl AccessWatch {
    /// `number` counts from 1 on.
    pub fn new(number: u64) -> AccessWatch {
        AccessWatch { number: number.saturating_sub(1), before: 0, path: None }
    }

    /// The region of interest begins after so many accesses.
    pub fn region_begins(&mut self, before: u64) {
        (self.before, self.path) = (before, None);
    }

    /// Where accesses from `from` to `to` have to stop so that the watched one is made by itself, and whether it is the next
    /// one. `made`: accesses so far.
    pub fn cut(&self, made: u64, from: usize, to: usize) -> (usize, bool) {
        match (self.before + self.number).checked_sub(made) {
            Some(0) => (from + 1, true),
            Some(left) => (to.min(from.saturating_add(left as usize)), false),
            None => (to, false),
        }
    }
}

impl Engine<'_> {
    /// The clock of the core that is furthest.
    pub(super) fn latest(&self) -> Time {
        self.machine.cores.iter().map(|core| core.pipeline.now).max().unwrap_or_default()
    }

    /// Memory is about to be given back: by a whole process or by a part of one.
    pub(super) fn look_at_memory(&mut self, process_ends: bool, over: bool) {
        // Every unmap comes by here, and mostly nobody watches.
        if self.machine.shared.observers.parts.is_none() {
            return;
        }
        let now = self.latest();
        let shared = &mut self.machine.shared;
        let Some(parts) = &mut shared.observers.parts else { return };
        parts.look(&shared.os, over);
        if let Some(maker) = self.map_maker.as_mut().filter(|_| process_ends || over) {
            maker.look(&shared.os, parts, now, over);
        }
    }

    /// The finished pictures of memory, where they were asked for.
    pub(super) fn memory_map(&self) -> Option<MemoryMap> {
        Some(self.map_maker.as_ref()?.finish(self.machine.shared.observers.parts.as_ref()?))
    }

    /// Ends the columns of the placement map that are over at `now`.
    #[inline]
    pub(super) fn look_at_placement(&mut self, now: Time) {
        if self.machine.shared.observers.placement.as_ref().is_some_and(|maker| maker.is_due(now)) {
            self.close_columns(now, false);
        }
    }

    fn close_columns(&mut self, now: Time, over: bool) {
        let moved = self.tiering.iter().fold([0; 2], |[up, down], tiering| {
            let counters = &tiering.state.counters;
            [up + counters.promoted, down + counters.demoted]
        });
        let shared = &mut self.machine.shared;
        if let Some(maker) = &mut shared.observers.placement {
            maker.look(&shared.os, moved, now, over);
        }
    }

    /// The finished map of placement over time, where it was asked for.
    pub(super) fn placement_map(&mut self) -> Option<PlacementMap> {
        let now = self.latest();
        self.close_columns(now, true);
        let shared = &self.machine.shared;
        Some(shared.observers.placement.as_ref()?.map(&shared.os))
    }

    /// Takes a sample of contiguity if its time has come.
    #[inline]
    pub(super) fn look_at_contiguity(&mut self, now: Time) {
        if let Some(watch) = self.contiguity.as_mut().filter(|watch| watch.next() <= now) {
            watch.sample(&self.machine.shared.os, now);
        }
    }
}
