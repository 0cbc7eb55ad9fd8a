//! A clock spares pages that are stored to while dirty; a list remembers those that had to leave.
//!
//! **Idea.** A store to a page of the fast tier that is dirty already suggests the page as write-intensive, and the clock
//! hand keeps it for a lap more. Pages that had to leave stay in a list, the last to leave first. When a page of the slow
//! tier is accessed and the list still has it as once write-intensive, it goes back to the fast tier, whoever has to
//! make room. For any other page the hand looks for a victim that was not accessed since its last visit; if there is
//! none in a lap, the page stays in the slow tier.
//!
//! **Source.** Z. Sun, Z. Jia, X. Cai, Z. Zhang, L. Ju, "AIMR: An adaptive page management policy for hybrid memory
//! architecture with NVM and DRAM", HPCC/CSS/ICESS 2015, pp. 284–289, as described in M. Marques, "Ambix", IST Lisboa
//! 2021, §2.3.4.
//!
//! **Left open by the source.** *Eviction to storage*: the description is of pages that left memory and fault again; here
//! a page that leaves the fast tier goes to the slow one, and its next access there is that fault. *Further accesses*: a
//! page that stayed in the slow tier asks again at each store, not at loads (`stores_ask`, ours). *The hand*: takes back
//! a suggestion, at its next visit the mark of an access, and then finds a victim; a forced search goes on for so many laps.
//! *Length of the list*: as many pages as the fast tier has (`ghosts`, ours). *Bits*: kept from the accesses that reach
//! memory, all of which are reported; a page comes to the fast tier as accessed and clean.
//!
//! **When to use it.** As a reference for what remembering departed pages is worth, beside the other clocks for memory
//! that is slow at writes. It needs signals of all accesses, so it runs in simulation only. Pages come up at a first access,
//! so a scan through much memory moves much.

use crate::support::{Lru, PageMap, Promoter};
use crate::{
    Capability, Clear, MemorySystem, Moment, Needs, NextTick, PageId, PageView, Parameters, Policy,
    Published, Refusal, Report, ScanHand, Scope, Setup, Signal, SignalKind, Step,
};
use terrace_model::TierId;

/// Parameters of AIMR.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Pages that left the fast tier and are remembered, as a multiple of its pages.
    #[parameter(default = 1.0, range = 0.0..=1e3, source = "ours")]
    pub ghosts: f64,
    /// Whether every store to a page of the slow tier looks for a place, or only its first access there.
    #[parameter(default = true, source = "ours")]
    pub stores_ask: bool,
}

/// Laps after which a hand that must find a victim has taken back all marks.
const FORCED_LAPS: u32 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// In the fast tier: accessed since the hand's last visit. In the slow one: since it came there.
    referenced: bool,
    dirty: bool,
    /// A dirty page was stored to since the hand's last visit but one.
    suggested: bool,
    /// The page was suggested once while in the fast tier. The mark stays as long as the list has the page.
    intensive: bool,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Aimr {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    pages: PageMap<State>,
    hand: ScanHand,
    /// Pages that left the fast tier.
    ghosts: Lru,
    most_ghosts: usize,
    promoter: Promoter,
    started: bool,
    forced: u64,
    retained: u64,
}

impl Published for Aimr {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Aimr, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let pages = setup.topology.tier(fast).capacity.0 >> 12;
        Ok(Aimr {
            most_ghosts: (pages as f64 * parameters.ghosts) as usize,
            parameters,
            fast,
            slow,
            pages: PageMap::default(),
            hand: ScanHand::default(),
            ghosts: Lru::default(),
            promoter: Promoter::new(fast, slow),
            started: false,
            forced: 0,
            retained: 0,
        })
    }
}

