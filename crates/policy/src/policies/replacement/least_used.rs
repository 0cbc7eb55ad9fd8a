//! Algorithms that count in how many periods a page was used, and take the page with the smallest counter first.

use super::{AlgorithmSetup, Arrival, Replace, by_rank, ranked};
use crate::support::PageMap;
use crate::{Clear, MemorySystem, PageId, PageRange, PageView, Refusal};
use std::fmt::Debug;
use std::marker::PhantomData;
use terrace_model::TierId;

/// What a period makes of a counter.
pub trait Count: Debug + Send {
    /// The counter after a period in which the page was accessed or not.
    fn next(counter: u32, accessed: bool) -> u32;
}

/// The pages' counters.
#[derive(Debug)]
pub struct LeastUsed<C> {
    fast: TierId,
    counters: PageMap<u32>,
    count: PhantomData<C>,
}

impl<C: Count> LeastUsed<C> {
    /// All counters at zero.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { fast, .. }: AlgorithmSetup<'_>) -> Result<LeastUsed<C>, Refusal> {
        Ok(LeastUsed { fast, counters: PageMap::default(), count: PhantomData })
    }
}

impl<C: Count> Replace for LeastUsed<C> {
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
            *counter = C::next(*counter, view.accessed);
            u64::from(*counter)
        });
        by_rank(pages, |_| 0)
    }
}
