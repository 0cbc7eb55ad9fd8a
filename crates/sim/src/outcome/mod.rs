//! What a run is asked, and what it returns.

mod access;
mod maps;
mod parts;

pub use access::{AccessPath, AccessStep, Stage};
pub use maps::{MemoryMap, PlacementColumn, PlacementMap, TierMap};
pub use parts::{Part, PartCost, PartUse};

use crate::core::END_OF_TIME;
use crate::os::OsError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_model::{ContiguityPoint, PoolTraffic, Stats};
use terrace_policy::{Policy, PolicyError, Profile, Setup};
use terrace_trace::SourceError;

/// Opens a policy on what the machine is and offers.
pub type OpenPolicy = dyn FnOnce(Setup<'_>) -> Result<Box<dyn Policy>, PolicyError> + Send;

/// How much of the machine is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fidelity {
    /// Everything.
    #[default]
    Full,
    /// TLBs, page-walk cache, walks, paging; no data caches and no memory timing.
    Translation,
    /// Page residency and unfiltered tier traffic only.
    Pages,
}

impl Fidelity {
    /// The name used in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Fidelity::Full => "full",
            Fidelity::Translation => "translation",
            Fidelity::Pages => "pages",
        }
    }

    /// What follows for policies where accesses take no time.
    const BY_TIME: &str = "the time of accesses: a policy that runs by time acts at other moments than in full, and moves other amounts";

    /// What a run at this level leaves out, for its output.
    pub fn left_out(self) -> &'static [&'static str] {
        match self {
            Fidelity::Full => &[],
            Fidelity::Translation => &[
                "data caches and memory: accesses cost nothing, every page-table entry comes from the last level",
                "tier traffic",
                Self::BY_TIME,
            ],
            Fidelity::Pages => &[
                "TLBs and page walks",
                "data caches and memory timing: cycles count instructions and page faults only",
                "tier traffic after the caches: tier.<name>.unfiltered_{reads,writes} count every access",
                Self::BY_TIME,
            ],
        }
    }
}

/// How to run.
#[derive(Default)]
pub struct Options {
    /// How much is simulated.
    pub fidelity: Fidelity,
    /// Count the whole input, even where it marks a region of interest.
    pub whole: bool,
    /// Simulate only the operating system until the region of interest begins, as [`Fidelity::Pages`] does. TLBs and
    /// caches are empty when it begins.
    pub fast_forward: bool,
    /// Set from outside to end the run early; what was simulated until then is reported.
    pub stop: Option<Arc<AtomicBool>>,
    /// Called with the number of accesses simulated so far, once per batch.
    pub progress: Option<Box<dyn FnMut(u64) + Send>>,
    /// Count the accesses of every page that reach memory: [`Outcome::profile`]. Needs [`Fidelity::Full`].
    pub count_accesses: bool,
    /// Tell the parts of the programs apart: [`Outcome::parts`].
    pub parts: bool,
    /// Take pictures of physical memory: [`Outcome::memory_map`].
    pub memory_map: bool,
    /// Record where memory lies over time: [`Outcome::placement_map`].
    pub placement_map: bool,
    /// Watch this access, counted from 1 on, of the region of interest where the input marks one: [`Outcome::access`]. Needs
    /// [`Fidelity::Full`].
    pub watch_access: Option<u64>,
    /// What such a run found, for policies in two passes.
    pub profile: Option<Arc<Profile>>,
    /// A policy instead of the design's.
    pub policy: Option<Box<OpenPolicy>>,
    /// A policy of the hypervisor's instead of the design's.
    pub host_policy: Option<Box<OpenPolicy>>,
}

/// What a run found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The statistics tree.
    pub stats: Stats,
    /// Loads and stores simulated (inside the region of interest, where the input marks one).
    pub accesses: u64,
    /// Instructions retired.
    pub instructions: u64,
    /// Cycles from the start to the end of the last core.
    pub cycles: u64,
    /// Simulated seconds from the start to the end of the last core.
    pub seconds_simulated: f64,
    /// What the fidelity leaves out.
    pub left_out: Vec<String>,
    /// What a reader of the numbers should know.
    pub notes: Vec<String>,
    /// How contiguous memory was over time, where the policy or `os.sample_contiguity` sampled that.
    pub contiguity: Vec<ContiguityPoint>,
    /// What memories and the link beside a GPU carried.
    pub pools: Option<PoolTraffic>,
    /// Accesses that policies sampled in the whole run, before its region of interest too: they decide by all of them.
    pub samples: u64,
    /// The run was stopped from outside before the input's end.
    pub stopped: bool,
    /// Accesses that reached memory, by page, where [`Options::count_accesses`] asked for it.
    pub profile: Option<Profile>,
    /// Areas and data structures in the order of their appearance, where [`Options::parts`] asked for them.
    pub parts: Vec<PartUse>,
    /// Memory before and after, where [`Options::memory_map`] asked for it.
    pub memory_map: Option<MemoryMap>,
    /// Where memory lay over time, where [`Options::placement_map`] asked for it.
    pub placement_map: Option<PlacementMap>,
    /// The steps of the access that [`Options::watch_access`] asked for, if the input has so many.
    pub access: Option<AccessPath>,
}

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The design describes a machine that cannot be built.
    #[error("design {design}: {problem}")]
    Design {
        /// The design's name.
        design: String,
        /// Key and reason.
        problem: String,
    },
    /// The input failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The simulated kernel failed.
    #[error("{0}")]
    Os(#[from] OsError),
    /// The program runs for longer than simulated time can count.
    #[error(
        "the program's time goes beyond {:.1} hours, the longest that can be simulated; give it less to do, or less time to \
         settle",
        END_OF_TIME.as_secs() / 3600.0
    )]
    TooLong,
    /// All of the input was passed over.
    #[error(
        "--fast-forward goes to the region of interest, and this input marks none: leave --fast-forward out, or mark the region \
         (terrace/marker.h)"
    )]
    NoRegion,
}
