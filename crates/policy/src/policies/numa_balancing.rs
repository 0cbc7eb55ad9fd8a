//! Linux's memory tiering: hint faults promote pages that are soon touched, reclaim demotes.
//!
//! **Idea.** Pages of the slow tier are marked, a stretch per period, so that their next access faults. The time from
//! mark to fault tells how hot a page is: below a threshold it is promoted, as far as a rate limit allows. The
//! threshold rises and falls so that the candidates just use that rate up. When the fast tier runs short of memory,
//! inactive pages are demoted instead of reclaimed. Reads and writes count the same in the kernel; Intel's earlier
//! patch made the threshold twice as large for a fault by a store.
//!
//! **Source.** The baseline `autonuma` of Ambix (M. Marques, IST Lisboa 2021, §2.3.4: Intel's tiering-0.4), and its
//! descendant in Linux: `numa_balancing = 2`, described in admin-guide/sysctl/kernel.
//!
//! **Left open by the source.** *Watermarks*: Linux derives them from the size of memory; here they are shares of a
//! tier (`low_watermark`, `high_watermark`), ours. *More than two tiers*: each demotes to the next slower one, and a fault
//! in any of them promotes to the fastest, as in Linux. *The step of the threshold*: a sixteenth of twice the initial
//! value, within a tenth above or below the rate, as fair.c has it. *While the fast tier has room* every faulting
//! page is promoted, as in the kernel, whose margin is larger: a sixteenth of the node, at least 1 GiB, above its
//! watermark (fair.c, pgdat_free_space_enough). It also sets the threshold back then; that is not done here. *Scan
//! period*: fixed, where the kernel adapts it per task between 1 s and 60 s.
//!
//! **When to use it.** What Linux itself does: the policy to compare with, and the one that needs no further software
//! in production. Faults cost the program, so very hot slow memory hurts until it is found; `rate_limit` and the
//! threshold bound what it moves.

use crate::support::{Cascade, List, Marker, Pending};
use crate::{
    Capability, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick, PageId, Parameters, Policy,
    Published, Refusal, Report, Setup, Signal, SignalKind,
};
use terrace_model::{Bytes, BytesPerSec, TierId, Time};

/// Parameters of NUMA balancing with memory tiering.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Time between two stretches of marking.
    #[parameter(
        default = "1 s",
        range = "1 ns"..="5 h",
        source = "kernel/sched/fair.c, sysctl_numa_balancing_scan_period_min: 1000 ms",
        scaled,
    )]
    pub scan_period: Time,
    /// How much is marked per period.
    #[parameter(
        default = "256 MiB",
        range = "0 B"..="1024 TiB",
        source = "kernel/sched/fair.c, sysctl_numa_balancing_scan_size: 256 MB",
        scaled,
    )]
    pub scan_size: Bytes,
    /// Time from mark to fault below which a page is hot, to begin with.
    #[parameter(
        default = "1 s",
        range = "0 s"..="5 h",
        source = "kernel/sched/fair.c, sysctl_numa_balancing_hot_threshold: 1000 ms",
        scaled,
    )]
    pub hot_threshold: Time,
    /// Factor on the threshold for faults by stores.
    #[parameter(
        default = 2.0,
        range = 0.0..=1e6,
        source = "tiering-0.4, by Ambix §2.3.4, and patches of 2019 and 2020, TNF_WRITE; Linux as merged: 1",
    )]
    pub write_factor: f64,
    /// Most memory promoted per second.
    #[parameter(
        default = "65536 MiB/s",
        range = "0 B/s"..="1000 TB/s",
        source = "kernel/sched/fair.c, sysctl_numa_balancing_promote_rate_limit: 65536 MB, of 2^20 bytes each; 30 in the \
                  setup that the documentation of the tiering branches gives",
    )]
    pub rate_limit: BytesPerSec,
    /// Over how long promotions are bounded by it: what is allowed and not used in that time is lost.
    #[parameter(
        default = "1 s",
        range = "1 ns"..="5 h",
        source = "kernel/sched/fair.c, numa_promotion_rate_limit: MSEC_PER_SEC",
        scaled,
    )]
    pub rate_period: Time,
    /// Adapt the threshold to the rate limit.
    #[parameter(default = true, source = "kernel/sched/fair.c, numa_promotion_adjust_threshold: always")]
    pub adapt: bool,
    /// Time between two adaptations.
    #[parameter(
        default = "60 s",
        range = "1 ns"..="5 h",
        source = "kernel/sched/fair.c, sysctl_numa_balancing_scan_period_max",
        scaled,
    )]
    pub adapt_period: Time,
    /// Free share of a tier below which pages are demoted.
    #[parameter(default = 0.01, range = 0.0..=1.0, source = "ours")]
    pub low_watermark: f64,
    /// Free share of a tier at which demotion ends, and, of the fastest, above which every faulting page is
    /// promoted.
    #[parameter(default = 0.02, range = 0.0..=1.0, source = "ours")]
    pub high_watermark: f64,
}

