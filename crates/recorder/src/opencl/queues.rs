//! Queues of commands: which kernels run while the host goes on.
//!
//! Oclgrind runs commands in the host's own thread, in a call that flushes a queue or blocks for it; the plugin says which
//! queue, and when a kernel is enqueued. On a device the kernel runs from then on. So what the host does between enqueueing
//! and blocking overlaps the kernel, unless the queue itself does it after the kernel: a copy, a mapping.
//!
//! A command may wait for commands of another queue (`Queues::depends`): it comes after the kernels that this queue has by
//! then. Threads of the host are told apart only by what each of their calls runs.
//!
//! Of a kernel that the host enqueues and then blocks for, nothing is said: a launch without marks means the same. Programs
//! whose calls the plugin does not see (it was not preloaded, or they look functions up themselves) are all of that kind.

use super::deed::Deed;
use std::collections::{HashMap, HashSet};
use terrace_model::AddressRange;

/// A call that may run commands of a queue now.
#[derive(Clone, Copy, Debug)]
struct Running {
    thread: u32,
    queue: u64,
    /// Whether the host blocks for them.
    blocks: bool,
}

/// What is known of queues.
#[derive(Debug, Default)]
pub(super) struct Queues {
    running: Vec<Running>,
    /// The latest launch of each queue that the host has not waited for, of those that overlap.
    under_way: HashMap<u64, u64>,
    /// What the next commands of a queue wait for.
    after: HashMap<u64, Vec<u64>>,
    /// Each queue and another that it has waited for.
    related: HashSet<(u64, u64)>,
    launches: u64,
    /// Kernels that the trace says were enqueued.
    pub marked: u64,
    /// The latest access's thread. Until more is held than this, the kernels behind it are these last ones.
    latest: Option<(u32, usize, usize)>,
}

impl Queues {
    /// A call begins that may run commands of a queue.
    pub fn run(&mut self, thread: u32, queue: u64, blocks: bool) {
        self.latest = None;
        self.running.push(Running { thread, queue, blocks });
    }

    /// The thread's call has returned: the host has waited.
    pub fn returns(&mut self, thread: u32, held: &mut Vec<Deed>) {
        self.latest = None;
        let (over, running) =
            std::mem::take(&mut self.running).into_iter().partition(|run| run.thread == thread);
        self.running = running;
        for Running { queue, blocks, .. } in over {
            if blocks {
                self.wait(queue, held);
                // What has not run by now never will.
                held.retain(|deed| *deed != Deed::Enqueue(queue));
            }
        }
    }

    /// What this queue gets next waits for what another queue has got by now.
    pub fn depends(&mut self, queue: u64, on: u64) {
        self.related.insert((queue, on));
        let after = self.after.entry(queue).or_default();
        if !after.contains(&on) {
            after.push(on);
        }
    }

    fn wait(&mut self, queue: u64, held: &mut Vec<Deed>) {
        if let Some(launch) = self.under_way.remove(&queue) {
            held.push(Deed::Wait(launch));
        }
    }

    /// The host accesses a buffer. A command of a queue comes after the queue's kernels before it and those that it waits
    /// for; those behind it and those that wait for its queue come after the command. Neighbouring accesses of one call
    /// are one, since some commands come in elements.
    pub fn access(&mut self, thread: u32, held: &mut Vec<Deed>, range: AddressRange, write: bool) {
        let behind = match self.latest {
            Some((of, length, behind)) if of == thread && length == held.len() => {
                if let Some(Deed::Access { range: last, write: wrote }) = held[..length - behind].last_mut()
                    && (last.start.0 + last.bytes, *wrote) == (range.start.0, write)
                {
                    last.bytes += range.bytes;
                    return;
                }
                behind
            }
            _ => self.put_behind(thread, held),
        };
        held.insert(held.len() - behind, Deed::Access { range, write });
        self.latest = Some((thread, held.len(), behind));
    }

