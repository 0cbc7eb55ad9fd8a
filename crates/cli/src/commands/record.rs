//! `terrace record`: a program's events into a trace file.

use crate::commands::workload::readable;
use crate::error::{Blame, CommandResult, Failure};
use crate::input::{self, Ending, Input, Watched};
use crate::interrupt::Interrupt;
use crate::options::{InputOptions, JsonOption, RecordingOptions};
use crate::{output, progress};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;
use terrace_trace::{EventSource, SourceError, Summary, TraceWriter};

const EXAMPLES: &str = "\
Examples:
  terrace record -o sort.trace -- sort --parallel=2 big.txt
  terrace record -o app.trace --skip 1e9 --limit 2e8 -- ./app
  terrace record -o app.trace --every 1e9:1e7 -- ./long-running-app
  terrace record -o redis.trace -- redis-server --port 7777 --save ''
  terrace record -o gups.trace --workload gups,bytes=1GiB

The program runs under QEMU's user-mode emulation (package qemu-user), sees
its own files and network, and needs no rebuilding. Its threads, forked
children and the programs it starts are recorded too.

Ctrl-C reaches the program as well and ends the recording; the trace up to
there is complete. A server ends by its client, by Ctrl-C or by SIGTERM.

Marks: compile with terrace.h for regions of interest (--region), phases and
data structures. The program's exit status other than 0 gives exit code 1; the
trace is kept.";

/// Record a program's memory accesses into a trace
///
/// Every load and store with address, size, thread, the instructions between
/// them and which load its address depends on; mappings, heap growth, threads,
/// forks, bytes copied by system calls, idle time. About a byte per access.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The trace to write; an existing file is replaced
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: PathBuf,

    /// Write the events of a built-in workload instead of a program's
    #[arg(long, value_name = "NAME[,KEY=VALUE…]", conflicts_with = "command", help_heading = "Input")]
    workload: Option<String>,

    #[command(flatten)]
    recording: RecordingOptions,

    #[command(flatten)]
    json: JsonOption,

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

/// A trace that was written.
pub struct Recorded {
    /// What is in it.
    pub summary: Summary,
    /// The program, which may still run.
    pub ending: Ending,
    /// Why it ended early, if it did; what came before is whole.
    pub failure: Option<SourceError>,
}

/// Writes all that `input` does to the trace `path`.
pub fn write_trace(input: Input, path: &Path, interrupt: &Interrupt) -> Result<Recorded, Failure> {
    let name = input.name.clone();
    let stop = input.stop(interrupt);
    let (mut source, ending) = input.open(interrupt)?;
    let mut writer = TraceWriter::create(path, source.header()).or_run()?;
    let mut watched = Watched::new(&name, source.as_mut()).until(&stop);
    let failure = loop {
        match watched.next_batch() {
            Ok(Some(batch)) => writer.push(&batch).or_run()?,
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    drop(watched);
    drop(source);
    // Also after a failure: what came before it is whole.
    Ok(Recorded { summary: writer.finish().or_run()?, ending, failure })
}

/// A live command into a trace in `folder`, as an input that can be read many times.
pub fn once(input: Input, folder: &Path, interrupt: &Interrupt) -> Result<Input, Failure> {
    let name = input.name.clone();
    let path = folder.join("recorded.trace");
    let Recorded { summary, ending, failure } = write_trace(input, &path, interrupt)?;
    if let Some(error) = failure {
        return Err(Failure::Run(error.into()));
    }
    if let Some(trouble) = ending.wait(&name) {
        // What it did until then is an input all the same.
        progress::note(&trouble);
    }
    progress::note(&format!("{name}: {} accesses recorded", progress::short(summary.totals.accesses as f64)));
    Input::recorded(&path, &name)
}

/// Carries out the recording.
pub fn run(arguments: Arguments) -> CommandResult {
    let options = InputOptions {
        trace: Vec::new(),
        workload: arguments.workload.into_iter().collect(),
        salvage: false,
        command: arguments.command,
    };
    let input = input::prepare(&options, &arguments.recording)?.remove(0);
    let interrupt = Interrupt::install();
    let name = input.name.clone();
    let begin = Instant::now();
    let path = &arguments.output;
    let Recorded { summary, ending, failure } = write_trace(input, path, &interrupt)?;
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
    if let Some(destination) = &arguments.json.json {
        output::write_json(destination, &document)?;
    }
    // Standard output belongs to the recorded program.
    progress::note(&format!(
        "{}: {} accesses in {seconds:.1} s, {} ({:.2} bytes per access)",
        document.trace,
        progress::short(accesses as f64),
        readable(bytes),
        document.bytes_per_access,
    ));
    let trouble = ending.wait(&name);
    if let Some(error) = failure {
        return Err(Failure::Run(error.into()));
    }
    match trouble {
        Some(trouble) => Err(Failure::run(format!("{trouble}; the trace is kept"))),
        None => Ok(()),
    }
}
