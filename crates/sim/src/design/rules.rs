//! Rules that several tables share. Each names the key at fault.

use super::{MemoryParameters, Placement, PolicyParameters};
use terrace_model::PageSize;
use terrace_model::parameters::ParameterError;

/// A broken rule: the dotted key, and what is wrong with it.
pub(crate) type Fault = (String, String);

/// What is said of a value outside its range: its key, and the range.
pub(crate) fn not_between(problem: &ParameterError) -> Fault {
    match problem {
        ParameterError::OutOfRange { key, value, range } => {
            (key.clone(), format!("{value} is not between {} and {}", range.low, range.high))
        }
        other => (String::new(), other.to_string()),
    }
}

/// The fault at `key`, unless a rule holds.
pub(super) fn rule(holds: bool, key: &str, message: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err((key.to_owned(), message())) }
}

/// Names end up in the dotted names of statistics.
pub(super) fn usable_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'))
        && !matches!(name, "fastest" | "slowest")
        && name.parse::<u32>().is_err()
}

/// All parameters of a policy, its defaults included.
pub(crate) fn policy_parameters(policy: &PolicyParameters, key: &str) -> Result<toml::Table, Fault> {
    let entry =
        terrace_policy::find(&policy.name).map_err(|problem| (format!("{key}.name"), problem.to_string()))?;
    entry.effective(&policy.parameters).map_err(|problem| match &problem {
        terrace_policy::PolicyError::UnknownKey { key: own, .. } => {
            (format!("{key}.{own}"), problem.to_string())
        }
        _ => (key.to_owned(), problem.to_string()),
    })
}

/// What must hold of a placement below `key` over `tiers`.
pub(super) fn placement(
    placement: &Placement,
    tiers: &[String],
    machine: &str,
    key: &str,
) -> Result<(), Fault> {
    let count = tiers.len();
    match placement {
        Placement::FirstTouch | Placement::Interleave => Ok(()),
        Placement::WeightedInterleave { weights } => {
            let key = format!("{key}.weights");
            rule(weights.len() == count, &key, || format!("{} weights for {count} tiers", weights.len()))?;
            rule(weights.iter().any(|weight| *weight > 0), &key, || "all weights are 0".into())
        }
        Placement::Bind { tier } | Placement::Preferred { tier } => {
            rule(tiers.contains(tier), &format!("{key}.tier"), || no_tier(tier, machine, tiers))
        }
        Placement::Ratio { first, group } => {
            let problem = || format!("{first} pages of a group of {group}");
            rule(first <= group, &format!("{key}.first"), problem)?;
            rule(count >= 2, &format!("{key}.kind"), || {
                format!("a ratio needs two tiers, and {machine} has one")
            })
        }
    }
}

pub(super) fn no_tier(tier: &str, machine: &str, tiers: &[String]) -> String {
    format!("there is no tier \"{tier}\" on {machine}; it has {}", tiers.join(", "))
}

/// What must hold of a page allocator below `key`.
pub(super) fn memory(memory: &MemoryParameters, key: &str) -> Result<(), Fault> {
    rule(memory.pageblock != PageSize::Base, &format!("{key}.pageblock"), || {
        "pageblocks have 2m or 1g: a block of one page keeps nothing apart".into()
    })
}
