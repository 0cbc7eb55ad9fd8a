//! Whether a run is long enough to judge a policy by that acts in periods.

use crate::designs::LARGEST_TIME_SCALE;
use crate::figures;
use crate::simulation::Settings;
use terrace_model::text::grouped;
use terrace_model::{PageSize, Stats};
use terrace_report::RunRecord;
use terrace_sim::design::Design;

/// A run holds at least so many periods of its policy before it says what the policy does in the long run.
pub const FEW_PERIODS: f64 = 10.0;

/// What a note of too few samples says of their number.
const SAMPLED: &str = " in the whole run";

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

/// What to know where a policy that decides by sampled accesses had too few `samples` of them in the whole run: so few that
/// it never decided, or fewer than one for each page that is mapped. It ranks pages by their counts, and with fewer most of
/// them have none.
pub(crate) fn too_few_samples(
    design: &Design,
    stats: &Stats,
    samples: u64,
    settings: &Settings<'_>,
) -> Option<String> {
    let design = settings.scaled(design).ok()?;
    let policy = design.os.policy.as_ref()?;
    let entry = terrace_policy::find(&policy.name).ok()?;
    let first = entry.decides_after(&policy.parameters).ok()??;
    let mapped = |size: PageSize| stats.integer(&format!("os.peak_resident_bytes.{size}")) / size.bytes();
    let pages: u64 = PageSize::ALL.into_iter().map(mapped).sum();
    let reason = match samples {
        few if few < first => format!(", and acts by them from {} on", grouped(first)),
        few if few < pages => format!(", fewer than the {} pages in use", grouped(pages)),
        _ => return None,
    };
    let accesses = if samples == 1 { "access" } else { "accesses" };
    Some(format!(
        "{} sampled {} {accesses}{SAMPLED}{reason}: too few to judge it by; simulate more, or sample more often with a smaller \
         os.policy.sample_period, which --time-scale leaves as it is",
        policy.name,
        grouped(samples),
    ))
}

/// Whether a note of a run is that of [`too_few_samples`].
pub(crate) fn is_of_samples(note: &str) -> bool {
    note.contains(" sampled ") && note.contains(SAMPLED)
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
    fn a_run_has_a_sample_for_each_page_and_enough_to_decide_by() {
        use crate::designs::Setting;
        use crate::progress::Silent;
        use crate::{Changes, Simulation};
        let settings = Settings::new(Simulation::default(), &Silent);
        let note = |policy: &str, samples, sizes: &[(&str, u64)]| {
            let changes = Changes {
                sets: vec![Setting::of_all("os.policy.sample_period", "64")],
                ..Changes::default()
            };
            let design = changes.resolve(policy, None).unwrap().design.design;
            let mut stats = Stats::new();
            for (size, bytes) in sizes {
                stats.level(format!("os.peak_resident_bytes.{size}"), *bytes, terrace_model::Unit::Bytes);
            }
            too_few_samples(&design, &stats, samples, &settings).unwrap_or_default()
        };
        let base = [("4k", 40 << 20)];
        assert!(
            note("hemem", 3, &base)
                .contains("hemem sampled 3 accesses in the whole run, and acts by them from 4 on: too")
        );
        assert!(
            note("hemem", 10_239, &base)
                .contains("10,239 accesses in the whole run, fewer than the 10,240 pages in use: too")
        );
        assert_eq!(note("hemem", 10_240, &base), "");
        assert_eq!(note("hemem", 20, &[("2m", 40 << 20)]), "", "pages as they are mapped");
        assert!(note("memtis", 99_999, &base).contains("and acts by them from 100,000 on"));
        assert_eq!(note("memtis", 100_000, &base), "");
        assert!(is_of_samples(&note("memtis", 5, &base)) && !is_of_samples(&note("memtis", 100_000, &base)));
    }

    #[test]
    fn a_time_scale_that_no_command_takes_is_not_suggested() {
        assert_eq!(longer("record more", 1, 2.0), "record more, or try --time-scale 10");
        assert_eq!(longer("record more", 100_000, 2.0), "record more, or try --time-scale 1000000");
        assert_eq!(longer("record more", 200_000, 2.0), "record more");
        assert_eq!(longer("record more", 1, 1e-9), "record more");
    }
}
