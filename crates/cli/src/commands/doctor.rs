//! `terrace doctor`: what this machine offers to policies.

use crate::error::CommandResult;
use crate::options::ResultOptions;
use clap::Args;
use terrace_live::doctor::{self, Document};
use terrace_live::facts::Facts;
use terrace_live::kernel::Linux;
use terrace_live::measure::measure_all;

const EXAMPLES: &str = "\
Examples:
  terrace doctor
  sudo terrace doctor                      as root, more can be seen and used
  terrace doctor --measure                 with each node's latency, bandwidth
  terrace doctor --json - | jq '.policies[] | select(.verdict == \"runs\").name'
  terrace doctor --json - | jq -r '.findings[] | select(.state != \"ok\").enable'";

/// Show what this machine and its kernel offer, and which policies can run here
///
/// Lists NUMA nodes and memory tiers, page sizes, what shows a program's
/// accesses, what moves pages, compressed memory, control groups and
/// privileges; then every policy, and what those lack that cannot run. Each
/// line says ok, off, missing, unknown or in use (by someone else). Below what
/// is not ok stands a command or a kernel option that would change that.
///
/// Nothing is changed, and no file is written. What can only be found by a
/// trial is tried on terrace itself. The commands are yours to run; read them
/// first, they change the machine for all its users.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Measure latency and bandwidth of every node's memory, about a second
    /// each. Takes 256 MiB of each for that time, and its processors
    #[arg(long)]
    measure: bool,
    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let facts = Facts::discover(&Linux);
    let measured = if arguments.measure { measure_all(&Linux, &facts.nodes) } else { Vec::new() };
    let diagnosis = doctor::diagnose(&facts, &measured);
    arguments.results.write_rows(&Document::of(&facts, &measured, &diagnosis), "findings")?;
    arguments.results.print(|| diagnosis.to_text())
}
