//! When observers look.

use super::Engine;
use crate::outcome::{MemoryMap, PlacementMap};
use terrace_model::Time;

impl Engine<'_> {
    /// The clock of the core that is furthest.
    fn latest(&self) -> Time {
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
        let moved = self
            .tiering
            .as_ref()
            .map_or([0; 2], |tiering| [tiering.state.counters.promoted, tiering.state.counters.demoted]);
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
