//! The studies, one function each. Python code gives them their defaults.

use crate::errors::{RunError, exception};
use crate::inputs::{self, InputSpec, Options};
use crate::own::OwnSpec;
use crate::policy::Failure;
use crate::results::{Comparison, Run};
use crate::wait::carry_out;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Instant;
use terrace_study::advise::Advise;
use terrace_study::pages::AdvisePages;
use terrace_study::profile as structures;
use terrace_study::record::{Recorded, write_trace};
use terrace_study::reproduce as claims;
use terrace_study::tune::Tune;
use terrace_study::{Settings, Stop, Trained, Watched, run};

/// Designs, and policies with their bound, on the same inputs.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // Named in Python.
pub fn compare(
    py: Python<'_>,
    designs: Vec<String>,
    policies: Vec<String>,
    own: Vec<OwnSpec>,
    fast: Vec<f64>,
    prices: Vec<(String, f64)>,
    inputs: Vec<InputSpec>,
    options: Options,
    hints: Option<PathBuf>,
    intervals: bool,
    show: Option<Py<PyAny>>,
) -> PyResult<Comparison> {
    let failure = Failure::default();
    let own = own.iter().map(|spec| spec.to_policy(py, None, &failure, None));
    let mut study = terrace_study::Comparison::new(designs)
        .policies(policies)
        .own_policies(own.collect::<PyResult<Vec<_>>>()?)
        .fast_shares(fast)
        .changes(options.changes()?)
        .simulation(options.simulation()?)
        .hints(trained(hints)?)
        .intervals(intervals);
    for (tier, price) in prices {
        study = study.price(tier, price);
    }
    // Designs are checked before a trace is opened, as on the command line.
    study.check().map_err(|error| exception(&error))?;
    for input in inputs::open(&inputs)? {
        study = study.input(input);
    }
    let result = carry_out(py, show.as_ref(), move |progress| {
        study.check()?;
        let mut result = study.run(progress)?;
        result.wait(progress);
        Ok(result)
    })?;
    let terrace_study::ComparisonResult { mut comparison, failures, asked, .. } = result;
    comparison.failures = failures;
    Ok(Comparison { comparison, asked, raised: failure.take() })
}

/// Reads a file of hints, if there is one.
fn trained(file: Option<PathBuf>) -> PyResult<Option<Trained>> {
    file.as_deref().map(Trained::read).transpose().map_err(|error| exception(&error))
}

/// Counts the accesses of an input's data structures into a file of hints; what was counted as JSON, and why the program
/// ended badly, if it did.
#[pyfunction]
pub fn profile(
    py: Python<'_>,
    input: InputSpec,
    path: PathBuf,
    options: Options,
    command: String,
    show: Option<Py<PyAny>>,
) -> PyResult<(String, Option<String>)> {
    let simulation = options.simulation()?;
    // As `terrace profile` does.
    let job = options.changes()?.resolve("native-4k", None).map_err(|error| exception(&error))?;
    let input = input.to_input()?;
    let (hints, trouble) = carry_out(py, show.as_ref(), |progress| {
        let name = input.name.clone();
        let found = structures::profile(&job.design, input, command, &Settings::new(simulation, progress))?;
        found.write(&path)?;
        Ok((found.hints, found.ending.wait(&name, progress)))
    })?;
    let trouble = trouble.map(|trouble| format!("{trouble}; the hints are kept"));
    Ok((document(&structures::document(&path, &hints))?, trouble))
}

/// One design on one input under a policy that is an object of Python.
#[pyfunction]
pub fn run_under(
    py: Python<'_>,
    policy: OwnSpec,
    design: &str,
    input: InputSpec,
    options: Options,
    show: Option<Py<PyAny>>,
) -> PyResult<Run> {
    let (changes, simulation) = (options.changes()?, options.simulation()?);
    changes.check_names([design]).map_err(|error| exception(&error))?;
    let job = changes.resolve(design, None).map_err(|error| exception(&error))?;
    let (failure, stop) = (Failure::default(), Stop::new());
    let own = policy.to_policy(py, Some(&job.design.design.name), &failure, Some(stop.clone()))?;
    let job = job.under(&own);
    let input = input.to_input()?;
    let simulated = carry_out(py, show.as_ref(), move |progress| {
        let asked = progress.stop();
        let own = stop.clone();
        asked.on_request(move || {
            own.request();
        });
        let settings = Settings { stop, ..Settings::new(simulation, progress) };
        let (name, command) = (input.name.clone(), run::repeat_command(&job, &input, &settings));
        let (mut source, ending) = input.open(&settings)?;
        let mut watched = Watched::new(&name, source.as_mut(), progress);
        let extra = run::Extra::default();
        let simulated = run::simulate_job(&job, &name, command, &mut watched, None, &settings, extra);
        let partial = watched.partial(false);
        drop(watched);
        drop(source);
        ending.wait(&name, progress);
        let mut record = simulated?.record;
        record.notes.extend(partial);
        Ok(record)
    });
    // What Python raised says more than that the run ended.
    if let Some(error) = failure.take() {
        return Err(error);
    }
    Ok(Run { record: simulated? })
}

