//! Log lines on stderr: warnings by default, `-v` progress of each step, `-vv` everything.

use crate::progress::LogWriter;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

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
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = match std::env::var(VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text).unwrap_or_else(|error| {
            eprintln!("terrace: {VARIABLE}={text:?} is no log filter ({error}); using {level}");
            EnvFilter::new(level)
        }),
        Err(_) => EnvFilter::new(level),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| LogWriter);
    match format {
        Format::Text => {
            log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).without_time().init();
        }
        Format::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
}
