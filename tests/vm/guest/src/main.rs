//! What runs inside the virtual machines of the tests: programs to be observed, and the scenarios that observe them.

mod check;
mod damon;
mod memory;
mod process;
mod refusing;
mod scenarios;
mod targets;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Touches a known part of its memory
    Hotset(targets::hotset::Hotset),
    /// Accesses pages at random moments, at known rates
    Beats(targets::beats::Beats),
    /// Has a region that is written, one that is read and one that is left alone
    Writers(targets::writers::Writers),
    /// Checks every byte of its memory all the time
    Verify(targets::verify::Verify),
    /// Has data structures of several allocation sites, and checks them
    Structures(targets::structures::Structures),
    /// Starts another program in a roundabout way
    Starter(targets::starter::Starter),
    /// Has 1 GiB pages by the interface of `libterrace.so`
    Giant,
    /// Tries what the unit's sandbox must not permit
    Denied,
    /// Switches every processor's address space every other millisecond
    Ticker,
    /// Allocates memory, writes it and ends
    Touch(targets::touch::Touch),
    /// Runs scenarios and prints the verdict
    Scenario {
        /// As `list` names them
        names: Vec<String>,
    },
    /// Runs the simulator for the scenario `agreement`, on the host
    Simulated,
    /// Lists the scenarios, each with its machine
    List,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Hotset(target) => target.run(),
        Command::Beats(target) => target.run(),
        Command::Writers(target) => target.run(),
        Command::Verify(target) => target.run(),
        Command::Structures(target) => target.run(),
        Command::Starter(target) => target.run(),
        Command::Giant => targets::giant::run(),
        Command::Denied => targets::denied::run(),
        Command::Ticker => targets::ticker::run(),
        Command::Touch(target) => target.run(),
        Command::Scenario { names } => scenarios::run(&names),
        Command::Simulated => scenarios::simulate_all(),
        Command::List => {
            scenarios::list();
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}
