//! Threads of the CPU that go on while kernels run: all of them and the GPU, in the order of their clocks.
//!
//! **What it does.** From the first kernel on that a thread enqueues, what is read is queued for its thread or for the GPU.
//! Whoever is earliest goes on, so that both sides contend for memories, the link and the coherence of caches as they do on
//! hardware. Nobody goes on while it is not known what an earlier one does next: then more is read. A thread that waits for
//! kernels goes on when they are over. The GPU runs one kernel after the other.
//!
//! A kernel that nobody enqueued, and the end of the input, end the overlap: what was read is done, and all clocks are
//! one again. So inputs without enqueued kernels are simulated as if this file did not exist.
//!
//! **Left open by inputs, and chosen here.** Each thread has a core while there are as many. What changes the address space
//! comes after all that was read before it. When a queue grows longer than [`MOST_QUEUED`], its known accesses are simulated
//! first, although a thread whose input has yet to come may be earlier; that thread then goes on at the time that was
//! reached.

use super::queues::{Deed, OfGpu, Overlap, Queue, steps};
use super::state::Engine;
use super::thread::{HostAccess, HostThread};
use crate::outcome::SimError;
use std::collections::VecDeque;
use terrace_model::{CoreId, SpaceId, Time};
use terrace_trace::Agent;

/// Accesses of threads and instructions of warps that are queued at most while others are waited for: about 100 MiB.
const MOST_QUEUED: usize = 4 << 20;

/// Accesses that a thread makes in a row at most, before others may go on.
const TURN: usize = 1024;

/// The thread or GPU that goes on.
#[derive(Clone, Copy, Debug)]
enum Who {
    Thread(usize),
    Gpu,
}

/// When a thread or the GPU goes on.
#[derive(Clone, Copy, Debug)]
enum Next {
    At(Time),
    /// Not before this; what it does has not been read.
    Unknown(Time),
    /// The thread or the GPU waits for others.
    Never,
}

impl Engine {
    /// A thread enqueues a kernel.
    pub(super) fn enqueue(&mut self, stream: u32) -> Result<(), SimError> {
        if self.overlap.is_none() {
            self.end_kernel()?;
            self.overlap =
                Some(Box::new(Overlap { present: self.now, free: self.now, ..Overlap::default() }));
            let living = self.streams.iter().filter(|(stream, _)| !self.exited.contains(stream));
            let of_cpu = living.filter(|(_, (_, agent))| *agent == Agent::Cpu);
            let mut threads: Vec<_> = of_cpu.map(|(stream, (space, _))| (*stream, *space)).collect();
            threads.sort_unstable_by_key(|(stream, _)| *stream);
            threads.into_iter().for_each(|(stream, space)| self.add_thread(stream, space));
        }
        if let Some(overlap) = &mut self.overlap {
            overlap.read[0] += 1;
        }
        self.queue(stream, Deed::Enqueue);
        Ok(())
    }

    /// A thread waits for kernels. Where none was enqueued there is nothing to wait for.
    pub(super) fn wait(&mut self, stream: u32, but: u64) -> Result<(), SimError> {
        let Some(overlap) = &self.overlap else { return Ok(()) };
        if overlap.read[0].saturating_sub(but) == overlap.read[1] {
            self.end_reading();
        }
        self.queue(stream, Deed::Wait(but));
        Ok(())
    }

    /// A thread of the CPU begins.
    pub(super) fn add_thread(&mut self, stream: u32, space: SpaceId) {
        let Some(overlap) = &mut self.overlap else { return };
        let (at, now) = (overlap.queues.len(), overlap.present);
        let core = CoreId::at(at % self.cores);
        self.machine.shared.caches.activate(core);
        match self.threads.get_mut(at) {
            Some(thread) => thread.now = now,
            None => self.threads.push(HostThread::new(core, now, self.host_outstanding)),
        }
        overlap.queues.push(Queue { space, deeds: VecDeque::new(), waits: None, ended: false });
        overlap.of_stream.insert(stream, at);
    }

    /// What a thread does next, after what is queued of it.
    pub(super) fn queue(&mut self, stream: u32, deed: Deed) {
        let Some(overlap) = &mut self.overlap else { return };
        let Some(&at) = overlap.of_stream.get(&stream) else { return };
        let queue = &mut overlap.queues[at];
        if queue.deeds.is_empty() {
            self.threads[at].now = self.threads[at].now.max(overlap.present);
        }
        queue.deeds.push_back(deed);
        overlap.queued += 1;
    }

    /// A thread, or the GPU, ends.
    pub(super) fn ends(&mut self, stream: u32, agent: Agent) {
        self.exited.insert(stream);
        if self.overlap.is_none() {
            return;
        }
        if agent == Agent::Gpu {
            self.end_reading();
        }
        let Some(overlap) = &mut self.overlap else { return };
        if let Some(&at) = overlap.of_stream.get(&stream) {
            overlap.queues[at].ended = true;
        }
    }

