//! The way of a transaction: TLB, the SM's cache, the slice in front of a channel, memory.

use super::around::Around;
use super::cache::SectorCache;
use super::coalesce::Transaction;
use super::faults::FirstTouches;
use super::line::{ALL_SECTORS, GpuLine, HALVES, halves_of, of_half};
use super::parameters::{GpuParameters, WriteAllocate};
use super::selective::{Coherence, GpuCoherenceParameters, Request};
use super::tlb::Tlb;
use crate::cache::MissRegisters;
use crate::machine::{Machine, Manager};
use crate::memory::{Initiator, MemoryRequest};
use crate::os::OsError;
use std::collections::HashSet;
use terrace_model::{PageId, PageSize, Time};

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Transactions of loads and stores.
    pub transactions: u64,
    /// Sectors that they touch.
    pub sectors: u64,
    /// Loads that found their line in the SM's cache.
    pub l1_hits: u64,
    /// Loads that did not find their line there.
    pub l1_misses: u64,
    /// Loads and stores that found what they need in a slice; a store needs nothing but room.
    pub l2_hits: u64,
    /// Loads and stores that did not find what they need there.
    pub l2_misses: u64,
    /// Translations that an SM held.
    pub tlb_hits: u64,
    /// Translations that were walked for.
    pub tlb_misses: u64,
    /// Pages that the GPU touched first.
    pub faults: u64,
}

/// What one SM holds.
#[derive(Debug)]
pub(super) struct Sm {
    pub l1: SectorCache,
    pub l1_misses: MissRegisters,
    stores: MissRegisters,
    pub tlb: Tlb,
}

/// A slice of the second level.
#[derive(Debug)]
pub(super) struct Slice {
    pub cache: SectorCache,
    pub misses: MissRegisters,
}

/// All of the GPU's paths.
#[derive(Debug)]
pub struct Paths {
    pub(super) sms: Vec<Sm>,
    pub(super) slices: Vec<Slice>,
    pub(super) l1_latency: Time,
    /// To a slice, and the same back.
    pub(super) one_way: Time,
    pub(super) walk: Time,
    cycle: Time,
    write_allocate: WriteAllocate,
    /// Pages that SMs touch first.
    pub touches: FirstTouches,
    /// What keeps the caches coherent with the CPU's, if anything does.
    pub coherence: Option<Box<Coherence>>,
    /// Pages that SMs have translated since they last changed their place.
    pub(super) touched: HashSet<PageId>,
    /// When the last store so far has its place in a slice, and memory has accepted what slices wrote back.
    pub stored: Time,
    pub counters: PathCounters,
}

/// A line that a slice fetches.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    /// When the slice has a register for the fetch.
    accepted: Time,
    /// When the line is there.
    done: Time,
}

impl Paths {
    /// Empty paths of a GPU before a machine's memory.
    pub fn new(gpu: &GpuParameters, coherence: Option<&GpuCoherenceParameters>, machine: &Machine) -> Paths {
        let cycle = gpu.frequency.period();
        let sm = || Sm {
            l1: SectorCache::new(gpu.l1.capacity.0, gpu.l1.ways),
            l1_misses: MissRegisters::new(gpu.l1.outstanding),
            stores: MissRegisters::new(gpu.l1.stores),
            tlb: Tlb::new(gpu.tlb.entries),
        };
        let slice = || Slice {
            cache: SectorCache::new(gpu.l2.capacity.0, gpu.l2.ways),
            misses: MissRegisters::new(gpu.l2.outstanding),
        };
        let slices: Vec<Slice> = (0..machine.shared.memory.channels()).map(|_| slice()).collect();
        Paths {
            coherence: coherence.map(|keys| Box::new(Coherence::new(keys, gpu, slices.len()))),
            write_allocate: gpu.l2.write_allocate,
            sms: (0..gpu.sms).map(|_| sm()).collect(),
            slices,
            l1_latency: gpu.l1.latency.at(cycle),
            one_way: Time(gpu.l2.latency.at(cycle).0 / 2),
            walk: gpu.tlb.miss_latency.at(cycle),
            touches: FirstTouches::new(&gpu.fault, gpu.sms),
            cycle,
            touched: HashSet::new(),
            stored: Time::ZERO,
            counters: PathCounters::default(),
        }
    }

    /// A kernel begins: what SMs hold may be older than what the host wrote.
    pub fn begin_kernel(&mut self, now: Time) {
        for sm in &mut self.sms {
            sm.l1.clear();
        }
        self.touches.begin_kernel();
        if let Some(coherence) = &mut self.coherence {
            coherence.begin_kernel(now);
        }
    }

    /// The kernel is over.
    pub fn end_kernel(&mut self) {
        if let Some(coherence) = &mut self.coherence {
            coherence.end_kernel();
        }
    }