impl Parameters {
    /// Bytes that may be promoted in a period of the rate limit.
    fn allowance(&self) -> f64 {
        self.rate_limit.0 * self.rate_period.as_secs()
    }
}

/// Steps between nothing and twice the initial threshold (kernel/sched/fair.c, NUMA_MIGRATION_ADJUST_STEPS: 16).
const STEPS: u64 = 16;

/// The policy.
#[derive(Clone, Debug)]
pub struct NumaBalancing {
    parameters: Parameters,
    fast: TierId,
    marker: Marker,
    reclaim: Cascade,
    pending: Pending,
    threshold: Time,
    /// Base pages below the threshold since the last adaptation.
    candidates: u64,
    adapted: Moment,
    /// Bytes that may be promoted in the current period of the rate limit, and when it began.
    allowance: f64,
    allowed: Moment,
    started: bool,
    promoted: u64,
    limited: u64,
}

impl Published for NumaBalancing {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<NumaBalancing, Refusal> {
        let p = &parameters;
        let (fast, _) = setup.topology.fast_and_slow()?;
        Ok(NumaBalancing {
            fast,
            marker: Marker::new(setup.topology),
            reclaim: Cascade::new(setup.topology, p.low_watermark, p.high_watermark, List::Active),
            pending: Pending::default(),
            threshold: p.hot_threshold,
            candidates: 0,
            adapted: Moment::START,
            allowance: p.allowance(),
            allowed: Moment::START,
            started: false,
            promoted: 0,
            limited: 0,
            parameters,
        })
    }
}

impl Policy for NumaBalancing {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::HintFaults, Capability::AccessedBits, Capability::Migration])
            .and_signals(&[SignalKind::Unmapped])
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if !std::mem::replace(&mut self.started, true) {
            self.reclaim.arm(memory);
        }
        if now.since(self.allowed) >= self.parameters.rate_period {
            self.allowed = now;
            self.allowance = self.parameters.allowance();
        }
        let mut tick = false;
        let mut moves = Vec::new();
        for signal in signals {
            self.pending.handle(signal);
            self.reclaim.handle(signal);
            match *signal {
                Signal::Tick => tick = true,
                Signal::HintFault { page, write, latency, .. } => {
                    self.faulted(page, write, latency, memory, &mut moves);
                }
                _ => {}
            }
        }
        let ticket = memory.migrate(&moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
        self.reclaim.demote(tick, memory);
        if !tick {
            return NextTick::Unchanged;
        }
        self.adapt(now);
        self.marker.mark(self.parameters.scan_size, memory, |_| {});
        NextTick::At(now.plus(self.parameters.scan_period))
    }

    fn report(&self, report: &mut Report) {
        report.pages("promoted", self.promoted);
        report.pages("demoted", self.reclaim.ordered());
        report.pages("rate_limited", self.limited);
        report.count("failed", self.pending.failed);
        report.stats.real_level("threshold", self.threshold.as_nanos(), terrace_model::Unit::Nanoseconds);
    }
}

impl NumaBalancing {
    fn faulted(
        &mut self,
        page: PageId,
        write: bool,
        latency: Time,
        memory: &mut dyn MemorySystem,
        moves: &mut Vec<Move>,
    ) {
        let Some(view) = memory.page(page).filter(|view| view.tier != self.fast && !view.in_flight) else {
            return;
        };
        let pages = view.base_pages();
        let ordered: u64 = moves.len() as u64;
        let plenty = memory.topology().free_pages(self.fast) > self.reclaim.high() + ordered + pages;
        if !plenty {
            let factor = if write { self.parameters.write_factor } else { 1.0 };
            if latency.0 as f64 >= self.threshold.0 as f64 * factor {
                return;
            }
            self.candidates += pages;
            if self.allowance < view.size.bytes() as f64 {
                self.limited += pages;
                return;
            }
        }
        self.allowance -= view.size.bytes() as f64;
        self.promoted += pages;
        moves.push(Move { page, to: self.fast });
    }

