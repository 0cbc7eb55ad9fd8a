//! What a search of a policy's parameters found.

use serde::Serialize;
use terrace_report::MachineTier;

/// What a search of a policy's parameters found.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// The policy's name.
    pub policy: String,
    /// The input's name.
    pub input: String,
    /// The machine's name.
    pub machine: String,
    /// The machine's tiers, fastest first.
    pub machine_tiers: Vec<MachineTier>,
    /// Size of the fastest tier over what is resident.
    pub fast_share: f64,
    /// Most that the input ever has resident.
    pub resident_bytes: u64,
    /// What was minimized, in words.
    pub objective: String,
    /// Settings that were tried.
    pub runs: u32,
    /// Seed of the search.
    pub seed: u64,
    /// Settings that the policy refused.
    pub refused: u32,
    /// The values in force.
    pub default: TunedRun,
    /// The best setting.
    pub tuned: TunedRun,
    /// Share of the default's objective that the tuned setting saves.
    pub gain: f64,
    /// Least gain with assumed constants at the ends of their spread and under another seed; none where something else than
    /// time was minimized.
    pub gain_low: Option<f64>,
    /// Largest gain.
    pub gain_high: Option<f64>,
    /// Slowdown of the policy that moves nothing.
    pub first_touch_slowdown: Option<f64>,
    /// The parameters, those that matter most first.
    pub parameters: Vec<TunedParameter>,
    /// Parameters that are neither numbers nor switches, or 0.
    pub not_searched: Vec<String>,
    /// The setting on inputs that it was not tuned on.
    pub checks: Vec<CheckResult>,
    /// What to know before the setting is relied upon, one sentence each.
    pub remarks: Vec<String>,
    /// The setting is clearly faster than the defaults, and the policy with it than one that moves nothing.
    pub is_recommended: bool,
    /// The options that set it, as a shell takes them.
    pub command: String,
    /// How the recorded program ended, if not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// What a setting achieves.
#[derive(Clone, Debug, Serialize)]
pub struct TunedRun {
    /// Value of what is minimized.
    pub objective: f64,
    /// Simulated run time.
    pub seconds_simulated: f64,
    /// Run time over that with everything in the fastest tier, less 1.
    pub slowdown: f64,
    /// Share of the memory in use that is slow, averaged over time.
    pub slow_share: f64,
    /// Price of the memory in use over that of the same in the fastest tier; none without prices.
    pub cost: Option<f64>,
}

/// A parameter that was searched. Values are texts with their units.
#[derive(Clone, Debug, Serialize)]
pub struct TunedParameter {
    /// The parameter's name.
    pub name: String,
    /// Smallest value that was tried.
    pub low: String,
    /// Largest value that was tried.
    pub high: String,
    /// The value in force.
    pub default: String,
    /// The value of the best setting.
    pub tuned: String,
    /// Change of the objective when only this parameter moves away from the tuned setting.
    pub sensitivity: Vec<Sensitivity>,
}

/// The best setting with one parameter changed.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// The parameter's value.
    pub value: String,
    /// Change of the objective, as a share; none where the policy refuses the value.
    pub change: Option<f64>,
}

/// The setting on an input that it was not tuned on.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// The input's name.
    pub input: String,
    /// Slowdown with the values in force.
    pub default_slowdown: f64,
    /// Slowdown with the tuned setting.
    pub tuned_slowdown: f64,
    /// Share of the default's objective that the tuned setting saves.
    pub gain: f64,
}
