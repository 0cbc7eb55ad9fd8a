//! The scanning daemon of Linux that joins base pages, extended to 1 GiB as Trident extends it (§5.1.3, Figure 5).
//!
//! It goes through the address spaces, a number of base pages per wake. A range that is mapped with smaller pages and
//! has few enough missing becomes a candidate, the largest size first; where 1 GiB fails, the 2 MiB pieces of that range
//! follow. A failed allocation of 2 MiB ends the wake, and the sleep after it is another one.
//!
//! As Linux 4.3 and later: a range needs a writable page and one that was accessed, where the world shows it.

use super::{Candidate, Collapsed, Collapser, Compactor, takes_large_pages};
use crate::{
    Area, Capability, Clear, MemorySystem, Moment, Outcome, PageId, PageRange, Report, ScanHand, Scope,
    Signal, Step,
};
use std::collections::VecDeque;
use terrace_model::{PageSize, TierId, Time};

/// How it scans.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Sizes to make, the largest first.
    pub sizes: Vec<PageSize>,
    /// Base pages per wake.
    pub pages_to_scan: u64,
    /// Sleep between two wakes.
    pub scan_sleep: Time,
    /// Sleep after a failed allocation.
    pub alloc_sleep: Time,
    /// Most base pages of a 2 MiB range that may be missing.
    pub max_none: u64,
    /// Most base pages of a 1 GiB range that may be missing.
    pub max_none_giant: u64,
    /// Most of a processor that it may take, 0 to 1: after a wake that took some time it sleeps at least that time divided
    /// by this share. 1: it sleeps as the other values say.
    pub max_cpu: f64,
}

/// The daemon.
#[derive(Clone, Debug)]
pub struct Khugepaged {
    pace: Pace,
    collapser: Collapser,
    /// When it wakes; none while it is awake.
    wakes: Option<Moment>,
    /// When this wake began.
    woke: Moment,
    /// What is left of this wake's pages.
    left: u64,
    hand: PageId,
    /// Up to here only pieces of 2 MiB are tried.
    pieces_until: PageId,
    /// The areas as they were when it woke.
    areas: Vec<Area>,
    /// Ranges of 2 MiB that are wanted before all others.
    requests: VecDeque<PageId>,
    /// After a failed allocation: when the next one is due.
    no_block_until: Option<Moment>,
    /// The candidate under work is one of the requests.
    requested: bool,
    laps: u64,
}

/// What a look at a range found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    present: u64,
    largest: Option<PageSize>,
    accessed: bool,
    writable: bool,
    in_flight: bool,
    /// Base pages in the tier with most so far; ranges over more than two tiers are rare.
    tiers: [(TierId, u64); 4],
}

impl Found {
    fn tier(&self) -> TierId {
        let most = self.tiers.iter().max_by_key(|(tier, pages)| (*pages, std::cmp::Reverse(tier.0)));
        most.map_or(TierId(0), |(tier, _)| *tier)
    }
}

impl Khugepaged {
    /// A daemon that first wakes after a scan's sleep.
    pub fn new(pace: Pace, compactor: Compactor) -> Khugepaged {
        Khugepaged {
            wakes: Some(Moment::START.plus(pace.scan_sleep)),
            woke: Moment::START,
            pace,
            collapser: Collapser::new(compactor),
            left: 0,
            hand: PageId::default(),
            pieces_until: PageId::default(),
            areas: Vec::new(),
            requests: VecDeque::new(),
            no_block_until: None,
            requested: false,
            laps: 0,
        }
    }

    /// When it wants to be called; none while it waits for an answer.
    pub fn next(&self) -> Option<Moment> {
        self.wakes.filter(|_| !self.collapser.is_busy())
    }

    /// Passes over all memory that were completed.
    pub fn laps(&self) -> u64 {
        self.laps
    }

    /// The daemon's collapses.
    pub fn collapser(&self) -> &Collapser {
        &self.collapser
    }

    /// Changes how many base pages of a 2 MiB range may be missing.
    pub fn allow_missing(&mut self, max_none: u64) {
        self.pace.max_none = max_none;
    }

    /// Asks for a range of 2 MiB, at once and out of turn.
    pub fn request(&mut self, page: PageId, now: Moment, memory: &mut dyn MemorySystem) {
        self.requests.push_back(page);
        if !self.collapser.is_busy() {
            self.serve(now, memory);
        }
    }

    /// Begins with the next request that is worth a page; returns whether there was one.
    fn serve(&mut self, now: Moment, memory: &mut dyn MemorySystem) -> bool {
        while let Some(page) = self.requests.pop_front() {
            let fits = memory.area(page).is_some_and(|area| {
                takes_large_pages(&area) && area.range.covers(PageRange::of(page, PageSize::Huge))
            });
            // After a failed allocation requests wait like all others: the scan finds them.
            let waits = self.no_block_until.is_some_and(|until| until > now);
            if fits
                && !waits
                && let Some(candidate) = self.look(page, PageSize::Huge, memory)
            {
                self.requested = true;
                self.collapser.begin(candidate, memory);
                return true;
            }
        }
        false
    }

    /// Wakes it if its time has come.
    pub fn tick(&mut self, now: Moment, memory: &mut dyn MemorySystem) {
        if self.wakes.is_none_or(|wakes| wakes > now) || self.collapser.is_busy() {
            return;
        }
        self.wakes = None;
        self.woke = now;
        self.left = self.pace.pages_to_scan;
        self.areas.clear();
        let areas = &mut self.areas;
        memory.areas(None, &mut |area| {
            let room = area.range.end().saturating_sub(start_of(area).vpn);
            if takes_large_pages(area) && room >= PageSize::Huge.base_pages() {
                areas.push(*area);
            }
        });
        self.areas.sort_by_key(|area| area.range.first);
        self.go_on(now, memory);
    }

