//! Pages that miss in TLBs often enough move to the fast tier with their neighbours, to its share.
//!
//! **Idea.** All pages begin in the slow tier. A GPU, or a CPU, reports which translations miss in its TLBs; a page is a
//! candidate at its n-th miss (*threshold migration*). Candidates wait in a queue without a bound, first in, first out, and
//! few move at a time.
//! *Range expansion* queues the neighbours of a candidate within its allocation before it, the furthest first, touched or
//! not: a page that moves before the GPU has touched it needs no shootdown there. *Bandwidth balancing* looks at the fast
//! tier's share of the traffic every 10,000 cycles: below its target by more than a margin, migration goes at full rate,
//! below it at half of that, above it not at all. Nothing moves back.
//!
//! **Source.** N. Agarwal, Paving the Path for Heterogeneous Memory Adoption in Production Systems (PhD, University of
//! Michigan 2017), chapter 4.
//!
//! **Left open by the source.** *How often the ring of misses is read* (`poll`): every microsecond, and a thousand times
//! less often once nothing was in it a thousand times. *How a page is copied*
//! (`copy_threads`): by enough threads that all of its lines are under way at once. *Where the neighbours lie*: half of them
//! on either side; of two that are as far away the lower is first. *The moving average of the share* (`newest_weight`): the
//! newest sample counts half. *Whether copies count in the share* (`count_copies`): no; they push it to one half. *What half
//! the rate is* (`half_rate`): half as many pages in flight, or migration in every second period. *The page itself*: comes
//! after its neighbours. *A full tier*: candidates wait until there is room.
//!
//! **Elsewhere than on GPUs.** A world that reports no TLB misses can watch pages of the slow tier instead
//! (`trigger = "hint-faults"`), as the kernel's NUMA balancing does: a page counts at most one access per scan. Where
//! allocations are not known, neighbours are those in the same mapping. What cannot be had there: a shootdown is not
//! avoided, as the threads that migrate for have touched everything before.
//!
//! **When to use it.** Programs on a GPU whose data begins in the CPU's memory, and that come back to it often enough.

use crate::support::{Pending, Rates};
use crate::{
    Capability, CapabilitySet, Choice, Clear, Fault, Initiator, MemorySystem, Moment, Move, MoveOptions,
    Needs, NextTick, Outcome, PageId, PageRange, Parameters, Placement, Policy, Published, Refusal, Report,
    ScanHand, Scope, Setup, Signal, SignalKind, SignalSet, Step, Subject, TierTraffic, Topology, Watch,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use terrace_model::{TierId, Time};

/// What counts as a touch of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Trigger {
    /// A translation that misses in a TLB.
    #[default]
    TlbMisses,
    /// A fault of a page that a scan has begun to watch.
    HintFaults,
}

/// In which order neighbours are queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Order {
    /// The furthest first, the page itself last.
    #[default]
    FurthestFirst,
    /// The page itself first, the furthest last.
    NearestFirst,
}

/// What is halved at half the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum HalfRate {
    /// Pages in flight.
    #[default]
    InFlight,
    /// Periods: every second one has no migration.
    Periods,
}

