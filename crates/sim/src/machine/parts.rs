//! The machine's parts: what a core has, what all cores share, and the whole.

use super::hypervisor::Hypervisor;
use super::pending::Pending;
use super::system::{StoppedAt, System};
use super::tiers::TieredMemory;
use super::timing::Timing;
use crate::cache::{Hierarchy, MissRegisters};
use crate::coherence::{Coherence, Hardware, Shootdowns, TranslationEnergy};
use crate::core::Pipeline;
use crate::host::{HostPrefetch, RegionCache};
use crate::observe::Observers;
use crate::os::{Os, StalePages};
use crate::translate::{AnyScheme, Nested, PageWalkCache};
use std::ops::Range;
use terrace_model::{Histogram, SpaceId, TierId, Time, VirtAddr};

/// Counters of page walks over all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkCounters {
    /// Walks that ended at a leaf.
    pub count: u64,
    /// Page-table entries fetched, after the page-walk cache.
    pub memory_refs: u64,
    /// Time from the start of each walk to its end.
    pub time: Time,
    /// First stores through a clean TLB entry: the dirty bit was set in the page table.
    pub dirty_updates: u64,
}

/// One hardware thread: its pipeline and its page walker. What its translation scheme holds stands beside it, in
/// [`Machine::scheme`].
#[derive(Debug)]
pub(crate) struct Core {
    pub pipeline: Pipeline,
    pub page_walk_cache: PageWalkCache,
    /// Nested paging, where the program runs in a virtual machine.
    pub nested: Option<Box<Nested>>,
    pub walkers: MissRegisters,
    pub host_prefetch: HostPrefetch,
    /// The fault that waits for a block, or did: where, and when it began.
    pub stalled_fault: Option<(SpaceId, VirtAddr, Time)>,
}

/// What all cores share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub caches: Hierarchy,
    /// What was dropped from TLBs, for agents that are no cores, where one asks.
    pub stale_log: Option<Vec<StalePages>>,
    pub memory: TieredMemory,
    /// The operating system that programs run on: in a virtual machine the guest's, whose frames are not the machine's.
    pub os: Os,
    /// The hypervisor under it.
    pub hypervisor: Option<Box<Hypervisor>>,
    pub regions: RegionCache,
    pub observers: Observers,
    /// Whether somebody wants to know of accesses that reach memory: an observer or whoever manages memory.
    pub sampling: bool,
    /// The base page at which a core had to stop, because it is on the move or its fault waits.
    pub stopped_at: Option<StoppedAt>,
    /// The process that runs on each core; none where there is nothing to run.
    pub running: Vec<Option<SpaceId>>,
    /// How translations are dropped.
    pub coherence: Box<dyn Coherence>,
    /// The hardware that keeps translations coherent, if any does.
    pub hardware: Option<Box<Hardware>>,
    /// What translation takes of energy, if that is counted.
    pub energy: Option<TranslationEnergy>,
    /// What was dropped so far.
    pub shootdowns: Shootdowns,
    /// Lines of page tables that were stored to: by kernel threads on processors of their own, by cores.
    pub table_stores: [u64; 2],
    /// What cores have to drop before they run again.
    pub pending: Vec<Pending>,
    /// Whether lines of caches have virtual names, which stay what they are where pages move.
    pub virtual_caches: bool,
    /// Whether the memory controller copies pages, below such caches.
    pub controller_copies: bool,
    /// Whether data caches are simulated now.
    pub has_caches: bool,
    pub walks: WalkCounters,
    pub timing: Timing,
    /// Accesses per tier before any cache, for the fidelity that has none.
    pub unfiltered: Vec<[u64; 2]>,
    /// How often an access without TLBs needed the page table: about as often as it lay on another page than the one
    /// before. For [`HostPrefetch`] only.
    pub page_changes: u64,
    /// Lines the kernel touched for system calls.
    pub kernel_lines: u64,
    /// Time that page faults took, the kernel's part of `core.cycles.os`.
    pub fault_time: Time,
    /// How long each fault took, by the size of the page it brought in.
    pub fault_latency: [Histogram; 3],
}

/// All hardware and the kernel.
#[derive(Debug)]
pub(crate) struct Machine {
    pub cores: Vec<Core>,
    /// Where the design has groups of cores: the name of each, its cores, and their clock cycle.
    pub groups: Vec<(String, Range<usize>, Time)>,
    pub shared: Shared,
    /// The translation scheme of all cores.
    pub scheme: Box<dyn AnyScheme>,
}

impl Shared {
    /// One of the operating systems. Of a native machine there is only the programs'.
    pub fn system(&self, system: System) -> &Os {
        match (&self.hypervisor, system) {
            (Some(hypervisor), System::Hypervisor) => &hypervisor.os,
            _ => &self.os,
        }
    }

    /// As [`Shared::system`], to change it.
    pub fn system_mut(&mut self, system: System) -> &mut Os {
        match (&mut self.hypervisor, system) {
            (Some(hypervisor), System::Hypervisor) => &mut hypervisor.os,
            _ => &mut self.os,
        }
    }

    /// The machine's tier behind a tier of one of the operating systems.
    pub fn tier_behind(&self, system: System, tier: TierId) -> TierId {
        match (&self.hypervisor, system) {
            (Some(hypervisor), System::Programs) => hypervisor.tier_behind(tier),
            _ => tier,
        }
    }

    /// The one whose frames are the machine's.
    pub fn machine_os(&self) -> &Os {
        self.system(System::Hypervisor)
    }
}
