//! Huge pages where accesses are most, from blocks zeroed ahead; bloat is taken back.
//!
//! **Idea.** Free 2 MiB blocks are zeroed ahead, so that a fault can have one for little. What could not get one at the
//! fault is promoted in the order of access coverage: how many of a range's base pages were accessed in a sampling
//! interval. Ranges are kept in ten buckets by coverage; the highest bucket comes first, and processes take turns. When
//! memory runs short, huge pages with many zeros are taken apart and the zeros given back.
//!
//! **Source.** A. Panwar, S. Bansal, K. Gopinath: "HawkEye: Efficient fine-grained OS support for huge pages", ASPLOS 2019:
//! pre-zeroing, recovery of bloat, promotion (`access_map`), fairness (HawkEye-G, without counters). Values marked
//! *released* were read in the authors' code (`mm/ohp.c`, `mm/asynczero.c`, `remove.c`); those marked *paper* await a check
//! against its text.
//!
//! **Left open by the source.** *How many are promoted per wake*: what Linux's daemon would look at, 4096 base pages or 8
//! ranges (`promotions`), tries that fail included, of which the released code makes up to a hundred. *Many zeros*: half of
//! a page (`recover_zeros`). *Order of recovery*: by address, as the released module does; the paper begins with the process
//! of least translation overhead. *While memory is short*: nothing is promoted. *Interval and window*: `sample_period`,
//! `sample_window`.
//!
//! **Where the released code differs.** Its bins are logarithmic, and each scan moves a range to the head of its bin; here
//! they are the paper's, fifty pages wide. It orders processes by measured overhead unless set otherwise
//! (`promotion_metric = 2` is HawkEye-G). Its recovery takes every page of zeros of one process, named to it, and sleeps
//! after each run. It zeroes blocks of 4 MiB only.
//!
//! **Missing.** HawkEye-PMU, which orders processes by measured translation overhead.
//!
//! **When to use it.** Programs that gain from huge pages while memory is short or shared by several: it gives huge
//! pages to the busiest ranges first and takes back what they waste.

#[path = "hawkeye/access_map.rs"]
mod access_map;
#[path = "hawkeye/tests.rs"]
#[cfg(test)]
mod tests;

use crate::support::{
    BloatRecovery, Candidate, Collapser, Compaction, Compactor, FaultSizes, LargePages, Marks, Zeroing,
    largest_first, takes_large_pages,
};
use crate::{
    Area, Capability, CapabilitySet, Clear, Fault, MemorySystem, Moment, Needs, NextTick, Outcome, PageId,
    Parameters, Placement, Policy, Published, Refusal, Report, ScanHand, Scope, Setup, Signal, SignalKind,
    SignalSet, Step, Topology,
};
use access_map::AccessMap;
use terrace_model::{PageSize, TierId, Time};