/// Parameters of threshold migration.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// The touch at which a page becomes a candidate.
    #[parameter(default = 1, range = 1..=1_000_000, source = "Agarwal §4.2: 1 to 128")]
    pub threshold: u32,
    /// Neighbours that are queued with it. 0: none.
    #[parameter(default = 0, range = 0..=1_000_000, unit = "pages", source = "Agarwal §4.3: 0, 16, 64, 128")]
    pub expansion: u64,
    /// In which order they are queued.
    #[parameter(source = "Agarwal §4.3")]
    pub order: Order,
    /// Pages that move at a time.
    #[parameter(default = 4, range = 1..=1_000_000, unit = "pages", source = "Agarwal §4.2: 4")]
    pub in_flight: u32,
    /// Threads that share the copy of a page.
    #[parameter(default = 8, range = 1..=16, source = "not stated")]
    pub copy_threads: u16,
    /// What counts as a touch.
    #[parameter(source = "Agarwal §4.2: TLB misses")]
    pub trigger: Trigger,
    /// Time between two looks at the ring of TLB misses.
    #[parameter(default = "1 us", range = "1 ns"..="5 h", source = "not stated", scaled)]
    pub poll: Time,
    /// Time between two scans that watch pages, where hint faults are the trigger.
    #[parameter(default = "1 s", range = "1 ns"..="5 h", source = "Linux: numa_balancing_scan_period_min_ms", scaled)]
    pub scan_period: Time,
    /// Slow down as the fast tier comes to serve its share of the traffic, and stop beyond it.
    #[parameter(default = false, source = "Agarwal §4.4")]
    pub balance: bool,
    /// Time between two looks at the traffic: 10,000 cycles of 1.4 GHz.
    #[parameter(default = "7143 ns", range = "1 ns"..="5 h", source = "Agarwal §4.4", scaled)]
    pub balance_period: Time,
    /// The share of the fast tier at which migration stops. Unset: in proportion to the tiers' read bandwidths.
    #[parameter(range = 0.0..=1.0, source = "Agarwal §4.4: 0.714, by bandwidths")]
    pub target: Option<f64>,
    /// How far below the target migration goes at half the rate.
    #[parameter(default = 0.05, range = 0.0..=1.0, source = "Agarwal §4.4: 5 %")]
    pub margin: f64,
    /// Weight of the newest sample in the moving average of the share. 1: no average.
    #[parameter(default = 0.5, range = 0.001..=1.0, source = "not stated")]
    pub newest_weight: f64,
    /// Bytes of copies count in the share.
    #[parameter(default = false, source = "not stated")]
    pub count_copies: bool,
    /// What half the rate is.
    #[parameter(source = "not stated")]
    pub half_rate: HalfRate,
}

/// How fast migration goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    Full,
    Half,
    Suspended,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct ThresholdMigration {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    balance: Balance,
    touches: BTreeMap<PageId, u32>,
    queue: VecDeque<PageId>,
    /// Pages that were queued and have not failed: each moves once.
    known: BTreeSet<PageId>,
    pending: Pending,
    rates: Rates,
    next_balance: Moment,
    next_scan: Moment,
    /// Looks at the ring in a row that found nothing.
    empty_polls: u32,
    candidates: u64,
    neighbours: u64,
    most_queued: u64,
}

/// What bandwidth balancing knows.
#[derive(Clone, Debug)]
struct Balance {
    target: f64,
    margin: f64,
    newest_weight: f64,
    half_rate: HalfRate,
    /// The moving average of the fast tier's share.
    share: Option<f64>,
    rate: Rate,
    periods: u64,
    /// Periods at each rate.
    at_rate: [u64; 3],
}

impl Balance {
    /// A period is over, in which the tiers carried so many bytes.
    fn period(&mut self, fast: u64, slow: u64) {
        self.periods += 1;
        if fast + slow == 0 {
            return;
        }
        let newest = fast as f64 / (fast + slow) as f64;
        let share = self
            .share
            .map_or(newest, |share| self.newest_weight * newest + (1.0 - self.newest_weight) * share);
        self.share = Some(share);
        self.rate = if share > self.target {
            Rate::Suspended
        } else if share >= self.target - self.margin {
            Rate::Half
        } else {
            Rate::Full
        };
        self.at_rate[self.rate as usize] += 1;
    }

    /// How many pages may move at a time, of so many.
    fn most(&self, in_flight: usize) -> usize {
        match (self.rate, self.half_rate) {
            (Rate::Full, _) => in_flight,
            (Rate::Half, HalfRate::InFlight) => in_flight.div_ceil(2),
            (Rate::Half, HalfRate::Periods) if self.periods.is_multiple_of(2) => in_flight,
            _ => 0,
        }
    }
}

