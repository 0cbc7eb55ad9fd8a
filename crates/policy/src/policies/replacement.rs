//! The classical page-replacement algorithms, each choosing who makes room in the fast tier.
//!
//! **Idea.** Every period the pages of the slow tier that were touched are wanted in the fast tier. While it is full,
//! an algorithm names for each the page that goes in its stead. All else is equal, so two runs differ by the algorithm
//! only. `fifo`: who came first. `clock`: the next page at the hand that was not touched since the hand last passed;
//! second chance on a circle. `nru`: a page not touched in the period, better if also not written, by chance within a
//! class. `nfu`: who was touched in the fewest periods. `aging`: the same with a past that fades by half each period.
//! `lru`: who was touched longest ago. `lru-2`: whose last touch but one is longest ago. `random`: anyone. `clock-pro`:
//! pages that come back soon after they left are hot, and a cold page goes first, however recently it was touched.
//! `optimal`: who will not be touched for longest, which takes a first pass over the same input; a yardstick.
//!
//! **Source.** Textbook algorithms as M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3, describes them; LRU-K is O'Neil,
//! O'Neil and Weikum, SIGMOD 1993; CLOCK-Pro is Jiang, Chen and Zhang, USENIX ATC 2005; the optimal algorithm is Belady,
//! IBM Systems Journal 1966.
//!
//! **Left open by the source.** *They are described for memory and disk*: here a page that is replaced goes to the slow
//! tier. *When pages move*: at each period, at most `limit`, in the order of their addresses from where the last period
//! stopped; the textbooks replace at each fault. *Aging shifts to the right*; the thesis' "left" is a slip. *NFU and
//! aging* count periods in which the accessed bit was set. *LRU and LRU-2* need every access, the others two bits. *A
//! page with one touch* counts as older than any with two for LRU-2. *CLOCK-Pro's pages that are not resident* are those
//! that have gone to the slow tier; a page that was never in the fast one is new. At first its cold pages have all the
//! room. *The optimal algorithm* looks at the order in which accesses reached memory in the first pass, and keeps a wanted
//! page out if it would be the first to go. It is optimal if a round follows every access; with many accesses between two
//! rounds it knows no better than the others what happens within one, and may lose to them.
//!
//! **When to use it.** To see what a cleverer choice of the victim is worth, all else equal; `optimal` is the
//! yardstick, `random` the floor. For a policy to run in production take one that also chooses whom to promote.

use crate::support::{ClockPro, Lru, PageMap, Promoter};
use crate::{
    AccessOrder, Capability, CapabilitySet, Clear, MemorySystem, Moment, Needs, NextTick, PageId, PageView,
    Policy, Published, Random, Refusal, Report, ScanHand, Scope, Setup, Signal, SignalKind, Step,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use terrace_model::{Bytes, TierId, Time};

/// Who goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Who came first.
    Fifo,
    /// Second chance on a circle.
    #[default]
    Clock,
    /// Not recently used.
    Nru,
    /// Not frequently used.
    Nfu,
    /// NFU with a fading past.
    Aging,
    /// Least recently used.
    Lru,
    /// By the last use but one.
    #[serde(rename = "lru-2")]
    LruTwo,
    /// Anyone.
    Random,
    /// By the distance between uses, on one circle with the pages that left.
    ClockPro,
    /// Who will not be used for longest.
    Optimal,
}

/// Parameters of the classical algorithms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Who makes room: `fifo`, `clock`, `nru`, `nfu`, `aging`, `lru`, `lru-2`, `random`, `clock-pro` or `optimal`.
    pub algorithm: Algorithm,
    /// Time between two rounds of replacement. Ours: 1 s.
    pub period: Time,
    /// Most memory that is promoted per period. Ours: 64 MiB.
    pub limit: Bytes,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { algorithm: Algorithm::Clock, period: crate::moment::seconds(1), limit: Bytes::mib(64) }
    }
}

/// The next use of a page that is not used again.
const NEVER: u64 = u64::MAX;