/// Parameters of HawkEye.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Zero free 2 MiB blocks ahead.
    #[parameter(default = true, source = "paper")]
    pub zero: bool,
    /// Time between two wakes of the zeroing daemon.
    #[parameter(default = "1 s", range = "1 ns"..="5 h", source = "released", scaled)]
    pub zero_period: Time,
    /// Blocks of 2 MiB that it zeroes per wake.
    #[parameter(
        default = 20,
        range = 0..=1_000_000_000,
        source = "released: ten of 4 MiB, about 10000 base pages per second",
    )]
    pub zero_blocks: u64,
    /// Time between two samples of access coverage.
    #[parameter(
        default = "30 s",
        range = "1 ns"..="5 h",
        source = "paper: 30 s; released: at least 5 s after the window",
        scaled,
    )]
    pub sample_period: Time,
    /// How long accesses are collected for a sample.
    #[parameter(default = "1 s", range = "1 ns"..="5 h", source = "paper and released", scaled)]
    pub sample_window: Time,
    /// Weight of the newest sample in the moving average of coverage, which begins at nothing.
    #[parameter(default = 0.4, range = 0.0..=1.0, source = "released")]
    pub weight: f64,
    /// Drop TLB entries when accessed bits are cleared. Linux does not, and neither does the source: off.
    #[parameter(default = false)]
    pub flush: bool,
    /// Time between two wakes of the promoting daemon.
    #[parameter(default = "10 s", range = "1 ns"..="5 h", source = "Linux", scaled)]
    pub promote_period: Time,
    /// Ranges that it promotes per wake.
    #[parameter(default = 8, range = 0..=1_000_000_000, source = "Linux looks at 4096 base pages")]
    pub promotions: u64,
    /// How long it sleeps after an allocation has failed.
    #[parameter(
        default = "10 s",
        range = "1 ns"..="5 h",
        source = "released, which sleeps no longer than ever; Linux: 60 s",
        scaled,
    )]
    pub alloc_sleep: Time,
    /// How memory is compacted for it.
    #[parameter(default = Compaction::Normal, source = "Linux")]
    pub compaction: Compaction,
    /// Take back zeros when memory runs short, where the world finds them.
    #[parameter(default = true)]
    pub recover: bool,
    /// Begin when less than this share of memory is free.
    #[parameter(default = 0.15, range = 0.0..=1.0, source = "paper: 85 % used; released: 15 %")]
    pub recover_below: f64,
    /// Go on until this share of memory is free.
    #[parameter(default = 0.30, range = 0.0..=1.0, source = "paper: 70 % used; released: 30 %")]
    pub recover_until: f64,
    /// Take apart pages of which this share is zeros.
    #[parameter(default = 0.5, range = 0.0..=1.0, source = "ours: half; released: any")]
    pub recover_zeros: f64,
    /// Sleep from the end of a pass over all huge pages to the next.
    #[parameter(default = "120 s", range = "1 ns"..="5 h", source = "released", scaled)]
    pub recover_sleep: Time,
}

/// Sizes that are asked for.
const SIZES: [PageSize; 1] = [PageSize::Huge];

/// The policy.
#[derive(Clone, Debug)]
pub struct Hawkeye {
    parameters: Parameters,
    zeroing: Option<Zeroing>,
    recovery: Option<BloatRecovery>,
    map: AccessMap,
    /// When bits are cleared next, or looked at where they have been.
    samples: Moment,
    collecting: bool,
    collapser: Collapser,
    promotes: Moment,
    /// Promotions left in this wake.
    left: u64,
    pages: LargePages,
    faults: FaultSizes,
}

impl Published for Hawkeye {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Hawkeye, Refusal> {
        let p = &parameters;
        let marks = Marks {
            below: p.recover_below,
            until: p.recover_until,
            zeros: p.recover_zeros,
            sleep: p.recover_sleep,
        };
        let recover = p.recover && setup.capabilities.has(Capability::ZeroPages);
        let compactor = Compactor::as_released(p.compaction);
        Ok(Hawkeye {
            zeroing: p.zero.then(|| Zeroing::new(PageSize::Huge, p.zero_period, p.zero_blocks, 0)),
            recovery: recover.then(|| BloatRecovery::new(marks)),
            map: AccessMap::new(p.weight),
            samples: Moment::START,
            collecting: false,
            collapser: Collapser::new(compactor),
            promotes: Moment::START.plus(p.promote_period),
            left: 0,
            pages: LargePages::default(),
            faults: FaultSizes::default(),
            parameters,
        })
    }
}

impl Policy for Hawkeye {
    fn needs(&self) -> Needs {
        let capabilities = CapabilitySet::of(&[Capability::AccessedBits, Capability::Collapse])
            .with_if(self.zeroing.is_some(), Capability::Frames)
            .with_if(self.recovery.is_some(), Capability::Split)
            .with_if(self.parameters.flush, Capability::FlushOnClear);
        let signals = SignalSet::of(&[SignalKind::Allocated, SignalKind::Unmapped]);
        Needs { capabilities, signals, ..Needs::default() }
    }

