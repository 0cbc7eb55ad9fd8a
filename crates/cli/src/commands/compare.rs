//! `terrace compare`: several designs on the same inputs.

use crate::error::{Blame, CommandResult, Failure};
use crate::input;
use crate::options::{
    DesignOptions, HintsOption, InputOptions, MixOption, PriceOption, RecordingOptions, ResultOptions,
    SimulationOptions,
};
use crate::output::{self, OutputFolder};
use crate::progress::{self, Terminal};
use crate::provenance;
use clap::Args;
use terrace_report::Charset;
use terrace_sim::design::DEFAULT_MACHINE;
use terrace_study::shares::parse_fast_share;
use terrace_study::{Comparison, Progress};

const EXAMPLES: &str = "\
Examples:
  terrace compare                          the built-in study
  terrace compare -- redis-server --port 7777
  terrace compare native-4k native-thp native-1g --trace app.trace
  terrace compare first-touch weighted-interleave --machine zen4-cxl \\
      --workload kv --workload gups,bytes=8GiB -o my-study
  terrace compare native-4k mine.toml --workload bfs --set core.count=4
  terrace compare --policies ambix,tpp,memtis --fast 25%,50%,75% \\
      --price slow=0.33 --time-scale 100 --trace app.trace
  terrace compare native-4k native-2m vbi-full --mix bzip2,mcf,perl,sqlite
  terrace compare native-4k vbi-full --mix vbi-w3 --mix vbi-w4

A command after -- runs once, under the recorder, while all designs simulate
it. Ctrl-C ends it, as it does a server, and all designs are compared on what
it did until then. Of other inputs the runs that are finished are written.";

/// Compare designs on the same inputs, and show who wins and why
///
/// Runs every design on every input, on all cores, decoding each input once.
/// Prints a table, and writes a directory with report.html (self-contained,
/// opens offline), results.json, results.csv and results.parquet. The first
/// design is the baseline of the speed-ups.
///
/// Every speed-up carries an interval: how far assumed constants and seeds
/// move it. A design wins where its interval is apart from the others'.
///
/// Without an input the four workloads of the built-in study are used, without
/// a design its six designs.
///
/// --policies and --fast compare what tiering policies make of little fast
/// memory: beside the run with everything in fast memory, the bound. The
/// report then shows where the memory lay, what it costs, and what was moved.
///
/// --mix runs several programs side by side, each in its own address space and
/// on its own cores, and each also alone on the same machine: that gives their
/// slow-downs and the weighted speed-up.
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
    #[arg(long, value_name = "SHARES", value_delimiter = ',', value_parser = parse_fast_share, help_heading = "Design")]
    fast: Vec<f64>,

    /// Leave out how far each speed-up could be off. For that, a second run of
    /// each design goes beside the first with assumed constants 25 % away (a
    /// fault, zeroing, latencies, copying), and a third with another seed where
    /// the workload or the policy has one: up to three times the work
    #[arg(long, help_heading = "Simulation")]
    no_intervals: bool,

    #[command(flatten)]
    price: PriceOption,

    #[command(flatten)]
    designs: DesignOptions,

    #[command(flatten)]
    input: InputOptions,

    #[command(flatten)]
    mixes: MixOption,

    #[command(flatten)]
    hints: HintsOption,

    #[command(flatten)]
    simulation: SimulationOptions,

    #[command(flatten)]
    recording: RecordingOptions,

    /// Directory of the report and the results
    #[arg(short, long, value_name = "DIRECTORY", default_value = "terrace-compare", help_heading = "Output")]
    output: OutputFolder,

    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the comparison.
