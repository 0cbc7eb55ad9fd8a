//! `terrace check`: a prediction for this machine, held against it.

use crate::error::{CommandResult, Failure};
use crate::options::{DesignOptions, RecordingOptions, ResultOptions};
use crate::progress::Terminal;
use clap::Args;
use std::ffi::OsString;
use terrace_study::check::Check;

const EXAMPLES: &str = "\
Examples:
  terrace calibrate
  terrace check -- ./app
  terrace check --pairs 15 -- sqlite3 my.db 'select count(*) from t'
  terrace check --json - -- sh -c './app < input.txt' | jq .error";

/// Run a program with small and huge pages here, and compare with a prediction
///
/// Runs the program natively on 4 KiB pages and with transparent huge pages in
/// turn, several pairs, and records it while the simulator predicts both on the
/// preset of this machine that `terrace calibrate` wrote. Prints both speed-ups
/// with their intervals, and whether the prediction was right. Where the
/// system's hugetlb pool has free pages, the program runs on those too.
///
/// Times are those of processors: what a program waits for is not simulated.
/// No setting of the system changes. Where the system gives huge pages only to
/// memory for which a program asks, a preloaded library asks for it.
///
/// The program's input is empty, and what it prints natively is thrown away.
/// It has to do the same in each run, and to succeed.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Pairs of native runs that are counted; one more is not
    #[arg(long, value_name = "N", default_value_t = 9)]
    pairs: usize,

    #[command(flatten)]
    designs: DesignOptions,

    #[command(flatten)]
    recording: RecordingOptions,

    #[command(flatten)]
    results: ResultOptions,

    /// The program and its arguments: everything after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Measures, predicts and compares.
pub fn run(mut arguments: Arguments) -> CommandResult {
    if arguments.designs.machine.is_none() {
        arguments.designs.machine = Some(crate::options::parse_machine("here").map_err(Failure::usage)?);
    }
    let terminal = Terminal::for_an_answer();
    let check = Check {
        command: arguments.command,
        pairs: arguments.pairs,
        changes: arguments.designs.changes(),
        recording: arguments.recording.to_record_options(),
    };
    let result = check.run(&terminal)?;
    arguments.results.write(&result)?;
    arguments.results.print(|| result.to_text())
}
