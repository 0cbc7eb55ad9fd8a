//! Place pages so that the tiers take equally long, not so that the fast one holds all hot pages.
//!
//! **Idea.** Under load the fast tier's latency can exceed the slow one's; then hot pages are better moved down. The
//! latency of each tier under load follows from the reads it answers and the time they take. Each quantum compares the
//! two: while the fast tier is faster, accesses are shifted to it, and away from it otherwise. How many is a search on
//! the fast tier's share of accesses p: the last share known to be too low and the last known to be too high close in
//! on the balance, and open again when it moves. Pages are taken by sampled heat until their share of accesses adds up.
//!
//! **Source.** M. Vuppalapati and R. Agarwal, "Tiered Memory Management: Access Latency is the Key!", SOSP 2024: the
//! principle, the algorithm with watermarks p_lo and p_hi, on top of HeMem among others. Values from the authors' HeMem
//! with Colloid (src/pebs.h).
//!
//! **Left open by the source.** *The heat of pages*: Colloid is laid upon another system; here it is sampled accesses,
//! halved every `halve_every` quanta, ours. *Which latency*: mean time of reads, as the tiers report it; a tier that
//! answered none counts with its idle latency. *Smoothing*: exponential, of the latencies, where the authors' code
//! smooths the counters that they follow from. *Which pages go up*: the hottest of the slow tier that fit into the
//! shift; down: the same of the fast tier, so that few moves shift much. *A full fast tier*: its coldest pages make
//! room.
//!
//! **When to use it.** Machines on which many threads load the fast tier so that its latency rises above the slow
//! one's. With light load it does what a policy by sampled heat does. It needs samples and latencies under load.

use crate::support::{PageMap, Pending, Rates};
use crate::{
    Capability, Clear, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick, PageView, Parameters,
    Policy, Published, Refusal, Report, ScanHand, Scope, Setup, Signal, SignalKind, Step,
};
use terrace_model::{BytesPerSec, TierId, Time, Unit};

/// Parameters of Colloid.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Time between two comparisons.
    #[parameter(default = "10 ms", range = "1 ns"..="5 h", source = "pebs.h, PEBS_KSWAPD_INTERVAL", scaled)]
    pub quantum: Time,
    /// Distance of the two known shares below which the search opens again, ε.
    #[parameter(default = 0.01, range = 0.0..=1.0, source = "pebs.h, COLLOID_EPSILON")]
    pub epsilon: f64,
    /// Difference of latencies, as a share of the fast tier's, that counts as balance, δ.
    #[parameter(default = 0.05, range = 0.0..=1.0, source = "pebs.h, COLLOID_DELTA")]
    pub delta: f64,
    /// One access in so many is sampled.
    #[parameter(default = 5003, range = 1..=1_000_000_000_000, source = "pebs.h, SAMPLE_PERIOD")]
    pub sample_period: u64,
    /// Quanta between two halvings of the heat.
    #[parameter(
        default = 100,
        range = 1..=1_000_000_000,
        source = "ours; the authors' code cools as HeMem does, by counts",
    )]
    pub halve_every: u32,
    /// Share of the old value in smoothed latencies.
    #[parameter(default = 0.9375, range = 0.0..=1.0, source = "1 less pebs.h, COLLOID_EWMA, 0.0625")]
    pub smoothing: f64,
    /// Most memory moved per second, either way.
    #[parameter(
        default = "10 GiB/s",
        range = "0 B/s"..="1000 TB/s",
        source = "pebs.h, PEBS_KSWAPD_MIGRATE_RATE: 10 GiB; that it is meant per second is our reading",
    )]
    pub rate_limit: BytesPerSec,
}

/// The search for the share of accesses at which both tiers take equally long (Algorithm 2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    low: f64,
    high: f64,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance { low: 0.0, high: 1.0 }
    }
}

