//! `terrace suite`: real programs as inputs.

use crate::error::{CommandResult, Failure};
use crate::options::ResultOptions;
use crate::output;
use crate::progress::{Terminal, note};
use clap::{Args, Subcommand};
use std::process::Command;
use terrace_study::suite::{self, List, Program, State, Suite};

const EXAMPLES: &str = "\
Examples:
  terrace suite list
  terrace suite show mcf
  terrace suite install mcf gcc
  terrace suite record mcf gcc
  terrace compare native-4k vbi-full --suite mcf --suite gcc
  terrace compare native-4k vbi-full --mix vbi-w4

Recordings lie in $XDG_CACHE_HOME/terrace/suite (~/.cache where that is not
set), with a manifest of versions, figures and the SHA-256. Each is made on
this machine, from this machine's programs: figures differ between machines.";

/// List, install, record and show the suite of real programs
///
/// Programs of Debian and kernels of our own that stand for those of published
/// evaluations. Each makes its own input, has a region of interest of a stated
/// length, and is an input of every study by `--suite NAME`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the programs and how far each is, and the mixes of them
    List(ResultOptions),
    /// Install the packages that programs need (apt-get, as root or by sudo)
    Install {
        /// Programs; none: all that lack something
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Print the command instead of running it
        #[arg(long)]
        print_command: bool,
    },
    /// Make inputs and record programs that are not recorded yet
    Record {
        /// Programs; none: all whose packages are installed
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Record also what is recorded already
        #[arg(long)]
        again: bool,
    },
    /// Show what a program stands for, how it differs, and its figures
    Show {
        /// The program
        #[arg(value_name = "NAME")]
        name: String,
        /// Compare the recording with its checksum
        #[arg(long)]
        verify: bool,
        #[command(flatten)]
        results: ResultOptions,
    },
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let suite = Suite::of_user()?;
    match arguments.action {
        Action::List(results) => {
            let list = List::of(&suite);
            results.write_rows(&list, "programs")?;
            results.print(|| list.to_text())
        }
        Action::Install { names, print_command } => install(&suite, &names, print_command),
        Action::Record { names, again } => record(&suite, &names, again),
        Action::Show { name, verify, results } => show(&suite, &name, verify, &results),
    }
}

fn install(suite: &Suite, names: &[String], print_command: bool) -> CommandResult {
    // What is named is printed even where it is there.
    let packages = suite.packages(names, print_command)?;
    if packages.is_empty() {
        return output::print_line("all packages are installed");
    }
    let mut words: Vec<String> =
        ["apt-get", "install", "-y", "--no-install-recommends"].map(str::to_owned).into();
    words.extend(packages);
    if !rustix::process::geteuid().is_root() {
        words.insert(0, "sudo".to_owned());
    }
    let shown = output::shell_join(&words);
    if print_command {
        return output::print_line(&shown);
    }
    note(&shown);
    let status = Command::new(&words[0]).args(&words[1..]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::run(format!("{shown} ended with {status}"))),
        Err(error) => Err(Failure::run(format!("{}: {error}; install by other means: {shown}", words[0]))),
    }
}

fn record(suite: &Suite, names: &[String], again: bool) -> CommandResult {
    let recorded = suite::record_all(suite, names, again, &Terminal::install())?;
    if recorded == 0 {
        note("nothing to record; --again records anew");
    }
    Ok(())
}

fn show(suite: &Suite, name: &str, verify: bool, results: &ResultOptions) -> CommandResult {
    let entry = suite::find(name)?;
    if verify {
        match suite.state(&entry) {
            State::Recorded(manifest) => suite::verify(suite, &entry, &manifest)?,
            state => {
                let state = state.name();
                return Err(Failure::usage(format!("{name} is {state}; there is no recording to verify")));
            }
        }
    }
    results.write(&Program::of(suite, &entry))?;
    results.print(|| suite::describe(suite, &entry))
}
