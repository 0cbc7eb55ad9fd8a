//! What the GPU may cache, and where the rest comes from, where caches of a CPU are to be coherent with its own.

use super::super::around::Around;
use super::super::coalesce::Transaction;
use super::super::line::{ALL_SECTORS, GpuLine};
use super::super::parameters::SECTOR;
use super::cpu_side::Cpu;
use super::{Coherence, CoherenceKind, is_own};
use crate::machine::TieredMemory;
use crate::memory::Initiator;
use terrace_model::Time;

impl Around<'_> {
    /// The CPU's memory and caches.
    pub fn cpu(&mut self) -> Cpu<'_> {
        let shared = &mut self.machine.shared;
        Cpu { memory: &mut shared.memory, caches: &mut shared.caches }
    }

    /// Whether a line of the GPU lies in its own memory.
    pub fn is_own(&self, line: GpuLine) -> bool {
        is_own(&self.machine.shared.memory, line)
    }
}

/// A transaction, and the physical line that it is about.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub one: Transaction,
    pub line: GpuLine,
    pub atomic: bool,
}

impl Coherence {
    /// Whether the GPU may cache a line, of which its slice holds nothing.
    pub fn may_cache(&self, memory: &TieredMemory, line: GpuLine) -> bool {
        match (self.kind, is_own(memory, line)) {
            (CoherenceKind::Hardware, _) => true,
            (CoherenceKind::Selective, true) => !self.directory.may_hold(line),
            (CoherenceKind::Selective, false) => {
                self.read_only.as_ref().is_some_and(|pages| pages.is_read_only(line.frame()))
            }
        }
    }

    /// When an access to a page goes on whose fault may be pending.
    pub fn wait(&self, line: GpuLine, now: Time) -> Time {
        self.read_only.as_ref().map_or(now, |pages| pages.wait(line.frame(), now))
    }

    /// What a load asks for of a line, if these sectors are missing.
    pub fn asks(&self, missing: u8) -> u8 {
        if self.variable { missing } else { ALL_SECTORS }
    }

    /// Sectors that a slice fetches of a line of which it has `valid`.
    pub fn fetches(&self, memory: &TieredMemory, line: GpuLine, wanted: u8, valid: u8) -> u8 {
        // The GPU's own memory transfers what is missing in halves; the CPU's side sends what it is asked for.
        let missing = ALL_SECTORS & !valid;
        if self.variable && !is_own(memory, line) { wanted & missing } else { missing }
    }

    /// A slice fetches sectors of a line that the GPU may cache: when they have come.
    pub fn fetch(&mut self, around: &mut Around<'_>, line: GpuLine, sectors: u8, now: Time) -> Time {
        let own = around.is_own(line);
        let takes = self.kind == CoherenceKind::Hardware;
        let cpu = &mut around.cpu();
        if !own {
            self.uncached.asked += u64::from(sectors.count_ones()) * SECTOR;
            return self.cpu.read(cpu, line, sectors, now, takes);
        }
        let now = if takes { self.cpu.take_own(cpu, line, now) } else { now };
        cpu.read(line, sectors, now)
    }

    /// A slice gives up sectors of a line that were written: when memory has accepted them.
    pub fn write_back(&mut self, around: &mut Around<'_>, line: GpuLine, sectors: u8, now: Time) -> Time {
        let cpu = &mut around.cpu();
        if !is_own(cpu.memory, line) {
            return self.cpu.write(cpu, line, sectors, now, Initiator::Writeback);
        }
        cpu.write(line, sectors, now, Initiator::Writeback)
    }

    /// The GPU's slice takes a store to a line that it may cache: the CPU's copies go. Returns when the slice owns the line.
    pub fn own_for_store(&mut self, around: &mut Around<'_>, line: GpuLine, now: Time) -> Time {
        match self.kind {
            CoherenceKind::Hardware => self.cpu.take_own(&mut around.cpu(), line, now),
            CoherenceKind::Selective => now,
        }
    }
}

impl Coherence {
    /// Where sectors come from that no cache may serve.
    pub fn uncached_source(
        &mut self,
        around: &mut Around<'_>,
        one: Transaction,
        line: GpuLine,
        asked: u8,
        now: Time,
    ) -> Time {
        around.observe(one, false);
        let own = around.is_own(line);
        let cpu = &mut around.cpu();
        if own {
            return self.cpu.read_own(cpu, line, asked, now);
        }
        self.uncached.asked += u64::from(asked.count_ones()) * SECTOR;
        self.cpu.read(cpu, line, asked, now, false)
    }
}
