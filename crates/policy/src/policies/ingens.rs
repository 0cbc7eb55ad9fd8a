//! Huge pages where nearly all of 2 MiB is used, or where free memory is little fragmented.
//!
//! **Idea.** Contiguous memory is a resource to be given with care. How fragmented free memory is, is measured (FMFI). Below
//! a threshold huge pages are plentiful: faults and the daemon make them as Linux does. Above it a fault gets a base page,
//! and a range becomes a huge page only when 90 % of its base pages are in use; ranges that reach that by a fault come
//! first, others are found by a scan. Copying is done by the daemon, never by the fault.
//!
//! **Source.** Y. Kwon, H. Yu, S. Peter, C. J. Rossbach, E. Witchel: "Coordinated and efficient huge page management with
//! Ingens", OSDI 2016 (FMFI, utilisation, promotion); FMFI after M. Gorman and P. Healy, ISMM 2008: the share of free
//! memory in blocks too small. Values marked *released* were read in the authors' kernel;
//! those marked *paper* await a check against its text.
//!
//! **Where the released kernel differs.** It has no threshold of fragmentation: no fault makes a huge page, and ranges
//! always have to be used enough, as with `fmfi_threshold = 0` here. Its daemon joins ranges without a writable page too.
//! Unmapping a part of a range clears the bits of that part; here the range counts anew.
//!
//! **Left open by the source.** *How often FMFI is measured*: `fmfi_period`. *No free memory*: counts as
//! fragmented. *Utilisation*: base pages that are mapped; the bits that the released kernel keeps per range are a
//! count here. *Several tiers*: each has its own FMFI at the fault; the daemon goes by the highest.
//!
//! **Missing.** Fairness between processes and virtual machines by access frequency (off by default in the released kernel),
//! compaction ahead of need (off as well), demotion when parts of a huge page are freed, and coordination with page sharing.
//!
//! **When to use it.** Long-running services on memory that fragments, where sudden growth of memory by huge pages that
//! are hardly used would hurt more than a few walks.

use crate::support::{
    Compaction, Compactor, FaultSizes, Khugepaged, LargePages, Pace, fragmentation, largest_first,
    takes_large_pages,
};
use crate::{
    Capability, Fault, MemorySystem, Moment, Needs, NextTick, Outcome, PageId, PageRange, Parameters,
    Placement, Policy, Published, Refusal, Report, Setup, Signal, SignalKind, Topology,
};
use std::collections::BTreeMap;
use terrace_model::{PageSize, TierId, Time};

/// Parameters of Ingens.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Below this fragmentation of free memory huge pages are made as Linux makes them.
    #[parameter(default = 0.5, range = 0.0..=1.0, source = "paper")]
    pub fmfi_threshold: f64,
    /// Time between two measurements of the fragmentation.
    #[parameter(default = "1 s", range = "1 ns"..="5 h", source = "ours", scaled)]
    pub fmfi_period: Time,
    /// Share of a range's base pages that makes it a huge page above the threshold.
    #[parameter(default = 0.9, range = 0.0..=1.0, source = "paper and released: 90 %, which is 460 of 512")]
    pub utilisation: f64,
    /// Base pages that the daemon looks at per wake.
    #[parameter(default = 4096, range = 1..=1_000_000_000_000, source = "Linux")]
    pub pages_to_scan: u64,
    /// Sleep of the daemon between two wakes.
    #[parameter(default = "10 s", range = "1 ns"..="5 h", source = "Linux", scaled)]
    pub scan_sleep: Time,
    /// Sleep of the daemon after a failed allocation.
    #[parameter(default = "60 s", range = "1 ns"..="5 h", source = "Linux", scaled)]
    pub alloc_sleep: Time,
    /// How memory is compacted for the daemon.
    #[parameter(default = Compaction::Normal, source = "Linux")]
    pub compaction: Compaction,
}

/// Base pages of a huge page.
const HUGE: u64 = PageSize::Huge.base_pages();
/// Sizes that are asked for.
const SIZES: [PageSize; 1] = [PageSize::Huge];

/// The policy.
#[derive(Clone, Debug)]
pub struct Ingens {
    parameters: Parameters,
    daemon: Khugepaged,
    /// The FMFI of each tier, as last measured.
    fmfi: Vec<f64>,
    measures: Moment,
    /// Base pages that faults brought into each range of 2 MiB.
    used: BTreeMap<PageId, u16>,
    /// So many are enough.
    enough: u64,
    pages: LargePages,
    faults: FaultSizes,
    requests: u64,
}

