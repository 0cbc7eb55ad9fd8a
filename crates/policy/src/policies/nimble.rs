//! Two lists per tier, and migration made fast by four mechanisms.
//!
//! **Idea.** Every 5 s the pages of both tiers are aged on active and inactive lists, as Linux does for reclaim. Active
//! pages of the slow tier move into free fast memory; when that is used up, they change places with inactive pages of
//! the fast tier. Nothing is evicted on the allocation path, and a full fast tier without inactive pages is left alone.
//!
//! The mechanisms are separate switches: huge pages move whole (`thp_migration`), several threads share a copy
//! (`parallel_copy`), several pages are in flight at once (`concurrent`), and two pages swap places without a free
//! frame (`exchange`). All off is "Base Page Migration" of the thesis' comparison, all on is "Opt. Exchange Pages".
//!
//! **Source.** Z. Yan, thesis (Rutgers 2019), ch. 3: §3.3.1 mechanisms, §3.3.2 policy, §3.4 parameters; Yan et al.,
//! "Nimble page management for tiered memory systems", ASPLOS 2019.
//!
//! **Left open by the source.** *How much is aged per tick*: all pages. *Where new pages start*: on the active list, as
//! anonymous pages do in its Linux 4.14 (`new_pages`). *Order*: hot pages by address from where the last tick stopped,
//! cold ones likewise. *Pages of unequal size*: only pages of equal size change places; huge ones first. *Retries*: a
//! page that failed is looked at again with all others at the next tick. *Most pages per tick*: no limit
//! (`limit`). *Without exchange*: cold pages are demoted first, as many as are wanted, then hot ones promoted.
//!
//! **When to use it.** Programs on huge pages with a hot set larger than a few pages that moves: what it has over
//! others is how fast pages move, two tiers exchanging included. Who is hot is a matter of one bit per period, as with
//! `idle`.

use crate::support::{List, Pending, TwoLists};
use crate::{
    Capability, CapabilitySet, Clear, Exchange, HugePages, MemorySystem, Moment, Move, MoveOptions, Needs,
    NextTick, PageId, Parameters, Policy, Published, Refusal, Report, ScanHand, Scope, Setup, Signal,
    SignalKind, Step,
};
use std::num::NonZeroU32;
use terrace_model::text::grouped;
use terrace_model::{Bytes, PageSize, TierId, Time};

/// Parameters of Nimble.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Time between two ticks.
    #[parameter(default = "5 s", range = "1 ns"..="5 h", source = "§3.3.2", scaled)]
    pub period: Time,
    /// Move huge pages whole; off: they are split first, as Linux did before 4.14.
    #[parameter(default = true, source = "§3.3.1")]
    pub thp_migration: bool,
    /// Let several threads share each copy.
    #[parameter(default = true, source = "§3.3.1")]
    pub parallel_copy: bool,
    /// Keep several pages in flight at once, with one distributed copy for all.
    #[parameter(default = true, source = "§3.3.1")]
    pub concurrent: bool,
    /// Swap pairs of pages instead of moving each into a free frame.
    #[parameter(default = true, source = "§3.3.1")]
    pub exchange: bool,
    /// Threads of a parallel copy.
    #[parameter(default = 4, range = 1..=65_535, source = "§3.4: 4 of 1 to 16 is best")]
    pub copy_threads: u16,
    /// Huge pages in flight with `concurrent`; 0 for all at once.
    #[parameter(default = 8, range = 0..=1_000_000_000, source = "§3.4")]
    pub huge_in_flight: u32,
    /// Base pages in flight with `concurrent`; 0 for all at once.
    #[parameter(default = 512, range = 0..=1_000_000_000, source = "§3.4")]
    pub base_in_flight: u32,
    /// Most memory to promote per tick; 0 B for no limit.
    #[parameter(default = "0 B", range = "0 B"..="1024 TiB", source = "the source states none", scaled)]
    pub limit: Bytes,
    /// The list on which a page starts.
    #[parameter(default = List::Active, source = "ours, as in Linux 4.14")]
    pub new_pages: List,
    /// Drop TLB entries when accessed bits are cleared. Linux does not, and neither does the source: off.
    #[parameter(default = false)]
    pub flush: bool,
}

/// Candidates of one page size.
#[derive(Clone, Debug, Default)]
struct Candidates {
    hot: Vec<PageId>,
    cold: Vec<PageId>,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Nimble {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    lists: TwoLists,
    hands: [ScanHand; 2],
    /// Base pages, huge pages.
    candidates: [Candidates; 2],
    pending: Pending,
    /// Promotions that wait for the demotions of their tick, by size.
    waiting: [Vec<Move>; 2],
    ticks_skipped: u64,
    promoted: u64,
    exchanged: u64,
}

impl Published for Nimble {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Nimble, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(Nimble {
            lists: TwoLists::new(parameters.new_pages),
            parameters,
            fast,
            slow,
            hands: [ScanHand::default(); 2],
            candidates: [Candidates::default(), Candidates::default()],
            pending: Pending::default(),
            waiting: [Vec::new(), Vec::new()],
            ticks_skipped: 0,
            promoted: 0,
            exchanged: 0,
        })
    }
}

