//! The shape of a design file, with units in the types. One struct per TOML table.

use super::contiguity::ContiguityParameters;
use super::memory::MemoryParameters;
use crate::memory::DeviceParameters;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use terrace_model::{Bytes, BytesPerSec, Cycles, Frequency, PageSize, Time};

/// A complete design: a machine, its operating system's choices and its translation scheme.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// Short name, as the command line shows it.
    pub name: String,
    /// One line: what the design is and what it shows.
    pub summary: String,
    /// Name of the machine preset the design stands on.
    pub machine: String,
    /// The cores.
    pub core: CoreParameters,
    /// Translation hardware.
    pub translation: TranslationParameters,
    /// Caches.
    pub cache: CacheHierarchyParameters,
    /// Memory tiers, fastest first.
    #[serde(rename = "tier")]
    pub tiers: Vec<TierParameters>,
    /// Devices that back the tiers, by name.
    #[serde(rename = "device")]
    pub devices: BTreeMap<String, DeviceParameters>,
    /// The operating system.
    pub os: OsParameters,
    /// What the machine's constants rest on.
    #[serde(default)]
    pub ledger: Ledger,
}

/// Which constants were fitted to published rows, and which were assumed. Only what is in neither list is a prediction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// `key: published rows it was fitted to`.
    #[serde(default)]
    pub calibrated: Vec<String>,
    /// `key: why this value, what a sweep of it shows`.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// `key: data sheet, table or page`.
    #[serde(default)]
    pub cited: Vec<String>,
}

/// The kind of core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreKind {
    /// Interval model of an out-of-order core.
    #[default]
    OutOfOrder,
    /// Every access completes before the next instruction issues.
    InOrder,
}

/// One core; all cores of a machine are equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreParameters {
    /// Out of order or in order.
    pub kind: CoreKind,
    /// Number of hardware threads that run program threads at once.
    pub count: u32,
    /// Clock.
    pub frequency: Frequency,
    /// Instructions dispatched per cycle at most.
    pub dispatch_width: u32,
    /// Instructions in flight.
    pub reorder_buffer: u32,
    /// Stores retired but not yet in the cache.
    pub store_buffer: u32,
    /// Cycles per instruction when nothing misses; at least `1 / dispatch_width`.
    pub base_cpi: f64,
}

/// How many ways a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number of ways or \"full\"")]
pub enum Associativity {
    /// This many.
    Ways(u32),
    /// `"full"`: one set.
    Full(FullKeyword),
}

/// The word `full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FullKeyword {
    /// Fully associative.
    #[serde(rename = "full")]
    Full,
}

/// One TLB array. True LRU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbParameters {
    /// Number of entries; 0 for none.
    pub entries: u32,
    /// Ways; entries / ways sets, any number of them.
    pub ways: Associativity,
}

/// The level-2 TLB: which arrays exist and which sizes share them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2TlbParameters {
    /// Arrays; each page size may appear in at most one, a size in none has no level-2 entry.
    pub array: Vec<L2TlbArrayParameters>,
    /// Added to an access that misses the level-1 TLB and hits here.
    pub latency: Cycles,
}

/// One array of the level-2 TLB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2TlbArrayParameters {
    /// Page sizes that share the array.
    pub sizes: Vec<PageSize>,
    /// Number of entries.
    pub entries: u32,
    /// Ways.
    pub ways: Associativity,
}

/// Which mechanism translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TranslationScheme {
    /// x86-64 radix page tables behind TLBs, before the first-level cache.
    Radix,
    /// Radix page tables whose translations cost nothing: no access ever misses the level-1 TLB.
    PerfectTlb,
    /// Virtually indexed, virtually tagged caches: translation only for, and in parallel with, the last-level
    /// cache access (`vbi.md` §3).
    Vivt,
}

/// Translation hardware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TranslationParameters {
    /// Mechanism.
    pub scheme: TranslationScheme,
    /// Levels of the page table, 4 or 5.
    pub levels: u32,
    /// Level-1 data TLBs by page size (`4k`, `2m`, `1g`).
    #[serde(deserialize_with = "by_page_size")]
    pub l1d: BTreeMap<PageSize, TlbParameters>,
    /// Level-2 TLB.
    pub l2: L2TlbParameters,
    /// Caches of intermediate page-table entries.
    pub page_walk_cache: PageWalkCacheParameters,
    /// Walks in flight at once per core.
    pub walkers: u32,
    /// Hardware that profits from contiguity, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contiguity: Option<ContiguityParameters>,
    /// Nested paging, if the program runs in a virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<NestedParameters>,
}

/// Reads the keys as text first, so that an error below one of them can name it.
fn by_page_size<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<PageSize, TlbParameters>, D::Error> {
    const NAMES: &[&str] = &["4k", "2m", "1g"];
    let by_name = BTreeMap::<String, TlbParameters>::deserialize(deserializer)?;
    let by_size = by_name.into_iter().map(|(name, tlb)| {
        let size = PageSize::ALL.into_iter().find(|size| size.name() == name);
        size.map(|size| (size, tlb)).ok_or_else(|| D::Error::unknown_variant(&name, NAMES))
    });
    by_size.collect()
}

