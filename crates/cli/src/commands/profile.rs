//! `terrace profile`: how large and how hot the data structures of a program are, into a file of hints.

use crate::error::{CommandResult, Failure};
use crate::options::{DesignOptions, InputOptions, RecordingOptions, ResultOptions, SimulationOptions};
use crate::output::{self, OutputFile};
use crate::progress::{self, Terminal};
use crate::{input, provenance};
use clap::Args;
use terrace_study::Settings;
use terrace_study::profile::{Profiled, document, profile, table};

const EXAMPLES: &str = "\
Examples:
  terrace profile -o hints.toml -- ./app small.input
  terrace compare annotated all-fast --hints hints.toml --trace large.trace
  sudo terrace run --hints hints.toml --limit dram=2GiB -- ./app large.input
  terrace profile -o x.toml --machine gpu-gtx480 --workload gpu-xsbench
  terrace profile -o cl.toml --gpu -- ./opencl-app

A site is the call that allocates: all objects of one call are one structure.
A file holds counts and no decision, so that it serves every machine; a line
hint = \"BO\", \"CO\" or \"BW\" may be written to a site by hand.";

/// Count how hot a program's data structures are, by allocation site
///
/// The program runs under the recorder, and its loads and stores are counted by
/// the allocation that they fall in: those that are issued, and those that
/// reach memory on the simulated machine. The result is a file of hints, for
/// simulations of other inputs and for live runs.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The file to write; an existing one is replaced
    #[arg(short, long, value_name = "FILE", default_value = "hints.toml", help_heading = "Output")]
    output: OutputFile,

    #[command(flatten)]
    designs: DesignOptions,

    #[command(flatten)]
    input: InputOptions,

    #[command(flatten)]
    simulation: SimulationOptions,

    #[command(flatten)]
    recording: RecordingOptions,

    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the profile.
pub fn run(arguments: Arguments) -> CommandResult {
    // Without these there is nothing to count; buffers of a GPU have names as they are.
    let allocations = !arguments.input.command.is_empty() && !arguments.recording.gpu;
    let recording = RecordingOptions { allocations, ..arguments.recording };
    let changes = arguments.designs.changes();
    let job = changes.resolve("native-4k", None)?;
    let input = input::prepare_one(&arguments.input, &recording, "profile", "profile them one by one")?;
    let path = &arguments.output;
    let terminal = Terminal::install();
    let settings = Settings::new(arguments.simulation.to_simulation(), &terminal);
    let name = input.name.clone();
    let Profiled { hints, partial, without_place, ending } =
        profile(&job.design, input, provenance::own_command(), &settings)?;
    output::write_text(path, &hints.to_text())?;
    arguments.results.write_rows(&document(path, &hints), "sites")?;
    // Standard output belongs to the recorded program.
    table(&hints).iter().for_each(|line| progress::row(line));
    partial.iter().for_each(|remark| progress::note(remark));
    let [unknown, several] = without_place;
    if unknown > 0 {
        progress::note(&format!(
            "{unknown} of {} sites were found in no file: they are for simulations, and not placed on live Linux",
            hints.sites.len()
        ));
    }
    if several > 0 {
        progress::note(&format!(
            "{several} sites have a name that fits several places, and are not placed on live Linux either"
        ));
    }
    progress::note(&format!("{}: {} sites", path.display(), hints.sites.len()));
    match ending.wait(&name, &terminal) {
        Some(trouble) => Err(Failure::run(format!("{trouble}; the hints are kept"))),
        None => Ok(()),
    }
}
