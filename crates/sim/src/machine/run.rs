//! Runs of accesses on one core: the loops over a batch's columns.

use super::access::{CONTIGUOUS, FULL, PAGES, RADIX, Stop, TRANSLATION, VIVT, physical_line, timeline};
use super::build::{Core, Shared};
use crate::memory::Initiator;
use crate::os::OsError;
use crate::translate::TlbHit;
use terrace_model::{LINE_BYTES, Time};
use terrace_trace::{AccessKind, BATCH_ACCESSES, Batch};

/// Whether a process's page tables fit into the host's caches, so that looking ahead for their entries does not pay.
fn has_small_tables(shared: &Shared, space: u32) -> bool {
    // 1 MiB of tables maps 512 MiB.
    shared.os.table(space).table_pages() <= 256
}

impl Core {
    /// Runs accesses `from..to` of a batch until the clock passes `horizon`; answers how far it came.
    #[inline(never)]
    pub fn run<const F: u8, const S: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        batch: &Batch,
        from: usize,
        to: usize,
        horizon: Time,
    ) -> Result<usize, OsError> {
        if F == PAGES {
            return self.run_pages(shared, space, batch, from, to);
        }
        let addrs = &batch.addr[from..to];
        let sizes = &batch.size[from..to];
        let kinds = &batch.kind[from..to];
        let depends = &batch.depends_on[from..to];
        let instructions = &batch.instructions[from..to];
        if from == 0 && S != VIVT {
            let small = F == TRANSLATION && has_small_tables(shared, space);
            let misses = self.tlbs.counters_in_use().l2_misses + shared.caches.counters.llc.misses;
            self.look_ahead.weigh(misses, BATCH_ACCESSES, small);
        }
        let look_ahead = S != VIVT && self.look_ahead.is_active();
        let mut demand_reads = shared.memory.demand_reads;
        for at in 0..addrs.len() {
            if look_ahead {
                match (F == FULL, S == RADIX || S == CONTIGUOUS) {
                    (true, true) => self.look_ahead.look::<true, true>(id, shared, space, addrs, at),
                    (true, false) => self.look_ahead.look::<true, false>(id, shared, space, addrs, at),
                    (false, _) => self.look_ahead.look::<false, false>(id, shared, space, addrs, at),
                }
            }
            self.pipeline.dispatch(u64::from(instructions[at]));
            let addr = addrs[at];
            let write = kinds[at] == AccessKind::Write;
            let now = self.pipeline.operands_ready(depends[at]);
            let crosses = (addr & (LINE_BYTES - 1)) + u64::from(sizes[at]) > LINE_BYTES;
            if S == RADIX
                && !crosses
                && let Some(page) = self.tlbs.recent(space, addr)
                && (!write || page.entry.is_dirty())
            {
                // A hit in the level-1 TLB that changes nothing there.
                self.tlbs.count_hit(page);
                self.access_translated::<F>(id, shared, page, addr, write, now);
                if F == FULL && shared.sampling && shared.memory.demand_reads != demand_reads {
                    demand_reads = shared.memory.demand_reads;
                    shared.reached_memory(self, space, addr, write);
                }
                if self.pipeline.now > horizon {
                    return Ok(from + at + 1);
                }
                continue;
            }
            if S == CONTIGUOUS {
                self.tlbs.contiguity.set_instruction(batch.pc.get(from + at).copied());
            }
            let timeline = if crosses {
                self.access_lines::<F, S>(id, shared, space, addr, sizes[at], write, now)
            } else {
                self.access_line::<F, S>(id, shared, space, addr, write, now, Initiator::Demand)
            };
            let timeline = match timeline {
                Ok(timeline) => timeline,
                Err(Stop::Held) => {
                    self.pipeline.take_back(u64::from(instructions[at]));
                    return Ok(from + at);
                }
                Err(Stop::Failed(error)) => return Err(error),
            };
            self.pipeline.access(write, timeline);
            if F == FULL && shared.sampling && shared.memory.demand_reads != demand_reads {
                demand_reads = shared.memory.demand_reads;
                shared.reached_memory(self, space, addr, write);
            }
            if self.pipeline.now > horizon {
                return Ok(from + at + 1);
            }
        }
        Ok(to)
    }

    /// An access to one line whose page is known at `now`.
    #[inline(always)]
    fn access_translated<const F: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        page: TlbHit,
        addr: u64,
        write: bool,
        now: Time,
    ) {
        if F == TRANSLATION {
            return self.pipeline.hit(write, now, now, now);
        }
        let line = physical_line(page.entry.frame(), addr, page.size);
        if let Some((looked_up, done)) = shared.caches.access_recent(id, line, write, now) {
            return self.pipeline.hit(write, now, looked_up, done);
        }
        let served =
            shared.caches.access_not_recent(id, line, write, now, Initiator::Demand, &mut shared.memory);
        self.wait_for_register(served.cache_start.saturating_sub(now));
        self.pipeline.access(write, timeline(now, now, served));
    }

    /// Residency and unfiltered traffic. The order of simulated time between cores is that of their batches.
    fn run_pages(
        &mut self,
        shared: &mut Shared,
        space: u32,
        batch: &Batch,
        from: usize,
        to: usize,
    ) -> Result<usize, OsError> {
        if from == 0 {
            let small = has_small_tables(shared, space);
            self.look_ahead.weigh(shared.page_changes, BATCH_ACCESSES, small);
        }
        let instructions = batch.instructions[from..to].iter().map(|&count| u64::from(count)).sum();
        self.pipeline.dispatch(instructions);
        let (reached, ran) = if self.look_ahead.is_active() {
            self.run_pages_as::<true>(shared, space, batch, from, to)
        } else {
            self.run_pages_as::<false>(shared, space, batch, from, to)
        };
        match ran {
            Ok(()) => Ok(reached),
            Err(Stop::Held) => {
                let rest = batch.instructions[reached..to].iter().map(|&count| u64::from(count)).sum();
                self.pipeline.take_back(rest);
                Ok(reached)
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Answers how far it came, and why not further.
    #[inline(always)]
    fn run_pages_as<const LOOK_AHEAD: bool>(
        &mut self,
        shared: &mut Shared,
        space: u32,
        batch: &Batch,
        from: usize,
        to: usize,
    ) -> (usize, Result<(), Stop>) {
        /// No page of an address space has this number.
        const NO_PAGE: u64 = u64::MAX;
        let addrs = &batch.addr[from..to];
        let sizes = &batch.size[from..to];
        let kinds = &batch.kind[from..to];
        // The page of the access before, its tier, and whether it may be written as it is.
        let (mut known, mut tier, mut writable) = (NO_PAGE, 0, false);
        for at in 0..addrs.len() {
            if LOOK_AHEAD {
                self.look_ahead.look::<false, false>(0, shared, space, addrs, at);
            }
            let addr = addrs[at];
            let write = kinds[at] == AccessKind::Write;
            if addr >> 12 != known || (write && !writable) {
                let page = match shared.translate_for_free::<PAGES>(self, space, addr, write) {
                    Ok(page) => page,
                    Err(stop) => return (from + at, Err(stop)),
                };
                shared.page_changes += 1;
                (known, writable) = (addr >> 12, page.writable);
                tier = shared.memory.tier_of_line(page.frame * (4096 / LINE_BYTES)).index();
            }
            shared.unfiltered[tier][usize::from(write)] += 1;
            let size = u64::from(sizes[at]);
            if (addr & 4095) + size > 4096 {
                let last = addr.wrapping_add(size - 1);
                if let Err(stop) = shared.translate_for_free::<PAGES>(self, space, last, write) {
                    // The part on the first page is made, and counted, again.
                    return (from + at, Err(stop));
                }
            }
        }
        (to, Ok(()))
    }
}
