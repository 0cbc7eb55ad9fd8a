//! The page whose last use but one is longest ago goes first.
//!
//! **Idea.** A single use says little: a page that is scanned once is as recent as one that is used all the time. The
//! use before the last tells them apart.
//!
//! **Source.** E. J. O'Neil, P. E. O'Neil and G. Weikum, "The LRU-K page replacement algorithm for database disk
//! buffering", SIGMOD 1993, with K = 2.
//!
//! **Left open by the source.** *A page with one use* counts as older than any with two; of several such pages the one
//! that was used longest ago goes first. *What a use is*: an access that reached memory.

use super::super::{AlgorithmSetup, Arrival, Replace, by_rank, ranked};
use crate::support::PageMap;
use crate::{Capability, CapabilitySet, Clear, MemorySystem, PageId, PageRange, PageView, Refusal};
use terrace_model::TierId;

/// The algorithm.
#[derive(Debug)]
pub struct Lru2 {
    fast: TierId,
    /// Times of the last use and of the one before, 0 for never.
    uses: PageMap<[u64; 2]>,
    /// Uses of pages of the fast tier so far.
    now: u64,
}

impl Lru2 {
    /// Knows no page yet.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { fast, .. }: AlgorithmSetup<'_>) -> Result<Lru2, Refusal> {
        Ok(Lru2 { fast, uses: PageMap::default(), now: 0 })
    }
}

impl Replace for Lru2 {
    fn capabilities(&self) -> CapabilitySet {
        CapabilitySet::of(&[Capability::ExactAccesses])
    }

    fn arrived(&mut self, page: PageId, _: TierId, _: Arrival) {
        *self.uses.entry(page) = [0; 2];
    }

    fn accessed(&mut self, _: u32, view: Option<&PageView>) {
        if let Some(view) = view {
            self.now += 1;
            let uses = self.uses.entry(view.page);
            *uses = [self.now, uses[0]];
        }
    }

    fn forget(&mut self, range: PageRange) {
        self.uses.forget(range);
    }

    fn victims(&mut self, _: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let uses = &mut self.uses;
        let pages = ranked(self.fast, Clear::ACCESSED, memory, |view| uses.entry(view.page)[1]);
        by_rank(pages, |page| self.uses.get(page)[0])
    }
}
