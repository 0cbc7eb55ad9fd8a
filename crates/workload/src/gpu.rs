//! Kernels of GPUs: launches of work-groups of warps, lane by lane.
//!
//! A workload says what one warp does, in pieces. Everything else is the same for all: kernels, groups of eight warps,
//! marks. A native run does the same accesses on a core, one lane after the other.

use crate::WorkloadInfo;
use crate::beside::{Beside, Kernels};
use crate::emitter::STEP_ACCESSES;
use crate::layout::Layout;
use crate::memory::{Backing, Memory, Word};
use crate::opencl::session::Argument;
use crate::parameters::{Parameters, Problem};
use crate::program::{Kernel, Progress};
use terrace_model::parameters::{Declared, ParameterError, ParameterInfo};
use terrace_trace::{Event, MarkKind};

/// Lanes of a warp.
pub(crate) const LANES: u64 = 32;
/// Warps of a group: 256 work-items, as most published kernels choose.
pub(crate) const WARPS: u64 = 8;

/// Where a program is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The launch, from 0.
    pub launch: u64,
    /// The warp, over all groups.
    pub warp: u64,
    /// What comes next of all that the warp does.
    pub piece: u64,
}

/// What a program's kernels do, one launch after the other.
pub(crate) trait Warps: Send {
    /// Most accesses of a piece.
    const PIECE: u64;
    /// Warps of a group.
    const WARPS: u64 = WARPS;
    /// Name of a launch's kernel.
    fn name(&self, launch: u64) -> &'static str;
    /// Work-groups of a launch, one at least.
    fn groups(&self, launch: u64) -> u64;
    /// Pieces of what each of its warps does, one at least.
    fn pieces(&self, launch: u64) -> u64;
    /// One of them.
    fn piece<M: Memory>(&self, memory: &mut M, at: Place);
}

/// One instruction of a warp that loads: `at` says where each lane does. `instructions` of each lane, this one included;
/// `depends` on the lane's load before.
#[inline(always)]
pub(crate) fn load_lanes<T: Word>(
    memory: &mut impl Memory,
    at: impl Fn(u64) -> u64,
    depends: bool,
    instructions: u16,
) {
    for lane in 0..LANES {
        let depends_on = if depends { LANES as u8 } else { 0 };
        memory.load_payload::<T>(at(lane), depends_on, if lane == 0 { instructions } else { 0 });
    }
}

/// One instruction of those lanes that `active` says.
#[inline(always)]
pub(crate) fn load_some<T: Word>(
    memory: &mut impl Memory,
    active: impl Fn(u64) -> bool,
    at: impl Fn(u64) -> u64,
    depends: bool,
    mut instructions: u16,
) {
    for lane in (0..LANES).filter(|lane| active(*lane)) {
        let depends_on = if depends { LANES as u8 } else { 0 };
        memory.load_payload::<T>(at(lane), depends_on, instructions);
        instructions = 0;
    }
}

/// Stores of those lanes that `active` says.
#[inline(always)]
pub(crate) fn store_some<T: Word>(
    memory: &mut impl Memory,
    active: impl Fn(u64) -> bool,
    at: impl Fn(u64) -> u64,
    mut instructions: u16,
) {
    for lane in (0..LANES).filter(|lane| active(*lane)) {
        memory.store_payload::<T>(at(lane), T::ZERO, 0, instructions);
        instructions = 0;
    }
}

/// One that stores.
#[inline(always)]
pub(crate) fn store_lanes<T: Word>(memory: &mut impl Memory, at: impl Fn(u64) -> u64, instructions: u16) {
    for lane in 0..LANES {
        memory.store_payload::<T>(at(lane), T::ZERO, 0, if lane == 0 { instructions } else { 0 });
    }
}

/// Launches, one after the other.
pub(crate) struct Launches<W> {
    work: W,
    launch: u64,
    launches: u64,
    group: u64,
    warp: u64,
    piece: u64,
    /// Where a thread of the CPU enqueues them.
    kernels: Option<Kernels>,
}

