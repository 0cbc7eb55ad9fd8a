//! Lines whose content is replaced as a whole: those of freed and of newly zeroed pages.

use super::super::directory::Sharers;
use super::{Below, Hierarchy};
use terrace_model::Time;

impl Hierarchy {
    /// Removes a line from all caches without writing it back: its memory was freed or replaced, or a copy of its page
    /// took it from there. Returns whether any held it.
    pub fn discard(&mut self, line: u64) -> bool {
        let mut held = self.llc.invalidate(self.llc.home(line)).is_some();
        let mut sharers = self.holders(line);
        while sharers != 0 {
            let core = sharers.trailing_zeros() as usize;
            sharers &= sharers - 1;
            held |= self.is_private(core, line);
            self.drop_private(core, line);
            if let Some(directory) = &mut self.directory {
                directory.remove(line, core as u32);
            }
        }
        held
    }

    /// A core writes zeros over a whole line and keeps it in its L1, modified. Nothing is read, since no old byte stays.
    /// Returns whether a cache held the line before, and when the device has taken what had to leave for it.
    pub fn zero_in_l1<B: Below>(&mut self, core: usize, line: u64, now: Time, below: &mut B) -> (bool, Time) {
        let held = self.discard(line);
        self.counters.zero_fills += 1;
        let mut taken = Time::ZERO;
        if self.inclusive {
            taken = self.install_llc(self.llc.home(line), false, now, below);
        }
        let sole = Sharers { mask: 1 << core, exclusive: true };
        if let Some((old_line, old)) = self.directory.as_mut().and_then(|d| d.record(line, sole)) {
            self.back_invalidate(old_line, old.mask, now, below);
        }
        let private = &mut self.private[core];
        let (slot, evicted) = private.l1.insert(private.l1.home(line), true, true);
        let index = private.l1.slot_index(slot);
        private.l1_ready[index] = now;
        private.forget(line);
        if let Some(evicted) = evicted {
            taken = taken.max(self.leave_l1(core, evicted.line, evicted.dirty, now, below));
        }
        (held, taken)
    }

    /// The same for a line that lies in the last level alone afterwards.
    pub fn zero_in_llc<B: Below>(&mut self, line: u64, now: Time, below: &mut B) -> (bool, Time) {
        let held = self.discard(line);
        self.counters.zero_fills += 1;
        (held, self.install_llc(self.llc.home(line), true, now, below))
    }
}
