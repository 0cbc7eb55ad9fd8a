//! Free fast memory ahead of need, and promote only pages that proved active.
//!
//! **Idea.** Allocation and demotion have watermarks of their own: the fast tier is kept emptier than allocation needs,
//! by demoting inactive pages in the background, so that new pages, hot as a rule, find room and promotion does too.
//! Pages of the slow tier are marked to fault at their next access. A fault on an inactive page only makes it active; a
//! fault on an active page promotes it. That filters out pages that are touched once in a while.
//!
//! **Source.** H. Al Maruf et al., "TPP: Transparent Page Placement for CXL-Enabled Tiered-Memory", ASPLOS 2023:
//! demotion instead of reclaim, decoupled watermarks (2 % of capacity), promotion by hint faults of the slow node only.
//!
//! **Left open by the source.** *More than two tiers*: each demotes to the next slower one by watermarks of its own, and a
//! fault in any of them promotes to the fastest, as in Linux. *How activity ends*: the paper leans on the kernel's lists;
//! here a page that was marked and did not fault until its next mark is inactive again. *Marking*: a stretch per period as
//! NUMA balancing does.
//! *File pages*: placed and moved as others; the paper's option to allocate them in the slow tier first is not here.
//!
//! **When to use it.** Programs that allocate hot memory all the time while old memory cools, as caches and web
//! services do: room is made ahead of need. It promotes at the second fault, so pages used once in a while stay down.

use crate::support::{Cascade, List, Marker, PageMap, Pending};
use crate::{
    Capability, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick, Parameters, Policy, Published,
    Refusal, Report, Setup, Signal, SignalKind,
};
use terrace_model::{Bytes, TierId, Time};

/// Parameters of TPP.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Share of a tier that demotion keeps free.
    #[parameter(
        default = 0.02,
        range = 0.0..=1.0,
        source = "authors' patch, admin-guide/sysctl/vm, demote_scale_factor: 200 of 10,000",
    )]
    pub demote_scale: f64,
    /// Demotion begins when less than this part of it is left.
    #[parameter(
        default = 0.5,
        range = 0.0..=1.0,
        source = "ours, so that it works in batches; the patch begins below all of it",
    )]
    pub demote_start: f64,
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
    /// Promote only pages that were active when they faulted. Off: promote at the first fault.
    #[parameter(default = true)]
    pub active_only: bool,
}

/// What is known of a page in a slow tier.
#[derive(Clone, Copy, Debug, Default)]
struct Marked {
    /// Marked and not faulted since.
    waiting: bool,
    active: bool,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Tpp {
    parameters: Parameters,
    fast: TierId,
    marker: Marker,
    marked: PageMap<Marked>,
    reclaim: Cascade,
    pending: Pending,
    started: bool,
    promoted: u64,
    activated: u64,
}

impl Published for Tpp {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Tpp, Refusal> {
        let p = &parameters;
        let (fast, _) = setup.topology.fast_and_slow()?;
        let low = p.demote_scale * p.demote_start;
        let reclaim = Cascade::new(setup.topology, low, p.demote_scale, List::Active);
        Ok(Tpp {
            parameters,
            fast,
            marker: Marker::new(setup.topology),
            marked: PageMap::default(),
            reclaim,
            pending: Pending::default(),
            started: false,
            promoted: 0,
            activated: 0,
        })
    }
}

impl Policy for Tpp {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::HintFaults, Capability::AccessedBits, Capability::Migration])
            .and_signals(&[SignalKind::Unmapped])
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if !std::mem::replace(&mut self.started, true) {
            self.reclaim.arm(memory);
        }
        let mut tick = false;
        let mut moves = Vec::new();
        for signal in signals {
            self.pending.handle(signal);
            self.reclaim.handle(signal);
            match *signal {
                Signal::Tick => tick = true,
                Signal::Unmapped { range } => self.marked.forget(range),
                Signal::HintFault { page, .. } => {
                    let Some(view) =
                        memory.page(page).filter(|view| view.tier != self.fast && !view.in_flight)
                    else {
                        continue;
                    };
                    let marked = self.marked.entry(page);
                    marked.waiting = false;
                    if marked.active || !self.parameters.active_only {
                        *marked = Marked::default();
                        moves.push(Move { page, to: self.fast });
                        self.promoted += view.base_pages();
                    } else {
                        marked.active = true;
                        self.activated += 1;
                    }
                }
                _ => {}
            }
        }
        let ticket = memory.migrate(&moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
        if tick {
            self.mark(memory);
        }
        self.reclaim.demote(tick, memory);
        if tick { NextTick::At(now.plus(self.parameters.scan_period)) } else { NextTick::Unchanged }
    }

    fn report(&self, report: &mut Report) {
        report.pages("promoted", self.promoted);
        report.pages("demoted", self.reclaim.ordered());
        report.count("activated", self.activated);
        report.count("failed", self.pending.failed);
    }
}