    /// Until when an SM issues nothing.
    pub fn blocked_until(&self, sm: usize) -> Time {
        let by_faults = self.touches.pending.blocked_until(sm);
        self.coherence.as_ref().map_or(by_faults, |coherence| by_faults.max(coherence.blocked_until(sm)))
    }

    /// All caches of the GPU.
    pub(super) fn caches(&mut self) -> impl Iterator<Item = &mut SectorCache> {
        let of_sms = self.sms.iter_mut().map(|sm| &mut sm.l1);
        of_sms.chain(self.slices.iter_mut().map(|slice| &mut slice.cache))
    }

    /// Pages changed: SMs translate anew.
    pub fn flush_tlbs(&mut self) {
        self.sms.iter_mut().for_each(|sm| sm.tlb.flush());
    }

    /// Loads what an instruction's transactions name, one issued each cycle: when the last is there.
    ///
    /// # Errors
    /// Memory is full.
    pub fn load(
        &mut self,
        around: &mut Around<'_>,
        sm: usize,
        transactions: &[Transaction],
        atomic: bool,
        now: Time,
    ) -> Result<Time, OsError> {
        let mut last = now;
        for (at, one) in transactions.iter().enumerate() {
            let now = now + self.cycle.times(at as u64);
            let (line, now) = self.translate(around, sm, *one, false, now)?;
            self.count(*one);
            let done = match &self.coherence {
                None => self.load_line(around, sm, *one, line, now),
                Some(_) => self.coherent_load(around, sm, Request { one: *one, line, atomic }, now),
            };
            last = last.max(done);
        }
        Ok(last)
    }

    /// Stores likewise: when the SM has handed over the last. The warp does not wait for memory; the kernel's end does.
    ///
    /// # Errors
    /// Memory is full.
    pub fn store(
        &mut self,
        around: &mut Around<'_>,
        sm: usize,
        transactions: &[Transaction],
        atomic: bool,
        now: Time,
    ) -> Result<Time, OsError> {
        let mut last = now;
        for (at, one) in transactions.iter().enumerate() {
            let now = now + self.cycle.times(at as u64);
            let (line, now) = self.translate(around, sm, *one, true, now)?;
            self.count(*one);
            let now = self.fault_on_store(around, sm, line, now);
            let begin = self.sms[sm].stores.start(now);
            let done = match &self.coherence {
                None => self.store_line(around, *one, line, begin),
                Some(_) => self.coherent_store(around, sm, Request { one: *one, line, atomic }, begin),
            };
            self.sms[sm].stores.occupy(begin, done);
            self.stored = self.stored.max(done);
            last = last.max(begin);
        }
        Ok(last)
    }

    fn count(&mut self, one: Transaction) {
        self.counters.transactions += 1;
        self.counters.sectors += u64::from(one.sectors.count_ones());
    }

    /// The physical line of a transaction, and when it is known.
    fn translate(
        &mut self,
        around: &mut Around<'_>,
        sm: usize,
        one: Transaction,
        write: bool,
        mut now: Time,
    ) -> Result<(GpuLine, Time), OsError> {
        let addr = one.addr;
        let page = addr.page_number(PageSize::Base);
        let named = PageId::of(around.space, addr);
        let frame = match self.sms[sm].tlb.look_up(page) {
            Some(frame) => {
                self.counters.tlb_hits += 1;
                frame
            }
            None => {
                self.counters.tlb_misses += 1;
                now += self.walk;
                let (frame, faulted) = around.frame_of(addr, write, now)?;
                if let Some(cost) = faulted {
                    self.counters.faults += 1;
                    now = match self.touches.take_time() {
                        true => self.touches.fault(sm, named, now, self.walk),
                        false => now + cost,
                    };
                }
                self.sms[sm].tlb.fill(page, frame);
                self.touched.insert(named);
                if let Some(tiering) = &mut around.tiering {
                    let leaf = around.machine.shared.os.table(around.space).find(addr);
                    let size = leaf.map_or(PageSize::Base, |leaf| leaf.size);
                    tiering.walked(around.space, addr, size);
                }
                frame
            }
        };
        Ok((GpuLine::at(frame.addr() + addr.page_offset(PageSize::Base)), self.touches.wait(named, now)))
    }

    pub(super) fn load_line(
        &mut self,
        around: &mut Around<'_>,
        sm: usize,
        one: Transaction,
        line: GpuLine,
        now: Time,
    ) -> Time {
        let hit = now + self.l1_latency;
        if let Some((valid, ready)) = self.sms[sm].l1.look_up(line)
            && one.sectors & !valid == 0
        {
            self.counters.l1_hits += 1;
            return hit.max(ready);
        }
        self.counters.l1_misses += 1;
        let begin = self.sms[sm].l1_misses.start(hit);
        let done = self.load_from_slice(around, one, line, begin + self.one_way) + self.one_way;
        self.sms[sm].l1_misses.occupy(begin, done);
        let brought = self.brings(around, one, line);
        self.sms[sm].l1.fill(line, brought, done, false);
        done
    }

