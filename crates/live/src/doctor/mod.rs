//! What a machine offers and lacks, in words, with what would help.

mod document;
mod findings;
mod policies;
mod text;

pub use document::Document;
pub(crate) use policies::setting_that_runs;
pub use policies::{Lacking, PolicyFinding, Verdict};

use crate::facts::Facts;
use crate::measure::Measurement;
use serde::Serialize;

/// How it stands with one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There, and ready.
    Ok,
    /// There, but switched off.
    Off,
    /// Not there.
    Missing,
    /// The state could not be found out.
    Unknown,
    /// Someone else has it.
    InUse,
}

impl State {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Off => "off",
            State::Missing => "missing",
            State::Unknown => "unknown",
            State::InUse => "in use",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it belongs to, such as `pages`.
    pub area: &'static str,
    /// The thing.
    pub item: String,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub value: String,
    /// A command or a kernel option that would change the state, or what else would; none where nothing needs it or would.
    pub enable: Option<String>,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// In groups by area.
    pub findings: Vec<Finding>,
    /// Every policy, and whether it can run here.
    pub policies: Vec<PolicyFinding>,
    /// What the policies lack, each once.
    pub lacking: Vec<Lacking>,
}

/// Turns facts into findings. `measured` is empty unless someone asked for it.
pub fn diagnose(facts: &Facts, measured: &[Measurement]) -> Diagnosis {
    let policies = policies::of(facts);
    Diagnosis {
        findings: findings::of(facts, measured),
        lacking: policies::lacking(facts, &policies),
        policies,
    }
}