    /// A kernel is launched. One that nobody enqueued ends the overlap, and the kernel before it.
    pub(super) fn launch(&mut self, space: SpaceId) -> Result<(), SimError> {
        if self.overlap.is_some() {
            self.end_reading();
        }
        if let Some(overlap) = self.overlap.as_mut().filter(|overlap| overlap.read[1] < overlap.read[0]) {
            overlap.read[1] += 1;
            overlap.reads_kernel = true;
            overlap.gpu.push_back(OfGpu::Launch(space));
            return Ok(());
        }
        self.end_overlap()?;
        self.end_kernel()?;
        self.begin_kernel(space)
    }

    /// Whether groups are of a kernel that was enqueued.
    pub(super) fn reads_enqueued(&self) -> bool {
        self.overlap.as_ref().is_some_and(|overlap| overlap.reads_kernel)
    }

    /// All of a kernel has been read.
    fn end_reading(&mut self) {
        let group = self.group.take();
        let Some(overlap) = &mut self.overlap else { return };
        if let Some(group) = group {
            overlap.queue_group(group);
        }
        if std::mem::take(&mut overlap.reads_kernel) {
            overlap.gpu.push_back(OfGpu::End);
        }
    }

    /// All that was read is done, as far as it can be; those who do not wait come to one time.
    pub(super) fn catch_up(&mut self) -> Result<(), SimError> {
        self.advance(true)?;
        let Some(overlap) = &mut self.overlap else { return Ok(()) };
        let kernel = if self.began.is_some() { self.sms.now } else { overlap.free };
        let there = self.threads.iter().zip(&overlap.queues).filter(|(_, queue)| queue.waits.is_none());
        self.now = there.map(|(thread, _)| thread.now).fold(self.now.max(kernel), Time::max);
        overlap.present = self.now;
        self.threads.iter_mut().for_each(|thread| thread.now = self.now);
        if self.began.is_some() {
            self.sms.begin_kernel(self.now);
        }
        Ok(())
    }

    /// Ends the overlap of threads and kernels.
    pub(super) fn end_overlap(&mut self) -> Result<(), SimError> {
        if self.overlap.is_none() {
            return Ok(());
        }
        self.end_reading();
        self.advance(true)?;
        // Kernels whose launch an input lacks that was cut off are waited for in vain.
        while let Some(overlap) = &mut self.overlap
            && overlap.queues.iter().any(|queue| queue.waits.is_some())
        {
            overlap.queues.iter_mut().for_each(|queue| queue.waits = None);
            self.advance(true)?;
        }
        self.catch_up()?;
        self.overlap = None;
        self.threads.truncate(1);
        self.set_agent(Agent::Cpu);
        Ok(())
    }

    /// Everybody goes on as far as it is known what others do before; where that `suffices`, as far as possible.
    pub(super) fn advance(&mut self, suffices: bool) -> Result<(), SimError> {
        while let Some((who, now, until)) = self.earliest(suffices) {
            if let Some(overlap) = &mut self.overlap {
                overlap.present = overlap.present.max(now);
            }
            match who {
                Who::Thread(at) => self.thread_goes_on(at, until)?,
                Who::Gpu => self.gpu_goes_on(now, until)?,
            }
        }
        Ok(())
    }

    /// The thread or GPU that goes on, when it does, and when the next after it does; none where that is not known.
    fn earliest(&self, suffices: bool) -> Option<(Who, Time, Time)> {
        let overlap = self.overlap.as_deref()?;
        let suffices = suffices || overlap.queued > MOST_QUEUED;
        let mut first = (Time::MAX, None, false);
        let mut until = Time::MAX;
        let threads = (0..overlap.queues.len()).map(|at| (Who::Thread(at), self.next_of_thread(overlap, at)));
        for (who, next) in [(Who::Gpu, self.next_of_gpu(overlap, suffices))].into_iter().chain(threads) {
            let (time, known) = match next {
                Next::At(time) => (time, true),
                Next::Unknown(time) if !suffices => (time, false),
                _ => continue,
            };
            // At equal times the first counts: a kernel begins before the thread that enqueued it goes on.
            if first.1.is_none() || time < first.0 {
                until = first.0;
                first = (time, Some(who), known);
            } else {
                until = until.min(time);
            }
        }
        let (now, who, known) = first;
        known.then_some((who?, now, until))
    }

    fn next_of_thread(&self, overlap: &Overlap, at: usize) -> Next {
        let (queue, now) = (&overlap.queues[at], self.threads[at].now);
        match queue.deeds.is_empty() {
            _ if queue.waits.is_some() => Next::Never,
            false => Next::At(now),
            true if queue.ended => Next::Never,
            true => Next::Unknown(now),
        }
    }

