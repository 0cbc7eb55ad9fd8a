//! Stores by processors beyond these caches: kernel threads that have no core of the design.

use super::{Below, Hierarchy};
use crate::memory::Initiator;
use terrace_model::{CacheLine, Time};

impl Hierarchy {
    /// The memory controller reads a line of its own tables through the last level. Returns when it is there.
    pub fn read_from_below<B: Below>(
        &mut self,
        line: CacheLine,
        now: Time,
        by: Initiator,
        below: &mut B,
    ) -> Time {
        // Latencies count from the start of a core's access: the way there over L1 and L2 is not part of this one.
        let looked_up = now + self.llc_latency.saturating_sub(self.l2_latency);
        let home = self.llc.home(line);
        if self.llc.touch(home).is_some() {
            return looked_up;
        }
        self.seen.note(line);
        let done = below.fill(line, looked_up, by);
        self.install_llc(home, false, looked_up, below);
        done
    }

    /// A part of a line is stored to, and the line lies modified in the last level alone afterwards.
    pub fn store_from_outside<B: Below>(&mut self, line: CacheLine, now: Time, below: &mut B) {
        let (holders, _) = if self.translations.is_some() {
            self.notify_sharers(line, None)
        } else {
            self.drop_everywhere(line)
        };
        self.counters.invalidations += holders;
        let home = self.llc.home(line);
        if let Some(slot) = self.llc.touch(home) {
            self.llc.set_dirty(slot.slot);
            return;
        }
        if holders == 0 {
            self.counters.outside_fills += 1;
            below.fill(line, now, Initiator::Kernel);
            self.seen.note(line);
        }
        self.install_llc(home, true, now, below);
    }
}
