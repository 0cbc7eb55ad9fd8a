//! Which stream runs where: cores in the order of simulated time, and the streams of each core by time slices.

use super::agenda::Agenda;
#[cfg(debug_assertions)]
use super::agenda::next_by_scan;
use super::mix::MixRun;
use super::streams::Streams;
use super::{Engine, QUANTUM, SIGNAL_INTERVAL};
use crate::core::END_OF_TIME;
use crate::machine::{Machine, StoppedAt, System};
use crate::outcome::SimError;
use crate::tiering::Tiering;
use std::collections::VecDeque;
use terrace_model::{CoreId, PageSize, Time};
use terrace_policy::{PageId, PageRange};

/// The streams of one core: the one that runs and those that wait.
#[derive(Debug, Default)]
pub(super) struct RunQueue {
    pub running: Option<usize>,
    pub waiting: VecDeque<usize>,
    pub slice_ends: Time,
    /// The virtual CPU that the core turned to last.
    pub vcpu: Option<usize>,
    pub used: bool,
    /// Instructions of the core that were counted for programs of a mix.
    pub accounted: u64,
    /// The base page that its thread waits for: it is on the move, or its fault waits for a block.
    pub waits_for: Option<StoppedAt>,
}

/// Lets the threads go on that wait for these pages. Returns how long they have waited.
fn wake(
    run_queues: &mut [RunQueue],
    agenda: &mut Agenda,
    machine: &mut Machine,
    system: System,
    pages: &[(PageId, PageSize, Time)],
) -> Time {
    let mut waited = Time::ZERO;
    for (page, size, at) in pages {
        for (id, (queue, core)) in CoreId::number(run_queues.iter_mut().zip(&mut machine.cores)) {
            let arrived = queue
                .waits_for
                .filter(|at| at.system == system)
                .is_some_and(|at| PageRange::of(*page, *size).contains(at.page));
            if arrived {
                queue.waits_for = None;
                agenda.add(id);
                core.pipeline.drain();
                let span = at.saturating_sub(core.pipeline.now);
                core.pipeline.kernel(span);
                waited += span;
            }
        }
    }
    waited
}

