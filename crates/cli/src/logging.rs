//! Log lines on stderr: warnings by default, `-v` progress of each step, `-vv` everything.

use crate::progress::{self, LogWriter};
use clap::ValueEnum;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_live::systemd::Priority;
use terrace_model::printable::one_line;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::{MakeWriter, format, layer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

/// Overrides `-v` with a filter such as `terrace_sim=debug`.
const VARIABLE: &str = "TERRACE_LOG";

/// Where notes and errors come from, as JSON names it. No filter leaves them out.
const NOTES: &str = "terrace::note";

/// Whether log lines are JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people: level, message; the place too with -vv or TERRACE_LOG.
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
    let otherwise = Targets::new().with_default(level);
    let (filter, refusal) = match std::env::var(VARIABLE).map(|text| (text.parse::<Targets>(), text)) {
        Ok((Ok(filter), _)) => (filter, None),
        Ok((Err(error), text)) => {
            (otherwise, Some(format!("{VARIABLE}={text:?} is no log filter ({error}); using {level}")))
        }
        Err(_) => (otherwise, None),
    };
    let start = tracing_subscriber::registry().with(filter.with_target(NOTES, LevelFilter::INFO));
    match format {
        Format::Text => {
            // Whoever filters by place must see it; to others a module's name says nothing.
            let places = level == LevelFilter::DEBUG || std::env::var_os(VARIABLE).is_some();
            start.with(text(std::io::IsTerminal::is_terminal(&std::io::stderr()), places)).init();
        }
        Format::Json => {
            let log = layer().with_writer(Stderr);
            start.with(log.json().flatten_event(true).with_current_span(false).with_span_list(false)).init();
            JSON.store(true, Ordering::Relaxed);
        }
    }
    if let Some(refusal) = refusal {
        progress::note(&refusal);
    }
}

/// Standard error, to which each event is written with its priority.
struct Stderr;

impl MakeWriter<'_> for Stderr {
    type Writer = LogWriter;

    fn make_writer(&self) -> LogWriter {
        LogWriter(Priority::Info)
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> LogWriter {
        LogWriter(event.level().into())
    }
}

/// Lines for people. Values are names of others' processes and files too, so each event stays on its one line.
fn text<S: Subscriber + for<'a> LookupSpan<'a>>(
    colours: bool,
    places: bool,
) -> impl tracing_subscriber::Layer<S> {
    let fields = format::debug_fn(|writer, field, value| {
        let value = one_line(&format!("{value:?}"));
        match field.name() {
            "message" => write!(writer, "{value}"),
            name => write!(writer, "{name}={value}"),
        }
    });
    layer()
        .fmt_fields(fields.delimited(" "))
        .with_writer(Stderr)
        .with_ansi(colours)
        .with_target(places)
        .without_time()
}

/// Whether whoever reads standard error is a program that takes one JSON object per line.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// A note as a log line.
pub fn note(message: &str) {
    tracing::info!(target: NOTES, "{message}");
}

/// A warning as a log line.
pub fn warn(message: &str) {
    tracing::warn!(target: NOTES, "{message}");
}

/// The reason for a failure as a log line.
pub fn error(message: &str) {
    tracing::error!(target: NOTES, "{message}");
}
