//! Written pages belong into DRAM, read ones into slow memory, from the first touch on.
//!
//! **Idea.** The kind of the first access places a page: a store in the fast tier, a load in the slow one. Stores to
//! pages of the slow tier are counted; a page above a threshold is promoted, and a clock hand finds the page that makes
//! room. At the hand, a page that was written since the last visit gains a write and stays; one that was not but was
//! written often before is overlooked a few times; any other is demoted.
//!
//! **Source.** S. Lee, H. Bahn, S. H. Noh, "CLOCK-DWF", IEEE Transactions on Computers 2014, as described in M. Marques,
//! "Ambix", IST Lisboa 2021, §2.3.4.
//!
//! **Left open by the source.** *All values*: the description gives none for the three thresholds; ours are small
//! numbers. *Eviction to storage*: left to the operating system; a page that leaves the fast tier goes to the slow one.
//! *A first store while the fast tier is full*: the page lies in the slow tier and its stores count. *A hand that finds
//! no victim*: after two laps the page stays where it is; its next store tries again. *Counts*: the promotion count
//! starts anew when a page changes tiers.
//!
//! **When to use it.** Programs whose writes are few pages that stay the same, on memory that must be spared writes. A
//! page first loaded and hot by loads later stays slow for good, so it is the wrong choice where latency of reads
//! counts.

use crate::support::{PageMap, Promoter};
use crate::{
    Capability, Clear, Fault, MemorySystem, Moment, Needs, NextTick, PageId, Parameters, Placement, Policy,
    Published, Refusal, Report, ScanHand, Scope, Setup, Signal, SignalKind, Step, Topology,
};
use terrace_model::TierId;

/// Parameters of CLOCK-DWF.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Stores to a page of the slow tier above which it is promoted.
    #[parameter(default = 2, range = 0..=1_000_000_000, source = "ours")]
    pub promote_writes: u32,
    /// Visits of the hand that found a page written, above which it counts as written often.
    #[parameter(default = 2, range = 0..=1_000_000_000, source = "ours")]
    pub often_written: u32,
    /// How often a page that was written often is overlooked before it is demoted.
    #[parameter(default = 2, range = 0..=1_000_000_000, source = "ours")]
    pub expiration: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// In the slow tier: stores. In the fast tier: visits that found it written.
    writes: u32,
    overlooked: u32,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct ClockDwf {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    pages: PageMap<State>,
    hand: ScanHand,
    promoter: Promoter,
    started: bool,
    no_victim: u64,
}

impl Published for ClockDwf {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<ClockDwf, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(ClockDwf {
            parameters,
            fast,
            slow,
            pages: PageMap::default(),
            hand: ScanHand::default(),
            promoter: Promoter::new(fast, slow),
            started: false,
            no_victim: 0,
        })
    }
}

impl Policy for ClockDwf {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::ExactAccesses, Capability::DirtyBits, Capability::Migration])
            .and_signals(&[SignalKind::Unmapped])
    }

    fn place(&mut self, fault: &Fault, _: &Topology) -> Placement {
        let (first, second) = if fault.write { (self.fast, self.slow) } else { (self.slow, self.fast) };
        Placement::tier(first).or(second, None)
    }

    fn on(&mut self, _: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if !std::mem::replace(&mut self.started, true) {
            memory.sample_accesses(1);
        }
        for signal in signals {
            if let Some((page, _)) = self.promoter.handle(signal, memory) {
                *self.pages.entry(page) = State::default();
            }
            match *signal {
                Signal::Unmapped { range } => self.pages.forget(range),
                Signal::Access { page, write: true, count } => self.stored(page, count, memory),
                _ => {}
            }
        }
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        self.promoter.report(report);
        report.count("no_victim", self.no_victim);
    }
}

impl ClockDwf {
    fn stored(&mut self, page: PageId, count: u32, memory: &mut dyn MemorySystem) {
        let Some(view) = memory.page(page).filter(|view| view.tier == self.slow && !view.in_flight) else {
            return;
        };
        let state = self.pages.entry(view.page);
        state.writes = state.writes.saturating_add(count);
        if state.writes <= self.parameters.promote_writes {
            return;
        }
        if memory.topology().free_pages(self.fast) >= view.base_pages() {
            self.promoter.promote(view.page, memory);
        } else if let Some(victim) = self.victim(view.base_pages(), memory) {
            self.promoter.replace(victim, view.page, memory);
        } else {
            self.no_victim += 1;
        }
    }