impl Engine<'_> {
    /// The core to run next and how far it may go; `None` when nothing is left.
    pub(super) fn next_core<const F: u8>(&mut self) -> Result<Option<(CoreId, Time)>, SimError> {
        loop {
            self.serve_stalled()?;
            if self.mix.as_ref().is_some_and(MixRun::is_over) {
                return Ok(None);
            }
            let due = self.policies_due();
            if let Some((now, core, second)) = self.first_two() {
                if now > END_OF_TIME {
                    return Err(SimError::TooLong);
                }
                let mut horizon = second.map_or(Time::MAX, |second| second + QUANTUM);
                if let Some(watch) = &self.contiguity {
                    horizon = horizon.min(watch.next() + QUANTUM);
                }
                if let Some(due) = due {
                    if due.is_some_and(|due| due <= now) {
                        self.act::<F>(now);
                        continue;
                    }
                    horizon =
                        horizon.min(now + SIGNAL_INTERVAL).min(due.map_or(Time::MAX, |due| due + QUANTUM));
                }
                return Ok(Some((core, horizon)));
            }
            if let Some(due) = due.flatten()
                && self.run_queues.iter().any(|queue| queue.waits_for.is_some())
            {
                // Whoever could run waits for a page.
                let notified = self.policies().map(|tiering| tiering.state.notified_at()).max();
                self.act::<F>(due.max(notified.unwrap_or_default()));
                continue;
            }
            // Every stream is blocked, starved or done.
            let now = self.latest();
            let mut goes_on = false;
            for program in 0..self.streams.programs.len() {
                goes_on |= self.provide(program, now)?;
            }
            if !goes_on {
                return Ok(None);
            }
        }
    }

    /// Reads on for a program of which nothing can run, or lets it go on without an event that nobody is left to apply.
    /// Returns whether anything came of it.
    pub(super) fn provide(&mut self, program: usize, now: Time) -> Result<bool, SimError> {
        if self.mix.as_ref().is_some_and(|mix| mix.holds(program)) {
            return Ok(false);
        }
        let blocked = self.blocked.iter().any(|&stream| self.streams.program_of(stream) == program);
        let input = &self.streams.programs[program];
        if blocked && (input.exhausted || input.is_full()) {
            self.give_up_waiting(program);
            return Ok(true);
        }
        Ok(!input.exhausted && (self.pull(program, now)? || blocked))
    }

    /// The core whose clock is least, with its clock, and the least clock of the others that can run.
    #[inline]
    fn first_two(&mut self) -> Option<(Time, CoreId, Option<Time>)> {
        let mut agenda = std::mem::take(&mut self.agenda);
        let clock =
            |core: CoreId| self.has_runnable(core).then(|| self.machine.cores[core.index()].pipeline.now);
        let next = agenda.next(clock);
        #[cfg(debug_assertions)]
        assert_eq!(next, next_by_scan(self.run_queues.len(), clock), "a core was not added to the agenda");
        self.agenda = agenda;
        next
    }

    /// When a policy is to be called or an order does something next; none where nobody manages memory.
    pub(super) fn policies_due(&self) -> Option<Option<Time>> {
        self.policies().next()?;
        Some(self.policies().filter_map(Tiering::due).min())
    }

    /// The policy is called, or one of its orders goes on, whichever is due first.
    fn act<const F: u8>(&mut self, now: Time) {
        self.note_busy_cores();
        // The first of those that are due at the same time goes on; the hypervisor's is last.
        let all = self.tiering.iter_mut().chain(&mut self.host_tiering);
        let Some(tiering) = all.min_by_key(|tiering| tiering.due().unwrap_or(Time::MAX)) else { return };
        let system = tiering.state.system;
        self.machine.shared.system_mut(system).now = now;
        tiering.act::<F>(&mut self.machine, now);
        let state = &mut tiering.state;
        let (released, resumed) = (state.take_released(), state.take_resumed());
        let Engine { run_queues, agenda, machine, .. } = self;
        state.counters.wait_time += wake(run_queues, agenda, machine, system, &released);
        state.counters.stall_time += wake(run_queues, agenda, machine, system, &resumed);
    }

    /// Kernel threads that share the cores go where the program leaves one idle.
    fn note_busy_cores(&mut self) {
        let shares = |tiering: &Tiering| tiering.state.processors.share_cores();
        if !self.policies().any(shares) {
            return;
        }
        let busy: Vec<CoreId> =
            CoreId::first(self.run_queues.len()).filter(|core| self.has_runnable(*core)).collect();
        for tiering in self.tiering.iter_mut().chain(&mut self.host_tiering) {
            tiering.state.processors.note_busy(&busy);
        }
    }

    /// Whether a core has a stream that may run now.
    pub(super) fn has_runnable(&self, core: CoreId) -> bool {
        let queue = &self.run_queues[core.index()];
        if queue.waits_for.is_some() {
            return false;
        }
        let runnable = |&stream: &usize| self.streams.streams[stream].may_run();
        queue.running.as_ref().is_some_and(runnable) || queue.waiting.iter().any(runnable)
    }

    /// Makes sure that the core's running stream is one that can run.
    pub(super) fn choose_stream(&mut self, core: CoreId) -> Option<usize> {
        let now = self.machine.cores[core.index()].pipeline.now;
        let queue = &mut self.run_queues[core.index()];
        if let Some(running) = queue.running {
            let stream = &self.streams.streams[running];
            let over = now >= queue.slice_ends && !queue.waiting.is_empty();
            if stream.may_run() && !over {
                return Some(running);
            }
            if !stream.exited {
                queue.waiting.push_back(running);
            }
            queue.running = None;
        }
        queue.waiting.retain(|&stream| !self.streams.streams[stream].exited);
        let at = queue.waiting.iter().position(|&stream| self.streams.streams[stream].may_run())?;
        let next = queue.waiting.remove(at)?;
        queue.running = Some(next);
        let vcpu = self.vcpu_of(next);
        let queue = &mut self.run_queues[core.index()];
        let pipeline = &mut self.machine.cores[core.index()].pipeline;
        pipeline.drain();
        if pipeline.instructions > 0 {
            pipeline.kernel(self.machine.shared.timing.context_switch);
        }
        if let (Some(hypervisor), Some(vcpu)) = (&mut self.machine.shared.hypervisor, vcpu)
            && queue.vcpu.replace(vcpu).is_some_and(|last| last != vcpu)
        {
            pipeline.kernel(hypervisor.preempt());
        }
        queue.slice_ends = pipeline.now + self.machine.shared.timing.timeslice;
        Some(next)
    }

    /// A global event was applied at `now`: streams that waited for it may run, but not before that time.
    pub(super) fn unblock(&mut self, now: Time) {
        let Streams { streams, programs, .. } = &mut self.streams;
        let (run_queues, agenda, cores) = (&mut self.run_queues, &mut self.agenda, &mut self.machine.cores);
        self.blocked.retain(|&at| {
            let watermark = programs[at % programs.len()].order.watermark;
            let stream = &mut streams[at];
            let waits = stream.current.as_ref().is_some_and(|batch| batch.after > watermark);
            if !waits {
                stream.blocked = false;
                // A core that had nothing else to do waited with its stream.
                let core = stream.core;
                agenda.add(core);
                let queue = &mut run_queues[core.index()];
                let mut others = queue.running.iter().chain(&queue.waiting);
                let idle = others.all(|&other| other == at || !streams[other].may_run());
                if idle {
                    cores[core.index()].pipeline.idle_until(now);
                }
            }
            waits
        });
    }

    /// Gives up waiting where only streams of a program could run that wait for events which nobody is left to apply: the
    /// input lost them.
    fn give_up_waiting(&mut self, program: usize) {
        let needed = |&stream: &usize| self.streams.streams[stream].current.as_ref().map_or(0, |b| b.after);
        let of_program = self.blocked.iter().filter(|&&stream| self.streams.program_of(stream) == program);
        if let Some(sequence) = of_program.map(needed).min() {
            self.streams.programs[program].order.give_up_before(sequence);
            self.order_violations += 1;
            self.unblock(Time::ZERO);
        }
    }
}
