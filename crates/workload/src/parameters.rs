//! What workloads' parameters share: those that many have, and values that depend on one another.
//!
//! A workload declares its parameters as a struct with `#[derive(Parameters)]`; see [`terrace_model::parameters`].

pub(crate) use terrace_model::parameters::{
    Choice, Declared, ParameterError, ParameterInfo, ParameterValue, Parameters, did_you_mean, nearest,
};

use crate::WorkloadError;
use std::ops::RangeInclusive;

/// Largest count accepted, so that sums of a few of them cannot overflow. The largest size, 32 TiB, has every layout fit
/// the 47-bit user address space.
pub(crate) const LARGEST_COUNT: u64 = 1_000_000_000_000_000;

/// Threads of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct Threads {
    /// Threads that share the work.
    #[parameter(name = "threads", default = 1, range = 1..=1024, unit = "threads")]
    pub count: u32,
}

/// The seed of a workload that draws random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct Seed {
    /// Seed of every random choice; the same seed gives the same accesses on every machine.
    #[parameter(name = "seed", default = 1, unit = "number")]
    pub number: u64,
}

/// How the arrays of a workload are initialised that exist from the start.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct Start {
    /// Initialisation before the run, a bounded stand-in for the program's own initialisation loop.
    pub init: Init,
}

/// How initialisation touches the arrays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum Init {
    /// One store for each 4 KiB page.
    #[default]
    Pages,
    /// One store for each 64 B line.
    Lines,
    /// None at all.
    None,
}

/// Iterations of workloads that are measured in the steady state.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct WarmupIterations {
    /// Iterations before the run, which are not measured: policies place the data meanwhile.
    #[parameter(name = "warmup", default = 0, range = 0..=LARGEST_COUNT, unit = "iterations")]
    pub iterations: u64,
}

/// Time to settle, of workloads that stand for programs of tens of gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct Settle {
    /// Computed by each thread between initialisation and run, so that daemons come to their work; about 2000 small pieces
    /// of the run are made meanwhile.
    #[parameter(name = "settle", default = 0, range = 0..=LARGEST_COUNT, unit = "instructions")]
    pub instructions: u64,
}

/// A parameter whose value does not go with those of others.
#[derive(Debug)]
pub(crate) struct Problem {
    key: &'static str,
    expected: String,
}

impl Problem {
    pub fn new(key: &'static str, expected: impl Into<String>) -> Problem {
        Problem { key, expected: expected.into() }
    }

    /// The error of a workload, where `value` gives the texts of its parameters.
    pub fn of(self, workload: &'static str, value: &dyn Fn(&str) -> Option<String>) -> WorkloadError {
        let Problem { key, expected } = self;
        let text = value(key).unwrap_or_default();
        let problem = ParameterError::Unreadable { key: key.to_owned(), text, expected };
        WorkloadError::Parameter { workload, problem }
    }
}

/// The value of the parameter `key`, which other parameters bound from below.
pub(crate) fn at_least<T: ParameterValue + PartialOrd>(
    key: &'static str,
    value: T,
    least: T,
) -> Result<T, Problem> {
    let text = least.text();
    if value >= least {
        Ok(value)
    } else {
        Err(Problem::new(key, format!("at least {text} with these parameters")))
    }
}

/// The value of the parameter `key`, which other parameters bound on both sides.
pub(crate) fn within<T: ParameterValue + PartialOrd>(
    key: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<T, Problem> {
    let (low, high) = (range.start().text(), range.end().text());
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(Problem::new(key, format!("{low} to {high} with these parameters")))
    }
}

/// Reads `key=value` pairs separated by commas; keys that are absent take their default.
pub(crate) fn read<P: Parameters>(workload: &'static str, text: &str) -> Result<P, WorkloadError> {
    P::read(pairs(workload, text)?).map_err(|problem| WorkloadError::Parameter { workload, problem })
}

/// The keys and values of such a text, each key once.
fn pairs<'a>(workload: &'static str, text: &'a str) -> Result<Vec<(&'a str, &'a str)>, WorkloadError> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| WorkloadError::NotAPair { workload, text: pair.to_owned() })?;
        let (key, value) = (key.trim(), value.trim());
        if pairs.iter().any(|(other, _)| *other == key) {
            return Err(WorkloadError::Twice { workload, key: key.to_owned() });
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Parameters with the values in force as defaults, as `key=value`.
pub(crate) fn resolved(parameters: Vec<ParameterInfo>) -> Vec<String> {
    let parameters = parameters.into_iter();
    parameters.map(|parameter| format!("{}={}", parameter.name, parameter.default)).collect()
}

/// The parameters of a workload as they were declared.
pub(crate) fn declared<P: Parameters>() -> Vec<ParameterInfo> {
    P::parameters()
}
