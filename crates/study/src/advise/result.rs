//! What advice on fast memory consists of.

use serde::Serialize;
use terrace_report::MachineTier;

/// How much of a program's memory can be slow, under which policy, and what is uncertain about that.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryAdvice {
    /// The input's name.
    pub input: String,
    /// The machine's name.
    pub machine: String,
    /// The machine's tiers, fastest first.
    pub machine_tiers: Vec<MachineTier>,
    /// Loads and stores of the run with everything in the fastest tier.
    pub accesses: u64,
    /// Most that the input ever has resident.
    pub resident_bytes: u64,
    /// As [`crate::Simulation::scale`].
    pub scale: u32,
    /// Slowdown against everything in the fastest tier that the question tolerates, as a share.
    pub tolerated_slowdown: f64,
    /// Prices of the slower tiers, where prices were given.
    pub prices: Vec<Price>,
    /// Simulated run time with everything in the fastest tier.
    pub seconds_simulated: f64,
    /// The best of `policies`; none where none keeps within the slowdown.
    pub advice: Option<Placement>,
    /// What came of each policy.
    pub policies: Vec<PolicyAdvice>,
    /// What the advice is worth.
    pub uncertainty: Uncertainty,
    /// The command that shows it; none for a recording that was not kept.
    pub command: Option<String>,
    /// How the recorded program ended, if not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// What a tier's memory costs.
#[derive(Clone, Debug, Serialize)]
pub struct Price {
    /// The tier's name.
    pub tier: String,
    /// Where the fastest tier's is 1.
    pub price: f64,
}

/// A policy with a size of the fastest tier, and what the run with them was like.
#[derive(Clone, Debug, Serialize)]
pub struct Placement {
    /// The policy's name.
    pub policy: String,
    /// Size of the fastest tier over what is resident.
    pub fast_capacity_share: f64,
    /// Size of the fastest tier in bytes.
    pub fast_capacity_bytes: u64,
    /// What is resident at most and does not fit the fastest tier, in bytes: the slow memory that is needed.
    pub slow_capacity_bytes: u64,
    /// Share of the memory in use that is slow, averaged over time.
    pub slow_share: f64,
    /// Memory in use that is slow, averaged over time, in bytes.
    pub slow_bytes: f64,
    /// Run time over that with everything in the fastest tier, less 1.
    pub slowdown: f64,
    /// The values between which that lies, for the recommendation; absent where no interval was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdown_interval: Option<[f64; 2]>,
    /// Price of the memory in use over that of the same in the fastest tier; none without prices.
    pub cost: Option<f64>,
    /// What is saved of that price.
    pub saving: Option<f64>,
    /// What is saved of the price of all that is resident at most, where the fastest tier's size is bought and the rest as
    /// slow memory, shared by the slower tiers as they were used; negative where slow memory is dearer.
    pub capacity_saving: Option<f64>,
}

/// What came of one policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyAdvice {
    /// The policy's name.
    pub policy: String,
    /// The smallest fastest tier that is enough; none where none is.
    pub answer: Option<Placement>,
    /// The largest fastest tier that was too small, over what is resident.
    pub too_small_share: f64,
    /// The slowdown there.
    pub too_small_slowdown: Option<f64>,
    /// Copied between tiers in the run that is enough.
    pub copied_bytes: Option<u64>,
    /// The policy's longest period.
    pub period_seconds: Option<f64>,
    /// Periods of the policy that the run holds.
    pub periods: Option<f64>,
    /// Why it could not run, if it could not.
    pub refused: Option<String>,
}

/// What the advice is worth.
#[derive(Clone, Debug, Serialize)]
pub struct Uncertainty {
    /// Step of the search, as a share of what is resident.
    pub resolution: f64,
    /// The recommended policy under each seed.
    pub seeds: Vec<Seed>,
    /// Sentences for the reader, most serious first.
    pub remarks: Vec<String>,
}

/// The recommended placement under another seed.
#[derive(Clone, Debug, Serialize)]
pub struct Seed {
    /// Seed of the policy, and of a built-in workload.
    pub seed: u64,
    /// Run time over that with everything in the fastest tier, less 1.
    pub slowdown: f64,
}
