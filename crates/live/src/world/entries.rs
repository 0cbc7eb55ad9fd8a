//! Accesses that show by entries of shared memory.

use super::World;
use super::sampling::take_dropper;
use terrace_policy::{Initiator, SpaceId};

impl World {
    /// Takes over which pages of shared memory were accessed since their entries were taken out, of all processes. With
    /// `drop` all lose theirs; returns how many base pages did.
    pub fn look_at_entries(&mut self, drop_entries: bool) -> u64 {
        let ids: Vec<SpaceId> = self.spaces.keys().copied().collect();
        let mut dropped = 0;
        for id in ids {
            let Some(space) = self.spaces.get_mut(&id) else { continue };
            let pid = space.process.pid;
            take_dropper(&self.trackers, &*self.kernel, space);
            // A process that has ended is let go with the next look at the targets.
            let Ok(looked) = space.look_at_entries(&*self.kernel, drop_entries) else { continue };
            dropped += looked.dropped;
            for (tier, bytes) in self.traffic.iter_mut().zip(&looked.written) {
                tier.written[Initiator::Demand as usize] += bytes;
            }
            for pages in looked.accessed {
                self.accessed(pid, pages, u32::from(drop_entries));
            }
        }
        dropped
    }
}
