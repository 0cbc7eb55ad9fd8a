//! `terrace diff`: what changed between two sets of results.

use crate::error::{CommandResult, Failure};
use crate::options::ResultOptions;
use clap::Args;
use std::path::PathBuf;
use terrace_study::difference::difference;
use terrace_study::shares::parse_share;

const EXAMPLES: &str = "\
Examples:
  terrace compare native-4k native-thp --workload kv -o before
  terrace compare native-4k native-thp --workload kv -o after   # a new version
  terrace diff before after
  terrace diff before after --fail-on 2%    # exits with 1 if slower

Simulated runs repeat to the last digit, so every difference has a cause:
another program, design, machine or version of Terrace. Recordings of a program
differ a little each time; compare them from one trace.";

/// Show what changed between two sets of results
///
/// Compares runs of the same design, machine and input: their simulated time,
/// the parameters that differ, and the statistics that changed most.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Results of before: a results.json, or the folder of a comparison or sweep
    before: PathBuf,

    /// Results of now
    after: PathBuf,

    /// Exit with 1 if a run takes longer by more than SHARE, or is no longer
    /// there
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    fail_on: Option<f64>,

    /// So many statistics for each run
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Output")]
    statistics: usize,

    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the subcommand.
pub fn run(arguments: &Arguments) -> CommandResult {
    let result = difference(&arguments.before, &arguments.after)?;
    arguments.results.write_rows(&result, "runs")?;
    arguments.results.print(|| result.to_text(arguments.statistics))?;
    let Some(share) = arguments.fail_on else { return Ok(()) };
    result.check_times()?;
    let slower = result.slower_by(share).count();
    match (slower, result.only_before.len()) {
        (0, 0) => Ok(()),
        (0, 1) => Err(Failure::run("1 run is no longer there")),
        (0, gone) => Err(Failure::run(format!("{gone} runs are no longer there"))),
        (slower, _) => Err(Failure::run(format!(
            "{slower} of {} runs take longer by more than {:.3} %",
            result.runs.len(),
            share * 100.0
        ))),
    }
}