    fn place(&mut self, fault: &Fault, topology: &Topology) -> Placement {
        largest_first(fault, &SIZES, topology)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.handle(signal, now, memory);
        }
        let mut next = self.samples;
        if self.samples <= now {
            next = self.sample(now, memory);
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.tick(now, &self.pages, memory);
            next = next.min(recovery.next());
        }
        if let Some(zeroing) = &mut self.zeroing {
            zeroing.tick(now, memory);
            next = next.min(zeroing.next());
        }
        if self.promotes <= now {
            self.promotes = now.plus(self.parameters.promote_period);
            self.left = self.parameters.promotions;
        }
        self.promote(memory);
        NextTick::At(next.min(self.promotes))
    }

    fn report(&self, report: &mut Report) {
        self.faults.report(report);
        self.pages.report(report);
        self.collapser.report(report);
        report.level("ranges_observed", self.map.len() as u64);
        if let Some(zeroing) = &self.zeroing {
            zeroing.report(report);
        }
        if let Some(recovery) = &self.recovery {
            recovery.report(report);
        }
    }
}

impl Hawkeye {
    fn handle(&mut self, signal: &Signal, now: Moment, memory: &mut dyn MemorySystem) {
        match *signal {
            Signal::Allocated { page, size, zeroed, .. } => {
                if let Some(area) = memory.area(page).filter(takes_large_pages) {
                    let largest = area.largest_page(page).min(PageSize::Huge);
                    self.faults.allocated(page, size, zeroed, largest, &SIZES);
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
                match self.collapser.handle(signal, now, memory) {
                    Some(done) if done.outcome == Outcome::Done => {
                        self.pages.joined(done.candidate.page, PageSize::Huge, memory);
                    }
                    Some(done) if done.outcome == Outcome::NoSpace => {
                        self.left = 0;
                        self.promotes = now.plus(self.parameters.alloc_sleep);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Begins the next promotion, if one is left and memory is not short.
    fn promote(&mut self, memory: &mut dyn MemorySystem) {
        if self.recovery.as_ref().is_some_and(BloatRecovery::is_active) {
            return;
        }
        while self.left > 0 && !self.collapser.is_busy() {
            let Some((page, tier)) = self.map.next() else {
                self.left = 0;
                return;
            };
            self.left -= 1;
            self.collapser.begin(Candidate { page, size: PageSize::Huge, tier }, memory);
        }
    }

    /// Clears accessed bits, or counts those that were set since; returns when to come again.
    fn sample(&mut self, now: Moment, memory: &mut dyn MemorySystem) -> Moment {
        let mut areas: Vec<Area> = Vec::new();
        memory.areas(None, &mut |area| {
            if takes_large_pages(area) && area.range.pages >= PageSize::Huge.base_pages() {
                areas.push(*area);
            }
        });
        let clear = if self.collecting { Clear::NOTHING } else { Clear::ACCESSED };
        let step = if self.collecting { Step::Keep } else { Step::Clear };
        let mut found: Vec<(PageId, u64, TierId)> = Vec::new();
        for area in areas {
            let mut hand = ScanHand { next: area.range.first };
            let clear = clear.flushed(self.parameters.flush && !self.collecting);
            memory.scan(Scope::Range(area.range), &mut hand, clear, &mut |view| {
                if view.size > PageSize::Base {
                    return Step::Keep;
                }
                let range = view.page.aligned(PageSize::Huge);
                match found.last_mut() {
                    Some((last, accessed, _)) if *last == range => *accessed += u64::from(view.accessed),
                    _ if area.largest_page(range) >= PageSize::Huge && range >= area.range.first => {
                        found.push((range, u64::from(view.accessed), view.tier));
                    }
                    _ => {}
                }
                step
            });
        }
        let p = &self.parameters;
        if self.collecting {
            self.map.sample(&found);
            let pause = Time(p.sample_period.0.saturating_sub(p.sample_window.0)).max(p.sample_window);
            self.samples = now.plus(pause);
        } else {
            self.samples = now.plus(p.sample_window);
        }
        self.collecting = !self.collecting;
        self.samples
    }
}
