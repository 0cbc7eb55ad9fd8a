//! What lies below the last-level cache: memory, as the translation scheme names its lines.

use super::parts::Machine;
use super::tiers::TieredMemory;
use crate::cache::Below;
use crate::memory::{Initiator, MemoryRequest};
use crate::os::Os;
use crate::translate::{Backing, Given, KernelState, Placer};
use terrace_model::{CacheLine, LINE_BYTES, SpaceId, Time};

impl Below for TieredMemory {
    #[inline(always)]
    fn translated(&self, now: Time) -> Time {
        now
    }
    #[inline(always)]
    fn fill(&mut self, line: CacheLine, at: Time, by: Initiator) -> Time {
        self.read(MemoryRequest::of_cpu(line.as_physical(), at, by))
    }
    #[inline(always)]
    fn evict(&mut self, line: CacheLine, now: Time) -> Time {
        self.write(MemoryRequest::of_cpu(line.as_physical(), now, Initiator::Writeback))
    }
}

/// Lines of a region of a block.
const REGION_LINES: u64 = 4096 / LINE_BYTES;

/// Memory under virtually tagged caches: lines carry virtual names down to here.
pub(super) struct Behind<'a> {
    pub kernel: &'a mut dyn KernelState,
    pub os: &'a mut Os,
    pub memory: &'a mut TieredMemory,
    /// The policy that says where new memory shall lie, if there is one.
    pub placer: Option<&'a mut dyn Placer>,
    /// When the translation that runs beside the last level's lookup is done.
    pub translated: Time,
    /// Whether a hit in the last level waits for it too.
    pub hits_wait: bool,
}

/// Contents went to a backing store: their memory is read, and nobody waits for that.
pub(super) fn write_out(kernel: &mut dyn KernelState, memory: &mut TieredMemory, now: Time) {
    while let Some(first) = kernel.take_written_out() {
        let copy = MemoryRequest::of_cpu(first, now, Initiator::Copy);
        (0..REGION_LINES).for_each(|line| _ = memory.read(copy.for_line(first + line)));
    }
}

impl Machine {
    /// The kernel is about to take frames for the page tables of a clone.
    pub fn before_cloning(&mut self, parent: SpaceId, now: Time) {
        let Machine { shared, scheme, .. } = self;
        let frames = shared.os.table(parent).table_pages() as u64;
        let kernel = scheme.kernel();
        kernel.before_taking(frames, &mut shared.os);
        write_out(kernel, &mut shared.memory, now);
    }
}

impl Behind<'_> {
    /// Memory was given: the controller writes what it holds, and nobody waits for that. Returns when the device has taken
    /// it.
    fn give(&mut self, given: &Given, now: Time) -> Time {
        let mut taken = now;
        write_out(self.kernel, self.memory, now);
        if given.stored.is_some() {
            let copy = MemoryRequest::of_cpu(given.first, now, Initiator::Copy);
            (0..given.lines)
                .for_each(|line| taken = taken.max(self.memory.write(copy.for_line(given.first + line))));
        } else if let Some(source) = given.copied_from {
            for line in 0..given.lines {
                let copy = MemoryRequest::of_cpu(source + line, now, Initiator::Copy);
                self.memory.read(copy);
                taken = taken.max(self.memory.write(copy.for_line(given.first + line)));
            }
        } else if given.notes_zeros {
            self.memory.note_zeros(given.first, given.lines);
        } else {
            taken = taken.max(self.memory.zero(given.first, given.lines, now, Time::ZERO));
        }
        if let Some(entry) = given.entry {
            taken = taken.max(self.memory.write(MemoryRequest::of_cpu(entry, now, Initiator::Walk)));
        }
        taken
    }
}

impl Below for Behind<'_> {
    fn translated(&self, now: Time) -> Time {
        if self.hits_wait { now.max(self.translated) } else { now }
    }
    fn fill(&mut self, line: CacheLine, at: Time, by: Initiator) -> Time {
        let translated = at.max(self.translated);
        let read = |line| MemoryRequest::of_cpu(line, translated, by);
        match self.kernel.fill(line, self.os, reborrow(&mut self.placer), at) {
            Backing::Memory(physical) => self.memory.read(read(physical)),
            Backing::Given(given) => {
                self.give(&given, translated);
                let there = translated + given.stored.unwrap_or_default();
                self.memory.read(read(given.line).sent_at(there))
            }
            // The controller answers by itself, as soon as it knows that there is nothing.
            Backing::Zero => translated,
            // A prefetched line of a page that is not there reads nothing.
            Backing::Fault => at,
        }
    }
    fn evict(&mut self, line: CacheLine, now: Time) -> Time {
        let write = |line, at| MemoryRequest::of_cpu(line, at, Initiator::Writeback);
        match self.kernel.evict(line, self.os, reborrow(&mut self.placer), now) {
            Backing::Memory(physical) => self.memory.write(write(physical, now)),
            Backing::Given(given) => {
                let given_at = self.give(&given, now);
                self.memory.write(write(given.line, given_at))
            }
            Backing::Zero | Backing::Fault => now,
        }
    }
}

/// Borrows the placer again for a shorter time.
fn reborrow<'a>(placer: &'a mut Option<&mut dyn Placer>) -> Option<&'a mut dyn Placer> {
    placer.as_mut().map(|placer| &mut **placer as &mut dyn Placer)
}
