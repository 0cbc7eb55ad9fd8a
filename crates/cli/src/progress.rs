//! Progress on stderr: rate and remaining time, for what takes over two seconds, and only on a terminal.

use crate::interrupt::{self, Leaves};
use crate::logging;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_live::systemd::Priority;
use terrace_model::printable::one_line;
use terrace_study::{Stop, Task};

pub use terrace_study::figures::short;

/// Shorter runs show nothing: a bar that flashes by is noise.
const SILENT: Duration = Duration::from_secs(2);
const REDRAW: Duration = Duration::from_millis(200);
/// Positions of a bar whose length is known only as a share.
const PARTS: u64 = 10_000;

fn bars() -> &'static MultiProgress {
    static BARS: OnceLock<MultiProgress> = OnceLock::new();
    // indicatif draws nothing when stderr is not a terminal.
    BARS.get_or_init(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()))
}

/// Prints a line of a table on stderr, where standard output belongs to somebody else. Programs get a log line.
pub fn row(text: &str) {
    match logging::is_json() {
        true => logging::note(text),
        false => say(Priority::Info, &one_line(text)),
    }
}

/// Prints one line on stderr without tearing the bars. Programs get a log line.
pub fn note(message: &str) {
    match logging::is_json() {
        true => logging::note(message),
        false => say(Priority::Info, &format!("terrace: {}", one_line(message))),
    }
}

/// As [`note`], of what somebody should look at.
pub fn warn(message: &str) {
    match logging::is_json() {
        true => logging::warn(message),
        false => say(Priority::Warning, &format!("terrace: {}", one_line(message))),
    }
}

/// Prints lines on stderr. Where the terminal has gone, the work goes on without it.
pub fn say(priority: Priority, lines: &str) {
    let _ = LogWriter(priority).write(format!("{lines}\n").as_bytes());
}

/// Where log lines go: stderr, between redraws of the bars. Whole lines are written, in one piece each time.
pub struct LogWriter(pub Priority);

impl std::io::Write for LogWriter {
    fn write(&mut self, lines: &[u8]) -> std::io::Result<usize> {
        bars().suspend(|| std::io::stderr().write_all(&self.0.mark(lines)))?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// The progress of one input: accesses so far, accesses per second, remaining time where the end is known.
pub struct Progress {
    name: String,
    started: Instant,
    last_drawn: Instant,
    bar: Option<ProgressBar>,
    accesses: u64,
}

impl Progress {
    /// Progress of `name`; nothing shows before two seconds have passed.
    pub fn new(name: impl Into<String>) -> Progress {
        let now = Instant::now();
        Progress { name: name.into(), started: now, last_drawn: now, bar: None, accesses: 0 }
    }

    /// `accesses` more are done; `share` of the whole, 0 to 1, where it is known.
    pub fn advance(&mut self, accesses: u64, share: impl Fn() -> Option<f64>) {
        self.accesses += accesses;
        if self.last_drawn.elapsed() < REDRAW {
            return;
        }
        self.last_drawn = Instant::now();
        if self.started.elapsed() < SILENT {
            return;
        }
        let share = share();
        let bar = self.bar.get_or_insert_with(|| begin(&self.name, share.is_some()));
        if let Some(share) = share {
            bar.set_position((share.clamp(0.0, 1.0) * PARTS as f64) as u64);
        }
        bar.set_message(message(self.accesses, self.started.elapsed(), share));
        bar.tick();
    }
}

impl Task for Progress {
    fn advance(&mut self, accesses: u64, share: &dyn Fn() -> Option<f64>) {
        Progress::advance(self, accesses, share);
    }
}

/// Shows the progress of a study on the terminal; Ctrl-C asks it to stop.
pub struct Terminal {
    stop: Stop,
}

impl Terminal {
    /// Takes over the signals for the rest of the process.
    pub fn install() -> Terminal {
        Terminal { stop: interrupt::install(Leaves::Complete, note) }
    }

    /// As [`Terminal::install`], for a command that has one answer or none.
    pub fn for_an_answer() -> Terminal {
        Terminal { stop: interrupt::install(Leaves::Nothing, note) }
    }
}

impl terrace_study::Progress for Terminal {
    fn begin(&self, name: &str) -> Box<dyn Task> {
        Box::new(Progress::new(name))
    }

    fn note(&self, message: &str) {
        note(message);
    }

    fn stop(&self) -> Stop {
        self.stop.clone()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The text beside the bar. The remaining time follows from the time taken so far: the bar itself appears late, and would
/// take its first jump for the rate.
fn message(accesses: u64, elapsed: Duration, share: Option<f64>) -> String {
    let rate = accesses as f64 / elapsed.as_secs_f64();
    let done = format!("{} accesses, {}/s", short(accesses as f64), short(rate));
    // Below a millionth, the share is too small to derive the remaining time from.
    match share.filter(|share| *share > 1e-6) {
        Some(share) => {
            let left = elapsed.mul_f64((1.0 - share).max(0.0) / share);
            format!("{done}, {} left", duration(left))
        }
        None => done,
    }
}

/// A sign of life for work that takes long and says nothing until it is done: the time so far.
///
/// A native run could only show how far it is by counting, which would slow what it measures.
pub struct Busy {
    done: Option<Sender<()>>,
    shown: Option<JoinHandle<()>>,
}

impl Busy {
    /// Shows nothing before two seconds have passed.
    pub fn new(name: impl Into<String>) -> Busy {
        let (name, started) = (name.into(), Instant::now());
        let (done, waiting) = channel::<()>();
        let shown = std::thread::spawn(move || {
            if waiting.recv_timeout(SILENT) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = begin(&name, false);
            while waiting.recv_timeout(REDRAW) == Err(RecvTimeoutError::Timeout) {
                bar.set_message(format!("{} so far", duration(started.elapsed())));
                bar.tick();
            }
            bar.finish_and_clear();
        });
        Busy { done: Some(done), shown: Some(shown) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.done = None;
        if let Some(shown) = self.shown.take() {
            // The thread only draws, so its result says nothing.
            let _ = shown.join();
        }
    }
}

fn begin(name: &str, length_known: bool) -> ProgressBar {
    let (bar, template) = if length_known {
        (ProgressBar::new(PARTS), "{prefix:>14} [{bar:24}] {percent:>3}% {msg}")
    } else {
        (ProgressBar::no_length(), "{prefix:>14} {spinner} {msg}")
    };
    let style = ProgressStyle::with_template(template).expect("the templates above are valid");
    let bar = bars().add(bar.with_style(style));
    bar.set_prefix(name.to_owned());
    bar
}

/// `3 s`, `2 min 10 s`, `1 h 5 min`.
fn duration(left: Duration) -> String {
    let seconds = left.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_is_done() {
        let after = |seconds, share| message(2_000_000, Duration::from_secs(seconds), share);
        assert_eq!(after(2, Some(0.02)), "2.00 M accesses, 1.00 M/s, 1 min 38 s left");
        assert_eq!(after(4, Some(0.5)), "2.00 M accesses, 500 k/s, 4 s left");
        assert_eq!(after(4, Some(1.0)), "2.00 M accesses, 500 k/s, 0 s left");
        assert_eq!(after(4, None), "2.00 M accesses, 500 k/s");
        assert_eq!(after(4, Some(0.0)), "2.00 M accesses, 500 k/s");
    }

    #[test]
    fn remaining_time_has_two_units_at_most() {
        let texts: Vec<String> = [3, 130, 3900].map(|s| duration(Duration::from_secs(s))).into();
        assert_eq!(texts, ["3 s", "2 min 10 s", "1 h 5 min"]);
    }
}
