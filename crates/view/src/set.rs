//! What the page knows of results before it reads them whole.

use serde::Serialize;
use std::collections::BTreeMap;

/// All results under some folders.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Catalog {
    /// The folders and files that were asked for.
    pub roots: Vec<String>,
    /// The sets of results, by path.
    pub sets: Vec<Set>,
    /// Files that look like results and cannot be shown.
    pub problems: Vec<Problem>,
}

/// A file or folder that cannot be shown, and why, in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Problem {
    /// Which.
    pub path: String,
    /// Why.
    pub message: String,
}

/// What kind of results a set holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Results of `compare`, `sim` and live runs: runs with their statistics.
    Results,
    /// The runs that a sweep has kept so far.
    Sweep,
    /// A result of `tune`.
    Tune,
    /// A result of `advise`.
    Advice,
    /// A result of `advise --pages`.
    Pages,
}

impl Kind {
    /// Whether its document is one of runs, as the report shows them.
    pub fn has_runs(self) -> bool {
        matches!(self, Kind::Results | Kind::Sweep)
    }
}

/// One file of results, or the folder of a sweep's runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Set {
    /// The set's number as long as the library lives.
    pub id: u32,
    /// Where it lies.
    pub path: String,
    /// What it holds.
    pub kind: Kind,
    /// The set's heading; empty where the file has none.
    pub title: String,
    /// The command that repeats it; empty where the file has none.
    pub command: String,
    /// The version of Terrace that wrote it; empty where the file has none.
    pub tool_version: String,
    /// The day it ran; empty where the file has none.
    pub date: String,
    /// When the file was last changed, in seconds since 1970.
    pub modified: u64,
    /// The set's runs.
    pub runs: Vec<RunRow>,
}

/// One run in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunRow {
    /// Design.
    pub design: String,
    /// Machine.
    pub machine: String,
    /// Input.
    pub input: String,
    /// What else tells it from the other runs of its set: values that a sweep varies.
    pub values: BTreeMap<String, String>,
    /// Level of simulation, or `live`.
    pub fidelity: String,
    /// Simulated seconds; none where none were simulated.
    pub seconds: Option<f64>,
    /// Against everything in the fastest tier, as a share.
    pub slowdown: Option<f64>,
    /// Loads and stores.
    pub accesses: Option<u64>,
}