impl Balance {
    /// How far the share `p` of the fast tier should change: up where positive. 0 within `delta`.
    pub fn shift(&mut self, p: f64, fast: f64, slow: f64, epsilon: f64, delta: f64) -> f64 {
        if (fast - slow).abs() < delta * fast {
            return 0.0;
        }
        let up = fast < slow;
        if up {
            self.low = p;
        } else {
            self.high = p;
        }
        // The balance has moved out of what was known.
        if self.high < self.low + epsilon {
            if up {
                self.high = 1.0;
            } else {
                self.low = 0.0;
            }
        }
        f64::midpoint(self.low, self.high) - p
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Colloid {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    idle: [f64; 2],
    heat: PageMap<u32>,
    balance: Balance,
    rates: Rates,
    /// Smoothed latencies of the two tiers in nanoseconds; none before the first quantum with reads.
    latency: [Option<f64>; 2],
    quanta: u32,
    pending: Pending,
    started: bool,
    samples: u64,
    promoted: u64,
    demoted: u64,
}

impl Published for Colloid {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Colloid, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let idle = [fast, slow].map(|tier| setup.topology.tier(tier).read_latency.as_nanos());
        Ok(Colloid {
            parameters,
            fast,
            slow,
            idle,
            heat: PageMap::default(),
            balance: Balance::default(),
            rates: Rates::default(),
            latency: [None; 2],
            quanta: 0,
            pending: Pending::default(),
            started: false,
            samples: 0,
            promoted: 0,
            demoted: 0,
        })
    }

    fn decides_after(_: &Parameters) -> Option<u64> {
        Some(1)
    }
}

impl Policy for Colloid {
    fn needs(&self) -> Needs {
        let samples = Capability::of_sampling(self.parameters.sample_period);
        Needs::of(&[samples, Capability::LoadedLatency, Capability::Traffic, Capability::Migration])
            .and_signals(&[SignalKind::Unmapped])
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
                Signal::Unmapped { range } => self.heat.forget(range),
                Signal::Access { page, count, .. } => {
                    if let Some(view) = memory.page(page) {
                        let heat = self.heat.entry(view.page);
                        *heat = heat.saturating_add(count);
                        self.samples += u64::from(count);
                    }
                }
                _ => {}
            }
        }
        if !tick {
            return NextTick::Unchanged;
        }
        self.quantum(now, memory);
        NextTick::At(now.plus(self.parameters.quantum))
    }

    fn report(&self, report: &mut Report) {
        report.count("samples", self.samples);
        report.pages("promoted", self.promoted);
        report.pages("demoted", self.demoted);
        report.count("failed", self.pending.failed);
        for (name, latency) in ["fast_latency", "slow_latency"].iter().zip(self.latency) {
            if let Some(latency) = latency {
                report.stats.real_level(*name, latency, Unit::Nanoseconds);
            }
        }
    }
}

impl Colloid {
    fn quantum(&mut self, now: Moment, memory: &mut dyn MemorySystem) {
        let (traffic, _) = self.rates.since_last(now, memory);
        let [fast, slow] = [self.fast, self.slow].map(|tier| traffic[tier.index()]);
        self.quanta += 1;
        if self.quanta.is_multiple_of(self.parameters.halve_every) {
            self.heat.for_each(|_, heat| *heat /= 2);
        }
        let reads = (fast.reads + slow.reads) as f64;
        if reads == 0.0 || !self.pending.is_empty() {
            return;
        }
        for (at, traffic) in [fast, slow].iter().enumerate() {
            let new = traffic.mean_read_latency().map_or(self.idle[at], Time::as_nanos);
            let old = self.latency[at].unwrap_or(new);
            self.latency[at] =
                Some(old * self.parameters.smoothing + new * (1.0 - self.parameters.smoothing));
        }
        let [Some(fast_latency), Some(slow_latency)] = self.latency else { return };
        let share = fast.reads as f64 / reads;
        let (epsilon, delta) = (self.parameters.epsilon, self.parameters.delta);
        let shift = self.balance.shift(share, fast_latency, slow_latency, epsilon, delta);
        if shift > 0.0 {
            self.shift(shift, self.slow, self.fast, memory);
        } else if shift < 0.0 {
            self.shift(-shift, self.fast, self.slow, memory);
        }
    }

