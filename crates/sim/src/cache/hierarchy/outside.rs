//! Stores by processors beyond these caches: kernel threads that have no core of the design.

use super::{Below, Hierarchy};
use crate::memory::Initiator;
use terrace_model::Time;

impl Hierarchy {
    /// A part of a line is stored to, and the line lies modified in the last level alone afterwards.
    pub fn store_from_outside<B: Below>(&mut self, line: u64, now: Time, below: &mut B) {
        let (holders, _) = self.drop_everywhere(line);
        self.counters.invalidations += holders;
        let home = self.llc.home(line);
        if let Some(slot) = self.llc.touch(home) {
            self.llc.set_dirty(slot.slot);
            return;
        }
        if holders == 0 {
            self.counters.outside_fills += 1;
            below.fill(line, now, Initiator::Kernel);
        }
        self.install_llc(home, true, now, below);
    }
}
