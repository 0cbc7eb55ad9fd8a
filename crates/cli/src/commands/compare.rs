//! `terrace compare`: several designs on the same inputs.

use crate::error::{Blame, CommandResult, Failure};
use crate::first_pass;
use crate::input::{self, Input};
use crate::interrupt::Interrupt;
use crate::options::{DesignOptions, InputOptions, Job, JsonOption, RecordingOptions, SimulationOptions};
use crate::run::{self, InputResult, Settings};
use crate::tiers::{self, PriceOption};
use crate::{output, progress, provenance, study};
use clap::Args;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use terrace_model::Bytes;
use terrace_report::{Charset, Comparison};

const EXAMPLES: &str = "\
Examples:
  terrace compare                          the built-in study
  terrace compare -- redis-server --port 7777
  terrace compare native-4k native-thp native-1g --trace app.trace
  terrace compare first-touch weighted-interleave --machine zen4-cxl \\
      --workload kv --workload gups,bytes=8GiB -o my-study
  terrace compare native-4k mine.toml --workload bfs --set core.count=4
  terrace compare --policies ambix,tpp,memtis --fast 25%,50%,75% \\
      --price slow=0.33 --hasten 100 --trace app.trace

A command after -- runs once, under the recorder, while all designs simulate
it. Ctrl-C ends it, as it does a server, and all designs are compared on what
it did until then. Of other inputs the runs that are finished are written.";

/// Compare designs on the same inputs, and show who wins and why
///
/// Runs every design on every input, on all cores, decoding each input once.
/// Prints a table, and writes a directory with report.html (self-contained,
/// opens offline), results.json and results.csv. The first design is the
/// baseline of the speed-ups.
///
/// Without an input the four workloads of the built-in study are used, without
/// a design its six designs.
///
/// --policies and --fast compare what tiering policies make of little fast
/// memory: beside the run with everything in fast memory, the bound. The
/// report then shows where the memory lay, what it costs, and what was moved.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Designs: names of `terrace design list`, or TOML files. The first is the
    /// baseline
    #[arg(value_name = "DESIGN")]
    design: Vec<String>,

    /// Policies of `terrace policy list`, separated by commas; first-touch, the
    /// baseline, and all-fast, the bound, come with them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Design")]
    policies: Vec<String>,

    /// Make the fastest tier this share of what the input has resident, and
    /// reserve nothing of it; several shares, separated by commas, are a sweep.
    /// Reads the input once more beforehand
    #[arg(long, value_name = "SHARES", value_delimiter = ',', value_parser = tiers::parse_fast_share, help_heading = "Design")]
    fast: Vec<f64>,

    #[command(flatten)]
    price: PriceOption,

    #[command(flatten)]
    designs: DesignOptions,

    #[command(flatten)]
    input: InputOptions,

    #[command(flatten)]
    simulation: SimulationOptions,

    #[command(flatten)]
    recording: RecordingOptions,

    /// Directory of the report and the results
    #[arg(short, long, value_name = "DIRECTORY", default_value = "terrace-compare", help_heading = "Output")]
    output: PathBuf,

    #[command(flatten)]
    json: JsonOption,
}

/// Carries out the comparison.
pub fn run(arguments: Arguments) -> CommandResult {
    let chosen = resolve_designs(&arguments)?;
    let inputs = prepare_inputs(&arguments)?;
    first_pass::check(chosen.jobs.iter().chain(&chosen.bound).map(|job| &job.design), &inputs)?;
    let prices = arguments.price.of(&chosen.jobs[0].design.design)?;
    let settings = Settings { simulation: &arguments.simulation, interrupt: Interrupt::install() };
    // A directory that cannot be written is better known before an hour of simulation than after it.
    let _created = CreatedDirectory::create(&arguments.output)
        .map_err(|error| Failure::usage(format!("{}: {error}", arguments.output.display())))?;

    let inputs = chosen.for_inputs(&arguments, inputs, &settings)?;
    let pairs = inputs.iter().map(|(_, jobs)| jobs.len()).sum::<usize>();
    let designs: Vec<String> = inputs[0].1.iter().map(|job| job.design.design.name.clone()).collect();
    let mut results = run::all_pairs(inputs, &settings);
    let endings: Vec<_> =
        results.iter_mut().map(|result| (result.name.clone(), std::mem::take(&mut result.ending))).collect();
    let (mut comparison, mut failures) = join(&arguments, &designs, results);
    comparison.prices = prices;
    let finished = comparison.runs.len();

    if finished > 0 {
        let report = comparison.write_directory(&arguments.output).or_run()?;
        if let Some(destination) = &arguments.json.json {
            output::write_text(destination, &comparison.to_json())?;
        }
        if !arguments.json.owns_stdout() {
            output::print(&comparison.table(80, Charset::from_environment()))?;
            output::print_line(&format!("\nReport: {}", report.display()))?;
        }
    }
    // Last, since a program may run on after its recording ended.
    failures.extend(endings.into_iter().filter_map(|(name, ending)| ending.wait(&name)));
    for failure in &failures {
        progress::note(failure);
    }
    if settings.interrupt.requested() && finished < pairs {
        return Err(Failure::run(format!("stopped; {finished} of {pairs} runs were complete")));
    }
    match failures.len() {
        0 => Ok(()),
        _ if finished == pairs => Err(Failure::run("all runs are complete, but the input ended badly")),
        _ => Err(Failure::run(format!("{finished} of {pairs} runs succeeded"))),
    }
}

/// A directory for results, which is removed again if nothing was written to it and it was not there before.
struct CreatedDirectory<'a> {
    path: &'a Path,
    was_there: bool,
}

