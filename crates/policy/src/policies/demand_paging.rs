//! Fast memory caches the slow tier: a touched page faults and comes in, another makes room.
//!
//! **Idea.** Every page of the slow tier is trapped. Its next touch faults, and the page moves to the fast tier. Where
//! that is full, the page that came first (`fifo`) or that a clock hand finds unused (`clock`) goes down before. A
//! daemon may keep some memory free, so that faults need not wait for that (`free_pool`), and neighbours of a touched
//! page may come along (`prefetch`). Each move changes page tables, so that this is what translation coherence is
//! measured with.
//!
//! **Source.** Z. Yan, Virtual Memory for Next-Generation Tiered Memory Architectures (PhD, Rutgers 2019), section
//! 2.5.2: KVM's paging between die-stacked and off-chip memory, where `fifo`, `lru` (CLOCK), `&mig-dmn` and `&pref` are
//! compared.
//!
//! **Left open by the source.** *The size of the pool and the number of neighbours*: none and none, unless asked for.
//! *Whether the access waits*: it goes on in the slow tier until its page moves, and waits while it does. *Which
//! neighbours*: those that follow the page, of its size, in the slow tier; each moves for itself. *TLB entries when the
//! hand clears accessed bits*: they stay, as in Linux. *When the daemon wakes*: at each fault, new page and move that
//! ends well, unless it is at work. *How many it moves at a time*: one after the other, as one thread does. *What a move
//! costs besides*: nothing is drained before, since that belongs to the system call (`migrate_misplaced_page` and
//! `demote_page_list` in Linux go without). *A turn that finds no unused page*: a second turn does, since the first
//! cleared the bits. *Pages of several sizes*: a page makes room for one of its own size.
//!
//! **When to use it.** As a hypervisor's policy (`host.policy.name`), to see what coherence costs where pages move all
//! the time. A policy that weighs whether a page is worth its move does better.

use crate::support::{Lru, Promoter};
use crate::{
    Capability, Clear, MemorySystem, Moment, Needs, NextTick, Outcome, PageId, PageView, Parameters, Policy,
    Published, Refusal, Report, ScanHand, Scope, Setup, Signal, SignalKind, Step, Subject, Watch,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use terrace_model::parameters::Choice;
use terrace_model::{Bytes, PageSize, TierId};

/// The page that makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub enum Victim {
    /// The page that has been in the fast tier the longest.
    Fifo,
    /// The first page that a hand finds unused since its last turn.
    Clock,
}

/// Parameters of paging on demand.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// The page that makes room.
    #[parameter(default = Victim::Clock, source = "Yan 2019, section 2.5.2")]
    pub victim: Victim,
    /// Memory of the fast tier that a daemon keeps free.
    #[parameter(default = "0 B", range = "0 B"..="1024 TiB", source = "ours", scaled)]
    pub free_pool: Bytes,
    /// Pages after the touched one that come with it.
    #[parameter(default = 0, range = 0..=512, source = "ours")]
    pub prefetch: u32,
}

/// What a page that is to move moves for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The page comes into free memory of the fast tier.
    Arriving,
    /// The page comes when its victim has gone.
    Waiting,
    /// The page goes to make room for this other page.
    Victim(PageId),
    /// The page goes so that memory is free.
    Pool,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct DemandPaging {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    /// Pages of the fast tier that are not about to move, by size. Those that came first, or that the hand comes to
    /// first, are the oldest.
    resident: [Lru; 3],
    promoter: Promoter,
    /// Each with its base pages.
    roles: BTreeMap<PageId, (Role, u64)>,
    /// Base pages that come into free memory, and that go so that memory is free.
    arriving: u64,
    pooled: u64,
    prefetched: u64,
    started: bool,
}

impl Published for DemandPaging {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<DemandPaging, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(DemandPaging {
            parameters,
            fast,
            slow,
            resident: <[Lru; 3]>::default(),
            promoter: Promoter::in_kernel(fast, slow),
            roles: BTreeMap::new(),
            arriving: 0,
            pooled: 0,
            prefetched: 0,
            started: false,
        })
    }
}

