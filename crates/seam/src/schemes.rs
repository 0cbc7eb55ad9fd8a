//! Policies that a kernel with DAMON can carry out by itself.

use terrace_model::{Bytes, TierId, Time};

/// What a policy does, as two schemes of DAMON over sampled regions (`migrate_hot`, `migrate_cold`): for worlds whose kernel
/// watches and moves without asking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schemes {
    /// Hot regions go here.
    pub fast: TierId,
    /// And cold ones here.
    pub slow: TierId,
    /// Time between two looks at the sampled pages.
    pub sampling: Time,
    /// Time over which looks are added up.
    pub aggregation: Time,
    /// Fewest regions of memory that are watched.
    pub min_regions: u32,
    /// Most of them.
    pub max_regions: u32,
    /// Share of the looks that found an access from which on a region is hot, 0 to 1.
    pub hot: f64,
    /// Time without any access after which a region is cold.
    pub cold_age: Time,
    /// Usage of the fast tier, 0 to 1, above which cold regions leave it.
    pub high_usage: f64,
    /// Most memory that either scheme moves per aggregation.
    pub quota: Bytes,
}

impl Schemes {
    /// Looks of an aggregation that have to find an access, at least one.
    pub fn hot_looks(&self) -> u64 {
        let looks = self.aggregation.0 as f64 / self.sampling.0 as f64;
        ((looks * self.hot).ceil() as u64).max(1)
    }

    /// Aggregations without any access after which a region is cold, at least one.
    pub fn cold_aggregations(&self) -> u64 {
        self.cold_age.0.div_ceil(self.aggregation.0.max(1)).max(1)
    }
}
