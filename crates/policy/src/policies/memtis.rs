//! A histogram of page heat says where hot begins; skewed huge pages are split.
//!
//! **Idea.** Sampled accesses are counted per page, and a histogram over powers of two says how much memory is how hot.
//! The hot threshold is the lowest bin from which on everything fits into the fast tier, so it needs no tuning. Hot
//! pages of the slow tier move up; cold pages of the fast tier move down when room is short, warm ones stay where they
//! are. Counts are halved from time to time. Where few base pages of huge pages get most accesses, splitting the most
//! skewed ones lets the fast tier hold more of what is hot.
//!
//! **Source.** T. Lee et al., "MEMTIS: Efficient Memory Tiering with Dynamic Page Classification and Page Size
//! Determination", SOSP 2023: histogram and thresholds (16 bins, adaptation every 100,000 samples, cooling every
//! 2,000,000), splitting by skewness, migration in the background. Values from the authors' release (htmm_*).
//!
//! **Left open by the source.** *Heat of unlike sizes*: a base page's count is taken 512-fold, so that bins compare
//! pages by accesses per byte. *How many pages to split at once* (`split_limit`): 16 per adaptation, ours; the authors'
//! code derives a number from latencies (htmm_core.c, set_memcg_nr_split). *Skewness*: sum of squares of the base
//! pages' counts over the square of their sum; 1 where one base page gets all. *The least gain* in fast-tier hits that
//! makes splitting worthwhile (`split_gain`): a share of all samples; the code's is one of the hits that base pages
//! would get. *The sampling period*: fixed, where the authors adapt it to stay below 3 % of a CPU
//! (ksampled_soft_cpu_quota). *Free fast memory* that migration keeps (`headroom`): one share, where the code has 2 %
//! for demotion and 3 % for promotion, bounded in bytes. *Collapsing split pages again*: left to the operating system.
//!
//! **When to use it.** Machines whose processor samples accesses, with programs of which no threshold is known: the
//! histogram finds one. Also where huge pages hide which of their parts are hot, as it splits those. It wants runs long
//! against its sampling.

#[path = "memtis/histogram.rs"]
mod histogram;

use crate::support::{PageMap, Pending};
use crate::{
    Capability, CapabilitySet, Clear, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick, PageId,
    PageRange, PageView, Parameters, Policy, Published, Refusal, Report, Resize, ScanHand, Scope, Setup,
    Signal, SignalKind, Step,
};
use histogram::{Histogram, Thresholds, bin_of};
use terrace_model::{PageSize, TierId, Time};

/// Parameters of MEMTIS.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// One access in so many is sampled.
    #[parameter(default = 199, range = 1..=1_000_000_000_000, source = "release, htmm_sample_period")]
    pub sample_period: u64,
    /// Samples between two adaptations of the thresholds.
    #[parameter(default = 100_000, range = 1..=1_000_000_000_000, source = "release, htmm_adaptation_period")]
    pub adapt_every: u64,
    /// Samples between two coolings, which halve all counts.
    #[parameter(default = 2_000_000, range = 1..=1_000_000_000_000, source = "release, htmm_cooling_period")]
    pub cool_every: u64,
    /// The warm threshold is one bin below the hot one unless hot pages fill this share of the fast tier.
    #[parameter(
        default = 0.9,
        range = 0.0..=1.0,
        source = "htmm_core.c, __adjust_active_threshold: 0.9 in early states of the code, 0.75 in later ones",
    )]
    pub alpha: f64,
    /// Time between two looks of the migration thread.
    #[parameter(
        default = "500 ms",
        range = "1 ns"..="5 h",
        source = "release, htmm_promotion_period_in_ms and htmm_demotion_period_in_ms: 500",
        scaled,
    )]
    pub period: Time,
    /// Share of the fast tier to keep free.
    #[parameter(
        default = 0.02,
        range = 0.0..=1.0,
        source = "htmm_migrater.c, get_memcg_demotion_watermark: 2 %",
    )]
    pub headroom: f64,
    /// Split skewed huge pages.
    #[parameter(default = true)]
    pub split: bool,
    /// Fast-tier hits, as a share of all samples, that splitting has to gain.
    #[parameter(
        default = 0.05,
        range = 0.0..=1.0,
        source = "ours; htmm_core.c, set_memcg_nr_split: 5 % of the hits with base pages",
    )]
    pub split_gain: f64,
    /// Most huge pages split per adaptation.
    #[parameter(default = 16, range = 0..=1_000_000_000, source = "ours")]
    pub split_limit: u32,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Memtis {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    capacity: u64,
    headroom: u64,
    /// Samples per base page, cooled.
    heat: PageMap<u32>,
    thresholds: Thresholds,
    samples: u64,
    /// Samples since the last adaptation, and those that the fast tier served.
    recent: [u64; 2],
    adapt_due: bool,
    hands: [ScanHand; 2],
    pending: Pending,
    started: bool,
    promoted: u64,
    demoted: u64,
    split: u64,
}