impl Policy for Aimr {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::ExactAccesses, Capability::Migration]).and_signals(&[SignalKind::Unmapped])
    }

    fn on(&mut self, _: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if !std::mem::replace(&mut self.started, true) {
            memory.sample_accesses(1);
        }
        for signal in signals {
            if let Some((page, tier)) = self.promoter.handle(signal, memory) {
                self.arrived(page, tier);
            }
            match *signal {
                Signal::Unmapped { range } => {
                    self.pages.forget(range);
                    self.ghosts.forget(range);
                }
                Signal::Access { page, write, count } => self.accessed(page, write, count, memory),
                _ => {}
            }
        }
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        self.promoter.report(report);
        report.count("forced", self.forced);
        report.count("retained", self.retained);
    }
}

impl Aimr {
    fn arrived(&mut self, page: PageId, tier: TierId) {
        let state = self.pages.entry(page);
        if tier == self.fast {
            // A page comes to the fast tier because it was accessed.
            *state = State { referenced: true, ..State::default() };
            self.ghosts.remove(page);
            return;
        }
        *state = State { intensive: state.intensive, ..State::default() };
        self.ghosts.touch(page);
        let oldest = self.ghosts.oldest().next().filter(|_| self.ghosts.len() > self.most_ghosts);
        if let Some(oldest) = oldest {
            self.ghosts.remove(oldest);
            self.pages.entry(oldest).intensive = false;
        }
    }

    fn accessed(&mut self, page: PageId, write: bool, count: u32, memory: &mut dyn MemorySystem) {
        let Some(view) = memory.page(page) else { return };
        let state = self.pages.entry(view.page);
        let first = !std::mem::replace(&mut state.referenced, true);
        if view.tier == self.fast && write {
            if state.dirty || count > 1 {
                (state.suggested, state.intensive) = (true, true);
            }
            state.dirty = true;
        }
        let asks = first || write && self.parameters.stores_ask;
        if view.tier == self.slow && !view.in_flight && asks {
            self.find_place(&view, memory);
        }
    }

    /// The page was accessed in the slow tier.
    fn find_place(&mut self, view: &PageView, memory: &mut dyn MemorySystem) {
        let intensive = self.pages.get(view.page).intensive;
        if memory.topology().free_pages(self.fast) >= view.base_pages() {
            self.promoter.promote(view.page, memory);
            return;
        }
        let laps = if intensive { FORCED_LAPS } else { 1 };
        match (0..laps).find_map(|_| self.turn(view.base_pages(), memory)) {
            Some(victim) => {
                self.forced += u64::from(intensive);
                self.promoter.replace(victim, view.page, memory);
            }
            None => self.retained += 1,
        }
    }

