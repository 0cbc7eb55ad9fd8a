//! A machine made from a design.

use super::changes::Pending;
use super::hypervisor::{Hypervisor, StoppedAt, System, guest_layout};
use super::tiers::TieredMemory;
use super::zeroing::Zeroing;
use crate::cache::{Hierarchy, Outstanding};
use crate::coherence::{self, Coherence, Hardware, Shootdowns, TranslationEnergy};
use crate::core::{CoreGroup, CoreParameters, Pipeline};
use crate::design::Design;
use crate::host::{HostPrefetch, RegionCache, can_have};
use crate::observe::Observers;
use crate::os::{Os, StalePages};
use crate::outcome::Options;
use crate::translate::{AnyScheme, Nested, NestedParameters, PageWalkCache, schemes};
use std::ops::Range;
use terrace_model::{Histogram, PhysAddr, SpaceId, TierId, Time, VirtAddr};

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
    pub walkers: Outstanding,
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

/// Latencies of the design as times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub cycle: Time,
    pub l2_tlb: Time,
    pub page_walk_cache: Time,
    pub nested_tlb: Time,
    pub l2: Time,
    pub llc: Time,
    pub fault: Time,
    pub zeroing: Zeroing,
    pub context_switch: Time,
    pub timeslice: Time,
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

impl Machine {
    /// Builds what the design describes.
    ///
    /// # Errors
    /// The first part that cannot be built, by its key.
    pub fn new(design: &Design, options: &Options) -> Result<Machine, String> {
        let each_core = design.core.each();
        if each_core.is_empty() {
            return Err("core.count: a machine needs a core".to_owned());
        }
        let cycle = design.core.frequency.period();
        for tier in &design.tiers {
            // An owner and two links for each frame.
            can_have(
                &format!("tier.{}.capacity", tier.name),
                "the table of its frames",
                tier.capacity.0 >> 12 << 4,
            )?;
        }
        let memory = TieredMemory::new(design)?;
        let layout = memory.layout();
        if layout.is_empty() {
            return Err("tier: a machine needs a memory tier".to_owned());
        }
        let guest = guest_layout(design);
        let hypervisor = match &guest {
            Some(guest) => Some(Box::new(Hypervisor::new(design, &layout, guest, cycle)?)),
            None => None,
        };
        let (own, levels) = (design.os_of_programs(), design.translation.levels);
        let os = Os::of_guests(&own, levels, guest.as_ref().unwrap_or(&layout), design.vm_count())?;
        let translation = &design.translation;
        let entry = schemes::find(&translation.scheme.kind).ok_or_else(|| {
            format!("translation.scheme: there is no scheme \"{}\"", translation.scheme.kind)
        })?;
        // In a virtual machine, Linux's shootdowns are KVM's too.
        let is_software = translation.coherence == "software" && hypervisor.is_some();
        let coherence = if is_software { "software-virtual" } else { &translation.coherence };
        let coherence = coherence::find(coherence).ok_or_else(|| {
            let (wanted, known) = (&translation.coherence, coherence::names().join(", "));
            format!("translation.coherence: there is no scheme \"{wanted}\"; there are {known}")
        })?;
        let own_memory = entry.memory_bytes(&translation.scheme).next_multiple_of(1 << 30);
        let nested =
            translation.nested.clone().or_else(|| design.vm.as_ref().map(|_| NestedParameters::default()));
        let mut cores = Vec::new();
        for core in &each_core {
            cores.push(Core {
                pipeline: Pipeline::new(core),
                page_walk_cache: PageWalkCache::new(&design.translation.page_walk_cache)?,
                nested: match &nested {
                    Some(nested) => {
                        let (guest, begin) = (memory.end(), memory.end() + own_memory);
                        Some(Box::new(Nested::new(nested, translation.levels, guest, begin)?))
                    }
                    None => None,
                },
                walkers: Outstanding::new(design.translation.walkers),
                host_prefetch: HostPrefetch::new(),
                stalled_fault: None,
            });
        }
        let coherence = (coherence.new)(&design.os.costs);
        let hardware = coherence.hardware().map(|covers| {
            let round_trip = design.cache.cache_to_cache.at(cycle);
            Box::new(Hardware::new(
                &translation.hatric.clone().unwrap_or_default(),
                covers,
                round_trip,
                cycle,
            ))
        });
        let observers = Observers::new(options);
        let scheme = entry.build(translation, cores.len(), cycle, PhysAddr(memory.end()))?;
        let shared = Shared {
            caches: Hierarchy::new(&design.cache, cores.len() as u32, design.core.threads, cycle)?,
            unfiltered: vec![[0; 2]; layout.len()],
            memory,
            os,
            hypervisor,
            regions: RegionCache::new(),
            sampling: observers.want_accesses(),
            observers,
            stopped_at: None,
            running: vec![None; cores.len()],
            coherence,
            hardware,
            energy: translation.energy.clone(),
            shootdowns: Shootdowns::default(),
            table_stores: [0; 2],
            pending: Vec::new(),
            stale_log: None,
            virtual_caches: entry.virtual_caches,
            has_caches: false,
            walks: WalkCounters::default(),
            timing: Timing {
                cycle,
                l2_tlb: design.translation.l2.latency.at(cycle),
                page_walk_cache: design.translation.page_walk_cache.latency.at(cycle),
                nested_tlb: nested.as_ref().map_or(Time::ZERO, |nested| nested.tlb.latency.at(cycle)),
                l2: design.cache.l2.latency.at(cycle),
                llc: design.cache.llc.latency.at(cycle),
                fault: design.os.fault_cost,
                zeroing: Zeroing::new(design),
                context_switch: design.os.context_switch_cost,
                timeslice: design.os.timeslice,
            },
            page_changes: 0,
            kernel_lines: 0,
            fault_time: Time::ZERO,
            fault_latency: std::array::from_fn(|_| Histogram::default()),
        };
        let mut machine = Machine { cores, groups: groups(&design.core), shared, scheme };
        machine.connect_hardware();
        Ok(machine)
    }
}

impl Shared {
    /// One of the operating systems. Of a native machine there is only the programs'.
    pub fn system(&self, system: System) -> &Os {
        match (&self.hypervisor, system) {
            (Some(hypervisor), System::Hypervisor) => &hypervisor.os,
            _ => &self.os,
        }
    }

    /// The same, to change it.
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

/// The groups of cores, each with the numbers of its cores and their clock cycle.
fn groups(core: &CoreParameters) -> Vec<(String, Range<usize>, Time)> {
    let mut begin = 0;
    let group = |group: &CoreGroup| {
        let cores = begin..begin + group.count as usize;
        begin = cores.end;
        (group.name.clone(), cores, core.of(group).frequency.period())
    };
    core.groups.iter().map(group).collect()
}
