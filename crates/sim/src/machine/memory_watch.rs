//! What tiers and the link in front of them carry over time.

use crate::memory::{Initiator, MemoryRequest, Way};
use crate::observe::Series;
use terrace_model::{LINE_BYTES, NodeId, Time};

/// A tier as the watch knows it.
#[derive(Debug)]
struct Crossing {
    home: NodeId,
    way: Option<Way>,
}

/// Bytes of each tier over time: those of pages that change their place apart. Bytes of the link in both directions.
#[derive(Debug)]
pub struct MemoryWatch {
    tiers: Vec<Crossing>,
    /// Bytes of the link beside those of a line, and in place of it.
    overhead: u64,
    /// Columns: of each tier the program's bytes and those of copies; then the link's there and back.
    pub series: Series,
}

impl MemoryWatch {
    /// A watch that has seen no traffic. `tiers` says where each is at home, and which way requests from elsewhere cross the
    /// link.
    pub fn new(tiers: impl Iterator<Item = (NodeId, Option<Way>)>, overhead: u64) -> MemoryWatch {
        let tiers: Vec<_> = tiers.map(|(home, way)| Crossing { home, way }).collect();
        MemoryWatch { series: Series::new(2 * tiers.len() + 2), tiers, overhead }
    }

    /// The column of what one way of the link carries.
    pub fn column_of(&self, way: Way) -> usize {
        2 * self.tiers.len() + way as usize
    }

    /// A line was read: the device had it at `ready`, who asked at `done`.
    #[inline]
    pub fn read(&mut self, tier: u8, request: MemoryRequest, ready: Time, done: Time) {
        self.carried(tier, request, ready);
        if let Some(way) = self.crosses(tier, request) {
            self.series.add(self.column_of(way), ready, self.overhead);
            self.series.add(self.column_of(way.opposite()), done, LINE_BYTES + self.overhead);
        }
    }

    /// A line was written: it was at the device at `arrived`, which took it at `accepted`.
    #[inline]
    pub fn write(&mut self, tier: u8, request: MemoryRequest, arrived: Time, accepted: Time) {
        self.carried(tier, request, accepted);
        if let Some(way) = self.crosses(tier, request) {
            self.series.add(self.column_of(way), arrived, LINE_BYTES + self.overhead);
        }
    }

    fn carried(&mut self, tier: u8, request: MemoryRequest, at: Time) {
        let copied = usize::from(request.by as usize == Initiator::Copy as usize);
        self.series.add(2 * usize::from(tier) + copied, at, LINE_BYTES);
    }

    fn crosses(&self, tier: u8, request: MemoryRequest) -> Option<Way> {
        let tier = &self.tiers[usize::from(tier)];
        tier.way.filter(|_| request.from != tier.home)
    }
}
