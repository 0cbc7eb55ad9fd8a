//! The processors that a policy and its orders run on.
//!
//! Beside those of the design there are as many as they ask for, and they take no core's time. On the design's own cores
//! ([`KernelThreads::MachineCores`]) they run where the program leaves one idle, and otherwise in place of its threads,
//! which they preempt, as threads that wake do; with every time slice they come to another core, as the kernel balances
//! load. They are never held up themselves, but a copy has no more threads than the machine has cores.

use super::State;
use crate::machine::Machine;
use crate::os::KernelThreads;
use terrace_model::{CoreId, Time};

/// A kernel thread: its place among those that are at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelThread(usize);

/// The policy's own thread.
pub(super) const POLICY: KernelThread = KernelThread(0);

/// The kernel threads at work, and the cores that the program uses.
#[derive(Clone, Debug)]
pub(crate) struct Processors {
    threads: KernelThreads,
    /// The cores of the machine, or those that run the virtual CPUs of the guest.
    cores: Vec<CoreId>,
    /// Whether each thread is taken. The first is the policy's.
    taken: Vec<bool>,
    /// Cores with a thread of the program that could run, as of the last call of the engine.
    busy: Vec<CoreId>,
    /// How long they held the program's threads up.
    pub preempted: Time,
}

impl Processors {
    pub fn new(threads: KernelThreads, cores: Vec<CoreId>) -> Processors {
        Processors { threads, cores, taken: vec![true], busy: Vec::new(), preempted: Time::ZERO }
    }

    /// Whether they share the design's cores with the program.
    pub fn share_cores(&self) -> bool {
        self.threads == KernelThreads::MachineCores
    }

    /// Notes which cores have a thread of the program that could run.
    pub fn note_busy(&mut self, busy: &[CoreId]) {
        self.busy = busy.iter().copied().filter(|core| self.cores.contains(core)).collect();
    }

    /// Most threads that may share a copy.
    pub(super) fn most_threads(&self) -> u16 {
        if self.share_cores() { u16::try_from(self.cores.len()).unwrap_or(u16::MAX) } else { u16::MAX }
    }

    /// Places for `count` threads.
    pub(super) fn take(&mut self, count: usize) -> Vec<KernelThread> {
        let mut kernel_threads = Vec::with_capacity(count);
        for at in 0.. {
            if kernel_threads.len() == count {
                break;
            }
            if at == self.taken.len() {
                self.taken.push(false);
            }
            if !std::mem::replace(&mut self.taken[at], true) {
                kernel_threads.push(KernelThread(at));
            }
        }
        kernel_threads
    }

    /// The work of these threads is done.
    pub(super) fn leave(&mut self, kernel_threads: &[KernelThread]) {
        kernel_threads.iter().for_each(|thread| self.taken[thread.0] = false);
    }

    /// The core of the program's that a thread has at `now`; none when one is idle. Threads beyond the number of cores are
    /// spread over all of them anew, idle ones first.
    fn core_of(&self, thread: KernelThread, now: Time, timeslice: Time) -> Option<CoreId> {
        let rank = (thread.0 % self.cores.len().max(1)).checked_sub(self.cores.len() - self.busy.len())?;
        let turn = (now.0 / timeslice.0) as usize;
        self.busy.get((rank + turn) % self.busy.len().max(1)).copied()
    }
}

impl State {
    /// A kernel thread works from `begin` for `span`.
    pub(super) fn occupy(&mut self, machine: &mut Machine, thread: KernelThread, begin: Time, span: Time) {
        if !self.processors.share_cores() {
            return;
        }
        let (timeslice, end) = (machine.shared.timing.timeslice, begin + span);
        let mut now = begin;
        while now < end {
            let slice_ends = Time((now.0 / timeslice.0 + 1).saturating_mul(timeslice.0)).min(end);
            if let Some(core) = self.processors.core_of(thread, now, timeslice) {
                machine.cores[core.index()].pipeline.kernel(slice_ends - now);
                self.processors.preempted += slice_ends - now;
            }
            now = slice_ends;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_cores_come_first_and_the_others_take_turns() {
        let mut processors = Processors::new(KernelThreads::MachineCores, CoreId::first(4).collect());
        processors.busy = [0, 2, 3].map(CoreId).to_vec();
        let slice = Time::from_nanos(100);
        let core = |thread, nanos| processors.core_of(KernelThread(thread), Time::from_nanos(nanos), slice);
        assert_eq!(core(0, 0), None, "core 1 is idle");
        assert_eq!([core(1, 0), core(2, 0), core(3, 0)], [0, 2, 3].map(|core| Some(CoreId(core))));
        assert_eq!(
            [core(1, 99), core(1, 100), core(1, 250), core(1, 300)].map(Option::unwrap),
            [0, 2, 3, 0].map(CoreId)
        );
        // More threads than cores: each core gets its second before one gets its third.
        assert_eq!([4, 5, 6, 7].map(|thread| core(thread, 0)), [0, 1, 2, 3].map(|thread| core(thread, 0)));
    }

    #[test]
    fn kernel_threads_are_used_again() {
        let mut processors = Processors::new(KernelThreads::MachineCores, CoreId::first(4).collect());
        let (one, two) = (processors.take(2), processors.take(1));
        assert_eq!(
            (&*one, &*two),
            (&[KernelThread(1), KernelThread(2)][..], &[KernelThread(3)][..]),
            "the policy has the first"
        );
        processors.leave(&one);
        assert_eq!(processors.take(3), [KernelThread(1), KernelThread(2), KernelThread(4)]);
    }
}
