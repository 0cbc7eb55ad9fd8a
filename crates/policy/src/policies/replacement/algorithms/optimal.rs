//! The page that will not be used for longest goes first: a yardstick that knows the future.
//!
//! **Idea.** A first pass over the same input tells when each page is used next. No algorithm misses less.
//!
//! **Source.** L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal
//! 5(2), 1966.
//!
//! **Left open by the source.** *What the future is*: the order in which accesses reached memory in the first pass. *A
//! page that would be the first to go* is kept out. *The time of a choice*: the choice is optimal if a round follows every
//! access; with many accesses between two rounds the algorithm knows no better than the others what happens within one,
//! and may lose to them.

use super::super::{AlgorithmSetup, Arrival, Replace, by_rank, ranked};
use crate::support::PageMap;
use crate::{
    AccessOrder, Capability, CapabilitySet, Clear, MemorySystem, PageId, PageRange, PageView, Refusal,
};
use std::sync::Arc;
use terrace_model::TierId;

/// The next use of a page that is not used again.
const NEVER: u64 = u64::MAX;

/// The algorithm.
#[derive(Debug)]
pub struct Optimal {
    fast: TierId,
    /// The order of the first pass, and how far this one is.
    future: Arc<AccessOrder>,
    accesses: u64,
    /// Number of each page's last use, 0 for none: of pages with equal futures the one that was used longest ago goes first.
    last_use: PageMap<u64>,
    uses: u64,
}

impl Optimal {
    /// At the start of the pass.
    ///
    /// # Errors
    /// There was no first pass.
    pub fn new(AlgorithmSetup { setup, fast }: AlgorithmSetup<'_>) -> Result<Optimal, Refusal> {
        let future = Arc::clone(&setup.profile.ok_or(Refusal::NoProfile)?.order);
        Ok(Optimal { fast, future, accesses: 0, last_use: PageMap::default(), uses: 0 })
    }

    /// The number of the access at which the page, or any part of it, is used next.
    fn next_use(&self, view: &PageView) -> u64 {
        let parts = (0..view.base_pages()).map(|at| view.page.plus(at));
        parts.filter_map(|page| self.future.next_use(page, self.accesses)).min().unwrap_or(NEVER)
    }
}

impl Replace for Optimal {
    fn capabilities(&self) -> CapabilitySet {
        CapabilitySet::of(&[Capability::ExactAccesses])
    }

    fn first_pass(&self) -> bool {
        true
    }

    fn arrived(&mut self, page: PageId, _: TierId, _: Arrival) {
        *self.last_use.entry(page) = 0;
    }

    fn accessed(&mut self, count: u32, view: Option<&PageView>) {
        self.accesses += u64::from(count);
        if let Some(view) = view {
            self.uses += 1;
            *self.last_use.entry(view.page) = self.uses;
        }
    }

    fn forget(&mut self, range: PageRange) {
        self.last_use.forget(range);
    }

    fn order_wanted(&self, wanted: &mut Vec<PageView>) {
        wanted.retain(|view| self.next_use(view) != NEVER);
        wanted.sort_by_key(|view| (self.next_use(view), view.page));
    }

    fn makes_room(&self, victim: &PageView, wanted: &PageView) -> bool {
        self.next_use(victim) > self.next_use(wanted)
    }

    fn victims(&mut self, _: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let pages = ranked(self.fast, Clear::ACCESSED, memory, |view| NEVER - self.next_use(view));
        by_rank(pages, |page| self.last_use.get(page))
    }
}
