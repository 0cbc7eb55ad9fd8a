//! A machine with a GPU: all that its files work on.

use super::paths::Paths;
use super::queues::Overlap;
use super::sms::{Group, Sms};
use super::thread::HostThread;
use crate::machine::{Machine, TierLines};
use crate::observe::Objects;
use crate::outcome::Options;
use crate::tiering::Tiering;
use std::collections::{HashMap, HashSet};
use terrace_model::{SpaceId, Time};
use terrace_trace::Agent;

/// What was counted of policies, shootdowns and copies beside kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManageCounters {
    /// Pages that changed their place and that the GPU had touched.
    pub shootdowns: u64,
    /// Pages that changed their place and that the GPU had not touched.
    pub avoided: u64,
    /// For how long the whole GPU stalled.
    pub stalled: Time,
    /// Bytes copied before kernels, and for how long kernels waited for that.
    pub copied: u64,
    pub copy_time: Time,
    /// Pages that had no room when the last of these copies was made.
    pub without_room: u64,
    /// Pages that were placed before kernels.
    pub populated: u64,
}

/// What was counted of threads that go on while kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OverlapCounters {
    /// Kernels that threads enqueued.
    pub kernels: u64,
    /// Accesses of threads while a kernel ran.
    pub accesses: u64,
    /// For how long threads waited for kernels, summed.
    pub waited: Time,
}

/// A machine with a GPU, at work.
pub(super) struct Engine {
    pub machine: Machine,
    pub tiering: Option<Tiering>,
    pub paths: Paths,
    pub sms: Sms,
    pub managed: ManageCounters,
    /// For how long the GPU stalls for a page that changes its place.
    pub shootdown: Time,
    /// Data structures, where their pages are placed before kernels.
    pub populates: Option<Objects>,
    pub copies_at_launch: bool,
    pub options: Options,
    /// Process of each stream, and whether the GPU runs it.
    pub streams: HashMap<u32, (SpaceId, Agent)>,
    /// Streams that have ended.
    pub exited: HashSet<u32>,
    pub spaces: HashMap<u32, SpaceId>,
    pub space: SpaceId,
    /// The group that is being read.
    pub group: Option<Group>,
    /// The group's warp that is being read.
    pub reading: usize,
    /// Threads of the CPU: one, unless they go on while kernels run.
    pub threads: Vec<HostThread>,
    pub host_cycle: Time,
    pub host_outstanding: u32,
    pub cores: usize,
    /// Threads and the GPU side by side, where a thread has enqueued a kernel.
    pub overlap: Option<Box<Overlap>>,
    pub overlapped: OverlapCounters,
    /// Time of everything so far.
    pub now: Time,
    /// When the kernel that runs began.
    pub began: Option<Time>,
    /// What memory had carried then.
    pub before: Vec<TierLines>,
    /// Time and traffic of kernels.
    pub kernel_time: Time,
    pub kernel_traffic: Vec<TierLines>,
    pub kernels: u64,
    pub lanes: [u64; 2],
    pub host_accesses: u64,
    pub host_instructions: u64,
    pub stopped: bool,
}
