//! `terrace`: record a program, simulate it under several memory-management designs, compare them.
//!
//! This file only routes; each subcommand is one file under `commands/`.

mod allocator;
mod commands;
mod error;
mod input;
mod interrupt;
mod logging;
mod options;
mod output;
mod progress;
mod provenance;

use clap::{CommandFactory, FromArgMatches};
use commands::Command;
use std::process::ExitCode;
use terrace_live::systemd::Priority;

#[global_allocator]
static ALLOCATOR: allocator::Ending = allocator::Ending;

fn main() -> ExitCode {
    Priority::detect();
    let arguments = commands::Cli::command().try_get_matches().unwrap_or_else(|error| refuse(&error));
    let cli = commands::Cli::from_arg_matches(&arguments).unwrap_or_else(|error| refuse(&error));
    logging::start(cli.verbose, cli.log_format);
    if let Err(failure) = output::try_to_write_all(&arguments) {
        return failure.report();
    }
    let result = match cli.command {
        Command::Record(arguments) => commands::record::run(arguments),
        Command::Profile(arguments) => commands::profile::run(arguments),
        Command::Trace(arguments) => commands::trace::run(arguments),
        Command::Workload(arguments) => commands::workload::run(arguments),
        Command::Suite(arguments) => commands::suite::run(arguments),
        Command::Machine(arguments) => commands::machine::run(arguments),
        Command::Calibrate(arguments) => commands::calibrate::run(arguments),
        Command::Check(arguments) => commands::check::run(arguments),
        Command::Memory(arguments) => commands::memory::run(arguments),
        Command::Design(arguments) => commands::design::run(arguments),
        Command::Policy(arguments) => commands::policy::run(arguments),
        Command::Doctor(arguments) => commands::doctor::run(arguments),
        Command::Sim(arguments) => commands::sim::run(arguments),
        Command::Compare(arguments) => commands::compare::run(arguments),
        Command::Sweep(arguments) => commands::sweep::run(arguments),
        Command::Advise(arguments) => commands::advise::run(arguments),
        Command::Tune(arguments) => commands::tune::run(arguments),
        Command::Diff(arguments) => commands::diff::run(&arguments),
        Command::View(arguments) => commands::view::run(arguments),
        Command::Reproduce(arguments) => commands::reproduce::run(arguments),
        Command::Run(arguments) => commands::live::run::run(arguments),
        Command::Attach(arguments) => commands::live::attach::run(arguments),
        Command::Top(arguments) => commands::live::top::run(arguments),
        Command::Restore(arguments) => commands::live::restore::run(arguments),
        Command::Contiguity(arguments) => commands::live::contiguity::run(arguments),
        Command::Completions(arguments) => commands::generate::completions(arguments),
        Command::Man(arguments) => commands::generate::man(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Ends where the command line cannot be taken, or asks for help.
fn refuse(error: &clap::Error) -> ! {
    match Priority::Error.prefix() {
        // Terminals have colours.
        "" => error.exit(),
        _ if !error.use_stderr() => error.exit(),
        _ => progress::say(Priority::Error, error.render().to_string().trim_end()),
    }
    std::process::exit(error.exit_code())
}
