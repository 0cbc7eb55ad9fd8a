//! Three page sizes: 1 GiB where it can be had, then 2 MiB, then 4 KiB, at the fault and by promotion.
//!
//! **Idea.** A fault asks for the largest page that fits its area; a daemon zeroes free 1 GiB regions ahead, so that
//! such a fault is short. Another one, khugepaged extended, joins what has smaller pages into 1 GiB, and where that
//! fails into 2 MiB. Where no 1 GiB block is free, smart compaction empties the region with most free frames and nothing
//! unmovable into the fullest ones. When memory runs short, large pages that hold many zeros are taken apart and
//! the zeros given back.
//!
//! **Source.** V. S. S. Ram, A. Panwar, A. Basu: "Trident: Harnessing architectural resources for all page sizes in x86
//! processors", MICRO 2021: §5.1.1 regions, §5.1.2 faults and zeroing, §5.1.3 promotion (Figure 5) and compaction
//! (Figure 6); its evaluation for bloat. Values that the paper leaves out are those of the authors' released kernel where it
//! has them, marked *released*.
//!
//! **In a virtual machine** (Trident^PV, §6; `copy = "hypercall"`). The hypervisor exchanges what it maps at the old and at
//! the new guest-physical place of 2 MiB pages, so that nothing is copied. A request names up to 512 pairs in two pages that
//! both sides share; pairs that the hypervisor refuses, and smaller pages, are copied by the guest.
//!
//! **Ablations of the source.** Trident-1Gonly is `sizes = "1g"`: 4 KiB where 1 GiB fails. Trident-NC is
//! `compaction = "normal"`. The column PF of Table 3, fault handler only, is `promote = false`.
//!
//! **Left open by the source.** *Which 1 GiB ranges are worth promoting*: those with one page present, one writable and
//! one accessed (released). *Zeroing*: one region per second, all that are free (`zero_period`, `zero_regions`,
//! `zero_high_water`). *Order*: a fault counts as a try of 1 GiB where its range has no page yet. *Bloat*: HawkEye's
//! technique with the marks of its released module (`recover_below`, `recover_until`); which page has many zeros is left
//! open there: half of it (`recover_zeros`). While memory is short, nothing is promoted. *A 1 GiB page with zeros*:
//! split to 2 MiB first. *Compaction*: see `compaction_retries`, `compaction_timeout`; the released selector goes by
//! migratetype and never reads the counter of unmovable frames that the paper goes by (`compaction_unmovable`). The released
//! code also passes over a source some of whose free frames could not be isolated; here all can be, so that there is nothing
//! to set.
//! *Hypercalls*: the released code makes none for a range with fewer than two 2 MiB pages, and none ever again after one
//! refusal; here every 2 MiB page is in one. *The cap of the daemon* (`max_cpu`) replaces the sleep after a wake in the
//! released code, with 1 s at least; here `scan_sleep` is that least.
//! *Reads*: the released fault handler maps a shared 1 GiB page of zeros for a load; the paper has none, and here a load
//! gets memory as a store does. *Several tiers*: the first with a block, then its smaller pages, then the next tier.
//!
//! **When to use it.** Programs with tens of gigabytes in few large areas, whose accesses miss even with 2 MiB pages.
//! On footprints of less than a few gibibytes it does what `thp` does.

#[path = "trident/tests.rs"]
#[cfg(test)]
mod tests;

use crate::support::{
    BloatRecovery, Compaction, Compactor, FaultSizes, Khugepaged, LargePages, Marks, Pace, SmartLimits,
    Unmovable, Zeroing, largest_first, takes_large_pages,
};
use crate::{
    Capability, CapabilitySet, Choice, CopyBy, Fault, MemorySystem, Moment, Needs, NextTick, Outcome,
    Parameters, Placement, Policy, Published, Refusal, Report, Setup, Signal, SignalKind, SignalSet,
    Topology,
};
use std::num::NonZeroU16;
use terrace_model::{PageSize, Time};

/// Sizes that are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Sizes {
    /// 1 GiB, and 2 MiB where that fails.
    #[default]
    #[choice("1g+2m")]
    All,
    /// 1 GiB, and 4 KiB where that fails.
    #[choice("1g")]
    GiantOnly,
    /// 2 MiB only.
    #[choice("2m")]
    HugeOnly,
}

/// How 2 MiB pages get to another place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum CopyPages {
    /// The bytes of the pages are copied.
    #[default]
    Copy,
    /// The hypervisor exchanges what it maps there (Trident^PV). Where there is none, they are copied.
    Hypercall,
}

impl Sizes {
    /// The largest first.
    const fn list(self) -> &'static [PageSize] {
        match self {
            Sizes::All => &[PageSize::Giant, PageSize::Huge],
            Sizes::GiantOnly => &[PageSize::Giant],
            Sizes::HugeOnly => &[PageSize::Huge],
        }
    }
}

