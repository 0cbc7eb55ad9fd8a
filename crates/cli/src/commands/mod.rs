//! The command line: one file per subcommand, holding its help and what it does.

pub mod advise;
pub mod calibrate;
pub mod check;
pub mod compare;
pub mod design;
pub mod diff;
pub mod doctor;
pub mod generate;
pub mod live;
pub mod machine;
pub mod memory;
pub mod policy;
pub mod profile;
pub mod record;
pub mod reproduce;
pub mod sim;
pub mod suite;
pub mod sweep;
pub mod trace;
pub mod tune;
pub mod view;
pub mod workload;

use crate::logging::Format;
use clap::{ArgAction, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  terrace compare                          the built-in study
  terrace compare -- sort big.txt          this program, live
  terrace sim --design native-thp --workload gups
  terrace record -o app.trace -- ./app --its-options
  terrace compare native-4k native-2m --trace app.trace

Exit codes:
  0  success
  1  the run failed, or was stopped before its end
  2  wrong usage: unknown option, design, workload, key or missing file

Files named - are standard output. TERRACE_LOG=terrace_sim=debug sets a log
filter finer than -v.";

/// What would happen if this program's memory were managed differently?
///
/// Terrace records the memory accesses of any Linux program, simulates them on
/// a machine with TLBs, page walks, caches and memory tiers under several
/// memory-management designs, and shows which design wins and why.
#[derive(Debug, Parser)]
#[command(
    name = "terrace",
    version,
    max_term_width = 80,
    after_long_help = EXAMPLES,
    propagate_version = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// Log what is done to stderr (-v: steps, -vv: details)
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub verbose: u8,

    /// How log lines are written: for people, or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT", global = true, hide_possible_values = true)]
    pub log_format: Format,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Record(record::Arguments),
    Profile(profile::Arguments),
    Trace(trace::Arguments),
    Workload(workload::Arguments),
    Suite(suite::Arguments),
    Machine(machine::Arguments),
    Calibrate(calibrate::Arguments),
    Check(check::Arguments),
    Memory(memory::Arguments),
    Design(design::Arguments),
    Policy(policy::Arguments),
    Doctor(doctor::Arguments),
    Sim(sim::Arguments),
    Compare(compare::Arguments),
    Sweep(sweep::Arguments),
    Diff(diff::Arguments),
    View(view::Arguments),
    Advise(advise::Arguments),
    Tune(tune::Arguments),
    Reproduce(reproduce::Arguments),
    Run(live::run::Arguments),
    Attach(live::attach::Arguments),
    Top(live::top::Arguments),
    Restore(live::restore::Arguments),
    Contiguity(live::contiguity::Arguments),
    Completions(generate::CompletionsArguments),
    Man(generate::ManArguments),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{OutputFile, OutputFolder};
    use clap::CommandFactory;
    use std::any::TypeId;

    #[test]
    fn examples_are_not_wrapped_since_they_are_to_be_pasted() {
        fn check(command: &clap::Command) {
            let examples = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            for line in examples.lines() {
                assert!(line.chars().count() <= 79, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    /// So that a command is refused at once whose result could not be written ([`crate::output::try_to_write_all`]).
    #[test]
    fn options_that_name_what_is_written_are_known_as_that() {
        fn check(command: &clap::Command, known: &mut usize) {
            for option in command.get_arguments().filter(|option| option.get_help_heading() == Some("Output"))
            {
                let [name, command] = [option.get_id().as_str(), command.get_name()];
                let kind = option.get_value_parser().type_id();
                let is_known = kind == TypeId::of::<OutputFile>() || kind == TypeId::of::<OutputFolder>();
                let values = option.get_value_names().unwrap_or_default();
                let is_path = values
                    .iter()
                    .any(|value| ["FILE", "FILE|-", "SVG", "DIRECTORY", "FOLDER"].contains(&value.as_str()));
                // `record` opens its output before it starts the program; a socket is made, and not written.
                let has_own_way = matches!((command, name), ("record", "output") | (_, "socket"));
                assert!(is_known == (is_path && !has_own_way), "{command}: {name}");
                *known += usize::from(is_known);
            }
            command.get_subcommands().for_each(|command| check(command, known));
        }
        let mut known = 0;
        check(&Cli::command(), &mut known);
        assert!(known > 60, "{known}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
