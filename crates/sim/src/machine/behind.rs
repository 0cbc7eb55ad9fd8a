//! What lies below the last-level cache: memory, as the translation scheme names its lines.

use super::tiers::TieredMemory;
use crate::cache::Below;
use crate::memory::Initiator;
use crate::os::Os;
use crate::translate::{Backing, KernelState};
use terrace_model::Time;

impl Below for TieredMemory {
    #[inline(always)]
    fn translated(&self, now: Time) -> Time {
        now
    }
    #[inline(always)]
    fn fill(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        self.read(line, now, by)
    }
    #[inline(always)]
    fn evict(&mut self, line: u64, now: Time) -> Time {
        self.write(line, now, Initiator::Writeback)
    }
}

/// Memory under virtually tagged caches: lines carry virtual names down to here.
pub(super) struct Behind<'a, K: KernelState + ?Sized> {
    pub kernel: &'a K,
    pub os: &'a Os,
    pub memory: &'a mut TieredMemory,
    /// When the translation that runs beside the last level's lookup is done.
    pub translated: Time,
}

impl<K: KernelState + ?Sized> Below for Behind<'_, K> {
    fn translated(&self, now: Time) -> Time {
        now.max(self.translated)
    }
    fn fill(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        match self.kernel.backing(line, self.os) {
            Backing::Memory(physical) => self.memory.read(physical, now.max(self.translated), by),
            // A prefetched line of a page that is not there reads nothing.
            Backing::Zero | Backing::Fault => now,
        }
    }
    fn evict(&mut self, line: u64, now: Time) -> Time {
        match self.kernel.backing(line, self.os) {
            Backing::Memory(physical) => self.memory.write(physical, now, Initiator::Writeback),
            Backing::Zero | Backing::Fault => now,
        }
    }
}
