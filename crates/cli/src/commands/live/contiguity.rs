//! `terrace contiguity`: how contiguous a process's memory is.

use crate::error::{CommandResult, Failure};
use crate::options::ResultOptions;
use crate::output;
use clap::Args;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use terrace_live::contiguity::{Looks, Sample};
use terrace_live::kernel::{Kernel, Linux};
use terrace_live::{control, targets};

const EXAMPLES: &str = "\
Examples:
  sudo terrace contiguity $(pidof redis-server)
  sudo terrace contiguity 4711 --every 5 --seconds 60
  sudo terrace contiguity 4711 --json - | jq .samples[-1].coverage_128";

/// Show how contiguous the physical memory of a process is
///
/// Counts the regions whose pages are neighbours both in the address space and
/// in physical memory, and how much of the process the largest 32 and 128 of
/// them cover: what range TLBs, coalescing TLBs and larger pages could use. The
/// metrics are those of Translation Ranger. Nothing is changed.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The process
    #[arg(value_name = "PID", required_unless_present = "pid", conflicts_with = "pid")]
    process: Option<u32>,

    /// The process, by an option as in other commands
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Look again every N seconds, until the process ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,

    /// Stop looking after so many seconds
    #[arg(long, value_name = "N", requires = "every")]
    seconds: Option<u64>,

    #[command(flatten)]
    results: ResultOptions,
}

#[derive(Serialize)]
struct Document {
    pid: u32,
    samples: Vec<Sample>,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let pid = arguments
        .process
        .or(arguments.pid)
        .ok_or_else(|| Failure::usage("name a process, such as terrace contiguity 4711"))?;
    if let Some(why) = targets::names_a_thread(&Linux, pid) {
        return Err(Failure::usage(why));
    }
    let process = Linux.open(pid).map_err(|error| match error.raw_os_error() {
        Some(number) if number == rustix::io::Errno::SRCH.raw_os_error() => {
            Failure::usage(format!("there is no process {pid}"))
        }
        _ => Failure::run(format!("process {pid} cannot be looked into: {error}; run as root")),
    })?;
    let silent = arguments.results.owns_stdout();
    if !silent {
        output::print_line(" seconds       memory      regions   largest 32  largest 128")?;
    }
    let (every, length) =
        (arguments.every.map(Duration::from_secs), arguments.seconds.map(Duration::from_secs));
    let mut samples = Vec::new();
    let stop = Arc::new(AtomicBool::new(false));
    control::stop_at_signals(&stop)?;
    for sample in Looks::new(&Linux, &process, every, length, &stop) {
        let sample = sample.map_err(|error| explain(pid, &error))?;
        if !silent {
            output::print_line(&line(&sample))?;
        }
        samples.push(sample);
    }
    arguments.results.write_rows(&Document { pid, samples }, "samples")
}

fn explain(pid: u32, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Failure::run("the kernel tells frame numbers only to root (CAP_SYS_ADMIN); run as root")
        }
        _ => Failure::run(format!("process {pid}: {error}")),
    }
}

fn line(sample: &Sample) -> String {
    format!(
        "{:8.1} {:8.1} MiB {:>12} {:>11.1}% {:>11.1}%",
        sample.seconds,
        sample.contiguity.pages as f64 / 256.0,
        sample.contiguity.regions,
        sample.coverage_32 * 100.0,
        sample.coverage_128 * 100.0
    )
}