pub fn run(arguments: Arguments) -> CommandResult {
    let terminal = Terminal::install();
    let words = arguments.design.clone();
    let mut study = Comparison::new(arguments.design)
        .policies(arguments.policies)
        .fast_shares(arguments.fast)
        .changes(arguments.designs.changes())
        .simulation(arguments.simulation.to_simulation())
        .intervals(!arguments.no_intervals)
        .hints(arguments.hints.read()?);
    for (tier, price) in arguments.price.price {
        study = study.price(tier, price);
    }
    study.check().map_err(|error| with_dashes(error.into(), &words))?;
    for input in input::prepare_with(&arguments.mixes, &arguments.input, &arguments.recording)? {
        study = study.input(input);
    }
    study.check()?;

    let mut result = study.run(&terminal)?;
    result.comparison.command = provenance::own_command();
    result.comparison.date = terrace_calibrate::today();
    let (finished, asked) = (result.comparison.runs.len(), result.asked);

    if finished > 0 {
        let report = result.comparison.write_directory(&arguments.output).or_run()?;
        let comparison = &result.comparison;
        arguments.results.write_both(|| Ok(comparison.to_json()), || Ok(comparison.columns()))?;
        if !arguments.results.owns_stdout() {
            output::print(&result.comparison.table(80, Charset::from_environment()))?;
            output::print_line(&format!("\nReport: {}", report.display()))?;
        }
    }
    if !arguments.input.command.is_empty() && arguments.designs.machine.is_none() {
        suggest_here(&result.comparison.runs);
    }
    // Last, since a program may run on after its recording ended.
    result.wait(&terminal);
    for failure in &result.failures {
        progress::note(failure);
    }
    if terminal.stop().requested() && finished < asked {
        return Err(Failure::run(format!("stopped; {finished} of {asked} runs were complete")));
    }
    match result.failures.len() {
        0 => Ok(()),
        _ if finished == asked => Err(Failure::run("all runs are complete, but the input ended badly")),
        _ => Err(Failure::run(format!("{finished} of {asked} runs succeeded"))),
    }
}

/// Suggests `--machine here` after runs that were all simulated on the default machine.
fn suggest_here(runs: &[terrace_report::RunRecord]) {
    if runs.is_empty() || runs.iter().any(|run| run.machine != DEFAULT_MACHINE) {
        return;
    }
    let first = match terrace_calibrate::preset::here() {
        Some(preset) if preset.is_file() => "",
        _ => "run `terrace calibrate`, then ",
    };
    progress::note(&format!(
        "the program ran on this machine, and was simulated on {DEFAULT_MACHINE}; for this one {first}add --machine here"
    ));
}

/// A program that was meant to be recorded is taken for a design where the dashes are missing.
fn with_dashes(failure: Failure, words: &[String]) -> Failure {
    let Failure::Usage(error) = &failure else { return failure };
    let text = error.to_string();
    let with_dashes = |at: usize| {
        let words = || words.iter().map(String::as_str);
        output::shell_join(words().take(at).chain(["--"]).chain(words().skip(at)))
    };
    let is_read = |word: &String| text.starts_with(&format!("{word}:")) && is_executable(word);
    if let Some(at) = words.iter().position(is_read) {
        return Failure::usage(format!(
            "{} is a program, not a design; did you mean `terrace compare {}`?",
            words[at],
            with_dashes(at)
        ));
    }
    let is_named = |word: &String| text.contains(&format!("no machine, design or policy \"{word}\";"));
    match words.iter().position(is_named) {
        Some(at) if is_program(&words[at]) => Failure::usage(format!(
            "there is no design \"{}\"{}; to record a program, put -- before it: terrace compare {}",
            words[at],
            text.split_once("; did you mean ")
                .map_or(String::new(), |(_, near)| format!(" (did you mean {near})")),
            with_dashes(at)
        )),
        _ => failure,
    }
}

/// Whether this is the path of a file that can be run.
fn is_executable(word: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let is_run = |data: std::fs::Metadata| data.is_file() && data.permissions().mode() & 0o111 != 0;
    word.contains('/') && !word.ends_with(".toml") && std::fs::metadata(word).is_ok_and(is_run)
}

/// Whether the search path has such a file.
fn is_program(word: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(word).is_file())
}