    /// Moves the threshold a step towards using up the rate limit.
    fn adapt(&mut self, now: Moment) {
        let p = &self.parameters;
        let span = now.since(self.adapted);
        if !p.adapt || span < p.adapt_period {
            return;
        }
        let wanted = p.rate_limit.0 * span.as_secs() / 4096.0;
        let step = Time(2 * p.hot_threshold.0 / STEPS);
        if self.candidates as f64 > wanted * 1.1 {
            self.threshold = Time(self.threshold.0.saturating_sub(step.0).max(step.0));
        } else if (self.candidates as f64) < wanted * 0.9 {
            self.threshold = Time((self.threshold.0 + step.0).min(2 * p.hot_threshold.0));
        }
        (self.candidates, self.adapted) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::{millis, seconds};
    use crate::test_support::in_fast;
    use crate::{Capability, Driver, InMemory, Open, PageId};
    use terrace_model::{Bytes, TierId};

    /// A fast tier of 100 pages, filled; pages 100..140 in the slow one.
    fn full(parameters: &str) -> Driver {
        let mut world = InMemory::new(&[("fast", Bytes::kib(400)), ("slow", Bytes::kib(800))]);
        world.map_anonymous(0, 0, 140);
        let mut driver = Driver::open("numa-balancing", parameters, world).unwrap();
        driver.touch_all(0, 0..140, true);
        driver
    }

    #[test]
    fn soon_touched_pages_are_promoted_and_untouched_ones_make_room() {
        let mut driver = full("");
        for _ in 0..10 {
            driver.advance(millis(300));
            driver.touch_all(0, 110..112, false);
            driver.touch_all(0, 0..50, false);
            driver.advance(millis(700));
        }
        assert!(in_fast(&driver, 110) && in_fast(&driver, 111));
        assert!((0..50).all(|vpn| in_fast(&driver, vpn)), "what is used stays");
        assert!(driver.report().stats.integer("demoted") >= 2);
    }

    /// Keeps the fast tier full of used pages but for two free ones, and touches page 110 `delay` after each mark.
    fn promoted_after(parameters: &str, delay: u64, write: bool) -> bool {
        let mut driver =
            full(&format!("low_watermark = 0\nhigh_watermark = 0.05\nadapt = false\n{parameters}"));
        driver.unmap(0, 0, 2);
        driver.advance(seconds(1));
        for _ in 0..3 {
            driver.advance(millis(delay));
            driver.touch(PageId::new(0, 110), write);
            driver.advance(millis(1000 - delay));
        }
        in_fast(&driver, 110)
    }

    #[test]
    fn the_threshold_is_on_the_time_from_mark_to_fault() {
        let threshold = "hot_threshold = \"400 ms\"\nwrite_factor = 2";
        assert!(promoted_after(threshold, 300, false));
        assert!(!promoted_after(threshold, 500, false));
        assert!(promoted_after(threshold, 500, true), "a store has twice the time");
        assert!(!promoted_after(threshold, 900, true));
        assert!(!promoted_after("hot_threshold = \"400 ms\"\nwrite_factor = 1", 500, true));
        assert!(!promoted_after("rate_limit = \"1 kB/s\"", 300, false), "no page per second is allowed");
    }

    #[test]
    fn promotions_are_bounded_in_each_period_of_the_rate_limit() {
        let promoted = |parameters: &str| {
            let mut driver = full(&format!(
                "low_watermark = 0\nhigh_watermark = 0.2\nadapt = false\nrate_limit = \"41 kB/s\"\n{parameters}"
            ));
            driver.unmap(0, 0, 15);
            driver.advance(millis(1100));
            driver.touch_all(0, 100..140, false);
            driver.advance(millis(1));
            (100..140).filter(|vpn| in_fast(&driver, *vpn)).count()
        };
        assert_eq!(promoted(""), 10, "those of a second");
        assert_eq!(promoted("rate_period = \"500 ms\""), 5, "those of half a second");
    }

    #[test]
    fn while_there_is_room_every_fault_promotes() {
        let mut driver = full("hot_threshold = \"1 ms\"");
        driver.unmap(0, 0, 50);
        driver.advance(millis(1500));
        driver.touch(PageId::new(0, 110), false);
        driver.advance(millis(1));
        assert!(in_fast(&driver, 110));
    }

    #[test]
    fn the_threshold_follows_the_rate_limit() {
        let threshold_after = |rate: &str| {
            let parameters = format!(
                "low_watermark = 0\nhigh_watermark = 0.05\nadapt_period = \"1 s\"\nscan_size = \"800 KiB\"\nrate_limit = \"{rate}\""
            );
            let mut driver = full(&parameters);
            for _ in 0..5 {
                driver.touch_all(0, 100..140, false);
                driver.advance(seconds(1));
            }
            driver.report().stats.number("threshold") / 1e9
        };
        assert!(threshold_after("8 kB/s") < 1.0, "20 times as many candidates as may go");
        assert_eq!(threshold_after("1 GB/s"), 1.625, "five steps of an eighth up");
    }

    #[test]
    fn with_three_tiers_every_slow_page_can_come_up() {
        let tiers =
            [("fast", 400), ("slow", 80), ("slowest", 1200)].map(|(name, kib)| (name, Bytes::kib(kib)));
        let mut world = InMemory::new(&tiers);
        world.map_anonymous(0, 0, 200);
        // A stretch is less than the slow tiers have together.
        let parameters = "scan_size = \"120 KiB\"\nlow_watermark = 0.1\nhigh_watermark = 0.2";
        let mut driver = Driver::open("numa-balancing", parameters, world).unwrap();
        driver.touch_all(0, 0..200, true);
        let touched = [105, 125, 195];
        // With so little room each of them may have to go again.
        let mut came_up = [false; 3];
        for _ in 0..40 {
            driver.advance(millis(300));
            touched.iter().for_each(|vpn| driver.touch(PageId::new(0, *vpn), false));
            driver.advance(millis(700));
            came_up.iter_mut().zip(touched).for_each(|(came, vpn)| *came |= in_fast(&driver, vpn));
        }
        assert_eq!(came_up, [true; 3]);
        assert!(driver.world.resident(TierId(1)) <= 20);
    }

    #[test]
    fn marking_goes_on_where_it_stopped() {
        let mut driver = full("scan_size = \"40 KiB\"\nlow_watermark = 0\nhigh_watermark = 0");
        driver.unmap(0, 0, 60);
        driver.advance(millis(1100));
        driver.touch_all(0, 100..140, false);
        driver.advance(millis(100));
        assert_eq!((100..140).filter(|vpn| in_fast(&driver, *vpn)).count(), 10);
    }

    #[test]
    fn needs_hint_faults() {
        let world = InMemory::new(&[("fast", Bytes::kib(400)), ("slow", Bytes::kib(800))]);
        assert!(Driver::open("numa-balancing", "", world.without(Capability::HintFaults)).is_err());
    }

    #[test]
    fn a_longer_period_marks_less() {
        let promoted = |period: &str| {
            let mut driver =
                full(&format!("scan_size = \"40 KiB\"\nscan_period = \"{period}\"\nlow_watermark = 0"));
            driver.unmap(0, 0, 60);
            driver.advance(millis(3500));
            driver.touch_all(0, 100..140, false);
            driver.advance(millis(1));
            driver.report().stats.integer("promoted")
        };
        assert!(promoted("1 s") > promoted("10 s"));
    }

    #[test]
    fn demotion_begins_at_the_low_watermark_and_ends_at_the_high_one() {
        let resident = |parameters: &str, used: u64| {
            let mut world = InMemory::new(&[("fast", Bytes::kib(400)), ("slow", Bytes::kib(800))]);
            world.map_anonymous(0, 0, 140);
            let mut driver = Driver::open("numa-balancing", parameters, world).unwrap();
            driver.touch_all(0, 0..used, true);
            driver.advance(seconds(20));
            driver.world.resident(TierId(0))
        };
        assert_eq!(resident("low_watermark = 0.1\nhigh_watermark = 0.2", 95), 80);
        assert_eq!(resident("low_watermark = 0.1\nhigh_watermark = 0.2", 85), 85);
        assert_eq!(resident("low_watermark = 0.02\nhigh_watermark = 0.2", 95), 95);
    }

    #[test]
    fn the_threshold_stands_without_adaptation() {
        let mut driver = full("adapt = false\nadapt_period = \"1 s\"");
        driver.advance(seconds(10));
        assert_eq!(driver.report().stats.number("threshold"), 1e9);
    }
}
