//! A machine made from a design.

use super::contiguous::KernelContiguity;
use super::engine::Options;
use super::intermediate::Intermediate;
use super::look_ahead::LookAhead;
use super::parts::Parts;
use super::placement_map::PlacementMaker;
use super::profile::ProfileCounter;
use super::regions::RegionCache;
use super::tiering::Tiering;
use super::tiers::TieredMemory;
use crate::cache::{Hierarchy, Outstanding};
use crate::core::Interval;
use crate::design::{Design, TranslationScheme};
use crate::os::Os;
use crate::translate::{Nested, PageWalkCache, Tlbs};
use terrace_model::{AddressRange, Histogram, LINE_BYTES, Time};

/// Counters of page walks over all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WalkCounters {
    /// Walks that ended at a leaf.
    pub count: u64,
    /// Page-table entries fetched, after the page-walk cache.
    pub memory_refs: u64,
    /// Time from the start of each walk to its end.
    pub time: Time,
    /// First stores through a clean TLB entry: the dirty bit was set in the page table.
    pub dirty_updates: u64,
}

/// One hardware thread: its pipeline and its translation hardware.
#[derive(Debug)]
pub(super) struct Core {
    pub pipeline: Interval,
    pub tlbs: Tlbs,
    pub page_walk_cache: PageWalkCache,
    /// Nested paging, where the program runs in a virtual machine.
    pub nested: Option<Box<Nested>>,
    pub walkers: Outstanding,
    pub look_ahead: LookAhead,
    /// The fault that waits for a block, or did: where, and when it began.
    pub stalled_fault: Option<(u32, u64, Time)>,
    /// The process that runs on it; none when it has nothing to run.
    pub space: Option<u32>,
}

/// What all cores share.
#[derive(Debug)]
pub(super) struct Shared {
    pub caches: Hierarchy,
    pub memory: TieredMemory,
    pub os: Os,
    pub intermediate: Intermediate,
    pub regions: RegionCache,
    /// The policy that manages memory, if there is one.
    pub tiering: Option<Box<Tiering>>,
    /// Whether somebody wants to know of accesses that reach memory.
    pub sampling: bool,
    /// Counts them, for a later run.
    pub profile: Option<ProfileCounter>,
    /// Records where memory lies over time.
    pub placement: Option<Box<PlacementMaker>>,
    /// The parts of programs, where somebody asks about them.
    pub parts: Option<Box<Parts>>,
    /// The base page at which a core had to stop, because it is on the move or its fault waits.
    pub stopped_at: Option<(u32, u64)>,
    /// Pages whose sharing a core broke: the other cores' TLBs must drop them before they run again.
    pub dropped_pages: Vec<(u32, AddressRange)>,
    pub walks: WalkCounters,
    pub timing: Timing,
    /// What the kernel keeps for hardware that profits from contiguity.
    pub contiguity: Option<Box<KernelContiguity>>,
    /// Accesses per tier before any cache, for the fidelity that has none.
    pub unfiltered: Vec<[u64; 2]>,
    /// How often an access without TLBs needed the page table: about as often as it lay on another page than the one
    /// before. For [`LookAhead`] only.
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
pub(super) struct Timing {
    pub cycle: Time,
    pub l2_tlb: Time,
    pub page_walk_cache: Time,
    pub nested_tlb: Time,
    pub l2: Time,
    pub llc: Time,
    pub fault: Time,
    pub zero_line: Time,
    pub context_switch: Time,
    pub timeslice: Time,
}

/// All hardware and the kernel.
#[derive(Debug)]
pub(super) struct Machine {
    pub cores: Vec<Core>,
    pub shared: Shared,
    pub scheme: TranslationScheme,
    /// Whether the cores have hardware that profits from contiguity.
    pub contiguous: bool,
}

impl Machine {
    /// Lets the policy work on the machine, if there is one.
    pub fn with_tiering<R>(&mut self, work: impl FnOnce(&mut Tiering, &mut Machine) -> R) -> Option<R> {
        let mut tiering = self.shared.tiering.take()?;
        let result = work(&mut tiering, self);
        self.shared.tiering = Some(tiering);
        Some(result)
    }

    /// Builds what the design describes.
    ///
    /// # Errors
    /// The first part that cannot be built, by its key.
    pub fn new(design: &Design, options: &Options) -> Result<Machine, String> {
        if design.core.count == 0 {
            return Err("core.count: a machine needs a core".to_owned());
        }
        let cycle = design.core.frequency.period();
        let memory = TieredMemory::new(design)?;
        let layout = memory.layout();
        if layout.is_empty() {
            return Err("tier: a machine needs a memory tier".to_owned());
        }
        let os = Os::new(&design.os, design.translation.levels, &layout)?;
        let mut cores = Vec::new();
        for _ in 0..design.core.count {
            cores.push(Core {
                pipeline: Interval::new(&design.core),
                tlbs: Tlbs::new(&design.translation)?,
                page_walk_cache: PageWalkCache::new(&design.translation.page_walk_cache)?,
                nested: match &design.translation.nested {
                    Some(nested) => {
                        let begin = memory.host_tables();
                        Some(Box::new(Nested::new(nested, design.translation.levels, begin, begin)?))
                    }
                    None => None,
                },
                walkers: Outstanding::new(design.translation.walkers),
                look_ahead: LookAhead::new(),
                stalled_fault: None,
                space: None,
            });
        }
        let zero_line = Time((LINE_BYTES as f64 * 1e15 / design.os.zero_bandwidth.0.max(1.0)).round() as u64);
        let shared = Shared {
            caches: Hierarchy::new(&design.cache, design.core.count, cycle)?,
            unfiltered: vec![[0; 2]; layout.len()],
            memory,
            os,
            intermediate: Intermediate::default(),
            regions: RegionCache::new(),
            tiering: None,
            sampling: options.count_accesses || options.placement_map,
            profile: options.count_accesses.then(ProfileCounter::default),
            placement: options.placement_map.then(PlacementMaker::new).map(Box::new),
            parts: (options.parts || options.memory_map).then(Box::default),
            stopped_at: None,
            dropped_pages: Vec::new(),
            walks: WalkCounters::default(),
            timing: Timing {
                cycle,
                l2_tlb: design.translation.l2.latency.at(cycle),
                page_walk_cache: design.translation.page_walk_cache.latency.at(cycle),
                nested_tlb: design
                    .translation
                    .nested
                    .as_ref()
                    .map_or(Time::ZERO, |nested| nested.tlb.latency.at(cycle)),
                l2: design.cache.l2.latency.at(cycle),
                llc: design.cache.llc.latency.at(cycle),
                fault: design.os.fault_cost,
                zero_line,
                context_switch: design.os.context_switch_cost,
                timeslice: design.os.timeslice,
            },
            contiguity: KernelContiguity::new(design, cycle).map(Box::new),
            page_changes: 0,
            kernel_lines: 0,
            fault_time: Time::ZERO,
            fault_latency: std::array::from_fn(|_| Histogram::default()),
        };
        let contiguous = design.translation.contiguity.is_some();
        Ok(Machine { cores, shared, scheme: design.translation.scheme, contiguous })
    }
}