    /// Waits for kernels that are under way and come before what the thread's call does, and holds those that come after
    /// it last. Returns how many these are.
    fn put_behind(&mut self, thread: u32, held: &mut Vec<Deed>) -> usize {
        let running = |run: &&Running| run.thread == thread;
        let queues: Vec<u64> = self.running.iter().filter(running).map(|run| run.queue).collect();
        for queue in &queues {
            for other in self.after.remove(queue).unwrap_or_default() {
                self.wait(other, held);
            }
            self.wait(*queue, held);
        }
        let waits = |queue: &u64| {
            self.after.get(queue).is_some_and(|after| after.iter().any(|on| queues.contains(on)))
        };
        let comes_after =
            |deed: &Deed| matches!(deed, Deed::Enqueue(queue) if queues.contains(queue) || waits(queue));
        let behind: Vec<Deed> = held.iter().copied().filter(comes_after).collect();
        held.retain(|deed| !comes_after(deed));
        held.extend(&behind);
        behind.len()
    }

    /// Whether a kernel is under way that the host has not waited for.
    pub fn overlap(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// A kernel begins in a call of this thread: the place at which it was enqueued, if the host did something since or
    /// goes on.
    pub fn begin(&mut self, thread: u32, held: &mut Vec<Deed>) -> Option<usize> {
        self.latest = None;
        let place = |queue: u64| held.iter().position(|deed| *deed == Deed::Enqueue(queue));
        let mine = self.running.iter().filter(|run| run.thread == thread);
        let Some((at, run)) = mine.clone().find_map(|run| Some((place(run.queue)?, *run))) else {
            // A command of the queue waits for a kernel of another, which runs now and is over when the command begins.
            let waits_for = |on: u64| mine.clone().any(|run| self.related.contains(&(run.queue, on)));
            let related = |deed: &Deed| matches!(deed, Deed::Enqueue(on) if waits_for(*on));
            if let Some(at) = held.iter().position(related) {
                held.remove(at);
            }
            return None;
        };
        self.after.remove(&run.queue);
        let is_last = held[at..].iter().all(|deed| matches!(deed, Deed::Enqueue(_)));
        if run.blocks && is_last && !self.under_way.contains_key(&run.queue) {
            held.remove(at);
            return None;
        }
        self.launches += 1;
        self.under_way.insert(run.queue, self.launches);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::Deed::{Enqueue, Wait};
    use super::*;

    const THREAD: u32 = 1;

    fn access(start: u64) -> Deed {
        Deed::Access { range: AddressRange::new(start, 64), write: true }
    }

    fn write(queues: &mut Queues, held: &mut Vec<Deed>, start: u64) {
        queues.access(THREAD, held, AddressRange::new(start, 64), true);
    }

    #[test]
    fn a_kernel_that_is_blocked_for_at_once_has_no_marks() {
        let (mut queues, mut held) = (Queues::default(), vec![access(0), Enqueue(1), Enqueue(1)]);
        queues.run(THREAD, 1, true);
        assert_eq!((queues.begin(THREAD, &mut held), held.len()), (None, 2));
        // A copy of the queue between its kernels.
        write(&mut queues, &mut held, 64);
        assert_eq!(held, [access(0), access(64), Enqueue(1)]);
        assert_eq!(queues.begin(THREAD, &mut held), None);
        queues.returns(THREAD, &mut held);
        assert_eq!(held, [access(0), access(64)]);
    }

    #[test]
    fn what_the_host_does_before_it_blocks_is_beside_the_kernel() {
        let (mut queues, mut held) = (Queues::default(), vec![Enqueue(1)]);
        write(&mut queues, &mut held, 0);
        queues.run(THREAD, 1, true);
        assert_eq!((queues.begin(THREAD, &mut held), &held[..]), (Some(0), &[Enqueue(1), access(0)][..]));
        // The collector takes them all.
        held.clear();
        queues.returns(THREAD, &mut held);
        assert_eq!(held, [Wait(1)]);
    }

    #[test]
    fn what_another_queue_does_is_beside_the_kernel_and_what_its_own_does_is_after_it() {
        let (mut queues, mut held) = (Queues::default(), vec![Enqueue(1)]);
        queues.run(THREAD, 1, false);
        assert_eq!(queues.begin(THREAD, &mut held), Some(0), "the host goes on");
        queues.returns(THREAD, &mut held);
        held.clear();
        queues.run(THREAD, 2, true);
        write(&mut queues, &mut held, 0);
        queues.returns(THREAD, &mut held);
        assert_eq!(held, [access(0)]);
        queues.run(THREAD, 1, true);
        write(&mut queues, &mut held, 64);
        queues.returns(THREAD, &mut held);
        assert_eq!(held, [access(0), Wait(1), access(64)]);
    }

    #[test]
    fn kernels_that_never_run_are_forgotten() {
        let (mut queues, mut held) = (Queues::default(), vec![Enqueue(1), Enqueue(2)]);
        queues.run(THREAD, 1, true);
        queues.returns(THREAD, &mut held);
        assert_eq!(held, [Enqueue(2)]);
        assert_eq!(queues.begin(THREAD, &mut held), None, "nobody said which queue runs");
    }

    #[test]
    fn neighbouring_accesses_of_a_call_are_one_and_take_no_time_each() {
        let (mut queues, mut held) = (Queues::default(), vec![Enqueue(2), Enqueue(1)]);
        queues.run(THREAD, 1, true);
        for byte in 0..1_000_000 {
            queues.access(THREAD, &mut held, AddressRange::new(4096 + byte, 1), true);
        }
        let filled = Deed::Access { range: AddressRange::new(4096, 1_000_000), write: true };
        assert_eq!(held, [Enqueue(2), filled, Enqueue(1)]);
        // Rows of a rectangle: with a search of all that is held for each, this takes minutes.
        for row in 1..200_000 {
            queues.access(THREAD, &mut held, AddressRange::new(row << 20, 64), true);
        }
        assert_eq!((held.len(), held.last()), (200_002, Some(&Enqueue(1))));
        // Another call's access is another, however near.
        queues.returns(THREAD, &mut held);
        queues.run(THREAD, 1, true);
        write(&mut queues, &mut held, (199_999 << 20) + 64);
        assert_eq!(held.len(), 200_002, "one more, and the kernel that never ran is forgotten");
    }

    #[test]
    fn a_command_comes_after_the_other_queues_kernel_that_it_waits_for() {
        let (mut queues, mut held) = (Queues::default(), vec![Enqueue(1)]);
        queues.run(THREAD, 1, false);
        assert_eq!(queues.begin(THREAD, &mut held), Some(0));
        queues.returns(THREAD, &mut held);
        held.clear();
        queues.depends(2, 1);
        queues.run(THREAD, 2, false);
        write(&mut queues, &mut held, 0);
        assert_eq!(held, [Wait(1), access(0)]);
        // The next copy waits for nothing, but the kernel for the copy.
        held = vec![Enqueue(1)];
        queues.depends(1, 2);
        write(&mut queues, &mut held, 128);
        assert_eq!(held, [access(128), Enqueue(1)]);
        // The copy's call runs the kernel too, if what comes next in the queue waits for it.
        assert_eq!((queues.begin(THREAD, &mut held), &held[..]), (None, &[access(128)][..]));
    }

    #[test]
    fn threads_do_not_end_each_others_calls() {
        let (mut queues, mut held) = (Queues::default(), vec![Enqueue(1), Enqueue(2)]);
        queues.run(1, 1, true);
        queues.run(2, 2, true);
        queues.returns(1, &mut held);
        assert_eq!(held, [Enqueue(2)]);
        assert_eq!((queues.begin(2, &mut held), held.len()), (None, 0));
    }
}
