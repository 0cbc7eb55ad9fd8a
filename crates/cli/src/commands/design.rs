//! `terrace design`: the designs, and what every parameter of one is.

use crate::error::CommandResult;
use crate::options::{DesignOptions, ResultOptions};
use clap::{Args, Subcommand};
use terrace_sim::design::Resolved;
use terrace_study::catalog::{self, DesignPage};

const EXAMPLES: &str = "\
Examples:
  terrace design list
  terrace design show native-2m
  terrace design show vivt --machine vbi-table1
  terrace design show mine.toml --set os.pages=thp
  terrace design show first-touch --json - | jq .parameters

A design file says only what differs from what it extends:

  summary = \"a level-2 TLB of four times the entries\"
  extends = \"native-4k\"
  [[translation.l2.array]]
  sizes = [\"4k\", \"2m\"]
  entries = 6144
  ways = 12";

/// List and show the memory-management designs
///
/// A design is what the operating system does (page sizes, placement) and how
/// addresses are translated, on a machine. Any design runs on any machine.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the designs
    List(ResultOptions),
    /// Show every parameter of a design, and where its value comes from
    Show {
        /// A name of `terrace design list`, or a TOML file
        #[arg(value_name = "NAME|FILE")]
        name: String,
        #[command(flatten)]
        options: DesignOptions,
        #[command(flatten)]
        results: ResultOptions,
    },
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    match arguments.action {
        Action::List(results) => results.list("designs", catalog::designs()),
        Action::Show { name, options, results } => {
            let changes = options.changes();
            changes.check_names([name.as_str()])?;
            show("design", &changes.resolve(&name, None)?.design, &results)
        }
    }
}

/// Shows a resolved machine or design.
pub fn show(kind: &str, resolved: &Resolved, results: &ResultOptions) -> CommandResult {
    let page = DesignPage::of(resolved);
    results.write_rows(&page, "parameters")?;
    results.print(|| page.to_text(kind))
}
