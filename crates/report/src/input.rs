//! What an input did: counts, footprint and the heat map of its addresses over time.

/// What an input did to memory, as its event stream shows it, whatever the design.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputSummary {
    /// Unique name of the input within a comparison; runs refer to it.
    pub name: String,
    /// Program or workload.
    pub program: String,
    /// The program's arguments, or the workload's parameters.
    pub arguments: Vec<String>,
    /// How the stream was made: `recorded`, `workload`, `lackey`, `champsim`, `text`.
    pub origin: String,
    /// Machine of the recording; empty for a workload.
    pub machine: String,
    /// Date of the recording; empty for a workload.
    pub date: String,
    /// Seed of a workload.
    pub seed: Option<u64>,
    /// Loads and stores.
    pub accesses: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Instructions retired.
    pub instructions: u64,
    /// Streams (threads) seen.
    pub threads: u64,
    /// Processes seen.
    pub processes: u64,
    /// Base pages touched by loads and stores, in bytes, counted per process.
    pub footprint_bytes: u64,
    /// Whether the footprint is an estimate (standard error 1.1 %) because there are many pages.
    pub footprint_is_estimate: bool,
    /// Addresses over time.
    pub heat: HeatMap,
    /// What memory of any size would hold of it.
    pub reuse: ReuseCurves,
}

/// How often an input comes back to its pages: what LRU memory of any size would serve, and how many pages it uses within a
/// time. All loads and stores count, also those that a cache would serve, in the order in which the input gives them.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct ReuseCurves {
    /// The unit in which memory is kept.
    pub page_bytes: u64,
    /// Share of the pages that were looked at; at 1 all below is exact.
    pub sampled_share: f64,
    /// Sizes of memory.
    pub memory_bytes: Vec<u64>,
    /// Share of the accesses whose page memory of that size does not hold, where it keeps the pages used last.
    pub miss_ratio: Vec<f64>,
    /// Standard error of the ratios, the largest.
    pub miss_ratio_error: f64,
    /// Lengths of time, in accesses.
    pub window_accesses: Vec<u64>,
    /// Memory touched within so many accesses, the mean over the input.
    pub working_set_bytes: Vec<f64>,
    /// Standard error of these, the largest, as a share.
    pub working_set_error: f64,
}

/// Accesses by address and time. Time is counted in accesses of the whole input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatMap {
    /// Width of a column in accesses.
    pub accesses_per_bin: u64,
    /// Every sample counted below stands for this many accesses.
    pub sample_every: u64,
    /// The rows, by process and address.
    pub rows: Vec<HeatRow>,
    /// Samples that were loads: for each row, one count per column.
    pub reads: Vec<Vec<u32>>,
    /// Samples that were stores, in the same shape.
    pub writes: Vec<Vec<u32>>,
}

/// The addresses of one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatRow {
    /// Process.
    pub process: u32,
    /// First address.
    pub start: u64,
    /// Length in bytes. Where the next row does not start at the end of this one, untouched addresses lie between.
    pub bytes: u64,
    /// What lies there: a mapping's file, an allocation site, `[heap]`; empty where unknown.
    pub name: String,
    /// Source file and line of the allocation site; empty where unknown.
    pub line: String,
}