/// What is remembered of a page of the fast tier.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// NFU's or aging's counter.
    counter: u32,
    /// LRU-2's times of the last use and of the one before, 0 for never.
    uses: [u64; 2],
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Replacement {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    random: Random,
    hands: [ScanHand; 2],
    states: PageMap<State>,
    /// By arrival for FIFO, by use for LRU.
    order: Lru,
    /// Accesses to the fast tier.
    uses: u64,
    clock_pro: ClockPro,
    /// The order of the first pass, and how far this one is.
    future: Arc<AccessOrder>,
    accesses: u64,
    promoter: Promoter,
    started: bool,
}

impl Published for Replacement {
    type Parameters = Parameters;
    const SCALED: &'static [&'static str] = &["period", "limit"];

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Replacement, Refusal> {
        Refusal::unless_positive("period", parameters.period)?;
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let future = match (parameters.algorithm, setup.profile) {
            (Algorithm::Optimal, None) => return Err(Refusal::NoProfile),
            (Algorithm::Optimal, Some(profile)) => Arc::clone(&profile.order),
            _ => Arc::default(),
        };
        Ok(Replacement {
            parameters,
            fast,
            slow,
            random: setup.random(),
            hands: [ScanHand::default(); 2],
            states: PageMap::default(),
            order: Lru::default(),
            uses: 0,
            clock_pro: ClockPro::default(),
            future,
            accesses: 0,
            promoter: Promoter::new(fast, slow),
            started: false,
        })
    }
}

impl Policy for Replacement {
    fn needs(&self) -> Needs {
        let capabilities =
            CapabilitySet::of(&[Capability::AccessedBits, Capability::FlushOnClear, Capability::Migration]);
        let capabilities = capabilities
            .with_if(self.parameters.algorithm == Algorithm::Nru, Capability::DirtyBits)
            .with_if(self.counts_accesses(), Capability::ExactAccesses);
        let first_pass = self.parameters.algorithm == Algorithm::Optimal;
        Needs { capabilities, first_pass, ..Needs::default() }
            .and_signals(&[SignalKind::Allocated, SignalKind::Unmapped])
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if !std::mem::replace(&mut self.started, true) && self.counts_accesses() {
            memory.sample_accesses(1);
        }
        let mut tick = false;
        for signal in signals {
            if let Some((page, tier)) = self.promoter.hear(signal, memory) {
                self.arrived(page, tier);
                if tier == self.fast && self.parameters.algorithm == Algorithm::ClockPro {
                    self.clock_pro.arrive(page);
                }
            }
            match *signal {
                Signal::Tick => tick = true,
                Signal::Allocated { page, tier, .. } => {
                    self.arrived(page, tier);
                    if tier == self.fast && self.parameters.algorithm == Algorithm::ClockPro {
                        self.clock_pro.allocate(page);
                    }
                }
                Signal::Access { page, count, .. } => {
                    self.accesses += u64::from(count);
                    self.used(page, memory);
                }
                Signal::Unmapped { range } => {
                    self.states.forget(range);
                    self.order.forget(range);
                    self.clock_pro.forget(range);
                }
                _ => {}
            }
        }
        if !tick {
            return NextTick::Unchanged;
        }
        if self.promoter.outstanding() == 0 {
            self.round(memory);
        }
        NextTick::At(now.plus(self.parameters.period))
    }

    fn report(&self, report: &mut Report) {
        self.promoter.report(report);
    }
}

impl Replacement {
    fn counts_accesses(&self) -> bool {
        matches!(self.parameters.algorithm, Algorithm::Lru | Algorithm::LruTwo | Algorithm::Optimal)
    }

    fn arrived(&mut self, page: PageId, tier: TierId) {
        *self.states.entry(page) = State::default();
        if tier == self.fast {
            self.order.touch(page);
        } else {
            self.order.remove(page);
        }
    }

    /// The access at which the page, or any part of it, is touched next.
    fn next_use(&self, view: &PageView) -> u64 {
        let parts = (0..view.base_pages()).map(|at| view.page.plus(at));
        parts.filter_map(|page| self.future.next_use(page, self.accesses)).min().unwrap_or(NEVER)
    }

    fn used(&mut self, page: PageId, memory: &mut dyn MemorySystem) {
        let Some(view) = memory.page(page).filter(|view| view.tier == self.fast) else { return };
        self.order.touch(view.page);
        self.uses += 1;
        let [last, _] = self.states.entry(view.page).uses;
        self.states.entry(view.page).uses = [self.uses, last];
    }