/// Writes a trace. Returns what came of it as JSON: accesses, bytes, seconds, and why it ended badly, if it did.
#[pyfunction]
pub fn record(
    py: Python<'_>,
    input: InputSpec,
    path: PathBuf,
    show: Option<Py<PyAny>>,
) -> PyResult<(u64, u64, f64, Option<String>)> {
    let input = input.to_input()?;
    carry_out(py, show.as_ref(), move |progress| {
        let (name, begin) = (input.name.clone(), Instant::now());
        let Recorded { summary, ending, failure, nothing } = write_trace(input, &path, progress)?;
        let seconds = begin.elapsed().as_secs_f64();
        let trouble = ending.wait(&name, progress).map(|trouble| format!("{trouble}; the trace is kept"));
        let trouble = failure.map(|error| error.to_string()).or(nothing).or(trouble);
        Ok((summary.totals.accesses, summary.file_bytes, seconds, trouble))
    })
}

/// How much memory can be slow; the answer as JSON and as text.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // Named in Python.
pub fn advise(
    py: Python<'_>,
    input: InputSpec,
    policies: Option<Vec<String>>,
    slowdown: f64,
    resolution: f64,
    seeds: u64,
    prices: Vec<(String, f64)>,
    intervals: bool,
    options: Options,
    hints: Option<PathBuf>,
    show: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    let mut question = Advise {
        changes: options.changes()?,
        simulation: options.simulation()?,
        slowdown,
        resolution,
        seeds,
        prices,
        intervals,
        hints: trained(hints)?,
        ..Advise::default()
    };
    if let Some(policies) = policies {
        question.policies = policies;
    }
    question.check().map_err(|error| exception(&error))?;
    let input = input.to_input()?;
    let answer = carry_out(py, show.as_ref(), move |progress| question.run(input, progress))?;
    Ok((document(&answer)?, answer.to_text()))
}

/// Whether huge pages are right; the answer as JSON and as text.
#[pyfunction]
pub fn advise_pages(
    py: Python<'_>,
    input: InputSpec,
    policies: Vec<String>,
    tlbs: Vec<String>,
    bloat: f64,
    intervals: bool,
    options: Options,
    show: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    let (changes, simulation) = (options.changes()?, options.simulation()?);
    let question = AdvisePages { changes, simulation, policies, tlbs, bloat, intervals };
    question.check().map_err(|error| exception(&error))?;
    let input = input.to_input()?;
    let answer = carry_out(py, show.as_ref(), move |progress| question.run(input, progress))?;
    Ok((document(&answer)?, answer.to_text()))
}

/// Searches a policy's parameters; what was found as JSON and as text.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // Named in Python.
pub fn tune(
    py: Python<'_>,
    policy: String,
    input: InputSpec,
    checks: Vec<(String, InputSpec)>,
    parameters: Vec<String>,
    ranges: Vec<(String, String, String)>,
    runs: u32,
    seed: u64,
    slowdown: Option<f64>,
    fast: f64,
    prices: Vec<(String, f64)>,
    options: Options,
    hints: Option<PathBuf>,
    show: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    let (changes, simulation) = (options.changes()?, options.simulation()?);
    let hints = trained(hints)?;
    let question =
        Tune { policy, changes, simulation, parameters, ranges, runs, seed, slowdown, fast, prices, hints };
    question.check().map_err(|error| exception(&error))?;
    let input = input.to_input()?;
    let open = |(name, spec): &(String, InputSpec)| Ok((name.clone(), spec.to_input()?));
    let checks = checks.iter().map(open).collect::<PyResult<_>>()?;
    let answer = carry_out(py, show.as_ref(), move |progress| question.run(input, checks, progress))?;
    Ok((document(&answer)?, answer.to_text()))
}

/// Runs published claims; the verdicts as JSON.
#[pyfunction]
pub fn reproduce(
    py: Python<'_>,
    words: Vec<String>,
    intervals: bool,
    show: Option<Py<PyAny>>,
) -> PyResult<String> {
    let selected = claims::select(&words).map_err(|error| exception(&error))?;
    let result = carry_out(py, show.as_ref(), move |progress| {
        claims::reproduce(&selected, intervals, None, progress)
    })?;
    if let Some(failure) = result.failures.first() {
        let count = result.failures.len();
        return Err(RunError::new_err(format!("{count} runs failed; the first: {failure}")));
    }
    document(&result)
}

/// What `--json` of the command writes.
fn document(result: &impl serde::Serialize) -> PyResult<String> {
    terrace_report::document(result).map_err(|error| RunError::new_err(error.to_string()))
}
