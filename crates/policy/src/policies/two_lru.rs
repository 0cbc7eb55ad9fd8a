//! A list per tier; in the slow one, few writes or many reads earn a promotion.
//!
//! **Idea.** New pages go to the fast tier. Its list is plain LRU: an access of either kind brings a page to the front,
//! and the page at the end makes room. In the slow tier, reads and writes of each page are counted; the writes of a
//! page are enough at a low threshold, its reads only at a high one.
//!
//! **Source.** R. Salkhordeh, H. Asadi, "An operating system level data migration scheme in hybrid DRAM-NVM memory
//! architecture" (TwoLRU), DATE 2016, as described in M. Marques, "Ambix", IST Lisboa 2021, §2.3.4.
//!
//! **Left open by the source.** *Both thresholds*: 4 writes and 16 reads are ours. *When counts end*: with the move to
//! the fast tier, and with the page's fall to the old half of the slow tier's list in the source; here they are halved
//! when `halve_every` accesses to the slow tier have passed, ours. *New pages always in the fast tier*: a free share
//! (`headroom`) is kept by demoting from the end of its list, since a page fault cannot wait for a migration here.
//!
//! **When to use it.** As a reference where every access can be reported. It moves fewer pages than the clocks, as it asks
//! for several writes or many reads first, and is later for that.

use crate::support::{Lru, PageMap, Promoter};
use crate::{
    Capability, MemorySystem, Moment, Needs, NextTick, PageId, Parameters, Policy, Published, Refusal,
    Report, Setup, Signal, SignalKind,
};
use terrace_model::{Bytes, TierId};

/// Parameters of TwoLRU.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Writes to a page of the slow tier that promote it.
    #[parameter(default = 4, range = 1..=1_000_000_000, source = "ours")]
    pub writes: u32,
    /// Reads that promote it; at least as many as writes.
    #[parameter(default = 16, range = 1..=1_000_000_000, source = "ours; more than writes in the source")]
    pub reads: u32,
    /// Accesses to the slow tier after which all counts are halved.
    #[parameter(default = 100_000, range = 1..=1_000_000_000_000, source = "ours")]
    pub halve_every: u64,
    /// Share of the fast tier to keep free for new pages.
    #[parameter(default = 0.01, range = 0.0..=1.0, source = "ours")]
    pub headroom: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u32,
    writes: u32,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct TwoLru {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    headroom: u64,
    fast_list: Lru,
    counts: PageMap<Counts>,
    slow_accesses: u64,
    promoter: Promoter,
    started: bool,
}

impl Published for TwoLru {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<TwoLru, Refusal> {
        let p = &parameters;
        if p.reads < p.writes {
            return Err(Refusal::parameter("reads", "expected writes <= reads"));
        }
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let pages = setup.topology.tier(fast).capacity.0 >> 12;
        Ok(TwoLru {
            headroom: (pages as f64 * p.headroom).ceil() as u64,
            parameters,
            fast,
            slow,
            fast_list: Lru::default(),
            counts: PageMap::default(),
            slow_accesses: 0,
            promoter: Promoter::new(fast, slow),
            started: false,
        })
    }
}

impl Policy for TwoLru {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::ExactAccesses, Capability::Migration])
            .and_signals(&[SignalKind::Allocated, SignalKind::Unmapped])
    }

    fn on(&mut self, _: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if !std::mem::replace(&mut self.started, true) {
            memory.sample_accesses(1);
            memory.wake_below(self.fast, Bytes(self.headroom << 12));
        }
        let mut crowded = false;
        for signal in signals {
            if let Some((page, tier)) = self.promoter.handle(signal, memory) {
                *self.counts.entry(page) = Counts::default();
                if tier == self.fast {
                    self.fast_list.touch(page);
                    crowded = true;
                } else {
                    self.fast_list.remove(page);
                }
            }
            match *signal {
                Signal::Unmapped { range } => {
                    self.fast_list.forget(range);
                    self.counts.forget(range);
                }
                Signal::Allocated { page, tier, .. } if tier == self.fast => {
                    self.fast_list.touch(page);
                    crowded = true;
                }
                Signal::LowWater { .. } => crowded = true,
                Signal::Access { page, write, count } => self.accessed(page, write, count, memory),
                _ => {}
            }
        }
        if crowded {
            self.keep_room(memory);
        }
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        self.promoter.report(report);
    }
}