impl Policy for DemandPaging {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::HintFaults, Capability::AccessedBits, Capability::Migration])
            .and_signals(&[SignalKind::Allocated, SignalKind::Unmapped])
    }

    fn on(&mut self, _: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        let (mut touched, mut trapped) = (Vec::new(), Vec::new());
        if !std::mem::replace(&mut self.started, true) {
            self.find_pages(&mut trapped, memory);
        }
        // A failed move does not wake the daemon: it would ask again at once, and for ever where none can move.
        let mut wakes = false;
        for signal in signals {
            self.promoter.handle(signal, memory);
            match *signal {
                Signal::Allocated { page, size, tier, .. } => {
                    wakes |= tier == self.fast;
                    self.place_of(page, size, tier, &mut trapped);
                }
                Signal::Unmapped { range } => self.resident.iter_mut().for_each(|list| list.forget(range)),
                Signal::HintFault { page, .. } => touched.push(page),
                Signal::Done { subject: Subject::Page(page), outcome, .. } => {
                    let moved = outcome == Outcome::Done;
                    wakes |= moved;
                    self.ended(page, moved, &mut trapped, memory);
                }
                _ => {}
            }
        }
        wakes |= !touched.is_empty();
        for page in touched {
            self.bring_in(page, &mut trapped, memory);
        }
        if wakes {
            self.fill_pool(memory);
        }
        memory.watch(&trapped, Watch::Hint);
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        self.promoter.report(report);
        report.pages("prefetched", self.prefetched);
    }
}

