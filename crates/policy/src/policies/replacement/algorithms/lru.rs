//! The page that was used longest ago goes first.
//!
//! **Idea.** What was not used for longest will not be used for longest.
//!
//! **Source.** A textbook algorithm; M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3.
//!
//! **Left open by the source.** *What a use is*: an access that reached memory. Every one is needed, where the others
//! need a bit per page.

use super::super::{AlgorithmSetup, Arrival, Replace, longest_ago, ranked};
use crate::support::Lru as Order;
use crate::{Capability, CapabilitySet, Clear, MemorySystem, PageId, PageRange, PageView, Refusal};
use terrace_model::TierId;

/// The algorithm.
#[derive(Debug)]
pub struct Lru {
    fast: TierId,
    order: Order,
}

impl Lru {
    /// Knows no page yet.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { fast, .. }: AlgorithmSetup<'_>) -> Result<Lru, Refusal> {
        Ok(Lru { fast, order: Order::default() })
    }
}

impl Replace for Lru {
    fn capabilities(&self) -> CapabilitySet {
        CapabilitySet::of(&[Capability::ExactAccesses])
    }

    fn arrived(&mut self, page: PageId, tier: TierId, _: Arrival) {
        if tier == self.fast { self.order.touch(page) } else { self.order.remove(page) }
    }

    fn accessed(&mut self, _: u32, view: Option<&PageView>) {
        if let Some(view) = view {
            self.order.touch(view.page);
        }
    }

    fn forget(&mut self, range: PageRange) {
        self.order.forget(range);
    }

    fn victims(&mut self, count: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        ranked(self.fast, Clear::ACCESSED, memory, |_| 0);
        longest_ago(&self.order, self.fast, count, memory)
    }
}
