//! What Python hands over: inputs, and how they are simulated.

use crate::errors::{exception, request};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_recorder::{Every, RecordOptions};
use terrace_sim::Fidelity;
use terrace_sim::design::LARGEST_SCALE;
use terrace_study::suite::Suite;
use terrace_study::{Changes, Input, Setting, Simulation};

/// The most that periods can be divided by, as on the command line.
const LARGEST_TIME_SCALE: u32 = 1_000_000;

/// An input as `terrace.Workload`, `terrace.Trace`, `terrace.Suite`, `terrace.Mix` and `terrace.Command` describe it; one of
/// the first five is there.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct InputSpec {
    workload: Option<String>,
    trace: Option<PathBuf>,
    suite: Option<String>,
    mix: Option<String>,
    command: Option<Vec<OsString>>,
    salvage: bool,
    skip: u64,
    limit: Option<u64>,
    every: Option<(u64, u64)>,
    end_at_limit: bool,
    region: bool,
    program_counters: bool,
    allocations: bool,
    dependences: bool,
    follow_exec: bool,
    gpu: bool,
}

impl InputSpec {
    /// The input, opened and checked.
    pub fn to_input(&self) -> PyResult<Input> {
        self.among(1)
    }

    /// One of so many inputs: where there are others, what is wrong with a trace fails the runs on it alone.
    fn among(&self, inputs: usize) -> PyResult<Input> {
        if let Some(spec) = &self.workload {
            return Input::workload(spec).map_err(|error| exception(&error));
        }
        if let Some(path) = &self.trace {
            return Input::trace_among(path, self.salvage, inputs).map_err(|error| exception(&error));
        }
        if let Some(name) = &self.suite {
            let input = Suite::of_user().and_then(|suite| suite.input(name));
            return input.map_err(|error| exception(&error));
        }
        if let Some(word) = &self.mix {
            return terrace_study::mix::parse(word, self.salvage).map_err(|error| exception(&error));
        }
        let command = self.command.as_deref().filter(|words| !words.is_empty());
        let command = command.ok_or_else(|| request("a command needs a program"))?;
        let mut input = Input::command(command, self.record_options()?);
        // A program or an emulator that is not there is for the caller to put right.
        input.prepare().map_err(|error| exception(&error))?;
        Ok(input)
    }

    fn record_options(&self) -> PyResult<RecordOptions> {
        if self.limit == Some(0) {
            return Err(request("limit: 0 leaves nothing; give at least 1"));
        }
        if self.end_at_limit && self.limit.is_none() {
            return Err(request("end_at_limit needs a limit"));
        }
        let every = match self.every {
            Some((period, length)) if length == 0 || length > period => {
                let problem = format!("LENGTH ({length}) must be between 1 and PERIOD ({period})");
                return Err(request(format!("every: {problem}")));
            }
            every => every.map(|(period, length)| Every { period, length }),
        };
        Ok(RecordOptions {
            skip: self.skip,
            limit: self.limit,
            every,
            end_at_limit: self.end_at_limit,
            region: self.region,
            dependences: self.dependences,
            program_counters: self.program_counters,
            allocations: self.allocations,
            follow_exec: self.follow_exec,
            gpu: self.gpu,
            ..RecordOptions::default()
        })
    }
}

/// Opens several inputs.
pub fn open(specs: &[InputSpec]) -> PyResult<Vec<Input>> {
    specs.iter().map(|spec| spec.among(specs.len())).collect()
}

/// Machine, changed parameters, and how closely to simulate.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Options {
    machine: Option<String>,
    sets: Vec<String>,
    time_scale: u32,
    fidelity: String,
    scale: u32,
    whole: bool,
    fast_forward: bool,
}

impl Options {
    /// The machine and the changed parameters.
    pub fn changes(&self) -> PyResult<Changes> {
        if !(1..=LARGEST_TIME_SCALE).contains(&self.time_scale) {
            return Err(request(format!(
                "time_scale: {} is not in 1..={LARGEST_TIME_SCALE}",
                self.time_scale
            )));
        }
        let machine = match self.machine.as_deref() {
            Some("here") => Some(machine_here()?),
            other => other.map(str::to_owned),
        };
        let sets = self.sets.iter().map(|text| Setting::parse(text)).collect::<Result<_, _>>();
        Ok(Changes { machine, sets: sets.map_err(request)?, time_scale: self.time_scale })
    }

    /// How closely to simulate.
    pub fn simulation(&self) -> PyResult<Simulation> {
        let levels = [Fidelity::Full, Fidelity::Translation, Fidelity::Pages];
        let level = levels.into_iter().find(|level| level.name() == self.fidelity);
        let fidelity = level.ok_or_else(|| {
            request(format!("fidelity: \"{}\" is not full, translation or pages", self.fidelity))
        })?;
        if !(1..=LARGEST_SCALE).contains(&self.scale) {
            return Err(request(format!("scale: {} is not in 1..={LARGEST_SCALE}", self.scale)));
        }
        if self.whole && self.fast_forward {
            return Err(request("whole and fast_forward exclude each other"));
        }
        Ok(Simulation { fidelity, scale: self.scale, whole: self.whole, fast_forward: self.fast_forward })
    }
}

/// The preset that `terrace calibrate` wrote.
fn machine_here() -> PyResult<String> {
    let path = terrace_calibrate::preset::here();
    match path.filter(|path| path.is_file()) {
        Some(path) => Ok(path.display().to_string()),
        None => Err(request(
            "machine here: it was not measured yet; run `terrace calibrate` first, which takes about a minute",
        )),
    }
}