/// Bytes that a tier carried.
fn carried(traffic: &TierTraffic, count_copies: bool) -> u64 {
    let of = |by: &[u64; Initiator::COUNT]| {
        by.iter().sum::<u64>() - if count_copies { 0 } else { by[Initiator::Copy as usize] }
    };
    of(&traffic.read) + of(&traffic.written)
}

/// How pages are moved.
fn options(parameters: &Parameters) -> MoveOptions {
    MoveOptions { threads: parameters.copy_threads, ..MoveOptions::default() }
}

/// After so many looks at an empty ring the next ones come as many times less often.
const IDLE: u32 = 1000;

/// Neighbours of `page` within `range` in the order in which they are queued, the page itself among them.
fn around(page: PageId, range: PageRange, expansion: u64, order: Order) -> Vec<PageId> {
    let half = expansion / 2;
    let first = page.vpn.saturating_sub(half).max(range.first.vpn);
    let last = page.vpn.saturating_add(half).min(range.end().saturating_sub(1));
    let mut pages: Vec<PageId> = (first..=last).map(|vpn| PageId { vpn, ..page }).collect();
    pages.sort_by_key(|near| (std::cmp::Reverse(near.vpn.abs_diff(page.vpn)), near.vpn));
    if order == Order::NearestFirst {
        pages.reverse();
    }
    pages
}

impl Published for ThresholdMigration {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<ThresholdMigration, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let bandwidth = |tier| setup.topology.tier(tier).read_bandwidth.0;
        let target = parameters.target.unwrap_or(bandwidth(fast) / (bandwidth(fast) + bandwidth(slow)));
        if parameters.balance && !target.is_finite() {
            return Err(Refusal::Machine("its tiers have no bandwidth; set target".to_owned()));
        }
        Ok(ThresholdMigration {
            balance: Balance {
                target,
                margin: parameters.margin,
                newest_weight: parameters.newest_weight,
                half_rate: parameters.half_rate,
                share: None,
                rate: Rate::Full,
                periods: 0,
                at_rate: [0; 3],
            },
            parameters,
            fast,
            slow,
            touches: BTreeMap::new(),
            queue: VecDeque::new(),
            known: BTreeSet::new(),
            pending: Pending::default(),
            rates: Rates::default(),
            next_balance: Moment::START,
            next_scan: Moment::START,
            empty_polls: 0,
            candidates: 0,
            neighbours: 0,
            most_queued: 0,
        })
    }

    fn acts_in(parameters: &Parameters, period: &str) -> bool {
        match period {
            "poll" => parameters.trigger == Trigger::TlbMisses,
            "scan_period" => parameters.trigger == Trigger::HintFaults,
            "balance_period" => parameters.balance,
            _ => true,
        }
    }
}

