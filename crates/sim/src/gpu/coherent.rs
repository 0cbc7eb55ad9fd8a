//! Loads and stores of the GPU where caches of a CPU are to be coherent with its own, and the CPU's requests.

use super::around::Around;
use super::coalesce::Transaction;
use super::line::{ALL_SECTORS, GpuLine, halves_of};
use super::parameters::SECTOR;
use super::paths::Paths;
use super::selective::{Coalescing, CoherenceKind, Request, Towards, Uncoalesced, is_own};
use crate::cache::Below;
use crate::machine::TieredMemory;
use crate::memory::{Initiator, MemoryRequest};
use terrace_model::{CacheLine, Frame, LINE_BYTES, NodeId, Time};

impl Paths {
    fn may_cache(&self, around: &Around<'_>, line: GpuLine) -> bool {
        let Some(coherence) = &self.coherence else { return true };
        let memory = &around.machine.shared.memory;
        // What the slice holds the CPU does not, whatever the directory says.
        coherence.may_cache(memory, line)
            || is_own(memory, line) && self.slices[memory.channel_of(line.half(0))].cache.holds(line)
    }

    /// A load of an SM: when its data is there.
    pub fn coherent_load(
        &mut self,
        around: &mut Around<'_>,
        sm: usize,
        Request { one, line, atomic }: Request,
        now: Time,
    ) -> Time {
        let Some(coherence) = self.coherence.as_deref_mut() else { return now };
        let mut now = coherence.wait(line, now);
        if atomic {
            now = self.fault_on_store(around, sm, line, now);
        }
        if self.may_cache(around, line) {
            return self.load_line(around, sm, one, line, now);
        }
        let at = now + self.l1_latency;
        let Some(coherence) = self.coherence.as_deref_mut() else { return now };
        if atomic && !around.is_own(line) {
            coherence.uncached.atomics += 1;
            around.observe(one, true);
            coherence.in_sms[sm].forget(line);
            coherence.in_slices[around.machine.shared.memory.channel_of(line.half(0))].forget(line);
            let begin = self.sms[sm].l1_misses.start(at);
            let there = begin + self.one_way;
            let done = coherence.cpu.atomic(&mut around.cpu(), line, one.sectors, there) + self.one_way;
            self.sms[sm].l1_misses.occupy(begin, done);
            return done;
        }
        coherence.uncached.loads += 1;
        if coherence.coalescing != Coalescing::None {
            return self.joining_load(around, sm, one, line, at);
        }
        match coherence.uncoalesced {
            Uncoalesced::Transaction => self.lone_load(around, sm, one, line, one.sectors, at),
            Uncoalesced::Line => self.lone_load(around, sm, one, line, ALL_SECTORS, at),
            Uncoalesced::Sector => (0..4)
                .map(|sector| one.sectors & (1 << sector))
                .filter(|sector| *sector != 0)
                .map(|sector| self.lone_load(around, sm, one, line, sector, at))
                .fold(at, Time::max),
        }
    }

    /// A load that asks for sectors, whatever is under way.
    fn lone_load(
        &mut self,
        around: &mut Around<'_>,
        sm: usize,
        one: Transaction,
        line: GpuLine,
        asked: u8,
        at: Time,
    ) -> Time {
        let begin = self.sms[sm].l1_misses.start(at);
        let done = self.uncached_at_slice(around, one, line, asked, begin + self.one_way) + self.one_way;
        self.sms[sm].l1_misses.occupy(begin, done);
        done
    }

