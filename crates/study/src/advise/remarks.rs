//! What to know before advice on fast memory is relied upon.

use super::{Placement, PolicyAdvice, Question, Seed};
use crate::figures::{self, percent, tenth};
use crate::input::Input;
use crate::partial;
use crate::periods::{self, FEW_PERIODS};
use crate::{hypervisor, tiers};
use terrace_model::text::grouped;
use terrace_report::RunRecord;
use terrace_sim::Fidelity;
use terrace_sim::design::Design;

/// Share of the cycles in the operating system from which the run is mostly its beginning.
const SETTING_UP: f64 = 0.25;

impl Question<'_> {
    /// What is known to be uncertain, most serious first.
    pub(super) fn remarks(
        &self,
        policies: &[PolicyAdvice],
        advice: Option<&Placement>,
        seeds: &[Seed],
        all_fast: &RunRecord,
        input: &Input,
        live: bool,
    ) -> Vec<String> {
        let mut remarks = partial::remarks(&all_fast.notes);
        let short: Vec<&PolicyAdvice> =
            policies.iter().filter(|policy| policy.periods.is_some_and(|n| n < FEW_PERIODS)).collect();
        if let Some(fewest) = short.iter().filter_map(|policy| policy.periods).min_by(f64::total_cmp) {
            let names: Vec<&str> = short.iter().map(|policy| policy.policy.as_str()).collect();
            let longer = periods::longer("record more", self.asked.changes.time_scale, fewest);
            remarks.push(format!(
                "Too short: {} are simulated, fewer than {FEW_PERIODS} periods of {}. That says nothing of them in the \
                 long run; {longer}.",
                figures::time(all_fast.seconds_simulated),
                names.join(", "),
            ));
        }
        let small = {
            let bound = &self.all_fast.design.design;
            tiers::small_in_caches(bound, &all_fast.stats, self.settings)
        };
        remarks.extend(small.map(|small| format!("Small: {small}.")));
        let guest = hypervisor::remark_with_resized_tiers(&self.all_fast.design.design, Fidelity::Full);
        remarks.extend(guest.map(|what| format!("Guest: {what}.")));
        remarks.extend(assumed_tiers(&self.all_fast.design.design));
        let in_system = all_fast.cycle_share("os").unwrap_or(0.0);
        if in_system >= SETTING_UP {
            remarks.push(format!(
                "Setting up: with everything fast the operating system takes {} of the cycles, most of them where memory is \
                 touched first. A longer run waits more for memory, and would need more of it fast.",
                percent((in_system * 100.0).round() / 100.0),
            ));
        }
        if advice.and_then(|advice| advice.capacity_saving).is_some_and(|saving| saving <= 0.0) {
            remarks.push(
                "Price: at these prices slow memory saves nothing; all of it fast is no dearer.".to_owned(),
            );
        }
        if let Some(advice) = advice {
            let below = policies.iter().find(|policy| policy.policy == advice.policy);
            remarks.push(match below.and_then(|policy| Some((policy.too_small_share, policy.too_small_slowdown?))) {
                Some((share, slowdown)) => format!(
                    "Search: in steps of {}; {} with {} of the memory fast is {} slower. That more fast memory is never \
                     slower is assumed, and not checked.",
                    percent(self.asked.resolution),
                    advice.policy,
                    percent(share),
                    tenth(slowdown),
                ),
                None => format!("Search: {} was the least that was tried.", percent(self.asked.resolution)),
            });
            let worst = seeds.iter().map(|seed| seed.slowdown).fold(f64::NEG_INFINITY, f64::max);
            let least = seeds.iter().map(|seed| seed.slowdown).fold(f64::INFINITY, f64::min);
            let whose = if input.reseeded(1).is_some() { "workload and policy" } else { "the policy" };
            if seeds.len() > 1 {
                let over = seeds.iter().filter(|seed| seed.slowdown > self.asked.slowdown).count();
                let consequence = match over {
                    0 => String::new(),
                    n => format!(" {n} of them are over what is tolerated: take a step more fast memory."),
                };
                remarks.push(format!(
                    "Seeds: {} to {} slower over {} seeds of {whose}.{consequence}",
                    tenth(least),
                    tenth(worst),
                    seeds.len()
                ));
            }
            if let Some([low, high]) = advice.slowdown_interval {
                let consequence = match high > self.asked.slowdown {
                    true => " The upper end is over what is tolerated: take more fast memory to be sure.",
                    false => "",
                };
                remarks.push(format!(
                    "Interval: with assumed constants at the ends of their spread, and the seeds, the slowdown {}.{consequence}",
                    match tenth(low) == tenth(high) {
                        true => format!("stays {}", tenth(low)),
                        false => format!("lies between {} and {}", tenth(low), tenth(high)),
                    },
                ));
            }
            if input.reseeded(1).is_none() {
                let recorded = if live { "one recording" } else { "one trace" };
                remarks.push(format!(
                    "Input: {recorded}; another run of the program may differ, and is not in this."
                ));
            }
        }
        if let Some(time_scale) = Some(self.asked.changes.time_scale).filter(|time_scale| *time_scale > 1) {
            remarks.push(format!(
                "Time scale: the policies' periods are divided by {time_scale}, so the run stands for one {time_scale} times as \
                 long, and what they do per period weighs {time_scale} times as much."
            ));
        }
        if all_fast.scale > 1 {
            remarks.push(format!(
                "Scaled: capacities, TLB reach, last-level cache and periods are divided by {}{}.",
                all_fast.scale,
                match u64::from(self.asked.changes.time_scale) {
                    1 => String::new(),
                    divisor =>
                        format!(", periods by {} in all", grouped(divisor * u64::from(all_fast.scale))),
                }
            ));
        }
        remarks
    }
}

/// Remarks for tiers that a preset of one's own machine has from another, as that machine has no such memory.
fn assumed_tiers(design: &Design) -> impl Iterator<Item = String> {
    design.tiers.iter().filter_map(|tier| {
        let prefix = format!("tier.{}: from ", tier.name);
        let why = design.ledger.assumed.iter().find_map(|entry| entry.strip_prefix(&prefix))?;
        Some(format!(
            "Assumed memory: the tier {} was not measured on this machine, and is that of {why}. The answer is for a machine that has it.",
            tier.name
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_sim::design::Library;

    #[test]
    fn a_tier_that_was_not_measured_is_named() {
        let mut design = Library::embedded().design("first-touch", Some("zen5-turin"), &[]).unwrap().design;
        assert_eq!(assumed_tiers(&design).count(), 0);
        design
            .ledger
            .assumed
            .push("tier.remote: from zen5-turin; one memory node could be measured here".to_owned());
        let said: Vec<String> = assumed_tiers(&design).collect();
        assert!(
            said.len() == 1
                && said[0].contains("remote was not measured on this machine, and is that of zen5-turin;"),
            "{said:?}"
        );
    }
}