    /// The page at the hand that neither was written since the last visit nor is overlooked.
    fn victim(&mut self, pages: u64, memory: &mut dyn MemorySystem) -> Option<PageId> {
        let mut victim = None;
        for _ in 0..2 {
            let (states, p) = (&mut self.pages, &self.parameters);
            let clear = Clear { dirty: true, ..Clear::NOTHING }.flushed_where_offered(memory);
            memory.scan(Scope::Tier(self.fast), &mut self.hand, clear, &mut |view| {
                if victim.is_some() {
                    return Step::Stop;
                }
                if view.in_flight || view.base_pages() != pages {
                    return Step::Keep;
                }
                let state = states.entry(view.page);
                if view.dirty {
                    state.writes = state.writes.saturating_add(1);
                    state.overlooked = 0;
                    return Step::Clear;
                }
                if state.writes > p.often_written && state.overlooked < p.expiration {
                    state.overlooked += 1;
                } else {
                    victim = Some(view.page);
                }
                Step::Keep
            });
            if victim.is_some() {
                break;
            }
        }
        victim
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::millis;
    use crate::test_support::{access, four_fast_pages, in_fast};
    use crate::{Driver, Open, PageId};

    /// A fast tier of four pages, 0..4 stored to; 8..12 loaded into the slow one.
    fn open(parameters: &str) -> Driver {
        let mut driver = Driver::open("clock-dwf", parameters, four_fast_pages()).unwrap();
        driver.touch_all(0, 8..12, false);
        driver.touch_all(0, 0..4, true);
        driver.advance(millis(1));
        driver
    }

    fn store(driver: &mut Driver, vpn: u64, times: u32) -> bool {
        access(driver, vpn, times, true)
    }

    #[test]
    fn the_first_access_places() {
        let driver = open("");
        assert!((0..4).all(|vpn| in_fast(&driver, vpn)) && !(8..12).any(|vpn| in_fast(&driver, vpn)));
    }

    #[test]
    fn stores_above_the_threshold_promote_and_loads_do_not() {
        let mut driver = open("");
        driver.unmap(0, 0, 1);
        for _ in 0..50 {
            driver.touch(PageId::new(0, 8), false);
        }
        assert!(!store(&mut driver, 8, 2));
        assert!(store(&mut driver, 8, 1));
        let mut driver = open("promote_writes = 0");
        driver.unmap(0, 0, 1);
        assert!(store(&mut driver, 8, 1));
    }

    #[test]
    fn the_hand_takes_the_page_that_was_not_written() {
        let mut driver = open("");
        // The first lap finds all four written; the second finds page 0 not written since.
        assert!(store(&mut driver, 8, 3));
        assert!(!in_fast(&driver, 0) && in_fast(&driver, 1));
        driver.touch(PageId::new(0, 1), true);
        assert!(store(&mut driver, 9, 3));
        assert!(in_fast(&driver, 1) && !in_fast(&driver, 2));
    }

    #[test]
    fn often_written_pages_are_overlooked_until_they_expire() {
        let left_after = |parameters: &str| {
            let mut driver = open(&format!("often_written = 1\n{parameters}"));
            // Page 1 is written before each of two replacements: two visits find it so.
            let mut replaced = 0;
            for vpn in [8, 9] {
                driver.touch(PageId::new(0, 1), true);
                store(&mut driver, vpn, 3);
            }
            for vpn in [10, 11, 2, 3, 0, 8, 9, 10] {
                if !in_fast(&driver, 1) {
                    break;
                }
                if !in_fast(&driver, vpn) {
                    store(&mut driver, vpn, 3);
                    replaced += 1;
                }
            }
            replaced
        };
        let (short, long) = (left_after("expiration = 0"), left_after("expiration = 3"));
        assert!(short < long, "{short} replacements without, {long} with being overlooked");
    }
}
