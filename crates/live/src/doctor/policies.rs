//! Which policies can run on a machine, and what the others need.

use crate::facts::Facts;
use serde::Serialize;
use std::collections::BTreeSet;
use terrace_policy::{Capability, Entry, PolicyError, Refusal, Setup, registry};
use toml::{Table, Value};

/// Whether a policy can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As it is.
    Runs,
    /// With other parameters than the defaults.
    RunsWith,
    /// Not at all.
    DoesNotRun,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyFinding {
    /// The policy's name.
    pub name: &'static str,
    /// Whether it can run.
    pub verdict: Verdict,
    /// Parameters as `key=value` with which it runs.
    pub with: Vec<String>,
    /// Names of the capabilities that it needs with its defaults and does not get.
    pub lacks: Vec<&'static str>,
    /// What else it lacks, or why it refuses.
    pub refusal: Option<String>,
}

/// A capability that some policy needs and this machine does not offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lacking {
    /// The capability's name.
    pub capability: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Why it is not offered.
    pub reason: String,
    /// What would help; none where nothing would.
    pub enable: Option<String>,
}

/// Most parameters that are changed at once in search of a setting that runs.
const MOST_CHANGES: usize = 2;

/// What every policy lacks on a kernel that does not have it.
const NO_PAGES: &str = "PAGEMAP_SCAN, by which pages are found";

pub(super) fn of(facts: &Facts) -> Vec<PolicyFinding> {
    let capabilities = facts.capabilities();
    let topology = &facts.tiers.topology;
    let setup = Setup { topology, capabilities: &capabilities, seed: 0, profile: None };
    let findings = registry::all().iter().map(|entry| judge(entry, setup));
    match facts.finds_pages() {
        Ok(()) => findings.collect(),
        Err(_) => findings.map(|finding| finding.refused(NO_PAGES)).collect(),
    }
}

impl PolicyFinding {
    /// The finding on a kernel where nothing runs, whatever the policy needs besides.
    fn refused(self, reason: &str) -> PolicyFinding {
        PolicyFinding {
            verdict: Verdict::DoesNotRun,
            with: Vec::new(),
            refusal: Some(reason.to_owned()),
            ..self
        }
    }
}

fn judge(entry: &Entry, setup: Setup<'_>) -> PolicyFinding {
    let finding = PolicyFinding {
        name: entry.name(),
        verdict: Verdict::Runs,
        with: Vec::new(),
        lacks: Vec::new(),
        refusal: None,
    };
    let Err(error) = entry.open(&Table::new(), setup) else { return finding };
    let needed = entry.needs(&Table::new()).unwrap_or_default().capabilities;
    let lacks = needed.iter().filter(|one| !setup.capabilities.has(*one)).map(Capability::name).collect();
    let refusal = match error {
        PolicyError::Refused { refusal: Refusal::Lacks(_), .. } => None,
        PolicyError::Refused { refusal: Refusal::Machine(_), .. } if setup.topology.tiers.len() < 2 => {
            Some("a second memory tier".to_owned())
        }
        PolicyError::Refused { refusal: Refusal::NoProfile, .. } => {
            Some("a first pass over the same input".to_owned())
        }
        PolicyError::Refused { refusal, .. } => Some(refusal.to_string()),
        other => Some(other.to_string()),
    };
    match setting_that_runs(entry, &Table::new(), setup) {
        Some(with) => PolicyFinding { verdict: Verdict::RunsWith, with, lacks, refusal, ..finding },
        None => PolicyFinding { verdict: Verdict::DoesNotRun, lacks, refusal, ..finding },
    }
}

/// The fewest switches that have to be thrown besides what is given for the policy to start, the first found of several.
pub(crate) fn setting_that_runs(entry: &Entry, given: &Table, setup: Setup<'_>) -> Option<Vec<String>> {
    let effective = entry.effective(given).ok()?;
    let switches: Vec<(&String, bool)> =
        effective.iter().filter_map(|(key, value)| Some((key, value.as_bool()?))).collect();
    // Settings of so many changes each, beginning with none.
    let mut settings: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..MOST_CHANGES {
        settings = settings
            .iter()
            .flat_map(|changed| {
                let after = changed.last().map_or(0, |last| last + 1);
                (after..switches.len()).map(|next| changed.iter().copied().chain([next]).collect())
            })
            .collect();
        for changed in &settings {
            let thrown: Table = changed
                .iter()
                .map(|at| (switches[*at].0.clone(), Value::Boolean(!switches[*at].1)))
                .collect();
            let mut parameters = given.clone();
            parameters.extend(thrown.clone());
            if entry.open(&parameters, setup).is_ok() {
                return Some(thrown.iter().map(|(key, value)| format!("{key}={value}")).collect());
            }
        }
    }
    None
}

/// What the policies lack, each once, in the order of [`Capability::ALL`].
pub(super) fn lacking(facts: &Facts, policies: &[PolicyFinding]) -> Vec<Lacking> {
    let named: BTreeSet<&str> = policies.iter().flat_map(|policy| policy.lacks.iter().copied()).collect();
    let lacking = |(capability, missing): (Capability, crate::facts::Missing)| Lacking {
        capability: capability.name(),
        meaning: capability.meaning(),
        reason: missing.reason,
        enable: missing.remedy,
    };
    facts.missing().into_iter().filter(|(one, _)| named.contains(one.name())).map(lacking).collect()
}
