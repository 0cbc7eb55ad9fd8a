//! The remote directory: which lines of the GPU's memory the CPU may hold.
//!
//! **What it does.** When the CPU asks for a line of the GPU's memory, the line is added. From then on the GPU does not
//! cache it and asks the CPU for it, which serves it from its caches or refuses. Lines are never removed one by one, since
//! the CPU does not say what it evicts: when the directory is full to its high-water mark, the CPU gives up all lines of the
//! GPU's memory, and the directory begins anew.
//!
//! **Source.** Agarwal 2017, section 5.2.1: a cuckoo filter for 8 MB of the GPU's memory in 64 KB, 3 % of false positives
//! when full.
//!
//! **Left open there, and chosen here.** Bits and buckets: 8-bit fingerprints in buckets of four have that size and that
//! rate. The high-water mark: 95 %, what such buckets reach (Fan et al. 2014, table 2). The source looks into the GPU's
//! caches only for lines that are new in the directory; a false positive would keep a line there that the CPU then writes,
//! so here each request of the CPU does. The same false positive leaves lines in the GPU's caches that the directory names:
//! these serve the GPU.

use super::cuckoo::CuckooFilter;
use super::parameters::RemoteDirectoryParameters;
use crate::gpu::line::GpuLine;
use terrace_model::Time;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryCounters {
    /// Lines that were added.
    pub added: u64,
    /// Requests of the CPU for lines that seemed to be known.
    pub known: u64,
    /// Times that it began anew.
    pub flushes: u64,
}

/// The directory.
#[derive(Debug)]
pub struct RemoteDirectory {
    filter: CuckooFilter,
    high_water: f64,
    cost: Time,
    pub counters: DirectoryCounters,
}

impl RemoteDirectory {
    /// An empty directory.
    pub fn new(parameters: &RemoteDirectoryParameters) -> RemoteDirectory {
        RemoteDirectory {
            filter: CuckooFilter::new(parameters.entries, parameters.bucket, parameters.fingerprint),
            high_water: parameters.high_water,
            cost: parameters.flush_cost,
            counters: DirectoryCounters::default(),
        }
    }

    /// The CPU asks for a line.
    pub fn requested(&mut self, line: GpuLine) {
        if self.filter.add(line) {
            self.counters.added += 1;
        } else {
            self.counters.known += 1;
        }
    }

    /// Whether the CPU may hold a line.
    pub fn may_hold(&self, line: GpuLine) -> bool {
        self.filter.may_hold(line)
    }

    /// Lines that it holds now.
    pub fn held(&self) -> u64 {
        self.filter.held() as u64
    }

    /// The high-water mark is reached: what the trap costs that makes the CPU give up its lines.
    pub fn wants_flush(&self) -> Option<Time> {
        (self.filter.held() > 0 && self.filter.load() >= self.high_water).then_some(self.cost)
    }

    /// The CPU has given them up.
    pub fn reset(&mut self) {
        self.counters.flushes += 1;
        self.filter.reset();
    }
}