impl Policy for Nimble {
    fn needs(&self) -> Needs {
        let p = &self.parameters;
        let capabilities = CapabilitySet::of(&[Capability::AccessedBits, Capability::Migration])
            .with_if(p.thp_migration, Capability::WholeHugePages)
            .with_if(!p.thp_migration, Capability::Split)
            .with_if(p.parallel_copy, Capability::ParallelCopy)
            .with_if(p.exchange, Capability::Exchange)
            .with_if(p.flush, Capability::FlushOnClear);
        Needs { capabilities, ..Needs::default() }.and_signals(&[SignalKind::Unmapped])
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.pending.handle(signal);
            if let Signal::Unmapped { range } = signal {
                self.lists.forget(*range);
            }
        }
        if self.pending.is_empty() {
            self.order(memory);
        }
        if !signals.contains(&Signal::Tick) {
            return NextTick::Unchanged;
        }
        if self.pending.is_empty() {
            self.age(memory);
            self.migrate(memory);
        } else {
            self.ticks_skipped += 1;
        }
        NextTick::At(now.plus(self.parameters.period))
    }

    fn report(&self, report: &mut Report) {
        report.pages("promoted", self.promoted);
        report.count("exchanged", self.exchanged);
        report.count("failed", self.pending.failed);
        report.count("ticks_skipped", self.ticks_skipped);
        if self.ticks_skipped > 0 {
            report.note(format!(
                "{} ticks found the migrations of an earlier one still under way and did nothing",
                grouped(self.ticks_skipped)
            ));
        }
    }
}

impl Nimble {
    /// Ages the lists of both tiers and collects what may move.
    fn age(&mut self, memory: &mut dyn MemorySystem) {
        for candidates in &mut self.candidates {
            candidates.hot.clear();
            candidates.cold.clear();
        }
        let clear = Clear::ACCESSED.flushed(self.parameters.flush);
        for (hand, tier) in self.hands.iter_mut().zip([self.fast, self.slow]) {
            let (lists, candidates) = (&mut self.lists, &mut self.candidates);
            let fast = tier == self.fast;
            memory.scan(Scope::Tier(tier), hand, clear, &mut |view| {
                let of_size = &mut candidates[usize::from(view.size != PageSize::Base)];
                match lists.look(view) {
                    _ if view.in_flight => {}
                    List::Active if !fast => of_size.hot.push(view.page),
                    List::Inactive if fast => of_size.cold.push(view.page),
                    _ => {}
                }
                Step::Clear
            });
        }
    }

    fn options(&self, size: PageSize) -> MoveOptions {
        let p = &self.parameters;
        // A page that is split first flies as base pages.
        let huge = size != PageSize::Base && p.thp_migration;
        let in_flight = if huge { p.huge_in_flight } else { p.base_in_flight };
        MoveOptions {
            huge: if p.thp_migration { HugePages::Whole } else { HugePages::SplitFirst },
            threads: if p.parallel_copy { p.copy_threads } else { 1 },
            in_flight: if p.concurrent { NonZeroU32::new(in_flight) } else { NonZeroU32::new(1) },
            ..MoveOptions::default()
        }
    }

    /// Promotes into what demotions have freed.
    fn order(&mut self, memory: &mut dyn MemorySystem) {
        for (at, size) in [(1, PageSize::Huge), (0, PageSize::Base)] {
            let moves = std::mem::take(&mut self.waiting[at]);
            let ticket = memory.migrate(&moves, self.options(size));
            self.pending.ordered(ticket, moves.len());
        }
    }

