//! What the kernel, or the memory controller, keeps for a translation scheme: one for all cores.
//!
//! A scheme whose lines have virtual names says here what a name means, and what memory stands behind it. A controller that
//! gives memory by itself does it when a line is read from memory ([`KernelState::fill`]) or leaves the caches dirty
//! ([`KernelState::evict`]).

use super::tlbs::TlbCounters;
use crate::os::{Fault, Os, OsError};
use std::fmt::Debug;
use std::ops::Range;
use terrace_model::{AddressRange, CacheLine, CoreId, Frame, Line, SpaceId, Time, VirtAddr};
use terrace_policy::Placement;
use terrace_trace::Event;

/// A policy that says where memory shall lie that a controller gives.
pub trait Placer {
    /// Where the page at an address shall lie.
    fn place(&mut self, os: &mut Os, space: SpaceId, addr: VirtAddr, write: bool, now: Time) -> Placement;

    /// The page was given memory.
    fn placed(&mut self, os: &Os, space: SpaceId, addr: VirtAddr, given: &Fault);
}

/// A block of the program, as a controller that counts by block knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedBlock {
    /// The process.
    pub space: SpaceId,
    /// The address ranges of the process that the block holds, in their order.
    pub parts: Vec<AddressRange>,
    /// Misses of the last level that read its memory, since they were last asked for.
    pub misses: u64,
}

/// What stands behind a line of the last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A physical line.
    Memory(Line),
    /// A physical line of memory that was given just now.
    Given(Given),
    /// No memory yet, and what is read is zero: a read takes no memory access, a write-back nothing to write.
    Zero,
    /// Nothing, and nothing may be read: the address is not mapped. A prefetch ends here.
    Fault,
}

/// Memory that the controller gave to a line and those around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// The line that it was given for.
    pub line: Line,
    /// First line of all that were given.
    pub first: Line,
    /// How many.
    pub lines: u64,
    /// First line of what they are a copy of; else they are zero, or come from a backing store.
    pub copied_from: Option<Line>,
    /// The lines come from a backing store, and are there after so long.
    pub stored: Option<Time>,
    /// The controller notes which lines are zero still, and does not write them.
    pub notes_zeros: bool,
    /// The line of the controller's own tables that was stored to.
    pub entry: Option<Line>,
}

/// What the kernel keeps for a scheme, one for all cores.
pub trait KernelState: Debug + 'static {
    /// The pages of `range` change.
    fn forget(&mut self, _space: SpaceId, _range: AddressRange) {}

    /// The name of the cache line at a virtual address, where caches are virtually tagged.
    #[inline(always)]
    fn virtual_line(&mut self, _space: SpaceId, _addr: VirtAddr, _os: &Os) -> Option<CacheLine> {
        None
    }

    /// The name of the cache line at a physical line.
    #[inline(always)]
    fn physical_line(&self, line: Line) -> CacheLine {
        line.in_caches()
    }

    /// What a line that leaves or enters the last-level cache stands for.
    #[inline(always)]
    fn backing(&self, line: CacheLine, _os: &Os) -> Backing {
        Backing::Memory(line.as_physical())
    }

    /// A line is read from memory. `placer` says where memory shall lie that is given for it.
    #[inline(always)]
    fn fill(
        &mut self,
        line: CacheLine,
        os: &mut Os,
        _placer: Option<&mut dyn Placer>,
        _now: Time,
    ) -> Backing {
        self.backing(line, os)
    }

    /// A dirty line leaves the last-level cache.
    #[inline(always)]
    fn evict(
        &mut self,
        line: CacheLine,
        os: &mut Os,
        _placer: Option<&mut dyn Placer>,
        _now: Time,
    ) -> Backing {
        self.backing(line, os)
    }

    /// The operating system is about to take so many frames by itself, for a page of a file or page tables.
    #[inline(always)]
    fn before_taking(&mut self, _frames: u64, _os: &mut Os) {}

    /// First line of 4 KiB of memory whose contents went to a backing store; each is reported once.
    #[inline(always)]
    fn take_written_out(&mut self) -> Option<Line> {
        None
    }

    /// Memory ran out where it could not be reported: since [`KernelState::fill`] or [`KernelState::evict`].
    #[inline(always)]
    fn failed(&mut self) -> Option<OsError> {
        None
    }

    /// Whether [`KernelState::take_dirty_names`] has some.
    #[inline(always)]
    fn has_dirty_names(&self) -> bool {
        false
    }

    /// Names of lines that have to be in memory before the access goes on: their block gets other names.
    fn take_dirty_names(&mut self) -> Vec<Range<CacheLine>> {
        Vec::new()
    }

    /// A program's event is about to be applied. Returns addresses whose memory goes with it, beside what the event itself
    /// says.
    fn before_event(&mut self, _space: SpaceId, _event: &Event, _os: &mut Os) -> Vec<AddressRange> {
        Vec::new()
    }

    /// A process is about to be forked. Returns names of lines that have to be in memory before it is.
    fn before_fork(&mut self, _parent: SpaceId) -> Vec<Range<CacheLine>> {
        Vec::new()
    }

    /// A process was forked from another.
    fn forked(&mut self, _parent: SpaceId, _child: SpaceId) {}

    /// A process is gone, or replaced its program.
    fn ended(&mut self, _space: SpaceId, _os: &mut Os) {}

    /// The names of a range's lines, where they are known without its page table.
    fn names(&mut self, _space: SpaceId, _range: AddressRange) -> Option<Vec<Range<CacheLine>>> {
        None
    }

    /// Names that are about to be used again: their lines must leave the caches now.
    fn take_stale_names(&mut self) -> Vec<Range<CacheLine>> {
        Vec::new()
    }

    /// The program's blocks with their counts, which begin anew; none where it does not count by block.
    fn take_block_counts(&mut self) -> Vec<CountedBlock> {
        Vec::new()
    }

    /// Frames that it holds back for blocks: neither mapped nor free.
    fn frames_set_aside(&self) -> Vec<Frame> {
        Vec::new()
    }

    /// What comes next is done by this core.
    #[inline(always)]
    fn runs_on(&mut self, _core: CoreId) {}

    /// Hits and misses of TLBs that all cores share.
    fn tlb_counters(&self) -> TlbCounters {
        TlbCounters::default()
    }
}

impl KernelState for () {}