impl Published for Ingens {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Ingens, Refusal> {
        let p = &parameters;
        let enough = ((p.utilisation * HUGE as f64) as u64).max(1);
        let pace = Pace {
            sizes: SIZES.to_vec(),
            pages_to_scan: p.pages_to_scan,
            scan_sleep: p.scan_sleep,
            alloc_sleep: p.alloc_sleep,
            max_none: HUGE - 1,
            max_none_giant: 0,
            max_cpu: 1.0,
        };
        let compactor = Compactor::as_released(p.compaction);
        Ok(Ingens {
            daemon: Khugepaged::new(pace, compactor),
            // Nothing is in use before the first measurement.
            fmfi: vec![0.0; setup.topology.tiers.len()],
            measures: Moment::START,
            used: BTreeMap::new(),
            enough,
            pages: LargePages::default(),
            faults: FaultSizes::default(),
            requests: 0,
            parameters,
        })
    }
}

impl Policy for Ingens {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::Frames, Capability::Collapse])
            .and_signals(&[SignalKind::Allocated, SignalKind::Unmapped])
    }

    fn place(&mut self, fault: &Fault, topology: &Topology) -> Placement {
        if !takes_large_pages(&fault.area) {
            return Placement::ANYWHERE;
        }
        if topology.ids().all(|tier| self.is_plenty(tier)) {
            return largest_first(fault, &SIZES, topology);
        }
        let largest = fault.area.largest_page(fault.page);
        topology.ids().fold(Placement::ANYWHERE, |wishes, tier| {
            let wishes = if self.is_plenty(tier) && largest >= PageSize::Huge {
                wishes.or(tier, Some(PageSize::Huge))
            } else {
                wishes
            };
            wishes.or(tier, Some(PageSize::Base))
        })
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.handle(signal, now, memory);
        }
        if self.measures <= now {
            self.measures = now.plus(self.parameters.fmfi_period);
            for tier in memory.topology().ids() {
                let fmfi = fragmentation(tier, PageSize::Huge, memory).unwrap_or(1.0);
                self.fmfi[tier.index()] = fmfi;
            }
            let plenty = (0..self.fmfi.len()).all(|tier| self.is_plenty(TierId(tier as u8)));
            self.daemon.allow_missing(if plenty { HUGE - 1 } else { HUGE.saturating_sub(self.enough) });
        }
        self.daemon.tick(now, memory);
        NextTick::At(self.daemon.next().map_or(self.measures, |next| next.min(self.measures)))
    }

    fn report(&self, report: &mut Report) {
        self.faults.report(report);
        self.pages.report(report);
        self.daemon.report(report);
        report.count("utilised_ranges", self.requests);
        for (tier, fmfi) in self.fmfi.iter().enumerate() {
            report.ratio(&format!("fmfi_{tier}"), *fmfi);
        }
    }
}

impl Ingens {
    /// Whether free memory of the tier is little fragmented.
    fn is_plenty(&self, tier: TierId) -> bool {
        self.fmfi.get(tier.index()).is_some_and(|fmfi| *fmfi < self.parameters.fmfi_threshold)
    }

    fn handle(&mut self, signal: &Signal, now: Moment, memory: &mut dyn MemorySystem) {
        match *signal {
            Signal::Allocated { page, size, tier, zeroed } => {
                self.pages.appeared(page, size);
                let Some(area) = memory.area(page).filter(takes_large_pages) else { return };
                let largest = area.largest_page(page).min(PageSize::Huge);
                if size > PageSize::Base || self.is_plenty(tier) {
                    self.faults.allocated(page, size, zeroed, largest, &SIZES);
                }
                if size == PageSize::Base && largest == PageSize::Huge {
                    let range = page.aligned(PageSize::Huge);
                    let used = self.used.entry(range).or_default();
                    *used += 1;
                    if u64::from(*used) == self.enough {
                        self.requests += 1;
                        self.daemon.request(range, now, memory);
                    }
                }
            }
            Signal::Unmapped { range } => {
                self.pages.forget(range);
                self.faults.unmapped(range);
                self.forget(range);
            }
            _ => {
                let done = self.daemon.handle(signal, now, memory);
                if let Some(done) = done.filter(|done| done.outcome == Outcome::Done) {
                    self.pages.joined(done.candidate.page, done.candidate.size, memory);
                    self.used.remove(&done.candidate.page);
                }
            }
        }
    }