    /// Moves the hottest pages whose share of all heat is no more than `share`.
    fn shift(&mut self, share: f64, from: TierId, to: TierId, memory: &mut dyn MemorySystem) {
        let mut pages: Vec<(PageView, u32)> = Vec::new();
        let mut all = 0u64;
        let heat = &mut self.heat;
        memory.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
            let of_page = *heat.entry(view.page);
            all += u64::from(of_page);
            if view.tier == from && !view.in_flight && of_page > 0 {
                pages.push((*view, of_page));
            }
            Step::Keep
        });
        pages.sort_by_key(|(view, heat)| (std::cmp::Reverse(*heat), view.page));
        let mut left = share * all as f64;
        let mut budget = (self.parameters.rate_limit.0 * self.parameters.quantum.as_secs()) as u64 >> 12;
        let mut free = memory.topology().free_pages(to);
        let (mut moves, mut wanting) = (Vec::new(), Vec::new());
        for (view, heat) in pages {
            let pages = view.base_pages();
            if f64::from(heat) > left || pages > budget {
                continue;
            }
            left -= f64::from(heat);
            budget -= pages;
            if pages <= free {
                free -= pages;
                moves.push(Move { page: view.page, to });
                *(if to == self.fast { &mut self.promoted } else { &mut self.demoted }) += pages;
            } else {
                wanting.push((pages, heat));
            }
        }
        let ticket = memory.migrate(&moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
        if to == self.fast && !wanting.is_empty() {
            self.make_room(&wanting, memory);
        }
    }

    /// Demotes pages of the fast tier for hotter ones, whose sizes and heats are given, hottest first.
    fn make_room(&mut self, wanting: &[(u64, u32)], memory: &mut dyn MemorySystem) {
        let mut pages: Vec<(PageView, u32)> = Vec::new();
        let heat = &mut self.heat;
        memory.scan(Scope::Tier(self.fast), &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
            if !view.in_flight {
                pages.push((*view, *heat.entry(view.page)));
            }
            Step::Keep
        });
        pages.sort_by_key(|(view, heat)| (*heat, view.page));
        let (mut moves, mut room) = (Vec::new(), 0);
        let mut coldest = pages.into_iter();
        for (wanted, heat) in wanting {
            while room < *wanted
                && let Some((view, _)) = coldest.next().filter(|(_, colder)| colder < heat)
            {
                room += view.base_pages();
                self.demoted += view.base_pages();
                moves.push(Move { page: view.page, to: self.slow });
            }
            room = room.saturating_sub(*wanted);
        }
        let ticket = memory.migrate(&moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::millis;
    use crate::{Driver, InMemory, Open, PageId};
    use terrace_model::Bytes;

    #[test]
    fn the_search_halves_what_is_unknown() {
        let mut balance = Balance::default();
        let mut shift = |p: f64, fast: f64, slow: f64| balance.shift(p, fast, slow, 0.01, 0.05);
        assert_eq!(shift(0.5, 100.0, 300.0), 0.25, "between 0.5 and 1");
        assert_eq!(shift(0.75, 320.0, 300.0), -0.125, "between 0.5 and 0.75");
        assert_eq!(shift(0.625, 300.0, 302.0), 0.0, "balanced within 5 %");
        // The balance moves: from p = 0.748 on, more is wanted again, and 1 is the new upper end.
        assert!((shift(0.748, 100.0, 300.0) - 0.126).abs() < 1e-9);
    }

    /// A fast tier of 8 pages, 16 in use, all sampled. Latencies are set by the test.
    fn open(parameters: &str, fast: u64, slow: u64) -> Driver {
        let mut world = InMemory::new(&[("fast", Bytes::kib(32)), ("slow", Bytes::kib(96))]);
        world.set_speed(TierId(0), Time::from_nanos(fast), BytesPerSec(10e9));
        world.set_speed(TierId(1), Time::from_nanos(slow), BytesPerSec(10e9));
        world.map_anonymous(0, 0, 16);
        let sample = if parameters.contains("sample_period") { "" } else { "sample_period = 1" };
        let mut driver = Driver::open("colloid", &format!("{sample}\n{parameters}"), world).unwrap();
        driver.touch_all(0, 0..16, false);
        driver
    }

    /// Pages 12..16 get most accesses, 0..4 some.
    fn run(driver: &mut Driver, quanta: u32) -> Vec<u64> {
        for _ in 0..quanta {
            for _ in 0..10 {
                driver.touch_all(0, 12..16, false);
            }
            driver.touch_all(0, 0..4, false);
            driver.advance(millis(10));
        }
        let fast = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0);
        (0..16).filter(fast).collect()
    }

    #[test]
    fn an_unloaded_fast_tier_gets_the_hot_pages() {
        // Each of four hot pages has a quarter of the accesses: the search ends within one of them.
        let fast = run(&mut open("", 100, 300), 40);
        assert!(fast.iter().filter(|vpn| **vpn >= 12).count() >= 3, "{fast:?}");
    }

    #[test]
    fn a_fast_tier_that_is_slower_under_load_gives_hot_pages_away() {
        let mut driver = open("", 100, 300);
        run(&mut driver, 40);
        driver.world.set_speed(TierId(0), Time::from_nanos(500), BytesPerSec(10e9));
        // The smoothed latency needs about 13 quanta to pass the slow tier's by 5 %; an idle tier counts as fast again.
        let left = run(&mut driver, 20);
        assert!(left.iter().filter(|vpn| **vpn >= 12).count() <= 1, "{left:?}");
    }

    #[test]
    fn balance_means_rest() {
        let mut driver = open("", 300, 301);
        run(&mut driver, 20);
        assert_eq!(driver.world.ordered_pages(), 0);
        let mut driver = open("delta = 0.001", 300, 301);
        run(&mut driver, 20);
        assert!(driver.world.ordered_pages() > 0);
    }

    #[test]
    fn parameters_do_what_they_say() {
        let ordered = |parameters: &str, quanta: u32| {
            let mut driver = open(parameters, 100, 300);
            run(&mut driver, quanta);
            driver.world.ordered_pages()
        };
        assert_eq!(ordered("rate_limit = \"4096 B/s\"", 20), 0, "no whole page per quantum");
        assert!(ordered("quantum = \"1 s\"", 20) == 0 && ordered("", 20) > 0);
        assert_eq!(ordered("sample_period = 1000000", 20), 0, "nothing is known to be hot");
        let smoothed = |smoothing: f64| {
            let mut driver = open(&format!("smoothing = {smoothing}"), 300, 301);
            run(&mut driver, 5);
            driver.world.set_speed(TierId(0), Time::from_nanos(600), BytesPerSec(10e9));
            run(&mut driver, 1);
            driver.report().stats.number("fast_latency")
        };
        assert!((smoothed(0.0) - 600.0).abs() < 1e-6 && (smoothed(0.9) - 330.0).abs() < 1e-6);
    }

    #[test]
    fn old_heat_fades() {
        // Pages 8..12 were hot once; with halving, they are not what goes up later.
        let up = |halve_every: u32| {
            let mut driver = open(&format!("halve_every = {halve_every}"), 300, 301);
            for _ in 0..200 {
                driver.touch_all(0, 8..12, false);
            }
            run(&mut driver, 20);
            driver.world.set_speed(TierId(0), Time::from_nanos(100), BytesPerSec(10e9));
            run(&mut driver, 6)
        };
        assert!(up(2).contains(&12));
        assert!(up(1000).contains(&8));
    }

    #[test]
    fn epsilon_says_when_the_search_opens_again() {
        let shift = |epsilon| Balance { low: 0.5, high: 0.6 }.shift(0.55, 100.0, 300.0, epsilon, 0.05);
        assert!(shift(0.2) > 0.2, "0.05 apart is less than 0.2: up to 1");
        assert!(shift(0.01) < 0.03);
    }
}
