//! The page that was used in the fewest periods goes first.
//!
//! **Idea.** A counter per page grows by one in each period in which the page was used. It never shrinks.
//!
//! **Source.** A textbook algorithm, "not frequently used"; M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3.
//!
//! **Left open by the source.** *What is counted*: periods in which the accessed bit was set.

use super::super::{AlgorithmSetup, Arrival, Replace, by_rank, ranked};
use crate::support::PageMap;
use crate::{Clear, MemorySystem, PageId, PageRange, PageView, Refusal};
use terrace_model::TierId;

/// The algorithm.
#[derive(Debug)]
pub struct Nfu {
    fast: TierId,
    counters: PageMap<u32>,
}

impl Nfu {
    /// All counters at zero.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { fast, .. }: AlgorithmSetup<'_>) -> Result<Nfu, Refusal> {
        Ok(Nfu { fast, counters: PageMap::default() })
    }
}

impl Replace for Nfu {
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
            *counter += u32::from(view.accessed);
            u64::from(*counter)
        });
        by_rank(pages, |_| 0)
    }
}
