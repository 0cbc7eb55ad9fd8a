//! What threads and the GPU do next while both go on, as far as it has been read.

use super::sms::Group;
use super::thread::HostAccess;
use std::collections::{HashMap, VecDeque};
use terrace_model::{SpaceId, Time};

/// What a thread does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    Access(HostAccess),
    Compute(u64),
    /// Enqueues a kernel.
    Enqueue,
    /// Waits for the kernels enqueued so far, but for so many.
    Wait(u64),
}

/// What the GPU does.
#[derive(Debug)]
pub(super) enum OfGpu {
    Launch(SpaceId),
    Group(Group),
    /// All of the kernel has been read.
    End,
}

/// A thread's input.
#[derive(Debug)]
pub(super) struct Queue {
    pub space: SpaceId,
    pub deeds: VecDeque<Deed>,
    /// The thread waits until so many kernels are over, from that time on.
    pub waits: Option<(u64, Time)>,
    /// The input of this queue has ended.
    pub ended: bool,
}

/// Threads and the GPU side by side.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    /// Beside [`super::state::Engine::threads`].
    pub queues: Vec<Queue>,
    pub of_stream: HashMap<u32, usize>,
    pub gpu: VecDeque<OfGpu>,
    pub queued: usize,
    /// Kernels in the input so far: enqueued, and of those launched.
    pub read: [u64; 2],
    /// The kernel launched last may have groups that have yet to come.
    pub reads_kernel: bool,
    /// When each kernel was enqueued that has not begun.
    pub enqueued: VecDeque<Time>,
    /// Kernels that threads have enqueued, and those that are over.
    pub enqueues: u64,
    pub over: u64,
    /// When the GPU is free for the next.
    pub free: Time,
    /// Everybody has come as far, or waits.
    pub present: Time,
}

impl Overlap {
    /// A group of the kernel launched last has been read.
    pub fn queue_group(&mut self, group: Group) {
        self.queued += steps(&group);
        self.gpu.push_back(OfGpu::Group(group));
    }
}

/// Instructions of a group's warps.
pub(super) fn steps(group: &Group) -> usize {
    group.iter().map(|warp| warp.steps.len()).sum()
}
