//! Log lines on stderr: warnings by default, `-v` progress of each step, `-vv` everything.

use crate::progress::LogWriter;
use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Overrides `-v` with a filter such as `terrace_sim=debug`.
const VARIABLE: &str = "TERRACE_LOG";

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people: level, place, message.
    Text,
    /// For programs: one JSON object per line, with the time.
    Json,
}

/// Starts logging at the verbosity of the command line.
pub fn start(verbose: u8, format: Format) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let filter = match std::env::var(VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|error| {
            eprintln!("terrace: {VARIABLE}={text:?} is no log filter ({error}); using {level}");
            Targets::new().with_default(level)
        }),
        Err(_) => Targets::new().with_default(level),
    };
    let log = tracing_subscriber::fmt::layer().with_writer(|| LogWriter);
    let start = tracing_subscriber::registry().with(filter);
    match format {
        Format::Text => {
            start
                .with(log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).without_time())
                .init();
        }
        Format::Json => {
            start.with(log.json().flatten_event(true).with_current_span(false).with_span_list(false)).init();
        }
    }
}
