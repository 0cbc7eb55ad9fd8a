//! `terrace machine`: the machine presets.

use crate::commands::design;
use crate::error::{Blame, CommandResult, Failure};
use crate::options::ResultOptions;
use clap::{Args, Subcommand};
use terrace_sim::design::Library;
use terrace_study::catalog;

const EXAMPLES: &str = "\
Examples:
  terrace machine list
  terrace machine show zen4-cxl
  terrace machine show xeon-5218-dcpmm --json - | jq .parameters";

/// List and show the machines that designs run on
///
/// A machine is cores, TLBs, caches and memory tiers. Each preset cites where
/// its numbers come from and keeps a ledger of those that were calibrated or
/// assumed. Your own: a TOML file that extends one of them.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the machine presets
    List(ResultOptions),
    /// Show every parameter of a machine, and where its value comes from
    Show {
        /// A name of `terrace machine list`, `here`, or a TOML file
        #[arg(value_name = "NAME|FILE")]
        name: String,
        #[command(flatten)]
        results: ResultOptions,
    },
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    match arguments.action {
        Action::List(results) => results.list("machines", catalog::machines()),
        Action::Show { name, results } => show(&name, &results),
    }
}

/// Shows a machine with its own operating system's settings.
fn show(name: &str, results: &ResultOptions) -> CommandResult {
    let name = crate::options::parse_machine(name).map_err(Failure::usage)?;
    catalog::check_machine(&name)?;
    let resolved = Library::embedded().design(&name, None, &[]).or_usage()?;
    design::show("machine", &resolved, results)
}
