//! Pages that come back soon after they left are hot, and a cold page goes first.
//!
//! **Idea.** What counts is the distance between two uses of a page, not the time since the last. Pages that left stay
//! on the circle for a while: one that comes back within that time has a short distance and is hot. A cold page goes
//! first, however recently it was used.
//!
//! **Source.** S. Jiang, F. Chen and X. Zhang, "CLOCK-Pro: An effective improvement of the CLOCK replacement", USENIX ATC
//! 2005.
//!
//! **Left open by the source.** *Pages that are not resident* are those that have gone to the slow tier; a page that was
//! never in the fast one is new. *The room for cold pages* is all the room at first.

use super::super::{AlgorithmSetup, Arrival, Replace};
use crate::support::ClockPro as Circle;
use crate::{Clear, MemorySystem, PageId, PageRange, PageView, Refusal, ScanHand, Scope, Step};
use terrace_model::TierId;

/// The algorithm.
#[derive(Debug)]
pub struct ClockPro {
    fast: TierId,
    circle: Circle,
}

impl ClockPro {
    /// The circle is empty.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { fast, .. }: AlgorithmSetup<'_>) -> Result<ClockPro, Refusal> {
        Ok(ClockPro { fast, circle: Circle::default() })
    }
}

impl Replace for ClockPro {
    fn arrived(&mut self, page: PageId, tier: TierId, how: Arrival) {
        match how {
            _ if tier != self.fast => {}
            Arrival::Allocated => self.circle.allocate(page),
            Arrival::Moved => self.circle.arrive(page),
        }
    }

    fn forget(&mut self, range: PageRange) {
        self.circle.forget(range);
    }

    fn victims(&mut self, count: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let circle = &mut self.circle;
        circle.begin_round();
        let clear = Clear::ACCESSED.flushed(true);
        memory.scan(Scope::Tier(self.fast), &mut ScanHand::default(), clear, &mut |view| {
            circle.present(view.page, view.accessed);
            Step::Clear
        });
        circle.end_round();
        let victims = (0..count).map_while(|_| circle.evict());
        victims.filter_map(|page| memory.page(page)).filter(|view| !view.in_flight).collect()
    }
}
