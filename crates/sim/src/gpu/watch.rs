//! Where memory lies while kernels run, for who asked for it.

use super::state::Engine;
use crate::outcome::PlacementMap;
use terrace_model::Time;

impl Engine {
    /// Ends the columns of the placement map that are over when SMs go on. Returns when the next one is.
    pub(super) fn look_at_placement(&mut self) -> Option<Time> {
        let now = self.sms.next()?;
        if self.machine.shared.observers.placement.as_ref()?.is_due(now) {
            self.close_columns(now, false);
        }
        Some(self.machine.shared.observers.placement.as_ref()?.ends())
    }

    fn close_columns(&mut self, now: Time, over: bool) {
        let counters = self.tiering.as_ref().map(|tiering| &tiering.state.counters);
        let moved = counters.map_or([0; 2], |counters| [counters.promoted, counters.demoted]);
        let shared = &mut self.machine.shared;
        if let Some(maker) = &mut shared.observers.placement {
            maker.look(&shared.os, moved, now, over);
        }
    }

    /// The finished map, where it was asked for.
    pub(super) fn placement_map(&mut self) -> Option<PlacementMap> {
        self.close_columns(self.now, true);
        let shared = &self.machine.shared;
        Some(shared.observers.placement.as_ref()?.map(&shared.os))
    }
}
