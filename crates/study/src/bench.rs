//! Many runs of one input, for commands that search: designs side by side, measured against the all-fast run.

use crate::Error;
use crate::designs::Job;
use crate::first_pass;
use crate::input::Input;
use crate::run;
use crate::simulation::Settings;
use terrace_report::{Comparison, RunRecord, Tiering};

/// An input that is run again and again.
pub struct Bench<'a> {
    /// The input; never opened itself.
    pub input: &'a Input,
    /// How its runs are made.
    pub settings: &'a Settings<'a>,
    /// As [`crate::tiers::prices_of`] gives them.
    pub prices: &'a [(String, f64)],
    /// Names what runs the input repeatedly, for the message that it cannot be run again.
    pub why: &'a str,
}

/// A finished run and what it is worth.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The run.
    pub record: RunRecord,
    /// Where its memory lay; with a slowdown.
    pub tiering: Tiering,
}

impl Trial {
    /// Run time over that of the all-fast run, less 1.
    pub fn slowdown(&self) -> f64 {
        self.tiering.slowdown.unwrap_or(f64::INFINITY)
    }

    /// Share of the memory in use that is not in the fastest tier.
    pub fn slow_share(&self) -> f64 {
        self.tiering.tiers[1..].iter().map(|tier| tier.share).sum()
    }

    /// What is to be small: the cost, or where there are no prices, fast memory.
    pub fn expense(&self) -> f64 {
        self.tiering.cost.unwrap_or(self.tiering.tiers[0].share)
    }
}

impl Bench<'_> {
    /// One run per job, side by side, in their order; a run that failed says why. `doing` is shown while it takes.
    ///
    /// # Errors
    /// An input that fails or cannot be read again, a user who stopped.
    pub fn run(&self, doing: &str, jobs: Vec<Job>) -> Result<Vec<Result<RunRecord, String>>, Error> {
        let mut input = self.input.again(self.why)?;
        input.name = format!("{}, {doing}", input.name);
        first_pass::check(jobs.iter().map(|job| &job.design), std::slice::from_ref(&input), None)?;
        // Names apart, so that each finds its result.
        let named: Vec<(String, Job)> = jobs
            .into_iter()
            .enumerate()
            .map(|(at, mut job)| {
                let name = std::mem::replace(&mut job.design.design.name, format!("run {at}"));
                (name, job)
            })
            .collect();
        let jobs = named.iter().map(|(_, job)| job.clone()).collect();
        let mut results = run::all_pairs(vec![(input, jobs)], self.settings);
        if self.settings.stop.requested() {
            return Err(Error::Stopped("stopped before there was an answer".to_owned()));
        }
        let result = results.pop().unwrap_or_default();
        let mut runs: Vec<RunRecord> = result.runs;
        named
            .into_iter()
            .map(|(name, job)| {
                let own = &job.design.design.name;
                if let Some(at) = runs.iter().position(|run| run.design == *own) {
                    let mut record = runs.swap_remove(at);
                    record.design = name;
                    record.input.clone_from(&self.input.name);
                    return Ok(Ok(record));
                }
                let about = |text: &&String| {
                    text.contains(&format!("{own} on ")) || text.contains(&format!("design {own}: "))
                };
                match result.failures.iter().find(about) {
                    Some(text) => Ok(Err(reason(text, own))),
                    None => {
                        Err(Error::failed(result.failures.first().map_or("the run failed", String::as_str)))
                    }
                }
            })
            .collect()
    }

    /// The value of a run against `all_fast`.
    pub fn judge(&self, record: RunRecord, all_fast: &RunRecord) -> Trial {
        let comparison = Comparison {
            runs: vec![all_fast.clone(), record],
            prices: self.prices.to_vec(),
            ..Comparison::default()
        };
        let [_, record] = &comparison.runs[..] else { unreachable!("two runs were put in") };
        let tiering =
            comparison.tiering_of(record).expect("machines with several tiers were asked for, and time");
        Trial { record: record.clone(), tiering }
    }
}

/// A failure without the run's invented name.
fn reason(text: &str, own: &str) -> String {
    let text = text.rsplit_once(&format!("design {own}: ")).map_or(text, |(_, reason)| reason);
    text.trim_start_matches(own).trim_start_matches(" on ").to_owned()
}