/// The page-walk cache: entries of all intermediate levels in one array, LRU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageWalkCacheParameters {
    /// Number of entries; 0 for none.
    pub entries: u32,
    /// Ways.
    pub ways: Associativity,
    /// Time of a lookup.
    pub latency: Cycles,
}

/// Nested paging: a host's page table under the program's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NestedParameters {
    /// Page size with which the host maps all of the guest's memory.
    pub host: PageSize,
    /// The nested TLB: guest-physical pages of the host's size.
    #[serde(default = "nested_tlb")]
    pub tlb: PageWalkCacheParameters,
}

/// Assumed: Bhargava et al. (ASPLOS 2008) describe AMD's nested TLB as small; processors' manuals state no size.
fn nested_tlb() -> PageWalkCacheParameters {
    PageWalkCacheParameters {
        entries: 16,
        ways: Associativity::Full(FullKeyword::Full),
        latency: Cycles(1.0),
    }
}

/// Which line a full set gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// Least recently used.
    #[default]
    Lru,
    /// Static re-reference interval prediction with 2-bit counters, hit priority.
    Srrip,
}

/// How the number of a line becomes that of its set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SetIndex {
    /// The number modulo the sets: its lowest bits.
    #[default]
    Modulo,
    /// The lowest bits, exclusive or with a hash of those above them, so that lines at regular distances spread over the
    /// sets. Needs a number of sets that is a power of two. The hash is the highest bits of a product modulo 2³² with
    /// 2654435769, 2³² over the golden ratio.
    ///
    /// Last levels of processors fold higher bits of the address in, each by a function of its own that its maker does
    /// not publish (J. McCalpin, "Mapping Addresses to L3/CHA Slices in Intel Processors", TR-2021-03, University of Texas): this
    /// stands for any that spreads well.
    Hashed,
}

/// One level of cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheParameters {
    /// Capacity; for a shared level the whole of it.
    pub capacity: Bytes,
    /// Ways; any number of sets.
    pub ways: u32,
    /// Load-to-use latency of a hit, from the start of the access (not added to the levels above).
    pub latency: Cycles,
    /// Replacement.
    #[serde(default)]
    pub replacement: Replacement,
    /// From a line to its set.
    #[serde(default)]
    pub index: SetIndex,
    /// Lines that may be outstanding below this level, per core for private levels.
    pub outstanding: u32,
}

/// A stride prefetcher between L2 and the last level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefetcherParameters {
    /// Off by default.
    pub enabled: bool,
    /// Streams tracked per core.
    pub streams: u32,
    /// Lines fetched ahead of a confirmed stream.
    pub degree: u32,
}

/// Three levels of write-back, write-allocate caches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheHierarchyParameters {
    /// Private level 1 (data).
    pub l1: CacheParameters,
    /// Private level 2.
    pub l2: CacheParameters,
    /// Shared last level, beside the MESI directory.
    pub llc: CacheParameters,
    /// Whether the last level holds all lines of the private levels (evicting from it evicts above).
    pub inclusive: bool,
    /// Time for a line to come from another core's private cache, instead of the last level's latency.
    pub cache_to_cache: Cycles,
    /// Stride prefetcher.
    pub prefetcher: PrefetcherParameters,
}

/// A memory tier: a share of a device, as the operating system sees it (a NUMA node).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierParameters {
    /// Name used in statistics: `dram`, `cxl`, `pcm`.
    pub name: String,
    /// Usable capacity.
    pub capacity: Bytes,
    /// The device behind it; several tiers may share one.
    pub device: String,
    /// Time from the last-level cache's miss to the device's controller and back (mesh, fabric), without queueing.
    pub path_latency: Time,
    /// A link in front of the device.
    #[serde(default)]
    pub link: Option<LinkParameters>,
}

/// A link such as CXL or UPI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkParameters {
    /// Added to every transfer, both directions together.
    pub latency: Time,
    /// Towards the processor.
    pub read_bandwidth: BytesPerSec,
    /// Away from the processor.
    pub write_bandwidth: BytesPerSec,
    /// Bytes of header and protocol per 64-byte line, in the direction of the data.
    pub packet_overhead: Bytes,
}

impl LinkParameters {
    /// What of a direction's bandwidth is left for data.
    pub fn payload(&self, bandwidth: BytesPerSec) -> BytesPerSec {
        let line = terrace_model::LINE_BYTES as f64;
        BytesPerSec(bandwidth.0 * line / (line + self.packet_overhead.0 as f64))
    }
}

