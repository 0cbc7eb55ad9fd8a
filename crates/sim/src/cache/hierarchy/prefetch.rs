//! Lines fetched ahead of their use: by the simulated prefetcher, and on the host for the simulator itself.

use super::super::level::Home;
use super::private::Arrival;
use super::{Below, Hierarchy};
use crate::memory::Initiator;
use terrace_model::{CacheLine, CoreId, Time};

impl Hierarchy {
    /// Trains the prefetcher with an access that reached L2 and fetches what it predicts into L2.
    #[inline(always)]
    pub(super) fn prefetch<B: Below>(&mut self, core: CoreId, line: CacheLine, now: Time, below: &mut B) {
        if self.private[core.index()].prefetcher.is_some() {
            self.prefetch_predicted(core, line, now, below);
        }
    }

    #[inline(never)]
    pub(super) fn prefetch_predicted<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        now: Time,
        below: &mut B,
    ) {
        let Some(prefetcher) = self.private[core.index()].prefetcher.as_mut() else { return };
        let predicted = prefetcher.train(line);
        for line in predicted {
            let private = &self.private[core.index()];
            if private.l2.holds(line) || private.l1.holds(line) {
                continue;
            }
            self.counters.prefetches += 1;
            // A prefetch neither counts as a lookup nor takes a demand miss's register.
            let mut writable = true;
            let mut supplied = false;
            if self.directory.is_some() {
                (supplied, writable) = self.consult_directory(core, line, false, now, below);
            }
            let looked_up = now + self.llc_latency;
            let ready = if supplied {
                now + self.cache_to_cache_latency
            } else if self.llc.touch(self.llc.home(line)).is_some() {
                looked_up
            } else {
                self.seen.note(line);
                let done = below.fill(line, looked_up, Initiator::Prefetch);
                self.install_llc(self.llc.home(line), false, now, below);
                done
            };
            let home = self.private[core.index()].l2.home(line);
            self.install_l2(core, home, writable, Arrival::of(now, ready), now, below);
        }
    }

    /// Asks the host's memory for the last level's set of a line, ahead of its use.
    #[inline(always)]
    pub fn host_prefetch_llc(&self, line: CacheLine) {
        self.llc.prefetch_set(self.llc.home(line));
    }

    /// Asks the host's memory for the line's sets of `core`'s L2 and of the last level, ahead of their use.
    #[inline(always)]
    pub fn host_prefetch_l2_and_llc(&self, core: CoreId, line: CacheLine) {
        let l2 = &self.private[self.caches_of(core).index()].l2;
        l2.prefetch_set(l2.home(line));
        self.host_prefetch_llc(line);
    }

    /// Something was put into the L2 set of `home`: asks the host's memory for the last level's set of the line that will
    /// leave that set next, where it goes there. The sets of the private caches are near enough.
    #[inline(always)]
    pub(super) fn host_prefetch_next_victim(&self, core: CoreId, home: Home) {
        if let Some(victim) = self.private[core.index()].l2.likely_dirty_victim(home) {
            self.host_prefetch_llc(victim);
        }
    }
}
