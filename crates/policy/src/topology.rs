//! The tiers that a policy places pages in, and what flows through them.

use crate::Refusal;
use terrace_model::{Bytes, BytesPerSec, TierId, Time};

/// One memory tier.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// Name, as designs and reports show it.
    pub name: String,
    /// What managed pages may occupy.
    pub capacity: Bytes,
    /// What is occupied now.
    pub used: Bytes,
    /// Idle latency of a read.
    pub read_latency: Time,
    /// Idle latency of a write.
    pub write_latency: Time,
    /// Peak bandwidth of reads.
    pub read_bandwidth: BytesPerSec,
    /// Peak bandwidth of writes.
    pub write_bandwidth: BytesPerSec,
}

impl Tier {
    /// What is not occupied.
    pub const fn free(&self) -> Bytes {
        Bytes(self.capacity.0.saturating_sub(self.used.0))
    }

    /// Occupied share, 0 to 1; a tier without capacity is full.
    pub fn usage(&self) -> f64 {
        if self.capacity.0 == 0 { 1.0 } else { self.used.0 as f64 / self.capacity.0 as f64 }
    }
}

/// The tiers of a machine, fastest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// The tiers; a [`TierId`] is a position here.
    pub tiers: Vec<Tier>,
}

impl Topology {
    /// The tier of this number.
    pub fn tier(&self, tier: TierId) -> &Tier {
        &self.tiers[tier.index()]
    }

    /// All tier numbers, fastest first.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = TierId> + Clone + use<> {
        (0..self.tiers.len()).map(|at| TierId(at as u8))
    }

    /// The tier called `name`.
    pub fn find(&self, name: &str) -> Option<TierId> {
        self.ids().find(|id| self.tier(*id).name == name)
    }

    /// The two fastest tiers, for policies that manage a fast and a slow one and leave pages in further tiers alone.
    ///
    /// # Errors
    /// A machine with a single tier: there is nothing to decide.
    pub fn fast_and_slow(&self) -> Result<(TierId, TierId), Refusal> {
        match self.tiers.len() {
            0 | 1 => Err(Refusal::Machine("it has one memory tier; a tiering policy needs two".to_owned())),
            _ => Ok((TierId(0), TierId(1))),
        }
    }

    /// Base pages that are free in `tier`.
    pub fn free_pages(&self, tier: TierId) -> u64 {
        self.tier(tier).free().0 >> 12
    }
}

/// Who causes traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Initiator {
    /// Loads and stores of the program.
    Demand,
    /// Page walks.
    Walk,
    /// Copies of pages by migration, exchange and collapse.
    Copy,
    /// Zeroing of fresh pages.
    Zero,
    /// Hardware prefetchers.
    Prefetch,
    /// Dirty lines that caches give back.
    Writeback,
}

impl Initiator {
    /// How many there are.
    pub const COUNT: usize = 6;
    /// All of them.
    pub const ALL: [Initiator; Initiator::COUNT] = [
        Initiator::Demand,
        Initiator::Walk,
        Initiator::Copy,
        Initiator::Zero,
        Initiator::Prefetch,
        Initiator::Writeback,
    ];
}

/// What went through a tier since the start. Only ever grows; a policy keeps the last value it saw and subtracts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierTraffic {
    /// Bytes read, by initiator.
    pub read: [u64; Initiator::COUNT],
    /// Bytes written, by initiator.
    pub written: [u64; Initiator::COUNT],
    /// Reads that the tier answered, whoever asked. 0 in worlds without `loaded-latency`.
    pub reads: u64,
    /// The sum of the times that those reads took, queueing included: occupancy summed over time. In nanoseconds.
    pub read_nanos: u64,
}

impl TierTraffic {
    /// Bytes read by all.
    pub fn bytes_read(&self) -> u64 {
        self.read.iter().sum()
    }

    /// Bytes written by all.
    pub fn bytes_written(&self) -> u64 {
        self.written.iter().sum()
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &TierTraffic) -> TierTraffic {
        let minus = |now: &[u64; Initiator::COUNT], before: &[u64; Initiator::COUNT]| {
            std::array::from_fn(|at| now[at].saturating_sub(before[at]))
        };
        TierTraffic {
            read: minus(&self.read, &earlier.read),
            written: minus(&self.written, &earlier.written),
            reads: self.reads.saturating_sub(earlier.reads),
            read_nanos: self.read_nanos.saturating_sub(earlier.read_nanos),
        }
    }

    /// Mean time of a read, by Little's law; none where nothing was read.
    pub fn mean_read_latency(&self) -> Option<Time> {
        (self.reads > 0).then(|| Time::from_nanos_f64(self.read_nanos as f64 / self.reads as f64))
    }

    /// Without what migrations copied.
    pub fn without_copies(mut self) -> TierTraffic {
        self.read[Initiator::Copy as usize] = 0;
        self.written[Initiator::Copy as usize] = 0;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_subtracts_and_leaves_out_copies() {
        let mut before = TierTraffic::default();
        before.written[Initiator::Writeback as usize] = 10;
        let mut after = before;
        after.written[Initiator::Writeback as usize] = 74;
        after.written[Initiator::Copy as usize] = 4096;
        (after.reads, after.read_nanos) = (4, 1000);
        let since = after.since(&before);
        assert_eq!(since.bytes_written(), 64 + 4096);
        assert_eq!(since.without_copies().bytes_written(), 64);
        assert_eq!(since.mean_read_latency(), Some(Time::from_nanos(250)));
        assert_eq!(before.mean_read_latency(), None);
    }
}
