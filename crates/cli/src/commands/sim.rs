//! `terrace sim`: one design on one input.

use crate::error::{Blame, CommandResult, Failure};
use crate::input::{self, Watched};
use crate::interrupt::Interrupt;
use crate::options::{DesignOptions, InputOptions, JsonOption, RecordingOptions, SimulationOptions};
use crate::output;
use crate::run::{self, Settings};
use clap::Args;
use terrace_report::Charset;
use terrace_sim::design::Library;

const EXAMPLES: &str = "\
Examples:
  terrace sim --design native-2m --workload gups,bytes=4GiB
  terrace sim --design vivt --machine vbi-table1 --trace app.trace
  terrace sim --design first-touch --set tier.dram.capacity=\"2 GiB\" \\
      -- sqlite3 my.db 'select count(*) from t'
  terrace sim --design native-4k --fidelity translation --workload kv \\
      --json - | jq .runs[0].stats.tlb

With a command after --, the program runs under the recorder and its events
stream into the simulator: there is no file between. Ctrl-C ends the run and
shows the statistics up to there.";

/// Simulate one design on one input
///
/// Prints the key numbers and where the cycles went. The whole statistics tree
/// goes to --json; its names are stable and carry units.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The design: a name of `terrace design list`, or a TOML file
    #[arg(long, value_name = "NAME|FILE", help_heading = "Design")]
    design: String,

    #[command(flatten)]
    designs: DesignOptions,

    #[command(flatten)]
    input: InputOptions,

    #[command(flatten)]
    simulation: SimulationOptions,

    #[command(flatten)]
    recording: RecordingOptions,

    #[command(flatten)]
    json: JsonOption,
}

/// Carries out the run.
pub fn run(arguments: Arguments) -> CommandResult {
    let machine = arguments.designs.machine.as_deref();
    let design =
        Library::embedded().design(&arguments.design, machine, &arguments.designs.sets).or_usage()?;
    let mut inputs = input::prepare(&arguments.input, &arguments.recording)?;
    let input = match inputs.len() {
        1 => inputs.remove(0),
        0 => {
            return Err(Failure::usage("no input; give --trace FILE, --workload NAME or a command after --"));
        }
        n => return Err(Failure::usage(format!("sim takes one input, not {n}; compare takes several"))),
    };
    let settings = Settings {
        simulation: &arguments.simulation,
        words: [arguments.designs.to_words(), arguments.simulation.to_words()].concat(),
        interrupt: Interrupt::install(),
    };

    let name = input.name.clone();
    let command = run::repeat_command(&arguments.design, &input, &settings);
    let (mut source, ending) = input.open(&settings.interrupt)?;
    let mut watched = Watched::new(&name, source.as_mut());
    let outcome = run::simulate(&design, &name, command, &mut watched, &settings);
    drop(watched);
    drop(source);
    let run::Simulated { mut record, stopped } = outcome.or_run()?;
    if stopped {
        record.notes.push("stopped by the user before the end of the input".to_owned());
    }

    if let Some(destination) = &arguments.json.json {
        output::write_text(destination, &record.to_json())?;
    }
    if !arguments.json.owns_stdout() {
        output::print_line(&record.summary(80, Charset::from_environment()))?;
    }
    match ending.wait(&name) {
        _ if stopped => Err(Failure::run("stopped before the end of the input")),
        Some(trouble) => Err(Failure::run(trouble)),
        None => Ok(()),
    }
}