impl Published for Memtis {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Memtis, Refusal> {
        let p = &parameters;
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let capacity = setup.topology.tier(fast).capacity.0 >> 12;
        Ok(Memtis {
            headroom: (capacity as f64 * p.headroom).ceil() as u64,
            parameters,
            fast,
            slow,
            capacity,
            heat: PageMap::default(),
            thresholds: Thresholds::default(),
            samples: 0,
            recent: [0; 2],
            adapt_due: false,
            hands: [ScanHand::default(); 2],
            pending: Pending::default(),
            started: false,
            promoted: 0,
            demoted: 0,
            split: 0,
        })
    }

    fn decides_after(parameters: &Parameters) -> Option<u64> {
        Some(parameters.adapt_every)
    }
}

impl Policy for Memtis {
    fn needs(&self) -> Needs {
        let samples = Capability::of_sampling(self.parameters.sample_period);
        let capabilities = CapabilitySet::of(&[samples, Capability::Migration, Capability::WholeHugePages]);
        let capabilities = capabilities.with_if(self.parameters.split, Capability::Split);
        Needs { capabilities, ..Needs::default() }.and_signals(&[SignalKind::Unmapped])
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if !std::mem::replace(&mut self.started, true) {
            memory.sample_accesses(self.parameters.sample_period);
        }
        let mut tick = false;
        for signal in signals {
            self.pending.handle(signal);
            match *signal {
                Signal::Tick => tick = true,
                Signal::Access { page, count, .. } => self.sampled(page, count, memory),
                Signal::Unmapped { range } => self.heat.forget(range),
                _ => {}
            }
        }
        if !tick {
            return NextTick::Unchanged;
        }
        if std::mem::take(&mut self.adapt_due) {
            self.adapt(memory);
        }
        if self.pending.is_empty() {
            self.migrate(memory);
        }
        NextTick::At(now.plus(self.parameters.period))
    }

    fn report(&self, report: &mut Report) {
        report.count("samples", self.samples);
        report.level("hot_bin", self.thresholds.hot as u64);
        report.pages("promoted", self.promoted);
        report.pages("demoted", self.demoted);
        report.count("split", self.split);
        report.count("failed", self.pending.failed);
    }
}

impl Memtis {
    fn sampled(&mut self, page: PageId, count: u32, memory: &mut dyn MemorySystem) {
        let Some(view) = memory.page(page) else { return };
        let heat = self.heat.entry(page);
        *heat = heat.saturating_add(count);
        let before = self.samples;
        self.samples += u64::from(count);
        self.recent[0] += u64::from(count);
        self.recent[1] += if view.tier == self.fast { u64::from(count) } else { 0 };
        let passes = |every: u64| before / every != self.samples / every;
        if passes(self.parameters.cool_every) {
            self.heat.for_each(|_, heat| *heat /= 2);
        }
        self.adapt_due |= passes(self.parameters.adapt_every);
    }

    /// Accesses per base page of memory, 512-fold so that it is a whole number for huge pages.
    fn density(&self, view: &PageView) -> u64 {
        density(&self.heat, view)
    }

