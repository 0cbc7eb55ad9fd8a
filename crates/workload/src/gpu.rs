//! Kernels of GPUs: launches of work-groups of warps, lane by lane.
//!
//! A workload says what one warp does, in pieces. Everything else is the same for all: kernels, groups of eight warps,
//! marks. A native run does the same accesses on a core, one lane after the other.

use crate::emitter::STEP_ACCESSES;
use crate::memory::{Memory, Word};
use crate::program::{Kernel, Progress};
use terrace_trace::{Event, MarkKind};

/// Lanes of a warp.
pub(crate) const LANES: u64 = 32;
/// Warps of a group: 256 work-items, as most published kernels choose.
pub(crate) const WARPS: u64 = 8;

/// What a kernel does.
pub(crate) trait Warps: Send {
    /// The kernel's name.
    const NAME: &'static str;
    /// Most accesses of a piece.
    const PIECE: u64;
    /// Work-groups of a launch.
    fn groups(&self) -> u64;
    /// Pieces of what each warp does.
    fn pieces(&self) -> u64;
    /// One of them. `warp` counts over all groups.
    fn piece<M: Memory>(&self, memory: &mut M, warp: u64, piece: u64);
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

/// One that stores.
#[inline(always)]
pub(crate) fn store_lanes<T: Word>(memory: &mut impl Memory, at: impl Fn(u64) -> u64, instructions: u16) {
    for lane in 0..LANES {
        memory.store_payload::<T>(at(lane), T::ZERO, 0, if lane == 0 { instructions } else { 0 });
    }
}

/// Launches of one kernel, one after the other.
pub(crate) struct Launches<W> {
    work: W,
    left: u64,
    group: u64,
    warp: u64,
    piece: u64,
}

impl<W: Warps> Launches<W> {
    /// So many launches.
    pub fn new(work: W, count: u64) -> Launches<W> {
        const { assert!(W::PIECE as usize <= STEP_ACCESSES, "a piece is a step") };
        Launches { work, left: count, group: 0, warp: 0, piece: 0 }
    }
}

impl<W: Warps> Kernel for Launches<W> {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.left == 0 {
            return Progress::Done;
        }
        if M::WANTS_EVENTS && self.piece == 0 {
            let mut mark =
                |kind, name: &str, value| memory.event(Event::Mark { kind, name: name.to_owned(), value });
            if self.warp == 0 {
                if self.group == 0 {
                    mark(MarkKind::KernelLaunch, W::NAME, self.work.groups());
                }
                mark(MarkKind::WorkGroup, "", WARPS * LANES);
            }
            mark(MarkKind::Warp, "", self.warp);
        }
        self.work.piece(memory, self.group * WARPS + self.warp, self.piece);
        self.piece += 1;
        if self.piece < self.work.pieces() {
            return Progress::Working;
        }
        (self.piece, self.warp) = (0, self.warp + 1);
        if self.warp == WARPS {
            (self.warp, self.group) = (0, self.group + 1);
        }
        if self.group == self.work.groups() {
            (self.group, self.left) = (0, self.left - 1);
        }
        if self.left == 0 { Progress::Done } else { Progress::Working }
    }
}
