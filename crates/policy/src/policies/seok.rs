//! A weight per page between reads and writes decides where it belongs.
//!
//! **Idea.** Every access moves a page's weight: `W = α·W + (1−α)·R`, where R is 1 for a write and −1 for a read. A page
//! whose weight is above a threshold is likely to be written next and belongs into the fast tier, others do not. Pages
//! are kept in the order of their last use; the page that makes room is the one that was not used for longest among
//! those below the threshold.
//!
//! **Source.** H. Seok, Y. Park, K. H. Park, "Migration based page caching algorithm for a hybrid main memory of DRAM
//! and PRAM", SAC 2011, and its sequel, as described in M. Marques, "Ambix", IST Lisboa 2021, §2.3.4.
//!
//! **Left open by the source.** *α and the threshold*: described as adjustable; 0.5 and 0.5 are ours. *Where a page
//! starts*: weight 0, in the fast tier while there is room. *Where no page is below the threshold*: the page that was
//! not used for longest goes, if it is colder than the one that comes: not used since. *Accesses in a row* count one by
//! one.
//!
//! **When to use it.** As a reference for write-aware replacement of its time. A page both read and written much has a
//! middling weight and may end in slow memory, so it serves memory that must be spared writes and not much else.

use crate::support::{Lru, PageMap, Promoter};
use crate::{
    Capability, MemorySystem, Moment, Needs, NextTick, PageId, Parameters, Policy, Published, Refusal,
    Report, Setup, Signal, SignalKind,
};
use terrace_model::TierId;

/// Parameters of the policy of Seok et al.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// α, the share of the old weight.
    #[parameter(default = 0.5, range = 0.0..=1.0, source = "ours")]
    pub alpha: f64,
    /// Weight above which a page belongs into the fast tier.
    #[parameter(default = 0.5, range = -1.0..=1.0, source = "ours")]
    pub threshold: f64,
}

/// The weight after `count` accesses of one kind.
pub fn weight(old: f64, alpha: f64, write: bool, count: u32) -> f64 {
    let request = if write { 1.0 } else { -1.0 };
    // The recurrence in closed form: what is left of the old weight shrinks by α each time.
    let left = alpha.powi(count.min(1024) as i32);
    old * left + request * (1.0 - left)
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Seok {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    weights: PageMap<f64>,
    used: Lru,
    promoter: Promoter,
    started: bool,
}

/// Pages of the old end of the list that are asked whether they make room.
const LOOK_AT: usize = 64;

impl Published for Seok {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Seok, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(Seok {
            parameters,
            fast,
            slow,
            weights: PageMap::default(),
            used: Lru::default(),
            promoter: Promoter::new(fast, slow),
            started: false,
        })
    }
}

impl Policy for Seok {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::ExactAccesses, Capability::Migration]).and_signals(&[SignalKind::Unmapped])
    }

    fn on(&mut self, _: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if !std::mem::replace(&mut self.started, true) {
            memory.sample_accesses(1);
        }
        for signal in signals {
            if let Some((page, tier)) = self.promoter.handle(signal, memory) {
                if tier == self.fast {
                    self.used.touch(page);
                } else {
                    self.used.remove(page);
                }
            }
            match *signal {
                Signal::Unmapped { range } => {
                    self.weights.forget(range);
                    self.used.forget(range);
                }
                Signal::Access { page, write, count } => self.accessed(page, write, count, memory),
                _ => {}
            }
        }
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        self.promoter.report(report);
    }
}

impl Seok {
    fn accessed(&mut self, page: PageId, write: bool, count: u32, memory: &mut dyn MemorySystem) {
        let Some(view) = memory.page(page) else { return };
        let old = self.weights.entry(view.page);
        *old = weight(*old, self.parameters.alpha, write, count);
        let weight = *old;
        if view.tier == self.fast {
            self.used.touch(view.page);
            return;
        }
        if view.tier != self.slow || view.in_flight || weight <= self.parameters.threshold {
            return;
        }
        if memory.topology().free_pages(self.fast) >= view.base_pages() {
            self.promoter.promote(view.page, memory);
        } else if let Some(victim) = self.victim(view.base_pages(), memory) {
            self.promoter.replace(victim, view.page, memory);
        }
    }

    fn victim(&mut self, pages: u64, memory: &mut dyn MemorySystem) -> Option<PageId> {
        let mut oldest = None;
        let candidates: Vec<PageId> = self.used.oldest().take(LOOK_AT).collect();
        for page in candidates {
            let fits = memory.page(page).is_some_and(|view| {
                view.page == page && view.tier == self.fast && !view.in_flight && view.base_pages() == pages
            });
            if !fits {
                continue;
            }
            if self.weights.get(page) <= self.parameters.threshold {
                return Some(page);
            }
            oldest = oldest.or(Some(page));
        }
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::weight;
    use crate::spans::millis;
    use crate::test_support::{access, four_fast_pages, in_fast};
    use crate::{Driver, Open};

    #[test]
    fn the_weight_by_hand() {
        assert_eq!(weight(0.0, 0.5, true, 1), 0.5);
        assert_eq!(weight(0.5, 0.5, true, 1), 0.75);
        assert_eq!(weight(0.75, 0.5, false, 1), -0.125);
        assert_eq!(weight(0.2, 1.0, true, 9), 0.2, "all of the old weight stays");
        let one_by_one = (0..5).fold(0.3, |old, _| weight(old, 0.8, false, 1));
        assert!((weight(0.3, 0.8, false, 5) - one_by_one).abs() < 1e-12);
    }

    /// A fast tier of four pages, 0..4; 4..8 in the slow one. All were read once: weight −0.5.
    fn open(parameters: &str) -> Driver {
        let mut driver = Driver::open("seok", parameters, four_fast_pages()).unwrap();
        driver.touch_all(0, 0..8, false);
        driver.advance(millis(1));
        driver
    }

    #[test]
    fn a_page_above_the_threshold_replaces_the_oldest_below_it() {
        let mut driver = open("");
        // −0.5, 0.25, 0.625: the second store passes 0.5.
        assert!(!access(&mut driver, 5, 1, true));
        assert!(access(&mut driver, 5, 1, true));
        assert!(!in_fast(&driver, 0), "used before all others");
        access(&mut driver, 1, 3, true);
        assert!(access(&mut driver, 6, 2, true));
        assert!(in_fast(&driver, 1) && !in_fast(&driver, 2), "1 is above the threshold and was used lately");
    }

    #[test]
    fn reads_take_weight_away() {
        let mut driver = open("");
        for _ in 0..10 {
            assert!(!access(&mut driver, 5, 1, true));
            access(&mut driver, 5, 1, false);
        }
        assert!(access(&mut open("threshold = -0.2"), 5, 1, true));
        assert!(!access(&mut open("alpha = 0.9"), 5, 2, true), "a long memory needs more stores");
    }
}
