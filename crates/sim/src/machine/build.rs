//! A machine made from a design.

use super::intermediate::Intermediate;
use super::tiers::TieredMemory;
use crate::cache::{Hierarchy, Outstanding};
use crate::core::Interval;
use crate::design::{Design, TranslationScheme};
use crate::os::Os;
use crate::translate::{PageWalkCache, Tlbs};
use terrace_model::{LINE_BYTES, Time};

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
    pub walkers: Outstanding,
    pub look_ahead: LookAhead,
}

/// Whether looking ahead in the batch pays: it does when many accesses miss what the host's caches hold.
#[derive(Clone, Debug)]
pub(super) struct LookAhead {
    pub active: bool,
    pub misses: u64,
    /// What was looked ahead for lately, direct mapped.
    lines: Box<[u64; 256]>,
    pages: Box<[u64; 64]>,
}

impl LookAhead {
    fn new() -> LookAhead {
        LookAhead {
            active: false,
            misses: 0,
            lines: Box::new([u64::MAX; 256]),
            pages: Box::new([u64::MAX; 64]),
        }
    }

    /// Whether a line was not seen lately.
    #[inline(always)]
    pub fn is_new_line(&mut self, line: u64) -> bool {
        std::mem::replace(&mut self.lines[line as usize % 256], line) != line
    }

    /// Whether a base page was not seen lately.
    #[inline(always)]
    pub fn is_new_page(&mut self, page: u64) -> bool {
        std::mem::replace(&mut self.pages[page as usize % 64], page) != page
    }
}

/// What all cores share.
#[derive(Debug)]
pub(super) struct Shared {
    pub caches: Hierarchy,
    pub memory: TieredMemory,
    pub os: Os,
    pub intermediate: Intermediate,
    pub software_tlb: SoftwareTlb,
    pub walks: WalkCounters,
    pub timing: Timing,
    /// Accesses per tier before any cache, for the fidelity that has none.
    pub unfiltered: Vec<[u64; 2]>,
    /// Lines the kernel touched for system calls.
    pub kernel_lines: u64,
    /// Time that page faults took, the kernel's part of `core.cycles.os`.
    pub fault_time: Time,
}

/// Latencies of the design as times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub cycle: Time,
    pub l2_tlb: Time,
    pub page_walk_cache: Time,
    pub l2: Time,
    pub llc: Time,
    pub fault: Time,
    pub zero_line: Time,
    pub context_switch: Time,
    pub timeslice: Time,
}

/// Translations for schemes and fidelities that have no TLB: a plain table of the simulator's own.
#[derive(Clone, Debug)]
pub(super) struct SoftwareTlb {
    keys: Box<[u64]>,
    /// Base frame of the page, and its size's index in the top bits.
    values: Box<[u64]>,
}

const SOFTWARE_TLB_SLOTS: usize = 1 << 14;

impl SoftwareTlb {
    fn new() -> SoftwareTlb {
        SoftwareTlb {
            keys: vec![u64::MAX; SOFTWARE_TLB_SLOTS].into(),
            values: vec![0; SOFTWARE_TLB_SLOTS].into(),
        }
    }

    #[inline(always)]
    fn key(space: u32, addr: u64) -> (usize, u64) {
        let key = addr >> 12 | u64::from(space) << 48;
        ((addr >> 12) as usize % SOFTWARE_TLB_SLOTS, key)
    }

    /// Frame of the base page at `addr` and the size index of the page that holds it.
    #[inline(always)]
    pub fn get(&self, space: u32, addr: u64) -> Option<(u64, usize)> {
        let (slot, key) = SoftwareTlb::key(space, addr);
        (self.keys[slot] == key)
            .then(|| (self.values[slot] & ((1 << 60) - 1), (self.values[slot] >> 60) as usize))
    }

    pub fn put(&mut self, space: u32, addr: u64, frame: u64, size: usize) {
        let (slot, key) = SoftwareTlb::key(space, addr);
        self.keys[slot] = key;
        self.values[slot] = frame | (size as u64) << 60;
    }

    pub fn flush(&mut self) {
        self.keys.fill(u64::MAX);
    }
}

/// All hardware and the kernel.
#[derive(Debug)]
pub(super) struct Machine {
    pub cores: Vec<Core>,
    pub shared: Shared,
    pub scheme: TranslationScheme,
}

impl Machine {
    /// Builds what the design describes.
    ///
    /// # Errors
    /// The first part that cannot be built, by its key.
    pub fn new(design: &Design) -> Result<Machine, String> {
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
                walkers: Outstanding::new(design.translation.walkers),
                look_ahead: LookAhead::new(),
            });
        }
        let zero_line = Time((LINE_BYTES as f64 * 1e15 / design.os.zero_bandwidth.0.max(1.0)).round() as u64);
        let shared = Shared {
            caches: Hierarchy::new(&design.cache, design.core.count, cycle)?,
            unfiltered: vec![[0; 2]; layout.len()],
            memory,
            os,
            intermediate: Intermediate::default(),
            software_tlb: SoftwareTlb::new(),
            walks: WalkCounters::default(),
            timing: Timing {
                cycle,
                l2_tlb: design.translation.l2.latency.at(cycle),
                page_walk_cache: design.translation.page_walk_cache.latency.at(cycle),
                l2: design.cache.l2.latency.at(cycle),
                llc: design.cache.llc.latency.at(cycle),
                fault: design.os.fault_cost,
                zero_line,
                context_switch: design.os.context_switch_cost,
                timeslice: design.os.timeslice,
            },
            kernel_lines: 0,
            fault_time: Time::ZERO,
        };
        Ok(Machine { cores, shared, scheme: design.translation.scheme })
    }
}