    /// Promotes what was touched, and lets the algorithm name who makes room.
    fn round(&mut self, memory: &mut dyn MemorySystem) {
        let mut left = self.parameters.limit.0 >> 12;
        let mut wanted: Vec<PageView> = Vec::new();
        let clear = Clear::ACCESSED.flushed(true);
        memory.scan(Scope::Tier(self.slow), &mut self.hands[1], clear, &mut |view| {
            if view.accessed && !view.in_flight && view.base_pages() <= left {
                left -= view.base_pages();
                wanted.push(*view);
            }
            Step::Clear
        });
        if self.parameters.algorithm == Algorithm::Optimal {
            wanted.retain(|view| self.next_use(view) != NEVER);
            wanted.sort_by_key(|view| (self.next_use(view), view.page));
        }
        let mut free = memory.topology().free_pages(self.fast);
        wanted.retain(|view| {
            let fits = view.base_pages() <= free;
            if fits {
                free -= view.base_pages();
                self.promoter.promote(view.page, memory);
            }
            !fits
        });
        let victims = self.victims(wanted.len(), memory);
        // Pages of equal size replace each other.
        let mut victims: Vec<PageView> = victims.into_iter().rev().collect();
        for view in wanted {
            let Some(at) = victims.iter().rposition(|victim| victim.size == view.size) else { continue };
            let victim = victims.remove(at);
            if self.parameters.algorithm == Algorithm::Optimal
                && self.next_use(&victim) <= self.next_use(&view)
            {
                continue;
            }
            self.promoter.replace(victim.page, view.page, memory);
        }
    }

    /// Pages of the fast tier, the first to go first; about `count` for the clocks, all of them otherwise. Bits of the
    /// period are read, and cleared, even where nobody has to go.
    fn victims(&mut self, count: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let algorithm = self.parameters.algorithm;
        if algorithm == Algorithm::Clock {
            return self.turn_clock(count, memory);
        }
        if algorithm == Algorithm::ClockPro {
            return self.turn_clock_pro(count, memory);
        }
        let mut pages: Vec<(u64, PageView)> = Vec::new();
        let (states, random) = (&mut self.states, &mut self.random);
        let clear = if algorithm == Algorithm::Nru { Clear::BOTH } else { Clear::ACCESSED };
        memory.scan(Scope::Tier(self.fast), &mut ScanHand::default(), clear.flushed(true), &mut |view| {
            let state = states.entry(view.page);
            let touched = u32::from(view.accessed);
            let rank = match algorithm {
                Algorithm::Nru => {
                    let class = 2 * u64::from(view.accessed) + u64::from(view.dirty);
                    class << 60 | random.next() >> 4
                }
                Algorithm::Nfu => {
                    state.counter += touched;
                    u64::from(state.counter)
                }
                Algorithm::Aging => {
                    state.counter = state.counter >> 1 | touched << 31;
                    u64::from(state.counter)
                }
                Algorithm::LruTwo => state.uses[1],
                Algorithm::Random => random.next(),
                Algorithm::Fifo
                | Algorithm::Lru
                | Algorithm::Clock
                | Algorithm::ClockPro
                | Algorithm::Optimal => 0,
            };
            if !view.in_flight {
                pages.push((rank, *view));
            }
            Step::Clear
        });
        if matches!(algorithm, Algorithm::Fifo | Algorithm::Lru) {
            let oldest =
                self.order.oldest().filter_map(|page| memory.page(page).filter(|view| view.page == page));
            return oldest.filter(|view| view.tier == self.fast && !view.in_flight).take(2 * count).collect();
        }
        if algorithm == Algorithm::Optimal {
            for (rank, view) in &mut pages {
                *rank = NEVER - self.next_use(view);
            }
        }
        pages.sort_by_key(|(rank, view)| (*rank, self.states.get(view.page).uses[0], view.page));
        pages.into_iter().map(|(_, view)| view).collect()
    }

    fn turn_clock_pro(&mut self, count: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let clock = &mut self.clock_pro;
        clock.begin_round();
        let clear = Clear::ACCESSED.flushed(true);
        memory.scan(Scope::Tier(self.fast), &mut ScanHand::default(), clear, &mut |view| {
            clock.present(view.page, view.accessed);
            Step::Clear
        });
        clock.end_round();
        let victims = (0..count).map_while(|_| clock.evict());
        victims.filter_map(|page| memory.page(page)).filter(|view| !view.in_flight).collect()
    }