impl<W: Warps> Launches<W> {
    /// So many launches.
    pub fn new(work: W, launches: u64, kernels: Option<Kernels>) -> Launches<W> {
        const { assert!(W::PIECE as usize <= STEP_ACCESSES, "a piece is a step") };
        Launches { work, launch: 0, launches, group: 0, warp: 0, piece: 0, kernels }
    }
}

impl<W: Warps> Kernel for Launches<W> {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.launch == self.launches {
            return Progress::Done;
        }
        if self.kernels.as_ref().is_some_and(|kernels| kernels.enqueued() <= self.launch) {
            return Progress::Blocked;
        }
        if M::WANTS_EVENTS && self.piece == 0 {
            let mut mark =
                |kind, name: &str, value| memory.event(Event::Mark { kind, name: name.to_owned(), value });
            if self.warp == 0 {
                if self.group == 0 {
                    let name = self.work.name(self.launch);
                    mark(MarkKind::KernelLaunch, name, self.work.groups(self.launch));
                }
                mark(MarkKind::WorkGroup, "", W::WARPS * LANES);
            }
            mark(MarkKind::Warp, "", self.warp);
        }
        let warp = self.group * W::WARPS + self.warp;
        self.work.piece(memory, Place { launch: self.launch, warp, piece: self.piece });
        self.piece += 1;
        if self.piece < self.work.pieces(self.launch) {
            return Progress::Working;
        }
        (self.piece, self.warp) = (0, self.warp + 1);
        if self.warp == W::WARPS {
            (self.warp, self.group) = (0, self.group + 1);
        }
        if self.group == self.work.groups(self.launch) {
            (self.group, self.launch) = (0, self.launch + 1);
            self.kernels.iter().for_each(Kernels::end);
        }
        if self.launch == self.launches { Progress::Done } else { Progress::Working }
    }
}

/// A program for a GPU: what its file says.
pub(crate) trait OnGpu: Warps + Clone + Sync + Sized + 'static {
    /// What a user can choose.
    type Parameters: Parameters;
    /// What it says about itself.
    const INFO: &'static WorkloadInfo;
    /// The program with its data structures in `layout`.
    fn new(parameters: &Self::Parameters, layout: &mut Layout) -> Result<Self, Problem>;
    /// Launches of its kernels.
    fn launches(&self) -> u64;
    /// Accesses of single lanes in all of them.
    fn accesses(&self) -> u64;

    /// The workload's kernels in OpenCL C, where it has them, called as [`Warps::name`] says. They make the accesses of
    /// [`Warps::piece`], and call data structures as the layout does.
    const OPENCL: Option<&'static str> = None;
    /// What the kernel of a launch is called with.
    fn arguments(&self, _launch: u64) -> Vec<Argument> {
        Vec::new()
    }
    /// Writes the input.
    fn fill(&self, _memory: &Backing) {}
    /// Computes what the kernels compute, on the host.
    fn compute(&self, _memory: &Backing) {}
}

/// A program's own parameters, and those of the threads that all of them may have beside their kernels.
#[derive(Clone, Debug, Default)]
pub(crate) struct WithThreads<P> {
    pub own: P,
    pub beside: Beside,
}

impl<P: Parameters> Declared for WithThreads<P> {
    fn declare(values: Option<&WithThreads<P>>, prefix: &str, declared: &mut Vec<ParameterInfo>) {
        P::declare(values.map(|values| &values.own), prefix, declared);
        Beside::declare(values.map(|values| &values.beside), prefix, declared);
    }

    fn check(&self) -> Result<(), ParameterError> {
        self.own.check()?;
        self.beside.check()
    }
}

impl<P: Parameters> Parameters for WithThreads<P> {
    fn set(&mut self, key: &str, text: &str) -> Result<bool, ParameterError> {
        Ok(self.own.set(key, text)? || self.beside.set(key, text)?)
    }

    fn get(&self, key: &str) -> Option<String> {
        self.own.get(key).or_else(|| self.beside.get(key))
    }
}
