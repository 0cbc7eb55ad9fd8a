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
