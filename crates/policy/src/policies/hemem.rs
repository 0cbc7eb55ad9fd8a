//! Sampled accesses, a read and a write threshold, writes first.
//!
//! **Idea.** The processor samples loads and stores; a page with enough sampled reads, or half as many writes, is hot.
//! When any page's count reaches the cooling threshold, all counts are halved. A thread that wakes every 10 ms moves hot
//! pages of the slow tier up, those hot by writes first, and cold pages of the fast tier down to make room for them and
//! to keep a little free for new pages. If the fast tier has no cold page left, nothing moves: its hot pages stay.
//!
//! **Source.** A. Raybuck et al., "HeMem: Scalable Tiered Memory Management for Big Data Applications and Real NVM",
//! SOSP 2021. Values from its code, src/pebs.h, in the state that Colloid's authors took over: one sample in 5,003, hot
//! at 8 reads or 4 writes, cooling at 18, migration every 10 ms. Other states of the repository differ: 8 writes, or 4
//! reads, 4 writes, cooling at 10 and one sample in 19,997.
//!
//! **Left open by the source.** *Order among pages hot alike*: first come, first served, as its queues do. *The order
//! in which cold pages go*: by address from where the last search stopped. *Free fast memory*: a share, ours;
//! the code's migration keeps none. *Rate*: per second here; the code bounds each pass of migration. *Large and small
//! allocations*: HeMem leaves those below 1 GB in fast memory; here all are alike.
//!
//! **When to use it.** Machines whose processor samples accesses at little cost (PEBS, IBS), with hot sets that are
//! stable over many samples and write-hot pages that matter more. Thresholds are fixed: where much more than the fast
//! tier is hot, or little, `memtis` adapts and this does not.

use crate::support::{PageMap, Pending};
use crate::{
    Capability, Clear, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick, PageId, Parameters, Policy,
    Published, Refusal, Report, ScanHand, Scope, Setup, Signal, SignalKind, Step,
};
use std::collections::VecDeque;
use terrace_model::{BytesPerSec, TierId, Time};

/// Parameters of HeMem.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// One access in so many is sampled.
    #[parameter(default = 5003, range = 1..=1_000_000_000_000, source = "pebs.h, SAMPLE_PERIOD")]
    pub sample_period: u64,
    /// Sampled reads that make a page hot.
    #[parameter(default = 8, range = 1..=65_535, source = "pebs.h, HOT_READ_THRESHOLD")]
    pub hot_reads: u16,
    /// Sampled writes that make a page hot.
    #[parameter(default = 4, range = 1..=65_535, source = "pebs.h, HOT_WRITE_THRESHOLD")]
    pub hot_writes: u16,
    /// Count of reads or writes at which all counts are halved.
    #[parameter(
        default = 18,
        range = 1..=65_535,
        source = "pebs.h, PEBS_COOLING_THRESHOLD: 18; there, above it",
    )]
    pub cooling: u16,
    /// Time between two looks of the migration thread.
    #[parameter(default = "10 ms", range = "1 ns"..="5 h", source = "pebs.h, PEBS_KSWAPD_INTERVAL", scaled)]
    pub period: Time,
    /// Most memory moved per second, either way.
    #[parameter(
        default = "10 GiB/s",
        range = "0 B/s"..="1000 TB/s",
        source = "pebs.h, PEBS_KSWAPD_MIGRATE_RATE: 10 GiB; that it is meant per second is our reading",
    )]
    pub rate_limit: BytesPerSec,
    /// Share of the fast tier to keep free for new pages.
    #[parameter(default = 1.0 / 192.0, range = 0.0..=1.0, source = "ours, such as 1 GB of 192 GB")]
    pub headroom: f64,
}

/// Counts of one page; halved late, when they are next looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u16,
    writes: u16,
    /// Coolings that these counts have been through.
    cooled: u32,
    /// The page waits in the queue of hot pages.
    queued: bool,
}