impl DemandPaging {
    /// Pages that were there before.
    fn find_pages(&mut self, trapped: &mut Vec<PageId>, memory: &mut dyn MemorySystem) {
        memory.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
            self.place_of(view.page, view.size, view.tier, trapped);
            Step::Keep
        });
    }

    /// A page lies in a tier: the hand will come to it, or its next touch is to fault.
    fn place_of(&mut self, page: PageId, size: PageSize, tier: TierId, trapped: &mut Vec<PageId>) {
        if tier == self.fast {
            self.resident[size as usize].touch(page);
        } else if tier == self.slow {
            trapped.push(page);
        }
    }

    /// A page that was to move did, or did not.
    fn ended(&mut self, page: PageId, moved: bool, trapped: &mut Vec<PageId>, memory: &mut dyn MemorySystem) {
        let (role, pages) = match self.roles.remove(&page) {
            Some(role) => role,
            None => return,
        };
        match role {
            Role::Arriving => self.arriving -= pages,
            Role::Pool => self.pooled -= pages,
            // The promoter has ordered the other page into the room.
            Role::Victim(next) if moved => {
                self.arriving += pages;
                self.roles.insert(next, (Role::Arriving, pages));
            }
            // The other page stays: its next touch asks again.
            Role::Victim(next) => {
                self.roles.remove(&next);
                trapped.push(next);
            }
            Role::Waiting => {}
        }
        if let Some(view) = memory.page(page) {
            self.place_of(view.page, view.size, view.tier, trapped);
        }
    }

    /// A page of the slow tier was touched: it comes, and its neighbours with it.
    fn bring_in(&mut self, page: PageId, trapped: &mut Vec<PageId>, memory: &mut dyn MemorySystem) {
        let Some(first) = memory.page(page) else { return };
        let pages = first.base_pages();
        for number in 0..=u64::from(self.parameters.prefetch) {
            let next = first.page.plus(number * pages);
            let there = memory.page(next).filter(|view| view.page == next && view.size == first.size);
            let Some(view) = there.filter(|view| view.tier == self.slow && !view.in_flight) else { continue };
            if self.roles.contains_key(&next) {
                continue;
            }
            if number > 0 {
                // The trap of the page would stay with it.
                memory.watch(&[next], Watch::Off);
            }
            if memory.topology().free_pages(self.fast) >= self.arriving + pages {
                self.arriving += pages;
                self.roles.insert(next, (Role::Arriving, pages));
                self.promoter.promote(next, memory);
            } else if let Some(victim) = self.victim(view.size, memory) {
                self.roles.insert(victim, (Role::Victim(next), pages));
                self.roles.insert(next, (Role::Waiting, pages));
                self.promoter.replace(victim, next, memory);
            } else {
                trapped.push(next);
                return;
            }
            self.prefetched += if number > 0 { pages } else { 0 };
        }
    }

    /// The daemon: pages go down until as much is free, or on its way, as is to be kept free. It is one thread, and looks
    /// again when it has moved what it found.
    fn fill_pool(&mut self, memory: &mut dyn MemorySystem) {
        if self.pooled > 0 {
            return;
        }
        let wanted = self.parameters.free_pool.0 / PageSize::Base.bytes();
        let free = memory.topology().free_pages(self.fast);
        let mut victims = Vec::new();
        while free + self.pooled < wanted {
            let victim = PageSize::ALL.into_iter().find_map(|size| Some((self.victim(size, memory)?, size)));
            let Some((victim, size)) = victim else { break };
            self.pooled += size.base_pages();
            self.roles.insert(victim, (Role::Pool, size.base_pages()));
            victims.push(victim);
        }
        if !victims.is_empty() {
            self.promoter.demote_in_turn(&victims, memory);
        }
    }

    /// A page of this size that is to go, taken out of the list.
    fn victim(&mut self, size: PageSize, memory: &mut dyn MemorySystem) -> Option<PageId> {
        // Two turns of the hand: the first may clear the bits of all.
        for _ in 0..2 * self.resident[size as usize].len() {
            let page = self.oldest(size, memory)?;
            let spared = self.parameters.victim == Victim::Clock && page.accessed;
            if spared {
                let (mut hand, scope) = (ScanHand::default(), [page.page]);
                memory.scan(Scope::Pages(&scope), &mut hand, Clear::ACCESSED, &mut |_| Step::Clear);
            }
            if !spared && !page.in_flight {
                return Some(page.page);
            }
            self.resident[size as usize].touch(page.page);
        }
        None
    }

    /// The oldest page of this size that lies in the fast tier, taken out of the list.
    fn oldest(&mut self, size: PageSize, memory: &mut dyn MemorySystem) -> Option<PageView> {
        loop {
            let page = self.resident[size as usize].oldest().next()?;
            self.resident[size as usize].remove(page);
            let Some(view) = memory.page(page).filter(|view| view.tier == self.fast) else { continue };
            match view.size.cmp(&size) {
                Ordering::Equal => return Some(view),
                // Somebody joined it with others, or split it.
                Ordering::Greater => self.resident[view.size as usize].touch(view.page),
                Ordering::Less => {
                    let parts = (0..size.base_pages()).step_by(view.base_pages() as usize);
                    parts.for_each(|part| self.resident[view.size as usize].touch(page.plus(part)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::millis;
    use crate::test_support::{Open, access, four_fast_pages, in_fast};
    use crate::{Driver, InMemory, Outcome, PageId};
    use terrace_model::Bytes;

    /// A fast tier of four pages, 0..4; 4..16 in the slow one.
    fn open(parameters: &str) -> Driver {
        let mut driver = Driver::open("demand-paging", parameters, four_fast_pages()).unwrap();
        driver.touch_all(0, 0..16, false);
        driver.advance(millis(1));
        driver
    }

    fn fast(driver: &Driver) -> Vec<u64> {
        (0..16).filter(|vpn| in_fast(driver, *vpn)).collect()
    }

    #[test]
    fn a_touch_brings_a_page_in_and_the_first_goes() {
        let mut driver = open("victim = \"fifo\"");
        assert!(access(&mut driver, 9, 1, false));
        assert_eq!(fast(&driver), [1, 2, 3, 9]);
        // Page 1 came before page 2, and is used all the time.
        access(&mut driver, 1, 5, false);
        assert!(access(&mut driver, 12, 1, true));
        assert_eq!(fast(&driver), [2, 3, 9, 12]);
        // What went down is trapped again.
        assert!(access(&mut driver, 0, 1, false));
    }

    #[test]
    fn a_clock_spares_what_was_used() {
        let mut driver = open("");
        // All four were touched: the first turn clears that, and the hand comes to page 0 again.
        assert!(access(&mut driver, 9, 1, false));
        assert_eq!(fast(&driver), [1, 2, 3, 9]);
        access(&mut driver, 1, 1, false);
        assert!(access(&mut driver, 12, 1, false));
        assert_eq!(fast(&driver), [1, 3, 9, 12]);
    }

    #[test]
    fn a_pool_is_kept_free() {
        let mut driver = open("free_pool = \"8 KiB\"");
        let free = |driver: &Driver| 4 - fast(driver).len();
        assert_eq!(free(&driver), 2);
        for vpn in [8, 9, 10] {
            assert!(access(&mut driver, vpn, 1, false));
            assert_eq!(free(&driver), 2, "after {vpn}");
        }
    }

    #[test]
    fn where_nothing_can_move_the_next_touch_asks_again() {
        for parameters in ["", "victim = \"fifo\"", "free_pool = \"8 KiB\""] {
            let mut driver = Driver::open("demand-paging", parameters, four_fast_pages()).unwrap();
            driver.world.fail_often(1, Outcome::Busy, 1);
            driver.touch_all(0, 0..16, false);
            driver.advance(millis(1));
            assert!(!access(&mut driver, 9, 1, false), "{parameters}");
            assert_eq!(fast(&driver), [0, 1, 2, 3], "{parameters}");
            let calls = driver.calls();
            driver.advance(millis(100));
            assert_eq!(driver.calls(), calls, "it rests: {parameters}");
            driver.world.fail_often(0, Outcome::Busy, 1);
            assert!(access(&mut driver, 9, 1, false), "{parameters}");
        }
    }

    #[test]
    fn a_page_makes_room_for_one_of_its_size() {
        let mut world = InMemory::new(&[("dram", Bytes::mib(4)), ("pcm", Bytes::mib(16))]).with_huge_pages();
        world.map_anonymous(0, 0, 1024);
        world.map_anonymous(0, 1025, 600);
        let mut driver = Driver::open("demand-paging", "", world).unwrap();
        // 512 base pages and a huge page fill the fast tier; the slow one has a huge page and 88 base pages.
        for vpn in (1025..1537).chain([0, 512]).chain(1537..1625) {
            driver.touch(PageId::new(0, vpn), false);
        }
        driver.advance(millis(1));
        let there = |driver: &Driver, vpns: &[u64]| vpns.iter().all(|vpn| in_fast(driver, *vpn));
        assert!(there(&driver, &[0, 1025, 1536]) && !in_fast(&driver, 512) && !in_fast(&driver, 1537));
        assert!(access(&mut driver, 512, 1, false));
        assert!(there(&driver, &[1025, 1536]) && !in_fast(&driver, 0));
        assert!(access(&mut driver, 1537, 1, false));
        assert!(there(&driver, &[512, 1026]) && !in_fast(&driver, 1025));
    }

    #[test]
    fn pages_that_were_there_before_are_found() {
        let mut before = Driver::open("first-touch", "", four_fast_pages()).unwrap();
        before.touch_all(0, 0..16, false);
        let mut driver = Driver::open("demand-paging", "victim = \"fifo\"", before.world).unwrap();
        assert!(access(&mut driver, 9, 1, false));
        assert_eq!(fast(&driver), [1, 2, 3, 9]);
    }

    #[test]
    fn neighbours_come_along() {
        let mut driver = open("prefetch = 2");
        assert!(access(&mut driver, 8, 1, false));
        assert_eq!(fast(&driver).iter().filter(|vpn| (8..=10).contains(*vpn)).count(), 3);
        assert_eq!(driver.report().stats.integer("prefetched"), 2);
        // Accesses to the neighbours are trapped no more.
        let faults = driver.report().stats.integer("promoted");
        driver.touch(PageId::new(0, 9), false);
        driver.advance(millis(1));
        assert_eq!(driver.report().stats.integer("promoted"), faults);
    }
}