    fn migrate(&mut self, memory: &mut dyn MemorySystem) {
        let mut free = memory.topology().free_pages(self.fast);
        let limit = if self.parameters.limit.0 == 0 { u64::MAX } else { self.parameters.limit.0 >> 12 };
        let mut left = limit;
        for (at, size) in [(1, PageSize::Huge), (0, PageSize::Base)] {
            let Candidates { hot, cold } = &self.candidates[at];
            let options = self.options(size);
            let count = hot.len().min((left / size.base_pages()) as usize);
            let into_free = count.min((free / size.base_pages()) as usize);
            let paired = (count - into_free).min(cold.len());
            free -= into_free as u64 * size.base_pages();
            left -= (into_free + paired) as u64 * size.base_pages();
            let (fast, slow) = (self.fast, self.slow);
            let promote = |page: &PageId| Move { page: *page, to: fast };
            let mut moves: Vec<Move> = hot[..into_free].iter().map(promote).collect();
            let partners = &hot[into_free..into_free + paired];
            if self.parameters.exchange {
                let pairs: Vec<Exchange> = partners
                    .iter()
                    .zip(cold)
                    .map(|(one, other)| Exchange { one: *one, other: *other })
                    .collect();
                let ticket = memory.exchange(&pairs, options);
                self.pending.ordered(ticket, pairs.len());
                self.exchanged += pairs.len() as u64;
            } else {
                self.waiting[at].extend(partners.iter().map(promote));
                moves.extend(cold[..paired].iter().map(|page| Move { page: *page, to: slow }));
            }
            let ticket = memory.migrate(&moves, options);
            self.pending.ordered(ticket, moves.len());
            self.promoted += (into_free + paired) as u64 * size.base_pages();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::seconds;
    use crate::{Driver, InMemory, Open, Outcome, PageId};
    use terrace_model::{Bytes, PageSize, TierId};

    /// Eight base pages in a fast tier of four and a slow one of eight; the later four lie in the slow tier.
    fn full(parameters: &str) -> Driver {
        let mut world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]);
        world.map_anonymous(0, 0, 8);
        let mut driver = Driver::open("nimble", parameters, world).unwrap();
        driver.touch_all(0, 0..8, true);
        driver
    }