impl Policy for ThresholdMigration {
    fn needs(&self) -> Needs {
        let misses = self.parameters.trigger == Trigger::TlbMisses;
        let capabilities = CapabilitySet::of(&[Capability::Migration])
            .with_if(misses, Capability::TlbMisses)
            .with_if(misses && self.parameters.expansion > 0, Capability::Objects)
            .with_if(!misses, Capability::HintFaults)
            .with_if(self.parameters.balance, Capability::Traffic);
        let signals = SignalSet::of(&[SignalKind::Unmapped]).with_if(misses, SignalKind::TlbMiss);
        Needs { capabilities, signals, ..Needs::default() }
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        Placement::tier(self.slow).or(self.fast, None)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            match *signal {
                Signal::TlbMiss { page, .. } | Signal::HintFault { page, .. } => self.touched(page, memory),
                Signal::Unmapped { range } => self.forget(range),
                _ => {}
            }
            if let Some((_, Subject::Page(page), outcome)) = self.pending.handle(signal)
                && outcome != Outcome::Done
            {
                self.known.remove(&page);
            }
        }
        if self.parameters.balance && now >= self.next_balance {
            let (traffic, _) = self.rates.since_last(now, memory);
            let bytes = |tier: TierId| carried(&traffic[tier.index()], self.parameters.count_copies);
            self.balance.period(bytes(self.fast), bytes(self.slow));
            self.next_balance = now.plus(self.parameters.balance_period);
        }
        if self.parameters.trigger == Trigger::HintFaults && now >= self.next_scan {
            self.scan(memory);
            self.next_scan = now.plus(self.parameters.scan_period);
        }
        self.dispatch(memory);
        if !signals.contains(&Signal::Tick) {
            return NextTick::Unchanged;
        }
        let mut next = match self.parameters.trigger {
            Trigger::TlbMisses => {
                let rests = signals.iter().all(|signal| *signal == Signal::Tick);
                self.empty_polls = if rests { self.empty_polls.saturating_add(1) } else { 0 };
                let is_idle = self.empty_polls > IDLE;
                now.plus(Time(self.parameters.poll.0.saturating_mul(if is_idle {
                    u64::from(IDLE)
                } else {
                    1
                })))
            }
            Trigger::HintFaults => self.next_scan,
        };
        if self.parameters.balance {
            next = next.min(self.next_balance);
        }
        NextTick::At(next)
    }

    fn report(&self, report: &mut Report) {
        report.pages("candidates", self.candidates);
        report.pages("neighbours", self.neighbours);
        report.level_pages("queued", self.queue.len() as u64);
        report.level_pages("most_queued", self.most_queued);
        report.pages("moved", self.pending.done);
        report.pages("failed", self.pending.failed);
        if self.parameters.balance {
            report.ratio("fast_share", self.balance.share.unwrap_or_default());
            for (name, periods) in
                ["full_rate", "half_rate", "suspended"].into_iter().zip(self.balance.at_rate)
            {
                report.count(&format!("periods_{name}"), periods);
            }
        }
    }
}

impl ThresholdMigration {
    /// One more touch of a page.
    fn touched(&mut self, page: PageId, memory: &mut dyn MemorySystem) {
        if self.known.contains(&page) {
            return;
        }
        let touches = self.touches.entry(page).or_default();
        *touches += 1;
        if *touches < self.parameters.threshold {
            return;
        }
        self.touches.remove(&page);
        self.candidates += 1;
        let alone = PageRange { first: page, pages: 1 };
        let range = if self.parameters.expansion == 0 {
            alone
        } else {
            let area = memory.area(page);
            area.map_or(alone, |area| area.object.map_or(area.range, |object| object.range))
        };
        for near in around(page, range, self.parameters.expansion, self.parameters.order) {
            if self.known.insert(near) {
                self.neighbours += u64::from(near != page);
                self.queue.push_back(near);
            }
        }
        self.most_queued = self.most_queued.max(self.queue.len() as u64);
    }

    /// These names may come back for other contents.
    fn forget(&mut self, range: PageRange) {
        self.queue.retain(|page| !range.contains(*page));
        self.known.retain(|page| !range.contains(*page));
        self.touches.retain(|page, _| !range.contains(*page));
    }

    /// Watches all pages of the slow tier that are not on their way.
    fn scan(&mut self, memory: &mut dyn MemorySystem) {
        let mut pages = Vec::new();
        let mut hand = ScanHand::default();
        memory.scan(Scope::Tier(self.slow), &mut hand, Clear::NOTHING, &mut |view| {
            if !self.known.contains(&view.page) {
                pages.push(view.page);
            }
            Step::Keep
        });
        memory.watch(&pages, Watch::Hint);
    }

    /// Orders what may move now.
    fn dispatch(&mut self, memory: &mut dyn MemorySystem) {
        let most = self.balance.most(self.parameters.in_flight as usize);
        let options = options(&self.parameters);
        while self.pending.outstanding() < most
            && memory.topology().free_pages(self.fast) > self.pending.outstanding() as u64
            && let Some(page) = self.queue.pop_front()
        {
            let ticket = memory.migrate(&[Move { page, to: self.fast }], options);
            self.pending.ordered(ticket, 1);
        }
    }
}

#[cfg(test)]
#[path = "threshold_migration/tests.rs"]
mod tests;
