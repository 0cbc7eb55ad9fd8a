//! `terrace machine`: the machine presets.

use crate::commands::design::{self, ListKind};
use crate::error::CommandResult;
use crate::options::ResultOptions;
use clap::{Args, Subcommand};

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
        /// A name of `terrace machine list`, or a TOML file
        #[arg(value_name = "NAME|FILE")]
        name: String,
        #[command(flatten)]
        results: ResultOptions,
    },
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    match arguments.action {
        Action::List(results) => design::list(ListKind::Machine, &results),
        Action::Show { name, results } => design::show_machine(&name, &results),
    }
}