    /// One lap of the hand, up to the first page without a mark.
    fn turn(&mut self, pages: u64, memory: &mut dyn MemorySystem) -> Option<PageId> {
        let states = &mut self.pages;
        let mut victim = None;
        memory.scan(Scope::Tier(self.fast), &mut self.hand, Clear::NOTHING, &mut |view| {
            if victim.is_some() {
                return Step::Stop;
            }
            if view.in_flight || view.base_pages() != pages {
                return Step::Keep;
            }
            let state = states.entry(view.page);
            if state.suggested {
                state.suggested = false;
            } else if state.referenced {
                state.referenced = false;
            } else {
                victim = Some(view.page);
            }
            Step::Keep
        });
        victim
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::millis;
    use crate::test_support::{access, four_fast_pages, in_fast};
    use crate::{Driver, InMemory, Open, PageId};
    use terrace_model::Bytes;

    /// A fast tier of four pages, 0..4, whose marks are spent: the next page that asks displaces page 0.
    fn open(parameters: &str) -> Driver {
        let mut driver = Driver::open("aimr", parameters, four_fast_pages()).unwrap();
        driver.touch_all(0, 0..4, false);
        assert!(!access(&mut driver, 15, 1, false), "all four were accessed since the hand's last visit");
        driver
    }

    #[test]
    fn new_pages_fill_the_fast_tier_and_then_stay_where_they_are() {
        let driver = open("");
        assert!((0..4).all(|vpn| in_fast(&driver, vpn)));
        assert_eq!(driver.report().stats.integer("retained"), 1);
    }

    #[test]
    fn a_page_that_was_not_accessed_makes_room() {
        let mut driver = open("");
        access(&mut driver, 0, 1, false);
        assert!(access(&mut driver, 8, 1, false));
        assert!(in_fast(&driver, 0) && !in_fast(&driver, 1), "0 was accessed, so the hand took 1");
    }

    #[test]
    fn free_memory_is_taken_at_once() {
        let mut driver = open("");
        driver.unmap(0, 2, 1);
        assert!(access(&mut driver, 8, 1, false));
        assert!([0, 1, 3].iter().all(|vpn| in_fast(&driver, *vpn)));
    }

    #[test]
    fn a_page_that_stayed_asks_again_at_its_next_store() {
        let mut driver = open("");
        assert!(!access(&mut driver, 15, 20, false), "loads do not ask");
        assert!(access(&mut driver, 15, 1, true));
        let mut driver = open("stores_ask = false");
        assert!(!access(&mut driver, 15, 20, true));
    }

    #[test]
    fn a_dirty_page_that_is_stored_to_stays_for_a_lap_more() {
        // An access leaves one mark, a store to a dirty page one more. Who goes when two pages ask after a lap?
        for (stores, expected) in [(1, [0, 1]), (2, [1, 2])] {
            let mut driver = open("");
            access(&mut driver, 0, stores, true);
            for vpn in [1, 2, 3] {
                access(&mut driver, vpn, 1, false);
            }
            assert!(!access(&mut driver, 8, 1, false), "a lap takes a mark from each");
            let gone = [9, 10].map(|vpn| {
                let before: Vec<u64> = (0..4).filter(|vpn| in_fast(&driver, *vpn)).collect();
                assert!(access(&mut driver, vpn, 1, false));
                before.into_iter().find(|vpn| !in_fast(&driver, *vpn)).unwrap()
            });
            assert_eq!(gone, expected);
        }
    }

    /// Accesses new pages until one of the fast tier has made room: which.
    fn displace(driver: &mut Driver, fresh: &mut u64) -> u64 {
        let before: Vec<u64> = (0..*fresh).filter(|vpn| in_fast(driver, *vpn)).collect();
        loop {
            *fresh += 1;
            access(driver, *fresh - 1, 1, false);
            if let Some(gone) = before.iter().find(|vpn| !in_fast(driver, **vpn)) {
                return *gone;
            }
        }
    }

    /// Page 0 is stored to `stores` times and displaced, and `later` others after it. Then all pages of the fast tier
    /// are accessed, so that none makes room unless it must. Whether page 0 comes back when it is read.
    fn comes_back(parameters: &str, stores: u32, later: u64) -> bool {
        let mut world = InMemory::new(&[("dram", Bytes::kib(16)), ("pcm", Bytes::kib(256))]);
        world.map_anonymous(0, 0, 64);
        let mut driver = Driver::open("aimr", parameters, world).unwrap();
        driver.touch_all(0, 0..4, false);
        access(&mut driver, 0, stores, true);
        let mut fresh = 4;
        while displace(&mut driver, &mut fresh) != 0 {}
        for _ in 0..later {
            displace(&mut driver, &mut fresh);
        }
        for vpn in (1..fresh).filter(|vpn| in_fast(&driver, *vpn)).collect::<Vec<_>>() {
            driver.touch(PageId::new(0, vpn), false);
        }
        driver.advance(millis(1));
        access(&mut driver, 0, 1, false)
    }

    #[test]
    fn once_write_intensive_it_comes_back_whoever_has_to_go() {
        assert!(comes_back("", 2, 0));
        assert!(!comes_back("", 1, 0), "one store makes it dirty, not write-intensive");
    }

    #[test]
    fn the_list_forgets_who_left_long_ago() {
        assert!(comes_back("ghosts = 0.5", 2, 1));
        assert!(!comes_back("ghosts = 0.5", 2, 2));
        assert!(!comes_back("ghosts = 0", 2, 0));
    }

    #[test]
    fn a_list_of_negative_length_is_refused() {
        let world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]);
        let error = Driver::open("aimr", "ghosts = -1", world).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, "aimr: ghosts = -1.0 is out of range: 0.0 to 1000.0");
    }
}
