//! The shape of caches in a design file.

use serde::{Deserialize, Serialize};
use terrace_model::parameters::{Choice, Parameters};
use terrace_model::{Bytes, Cycles};

/// Which line a full set gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// Least recently used.
    #[default]
    Lru,
    /// Static re-reference interval prediction with 2-bit counters, hit priority.
    Srrip,
}

/// How the number of a line becomes that of its set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "lowercase")]
pub enum SetIndex {
    /// The number modulo the sets: its lowest bits.
    #[default]
    Modulo,
    /// The lowest bits, exclusive or with a hash of those above them, so that lines at regular distances spread over the
    /// sets. The hash is the highest bits of a product modulo 2³² with 2654435769, 2³² over the golden ratio. Where the sets
    /// are no power of two it is added modulo their number.
    //
    // Last levels of processors fold higher bits of the address in, each by a function of its own that its maker does
    // not publish (J. McCalpin, "Mapping Addresses to L3/CHA Slices in Intel Processors", TR-2021-03, University of Texas):
    // this stands for any that spreads well.
    Hashed,
}

/// One level of cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct CacheParameters {
    /// Capacity; for a shared level the whole of it.
    #[parameter(range = "64 B"..="4 GiB")]
    pub capacity: Bytes,
    /// Ways; any number of sets.
    // As many as the order of a set's ways has room for: `array::ORDER_MAX_WAYS`.
    #[parameter(range = 1..=25)]
    pub ways: u32,
    /// Load-to-use latency of a hit, from the start of the access (not added to the levels above).
    #[parameter(range = "0 cycles"..="1000000 cycles")]
    pub latency: Cycles,
    /// Replacement.
    #[serde(default)]
    pub replacement: Replacement,
    /// How the set of a line is found.
    #[serde(default)]
    pub index: SetIndex,
    /// Lines that may be outstanding below this level, per core for private levels.
    #[parameter(range = 1..=16384)]
    pub outstanding: u32,
}

/// A stride prefetcher between L2 and the last level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct PrefetcherParameters {
    /// Whether it fetches.
    pub enabled: bool,
    /// Streams tracked per core.
    #[parameter(range = 0..=4096)]
    pub streams: u32,
    /// Lines fetched ahead of a confirmed stream.
    #[parameter(range = 0..=1024)]
    pub degree: u32,
}

/// Three levels of write-back, write-allocate caches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct CacheHierarchyParameters {
    /// Private level 1 (data).
    #[parameter(section)]
    pub l1: CacheParameters,
    /// Private level 2.
    #[parameter(section)]
    pub l2: CacheParameters,
    /// Shared last level, beside the MESI directory.
    #[parameter(section)]
    pub llc: CacheParameters,
    /// Whether the last level holds all lines of the private levels (evicting from it evicts above).
    pub inclusive: bool,
    /// Time for a line to come from another core's private cache, instead of the last level's latency.
    #[parameter(range = "0 cycles"..="1000000 cycles")]
    pub cache_to_cache: Cycles,
    /// Stride prefetcher.
    #[parameter(section)]
    pub prefetcher: PrefetcherParameters,
}
