//! What holds of kernels that run while the CPU goes on: [`MarkKind::KernelEnqueue`] and [`MarkKind::KernelWait`].
//!
//! A thread enqueues a kernel before the kernel's launch in the order of the input, and waits for it after all of its
//! work. So whoever reads a wait has read everything that the thread waits for.

use crate::{Agent, Event, MarkKind, StreamId};
use std::collections::HashMap;

/// Kernels of each process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernels {
    /// Process of each stream, and who runs it. A slice of a trace does not say.
    streams: HashMap<StreamId, (u32, Agent)>,
    processes: HashMap<u32, Order>,
}

/// Kernels of one process, counted from where the input begins.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    enqueued: u64,
    /// Enqueued kernels whose launch has come.
    launched: u64,
    /// Enqueued kernels that are waited for.
    waited: u64,
    /// The latest launch is of an enqueued kernel.
    is_enqueued: bool,
}

impl Kernels {
    /// Takes in an event: what is wrong with it, and what is right.
    pub fn take(&mut self, stream: StreamId, event: &Event) -> Option<(String, String)> {
        let (kind, value) = match event {
            Event::Spawn { process, agent, .. } => {
                self.streams.insert(stream, (*process, *agent));
                return None;
            }
            Event::Mark { kind, value, .. } => (*kind, *value),
            _ => return None,
        };
        let ours =
            [MarkKind::KernelEnqueue, MarkKind::KernelWait, MarkKind::KernelLaunch, MarkKind::WorkGroup];
        if !ours.contains(&kind) {
            return None;
        }
        let (process, agent) = match self.streams.get(&stream) {
            Some((process, agent)) => (*process, Some(*agent)),
            None => (0, None),
        };
        let order = self.processes.entry(process).or_default();
        match kind {
            MarkKind::KernelEnqueue | MarkKind::KernelWait if agent == Some(Agent::Gpu) => Some((
                format!("{kind:?} on the stream of a GPU"),
                "it on the stream of the CPU's thread that enqueues or waits".to_owned(),
            )),
            MarkKind::KernelEnqueue => {
                order.enqueued += 1;
                None
            }
            MarkKind::KernelWait => {
                let waited = order.enqueued.saturating_sub(value);
                if waited > order.launched {
                    let value = format!("KernelWait for kernel {waited} of those enqueued");
                    let rule = format!("its launch before that, and {} were launched", order.launched);
                    return Some((value, rule));
                }
                order.waited = order.waited.max(waited);
                None
            }
            MarkKind::KernelLaunch => {
                order.is_enqueued = order.launched < order.enqueued;
                order.launched += u64::from(order.is_enqueued);
                None
            }
            _ if order.is_enqueued && order.waited == order.launched => Some((
                "WorkGroup of a kernel that was waited for".to_owned(),
                "all of a kernel before the wait for it".to_owned(),
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MarkKind::{KernelEnqueue, KernelLaunch, KernelWait, WorkGroup};

    const HOST: u32 = 0;
    const GPU: u32 = 1;

    fn check(marks: &[(u32, MarkKind, u64)]) -> Vec<Option<(String, String)>> {
        let mut kernels = Kernels::default();
        for (thread, agent) in [(HOST, Agent::Cpu), (GPU, Agent::Gpu)] {
            let name = String::new();
            let spawn = Event::Spawn { process: 3, thread, agent, forked_from: None, os_id: 0, name };
            assert_eq!(kernels.take(StreamId(thread), &spawn), None);
        }
        let take = |(stream, kind, value): &(u32, MarkKind, u64)| {
            let mark = Event::Mark { kind: *kind, name: String::new(), value: *value };
            kernels.take(StreamId(*stream), &mark)
        };
        marks.iter().map(take).collect()
    }

    fn last(marks: &[(u32, MarkKind, u64)]) -> String {
        let mut said = check(marks);
        let last = said.pop().flatten();
        assert!(said.iter().all(Option::is_none), "{said:?}");
        last.map_or_else(String::new, |(value, rule)| format!("{value}: expected {rule}"))
    }

    #[test]
    fn a_wait_comes_after_all_of_its_kernel() {
        let two = [
            (HOST, KernelEnqueue, 0),
            (HOST, KernelEnqueue, 0),
            (GPU, KernelLaunch, 1),
            (GPU, WorkGroup, 32),
        ];
        let and = |more: &[(u32, MarkKind, u64)]| last(&[&two[..], more].concat());
        assert_eq!(
            and(&[
                (HOST, KernelWait, 1),
                (GPU, KernelLaunch, 1),
                (GPU, WorkGroup, 32),
                (HOST, KernelWait, 0)
            ]),
            ""
        );
        assert_eq!(
            and(&[(HOST, KernelWait, 0)]),
            "KernelWait for kernel 2 of those enqueued: expected its launch before that, and 1 were launched"
        );
        assert_eq!(
            and(&[(HOST, KernelWait, 1), (GPU, WorkGroup, 32)]),
            "WorkGroup of a kernel that was waited for: expected all of a kernel before the wait for it"
        );
    }

    #[test]
    fn a_gpu_neither_enqueues_nor_waits() {
        for kind in [KernelEnqueue, KernelWait] {
            let said = last(&[(GPU, kind, 0)]);
            assert!(said.starts_with(&format!("{kind:?} on the stream of a GPU: expected")), "{said}");
        }
    }

    #[test]
    fn kernels_that_nobody_enqueued_and_slices_of_traces_are_right() {
        assert_eq!(
            last(&[(GPU, KernelLaunch, 1), (GPU, WorkGroup, 32), (HOST, KernelWait, 0), (GPU, WorkGroup, 1)]),
            ""
        );
        // A slice that begins behind the enqueueing, without any `Spawn`.
        let mut kernels = Kernels::default();
        for (stream, kind) in [(1, WorkGroup), (0, KernelWait), (1, KernelLaunch), (1, WorkGroup)] {
            let mark = Event::Mark { kind, name: String::new(), value: 0 };
            assert_eq!(kernels.take(StreamId(stream), &mark), None);
        }
    }
}
