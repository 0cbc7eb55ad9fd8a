//! The second store to a slow page forces it up, the first only if there is room.
//!
//! **Idea.** In the fast tier, pages that were written lately are kept apart from all others, the candidates; a hand of
//! its own turns over each kind. A page makes room if it is a candidate that was not accessed since the last visit. In
//! the slow tier, a store to a page promotes it where the fast tier has room; where it has not, the page's lazy bit is
//! set, and only the next store forces a page out. That takes at most two intercepted stores and keeps pages that are
//! written once from pushing others out.
//!
//! **Source.** M. Lee, D. H. Kang, J. Kim, Y. I. Eom, "M-CLOCK: Migration-optimized page replacement algorithm for
//! hybrid DRAM and PCM memory architecture", SAC 2015, as described in M. Marques, "Ambix", IST Lisboa 2021, §2.3.4.
//!
//! **Left open by the source.** *A candidate with neither bit set is evicted from memory* in the source; here it goes to
//! the slow tier like any other. *When a lazy bit is cleared*: with the page's promotion. *No victim in one turn of
//! either hand*: the page waits for its next store. *TLB entries*: dropped with the bits where the world can.
//!
//! **When to use it.** Memory that must be spared writes, where stores can be intercepted but not counted. Loads never
//! promote.

use crate::support::{PageMap, Promoter};
use crate::{
    Capability, Clear, MemorySystem, Moment, Needs, NextTick, PageId, Parameters, Policy, Published, Refusal,
    Report, ScanHand, Scope, Setup, Signal, SignalKind, Step, Watch,
};
use terrace_model::TierId;

/// Parameters of M-CLOCK.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Migrate lazily, as the source does. Off: the first store already forces a page out of a full fast
    /// tier.
    #[parameter(default = true)]
    pub lazy: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// In the fast tier: written lately.
    written: bool,
    /// In the slow tier: stored to while the fast tier was full.
    lazy: bool,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct MClock {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    pages: PageMap<State>,
    candidate_hand: ScanHand,
    written_hand: ScanHand,
    promoter: Promoter,
    deferred: u64,
    no_victim: u64,
}

impl Published for MClock {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<MClock, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(MClock {
            parameters,
            fast,
            slow,
            pages: PageMap::default(),
            candidate_hand: ScanHand::default(),
            written_hand: ScanHand::default(),
            promoter: Promoter::new(fast, slow),
            deferred: 0,
            no_victim: 0,
        })
    }
}

impl Policy for MClock {
    fn needs(&self) -> Needs {
        Needs::of(&[
            Capability::WriteFaults,
            Capability::AccessedBits,
            Capability::DirtyBits,
            Capability::Migration,
        ])
        .and_signals(&[SignalKind::Allocated, SignalKind::Unmapped])
    }

    fn on(&mut self, _: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            if let Some((page, tier)) = self.promoter.handle(signal, memory) {
                *self.pages.entry(page) = State::default();
                let how = if tier == self.slow { Watch::HintStore } else { Watch::Off };
                memory.watch(&[page], how);
            }
            match *signal {
                Signal::Unmapped { range } => self.pages.forget(range),
                Signal::Allocated { page, tier, .. } if tier == self.slow => {
                    memory.watch(&[page], Watch::HintStore)
                }
                Signal::HintFault { page, write: true, .. } => self.stored(page, memory),
                // A promotion that failed: its next store counts again.
                Signal::Done { subject, .. } => {
                    if let Some(page) = subject.page()
                        && memory.page(page).is_some_and(|view| view.tier == self.slow)
                    {
                        memory.watch(&[page], Watch::HintStore);
                    }
                }
                _ => {}
            }
        }
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        self.promoter.report(report);
        report.count("deferred", self.deferred);
        report.count("no_victim", self.no_victim);
    }
}

impl MClock {
    /// A store to a page of the slow tier was intercepted.
    fn stored(&mut self, page: PageId, memory: &mut dyn MemorySystem) {
        let Some(view) = memory.page(page).filter(|view| view.tier == self.slow && !view.in_flight) else {
            return;
        };
        if memory.topology().free_pages(self.fast) >= view.base_pages() {
            self.promoter.promote(view.page, memory);
            return;
        }
        let state = self.pages.entry(view.page);
        if self.parameters.lazy && !state.lazy {
            state.lazy = true;
            self.deferred += 1;
            memory.watch(&[view.page], Watch::HintStore);
            return;
        }
        match self.victim(view.base_pages(), memory) {
            Some(victim) => self.promoter.replace(victim, view.page, memory),
            None => {
                self.no_victim += 1;
                memory.watch(&[view.page], Watch::HintStore);
            }
        }
    }