    /// Draws the histogram anew and sets the thresholds; splits if that would pay.
    fn adapt(&mut self, memory: &mut dyn MemorySystem) {
        // Pages as they are, and as if all were base pages.
        let (mut as_is, mut as_base) = (Histogram::default(), Histogram::default());
        let mut huge: Vec<(PageId, f64)> = Vec::new();
        let heat = &self.heat;
        memory.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
            let density = density(heat, view);
            as_is.add(density, view.base_pages(), density * view.base_pages());
            let (mut sum_of_squares, mut sum, mut seen) = (0.0, 0.0, 0);
            for count in heat.pieces(PageRange::of(view.page, view.size)).flatten() {
                as_base.add(512 * u64::from(*count), 1, 512 * u64::from(*count));
                sum += f64::from(*count);
                sum_of_squares += f64::from(*count) * f64::from(*count);
                seen += 1;
            }
            as_base.add(0, view.base_pages() - seen, 0);
            if view.size == PageSize::Huge && sum > 0.0 && !view.in_flight {
                huge.push((view.page, sum_of_squares / (sum * sum)));
            }
            Step::Keep
        });
        self.thresholds = as_is.thresholds(self.capacity - self.headroom, self.parameters.alpha);
        let [all, in_fast] = std::mem::take(&mut self.recent);
        let real = in_fast as f64 / all.max(1) as f64;
        let gain = as_base.hit_ratio(self.capacity - self.headroom) - real;
        if !self.parameters.split || gain < self.parameters.split_gain {
            return;
        }
        huge.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        // A page whose accesses are spread evenly over its parts gains nothing.
        let skewed = huge.iter().take_while(|(_, skewness)| *skewness > 2.0 / 512.0);
        let splits: Vec<Resize> = skewed
            .take(self.parameters.split_limit as usize)
            .map(|(page, _)| Resize { page: *page, to: PageSize::Base })
            .collect();
        let ticket = memory.resize(&splits);
        self.pending.ordered(ticket, splits.len());
        self.split += splits.len() as u64;
    }

    fn migrate(&mut self, memory: &mut dyn MemorySystem) {
        let free = memory.topology().free_pages(self.fast);
        let mut room = free.saturating_sub(self.headroom);
        let (mut up, mut wanting) = (Vec::new(), 0);
        let mut hand = self.hands[1];
        memory.scan(Scope::Tier(self.slow), &mut hand, Clear::NOTHING, &mut |view| {
            if wanting >= self.capacity {
                return Step::Stop;
            }
            if !view.in_flight && bin_of(self.density(view)) >= self.thresholds.hot {
                if view.base_pages() <= room {
                    room -= view.base_pages();
                    up.push(Move { page: view.page, to: self.fast });
                    self.promoted += view.base_pages();
                } else {
                    wanting += view.base_pages();
                }
            }
            Step::Keep
        });
        self.hands[1] = hand;
        self.order(&up, memory);
        let want = wanting + self.headroom.saturating_sub(free);
        let down = self.coldest(want.min(memory.topology().free_pages(self.slow)), memory);
        self.order(&down, memory);
    }

    /// Pages of the fast tier below the warm threshold, about `want` base pages; warm ones only if those do not suffice.
    fn coldest(&mut self, want: u64, memory: &mut dyn MemorySystem) -> Vec<Move> {
        let (mut found, mut cold, mut warm) = (0, Vec::new(), Vec::new());
        if want == 0 {
            return cold;
        }
        let mut hand = self.hands[0];
        memory.scan(Scope::Tier(self.fast), &mut hand, Clear::NOTHING, &mut |view| {
            if found >= want {
                return Step::Stop;
            }
            let bin = bin_of(self.density(view));
            let one = Move { page: view.page, to: self.slow };
            if view.in_flight {
            } else if bin < self.thresholds.warm {
                cold.push(one);
                found += view.base_pages();
            } else if bin < self.thresholds.hot {
                warm.push((one, view.base_pages()));
            }
            Step::Keep
        });
        self.hands[0] = hand;
        for (one, pages) in warm {
            if found < want {
                cold.push(one);
                found += pages;
            }
        }
        self.demoted += found;
        cold
    }

    fn order(&mut self, moves: &[Move], memory: &mut dyn MemorySystem) {
        let ticket = memory.migrate(moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
    }
}

/// See [`Memtis::density`].
fn density(heat: &PageMap<u32>, view: &PageView) -> u64 {
    let pieces = heat.pieces(PageRange::of(view.page, view.size));
    let sum: u64 = pieces.flatten().map(|count| u64::from(*count)).sum();
    sum * 512 / view.base_pages()
}

#[cfg(test)]
#[path = "memtis/tests.rs"]
mod tests;