/// Parameters of Trident.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Sizes besides 4 KiB.
    #[parameter(default = Sizes::All)]
    pub sizes: Sizes,
    /// Run the promoting daemon. Off: large pages come from faults only (Table 3, PF).
    #[parameter(default = true, source = "§5.1.3")]
    pub promote: bool,
    /// How memory is compacted; `normal` is Trident-NC.
    #[parameter(default = Compaction::Smart, source = "§5.1.3")]
    pub compaction: Compaction,
    /// Regions that one smart compaction tries to empty.
    #[parameter(default = 5, range = 0..=1_000_000_000, source = "released")]
    pub compaction_retries: u32,
    /// How long smart compaction leaves a region alone that it has tried; 0 s: not at all.
    #[parameter(default = "120 s", range = "0 s"..="5 h", source = "released", scaled)]
    pub compaction_timeout: Time,
    /// How smart compaction knows that a region cannot be emptied.
    #[parameter(default = Unmovable::Counter, source = "§5.1.3; released: mobility, with pageblocks of 1 GiB")]
    pub compaction_unmovable: Unmovable,
    /// Base pages that the daemon looks at per wake.
    #[parameter(
        default = 2_097_152,
        range = 1..=1_000_000_000_000,
        source = "released: 2097152, which is 512 times Linux's 4096",
    )]
    pub pages_to_scan: u64,
    /// Sleep of the daemon between two wakes.
    #[parameter(default = "10 s", range = "1 ns"..="5 h", source = "Linux and released", scaled)]
    pub scan_sleep: Time,
    /// Sleep of the daemon after a failed allocation.
    #[parameter(default = "10 s", range = "1 ns"..="5 h", source = "released: 10 s; Linux: 60 s", scaled)]
    pub alloc_sleep: Time,
    /// Most of a processor that the daemon may take: after a wake it sleeps at least as long as the wake took, divided by
    /// this. 1: no cap.
    #[parameter(default = 1.0, range = 0.001..=1.0, source = "Figure 13: 0.1, as released")]
    pub max_cpu: f64,
    /// How the parts of a new 1 GiB page, and 2 MiB pages that are compacted, get to their new place.
    #[parameter(default = CopyPages::Copy, source = "§6")]
    pub copy: CopyPages,
    /// Pairs of pages that one hypercall exchanges; 1: unbatched.
    #[parameter(default = 512, range = 1..=512, source = "§6: two shared pages of 4 KiB, addresses of 8 bytes")]
    pub hypercall_pairs: u16,
    /// Most base pages of a 2 MiB range that may be missing when it is joined.
    #[parameter(default = 511, range = 0..=511, source = "Linux")]
    pub max_ptes_none: u64,
    /// Most base pages of a 1 GiB range that may be missing when it is joined.
    #[parameter(
        default = 262_143,
        range = 0..=262_143,
        source = "released: 262143, so that one page is enough",
    )]
    pub max_ptes_none_1g: u64,
    /// Zero free 1 GiB regions ahead.
    #[parameter(default = true, source = "§5.1.2")]
    pub zero: bool,
    /// Time between two wakes of the zeroing daemon.
    #[parameter(default = "1 s", range = "1 ns"..="5 h", source = "ours", scaled)]
    pub zero_period: Time,
    /// Regions that it zeroes per wake.
    #[parameter(default = 1, range = 0..=1_000_000, source = "ours")]
    pub zero_regions: u64,
    /// Free zeroed regions of a tier that are enough; 0: no limit.
    #[parameter(default = 0, range = 0..=1_000_000, source = "§5.1.2")]
    pub zero_high_water: u64,
    /// Take back zeros when memory runs short, where the world finds them.
    #[parameter(default = true)]
    pub recover: bool,
    /// Begin when less than this share of memory is free.
    #[parameter(default = 0.15, range = 0.0..=1.0, source = "HawkEye: 85 % used")]
    pub recover_below: f64,
    /// Go on until this share of memory is free.
    #[parameter(default = 0.30, range = 0.0..=1.0, source = "HawkEye: 70 % used")]
    pub recover_until: f64,
    /// Take apart pages of which this share is zeros.
    #[parameter(default = 0.5, range = 0.0..=1.0, source = "ours: half")]
    pub recover_zeros: f64,
    /// Sleep from the end of a pass over all large pages to the next.
    #[parameter(default = "120 s", range = "1 ns"..="5 h", source = "HawkEye, released", scaled)]
    pub recover_sleep: Time,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Trident {
    sizes: Sizes,
    /// Promotion may have to compact memory first.
    compacts: bool,
    daemon: Option<Khugepaged>,
    zeroing: Option<Zeroing>,
    recovery: Option<BloatRecovery>,
    pages: LargePages,
    faults: FaultSizes,
}

