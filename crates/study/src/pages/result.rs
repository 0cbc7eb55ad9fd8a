//! What advice on large pages consists of.

use super::parts::{CopiedCost, Region};
use super::verdict::Verdict;
use super::ways::WayResult;
use serde::Serialize;
use terrace_report::MachineTier;

/// What large pages would bring a program, and what they would cost.
#[derive(Clone, Debug, Serialize)]
pub struct PageAdvice {
    /// The input's name.
    pub input: String,
    /// The machine's name.
    pub machine: String,
    /// The machine's tiers, fastest first.
    pub machine_tiers: Vec<MachineTier>,
    /// As [`crate::Simulation::fidelity_name`].
    pub fidelity: String,
    /// As [`crate::Simulation::scale`].
    pub scale: u32,
    /// Loads and stores of the run with base pages.
    pub accesses: u64,
    /// Resident with base pages, when most was.
    pub touched_bytes: u64,
    /// Memory beyond what the program touches that is tolerated, as a share of that.
    pub tolerated_bloat: f64,
    /// The recommendation.
    pub verdict: Verdict,
    /// What came of each way of using pages, base pages first.
    pub ways: Vec<WayResult>,
    /// The regions of the program, those with most walk cycles first.
    #[serde(rename = "regions")]
    pub parts: Vec<Region>,
    /// What no region has a share in, by way.
    pub page_cache: Vec<CopiedCost>,
    /// What is known to be uncertain, most serious first.
    pub remarks: Vec<String>,
    /// The command that shows it; none for a recording that was not kept.
    pub command: Option<String>,
    /// How the recorded program ended, if not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}