impl Tpp {
    fn mark(&mut self, memory: &mut dyn MemorySystem) {
        let marked = &mut self.marked;
        self.marker.mark(self.parameters.scan_size, memory, |view| {
            let entry = marked.entry(view.page);
            entry.active &= !entry.waiting;
            entry.waiting |= !view.in_flight;
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::{millis, seconds};
    use crate::test_support::in_fast;
    use crate::{Driver, InMemory, Open, PageId};
    use terrace_model::{Bytes, TierId};

    /// A fast tier of 100 pages.
    fn open(parameters: &str, pages: u64) -> Driver {
        let mut world = InMemory::new(&[("fast", Bytes::kib(400)), ("slow", Bytes::kib(800))]);
        world.map_anonymous(0, 0, 280);
        let mut driver = Driver::open("tpp", parameters, world).unwrap();
        driver.touch_all(0, 0..pages, true);
        driver
    }

    #[test]
    fn room_is_made_ahead_of_need() {
        for (scale, used) in [(0.1, 90), (0.3, 70)] {
            let mut driver = open(&format!("demote_scale = {scale}"), 100);
            driver.advance(seconds(10));
            assert_eq!(driver.world.resident(TierId(0)), used);
        }
    }

    #[test]
    fn demotion_begins_at_its_start() {
        let resident = |start: f64| {
            let mut driver = open(&format!("demote_scale = 0.2\ndemote_start = {start}"), 85);
            driver.advance(seconds(10));
            driver.world.resident(TierId(0))
        };
        assert_eq!((resident(1.0), resident(0.5)), (80, 85));
    }

    /// Touches page 110 in the periods given.
    fn promoted(parameters: &str, periods: &[u64]) -> bool {
        let mut driver = open(&format!("demote_scale = 0.1\n{parameters}"), 120);
        driver.advance(seconds(5));
        for period in 0..6 {
            driver.advance(millis(500));
            if periods.contains(&period) {
                driver.touch(PageId::new(0, 110), false);
            }
            driver.advance(millis(500));
        }
        in_fast(&driver, 110)
    }

    #[test]
    fn the_second_fault_of_an_active_page_promotes() {
        assert!(promoted("", &[2, 3]));
        assert!(!promoted("", &[2]));
        assert!(!promoted("", &[1, 4]), "inactive again in between");
        assert!(promoted("active_only = false", &[2]));
    }

    #[test]
    fn with_three_tiers_pages_come_up_from_each_and_sink_one_by_one() {
        let tiers =
            [("fast", 400), ("slow", 400), ("slowest", 1200)].map(|(name, kib)| (name, Bytes::kib(kib)));
        let mut world = InMemory::new(&tiers);
        world.map_anonymous(0, 0, 260);
        let mut driver = Driver::open("tpp", "demote_scale = 0.1", world).unwrap();
        driver.touch_all(0, 0..260, true);
        for _ in 0..20 {
            driver.advance(millis(500));
            for vpn in [150, 250] {
                driver.touch(PageId::new(0, vpn), false);
            }
            driver.advance(millis(500));
        }
        assert!(in_fast(&driver, 150) && in_fast(&driver, 250));
        let resident = [0, 1, 2].map(|tier| driver.world.resident(TierId(tier)));
        assert!(resident[0] <= 95 && resident[1] <= 95, "{resident:?}: demotion begins with 5 % left");
        assert_eq!(resident.iter().sum::<u64>(), 260);
    }

    #[test]
    fn a_period_marks_as_much_as_said() {
        let mut driver = open("active_only = false\ndemote_scale = 0.3\nscan_size = \"8 KiB\"", 120);
        driver.advance(seconds(4));
        let before = driver.report().stats.integer("promoted");
        driver.touch_all(0, 100..120, false);
        driver.advance(millis(1));
        assert!((2..=8).contains(&(driver.report().stats.integer("promoted") - before)));
        let mut driver = open("scan_period = \"100 s\"", 120);
        driver.advance(seconds(50));
        driver.touch_all(0, 100..120, false);
        driver.advance(millis(1));
        assert_eq!(driver.report().stats.integer("activated"), 0, "nothing is marked yet");
    }
}
