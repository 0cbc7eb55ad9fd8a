//! Queues of commands: which kernels run while the host goes on.
//!
//! Oclgrind runs commands in the host's own thread, in a call that flushes a queue or blocks for it; the plugin says which
//! queue, and when a kernel is enqueued. On a device the kernel runs from then on. So what the host does between enqueueing
//! and blocking overlaps the kernel, unless the queue itself does it after the kernel: a copy, a mapping.
//!
//! Of a kernel that the host enqueues and then blocks for, nothing is said: a launch without marks means the same. Programs
//! whose calls the plugin does not see (it was not preloaded, or they look functions up themselves) are all of that kind.

use super::deed::Deed;
use std::collections::HashMap;

/// What is known of queues.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Queues whose commands may run now, and whether the host blocks for them.
    running: Vec<(u64, bool)>,
    /// The latest launch of each queue that the host has not waited for, of those that overlap.
    under_way: HashMap<u64, u64>,
    launches: u64,
    /// Kernels that the trace says were enqueued.
    pub marked: u64,
}

impl Queues {
    /// A call begins that may run commands of a queue.
    pub fn run(&mut self, queue: u64, blocks: bool) {
        self.running.push((queue, blocks));
    }

    /// The call has returned: the host has waited.
    pub fn returns(&mut self, held: &mut Vec<Deed>) {
        for (queue, blocks) in std::mem::take(&mut self.running) {
            if blocks {
                self.wait(queue, held);
                // What has not run by now never will.
                held.retain(|deed| *deed != Deed::Enqueue(queue));
            }
        }
    }

    fn wait(&mut self, queue: u64, held: &mut Vec<Deed>) {
        if let Some(launch) = self.under_way.remove(&queue) {
            held.push(Deed::Wait(launch));
        }
    }

    /// The host accesses a buffer. A command of a queue comes after the queue's kernels before it, and those behind it come
    /// after the command.
    pub fn access(&mut self, held: &mut Vec<Deed>, access: Deed) {
        for (queue, _) in self.running.clone() {
            self.wait(queue, held);
        }
        let of_running = |deed: &Deed| matches!(deed, Deed::Enqueue(queue) if self.running.iter().any(|run| run.0 == *queue));
        let behind: Vec<Deed> = held.iter().copied().filter(of_running).collect();
        held.retain(|deed| !of_running(deed));
        held.push(access);
        held.extend(behind);
    }

    /// Whether a kernel is under way that the host has not waited for.
    pub fn overlap(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// A kernel begins: the place at which it was enqueued, if the host did something since or goes on.
    pub fn begin(&mut self, held: &mut Vec<Deed>) -> Option<usize> {
        let place = |queue: u64| held.iter().position(|deed| *deed == Deed::Enqueue(queue));
        let (at, queue, blocks) =
            self.running.iter().find_map(|(queue, blocks)| Some((place(*queue)?, *queue, *blocks)))?;
        let is_last = held[at..].iter().all(|deed| matches!(deed, Deed::Enqueue(_)));
        if blocks && is_last && !self.under_way.contains_key(&queue) {
            held.remove(at);
            return None;
        }
        self.launches += 1;
        self.under_way.insert(queue, self.launches);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::Deed::{Enqueue, Wait};
    use super::*;
    use terrace_model::AddressRange;

    fn access(start: u64) -> Deed {
        Deed::Access { range: AddressRange::new(start, 64), write: true }
    }

    #[test]
    fn a_kernel_that_is_blocked_for_at_once_has_no_marks() {
        let (mut queues, mut held) = (Queues::default(), vec![access(0), Enqueue(1), Enqueue(1)]);
        queues.run(1, true);
        assert_eq!((queues.begin(&mut held), held.len()), (None, 2));
        // A copy of the queue between its kernels.
        queues.access(&mut held, access(64));
        assert_eq!(held, [access(0), access(64), Enqueue(1)]);
        assert_eq!(queues.begin(&mut held), None);
        queues.returns(&mut held);
        assert_eq!(held, [access(0), access(64)]);
    }

    #[test]
    fn what_the_host_does_before_it_blocks_is_beside_the_kernel() {
        let (mut queues, mut held) = (Queues::default(), vec![Enqueue(1)]);
        queues.access(&mut held, access(0));
        queues.run(1, true);
        assert_eq!((queues.begin(&mut held), &held[..]), (Some(0), &[Enqueue(1), access(0)][..]));
        // The collector takes them all.
        held.clear();
        queues.returns(&mut held);
        assert_eq!(held, [Wait(1)]);
    }

    #[test]
    fn what_another_queue_does_is_beside_the_kernel_and_what_its_own_does_is_after_it() {
        let (mut queues, mut held) = (Queues::default(), vec![Enqueue(1)]);
        queues.run(1, false);
        assert_eq!(queues.begin(&mut held), Some(0), "the host goes on");
        queues.returns(&mut held);
        held.clear();
        queues.run(2, true);
        queues.access(&mut held, access(0));
        queues.returns(&mut held);
        assert_eq!(held, [access(0)]);
        queues.run(1, true);
        queues.access(&mut held, access(64));
        queues.returns(&mut held);
        assert_eq!(held, [access(0), Wait(1), access(64)]);
    }

    #[test]
    fn kernels_that_never_run_are_forgotten() {
        let (mut queues, mut held) = (Queues::default(), vec![Enqueue(1), Enqueue(2)]);
        queues.run(1, true);
        queues.returns(&mut held);
        assert_eq!(held, [Enqueue(2)]);
        assert_eq!(queues.begin(&mut held), None, "nobody said which queue runs");
    }
}
