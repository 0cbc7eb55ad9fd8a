//! What the GPU finds at the CPU: its memory, its caches, and the client cache.
//!
//! **What it does.** A request comes over the link. A part of the line that the CPU's caches hold is served by them and
//! stays there; the rest comes from the client cache, or from memory by way of it. The client cache takes part in the CPU's
//! coherence: it holds nothing that the CPU's caches hold. Where only sectors that were asked for cross the link, requests
//! that come while memory is read add theirs to the answer.
//!
//! **Source.** Agarwal 2017, sections 5.2.2.2, 5.2.2.3 and 5.3.
//!
//! **Left open there, and chosen here.** The latency of table 5.3 holds for there and back, as the client cache's 200 cycles
//! are 100 of the link and 100 of the cache. Stores are not acknowledged. A store to a line that the CPU's caches hold takes
//! it from them. An atomic operation is carried out at the CPU: operands go there and old values come back, each as whole
//! sectors.

use super::super::cache::SectorCache;
use super::super::line::{ALL_SECTORS, GpuLine, HALVES, halves_of, of_half};
use super::link::{GpuLink, Towards};
use super::parameters::GpuCoherenceParameters;
use crate::cache::Hierarchy;
use crate::machine::TieredMemory;
use crate::memory::{Initiator, MemoryRequest};
use terrace_model::{LINE_BYTES, Time};

/// Bytes of a number of sectors.
fn bytes(sectors: u8) -> u64 {
    u64::from(sectors.count_ones()) * super::super::parameters::SECTOR
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSideCounters {
    /// Requests that the client cache answered.
    pub client_hits: u64,
    /// Requests for which it read memory.
    pub client_misses: u64,
    /// Requests of which the CPU's caches answered a part.
    pub cpu_hits: u64,
    /// Requests for lines of the GPU that the CPU did not hold.
    pub nacks: u64,
    /// Lines of 64 bytes that the CPU's caches gave up for stores of the GPU, or for its caches.
    pub taken: u64,
}

/// The CPU's side of the link.
#[derive(Debug)]
pub struct CpuSide {
    pub link: GpuLink,
    client: Option<SectorCache>,
    client_latency: Time,
    client_miss: Time,
    variable: bool,
    pub counters: CpuSideCounters,
}

/// The rest of the CPU.
pub struct Cpu<'a> {
    pub memory: &'a mut TieredMemory,
    pub caches: &'a mut Hierarchy,
}

impl Cpu<'_> {
    /// The sectors of a line that the CPU's caches hold.
    pub fn held(&self, line: GpuLine) -> u8 {
        let halves = (0..HALVES).filter(|half| self.caches.holds(line.half(*half).in_caches()));
        halves.map(of_half).fold(0, |all, half| all | half)
    }

    /// The GPU's request for sectors of a line, once it is beside the memory.
    pub fn read(&mut self, line: GpuLine, sectors: u8, now: Time) -> Time {
        let request = |half| MemoryRequest::of_gpu(line.half(half), now, Initiator::Demand);
        halves_of(sectors).map(|half| self.memory.read(request(half))).fold(now, Time::max)
    }

    /// The GPU's request to write sectors of a line, once it is beside the memory.
    pub fn write(&mut self, line: GpuLine, sectors: u8, now: Time, by: Initiator) -> Time {
        let request = |half| MemoryRequest::of_gpu(line.half(half), now, by);
        halves_of(sectors).map(|half| self.memory.write(request(half))).fold(now, Time::max)
    }

    /// The CPU's caches give up what they hold of a line. Returns bytes that were modified.
    fn take(&mut self, line: GpuLine, sectors: u8, counters: &mut CpuSideCounters) -> (u8, u64) {
        let (mut held, mut modified) = (0, 0);
        for half in halves_of(sectors) {
            if let Some(dirty) = self.caches.take(line.half(half).in_caches()) {
                counters.taken += 1;
                held |= of_half(half);
                modified += if dirty { LINE_BYTES } else { 0 };
            }
        }
        (held, modified)
    }
}

impl CpuSide {
    /// The CPU's side with nothing under way.
    pub fn new(parameters: &GpuCoherenceParameters, cycle: Time) -> CpuSide {
        let client = &parameters.client_cache;
        CpuSide {
            link: GpuLink::new(&parameters.link, cycle),
            client: (client.capacity.0 > 0).then(|| SectorCache::new(client.capacity.0, client.ways)),
            client_latency: client.latency.at(cycle),
            client_miss: client.miss_latency.at(cycle),
            variable: parameters.variable_transfers,
            counters: CpuSideCounters::default(),
        }
    }

    /// The CPU's own caches fetch a line of the CPU's memory: the client cache gives it up.
    pub fn drop_from_client(&mut self, line: GpuLine) {
        if let Some(client) = &mut self.client {
            client.remove(line);
        }
    }

    /// Whether the client cache holds a line.
    #[cfg(test)]
    pub fn holds(&self, line: GpuLine) -> bool {
        self.client.as_ref().is_some_and(|client| client.holds(line))
    }