impl Counts {
    fn cool(&mut self, clock: u32) {
        let behind = clock.wrapping_sub(self.cooled).min(15);
        self.reads >>= behind;
        self.writes >>= behind;
        self.cooled = clock;
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Hemem {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    headroom: u64,
    counts: PageMap<Counts>,
    clock: u32,
    /// Hot pages of the slow tier, those hot by writes in front.
    hot: VecDeque<PageId>,
    hand: ScanHand,
    pending: Pending,
    started: bool,
    samples: u64,
    promoted: u64,
    demoted: u64,
}

impl Published for Hemem {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Hemem, Refusal> {
        let p = &parameters;
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let pages = setup.topology.tier(fast).capacity.0 >> 12;
        Ok(Hemem {
            headroom: (pages as f64 * p.headroom).ceil() as u64,
            parameters,
            fast,
            slow,
            counts: PageMap::default(),
            clock: 0,
            hot: VecDeque::new(),
            hand: ScanHand::default(),
            pending: Pending::default(),
            started: false,
            samples: 0,
            promoted: 0,
            demoted: 0,
        })
    }

    fn decides_after(parameters: &Parameters) -> Option<u64> {
        Some(u64::from(parameters.hot_reads.min(parameters.hot_writes)))
    }
}

impl Policy for Hemem {
    fn needs(&self) -> Needs {
        let samples = Capability::of_sampling(self.parameters.sample_period);
        Needs::of(&[samples, Capability::Migration, Capability::WholeHugePages])
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
                Signal::Access { page, write, count } => self.sampled(page, write, count, memory),
                Signal::Unmapped { range } => {
                    self.counts.forget(range);
                    self.hot.retain(|page| !range.contains(*page));
                }
                _ => {}
            }
        }
        if !tick {
            return NextTick::Unchanged;
        }
        if self.pending.is_empty() {
            self.migrate(memory);
        }
        NextTick::At(now.plus(self.parameters.period))
    }

    fn report(&self, report: &mut Report) {
        report.count("samples", self.samples);
        report.count("coolings", self.clock.into());
        report.pages("promoted", self.promoted);
        report.pages("demoted", self.demoted);
        report.count("failed", self.pending.failed);
    }
}

impl Hemem {
    fn sampled(&mut self, page: PageId, write: bool, count: u32, memory: &mut dyn MemorySystem) {
        let Some(view) = memory.page(page) else { return };
        self.samples += u64::from(count);
        let entry = self.counts.entry(view.page);
        entry.cool(self.clock);
        let counter = if write { &mut entry.writes } else { &mut entry.reads };
        *counter = counter.saturating_add(count.min(u32::from(u16::MAX)) as u16);
        let cool = *counter >= self.parameters.cooling;
        let hot_by_writes = entry.writes >= self.parameters.hot_writes;
        let hot = hot_by_writes || entry.reads >= self.parameters.hot_reads;
        if hot && view.tier == self.slow && !entry.queued {
            entry.queued = true;
            if hot_by_writes {
                self.hot.push_front(view.page);
            } else {
                self.hot.push_back(view.page);
            }
        }
        if cool {
            self.clock = self.clock.wrapping_add(1);
        }
    }

    fn is_hot(&mut self, page: PageId) -> bool {
        let entry = self.counts.entry(page);
        entry.cool(self.clock);
        entry.writes >= self.parameters.hot_writes || entry.reads >= self.parameters.hot_reads
    }

    /// Up as many hot pages as fit above the headroom; down as many cold ones as the others and the headroom want.
    fn migrate(&mut self, memory: &mut dyn MemorySystem) {
        let budget = (self.parameters.rate_limit.0 * self.parameters.period.as_secs()) as u64 >> 12;
        let (mut up, mut moved) = (Vec::new(), 0);
        let mut free = memory.topology().free_pages(self.fast).saturating_sub(self.headroom);
        let mut wanting = 0;
        let mut waiting = VecDeque::new();
        while let Some(page) = self.hot.pop_front() {
            let view = memory.page(page).filter(|view| view.tier == self.slow && !view.in_flight);
            let Some(view) = view.filter(|view| view.page == page && self.is_hot(page)) else {
                self.counts.entry(page).queued = false;
                continue;
            };
            let pages = view.base_pages();
            if moved + pages > budget {
                waiting.push_back(page);
                break;
            }
            moved += pages;
            if pages <= free {
                free -= pages;
                self.counts.entry(page).queued = false;
                self.promoted += pages;
                up.push(Move { page, to: self.fast });
            } else {
                wanting += pages;
                waiting.push_back(page);
            }
        }
        // Pages that wait keep their places at the front.
        while let Some(page) = waiting.pop_back() {
            self.hot.push_front(page);
        }
        self.order(&up, memory);
        let short = self.headroom.saturating_sub(memory.topology().free_pages(self.fast));
        let room = memory.topology().free_pages(self.slow);
        let want = (wanting + short).min(budget).min(room);
        let down = self.cold(want, memory);
        self.order(&down, memory);
    }

    /// Cold pages of the fast tier, about `want` base pages.
    fn cold(&mut self, want: u64, memory: &mut dyn MemorySystem) -> Vec<Move> {
        let (mut found, mut moves) = (0, Vec::new());
        if want == 0 {
            return moves;
        }
        let mut hand = self.hand;
        let to = self.slow;
        memory.scan(Scope::Tier(self.fast), &mut hand, Clear::NOTHING, &mut |view| {
            if found >= want {
                return Step::Stop;
            }
            if !view.in_flight && !self.is_hot(view.page) {
                found += view.base_pages();
                moves.push(Move { page: view.page, to });
            }
            Step::Keep
        });
        self.hand = hand;
        self.demoted += found;
        moves
    }

