//! The page that was used least goes first, where the past fades by half each period.
//!
//! **Idea.** A counter per page moves one bit to the right in each period, and a use sets its highest bit.
//!
//! **Source.** A textbook algorithm, aging; M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3.
//!
//! **Left open by the source.** *The direction*: the counter moves to the right; the thesis' "left" is a slip. *What is counted*: periods in
//! which the accessed bit was set.

use super::super::{AlgorithmSetup, Arrival, Replace, by_rank, ranked};
use crate::support::PageMap;
use crate::{Clear, MemorySystem, PageId, PageRange, PageView, Refusal};
use terrace_model::TierId;

/// The algorithm.
#[derive(Debug)]
pub struct Aging {
    fast: TierId,
    counters: PageMap<u32>,
}

impl Aging {
    /// All counters at zero.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { fast, .. }: AlgorithmSetup<'_>) -> Result<Aging, Refusal> {
        Ok(Aging { fast, counters: PageMap::default() })
    }
}

impl Replace for Aging {
    fn arrived(&mut self, page: PageId, _: TierId, _: Arrival) {
        *self.counters.entry(page) = 0;
    }

    fn forget(&mut self, range: PageRange) {
        self.counters.forget(range);
    }

    fn victims(&mut self, _: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let counters = &mut self.counters;
        let pages = ranked(self.fast, Clear::ACCESSED, memory, |view| {
            let counter = counters.entry(view.page);
            *counter = *counter >> 1 | u32::from(view.accessed) << 31;
            u64::from(*counter)
        });
        by_rank(pages, |_| 0)
    }
}