    /// Two turns at most: the first clears, the second finds.
    fn turn_clock(&mut self, count: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let mut victims: Vec<PageView> = Vec::new();
        for _ in 0..2 {
            memory.scan(
                Scope::Tier(self.fast),
                &mut self.hands[0],
                Clear::ACCESSED.flushed(true),
                &mut |view| {
                    if victims.len() >= count {
                        return Step::Stop;
                    }
                    if view.accessed {
                        return Step::Clear;
                    }
                    if !view.in_flight && !victims.iter().any(|victim| victim.page == view.page) {
                        victims.push(*view);
                    }
                    Step::Keep
                },
            );
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use crate::moment::millis;
    use crate::{AccessOrder, Capability, Driver, InMemory, PageId, Profile};
    use terrace_model::{Bytes, TierId};

    /// A fast tier of four pages, touched in the order 0..4; further pages go to the slow one.
    fn open(parameters: &str) -> Driver {
        let mut world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]);
        world.map_anonymous(0, 0, 8);
        let mut driver = Driver::open("replacement", parameters, world).unwrap();
        driver.touch_all(0, 0..4, false);
        driver
    }

    fn in_fast(driver: &Driver) -> Vec<u64> {
        let fast = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).is_some_and(|at| at.0 == TierId(0));
        (0..8).filter(fast).collect()
    }

    /// The slow page touched takes the place of the page that the algorithm names.
    fn replaced(algorithm: &str, periods: &[&[(u64, bool)]]) -> Vec<u64> {
        let mut driver = open(&format!("algorithm = \"{algorithm}\""));
        driver.advance(millis(1500));
        for period in periods {
            for (vpn, write) in *period {
                driver.touch(PageId::new(0, *vpn), *write);
                driver.advance(millis(10));
            }
            driver.advance(millis(1000 - 10 * period.len() as u64));
        }
        let left = in_fast(&driver);
        (0..4).filter(|vpn| !left.contains(vpn)).collect()
    }

    const R: bool = false;
    const W: bool = true;

    #[test]
    fn fifo_takes_who_came_first_however_hot() {
        assert_eq!(replaced("fifo", &[&[(0, R), (0, R), (1, R), (5, R)]]), [0]);
    }

    #[test]
    fn lru_takes_who_was_touched_longest_ago() {
        assert_eq!(replaced("lru", &[&[(0, R), (2, R), (3, R), (5, R)]]), [1]);
        assert_eq!(replaced("lru", &[&[(1, R), (0, R), (3, R), (5, R)]]), [2]);
    }

    #[test]
    fn lru_2_looks_at_the_last_use_but_one() {
        // 0 was used last of all, but its use before that is the oldest.
        let uses = [(1, R), (2, R), (3, R), (1, R), (2, R), (3, R), (0, R), (5, R)];
        assert_eq!(replaced("lru-2", &[&uses]), [0]);
        assert_eq!(replaced("lru", &[&uses]), [1]);
    }

    #[test]
    fn clock_gives_a_second_chance() {
        // The hand clears the bits that first touches have set, in its first turn, and then takes page 0; from there on
        // pages that were touched again are passed.
        assert_eq!(replaced("clock", &[&[(5, R)], &[(1, R), (6, R)]]), [0, 2]);
    }

    #[test]
    fn nru_prefers_untouched_then_unwritten() {
        assert_eq!(replaced("nru", &[&[(0, R), (1, W), (3, R), (5, R)]]), [2]);
        assert_eq!(replaced("nru", &[&[(0, W), (1, W), (2, R), (3, W), (5, R)]]), [2]);
    }

    #[test]
    fn nfu_never_forgets_and_aging_does() {
        // Page 0 was hot for six periods, then not at all for three; 1 to 3 were touched in the last three.
        let old: &[(u64, bool)] = &[(0, R)];
        let new: &[(u64, bool)] = &[(1, R), (2, R), (3, R)];
        let last: &[(u64, bool)] = &[(1, R), (2, R), (3, R), (5, R)];
        let periods = [old, old, old, old, old, old, new, new, last];
        assert_eq!(replaced("aging", &periods), [0]);
        assert_eq!(replaced("nfu", &periods), [1]);
    }

    /// Every access is a round; the fast tier has `room` pages. Which accesses went to the slow tier.
    fn misses(algorithm: &str, room: u64, string: &[u64], writes: bool) -> usize {
        let order = AccessOrder::of(string.iter().map(|vpn| PageId::new(0, *vpn)));
        let profile = Profile { order: std::sync::Arc::new(order), ..Profile::default() };
        let mut world = InMemory::new(&[("fast", Bytes::kib(4 * room)), ("slow", Bytes::kib(128))]);
        world.map_anonymous(0, 0, 32);
        let parameters = format!("algorithm = \"{algorithm}\"");
        let mut driver = Driver::open_with("replacement", &parameters, world, 1, Some(&profile)).unwrap();
        driver.advance(millis(500));
        let mut missed = 0;
        for vpn in string {
            let page = PageId::new(0, *vpn);
            driver.touch(page, writes);
            missed += usize::from(driver.world.locate(page).unwrap().0 != TierId(0));
            driver.advance(millis(1000));
        }
        missed
    }

    #[test]
    fn clock_pro_spares_who_came_back_soon() {
        // 0 leaves for 4 and is wanted again at once: it is hot, and ten pages that are touched once replace each other.
        let string: Vec<u64> = [0, 1, 2, 3, 4, 0].into_iter().chain(10..20).chain([0]).collect();
        assert_eq!(misses("clock-pro", 4, &string, false), 12);
        assert_eq!(misses("lru", 4, &string, false), 13);
    }

    #[test]
    fn optimal_takes_who_is_used_last_and_keeps_out_who_is_used_later_still() {
        // Belady's string with room for three; 0, 1 and 2 find it free and do not miss. 3 and 4, used again at the end, are
        // kept out, for all others are used sooner: two misses each.
        assert_eq!(misses("optimal", 3, &[0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4], false), 4);
        assert_eq!(misses("lru", 3, &[0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4], false), 7);
        assert_eq!(misses("fifo", 3, &[0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4], false), 6);
        // A loop over one page more than fits: one miss in three, where LRU misses always.
        let laps: Vec<u64> = (0..24).map(|at| at % 4).collect();
        assert_eq!((misses("optimal", 3, &laps, false), misses("lru", 3, &laps, false)), (6, 21));
    }

    #[test]
    fn optimal_does_not_start_without_a_first_pass() {
        let world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]);
        let error = Driver::open("replacement", "algorithm = \"optimal\"", world).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("it needs a first pass"), "{error}");
        let entry = crate::find("replacement").unwrap();
        let needs = |text: &str| entry.needs(&toml::from_str(text).unwrap()).unwrap();
        assert!(needs("algorithm = \"optimal\"").first_pass && !needs("").first_pass);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: 48, ..Default::default() })]

        /// Under equal conditions: a round after every access, in which the page touched may come or stay out.
        #[test]
        fn nobody_misses_less_than_optimal(
            string in proptest::collection::vec(0..12u64, 1..80),
            room in 1..8u64,
            writes in proptest::bool::ANY,
        ) {
            let least = misses("optimal", room, &string, writes);
            for algorithm in ["fifo", "clock", "nru", "nfu", "aging", "lru", "lru-2", "random", "clock-pro"] {
                let missed = misses(algorithm, room, &string, writes);
                proptest::prop_assert!(least <= missed, "{algorithm}: {missed} misses, optimal {least}");
            }
        }
    }

    #[test]
    fn random_takes_anyone_and_needs_differ() {
        assert_eq!(replaced("random", &[&[(5, R)]]).len(), 1);
        let world = || InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]);
        let world = world().without(Capability::ExactAccesses);
        assert!(Driver::open("replacement", "algorithm = \"clock\"", world.clone()).is_ok());
        assert!(Driver::open("replacement", "algorithm = \"lru\"", world).is_err());
    }

    #[test]
    fn a_period_moves_no_more_than_its_limit() {
        let moved = |parameters: &str| {
            let mut driver = open(&format!("algorithm = \"fifo\"\n{parameters}"));
            driver.touch_all(0, 4..8, false);
            driver.advance(millis(1500));
            driver.report().stats.integer("promoted")
        };
        assert_eq!((moved("limit = \"4 KiB\""), moved("")), (1, 4));
        assert_eq!(moved("period = \"10 s\""), 0);
    }
}