    fn order(&mut self, moves: &[Move], memory: &mut dyn MemorySystem) {
        let ticket = memory.migrate(moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::millis;
    use crate::test_support::in_fast;
    use crate::{Driver, InMemory, Open, PageId};
    use terrace_model::{Bytes, TierId};

    /// A fast tier of 8 pages, filled but for the headroom; every access is sampled.
    fn open(parameters: &str) -> Driver {
        let mut world = InMemory::new(&[("fast", Bytes::kib(32)), ("slow", Bytes::kib(64))]);
        world.map_anonymous(0, 0, 16);
        let period = if parameters.contains("sample_period") { "" } else { "sample_period = 1" };
        let mut driver = Driver::open("hemem", &format!("{period}\n{parameters}"), world).unwrap();
        driver.touch_all(0, 0..16, false);
        driver
    }

    fn touch(driver: &mut Driver, vpn: u64, times: u32, write: bool) {
        for _ in 0..times {
            driver.touch(PageId::new(0, vpn), write);
        }
        driver.advance(millis(50));
    }

    #[test]
    fn eight_reads_or_four_writes_are_hot() {
        let mut driver = open("");
        touch(&mut driver, 10, 6, false);
        touch(&mut driver, 11, 3, true);
        assert!(!in_fast(&driver, 10) && !in_fast(&driver, 11), "seven reads, three writes");
        touch(&mut driver, 10, 1, false);
        touch(&mut driver, 11, 1, true);
        assert!(in_fast(&driver, 10) && in_fast(&driver, 11));
        let mut driver = open("hot_reads = 3\nhot_writes = 2");
        touch(&mut driver, 10, 2, false);
        touch(&mut driver, 11, 2, true);
        assert!(in_fast(&driver, 10) && in_fast(&driver, 11));
    }

    #[test]
    fn all_counts_are_halved_when_one_reaches_the_cooling_threshold() {
        let mut driver = open("");
        touch(&mut driver, 10, 6, false);
        touch(&mut driver, 0, 17, false);
        assert_eq!(driver.report().stats.integer("coolings"), 1);
        touch(&mut driver, 10, 4, false);
        assert!(!in_fast(&driver, 10), "seven halved, and four more");
        touch(&mut driver, 10, 1, false);
        assert!(in_fast(&driver, 10));
        let mut driver = open("cooling = 100");
        touch(&mut driver, 0, 17, false);
        assert_eq!(driver.report().stats.integer("coolings"), 0);
    }

    #[test]
    fn hot_pages_of_the_fast_tier_stay() {
        let mut driver = open("cooling = 1000");
        for vpn in 0..8 {
            touch(&mut driver, vpn, 10, false);
        }
        let before: Vec<bool> = (0..16).map(|vpn| in_fast(&driver, vpn)).collect();
        touch(&mut driver, 12, 20, true);
        driver.advance(millis(500));
        let missing = (0..8).filter(|vpn| !before[*vpn as usize]).count();
        assert!(!in_fast(&driver, 12) || missing > 0, "no cold page makes room");
    }

    #[test]
    fn pages_hot_by_writes_go_first() {
        let mut driver = open("rate_limit = \"409.6 kB/s\"");
        for _ in 0..9 {
            driver.touch(PageId::new(0, 10), false);
            driver.touch(PageId::new(0, 11), true);
        }
        let mut first = None;
        for _ in 0..40 {
            driver.advance(millis(1));
            let arrived = [10, 11].into_iter().find(|vpn| in_fast(&driver, *vpn));
            first = first.or(arrived);
        }
        assert_eq!(first, Some(11));
    }

    #[test]
    fn headroom_is_kept_free_and_samples_are_as_rare_as_said() {
        let mut driver = open("headroom = 0.5");
        driver.advance(millis(100));
        assert_eq!(driver.world.resident(TierId(0)), 4);
        let mut driver = open("sample_period = 8");
        driver.advance(millis(1));
        assert_eq!(driver.report().stats.integer("samples"), 2);
    }

    #[test]
    fn looks_come_as_often_as_said() {
        let mut driver = open("headroom = 0.5\nperiod = \"1 s\"\nrate_limit = \"4096 B/s\"");
        driver.advance(millis(3500));
        assert_eq!(driver.world.resident(TierId(0)), 5, "one page per second, three times");
    }
}
