//! Accesses that show by sampled faults of shared memory.

use super::{Managed, World};
use crate::help::Trackers;
use crate::kernel::Kernel;
use crate::space::{Exposure, Space};
use std::time::Duration;
use terrace_model::{PageSize, Time};
use terrace_policy::{Moment, PageId, SpaceId};

/// Takes the userfaultfd that a process has handed over, for what it was asked for.
pub(super) fn take_tracker(trackers: &Trackers, managed: Managed, kernel: &dyn Kernel, space: &mut Space) {
    let pid = space.process.pid;
    let Some(tracker) = trackers.take(pid) else { return };
    if !kernel.has_same_memory(&space.process) {
        // The descriptor may belong to a program which the process has executed since; whoever adopts that program takes it.
        trackers.give_back(pid, tracker);
        return;
    }
    if managed != Managed::Sampled {
        space.helps(tracker);
        return;
    }
    match kernel.faults(pid, tracker) {
        Ok(faults) => space.samples(faults),
        Err(error) => tracing::warn!(pid, %error, "the program's accesses are not sampled"),
    }
}

/// Takes the socket that a process has handed over, of its thread that drops entries.
pub(super) fn take_dropper(trackers: &Trackers, kernel: &dyn Kernel, space: &mut Space) {
    let pid = space.process.pid;
    let Some(thread) = trackers.take_dropper(pid) else { return };
    if kernel.has_same_memory(&space.process) {
        space.drops_entries(thread);
    } else {
        trackers.give_back_dropper(pid, thread);
    }
}

impl World {
    /// Takes over what sampled faults show of the watched pages of all processes, and has the others of those pages fault at
    /// their next access, as long as `may` says yes.
    pub fn sample_faults(&mut self, may: &mut dyn FnMut() -> bool) {
        self.watches.time_exposures();
        let ids: Vec<SpaceId> = self.spaces.keys().copied().collect();
        for id in ids {
            let Some(space) = self.spaces.get_mut(&id) else { continue };
            take_tracker(&self.trackers, self.managed, &*self.kernel, space);
            take_dropper(&self.trackers, &*self.kernel, space);
            let of_space = |(page, size): (PageId, PageSize)| (page.space == id).then_some((page.vpn, size));
            let watched: Vec<(u64, PageSize)> = self.watches.pages().filter_map(of_space).collect();
            // A process that has ended is let go with the next look at the targets.
            let Ok(exposures) = space.sample_faults(&*self.kernel, &watched, may) else { continue };
            let now = self.kernel.now();
            exposures.iter().for_each(|one| self.exposed(id, one, now));
        }
    }

    fn exposed(&mut self, space: SpaceId, exposure: &Exposure, now: Duration) {
        let page = PageId { space, vpn: exposure.vpn };
        let span = Time::from_nanos(exposure.span.as_nanos() as u64);
        let Some(access) = exposure.access else {
            self.watches.exposed(page, span, None);
            return;
        };
        let ago = now.saturating_sub(access.at).as_nanos() as u64;
        let at = Moment(self.now.0.saturating_sub(ago));
        if let Some(space) = self.spaces.get_mut(&space)
            && let Some((_, state)) = space.pages.get_mut(exposure.vpn)
        {
            state.set_accessed(true);
        }
        match self.watches.exposed(page, span, Some((at, access.store))) {
            Some(hint) => {
                self.counters.hint_faults += 1;
                self.signals.push_back(hint);
            }
            None => self.counters.count_faults += 1,
        }
    }
}
