//! Memory that large pages hold and the program never stored to is taken back when memory runs short.
//!
//! HawkEye (Panwar et al., ASPLOS 2019): above a high mark of use, large pages are scanned for base pages that
//! hold only zeros; a page with many of them is split and the zeros are given back, until use falls below a low mark.
//! Trident recovers its bloat the same way. The marks, the pause between two passes and the order by address are
//! those of HawkEye's released module. A 1 GiB page is split to 2 MiB first.

use super::{FaultSizes, LargePages, Pending};
use crate::spans::seconds;
use crate::{MemorySystem, Moment, Outcome, PageId, PageRange, Report, Resize, Signal, Subject};
use terrace_model::{PageSize, Time};

/// What is looked at per wake.
const PER_WAKE: u64 = PageSize::Giant.base_pages();
/// Between two wakes of a pass.
const WAKE: Time = seconds(1);

/// When and how much is taken back.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// Begin below this share of free memory.
    pub below: f64,
    /// Go on up to this one.
    pub until: f64,
    /// Split pages of which at least this share is zeros.
    pub zeros: f64,
    /// Sleep from the end of a pass over all large pages to the next.
    pub sleep: Time,
}

/// Takes back zeros.
#[derive(Clone, Debug)]
pub struct BloatRecovery {
    marks: Marks,
    wakes: Moment,
    /// Between two marks, on the way up.
    active: bool,
    hand: PageId,
    pending: Pending,
    /// Zeros found in the pages under way.
    found: Vec<(PageId, PageSize, u64)>,
    recovered: u64,
    split: u64,
}

impl BloatRecovery {
    /// Watches memory by these marks.
    pub fn new(marks: Marks) -> BloatRecovery {
        BloatRecovery {
            marks,
            wakes: Moment::START.plus(WAKE),
            active: false,
            hand: PageId::default(),
            pending: Pending::default(),
            found: Vec::new(),
            recovered: 0,
            split: 0,
        }
    }

    /// When it wants to be called.
    pub fn next(&self) -> Moment {
        self.wakes
    }

    /// Memory is short: whoever makes large pages had better wait.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Goes on if its time has come and the last pages are done.
    pub fn tick(&mut self, now: Moment, pages: &LargePages, memory: &mut dyn MemorySystem) {
        if self.wakes > now {
            return;
        }
        self.wakes = now.plus(WAKE);
        if !self.pending.is_empty() {
            return;
        }
        let tiers = &memory.topology().tiers;
        let sum = |of: fn(&crate::Tier) -> u64| tiers.iter().map(of).sum::<u64>() as f64;
        let capacity = sum(|tier| tier.capacity.0).max(1.0);
        let free = sum(|tier| tier.free().0) / capacity;
        if !self.active && free < self.marks.below {
            (self.active, self.hand) = (true, PageId::default());
        }
        self.active &= free < self.marks.until;
        if !self.active {
            return;
        }
        let wanted = ((self.marks.until - free) * capacity / PageSize::Base.bytes() as f64).ceil() as u64;
        let (mut left, mut taken) = (PER_WAKE, 0);
        let (mut drop, mut split) = (Vec::new(), Vec::new());
        while left > 0 && taken < wanted {
            let Some((page, size)) = pages.next(self.hand) else {
                // No page is left to take: what happens in the meantime is seen in the next pass.
                self.active = false;
                self.wakes = now.plus(self.marks.sleep);
                break;
            };
            left = left.saturating_sub(size.base_pages());
            let zeros = memory.zero_pages(page).unwrap_or(0);
            let worth = zeros as f64 >= self.marks.zeros * size.base_pages() as f64 && zeros > 0;
            if size == PageSize::Giant && zeros > 0 {
                split.push(Resize { page, to: PageSize::Huge });
                self.hand = page.plus(1);
            } else {
                self.hand = page.plus(size.base_pages());
                if worth {
                    self.found.push((page, size, zeros));
                    taken += zeros;
                    drop.push(page);
                }
            }
        }
        let ticket = memory.drop_zeros(&drop);
        self.pending.ordered(ticket, drop.len());
        let ticket = memory.resize(&split);
        self.pending.ordered(ticket, split.len());
        if let Some(first) = split.first() {
            // The pieces of the split pages come next.
            self.hand = self.hand.min(first.page);
        }
    }

    /// Takes a signal; returns whether it was about one of its pages, and keeps the books.
    pub fn handle(&mut self, signal: &Signal, pages: &mut LargePages, faults: &mut FaultSizes) -> bool {
        let Some((_, subject, outcome)) = self.pending.handle(signal) else { return false };
        let Subject::Page(page) = subject else { return true };
        let dropped = self.found.iter().position(|(found, ..)| *found == page);
        match dropped.map(|at| self.found.swap_remove(at)) {
            Some((_, size, zeros)) if outcome == Outcome::Done => {
                self.recovered += zeros;
                self.split += 1;
                pages.forget(PageRange::of(page, size));
                faults.split(page, size);
            }
            Some(_) => {}
            None if outcome == Outcome::Done => {
                self.split += 1;
                pages.forget(PageRange::of(page, PageSize::Giant));
                let step = PageSize::Huge.base_pages();
                for part in (0..PageSize::Giant.base_pages()).step_by(step as usize) {
                    pages.appeared(page.plus(part), PageSize::Huge);
                }
                faults.split(page, PageSize::Giant);
            }
            // The page stays whole: go past it.
            None => self.hand = self.hand.max(page.plus(1)),
        }
        true
    }

    /// Adds what was taken back.
    pub fn report(&self, report: &mut Report) {
        report.pages("recovered", self.recovered);
        report.count("recovery_splits", self.split);
    }
}
