//! Ctrl-C and `SIGTERM`: the first asks the command to stop and keep what is complete, the second ends it at once.

use std::time::{Duration, Instant};
use terrace_study::Stop;

/// Exit code of an interrupted process by the shell's convention: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Signals within this time are one request: `timeout -s INT` sends its signal to the command and then to the group that the
/// command is in, and a user's second Ctrl-C comes later.
const ONE_REQUEST: Duration = Duration::from_millis(150);

/// What the first signal leaves of a command's work.
#[derive(Clone, Copy)]
pub enum Leaves {
    /// What is complete.
    Complete,
    /// Nothing: there is one answer, which needs everything.
    Nothing,
}

/// Takes over the signals for the rest of the process. Returns the request to stop that they set. `tell` shows the user what
/// the first signal does.
pub fn install(leaves: Leaves, tell: impl Fn(&str) + Send + 'static) -> Stop {
    let stop = Stop::new();
    let asked = stop.clone();
    let mut first: Option<Instant> = None;
    // Runs on a thread of its own, so it may lock and print.
    let handler = move || {
        if first.get_or_insert_with(Instant::now).elapsed() < ONE_REQUEST && asked.requested() {
            return;
        }
        if asked.request() {
            std::process::exit(INTERRUPTED);
        }
        tell(match leaves {
            Leaves::Complete => "stopping; what is complete is kept (again: stop at once)",
            Leaves::Nothing => "stopping; there is no answer yet, so nothing is kept (again: stop at once)",
        });
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        // Without the handler Ctrl-C still ends the process, only less gracefully.
        tracing::warn!("cannot take over Ctrl-C: {error}");
    }
    stop
}
