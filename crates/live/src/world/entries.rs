//! Accesses that show by entries of shared memory.

use super::World;
use terrace_policy::{Initiator, SpaceId};

impl World {
    /// Takes over which pages of shared memory were accessed since their entries were taken out, of all processes. With `zap`
    /// all lose theirs; answers how many base pages did.
    pub fn look_at_entries(&mut self, zap: bool) -> u64 {
        let ids: Vec<SpaceId> = self.spaces.keys().copied().collect();
        let mut zapped = 0;
        for id in ids {
            let Some(space) = self.spaces.get_mut(&id) else { continue };
            let pid = space.process.pid;
            self.trackers.take_zapper(pid).into_iter().for_each(|thread| space.zaps(thread));
            // A process that has ended is let go with the next look at the targets.
            let Ok(looked) = space.look_at_entries(&*self.kernel, zap) else { continue };
            zapped += looked.zapped;
            for (tier, bytes) in self.traffic.iter_mut().zip(&looked.written) {
                tier.written[Initiator::Demand as usize] += bytes;
            }
            for pages in looked.accessed {
                self.accessed(pid, pages, u32::from(zap));
            }
        }
        zapped
    }
}