    /// Ranges that lost pages count again from what cannot be known: none.
    fn forget(&mut self, range: PageRange) {
        let end = PageId { space: range.first.space, vpn: range.end() };
        let inside = self.used.range(range.first.aligned(PageSize::Huge)..end);
        for page in inside.map(|(page, _)| *page).collect::<Vec<_>>() {
            self.used.remove(&page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::{millis, seconds};
    use crate::{Driver, InMemory, Open};
    use terrace_model::{Bytes, Frame};

    /// Sixteen blocks; in so many of them a frame of the page cache.
    fn open(broken: u64, parameters: &str) -> Driver {
        let mut world = InMemory::new(&[("dram", Bytes::mib(32))]);
        world.map_anonymous(0, 0, 4 * HUGE);
        for block in 0..broken {
            world.take_frame(Frame(block * HUGE + 100), true);
        }
        let mut driver = Driver::open("ingens", parameters, world).unwrap();
        driver.advance(millis(1));
        driver
    }

    fn size(driver: &Driver, vpn: u64) -> PageSize {
        driver.world.locate(PageId::new(0, vpn)).unwrap().1
    }

    fn at_fault(broken: u64, parameters: &str) -> PageSize {
        let mut driver = open(broken, parameters);
        driver.touch(PageId::new(0, 0), true);
        size(&driver, 0)
    }

    #[test]
    fn faults_are_generous_only_below_the_threshold() {
        use PageSize::{Base, Huge};
        assert_eq!((at_fault(7, ""), at_fault(9, "")), (Huge, Base));
        assert_eq!(at_fault(9, "fmfi_threshold = 0.6"), Huge);
        let fmfi = open(8, "").report().stats.number("fmfi_0");
        assert!((fmfi - 8.0 * 511.0 / (16.0 * 512.0 - 8.0)).abs() < 1e-9, "{fmfi}");
    }

    #[test]
    fn a_range_that_is_used_enough_is_joined_at_once() {
        let joined = |pages: u64, parameters: &str| {
            let mut driver = open(10, parameters);
            driver.touch_all(0, 0..pages, true);
            driver.advance(millis(100));
            (size(&driver, 0) == PageSize::Huge, driver.report().stats.integer("utilised_ranges"))
        };
        assert_eq!(joined(459, ""), (false, 0));
        assert_eq!(joined(460, ""), (true, 1), "90 % of 512, rounded down");
        assert_eq!(joined(256, "utilisation = 0.5"), (true, 1));
    }

    #[test]
    fn the_scan_goes_by_the_threshold_too() {
        // Fragmentation goes down after the faults.
        let joined = |repaired: bool, parameters: &str, time: u64| {
            let mut driver = open(10, parameters);
            for range in 0..4 {
                driver.touch(PageId::new(0, range * HUGE), true);
            }
            if repaired {
                let broken: Vec<u64> = (0..10).map(|block| block * HUGE + 100).collect();
                driver.world.give_frames(&broken);
            }
            driver.advance(seconds(time));
            (0..4).filter(|range| size(&driver, range * HUGE) == PageSize::Huge).count()
        };
        assert_eq!((joined(false, "", 25), joined(true, "", 9), joined(true, "", 11)), (0, 0, 4));
        assert_eq!(joined(true, "fmfi_period = \"30 s\"", 25), 0, "it is not measured again before");
        assert_eq!(joined(true, "scan_sleep = \"2 s\"", 3), 4);
        assert_eq!(joined(true, "pages_to_scan = 512", 11), 1);
    }

    #[test]
    fn compaction_and_its_pause_are_those_of_linux() {
        let run = |parameters: &str| {
            let mut driver = open(16, parameters);
            for range in 0..4 {
                driver.touch_all(0, range * HUGE..range * HUGE + 470, true);
            }
            driver.advance(seconds(100));
            let stats = driver.report().stats;
            (stats.integer("mapped_2m") >> 21, stats.integer("promotion_2m_failed"))
        };
        assert_eq!(run("").1, 0);
        assert!(run("").0 == 4);
        let (mapped, failed) = run("compaction = \"none\"");
        assert_eq!(mapped, 0);
        assert!(run("compaction = \"none\"\nalloc_sleep = \"10 s\"").1 > failed);
    }
}
