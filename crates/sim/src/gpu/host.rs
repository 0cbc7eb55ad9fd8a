//! Accesses of the CPU's threads. A thread's core issues an instruction a cycle, and has as many misses under way as its
//! first cache can.

use super::coherent::BesideGpu;
use super::state::Engine;
use super::thread::HostAccess;
use crate::machine::{Manager, Shared};
use crate::memory::Initiator;
use crate::outcome::SimError;
use terrace_model::{Frame, Line, PageId, PageSize, SpaceId, Time, VirtAddr};

impl Engine {
    /// One access of a thread.
    pub(super) fn host_access(
        &mut self,
        thread: usize,
        space: SpaceId,
        access: HostAccess,
    ) -> Result<(), SimError> {
        let HostAccess { addr: first, bytes, write, instructions } = access;
        self.host_accesses += 1;
        self.host_instructions += u64::from(instructions);
        let cycle = self.host_cycle;
        self.threads[thread].now += cycle.times(u64::from(instructions));
        let mut addr = first;
        while addr < first + u64::from(bytes) {
            let own = &mut self.threads[thread];
            own.now = own.loads.start(own.now);
            let frame = self.host_frame(thread, space, addr, write)?;
            let line = (frame.addr() + addr.page_offset(PageSize::Base)).line();
            let done = self.host_line(thread, line, write);
            self.threads[thread].loads.occupy(done);
            addr = addr.next_line();
        }
        Ok(())
    }

    /// The caches of a thread's core are asked for a line: when its data is there.
    fn host_line(&mut self, thread: usize, line: Line, write: bool) -> Time {
        let own = &mut self.threads[thread];
        let Shared { caches, memory, .. } = &mut self.machine.shared;
        if self.paths.coherence.is_none() {
            return caches.access(own.core, line.in_caches(), write, own.now, Initiator::Demand, memory).done;
        }
        if write {
            own.now += self.paths.cpu_store(memory, line.frame());
        }
        let flush = self.paths.coherence.as_ref().and_then(|coherence| coherence.wants_flush());
        let of_gpu = memory.first_tier_lines();
        let of_gpu = of_gpu.start.in_caches()..of_gpu.end.in_caches();
        let mut below = BesideGpu { memory, paths: &mut self.paths };
        if let Some(cost) = flush {
            caches.flush_range(of_gpu, own.now, &mut below);
            own.now += cost;
            below.flushed();
        }
        caches.access(own.core, line.in_caches(), write, own.now, Initiator::Demand, &mut below).done
    }

    fn host_frame(
        &mut self,
        thread: usize,
        space: SpaceId,
        addr: VirtAddr,
        write: bool,
    ) -> Result<Frame, SimError> {
        if self.tiering.is_some() {
            self.manage(self.threads[thread].now);
            self.host_waits(thread, PageId::of(space, addr));
        }
        let own = &mut self.threads[thread];
        let shared = &mut self.machine.shared;
        for _ in 0..2 {
            if let Some(leaf) = shared.os.table(space).find(addr) {
                shared.os.mark(space, addr, &leaf, write);
                return Ok(leaf.frame_of(addr));
            }
            shared.os.now = own.now;
            match &mut self.tiering {
                Some(tiering) => drop(tiering.fault(&mut shared.os, space, addr, write, own.now)?),
                None => drop(shared.os.fault(space, addr, &[])?),
            }
            own.now += shared.timing.fault;
            shared.fault_time += shared.timing.fault;
            shared.os.changes = Default::default();
        }
        Ok(Frame(0))
    }

    /// A thread waits for a page on its way.
    fn host_waits(&mut self, thread: usize, page: PageId) {
        while self.is_on_its_way(page) {
            let Some(due) = self.policy_due() else { return };
            let own = &mut self.threads[thread];
            own.now = own.now.max(due);
            self.act(self.threads[thread].now);
        }
    }

    pub(super) fn is_on_its_way(&self, page: PageId) -> bool {
        self.tiering.as_ref().is_some_and(|tiering| tiering.state.is_held(page))
    }
}
