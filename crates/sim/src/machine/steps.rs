//! One access that somebody watches, step by step. Nothing else is simulated than without: it takes the way of any access
//! that no short cut serves.

use super::site::{FULL, Own, Site};
use crate::cache::{CacheCounters, Served};
use crate::core::Timeline;
use crate::memory::Initiator;
use crate::observe::{Source, Steps};
use crate::os::OsError;
use crate::outcome::{AccessPath, Stage};
use crate::translate::{Request, Stop, Translation};
use terrace_model::{LINE_BYTES, PhysAddr, SpaceId, Time, VirtAddr};
use terrace_trace::{AccessKind, Batch};

impl<const F: u8> Site<'_, F> {
    /// Runs the access `at` of a batch and watches it. None if the thread has to wait: the access is made again.
    ///
    /// # Errors
    /// The simulated kernel failed.
    #[inline(never)]
    pub(crate) fn run_watched<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        space: SpaceId,
        batch: &Batch,
        at: usize,
    ) -> Result<Option<AccessPath>, OsError> {
        let instructions = u64::from(batch.instructions[at]);
        self.core.pipeline.dispatch(instructions);
        let (addr, size) = (VirtAddr(batch.addr[at]), batch.size[at]);
        let write = batch.kind[at] == AccessKind::Write;
        let now = self.core.pipeline.operands_ready(batch.depends_on[at]);
        own.scheme.set_instruction(batch.pc.get(at).copied());
        let request = Request { space, addr, write, now };
        let (tlb, reads) = (own.scheme.tlb_counters(), self.shared.memory.demand_reads);
        self.shared.observers.steps = Some(Box::default());
        let timeline = match addr.line_offset() + u64::from(size) > LINE_BYTES {
            true => self.access_lines(own, &request, size),
            false => self.access_line(own, &request, Initiator::Demand),
        };
        let steps = self.shared.observers.steps.take().map(|steps| *steps).unwrap_or_default();
        let timeline = match timeline {
            Ok(timeline) => timeline,
            Err(Stop::Held) => {
                self.core.pipeline.take_back(instructions);
                return Ok(None);
            }
            Err(Stop::Failed(error)) => return Err(error),
        };
        self.core.pipeline.access(write, timeline);
        let read_memory = self.shared.memory.demand_reads != reads;
        if F == FULL && self.shared.sampling && read_memory {
            self.reached_memory(space, addr, write);
        }
        let hits = own.scheme.tlb_counters().l1_hits;
        let in_l1_tlb = hits.iter().sum::<u64>() > tlb.l1_hits.iter().sum::<u64>();
        Ok(Some(self.path(&request, steps, &timeline, in_l1_tlb, read_memory)))
    }

    /// What the caches have counted, while an access is watched.
    #[inline(always)]
    pub(super) fn counters_if_watched(&self) -> Option<CacheCounters> {
        self.shared.observers.steps.is_some().then_some(self.shared.caches.counters)
    }

    /// The caches served the data of the access.
    #[inline(always)]
    pub(super) fn note_served(&mut self, before: Option<CacheCounters>, served: Served) {
        if let Some(before) = before
            && let Some(steps) = &mut self.shared.observers.steps
        {
            steps.served = Some((served, Source::between(&before, &self.shared.caches.counters)));
        }
    }

    /// As `fetch_line` does, and notes where the entry came from.
    #[cold]
    pub(super) fn fetch_line_watched<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        entry: PhysAddr,
        write: bool,
        now: Time,
    ) -> Time {
        let before = self.shared.caches.counters;
        let done = self.fetch_line::<T>(kernel, entry, write, now);
        let from = Source::between(&before, &self.shared.caches.counters);
        self.note_entry(from, now, done);
        done
    }

    /// As `fetch_line_below` does, and notes where the entry came from.
    #[cold]
    pub(super) fn fetch_line_below_watched<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        entry: PhysAddr,
        through_last_level: bool,
        now: Time,
    ) -> Time {
        let reads = |site: &Self| site.shared.memory.waits().map(|(reads, _)| reads).sum::<u64>();
        let before = reads(self);
        let done = self.fetch_line_below::<T>(kernel, entry, through_last_level, now);
        let from = if reads(self) > before { Source::Memory } else { Source::LastLevel };
        self.note_entry(from, now, done);
        done
    }

    fn note_entry(&mut self, from: Source, begin: Time, end: Time) {
        if let Some(steps) = &mut self.shared.observers.steps {
            steps.read_entry(from, begin, end);
        }
    }

    /// What was seen of the access, and what follows from it.
    fn path(
        &self,
        request: &Request,
        mut steps: Steps,
        timeline: &Timeline,
        in_l1_tlb: bool,
        read_memory: bool,
    ) -> AccessPath {
        if in_l1_tlb {
            steps.add(Stage::Translation, "L1 TLB: hit", request.now, request.now);
        }
        if let Some((served, source)) = steps.served {
            let (asked, latencies) = (served.cache_start, self.shared.caches.latencies());
            let levels = [(Source::L1, "L1"), (Source::L2, "L2"), (Source::LastLevel, "last level")];
            let mut before = Time::ZERO;
            for ((level, name), latency) in levels.into_iter().zip(latencies) {
                let found = if level == source { "hit" } else { "miss" };
                // Latencies of the levels count from the begin.
                steps.add(Stage::Cache, format!("{name}: {found}"), asked + before, asked + latency);
                before = latency;
                if level == source {
                    break;
                }
            }
            if source == Source::Memory {
                let known = steps.end_of(Stage::Translation).unwrap_or_default();
                let sent = served.cache_end.max(known).min(timeline.done);
                let name = if read_memory { "memory" } else { "zeros, from the controller" };
                steps.add(Stage::Memory, name, sent, timeline.done);
            }
        }
        let done = timeline.done.saturating_sub(request.now);
        AccessPath {
            process: request.space.0,
            addr: request.addr,
            write: request.write,
            cycle: self.shared.timing.cycle,
            steps: steps.finish(request.now),
            done,
        }
    }
}