/// Which page size the kernel tries for anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PagePolicy {
    /// 4 KiB only.
    #[serde(rename = "4k")]
    Base,
    /// 2 MiB for every address (as if all memory were 2 MiB hugetlbfs).
    #[serde(rename = "2m")]
    Huge,
    /// 1 GiB for every address.
    #[serde(rename = "1g")]
    Giant,
    /// Transparent huge pages at the fault: 2 MiB where the aligned 2 MiB lie in one mapping, else 4 KiB.
    #[serde(rename = "thp")]
    Thp,
}

/// Where a new page goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Placement {
    /// The first tier with room, in the machine's order (Linux's default with node distances).
    FirstTouch,
    /// Round robin over all tiers, page by page of 4 KiB (or the page's size where larger).
    Interleave,
    /// Round robin with weights, one per tier.
    WeightedInterleave {
        /// Pages per round, one number per tier, in the machine's order.
        weights: Vec<u32>,
    },
    /// Only this tier; when it is full the run fails.
    Bind {
        /// The tier's name.
        tier: String,
    },
    /// This tier, then the others in the machine's order.
    Preferred {
        /// The tier's name.
        tier: String,
    },
    /// This many of each group of consecutive virtual pages in the first tier, the rest in the second, spread evenly
    /// (the IWB microbenchmark of `ambix.md` §1: N % of each 100 pages).
    Ratio {
        /// Pages of each group that go to the first tier.
        first: u32,
        /// Pages in a group.
        group: u32,
    },
}

/// Where a policy's work and its orders are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelThreads {
    /// On processors beside the design's cores: they take none of the program's time.
    #[default]
    ExtraCores,
    /// On the design's cores: idle ones first, then those of the program, whose threads wait meanwhile.
    MachineCores,
}

/// The operating system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OsParameters {
    /// Page sizes.
    pub pages: PagePolicy,
    /// Placement.
    pub placement: Placement,
    /// Tier of page-table pages; the first tier when absent.
    #[serde(default)]
    pub page_table_tier: Option<String>,
    /// Time of a minor fault on a base page, zeroing it included, on the faulting core.
    pub fault_cost: Time,
    /// Rate at which the kernel zeroes what a new page has beyond 4 KiB.
    pub zero_bandwidth: BytesPerSec,
    /// Time of a context switch, when threads share a core.
    pub context_switch_cost: Time,
    /// How long a thread runs before another waiting for its core may.
    pub timeslice: Time,
    /// Memory that the system keeps for itself in the first tier.
    pub reserved: Bytes,
    /// How frames are handed out, and what they went through before.
    pub memory: MemoryParameters,
    /// Time between two samples of how contiguous programs' memory is; none are taken when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_contiguity: Option<Time>,
    /// Where a policy's work and its orders are carried out.
    #[serde(default)]
    pub kernel_threads: KernelThreads,
    /// The policy that places and moves pages, if any; where it has no wish, `placement` decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyParameters>,
    /// What the mechanisms that policies use cost.
    pub costs: KernelCosts,
}

/// A policy and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyParameters {
    /// A name of `terrace policy list`.
    pub name: String,
    /// Seed of its random choices.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// Its own parameters, as `terrace policy show` lists them.
    #[serde(flatten)]
    pub parameters: toml::Table,
}

impl PolicyParameters {
    /// Whether the policy wants a first pass. One that refuses its parameters wants none: its run says why.
    pub fn needs_first_pass(&self) -> bool {
        let needs = terrace_policy::find(&self.name).and_then(|entry| entry.needs(&self.parameters));
        needs.is_ok_and(|needs| needs.first_pass)
    }
}

fn first_seed() -> u64 {
    1
}

/// What the kernel's mechanisms for policies cost, in time of the core that carries them out. Copies cost nothing here:
/// their lines go through the memory devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCosts {
    /// To look at one page-table entry, in a scan or to set a watch.
    pub scan_entry: Time,
    /// A fault on a page under a hint watch, on the core that took it.
    pub hint_fault: Time,
    /// A fault on a page whose walks are counted: unpoison, touch, poison again.
    pub count_fault: Time,
    /// A hardware sample of an access, on the core that made it.
    pub sample: Time,
    /// To send a TLB shootdown and wait for the acknowledgements.
    pub shootdown: Time,
    /// What each further core adds to that.
    pub shootdown_per_core: Time,
    /// The interrupt, on each core that receives it.
    pub interrupt: Time,
    /// To begin an order of moves: the system call, and draining every core's lists of pages under way.
    pub order: Time,
    /// To isolate a page and to find and take a frame for it.
    pub allocate: Time,
    /// To put migration entries in place of a page's entry, without the shootdown.
    pub unmap: Time,
    /// To map the page at its new frame.
    pub map: Time,
    /// To free the old frame and put the page back on its list.
    pub free: Time,
    /// To hand a part of a copy to another thread and to hear that it is done.
    pub copy_thread: Time,
    /// Core cycles in which a copying thread issues one line.
    pub copy_line: Cycles,
    /// To split a huge page in place.
    pub split: Time,
    /// To collapse base pages into a huge page, without moving their bytes.
    pub collapse: Time,
}
