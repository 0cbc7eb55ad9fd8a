//! `terrace memory`: memories that have aged, in files.

use crate::error::{Blame, CommandResult, Failure};
use crate::options::{DesignOptions, ResultOptions};
use crate::output::{self, OutputFile};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use terrace_sim::Snapshot;
use terrace_study::aging::{self, AgedMemory};

const EXAMPLES: &str = "\
Examples:
  terrace memory age -o aged.mem --machine skylake-6140 \\
      --set tier.dram.capacity=\"4 GiB\" --set os.memory.max_order=10 \\
      --set os.memory.free_lists=last-freed-first \\
      --set os.memory.grouping=true \\
      --set os.memory.aging.kind=page-cache \\
      --set os.memory.aging.dropped=0.2 --set os.memory.aging.fmfi=0.95
  terrace memory show aged.mem --svg aged.svg
  terrace sim --design trident --workload gups,bytes=512MiB,updates=1e6 \\
      --machine skylake-6140 \\
      --set tier.dram.capacity=\"4 GiB\" --set os.memory.max_order=10 \\
      --set os.memory.free_lists=last-freed-first \\
      --set os.memory.grouping=true \\
      --set os.memory.aging.kind=snapshot \\
      --set os.memory.aging.file=aged.mem

A run that begins with a saved memory needs the capacity and the os.memory keys
that it was saved with.";

/// Age a memory once and keep it in a file, or look at one
///
/// Large pages and contiguity are worth what free memory is like. A memory that
/// has served other programs is fragmented; os.memory.aging says how it came to
/// that. Aging takes longer than many runs: saved, it is done once.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Age the first tier's memory as os.memory.aging says, and save it
    Age(AgeArguments),
    /// Show how a saved memory is fragmented
    Show(ShowArguments),
}

#[derive(Debug, Args)]
struct AgeArguments {
    /// The file to write; what stands there is replaced when all is done
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: OutputFile,

    /// The design whose memory ages: a name of `terrace design list` or
    /// `terrace policy list`, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "native-4k", help_heading = "Design")]
    design: String,

    #[command(flatten)]
    designs: DesignOptions,

    /// Divide the tier's capacity by N, for runs with the same --scale
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Design",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(terrace_sim::design::LARGEST_SCALE)))]
    scale: u32,

    #[command(flatten)]
    results: ResultOptions,
}

#[derive(Debug, Args)]
struct ShowArguments {
    /// A file that `terrace memory age` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Draw what lies where
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<OutputFile>,

    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    match arguments.action {
        Action::Age(arguments) => age(&arguments),
        Action::Show(arguments) => show(&arguments),
    }
}

fn age(arguments: &AgeArguments) -> CommandResult {
    let snapshot = aging::age(&arguments.design, &arguments.designs.changes(), arguments.scale)?;
    let mut content = Vec::new();
    snapshot.write(&mut content)?;
    terrace_report::write_atomically(&arguments.output, &content).or_run()?;
    tell(&AgedMemory::of(&snapshot, &arguments.output)?, &arguments.results)
}

fn show(arguments: &ShowArguments) -> CommandResult {
    let snapshot = Snapshot::read(&arguments.file).map_err(Failure::usage)?;
    let memory = AgedMemory::of(&snapshot, &arguments.file)?;
    if let Some(path) = &arguments.svg {
        output::write_text(path, &aging::picture(&snapshot, &arguments.file)?.to_svg())?;
    }
    tell(&memory, &arguments.results)
}

fn tell(memory: &AgedMemory, results: &ResultOptions) -> CommandResult {
    results.write(memory)?;
    results.print(|| memory.to_text())
}