    /// Takes a signal. Returns what became of a candidate, after which it goes on by itself.
    pub fn handle(
        &mut self,
        signal: &Signal,
        now: Moment,
        memory: &mut dyn MemorySystem,
    ) -> Option<Collapsed> {
        let collapsed = self.collapser.handle(signal, now, memory)?;
        let Candidate { page, size, .. } = collapsed.candidate;
        let end = page.plus(size.base_pages());
        if std::mem::take(&mut self.requested) {
            if collapsed.outcome == Outcome::NoSpace {
                self.no_block_until = Some(now.plus(self.pace.alloc_sleep));
            }
            if !self.serve(now, memory) && self.wakes.is_none() {
                self.go_on(now, memory);
            }
            return Some(collapsed);
        }
        match collapsed.outcome {
            Outcome::Done => self.hand = end,
            _ if size == PageSize::Giant && self.pace.sizes.contains(&PageSize::Huge) => {
                (self.hand, self.pieces_until) = (page, end);
            }
            Outcome::NoSpace => {
                self.hand = end;
                self.sleep(self.pace.alloc_sleep, now);
                self.no_block_until = self.wakes;
                return Some(collapsed);
            }
            _ => self.hand = end,
        }
        self.go_on(now, memory);
        Some(collapsed)
    }

    /// Scans until there is a candidate or the wake is over.
    fn go_on(&mut self, now: Moment, memory: &mut dyn MemorySystem) {
        if self.serve(now, memory) {
            return;
        }
        while self.left > 0 {
            let Some((page, size)) = self.next_range() else {
                self.hand = PageId::default();
                self.pieces_until = PageId::default();
                self.laps += 1;
                break;
            };
            self.left = self.left.saturating_sub(size.base_pages());
            self.hand = page;
            match self.look(page, size, memory) {
                Some(candidate) => {
                    self.collapser.begin(candidate, memory);
                    return;
                }
                None if size == PageSize::Giant && self.pace.sizes.contains(&PageSize::Huge) => {
                    let whole = memory.page(page).is_some_and(|view| view.size == PageSize::Giant);
                    let end = page.plus(size.base_pages());
                    *(if whole { &mut self.hand } else { &mut self.pieces_until }) = end;
                }
                None => self.hand = page.plus(size.base_pages()),
            }
        }
        self.sleep(self.pace.scan_sleep, now);
    }

    /// The wake is over.
    fn sleep(&mut self, span: Time, now: Moment) {
        let busy = now.since(self.woke);
        let by_share = Time((busy.0 as f64 / self.pace.max_cpu) as u64);
        let span = if self.pace.max_cpu < 1.0 { span.max(by_share) } else { span };
        self.wakes = Some(now.plus(span));
    }

    /// The next range that could be one page, from the hand on, and its size.
    fn next_range(&self) -> Option<(PageId, PageSize)> {
        let after = self.areas.partition_point(|area| {
            let end = PageId { space: area.range.first.space, vpn: area.range.end() };
            end <= self.hand
        });
        for area in &self.areas[after..] {
            let mut at = start_of(area);
            if at.space == self.hand.space {
                at.vpn = at.vpn.max(self.hand.vpn.next_multiple_of(PageSize::Huge.base_pages()));
            }
            while at.vpn + PageSize::Huge.base_pages() <= area.range.end() {
                let giant = self.pace.sizes.contains(&PageSize::Giant) && at >= self.pieces_until;
                if giant && at.is_aligned(PageSize::Giant) && area.largest_page(at) == PageSize::Giant {
                    return Some((at, PageSize::Giant));
                }
                if self.pace.sizes.contains(&PageSize::Huge) {
                    return Some((at, PageSize::Huge));
                }
                at.vpn = (at.vpn + 1).next_multiple_of(PageSize::Giant.base_pages());
            }
        }
        None
    }

    /// Whether the range is worth a page of `size`.
    fn look(&self, page: PageId, size: PageSize, memory: &mut dyn MemorySystem) -> Option<Candidate> {
        let mut found = Found::default();
        let range = PageRange::of(page, size);
        memory.scan(Scope::Range(range), &mut ScanHand { next: page }, Clear::NOTHING, &mut |view| {
            found.present += view.base_pages();
            found.largest = found.largest.max(Some(view.size));
            found.accessed |= view.accessed;
            found.writable |= view.writable;
            found.in_flight |= view.in_flight;
            let of = |slot: &&mut (TierId, u64)| slot.1 == 0 || slot.0 == view.tier;
            if let Some(slot) = found.tiers.iter_mut().find(of) {
                *slot = (view.tier, slot.1 + view.base_pages());
            }
            if view.size >= size { Step::Stop } else { Step::Keep }
        });
        let most_missing =
            if size == PageSize::Giant { self.pace.max_none_giant } else { self.pace.max_none };
        let accessed = found.accessed || !memory.capabilities().has(Capability::AccessedBits);
        let worth = found.present > 0
            && found.largest < Some(size)
            && size.base_pages().saturating_sub(found.present) <= most_missing
            && accessed
            && found.writable
            && !found.in_flight;
        worth.then(|| Candidate { page, size, tier: found.tier() })
    }

    /// Adds what it did.
    pub fn report(&self, report: &mut Report) {
        self.collapser.report(report);
        report.count("scan_laps", self.laps);
    }
}

/// The first place in an area where a 2 MiB page could begin.
fn start_of(area: &Area) -> PageId {
    let first = area.range.first;
    PageId { vpn: first.vpn.next_multiple_of(PageSize::Huge.base_pages()), ..first }
}
