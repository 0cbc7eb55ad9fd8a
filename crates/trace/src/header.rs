//! What a trace says about itself.

use serde::{Deserialize, Serialize};

/// Where a stream of events came from. Everything is for people and reports; nothing decides a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The program that ran, or the workload, as a short name (`redis-server`, `gups`).
    pub program: String,
    /// The program's arguments, or the workload's parameters as `key=value`.
    pub arguments: Vec<String>,
    /// How the stream was made: `recorded`, `workload`, `lackey`, `champsim`, `text`.
    pub origin: String,
    /// Environment summary of a recording (variables that change memory behaviour, such as `MALLOC_ARENA_MAX`).
    pub environment: Vec<String>,
    /// Machine the recording was made on: processor and kernel.
    pub machine: String,
    /// Date of the recording, `YYYY-MM-DD`; empty for a workload, so that its trace is reproducible.
    pub date: String,
    /// Version of Terrace that wrote it.
    pub tool_version: String,
    /// Seed of a workload.
    pub seed: Option<u64>,
    /// Whether instruction addresses are present.
    pub has_pc: bool,
    /// Whether it was recorded without saying which loads wait for others. Written only where it is so: a trace without the
    /// key says it, as far as its origin does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub independent_loads: bool,
    /// Number of accesses, where known beforehand (for progress bars).
    pub expected_accesses: Option<u64>,
    /// How it ends. Kept at the end of a trace file.
    #[serde(skip)]
    pub ending: TraceEnding,
}

/// How a stream of events ends; the later ones say more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceEnding {
    /// With its program, or where its recording was to end.
    #[default]
    Whole,
    /// Before its program, because somebody asked for it.
    Stopped,
    /// At the end of a part that was cut out of a longer one.
    Cut,
    /// Where damage made the rest unreadable.
    Damaged,
}

/// What is known of one stream at the end of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// Process number.
    pub process: u32,
    /// Thread number within the process.
    pub thread: u32,
    /// Accesses issued.
    pub accesses: u64,
    /// Instructions retired.
    pub instructions: u64,
}