    /// When sectors of a line are ready for a request that came at `arrives`, and whether an answer with others of the line
    /// has yet to leave.
    fn ready(&mut self, cpu: &mut Cpu<'_>, line: GpuLine, sectors: u8, arrives: Time) -> (Time, bool) {
        let held = cpu.held(line);
        let mut ready = arrives;
        if held & sectors != 0 {
            self.counters.cpu_hits += 1;
            ready = arrives + cpu.caches.llc_latency();
        }
        let rest = sectors & !held;
        if rest == 0 {
            return (ready, false);
        }
        match &mut self.client {
            Some(client) if held == 0 => match client.look_up(line) {
                Some((_, there)) => {
                    self.counters.client_hits += 1;
                    ((arrives + self.client_latency).max(there), there > arrives)
                }
                None => {
                    self.counters.client_misses += 1;
                    let there = cpu.read(line, ALL_SECTORS, arrives + self.client_miss);
                    client.fill(line, ALL_SECTORS, there, false);
                    (there, false)
                }
            },
            _ => (ready.max(cpu.read(line, rest, arrives)), false),
        }
    }

    /// The GPU loads sectors of a line of the CPU's memory: when they have come. What it will cache itself where hardware
    /// keeps the caches coherent leaves the CPU's.
    pub fn read(&mut self, cpu: &mut Cpu<'_>, line: GpuLine, sectors: u8, now: Time, takes: bool) -> Time {
        let arrives = self.link.send(Towards::Cpu, 0, now);
        let (ready, joins) = self.ready(cpu, line, sectors, arrives);
        if takes {
            let (held, modified) = cpu.take(line, ALL_SECTORS, &mut self.counters);
            if modified > 0 {
                cpu.write(line, held, ready, Initiator::Writeback);
            }
        }
        if joins && self.variable {
            self.link.append(Towards::Gpu, bytes(sectors), ready)
        } else {
            self.link.send(Towards::Gpu, bytes(sectors), ready)
        }
    }

    /// The GPU writes sectors of a line of the CPU's memory: when that has accepted them.
    pub fn write(&mut self, cpu: &mut Cpu<'_>, line: GpuLine, sectors: u8, now: Time, by: Initiator) -> Time {
        let arrives = self.link.send(Towards::Cpu, bytes(sectors), now);
        cpu.take(line, sectors, &mut self.counters);
        cpu.write(line, sectors, arrives, by)
    }

    /// An atomic operation of the GPU on the CPU's memory: when the old values have come.
    pub fn atomic(&mut self, cpu: &mut Cpu<'_>, line: GpuLine, sectors: u8, now: Time) -> Time {
        let arrives = self.link.send(Towards::Cpu, bytes(sectors), now);
        let (ready, _) = self.ready(cpu, line, sectors, arrives);
        cpu.take(line, sectors, &mut self.counters);
        cpu.write(line, sectors, ready, Initiator::Demand);
        self.link.send(Towards::Gpu, bytes(sectors), ready)
    }

    /// The GPU loads sectors of a line of its own memory that the CPU may hold: when they have come, from there or after its
    /// refusal from memory.
    pub fn read_own(&mut self, cpu: &mut Cpu<'_>, line: GpuLine, sectors: u8, now: Time) -> Time {
        let found = self.link.send(Towards::Cpu, 0, now) + cpu.caches.llc_latency();
        let held = cpu.held(line) & sectors;
        let answered = self.link.send(Towards::Gpu, bytes(held), found);
        if held == 0 {
            self.counters.nacks += 1;
        } else {
            self.counters.cpu_hits += 1;
        }
        cpu.read(line, sectors & !held, answered)
    }

    /// The GPU stores to a line of its own memory that the CPU may hold. What the CPU holds it gives up: when memory has
    /// accepted the line.
    pub fn write_own(&mut self, cpu: &mut Cpu<'_>, line: GpuLine, sectors: u8, now: Time) -> Time {
        let found = self.link.send(Towards::Cpu, bytes(sectors), now) + cpu.caches.llc_latency();
        let (held, modified) = cpu.take(line, sectors, &mut self.counters);
        if held == 0 {
            self.counters.nacks += 1;
        }
        let answered = self.link.send(Towards::Gpu, modified, found);
        cpu.write(line, sectors, answered, Initiator::Demand)
    }

    /// Hardware takes a line of the GPU's memory from the CPU's caches for the GPU, if they hold it: when it has come.
    pub fn take_own(&mut self, cpu: &mut Cpu<'_>, line: GpuLine, now: Time) -> Time {
        if cpu.held(line) == 0 {
            return now;
        }
        let found = self.link.send(Towards::Cpu, 0, now) + cpu.caches.llc_latency();
        let (held, modified) = cpu.take(line, ALL_SECTORS, &mut self.counters);
        let came = self.link.send(Towards::Gpu, modified, found);
        if modified > 0 {
            cpu.write(line, held, came, Initiator::Writeback);
        }
        came
    }
}
