//! Four degrees of heat; a store first asks for a very cold page, then for any but a very hot one.
//!
//! **Idea.** A hand turns over the pages of the fast tier. What a page did since the last visit moves it one degree up
//! or down between 0 (very cold) and 3 (very hot). A store to a page of the slow tier promotes it if a page of degree 0
//! can make room; if there is none it stays, and its second store is content with degree 2 or less.
//!
//! **Source.** S. Kim, S.-H. Hwang, J. W. Kwak, "Adaptive-classification CLOCK", Microprocessors and Microsystems 57,
//! 2018, as described in M. Marques, "Ambix", IST Lisboa 2021, §2.3.4.
//!
//! **Left open by the source.** *What moves a page up*: the description says "the number of read and write accesses
//! since the last iteration"; here a store, or `reads_up` reads, ours. Fewer leave it where it is, none moves it down.
//! *Where a page starts*: at degree 1, ours. *Direct eviction to storage*: left to the operating system. *Counting*:
//! every access that reaches memory, as the source has it; the stores to slow pages likewise.
//!
//! **When to use it.** Memory that wears or slows with writes, where every access can be reported: simulation, and hardware
//! that counts. Its second chance to ask makes it slower to promote than CLOCK-DWF and less prone to pages that go back
//! and forth. A slow tier that only has longer latency gains nothing from its eye for writes: loads never promote.

use crate::support::{PageMap, Promoter};
use crate::{
    Capability, Clear, MemorySystem, Moment, Needs, NextTick, PageId, Parameters, Policy, Published, Refusal,
    Report, ScanHand, Scope, Setup, Signal, SignalKind, Step,
};
use terrace_model::TierId;

/// Parameters of AC-CLOCK.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Reads since the last visit that move a page one degree up.
    #[parameter(default = 4, range = 0..=1_000_000_000, source = "ours")]
    pub reads_up: u32,
    /// Degree up to which a page makes room for a slow page's first store.
    #[parameter(default = 0, range = 0..=VERY_HOT, source = "the source")]
    pub first_goal: u8,
    /// Degree up to which a page makes room for a slow page's second and further stores.
    #[parameter(default = 2, range = 0..=VERY_HOT, source = "the source")]
    pub second_goal: u8,
}

/// The highest degree.
const VERY_HOT: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct State {
    degree: u8,
    reads: u32,
    writes: u32,
}

impl Default for State {
    fn default() -> State {
        State { degree: 1, reads: 0, writes: 0 }
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct AcClock {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    pages: PageMap<State>,
    hand: ScanHand,
    promoter: Promoter,
    started: bool,
    retained: u64,
}

impl Published for AcClock {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<AcClock, Refusal> {
        if parameters.first_goal > parameters.second_goal {
            return Err(Refusal::parameter("second_goal", "expected first_goal <= second_goal"));
        }
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(AcClock {
            parameters,
            fast,
            slow,
            pages: PageMap::default(),
            hand: ScanHand::default(),
            promoter: Promoter::new(fast, slow),
            started: false,
            retained: 0,
        })
    }
}

impl Policy for AcClock {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::ExactAccesses, Capability::Migration]).and_signals(&[SignalKind::Unmapped])
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
                Signal::Access { page, write, count } => self.accessed(page, write, count, memory),
                _ => {}
            }
        }
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        self.promoter.report(report);
        report.count("retained", self.retained);
    }
}

impl AcClock {
    fn accessed(&mut self, page: PageId, write: bool, count: u32, memory: &mut dyn MemorySystem) {
        let Some(view) = memory.page(page) else { return };
        let state = self.pages.entry(view.page);
        let counter = if write { &mut state.writes } else { &mut state.reads };
        *counter = counter.saturating_add(count);
        if !write || view.tier != self.slow || view.in_flight {
            return;
        }
        let goal = if state.writes == 1 { self.parameters.first_goal } else { self.parameters.second_goal };
        if memory.topology().free_pages(self.fast) >= view.base_pages() {
            self.promoter.promote(view.page, memory);
        } else if let Some(victim) = self.victim(goal, view.base_pages(), memory) {
            self.promoter.replace(victim, view.page, memory);
        } else {
            self.retained += 1;
        }
    }

    /// The first page of degree `goal` or less in one turn of the hand.
    fn victim(&mut self, goal: u8, pages: u64, memory: &mut dyn MemorySystem) -> Option<PageId> {
        let (states, reads_up) = (&mut self.pages, self.parameters.reads_up);
        let mut victim = None;
        memory.scan(Scope::Tier(self.fast), &mut self.hand, Clear::NOTHING, &mut |view| {
            if victim.is_some() {
                return Step::Stop;
            }
            let state = states.entry(view.page);
            if state.writes > 0 || state.reads >= reads_up {
                state.degree = (state.degree + 1).min(VERY_HOT);
            } else if state.reads == 0 {
                state.degree = state.degree.saturating_sub(1);
            }
            (state.reads, state.writes) = (0, 0);
            if state.degree <= goal && !view.in_flight && view.base_pages() == pages {
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
    use crate::test_support::{access, four_fast_pages};
    use crate::{Driver, Open};

    /// A fast tier of four pages, 0..4; 4..8 in the slow one.
    fn open(parameters: &str) -> Driver {
        let mut driver = Driver::open("ac-clock", parameters, four_fast_pages()).unwrap();
        driver.touch_all(0, 0..8, false);
        driver.advance(millis(1));
        driver
    }

    #[test]
    fn the_first_store_wants_a_very_cold_page_the_second_is_content_with_less() {
        let mut driver = open("");
        assert!(!access(&mut driver, 5, 1, true), "one read each: all are of degree 1");
        assert_eq!(driver.report().stats.integer("retained"), 1);
        assert!(access(&mut driver, 5, 1, true));
        let mut driver = open("first_goal = 1");
        assert!(access(&mut driver, 5, 1, true));
    }

    #[test]
    fn pages_cool_down_turn_by_turn() {
        let mut driver = open("second_goal = 0");
        assert!(!access(&mut driver, 5, 1, true), "first turn: degree 1 stays, it was read once");
        assert!(access(&mut driver, 6, 1, true), "second turn: degree 0");
    }

    #[test]
    fn stores_and_many_reads_heat_up() {
        let mut driver = open("first_goal = 1");
        access(&mut driver, 0, 1, true);
        access(&mut driver, 1, 4, false);
        access(&mut driver, 2, 1, true);
        access(&mut driver, 3, 1, false);
        assert!(access(&mut driver, 5, 1, true));
        assert!(!access(&mut driver, 3, 0, false), "3 was neither stored to nor read four times");
        assert!((0..3).all(|vpn| access(&mut driver, vpn, 0, false)));
        assert!(!access(&mut open("first_goal = 1\nreads_up = 1"), 5, 1, true), "degree 2 for all");
    }
}