    fn next_of_gpu(&self, overlap: &Overlap, suffices: bool) -> Next {
        if self.began.is_none() {
            let begin = |at: &Time| overlap.free.max(*at).max(overlap.present);
            return match (overlap.gpu.front(), overlap.enqueued.front()) {
                (Some(OfGpu::Launch(_)), None) | (None, None) => Next::Never,
                (None, Some(enqueued)) => Next::Unknown(begin(enqueued)),
                (Some(_), enqueued) => Next::At(enqueued.map_or(overlap.free, begin)),
            };
        }
        let has_room = !self.sms.is_full();
        match (overlap.gpu.front(), self.sms.next()) {
            (Some(OfGpu::Group(_)), _) if has_room => Next::At(self.sms.now),
            // Groups that have yet to come may run on SMs with room.
            (None, _) if has_room && !suffices => Next::Unknown(self.sms.now),
            (_, Some(next)) => Next::At(next),
            // All warps wait for pages.
            _ if !self.sms.is_idle() => Next::At(self.sms.now.max(self.policy_due().unwrap_or_default())),
            (None, None) => Next::Never,
            (Some(_), None) => Next::At(self.end_of_kernel()),
        }
    }

    fn gpu_goes_on(&mut self, now: Time, until: Time) -> Result<(), SimError> {
        let Some(overlap) = &mut self.overlap else { return Ok(()) };
        if self.began.is_none() {
            if let Some(OfGpu::Launch(space)) = overlap.gpu.pop_front() {
                overlap.enqueued.pop_front();
                self.overlapped.kernels += 1;
                self.now = now;
                self.begin_kernel(space)?;
            }
            return Ok(());
        }
        while !self.sms.is_full() && matches!(overlap.gpu.front(), Some(OfGpu::Group(_))) {
            if let Some(OfGpu::Group(group)) = overlap.gpu.pop_front() {
                overlap.queued -= steps(&group);
                self.sms.now = self.sms.now.max(overlap.present);
                self.sms.add(group);
            }
        }
        if !self.sms.is_idle() {
            self.set_agent(Agent::Gpu);
            return if self.sms.next().is_none_or(|next| next <= until) { self.step(until) } else { Ok(()) };
        }
        if let Some(OfGpu::End) = overlap.gpu.pop_front() {
            self.kernel_is_over();
            let Some(overlap) = &mut self.overlap else { return Ok(()) };
            (overlap.free, overlap.over) = (self.now, overlap.over + 1);
            for (queue, thread) in overlap.queues.iter_mut().zip(&mut self.threads) {
                if let Some((_, since)) = queue.waits.take_if(|(kernels, _)| *kernels <= overlap.over) {
                    thread.now = self.now.max(since);
                    self.overlapped.waited += thread.now - since;
                }
            }
        }
        Ok(())
    }

    /// A thread goes on until another has to, or it waits.
    fn thread_goes_on(&mut self, at: usize, until: Time) -> Result<(), SimError> {
        self.set_agent(Agent::Cpu);
        for _ in 0..TURN {
            let Some(overlap) = &mut self.overlap else { return Ok(()) };
            let queue = &mut overlap.queues[at];
            let now = self.threads[at].now;
            let Some(deed) = queue.deeds.front().copied().filter(|_| now <= until) else { return Ok(()) };
            let space = queue.space;
            if let Deed::Access(access) = deed
                && self.tiering.is_some()
                && let Some(due) = self.waits_for_page(space, access, now)
            {
                self.threads[at].now = due;
                return Ok(());
            }
            let Some(overlap) = &mut self.overlap else { return Ok(()) };
            overlap.queues[at].deeds.pop_front();
            overlap.queued -= 1;
            match deed {
                Deed::Access(access) => {
                    self.overlapped.accesses += u64::from(self.began.is_some());
                    self.host_access(at, space, access)?;
                }
                Deed::Compute(instructions) => {
                    self.host_instructions += instructions;
                    self.threads[at].now = now + self.host_cycle.times(instructions);
                }
                Deed::Enqueue => {
                    overlap.enqueues += 1;
                    overlap.enqueued.push_back(now);
                    return Ok(());
                }
                Deed::Wait(but) => {
                    let kernels = overlap.enqueues.saturating_sub(but);
                    if kernels > overlap.over {
                        overlap.queues[at].waits = Some((kernels, now));
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// When the policy does something next, where an access has to wait for a page on its way.
    fn waits_for_page(&mut self, space: SpaceId, access: HostAccess, now: Time) -> Option<Time> {
        self.manage(now);
        let held = access.pages(space).into_iter().any(|page| self.is_on_its_way(page));
        if held { self.policy_due().map(|due| due.max(now)) } else { None }
    }
}
