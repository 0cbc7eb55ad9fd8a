//! What an input did: counts, footprint and the heat map of its addresses over time.

mod distinct;
mod heat;
mod observer;

pub use heat::{HeatMap, HeatRow};
pub use observer::InputObserver;

/// What an input did to memory, as its event stream tells it, whatever the design.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputSummary {
    /// Unique name of the input within a comparison; runs refer to it.
    pub name: String,
    /// Program or workload.
    pub program: String,
    /// Its arguments or parameters.
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
}
