//! The page that came first goes first.
//!
//! **Idea.** Pages leave in the order in which they came, however much they are used.
//!
//! **Source.** A textbook algorithm; M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3.
//!
//! **Left open by the source.** *A page that comes back* counts as new.

use super::super::{AlgorithmSetup, Arrival, Replace, longest_ago, ranked};
use crate::support::Lru;
use crate::{Clear, MemorySystem, PageId, PageRange, PageView, Refusal};
use terrace_model::TierId;

/// The algorithm.
#[derive(Debug)]
pub struct Fifo {
    fast: TierId,
    /// Touched at the arrival only, so in the order of arrival.
    order: Lru,
}

impl Fifo {
    /// Knows no page yet.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { fast, .. }: AlgorithmSetup<'_>) -> Result<Fifo, Refusal> {
        Ok(Fifo { fast, order: Lru::default() })
    }
}

impl Replace for Fifo {
    fn arrived(&mut self, page: PageId, tier: TierId, _: Arrival) {
        if tier == self.fast { self.order.touch(page) } else { self.order.remove(page) }
    }

    fn forget(&mut self, range: PageRange) {
        self.order.forget(range);
    }

    fn victims(&mut self, count: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        // The order is known without the bits; they are read as the other algorithms do, so that all pay for it.
        ranked(self.fast, Clear::ACCESSED, memory, |_| 0);
        longest_ago(&self.order, self.fast, count, memory)
    }
}
