//! Devices beyond these caches that are coherent with them: what they find here, and what they take.

use super::Hierarchy;
use terrace_model::{CacheLine, CoreId, Time};

impl Hierarchy {
    /// Whether any cache holds a line.
    pub fn holds(&self, line: CacheLine) -> bool {
        self.seen.may_hold(line)
            && (self.llc.holds(line)
                || CoreId::first(self.private.len()).any(|core| self.in_private(core, line)))
    }

    /// A line leaves all caches. Returns whether it was modified, if any held it; nothing is written back.
    pub fn take(&mut self, line: CacheLine) -> Option<bool> {
        if !self.seen.may_hold(line) {
            return None;
        }
        let in_llc = self.llc.invalidate(self.llc.home(line));
        let (holders, modified) = self.drop_everywhere(line);
        self.counters.invalidations += holders;
        (in_llc.is_some() || holders > 0).then_some(modified || in_llc == Some(true))
    }

    /// Time of a look-up of the last level.
    pub fn llc_latency(&self) -> Time {
        self.llc_latency
    }
}