    /// A load that joins what its SM has under way of the line.
    fn joining_load(
        &mut self,
        around: &mut Around<'_>,
        sm: usize,
        one: Transaction,
        line: GpuLine,
        at: Time,
    ) -> Time {
        let Some(coherence) = self.coherence.as_deref_mut() else { return at };
        let found = coherence.in_sms[sm].find(line, one.sectors, at);
        if found.missing == 0 {
            coherence.uncached.joined[0] += 1;
            return found.done;
        }
        let asked = coherence.asks(found.missing);
        let begin = if found.has_register { at } else { self.sms[sm].l1_misses.start(at) };
        let done = self.uncached_at_slice(around, one, line, asked, begin + self.one_way) + self.one_way;
        if !found.has_register {
            self.sms[sm].l1_misses.occupy(begin, done);
        }
        if let Some(coherence) = self.coherence.as_deref_mut() {
            coherence.in_sms[sm].begin(line, asked, at, done);
        }
        done.max(found.done)
    }

    /// Sectors that no cache may serve are asked for at a slice.
    fn uncached_at_slice(
        &mut self,
        around: &mut Around<'_>,
        one: Transaction,
        line: GpuLine,
        asked: u8,
        at: Time,
    ) -> Time {
        let Some(coherence) = self.coherence.as_deref_mut() else { return at };
        let channel = around.machine.shared.memory.channel_of(line.half(0));
        let slice = &mut self.slices[channel];
        if coherence.coalescing != Coalescing::L1L2 {
            let begin = slice.misses.start(at);
            let done = coherence.uncached_source(around, one, line, asked, begin);
            slice.misses.occupy(begin, done);
            return done;
        }
        let found = coherence.in_slices[channel].find(line, asked, at);
        if found.missing == 0 {
            coherence.uncached.joined[1] += 1;
            return found.done;
        }
        let asked = coherence.asks(found.missing);
        let begin = if found.has_register { at } else { slice.misses.start(at) };
        let done = coherence.uncached_source(around, one, line, asked, begin);
        if !found.has_register {
            slice.misses.occupy(begin, done);
        }
        coherence.in_slices[channel].begin(line, asked, at, done);
        done.max(found.done)
    }

    /// A store of an SM, whose page may be written by now: when a slice or the CPU has accepted it.
    pub fn coherent_store(
        &mut self,
        around: &mut Around<'_>,
        sm: usize,
        Request { one, line, atomic }: Request,
        now: Time,
    ) -> Time {
        if self.may_cache(around, line) {
            let owned =
                self.coherence.as_mut().map_or(now, |coherence| coherence.own_for_store(around, line, now));
            return self.store_line(around, one, line, now).max(owned);
        }
        let own = around.is_own(line);
        let Some(coherence) = self.coherence.as_deref_mut() else { return now };
        if atomic && !own {
            // The load of the atomic operation has done its store too.
            return now;
        }
        coherence.uncached.stores += 1;
        coherence.in_sms[sm].forget(line);
        coherence.in_slices[around.machine.shared.memory.channel_of(line.half(0))].forget(line);
        around.observe(one, true);
        let (at, cpu) = (now + self.one_way, &mut around.cpu());
        if own {
            coherence.cpu.write_own(cpu, line, one.sectors, at)
        } else {
            coherence.cpu.write(cpu, line, one.sectors, at, Initiator::Demand)
        }
    }

    /// A store is to come: when its page may be written.
    pub fn fault_on_store(&mut self, around: &mut Around<'_>, sm: usize, line: GpuLine, now: Time) -> Time {
        let (frame, walk) = (line.frame(), self.walk);
        let Some(pages) = self.coherence.as_deref_mut().and_then(|coherence| coherence.read_only.as_mut())
        else {
            return now;
        };
        if around.is_own(line) {
            return now;
        }
        let now = pages.wait(frame, now);
        if !pages.is_read_only(frame) {
            return now;
        }
        let done = pages.gpu_fault(sm, frame, now, walk);
        let gives_up = pages.gives_up(now);
        self.drop_page(frame, Some(sm));
        if gives_up {
            let memory = &around.machine.shared.memory;
            for cache in self.caches() {
                cache.remove_where(|line| !is_own(memory, line));
            }
        }
        done
    }

