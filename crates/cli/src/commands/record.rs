//! `terrace record`: a program's events into a trace file.

use crate::error::{CommandResult, Failure};
use crate::input;
use crate::options::{InputOptions, RecordingOptions, ResultOptions};
use crate::progress::{self, Terminal};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;
use terrace_study::figures::readable;
use terrace_study::record::{Recorded, write_trace};

const EXAMPLES: &str = "\
Examples:
  terrace record -o sort.trace -- sort --parallel=2 big.txt
  terrace record -o app.trace --skip 1e9 --limit 2e8 -- ./app
  terrace record -o app.trace --every 1e9:1e7 -- ./long-running-app
  terrace record -o redis.trace -- redis-server --port 7777 --save ''
  terrace record -o gups.trace --workload gups,bytes=1GiB

The program runs under QEMU's user-mode emulation (package qemu-user), sees
its own files and network, and needs no rebuilding. Its threads, forked
children and the programs it starts are recorded too; with --gpu one process
at a time, and no forked child.

Ctrl-C reaches the program as well and ends the recording; the trace up to
there is complete. A server ends by its client, by Ctrl-C or by SIGTERM.

Marks: compile with terrace/marker.h for regions of interest (--region),
phases and data structures. The program's exit status other than 0 gives
exit code 1; the trace is kept.";

/// Record a program's memory accesses into a trace
///
/// Every load and store with address, size, thread, the instructions between
/// them and which load its address depends on; mappings, heap growth, threads,
/// forks, bytes copied by system calls, idle time. About a byte per access.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The trace to write; an existing file is replaced. - is standard output,
    /// for workloads
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: PathBuf,

    /// Write the events of a built-in workload instead of a program's
    #[arg(long, value_name = "NAME[,KEY=VALUE…]", conflicts_with = "command", help_heading = "Input")]
    workload: Option<String>,

    #[command(flatten)]
    recording: RecordingOptions,

    #[command(flatten)]
    results: ResultOptions,

    /// The program and its arguments: everything after `--`
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "workload", help_heading = "Input")]
    command: Vec<OsString>,
}

#[derive(Serialize)]
struct Document {
    trace: String,
    accesses: u64,
    bytes: u64,
    bytes_per_access: f64,
    seconds: f64,
    accesses_per_second: f64,
}

/// Carries out the recording.
pub fn run(arguments: Arguments) -> CommandResult {
    let options = InputOptions {
        trace: Vec::new(),
        workload: arguments.workload.into_iter().collect(),
        suite: Vec::new(),
        salvage: false,
        command: arguments.command,
    };
    let input = input::prepare(&options, &arguments.recording)?.remove(0);
    let path = match arguments.output.as_os_str() == "-" {
        true if input.is_live() => {
            return Err(Failure::usage(
                "-o -: standard output belongs to the recorded program; name a file, or a descriptor of your own: \
                 -o /dev/fd/3 3>app.trace",
            ));
        }
        true if arguments.results.owns_stdout() => {
            return Err(Failure::usage(
                "-o - and --json - both write to standard output; give one of them a file",
            ));
        }
        true => Path::new("/dev/stdout"),
        false => &arguments.output,
    };
    let terminal = Terminal::install();
    let name = input.name.clone();
    let begin = Instant::now();
    let Recorded { summary, ending, failure, nothing } = write_trace(input, path, &terminal)?;
    let (accesses, bytes) = (summary.totals.accesses, summary.file_bytes);
    let seconds = begin.elapsed().as_secs_f64();

    let document = Document {
        trace: path.display().to_string(),
        accesses,
        bytes,
        bytes_per_access: summary.bytes_per_access(),
        seconds,
        accesses_per_second: accesses as f64 / seconds,
    };
    arguments.results.write(&document)?;
    // Standard output belongs to the recorded program.
    progress::note(&format!(
        "{}: {} accesses in {seconds:.1} s, {} ({:.2} bytes per access)",
        document.trace,
        progress::short(accesses as f64),
        readable(bytes),
        document.bytes_per_access,
    ));
    let trouble = ending.wait(&name, &terminal);
    if let Some(error) = failure {
        return Err(Failure::Run(error.into()));
    }
    match nothing.into_iter().chain(trouble).reduce(|one, other| format!("{one}; {other}")) {
        Some(trouble) => Err(Failure::run(format!("{trouble}; the trace is kept"))),
        None => Ok(()),
    }
}