    /// Sectors that a load brings: whole lines, but for a link that sends what is asked for.
    fn brings(&self, around: &Around<'_>, one: Transaction, line: GpuLine) -> u8 {
        let memory = &around.machine.shared.memory;
        self.coherence.as_ref().map_or(ALL_SECTORS, |it| it.fetches(memory, line, one.sectors, 0))
    }

    fn load_from_slice(
        &mut self,
        around: &mut Around<'_>,
        one: Transaction,
        line: GpuLine,
        now: Time,
    ) -> Time {
        let wanted = self.brings(around, one, line);
        let slice = &mut self.slices[around.machine.shared.memory.channel_of(line.half(0))];
        let (valid, ready) = slice.cache.look_up(line).unwrap_or((0, Time::ZERO));
        if wanted & !valid == 0 {
            self.counters.l2_hits += 1;
            return now.max(ready);
        }
        self.counters.l2_misses += 1;
        around.observe(one, false);
        self.bring(around, line, wanted, valid, now).done
    }

    /// A slice brings the sectors that it lacks of those wanted. Its register is busy until they are there, and until memory
    /// has accepted what had to leave for them.
    fn bring(&mut self, around: &mut Around<'_>, line: GpuLine, wanted: u8, valid: u8, now: Time) -> Fetch {
        let channel = around.machine.shared.memory.channel_of(line.half(0));
        let slice = &mut self.slices[channel];
        let begin = slice.misses.start(now);
        let done = match &mut self.coherence {
            None => read(around, line, valid, begin),
            Some(coherence) => coherence.fetch(around, line, wanted & !valid, begin),
        };
        let victim = slice.cache.fill(line, wanted, done, false);
        let left = victim.map_or(begin, |victim| self.write_back(around, victim.line, victim.dirty, begin));
        self.slices[channel].misses.occupy(begin, done.max(left));
        Fetch { accepted: begin, done }
    }

    /// Writes what was written of a line: when memory has accepted it.
    fn write_back(&mut self, around: &mut Around<'_>, line: GpuLine, dirty: u8, now: Time) -> Time {
        let accepted = match &mut self.coherence {
            None => write_back(around, line, dirty, now),
            Some(coherence) => coherence.write_back(around, line, dirty, now),
        };
        self.stored = self.stored.max(accepted);
        accepted
    }

    /// A store reaches its slice: when the slice has accepted it. A slice that fetches the line accepts the store once it
    /// has a register for the fetch.
    pub(super) fn store_line(
        &mut self,
        around: &mut Around<'_>,
        one: Transaction,
        line: GpuLine,
        now: Time,
    ) -> Time {
        let mut arrives = now + self.one_way;
        let slice = &mut self.slices[around.machine.shared.memory.channel_of(line.half(0))];
        match slice.cache.look_up(line) {
            Some(_) => self.counters.l2_hits += 1,
            None => {
                self.counters.l2_misses += 1;
                around.observe(one, true);
                if self.write_allocate == WriteAllocate::Fetch {
                    let wanted = self.brings(around, one, line);
                    let fetch = self.bring(around, line, wanted, 0, arrives);
                    arrives = fetch.accepted;
                    self.stored = self.stored.max(fetch.done);
                }
            }
        }
        let slice = &mut self.slices[around.machine.shared.memory.channel_of(line.half(0))];
        match slice.cache.fill(line, one.sectors, arrives, true) {
            Some(victim) => self.write_back(around, victim.line, victim.dirty, arrives).max(arrives),
            None => arrives,
        }
    }
}

fn missing(valid: u8, half: u64) -> bool {
    valid & of_half(half) != of_half(half)
}

/// Reads the halves of a line that lack a sector: when the last is there.
fn read(around: &mut Around<'_>, line: GpuLine, valid: u8, now: Time) -> Time {
    let memory = &mut around.machine.shared.memory;
    let halves = (0..HALVES).filter(|half| missing(valid, *half));
    let request = |half| MemoryRequest::of_gpu(line.half(half), now, Initiator::Demand);
    halves.map(|half| memory.read(request(half))).fold(now, Time::max)
}

fn write_back(around: &mut Around<'_>, line: GpuLine, dirty: u8, now: Time) -> Time {
    let memory = &mut around.machine.shared.memory;
    let request = |half| MemoryRequest::of_gpu(line.half(half), now, Initiator::Writeback);
    halves_of(dirty).map(|half| memory.write(request(half))).fold(now, Time::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_that_lack_a_sector_are_read() {
        let read = |valid| [0, 1].map(|half| missing(valid, half));
        assert_eq!(
            [0b1111, 0b0011, 0b0111, 0].map(read),
            [[false; 2], [false, true], [false, true], [true; 2]]
        );
    }
}
