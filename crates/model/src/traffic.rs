//! Traffic of memory tiers, and who causes it.

use crate::Time;

/// The cause of a transfer between memory and the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Initiator {
    /// Loads and stores of the program that missed the caches.
    Demand,
    /// Page walks.
    Walk,
    /// Dirty lines that leave the last-level cache.
    Writeback,
    /// Hardware prefetchers.
    Prefetch,
    /// Copies of pages by migration, exchange and collapse.
    Copy,
    /// Zeroing of new pages.
    Zero,
    /// The kernel on a system call's behalf. Policies see it as demand of the program.
    Kernel,
}

impl Initiator {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All of them, in the order of the counters.
    pub const ALL: [Initiator; Initiator::COUNT] = [
        Initiator::Demand,
        Initiator::Walk,
        Initiator::Writeback,
        Initiator::Prefetch,
        Initiator::Copy,
        Initiator::Zero,
        Initiator::Kernel,
    ];

    /// The name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Initiator::Demand => "demand",
            Initiator::Walk => "walk",
            Initiator::Writeback => "writeback",
            Initiator::Prefetch => "prefetch",
            Initiator::Copy => "copy",
            Initiator::Zero => "zero",
            Initiator::Kernel => "kernel",
        }
    }
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
