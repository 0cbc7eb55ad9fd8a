//! Whether a run is long enough to judge a policy by that acts in periods.

use crate::designs::LARGEST_TIME_SCALE;
use crate::figures;
use crate::simulation::Settings;
use terrace_report::RunRecord;
use terrace_sim::design::Design;

/// A run holds at least so many periods of its policy before it says what the policy does in the long run.
pub const FEW_PERIODS: f64 = 10.0;

/// The policy's longest period in seconds, as the run has it.
pub fn longest_period(design: &Design, settings: &Settings<'_>) -> Option<f64> {
    let design = settings.scaled(design).ok()?;
    let policy = design.os.policy.as_ref()?;
    let period = terrace_policy::find(&policy.name).ok()?.longest_period(&policy.parameters).ok()??;
    Some(period.as_secs())
}

/// What to know where the policy hardly came to act.
pub(crate) fn too_short(design: &Design, run: &RunRecord, settings: &Settings<'_>) -> Option<String> {
    let period = longest_period(design, settings)?;
    let periods = run.seconds_simulated / period;
    let policy = &design.os.policy.as_ref()?.name;
    (run.is_timed() && periods < FEW_PERIODS).then(|| {
        format!(
            "{policy} acts in periods of up to {}, of which the run holds fewer than {FEW_PERIODS}: too few to judge it by; {}",
            figures::time(period),
            match time_scale_for(periods) > u64::from(LARGEST_TIME_SCALE) {
                true => "simulate more",
                false => "simulate more, or shorten them with --time-scale",
            },
        )
    })
}

/// What to do so that a run which holds `periods` of its policy under this time scale holds enough: `more`, or a larger time
/// scale where there is one.
pub fn longer(more: &str, time_scale: u32, periods: f64) -> String {
    let needed = u64::from(time_scale) * time_scale_for(periods);
    match needed > u64::from(LARGEST_TIME_SCALE) {
        true => more.to_owned(),
        false => format!("{more}, or try --time-scale {needed}"),
    }
}

/// What to divide periods by so that a run which holds `periods` of them holds enough.
fn time_scale_for(periods: f64) -> u64 {
    let factor = 2.0 * FEW_PERIODS / periods.max(1e-6);
    // One digit: nobody needs 173.
    let magnitude = 10f64.powf(factor.log10().floor());
    ((factor / magnitude).ceil() * magnitude) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_scale_that_no_command_takes_is_not_suggested() {
        assert_eq!(longer("record more", 1, 2.0), "record more, or try --time-scale 10");
        assert_eq!(longer("record more", 100_000, 2.0), "record more, or try --time-scale 1000000");
        assert_eq!(longer("record more", 200_000, 2.0), "record more");
        assert_eq!(longer("record more", 1, 1e-9), "record more");
    }
}
