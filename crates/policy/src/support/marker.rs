//! Marking pages to fault at their next access, a stretch at a time.

use crate::{Clear, MemorySystem, PageView, ScanHand, Scope, Step, Topology, Watch};
use terrace_model::{Bytes, TierId};

/// Goes through all tiers but the fastest, and on from where the last stretch ended.
#[derive(Clone, Debug)]
pub struct Marker {
    /// The slow tiers, and how far the marking of each has come.
    tiers: Vec<(TierId, ScanHand)>,
    /// Index of the tier that the last stretch began with.
    at: usize,
}

impl Marker {
    /// At the beginning.
    pub fn new(topology: &Topology) -> Marker {
        let slow = topology.ids().skip(1);
        Marker { tiers: slow.map(|tier| (tier, ScanHand::default())).collect(), at: 0 }
    }

    /// Marks a stretch of so many bytes, at most everything once. `see` is shown each page of it before that.
    pub fn mark(&mut self, stretch: Bytes, memory: &mut dyn MemorySystem, mut see: impl FnMut(&PageView)) {
        let mut left = stretch.0 >> 12;
        let mut pages = Vec::new();
        let count = self.tiers.len();
        // Tiers take turns to be first, and what one leaves of a stretch goes to the next.
        self.at = (self.at + 1) % count;
        for turn in 0..count {
            let (tier, hand) = &mut self.tiers[(self.at + turn) % count];
            memory.scan(Scope::Tier(*tier), hand, Clear::NOTHING, &mut |view| {
                if left == 0 {
                    return Step::Stop;
                }
                left = left.saturating_sub(view.base_pages());
                see(view);
                if !view.in_flight {
                    pages.push(view.page);
                }
                Step::Keep
            });
            if left == 0 {
                break;
            }
        }
        memory.watch(&pages, Watch::Hint);
    }
}