impl CreatedDirectory<'_> {
    fn create(path: &Path) -> std::io::Result<CreatedDirectory<'_>> {
        let was_there = path.exists();
        std::fs::create_dir_all(path)?;
        Ok(CreatedDirectory { path, was_there })
    }
}

impl Drop for CreatedDirectory<'_> {
    fn drop(&mut self) {
        if !self.was_there {
            // Refused where something is in it, which is the usual end.
            let _ = std::fs::remove_dir(self.path);
        }
    }
}

/// What is compared, before it is fitted to an input.
struct Chosen {
    jobs: Vec<Job>,
    /// The run with everything fast, where tiering is compared.
    bound: Option<Job>,
    /// Machine of the designs, where the command line names none.
    machine: Option<&'static str>,
}

impl Chosen {
    /// The designs of each input, with the fast memory that was asked for.
    fn for_inputs(
        &self,
        arguments: &Arguments,
        inputs: Vec<Input>,
        settings: &Settings<'_>,
    ) -> Result<Vec<(Input, Vec<Job>)>, Failure> {
        let mut fitted = Vec::new();
        for input in inputs {
            let mut jobs = match &self.bound {
                Some(bound) if !arguments.fast.is_empty() => {
                    let resident = tiers::resident(bound, &input, "--fast reads its input twice", settings)?;
                    self.at_shares(arguments, resident)?
                }
                _ => self.jobs.clone(),
            };
            jobs.extend(self.bound.clone());
            fitted.push((input, jobs));
        }
        Ok(fitted)
    }

    fn at_shares(&self, arguments: &Arguments, resident: Bytes) -> Result<Vec<Job>, Failure> {
        let (options, scale) = (&arguments.designs, arguments.simulation.scale);
        let mut jobs = Vec::new();
        for job in &self.jobs {
            for &share in &arguments.fast {
                let mut sized = tiers::with_share(&job.word, share, resident, options, self.machine, scale)?;
                if arguments.fast.len() > 1 {
                    sized.design.design.name = tiers::name_at(&sized.design.design.name, share);
                }
                jobs.push(sized);
            }
        }
        Ok(jobs)
    }
}

fn resolve_designs(arguments: &Arguments) -> Result<Chosen, Failure> {
    let is_tiering = !arguments.policies.is_empty() || !arguments.fast.is_empty();
    let mut names = arguments.design.clone();
    if !arguments.policies.is_empty() {
        // A bound, or a baseline, is there once.
        names.push("first-touch".to_owned());
        names.extend(arguments.policies.clone());
        let mut seen = HashSet::new();
        names.retain(|name| name != tiers::ALL_FAST && seen.insert(name.clone()));
    } else if names.is_empty() && !is_tiering {
        names = study::DESIGNS.map(str::to_owned).into();
    }
    let machine = arguments.design.is_empty().then_some(study::MACHINE);
    let bound = is_tiering.then_some(tiers::ALL_FAST);
    arguments.designs.check_names(names.iter().map(String::as_str).chain(bound))?;
    let mut jobs: Vec<Job> = Vec::new();
    for name in names {
        let job = arguments.designs.resolve(&name, machine)?;
        let earlier = jobs.iter().find(|other| other.design.design.name == job.design.design.name);
        if let Some(Job { word: earlier, .. }) = earlier {
            return Err(Failure::usage(format!(
                "{earlier} and {name} are both named \"{}\"; a comparison needs distinct names",
                job.design.design.name
            )));
        }
        jobs.push(job);
    }
    jobs.retain(|job| !is_tiering || job.design.design.name != tiers::ALL_FAST);
    if jobs.is_empty() {
        return Err(Failure::usage("--fast needs policies or designs to compare; add --policies ambix,tpp"));
    }
    let bound = if is_tiering { Some(tiers::all_fast(&arguments.designs, machine)?) } else { None };
    if let (false, Some(bound)) = (arguments.fast.is_empty(), &bound) {
        tiers::check_capacity_is_free(bound, &arguments.designs, |key| {
            format!("--fast and --set {key} both size the fastest tier; give one")
        })?;
    }
    Ok(Chosen { jobs, bound, machine })
}

fn prepare_inputs(arguments: &Arguments) -> Result<Vec<Input>, Failure> {
    let mut inputs = input::prepare(&arguments.input, &arguments.recording)?;
    if inputs.is_empty() {
        inputs = study::INPUTS.iter().map(|spec| input::prepare_workload(spec)).collect::<Result<_, _>>()?;
    }
    // A program that runs now cannot wait; files and workloads can.
    inputs.sort_by_key(|input| !input.is_live());
    Ok(inputs)
}

fn join(arguments: &Arguments, designs: &[String], results: Vec<InputResult>) -> (Comparison, Vec<String>) {
    let mut comparison = Comparison {
        title: title(&results, designs.len()),
        command: provenance::own_command(),
        date: provenance::today(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        baseline: designs[0].clone(),
        ..Comparison::default()
    };
    tracing::debug!(output = %arguments.output.display(), "joining results");
    let mut failures = Vec::new();
    for result in results {
        failures.extend(result.failures);
        if !result.runs.is_empty() {
            comparison.inputs.extend(result.summary);
            comparison.runs.extend(result.runs);
        }
    }
    (comparison, failures)
}

fn title(results: &[InputResult], designs: usize) -> String {
    let inputs: Vec<&str> =
        results.iter().filter_map(|r| r.summary.as_ref()).map(|summary| summary.name.as_str()).collect();
    format!("{designs} designs on {}", inputs.join(", "))
}
