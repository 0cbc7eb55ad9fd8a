//! What a device counted.

pub use terrace_model::Initiator;
use terrace_model::{Stats, Unit};

/// Counts of events since the start. All transfers are 64-byte lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Lines read, by initiator in the order of [`Initiator::ALL`].
    pub reads: [u64; Initiator::COUNT],
    /// Lines written, by initiator in the order of [`Initiator::ALL`].
    pub writes: [u64; Initiator::COUNT],
    /// Column accesses to an open row. Counted when the access is scheduled; a write waits in its queue before, and is
    /// counted at the end of a run by [`Device::settled`](super::Device::settled).
    pub row_hits: u64,
    /// Column accesses that found their bank closed.
    pub row_misses: u64,
    /// Column accesses that had to close another row first.
    pub row_conflicts: u64,
    /// Rows written back at precharge where that costs extra (PCM).
    pub dirty_precharges: u64,
    /// Drains of a write queue.
    pub write_drains: u64,
    /// Lines found in, or merged into, an on-module buffer.
    pub buffer_hits: u64,
    /// Blocks read from the medium.
    pub media_reads: u64,
    /// Blocks written to the medium.
    pub media_writes: u64,
}

impl DeviceCounters {
    /// Lines read by everyone.
    pub fn total_reads(&self) -> u64 {
        self.reads.iter().sum()
    }

    /// Lines written by everyone.
    pub fn total_writes(&self) -> u64 {
        self.writes.iter().sum()
    }

    /// Row activations.
    pub fn activations(&self) -> u64 {
        self.row_misses + self.row_conflicts
    }

    /// Adds all counters under `prefix`, such as `device.dram`.
    pub fn report(&self, prefix: &str, stats: &mut Stats) {
        for (index, initiator) in Initiator::ALL.iter().enumerate() {
            stats.count(format!("{prefix}.reads.{}", initiator.name()), self.reads[index], Unit::Count);
            stats.count(format!("{prefix}.writes.{}", initiator.name()), self.writes[index], Unit::Count);
        }
        for (name, value) in [
            ("row.hit", self.row_hits),
            ("row.miss", self.row_misses),
            ("row.conflict", self.row_conflicts),
            ("row.dirty_precharge", self.dirty_precharges),
            ("write_drains", self.write_drains),
            ("buffer.hit", self.buffer_hits),
            ("media.reads", self.media_reads),
            ("media.writes", self.media_writes),
        ] {
            stats.count(format!("{prefix}.{name}"), value, Unit::Count);
        }
    }
}

/// Energy by cause, in joules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceEnergy {
    /// Row activations with their precharges.
    pub activate: f64,
    /// Reads of the row buffer or module buffer, with their transfers.
    pub read: f64,
    /// Writes likewise.
    pub write: f64,
    /// Dirty precharges and blocks moved between buffer and medium.
    pub media: f64,
    /// Refreshes.
    pub refresh: f64,
    /// What is drawn whether anything happens or not.
    pub background: f64,
}

impl DeviceEnergy {
    /// The sum.
    pub fn total(&self) -> f64 {
        self.activate + self.read + self.write + self.media + self.refresh + self.background
    }
}