impl TwoLru {
    fn accessed(&mut self, page: PageId, write: bool, count: u32, memory: &mut dyn MemorySystem) {
        let Some(view) = memory.page(page) else { return };
        if view.tier == self.fast {
            self.fast_list.touch(view.page);
            return;
        }
        let before = self.slow_accesses;
        self.slow_accesses += u64::from(count);
        if before / self.parameters.halve_every != self.slow_accesses / self.parameters.halve_every {
            self.counts.for_each(|_, counts| {
                *counts = Counts { reads: counts.reads / 2, writes: counts.writes / 2 }
            });
        }
        let counts = self.counts.entry(view.page);
        let counter = if write { &mut counts.writes } else { &mut counts.reads };
        *counter = counter.saturating_add(count);
        let earned = counts.writes >= self.parameters.writes || counts.reads >= self.parameters.reads;
        if view.tier != self.slow || view.in_flight || !earned {
            return;
        }
        if memory.topology().free_pages(self.fast) >= view.base_pages() {
            self.promoter.promote(view.page, memory);
        } else if let Some(victim) = self.oldest(view.base_pages(), memory) {
            self.promoter.replace(victim, view.page, memory);
        }
    }

    /// The page of the fast tier that was not used for longest and can go.
    fn oldest(&self, pages: u64, memory: &mut dyn MemorySystem) -> Option<PageId> {
        self.fast_list.oldest().take(64).find(|page| {
            memory.page(*page).is_some_and(|view| {
                view.page == *page && view.tier == self.fast && !view.in_flight && view.base_pages() == pages
            })
        })
    }

    /// Demotes from the end of the fast tier's list until the headroom is free, what is under way included.
    fn keep_room(&mut self, memory: &mut dyn MemorySystem) {
        let free = memory.topology().free_pages(self.fast) + self.promoter.outstanding() as u64;
        let mut wanted = self.headroom.saturating_sub(free);
        let oldest: Vec<PageId> = self.fast_list.oldest().take(wanted as usize).collect();
        for page in oldest {
            let Some(view) = memory.page(page).filter(|view| view.tier == self.fast && !view.in_flight)
            else {
                self.fast_list.remove(page);
                continue;
            };
            if wanted > 0 {
                self.promoter.demote(page, memory);
                wanted = wanted.saturating_sub(view.base_pages());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::millis;
    use crate::test_support::{access, four_fast_pages, in_fast};
    use crate::{Driver, Open, PageId};

    /// A fast tier of four pages; eight in use, touched in order.
    fn open(parameters: &str) -> Driver {
        let headroom = if parameters.contains("headroom") { "" } else { "headroom = 0" };
        let mut driver =
            Driver::open("two-lru", &format!("{headroom}\n{parameters}"), four_fast_pages()).unwrap();
        for vpn in 0..8 {
            driver.touch(PageId::new(0, vpn), false);
            driver.advance(millis(1));
        }
        driver
    }

    #[test]
    fn writes_earn_a_promotion_sooner_than_reads() {
        let mut driver = open("");
        assert!(!access(&mut driver, 5, 3, true));
        assert!(access(&mut driver, 5, 1, true));
        assert!(!access(&mut driver, 6, 14, false), "15 with the first touch");
        assert!(access(&mut driver, 6, 1, false));
        assert!(access(&mut open("writes = 1"), 5, 1, true));
        assert!(access(&mut open("writes = 1\nreads = 2"), 5, 1, false));
    }

    #[test]
    fn the_least_recently_used_page_makes_room() {
        let mut driver = open("");
        access(&mut driver, 0, 1, false);
        assert!(access(&mut driver, 5, 4, true));
        assert!(in_fast(&driver, 0) && !in_fast(&driver, 1));
    }

    #[test]
    fn counts_fade() {
        let mut driver = open("halve_every = 8");
        for _ in 0..10 {
            assert!(!access(&mut driver, 5, 1, true));
            access(&mut driver, 6, 7, false);
        }
    }

    #[test]
    fn new_pages_find_room() {
        let mut driver = open("headroom = 0.25");
        driver.touch(PageId::new(0, 12), true);
        assert!(in_fast(&driver, 12));
        driver.advance(millis(1));
        driver.touch(PageId::new(0, 13), true);
        assert!(in_fast(&driver, 13));
        let driver = open("");
        assert!(!in_fast(&driver, 7));
    }
}
