//! `terrace sim`: one design on one input.

use crate::error::{CommandResult, Failure};
use crate::input;
use crate::options::{
    DesignOptions, HintsOption, InputOptions, MixOption, RecordingOptions, ResultOptions, SimulationOptions,
};
use crate::output::{self, OutputFile};
use crate::progress::Terminal;
use clap::{Args, ValueEnum};
use terrace_report::{Charset, Columns};
use terrace_study::record::left_out_by_options;
use terrace_study::{
    Settings, Watched, access_picture, first_pass, hypervisor, memory_picture, migrations, mix,
    placement_picture, run,
};

const EXAMPLES: &str = "\
Examples:
  terrace sim --design native-2m --workload gups,bytes=4GiB
  terrace sim --design vivt --machine vbi-table1 --trace app.trace
  terrace sim --design first-touch --set tier.dram.capacity=\"2 GiB\" \\
      -- sqlite3 my.db 'select count(*) from t'
  terrace sim --design ambix --set os.policy.period=\"1 s\" \\
      --trace app.trace
  terrace sim --design native-2m --mix mcf,gups,bytes=1GiB,bfs
  terrace sim --microbenchmark migration --machine haswell-2650v3
  terrace sim --design native-4k --fidelity translation --workload kv \\
      --json - | jq .runs[0].stats.tlb

With a command after --, the program runs under the recorder and its events
stream into the simulator: there is no file between. Ctrl-C ends the run and
shows the statistics up to there.";

/// Simulate one design on one input
///
/// A policy is a design too: its name stands for 4 KiB pages on the default
/// machine under that policy; os.policy.KEY sets its parameters.
///
/// Prints the key numbers and where the cycles went. The whole statistics tree
/// goes to --json; its names are stable and carry units.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The design: a name of `terrace design list` or `terrace policy list`, or
    /// a TOML file
    #[arg(
        long,
        value_name = "NAME|FILE",
        help_heading = "Design",
        required_unless_present = "microbenchmark"
    )]
    design: Option<String>,

    /// Run no program: measure what one mechanism of the design's machine
    /// reaches by itself
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Input", conflicts_with_all = [
        "trace", "workload", "suite", "mix", "command", "salvage", "hints", "fidelity", "scale", "whole", "fast_forward",
        "memory_map", "placement_map", "access_picture"])]
    microbenchmark: Option<Microbenchmark>,

    #[command(flatten)]
    designs: DesignOptions,

    #[command(flatten)]
    input: InputOptions,

    #[command(flatten)]
    mixes: MixOption,

    #[command(flatten)]
    hints: HintsOption,

    #[command(flatten)]
    simulation: SimulationOptions,

    #[command(flatten)]
    recording: RecordingOptions,

    /// Draw what lies where in memory, before the program and at its end: who
    /// holds each frame, in pages of which size
    #[arg(long, value_name = "SVG", help_heading = "Output")]
    memory_map: Option<OutputFile>,

    /// Draw where memory lies over simulated time: by address, what is accessed
    /// and in which tier it is; what moves; what share of the accesses the first
    /// tier serves
    #[arg(long, value_name = "SVG", help_heading = "Output")]
    placement_map: Option<OutputFile>,

    /// Draw one access step by step: what is looked up and read for it, when,
    /// and where the answers come from
    #[arg(long, value_name = "SVG", help_heading = "Output")]
    access_picture: Option<OutputFile>,

    /// The access to draw, counted from 1 on; in the region of interest where
    /// the input marks one
    #[arg(
        long,
        value_name = "NUMBER",
        help_heading = "Output",
        default_value_t = 1,
        requires = "access_picture",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    access: u64,

    #[command(flatten)]
    results: ResultOptions,
}

/// What can be measured without a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Microbenchmark {
    /// Moving pages from the second tier to the first: base and huge pages,
    /// threads, pages in flight, exchange
    Migration,
}

