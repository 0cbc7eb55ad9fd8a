//! `terrace design`: the designs, and what every parameter of one is.

use crate::error::{Blame, CommandResult, Failure};
use crate::options::{DesignOptions, ResultOptions};
use crate::output;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::fmt::Write;
use terrace_sim::design::{Library, Parameter, Resolved};

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
        Action::List(results) => list(ListKind::Design, &results),
        Action::Show { name, options, results } => {
            let changes = options.changes();
            changes.check_names([name.as_str()])?;
            show("design", &changes.resolve(&name, None)?.design, &results)
        }
    }
}

/// Which of the two kinds of presets.
pub enum ListKind {
    /// Machines.
    Machine,
    /// Designs.
    Design,
}

#[derive(Serialize)]
struct ListDocument {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    machines: Vec<ListEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    designs: Vec<ListEntry>,
}

#[derive(Serialize)]
struct ListEntry {
    name: String,
    summary: String,
}

/// Lists the presets of one kind.
pub fn list(kind: ListKind, results: &ResultOptions) -> CommandResult {
    let library = Library::embedded();
    let entries = match kind {
        ListKind::Machine => library.machine_names(),
        ListKind::Design => library.design_names(),
    };
    let entries: Vec<ListEntry> =
        entries.into_iter().map(|listed| ListEntry { name: listed.name, summary: listed.summary }).collect();
    let text = output::two_columns(entries.iter().map(|e| (e.name.as_str(), e.summary.as_str())));
    let (rows, document) = match kind {
        ListKind::Machine => ("machines", ListDocument { machines: entries, designs: Vec::new() }),
        ListKind::Design => ("designs", ListDocument { machines: Vec::new(), designs: entries }),
    };
    results.write_rows(&document, rows)?;
    results.print(|| text)
}

#[derive(Serialize)]
struct ShowDocument<'a> {
    name: &'a str,
    summary: &'a str,
    machine: &'a str,
    parameters: Vec<ShowParameter<'a>>,
    ledger: Ledger<'a>,
}

#[derive(Serialize)]
struct ShowParameter<'a> {
    key: &'a str,
    value: &'a str,
    origin: &'a str,
}

#[derive(Serialize)]
struct Ledger<'a> {
    calibrated: &'a [String],
    assumed: &'a [String],
    cited: &'a [String],
}

/// Columns of the output.
const WIDTH: usize = 80;

/// Shows a resolved machine or design.
pub fn show(kind: &str, resolved: &Resolved, results: &ResultOptions) -> CommandResult {
    let design = &resolved.design;
    let ledger = &design.ledger;
    if results.is_wanted() {
        let parameters = resolved
            .parameters
            .iter()
            .map(|p| ShowParameter { key: &p.key, value: &p.value, origin: &p.origin })
            .collect();
        let document = ShowDocument {
            name: &design.name,
            summary: &design.summary,
            machine: &design.machine,
            parameters,
            ledger: Ledger { calibrated: &ledger.calibrated, assumed: &ledger.assumed, cited: &ledger.cited },
        };
        results.write_rows(&document, "parameters")?;
    }
    if results.owns_stdout() {
        return Ok(());
    }

    let mut text = output::hanging("", &format!("{kind} {}: {}", design.name, design.summary), WIDTH - 2);
    if kind == "design" {
        let _ = writeln!(text, "machine {}", design.machine);
    }
    let _ = writeln!(text, "\nParameters (value, where it comes from):");
    let key_width = resolved.parameters.iter().map(|p| p.key.len()).max().unwrap_or(0);
    let value_width = resolved.parameters.iter().map(|p| p.value.chars().count()).max().unwrap_or(0).min(20);
    for Parameter { key, value, origin } in &resolved.parameters {
        let line = format!("  {key:key_width$}  {value:value_width$}  {origin}");
        if line.trim_end().chars().count() <= WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            continue;
        }
        // What does not fit goes below, to the right.
        for (at, part) in output::wrap(&format!("{key}  {value}"), WIDTH - 2).iter().enumerate() {
            let _ = writeln!(text, "{}{part}", if at == 0 { "  " } else { "      " });
        }
        let _ = writeln!(text, "{origin:>WIDTH$}");
    }
    let ledgers = [
        ("Calibrated: fitted to published rows, so no prediction", &ledger.calibrated),
        ("Assumed: left out by the source", &ledger.assumed),
        ("Cited", &ledger.cited),
    ];
    for (heading, entries) in ledgers {
        if entries.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{heading}:");
        for entry in entries {
            for (line, part) in output::wrap(entry, 74).iter().enumerate() {
                let _ = writeln!(text, "  {} {part}", if line == 0 { "-" } else { " " });
            }
        }
    }
    output::print(&text)
}

/// Shows a machine with its own operating system's settings.
pub fn show_machine(name: &str, results: &ResultOptions) -> CommandResult {
    let library = Library::embedded();
    if library.design_names().iter().any(|design| design.name == name) {
        return Err(Failure::usage(format!("{name} is a design; see `terrace design show {name}`")));
    }
    let resolved = library.design(name, None, &[]).or_usage()?;
    show("machine", &resolved, results)
}
