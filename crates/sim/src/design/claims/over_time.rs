//! What a claim can read over a run's time: the samples that results hold.
//!
//! | series | meaning |
//! |---|---|
//! | `contiguity.regions` | regions of pages that are neighbours both in an address space and in memory |
//! | `contiguity.coverage_32` | share of the pages in the 32 largest of them |
//! | `contiguity.coverage_128` | in the 128 largest |
//!
//! A result has at most 64 samples of them ([`terrace_model::Thinned`]), evenly in time. Where a policy takes none,
//! `os.sample_contiguity` has them taken.

use super::expression::When;
use super::{Expression, RunNumbers, RunSpec, suggestion};
use std::collections::BTreeMap;
use terrace_model::ContiguityPoint;

/// What is read of a sample.
type Figure = fn(&ContiguityPoint) -> f64;

const SERIES: [(&str, Figure); 3] = [
    ("contiguity.regions", |point| point.regions as f64),
    ("contiguity.coverage_32", |point| point.coverage_32),
    ("contiguity.coverage_128", |point| point.coverage_128),
];

/// Whether the runs can be sampled as an expression asks. Errors: an unknown series, a run that is not counted whole, since
/// samples are numbered by the time since the start, and one with points, each of which has a time of its own.
pub(super) fn check(expression: &Expression, runs: &BTreeMap<String, RunSpec>) -> Result<(), String> {
    let sampled = expression.metrics().into_iter().filter(|(_, _, when)| *when == When::OverTime);
    for (run, series, _) in sampled {
        let names = SERIES.map(|(name, _)| name);
        if !names.contains(&series) {
            let hint = suggestion(series, &names);
            return Err(format!("no run keeps {series} over time{hint} (there are: {})", names.join(", ")));
        }
        let Some(spec) = runs.get(run) else { continue };
        if !spec.whole {
            return Err(format!("over_time() needs the whole run: write whole = true in run.{run}"));
        }
        if !spec.points.is_empty() {
            return Err(format!("over_time() takes a run without points, and run.{run} has some"));
        }
    }
    Ok(())
}

/// The samples of a series: shares of the run's time, 0 to 1, with the numbers. Errors: a run without samples.
pub(super) fn read(numbers: &RunNumbers, series: &str) -> Result<Vec<(String, f64)>, String> {
    let (_, of) = SERIES
        .iter()
        .find(|(name, _)| *name == series)
        .ok_or_else(|| format!("no run keeps {series} over time"))?;
    if numbers.contiguity.is_empty() {
        return Err(format!(
            "the run has no samples of {series}: set os.sample_contiguity to less than its time, {:.3} s",
            numbers.seconds
        ));
    }
    let share = |point: &ContiguityPoint| (point.seconds / numbers.seconds).to_string();
    Ok(numbers.contiguity.iter().map(|point| (share(point), of(point))).collect())
}