    /// Copies and translations of a page are dropped, but for the translation of the SM that walks for it again.
    fn drop_page(&mut self, frame: Frame, but: Option<usize>) {
        for cache in self.caches() {
            for line in GpuLine::of_frame(frame) {
                // These caches hold no written sectors of the line.
                cache.remove(line);
            }
        }
        for (at, sm) in self.sms.iter_mut().enumerate() {
            if Some(at) != but {
                sm.tlb.forget(frame);
            }
        }
    }

    /// A store of the CPU to a page: what its fault takes, if it faults.
    pub fn cpu_store(&mut self, memory: &TieredMemory, frame: Frame) -> Time {
        if memory.home_of_line(frame.addr().line()) == NodeId::GPU {
            return Time::ZERO;
        }
        let pages = self.coherence.as_deref_mut().and_then(|coherence| coherence.read_only.as_mut());
        let Some(cost) = pages.and_then(|pages| pages.cpu_store(frame)) else { return Time::ZERO };
        self.drop_page(frame, None);
        cost
    }

    /// The CPU asks for a line: the GPU gives up its copies, and what it had written of it goes to memory.
    fn cpu_requests(&mut self, memory: &mut TieredMemory, line: GpuLine, now: Time) {
        let Some(coherence) = self.coherence.as_deref_mut() else { return };
        let own = is_own(memory, line);
        if coherence.kind == CoherenceKind::Selective {
            if !own {
                // At most copies of what nobody writes.
                coherence.cpu.drop_from_client(line);
                return;
            }
            coherence.directory.requested(line);
        } else if !own {
            coherence.cpu.drop_from_client(line);
        }
        let mut held = false;
        for sm in &mut self.sms {
            held |= sm.l1.remove(line).is_some();
        }
        let slice = &mut self.slices[memory.channel_of(line.half(0))];
        if let Some(dirty) = slice.cache.remove(line) {
            held = true;
            let now = match own {
                true => now,
                false => coherence.cpu.link.send(Towards::Cpu, u64::from(dirty.count_ones()) * SECTOR, now),
            };
            for half in halves_of(dirty) {
                memory.write(MemoryRequest::of_gpu(line.half(half), now, Initiator::Writeback));
            }
        }
        coherence.dropped += u64::from(held);
    }
}

/// Memory as the CPU's caches see it: what is the GPU's lies beyond the link.
pub struct BesideGpu<'a> {
    pub memory: &'a mut TieredMemory,
    pub paths: &'a mut Paths,
}

impl BesideGpu<'_> {
    /// The CPU has given up the GPU's lines.
    pub fn flushed(&mut self) {
        if let Some(coherence) = self.paths.coherence.as_deref_mut() {
            coherence.flushed();
        }
    }
}

impl Below for BesideGpu<'_> {
    fn translated(&self, now: Time) -> Time {
        now
    }

    fn fill(&mut self, line: CacheLine, at: Time, by: Initiator) -> Time {
        let request = MemoryRequest::of_cpu(line.as_physical(), at, by);
        let line = GpuLine::of(request.line);
        let crosses = self.memory.home_of_line(request.line) != request.from;
        let mut begin = request.at;
        if crosses && let Some(coherence) = self.paths.coherence.as_deref_mut() {
            begin = coherence.cpu.link.send(Towards::Gpu, 0, begin);
        }
        self.paths.cpu_requests(self.memory, line, begin);
        let ready = self.memory.read(request.sent_at(begin));
        match self.paths.coherence.as_deref_mut() {
            Some(coherence) if crosses => coherence.cpu.link.send(Towards::Cpu, LINE_BYTES, ready),
            _ => ready,
        }
    }

    fn evict(&mut self, line: CacheLine, now: Time) -> Time {
        let (line, mut now) = (line.as_physical(), now);
        if self.memory.home_of_line(line) != NodeId::CPU
            && let Some(coherence) = self.paths.coherence.as_deref_mut()
        {
            now = coherence.cpu.link.send(Towards::Gpu, LINE_BYTES, now);
        }
        self.memory.write(MemoryRequest::of_cpu(line, now, Initiator::Writeback))
    }
}
