//! What a GPU is, as a machine's file states it.

use serde::{Deserialize, Serialize};
use terrace_model::parameters::{Choice, Parameters};
use terrace_model::{Bytes, Cycles, Frequency, Time};

/// A GPU beside the machine's cores. Its memory is the machine's tiers, over their links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct GpuParameters {
    /// Streaming multiprocessors.
    #[parameter(range = 1..=1024)]
    pub sms: u32,
    /// Clock of the multiprocessors, which every latency of the GPU counts.
    #[parameter(range = "1 MHz"..="1000 GHz")]
    pub frequency: Frequency,
    /// Instructions of warps that an SM issues in a cycle.
    #[parameter(range = 1..=64)]
    pub issue_width: u32,
    /// Warps that an SM holds.
    #[parameter(range = 1..=1024)]
    pub warps: u32,
    /// Work-groups that an SM holds.
    #[parameter(range = 1..=1024)]
    pub groups: u32,
    /// Load instructions that a warp may have under way. A store, a barrier and a load whose address is known to depend on
    /// another wait for all of them.
    #[parameter(range = 1..=1024)]
    pub loads: u32,
    /// The cache of each SM.
    #[parameter(section)]
    pub l1: GpuL1Parameters,
    /// The cache in front of each channel of memory.
    #[parameter(section)]
    pub l2: GpuL2Parameters,
    /// The TLB of each SM.
    #[parameter(section)]
    pub tlb: GpuTlbParameters,
    /// Pages that the GPU touches first.
    #[parameter(section)]
    #[serde(default)]
    pub fault: GpuFaultParameters,
}

/// Costs of a page that the GPU touches first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct GpuFaultParameters {
    /// Time from the touch to the system's answer: 20 to 40 us where programs leave memory to the system. At zero they
    /// allocate before kernels run, and a first touch takes `os.fault_cost` as one of the host does.
    #[parameter(default = "0 ns", range = "0 ns"..="1 s", source = "Agarwal 2017, section 5.2.3: 20 us")]
    pub latency: Time,
    /// Faults that an SM may have pending; with one more it issues nothing.
    #[parameter(default = 16, range = 1..=1024, source = "Agarwal 2017, table 5.3")]
    pub pending: u32,
}

/// The first-level cache: lines of 128 bytes, write-through, without allocation by stores, not coherent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct GpuL1Parameters {
    /// Size.
    #[parameter(range = "128 B"..="4 GiB")]
    pub capacity: Bytes,
    /// Ways of a set.
    #[parameter(range = 1..=256)]
    pub ways: u32,
    /// Latency of an L1 hit.
    #[parameter(range = "0 cycles"..="1000000 cycles")]
    pub latency: Cycles,
    /// Lines that may be on their way.
    #[parameter(range = 1..=16384)]
    pub outstanding: u32,
    /// Stores that may be on their way to the second level.
    #[parameter(range = 1..=16384)]
    pub stores: u32,
}

/// A slice of the second level: lines of 128 bytes in sectors of 32, write-back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct GpuL2Parameters {
    /// Size of the slice of one channel.
    #[parameter(range = "128 B"..="4 GiB")]
    pub capacity: Bytes,
    /// Ways of a set.
    #[parameter(range = 1..=256)]
    pub ways: u32,
    /// Latency of an L2 hit, with the way there and back through the interconnect.
    #[parameter(range = "0 cycles"..="1000000 cycles")]
    pub latency: Cycles,
    /// Lines of one slice that may be on their way from memory.
    #[parameter(range = 1..=16384)]
    pub outstanding: u32,
    /// What a store miss does.
    #[serde(default)]
    pub write_allocate: WriteAllocate,
}

/// What a store miss does in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum WriteAllocate {
    /// The store brings its sectors; memory is not read.
    #[default]
    Sectors,
    /// The line is read from memory, and nobody waits for it.
    Fetch,
}

/// A TLB of base pages, least recently used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct GpuTlbParameters {
    /// Entries.
    #[parameter(range = 0..=32_767)]
    pub entries: u32,
    /// Latency of a miss: of a walk by the GPU's memory-management unit.
    #[parameter(range = "0 cycles"..="1000000 cycles")]
    pub miss_latency: Cycles,
    /// Time that the whole GPU stalls when a page that it has touched moves.
    #[parameter(range = "0 cycles"..="1000000 cycles")]
    pub shootdown: Cycles,
}

/// Bytes of a line of the GPU's caches.
pub const GPU_LINE: u64 = 128;
/// Bytes of a sector.
pub const SECTOR: u64 = 32;

impl GpuParameters {
    /// What types do not say, by key below `gpu`.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn validate(&self) -> Result<(), (&'static str, String)> {
        for (key, capacity, ways) in [
            ("gpu.l1.capacity", self.l1.capacity, self.l1.ways),
            ("gpu.l2.capacity", self.l2.capacity, self.l2.ways),
        ] {
            let way = u64::from(ways) * GPU_LINE;
            if capacity.0 < way || !capacity.0.is_multiple_of(way) {
                return Err((key, format!("{capacity} is not a number of sets of {ways} lines of 128 B")));
            }
        }
        Ok(())
    }
}