    /// A candidate that was not accessed since the last visit. Where there is none, the other hand makes candidates of
    /// pages that were not written since its last visit, and the first tries once more.
    fn victim(&mut self, pages: u64, memory: &mut dyn MemorySystem) -> Option<PageId> {
        if let Some(victim) = self.turn_candidates(pages, memory) {
            return Some(victim);
        }
        let (states, clear) =
            (&mut self.pages, Clear { dirty: true, ..Clear::NOTHING }.flushed_where_offered(memory));
        memory.scan(Scope::Tier(self.fast), &mut self.written_hand, clear, &mut |view| {
            let state = states.entry(view.page);
            if !state.written {
                return Step::Keep;
            }
            state.written = view.dirty;
            Step::Clear
        });
        self.turn_candidates(pages, memory)
    }

    fn turn_candidates(&mut self, pages: u64, memory: &mut dyn MemorySystem) -> Option<PageId> {
        let (states, clear) = (&mut self.pages, Clear::ACCESSED.flushed_where_offered(memory));
        let mut victim = None;
        memory.scan(Scope::Tier(self.fast), &mut self.candidate_hand, clear, &mut |view| {
            if victim.is_some() {
                return Step::Stop;
            }
            let state = states.entry(view.page);
            if state.written || view.in_flight || view.base_pages() != pages {
                return Step::Keep;
            }
            if view.accessed {
                state.written = view.dirty;
                return Step::Clear;
            }
            victim = Some(view.page);
            Step::Keep
        });
        victim
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::millis;
    use crate::test_support::{access, four_fast_pages, in_fast};
    use crate::{Driver, Open, PageId};

    /// A fast tier of four pages, 0..4; 4..8 in the slow one.
    fn open(parameters: &str) -> Driver {
        let mut driver = Driver::open("m-clock", parameters, four_fast_pages()).unwrap();
        driver.touch_all(0, 0..8, false);
        driver.advance(millis(1));
        driver
    }

    fn store(driver: &mut Driver, vpn: u64) -> bool {
        access(driver, vpn, 1, true)
    }

    #[test]
    fn with_room_the_first_store_promotes() {
        let mut driver = open("");
        driver.unmap(0, 0, 1);
        assert!(store(&mut driver, 5));
    }

    #[test]
    fn without_room_the_second_store_forces_a_page_out() {
        let mut driver = open("");
        assert!(!store(&mut driver, 5), "only the lazy bit is set");
        assert_eq!(driver.report().stats.integer("deferred"), 1);
        // All four were accessed: the first turn clears, the second finds page 0.
        assert!(store(&mut driver, 5) && !in_fast(&driver, 0));
        let mut driver = open("lazy = false");
        assert!(store(&mut driver, 5));
    }

    #[test]
    fn loads_are_not_intercepted() {
        let mut driver = open("lazy = false");
        for _ in 0..10 {
            driver.touch(PageId::new(0, 5), false);
            driver.advance(millis(1));
        }
        assert!(!in_fast(&driver, 5));
    }

    #[test]
    fn written_pages_are_kept_longer_than_read_ones() {
        let mut driver = open("lazy = false");
        driver.touch_all(0, 0..2, true);
        driver.touch_all(0, 2..4, false);
        assert!(store(&mut driver, 5));
        // 0 and 1 are kept apart; of the candidates 2 and 3, whose bits were cleared, the first goes.
        assert!(in_fast(&driver, 0) && in_fast(&driver, 1) && !in_fast(&driver, 2));
        assert!(store(&mut driver, 6) && !in_fast(&driver, 3));
    }

    #[test]
    fn a_demoted_page_is_watched_again() {
        let mut driver = open("lazy = false");
        assert!(store(&mut driver, 5) && !in_fast(&driver, 0));
        assert!(store(&mut driver, 0));
    }
}
