//! What the memories beside a GPU carried.

/// What a GPU's memories and the link between both sides carried while kernels ran, and for which data structures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolTraffic {
    /// The memories, the GPU's own first.
    pub pools: Vec<Pool>,
    /// The link between the GPU and the CPU, where there is one.
    pub link: Option<PoolLink>,
    /// Length of an interval.
    pub interval_seconds: f64,
    /// The intervals, by the time of kernels; that of the host between them is left out.
    pub intervals: Vec<PoolInterval>,
    /// Data structures, those first that reached memory most.
    pub structures: Vec<StructureTraffic>,
}

/// A memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// The memory's name.
    pub name: String,
    /// What the GPU can have of it: the bandwidth of its device, or of the link's payload where that is less.
    pub bytes_per_second: f64,
}

/// Bandwidths of a link, headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolLink {
    /// Towards the CPU.
    pub to_cpu: f64,
    /// Towards the GPU.
    pub to_gpu: f64,
}

/// What was carried in an interval, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolInterval {
    /// Traffic of each memory, without that of `migration`.
    pub demand: Vec<u64>,
    /// Traffic of each memory for pages that changed their place.
    pub migration: Vec<u64>,
    /// Over the link towards the CPU, headers included.
    pub to_cpu: u64,
    /// And towards the GPU.
    pub to_gpu: u64,
}

/// A data structure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StructureTraffic {
    /// The structure's allocation site.
    pub name: String,
    /// Source file and line of the call; empty where unknown.
    pub code_line: String,
    /// All that was allocated there.
    pub bytes: u64,
    /// Loads and stores of lines that no cache of the GPU held, by the memory that they went to.
    pub lines: Vec<u64>,
}