/// Carries out the run.
pub fn run(arguments: Arguments) -> CommandResult {
    let design = arguments.design.as_deref().unwrap_or("first-touch");
    let changes = arguments.designs.changes();
    changes.check_names([design])?;
    let simulation = arguments.simulation.to_simulation();
    let changes = hypervisor::under(&changes, [design], None, simulation.fidelity)?;
    let job = changes.resolve(design, None)?;
    changes.note_unused(std::slice::from_ref(&job));
    if let Some(Microbenchmark::Migration) = arguments.microbenchmark {
        let found = migrations::measure(&job.design.design)?;
        arguments.results.write_rows(&found, "rows")?;
        return arguments.results.print(|| found.to_text());
    }
    let inputs = input::prepare_with(&arguments.mixes, &arguments.input, &arguments.recording)?;
    let input = input::one_of(inputs, "sim", "compare takes several")?;
    let terminal = Terminal::install();
    let hints = arguments.hints.read()?;
    first_pass::check(std::iter::once(&job.design), std::slice::from_ref(&input), hints.as_ref())?;
    let settings = Settings { hints, ..Settings::new(simulation, &terminal) };

    let name = input.name.clone();
    let command = run::repeat_command(&job, &input, &settings);
    let profile = first_pass::profiles(std::iter::once(&job.design), &input, &settings)?.pop().flatten();
    let (stop, is_live, words) = (input.stop(&settings.stop), input.is_live(), input.words());
    let mix =
        (!input.programs().is_empty()).then(|| input.again("its programs also run alone")).transpose()?;
    let (mut source, ending) = input.open_ahead(&settings)?;
    let asked = settings.stop.clone();
    let settings = Settings { stop, ..settings };
    let mut watched = Watched::new(&name, source.as_mut(), &terminal);
    let extra = run::Extra {
        memory_map: arguments.memory_map.is_some(),
        placement_map: arguments.placement_map.is_some(),
        access: arguments.access_picture.is_some().then_some(arguments.access),
        ..run::Extra::default()
    };
    let outcome = run::simulate(&job.design, &name, command, &mut watched, profile, &settings, extra);
    let partial = watched.partial(is_live && asked.requested());
    let is_empty = is_live && watched.accesses() == 0 && !asked.requested();
    drop(watched);
    drop(source);
    let run::Simulated { mut record, stopped, memory_map, placement_map, access, .. } = match outcome {
        Ok(simulated) => simulated,
        Err(error) => {
            if is_live {
                // The program goes on, and may for long.
                crate::progress::note(&format!("the simulation ends here: {error}"));
            }
            ending.wait(&name, &terminal);
            return Err(terrace_study::Error::from(error).into());
        }
    };
    if let Some(why) = left_out_by_options(&words).filter(|_| is_empty) {
        return Err(Failure::run(format!("{name}: {why}")));
    }
    record.notes.extend(hypervisor::remark(&job.design.design, simulation.fidelity));
    record.notes.extend(partial);
    if stopped {
        record.notes.push("stopped by the user before the end of the input".to_owned());
    } else if let Some(mix) = &mix {
        let failures = mix::compare_with_alone(&mut record, mix, &job, &settings)?;
        failures.iter().for_each(|failure| crate::progress::note(failure));
    }

    if let (Some(path), Some(map)) = (&arguments.memory_map, &memory_map) {
        let title = format!("{} on {name}", record.design);
        let subtitle = format!("{}, physical memory by its holders", record.machine);
        output::write_text(path, &memory_picture::of_run(&title, &subtitle, map).to_svg())?;
    }
    if let (Some(path), Some(map)) = (&arguments.placement_map, &placement_map) {
        let title = format!("{} on {name}", record.design);
        output::write_text(path, &placement_picture::of_run(&title, &record.machine, map).to_svg())?;
    }
    if let Some(path) = &arguments.access_picture {
        let number = arguments.access;
        let Some(access) = &access else {
            return Err(Failure::run(format!(
                "no access {number} to draw: {name} makes {}",
                record.accesses
            )));
        };
        let title = format!("{} on {name}", record.design);
        let picture = access_picture::of_access(&title, &record.machine, number, access);
        output::write_text(path, &picture.to_svg())?;
    }
    let columns = || Ok(Columns::of_runs(std::slice::from_ref(&record)));
    arguments.results.write_both(|| Ok(record.to_json()), columns)?;
    if !arguments.results.owns_stdout() {
        output::print_line(&record.summary(80, Charset::from_environment()))?;
    }
    match ending.wait(&name, &terminal) {
        _ if stopped => Err(Failure::run("stopped before the end of the input")),
        Some(trouble) => Err(Failure::run(trouble)),
        None => Ok(()),
    }
}
