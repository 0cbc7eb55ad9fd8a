//! `terrace restore`: puts back what a Terrace that was killed had set.

use crate::error::{Blame, CommandResult, Failure};
use crate::options::ResultOptions;
use crate::output;
use clap::Args;
use terrace_live::help;
use terrace_live::journal;
use terrace_live::kernel::Linux;
use terrace_live::server;

const EXAMPLES: &str = "\
Examples:
  sudo terrace restore
  sudo terrace restore --json -";

/// Put back the system settings that a killed Terrace left behind
///
/// Every change is noted before it is made. A run puts its own changes back when
/// it ends; after a kill -9 or a crash this command does. A setting that was
/// changed by someone else since is left alone, and said.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let mut restored = journal::restore(&Linux, &journal::folder()).or_run()?;
    let sockets = server::remove_stale(&journal::folder());
    let helpers = help::remove_stale(&help::place());
    let recorders = terrace_recorder::remove_stale();
    let removed = sockets.iter().chain(&helpers).chain(&recorders);
    restored.done.extend(removed.map(|path| format!("{} is removed", path.display())));
    if !arguments.results.owns_stdout() {
        let lines: Vec<&String> =
            restored.done.iter().chain(&restored.left).chain(&restored.failed).collect();
        for line in &lines {
            output::print_line(line)?;
        }
        if lines.is_empty() {
            output::print_line("nothing to put back")?;
        }
    }
    arguments.results.write(&restored)?;
    if restored.failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::run(format!("{} changes could not be put back; see above", restored.failed.len())))
    }
}
