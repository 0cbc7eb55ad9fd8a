//! Several designs over the same inputs, side by side.

use crate::conclusion::{self, Conclusion};
use crate::{InputSummary, RunRecord, SpeedUp};

/// What `terrace compare` found. Every output is made from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Heading of the page.
    pub title: String,
    /// The command that repeats the comparison.
    pub command: String,
    /// Date, `YYYY-MM-DD`.
    pub date: String,
    /// Version of Terrace.
    pub tool_version: String,
    /// The inputs, in the order of display.
    pub inputs: Vec<InputSummary>,
    /// The runs, in the order of display within each input.
    pub runs: Vec<RunRecord>,
    /// Name of the design that speed-ups refer to.
    pub baseline: String,
    /// Price of a tier's memory over that of the fastest tier, by the tier's name; empty where cost is not asked for.
    pub prices: Vec<(String, f64)>,
    /// Runs that were asked for and have no result, and why, a sentence each.
    pub failures: Vec<String>,
    /// What the constants of the simulated machines rest on.
    pub machines: Vec<MachineLedger>,
}

/// What the constants of a machine rest on: entries of the form `key, key: why`.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct MachineLedger {
    /// The machine.
    pub name: String,
    /// Constants from data sheets, publications or measurements.
    pub cited: Vec<String>,
    /// Fitted to published rows.
    pub calibrated: Vec<String>,
    /// Without a source.
    pub assumed: Vec<String>,
    /// Between which values a measured constant lay, `key = lowest .. highest`.
    pub spread: Vec<String>,
}

impl Comparison {
    /// Names of the inputs that have a run or a summary, in the order of display.
    pub fn input_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.inputs.iter().map(|i| &i.name).chain(self.runs.iter().map(|r| &r.input)) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// The runs of one input, in the order of display.
    pub fn runs_of<'a>(&'a self, input: &'a str) -> impl Iterator<Item = &'a RunRecord> {
        self.runs.iter().filter(move |run| run.input == input)
    }

    /// The run that the others of this input are compared with: that of the baseline design, or the first where the
    /// baseline has no run (a comparison that was interrupted).
    pub fn baseline_of(&self, input: &str) -> Option<&RunRecord> {
        let named = self.runs.iter().find(|run| run.input == input && run.design == self.baseline);
        named.or_else(|| self.runs.iter().find(|run| run.input == input))
    }

    /// How many times faster than the baseline a run of the comparison is, and between which values that lies; `None` unless
    /// both are timed.
    pub fn speedup_of(&self, run: &RunRecord) -> Option<SpeedUp> {
        let baseline = self.baseline_of(&run.input)?;
        let uncertainty = run.uncertainty.filter(|_| run.design != baseline.design);
        Some(SpeedUp::new(run.speedup_over(baseline)?, uncertainty))
    }

    /// The winner and the reason, per input and over all of them, derived from the runs.
    pub fn conclusions(&self) -> Vec<Conclusion> {
        conclusion::conclude(self)
    }

    /// The summary of one input.
    pub(crate) fn summary_of(&self, input: &str) -> Option<&InputSummary> {
        self.inputs.iter().find(|summary| summary.name == input)
    }
}
