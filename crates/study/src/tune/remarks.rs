//! What to know before a tuned setting is relied upon.

use super::result::{CheckResult, TunedParameter};
use super::{Ground, NO_MATTER, Setting, Tuning};
use crate::bench::Trial;
use crate::figures::{self, tenth};
use crate::periods::{self, FEW_PERIODS};
use crate::{hypervisor, partial};
use terrace_sim::Fidelity;

impl Tuning<'_> {
    pub(super) fn remarks(
        &self,
        setting: &Setting,
        best: &Trial,
        gain: f64,
        parameters: &[TunedParameter],
        checks: &[CheckResult],
        ground: &Ground<'_>,
    ) -> Vec<String> {
        let mut remarks = partial::remarks(&best.record.notes);
        let guest = hypervisor::remark_with_resized_tiers(&self.all_fast.design.design, Fidelity::Full);
        remarks.extend(guest.map(|what| format!("Guest: {what}.")));
        let job = self.job(setting, ground.resident).ok();
        let period = job.and_then(|job| periods::longest_period(&job.design.design, self.settings));
        let seconds = best.record.seconds_simulated;
        if let Some(period) = period.filter(|period| seconds / period < FEW_PERIODS) {
            remarks.push(format!(
                "Too short: {} are simulated, {:.1} periods of the tuned setting ({}). It is fitted to a beginning; record \
                 more, or divide the periods with --time-scale.",
                figures::time(seconds),
                seconds / period,
                figures::time(period),
            ));
        }
        if best.tiering.policy.is_some_and(|work| work.copied_bytes == 0) {
            remarks.push(
                "The tuned setting moves nothing: the best that was found is where pages were first touched."
                    .to_owned(),
            );
        }
        if let Some(slowdown) = self.asked.slowdown.filter(|slowdown| best.slowdown() > *slowdown) {
            remarks.push(format!("No setting that was tried stays within {}.", tenth(slowdown)));
        }
        let better = parameters.iter().flat_map(|p| p.sensitivity.iter().map(move |one| (p, one)));
        let better =
            better.filter_map(|(p, one)| Some((p, one, one.change?))).min_by(|a, b| a.2.total_cmp(&b.2));
        if let Some((parameter, one, change)) = better.filter(|(_, _, change)| *change < -NO_MATTER) {
            remarks.push(format!(
                "Not at its end: {}={} alone saves another {}; more --runs may find more.",
                parameter.name,
                one.value,
                tenth(-change)
            ));
        }
        let losers: Vec<&str> =
            checks.iter().filter(|check| check.gain < -NO_MATTER).map(|check| check.input.as_str()).collect();
        if !losers.is_empty() {
            remarks.push(format!(
                "Fitted to its input: on {} the tuned setting is worse than the defaults.",
                losers.join(" and ")
            ));
        } else if let Some(least) = checks
            .iter()
            .map(|check| check.gain)
            .min_by(f64::total_cmp)
            .filter(|least| *least < gain / 2.0 && gain > NO_MATTER)
        {
            remarks.push(format!(
                "Of the gain of {}, {} is left on the inputs it was not tuned on.",
                tenth(gain),
                tenth(least.max(0.0))
            ));
        }
        if self.asked.changes.time_scale > 1 {
            remarks.push(format!(
                "Time scale: the runs divide the periods shown, and the amounts per period, by {}.",
                self.asked.changes.time_scale
            ));
        }
        if checks.is_empty() {
            remarks.push("Not checked: give inputs that it was not tuned on with --check.".to_owned());
        }
        remarks
    }
}