impl Published for Trident {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Trident, Refusal> {
        let p = parameters;
        if p.recover_until < p.recover_below {
            return Err(Refusal::parameter(
                "recover_until",
                "it lies below recover_below, where recovery begins",
            ));
        }
        let sizes = p.sizes.list();
        let largest = setup.capabilities.largest_page;
        if sizes[0] > largest {
            return Err(Refusal::Machine(format!("its largest page is {largest}; see sizes")));
        }
        let pace = Pace {
            sizes: sizes.to_vec(),
            pages_to_scan: p.pages_to_scan,
            scan_sleep: p.scan_sleep,
            alloc_sleep: p.alloc_sleep,
            max_none: p.max_ptes_none,
            max_none_giant: p.max_ptes_none_1g,
            max_cpu: p.max_cpu,
        };
        let limits = SmartLimits {
            retries: p.compaction_retries,
            timeout: p.compaction_timeout,
            unmovable: p.compaction_unmovable,
        };
        let offered = setup.capabilities.has(Capability::CopylessExchange);
        let copy = match NonZeroU16::new(p.hypercall_pairs) {
            Some(pairs) if p.copy == CopyPages::Hypercall && offered => CopyBy::Mapping(pairs),
            _ => CopyBy::Bytes,
        };
        let compactor = Compactor::new(p.compaction, limits).by(copy);
        let marks = Marks {
            below: p.recover_below,
            until: p.recover_until,
            zeros: p.recover_zeros,
            sleep: p.recover_sleep,
        };
        let recover = p.recover && setup.capabilities.has(Capability::ZeroPages);
        let zeroing = || Zeroing::new(sizes[0], p.zero_period, p.zero_regions, p.zero_high_water);
        Ok(Trident {
            sizes: p.sizes,
            compacts: p.promote && p.compaction != Compaction::None,
            daemon: p.promote.then(|| Khugepaged::new(pace, compactor)),
            zeroing: p.zero.then(zeroing),
            recovery: recover.then(|| BloatRecovery::new(marks)),
            pages: LargePages::default(),
            faults: FaultSizes::default(),
        })
    }
}

impl Policy for Trident {
    fn needs(&self) -> Needs {
        let capabilities = CapabilitySet::NONE
            .with_if(self.compacts || self.zeroing.is_some(), Capability::Frames)
            .with_if(self.daemon.is_some(), Capability::Collapse)
            .with_if(self.recovery.is_some(), Capability::Split);
        let signals = SignalSet::of(&[SignalKind::Allocated, SignalKind::Unmapped]);
        Needs { capabilities, signals, ..Needs::default() }
    }

    fn place(&mut self, fault: &Fault, topology: &Topology) -> Placement {
        largest_first(fault, self.sizes.list(), topology)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.handle(signal, now, memory);
        }
        let mut next = None;
        let mut earliest = |at: Moment| next = Some(next.map_or(at, |next: Moment| next.min(at)));
        if let Some(recovery) = &mut self.recovery {
            recovery.tick(now, &self.pages, memory);
            earliest(recovery.next());
        }
        if let Some(zeroing) = &mut self.zeroing {
            zeroing.tick(now, memory);
            earliest(zeroing.next());
        }
        let short = self.recovery.as_ref().is_some_and(BloatRecovery::is_active);
        if let Some(daemon) = self.daemon.as_mut().filter(|_| !short) {
            daemon.tick(now, memory);
            daemon.next().into_iter().for_each(&mut earliest);
        }
        next.map_or(NextTick::Never, NextTick::At)
    }

    fn report(&self, report: &mut Report) {
        self.faults.report(report);
        self.pages.report(report);
        if let Some(daemon) = &self.daemon {
            daemon.report(report);
        }
        if let Some(zeroing) = &self.zeroing {
            zeroing.report(report);
        }
        if let Some(recovery) = &self.recovery {
            recovery.report(report);
        }
    }
}

impl Trident {
    fn handle(&mut self, signal: &Signal, now: Moment, memory: &mut dyn MemorySystem) {
        match *signal {
            Signal::Allocated { page, size, zeroed, .. } => {
                if let Some(area) = memory.area(page).filter(takes_large_pages) {
                    self.faults.allocated(page, size, zeroed, area.largest_page(page), self.sizes.list());
                }
                self.pages.appeared(page, size);
            }
            Signal::Unmapped { range } => {
                self.pages.forget(range);
                self.faults.unmapped(range);
            }
            Signal::Done { .. } => {
                let (pages, faults) = (&mut self.pages, &mut self.faults);
                let of_zeroing = self.zeroing.as_mut().is_some_and(|zeroing| zeroing.handle(signal));
                let of_recovery =
                    self.recovery.as_mut().is_some_and(|recovery| recovery.handle(signal, pages, faults));
                if of_zeroing || of_recovery {
                    return;
                }
                let collapsed = self.daemon.as_mut().and_then(|daemon| daemon.handle(signal, now, memory));
                if let Some(done) = collapsed.filter(|done| done.outcome == Outcome::Done) {
                    self.pages.joined(done.candidate.page, done.candidate.size, memory);
                }
            }
            _ => {}
        }
    }
}