    fn in_fast(driver: &Driver) -> Vec<u64> {
        let fast = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0);
        (0..8).filter(fast).collect()
    }

    /// Two ticks let untouched pages become inactive; `hot` pages are touched in every period.
    fn periods(driver: &mut Driver, count: u32, hot: &[u64]) {
        for _ in 0..count {
            for vpn in hot {
                driver.touch(PageId::new(0, *vpn), false);
            }
            driver.advance(seconds(5));
        }
    }

    #[test]
    fn hot_pages_change_places_with_cold_ones() {
        for exchange in [true, false] {
            // Without exchange, a demotion needs a free slow frame: there are four.
            let mut driver = full(&format!("exchange = {exchange}"));
            periods(&mut driver, 4, &[2, 3, 4, 7]);
            assert_eq!(in_fast(&driver), [2, 3, 4, 7], "exchange: {exchange}");
            let exchanged = driver.report().stats.integer("exchanged");
            assert_eq!(exchanged > 0, exchange);
        }
    }

    #[test]
    fn without_inactive_pages_nothing_moves() {
        let mut driver = full("");
        periods(&mut driver, 4, &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(in_fast(&driver), [0, 1, 2, 3]);
        assert_eq!(driver.world.ordered_pages(), 0);
    }

    #[test]
    fn free_fast_memory_is_filled_first() {
        let mut driver = full("");
        driver.unmap(0, 0, 2);
        driver.world.map_anonymous(1, 0, 1);
        periods(&mut driver, 4, &[4, 5]);
        assert_eq!(driver.report().stats.integer("exchanged"), 0);
        assert_eq!(driver.world.resident(TierId(0)), 4);
    }

    #[test]
    fn a_failed_exchange_is_tried_again_with_the_next_tick() {
        let mut driver = full("");
        periods(&mut driver, 1, &[0, 1, 2, 7]);
        driver.world.fail_next(Outcome::Busy);
        periods(&mut driver, 2, &[0, 1, 2, 7]);
        driver.advance(crate::spans::millis(1));
        assert_eq!(driver.report().stats.integer("failed"), 1);
        periods(&mut driver, 1, &[0, 1, 2, 7]);
        assert_eq!(in_fast(&driver), [0, 1, 2, 7]);
    }

    fn huge(parameters: &str) -> Driver {
        let mut world = InMemory::new(&[("fast", Bytes::mib(2)), ("slow", Bytes::mib(4))]).with_huge_pages();
        world.map_anonymous(0, 0, 1024);
        let mut driver = Driver::open("nimble", parameters, world).unwrap();
        for vpn in [0, 512] {
            driver.touch(PageId::new(0, vpn), true);
        }
        for _ in 0..4 {
            driver.touch(PageId::new(0, 512), true);
            driver.advance(seconds(5));
        }
        driver
    }

    #[test]
    fn thp_migration_keeps_huge_pages_huge() {
        let driver = huge("");
        assert_eq!(driver.world.locate(PageId::new(0, 512)), Some((TierId(0), PageSize::Huge)));
        assert_eq!(driver.world.locate(PageId::new(0, 0)), Some((TierId(1), PageSize::Huge)));
        let driver = huge("thp_migration = false\nexchange = false");
        assert_eq!(driver.world.locate(PageId::new(0, 512)), Some((TierId(0), PageSize::Base)));
    }

    #[test]
    fn each_mechanism_has_its_capability() {
        use crate::Capability::{Exchange, ParallelCopy, WholeHugePages};
        let world = || InMemory::new(&[("fast", Bytes::mib(2)), ("slow", Bytes::mib(4))]);
        for (capability, switch) in
            [(Exchange, "exchange"), (ParallelCopy, "parallel_copy"), (WholeHugePages, "thp_migration")]
        {
            let error = Driver::open("nimble", "", world().without(capability)).err().unwrap().to_string();
            assert!(error.starts_with("nimble does not start: it needs"), "{error}");
            assert!(error.contains(capability.name()), "{error}");
            let off = format!("{switch} = false");
            assert!(Driver::open("nimble", &off, world().without(capability)).is_ok(), "{switch}");
        }
    }

    #[test]
    fn concurrency_shortens_a_tick_and_a_limit_bounds_it() {
        let moved_after_one_delay = |parameters: &str| {
            let mut driver = full(parameters);
            periods(&mut driver, 2, &[0, 1, 6, 7]);
            for vpn in [0, 1, 6, 7] {
                driver.touch(PageId::new(0, vpn), false);
            }
            driver.advance(seconds(5));
            driver.world.ordered_pages()
        };
        assert_eq!(moved_after_one_delay("limit = \"4 KiB\""), 1);
        let mut slow =
            InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]).with_delay(seconds(2));
        slow.map_anonymous(0, 0, 8);
        let mut fast = slow.clone();
        for (world, concurrent) in [(&mut slow, false), (&mut fast, true)] {
            let parameters = format!("concurrent = {concurrent}");
            let mut driver = Driver::open("nimble", &parameters, world.clone()).unwrap();
            driver.touch_all(0, 0..8, true);
            periods(&mut driver, 3, &[4, 5, 6, 7]);
            driver.advance(seconds(4));
            let arrived = in_fast(&driver) == [4, 5, 6, 7];
            assert_eq!(arrived, concurrent, "{:?}", in_fast(&driver));
        }
    }

    #[test]
    fn orders_carry_the_mechanisms() {
        use super::*;
        use crate::Published;
        let world = InMemory::new(&[("fast", Bytes::mib(2)), ("slow", Bytes::mib(4))]);
        let setup = Setup { topology: world.tiers(), capabilities: world.offers(), seed: 1, profile: None };
        let options = |parameters: Parameters, size| Nimble::new(parameters, setup).unwrap().options(size);
        let default = Parameters::default;
        let huge = options(default(), PageSize::Huge);
        assert_eq!((huge.threads, huge.in_flight, huge.huge), (4, NonZeroU32::new(8), HugePages::Whole));
        assert_eq!(options(default(), PageSize::Base).in_flight, NonZeroU32::new(512));
        let changed = Parameters { copy_threads: 16, huge_in_flight: 0, base_in_flight: 64, ..default() };
        let huge = options(changed.clone(), PageSize::Huge);
        assert_eq!((huge.threads, huge.in_flight), (16, None), "0: all at once");
        assert_eq!(options(changed, PageSize::Base).in_flight, NonZeroU32::new(64));
        let base_page_migration = Parameters {
            thp_migration: false,
            parallel_copy: false,
            concurrent: false,
            exchange: false,
            ..default()
        };
        let one_by_one = MoveOptions { huge: HugePages::SplitFirst, ..MoveOptions::default() };
        assert_eq!(options(base_page_migration, PageSize::Huge), one_by_one);
    }

    #[test]
    fn pages_that_start_inactive_are_cold_sooner() {
        let exchanged = |parameters: &str| {
            let mut driver = full(parameters);
            periods(&mut driver, 2, &[4, 5]);
            driver.advance(seconds(1));
            in_fast(&driver)
        };
        assert_eq!(exchanged("new_pages = \"inactive\""), [2, 3, 4, 5]);
        assert_eq!(exchanged(""), [0, 1, 2, 3], "all are active until two ticks have found them untouched");
    }

    #[test]
    fn ticks_come_as_often_as_said() {
        let mut driver = full("period = \"100 s\"");
        periods(&mut driver, 8, &[2, 3, 4, 7]);
        assert_eq!(in_fast(&driver), [0, 1, 2, 3]);
    }

    #[test]
    fn cached_translations_hide_accesses_unless_they_are_flushed() {
        let hot_stay = |flush: bool| {
            let mut world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]).with_tlb(2);
            world.map_anonymous(0, 0, 8);
            let mut driver = Driver::open("nimble", &format!("flush = {flush}"), world).unwrap();
            driver.touch_all(0, 0..8, true);
            // Pages 4 and 5 are used through translations that stay cached.
            periods(&mut driver, 8, &[4, 5]);
            in_fast(&driver).contains(&4) && in_fast(&driver).contains(&5)
        };
        assert!(hot_stay(true));
        assert!(!hot_stay(false));
    }
}
