//! `terrace check`: a prediction for this machine, held against it.

use crate::error::{CommandResult, Failure};
use crate::options::{DesignOptions, RecordingOptions, ResultOptions};
use crate::output;
use crate::progress::Terminal;
use clap::Args;
use std::ffi::OsString;
use terrace_study::check::{Agreement, Check, CheckResult, Interval, Way};
use terrace_study::figures::{share, time};

const EXAMPLES: &str = "\
Examples:
  terrace calibrate
  terrace check -- ./app
  terrace check --pairs 15 -- sqlite3 my.db 'select count(*) from t'
  terrace check --json - -- sh -c './app < input.txt' | jq .error";

/// Run a program with small and huge pages here, and compare with a prediction
///
/// Runs the program natively on 4 KiB pages and with transparent huge pages in
/// turn, several pairs, and records it once while the simulator predicts both
/// on the preset of this machine that `terrace calibrate` wrote. Prints both
/// speed-ups with their intervals, and whether the prediction was right.
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
    let terminal = Terminal::install();
    let check = Check {
        command: arguments.command,
        pairs: arguments.pairs,
        changes: arguments.designs.changes(),
        recording: arguments.recording.to_record_options(),
    };
    let result = check.run(&terminal)?;
    arguments.results.write(&result)?;
    arguments.results.print(|| text(&result))
}

/// The answer in one screen.
fn text(result: &CheckResult) -> String {
    let mut out =
        format!("{} on {}, {} pairs of native runs\n\n", result.program, result.machine, result.pairs);
    out += &format!(
        "{:<14}{:>12}{:>12}{:>12}{:>10}{:>12}\n",
        "pages", "processors", "elapsed", "predicted", "faults", "predicted"
    );
    for (name, way) in [("4 KiB", &result.base), ("transparent", &result.huge)] {
        let Way { processor_seconds, elapsed_seconds, predicted_seconds, faults, predicted_faults, .. } = way;
        out += &format!(
            "{name:<14}{:>12}{:>12}{:>12}{faults:>10}{predicted_faults:>12}\n",
            time(*processor_seconds),
            time(*elapsed_seconds),
            time(*predicted_seconds)
        );
    }
    out += &format!("Natively {} of its memory lay in huge pages.\n\n", share(result.huge.huge_share));
    let interval = |of: &Interval| format!("{:.3} times as fast ({:.3} to {:.3})", of.value, of.low, of.high);
    out += &format!("Measured:   {}\n", interval(&result.measured));
    out += &format!("Predicted:  {}\n\n", interval(&result.predicted));
    let verdict = match result.sign {
        Agreement::Right => "The prediction is on the right side",
        Agreement::Wrong => "The prediction is wrong: one says faster, the other slower",
        Agreement::Undecided => "The measurement does not tell faster from slower",
    };
    out += &format!("{verdict}; its speed-up is off by {:+.1} %.\n", result.error * 100.0);
    let legend = format!(
        "Measured: the median of the pairs and an interval that holds the true median {:.0} % of the time. Predicted: with \
         the measured costs of faults and zeroing, and with those at their quartiles against and for huge pages.",
        result.confidence * 100.0
    );
    out += &(output::wrap(&legend, 80).join("\n") + "\n");
    for remark in &result.remarks {
        out += &output::hanging("- ", remark, 76);
    }
    out
}
