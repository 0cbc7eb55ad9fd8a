//! Priorities of log lines. Where standard error is the journal, every line begins with one, as sd-daemon(3) describes;
//! the journal takes it off and files the line under it (`journalctl -p warning`).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

/// The variable in which systemd names the stream that leads to the journal.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// Whether standard error is the journal, as [`Priority::detect`] has found.
static IS_JOURNAL: AtomicBool = AtomicBool::new(false);

/// How urgent a line is, by the names of syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Terrace ends for it.
    Error,
    /// Terrace goes on, with less than was asked for.
    Warning,
    /// Progress and results.
    Info,
    /// Details.
    Debug,
}

impl From<&tracing::Level> for Priority {
    fn from(level: &tracing::Level) -> Priority {
        match *level {
            tracing::Level::ERROR => Priority::Error,
            tracing::Level::WARN => Priority::Warning,
            tracing::Level::INFO => Priority::Info,
            _ => Priority::Debug,
        }
    }
}

impl Priority {
    /// Finds out whether standard error is the journal. Until then no line has a priority. A panic's lines have one, too.
    pub fn detect() {
        let stream = std::env::var(JOURNAL_STREAM);
        if stream.is_ok_and(|stream| names(&stream, std::io::stderr().as_fd())) {
            IS_JOURNAL.store(true, Ordering::Relaxed);
            std::panic::set_hook(Box::new(|info| report_panic(info, &Backtrace::capture())));
        }
    }

    /// What a line of this priority begins with: nothing, unless standard error is the journal. Allocates nothing.
    pub fn prefix(self) -> &'static str {
        if IS_JOURNAL.load(Ordering::Relaxed) { self.of_journal() } else { "" }
    }

    fn of_journal(self) -> &'static str {
        match self {
            Priority::Error => "<3>",
            Priority::Warning => "<4>",
            Priority::Info => "<6>",
            Priority::Debug => "<7>",
        }
    }

    /// Lines as they go to standard error: each with [`Priority::prefix`].
    pub fn mark(self, lines: &[u8]) -> Cow<'_, [u8]> {
        marked(lines, self.prefix())
    }
}

/// Whether this value of `JOURNAL_STREAM` names the file that is open there: DEVICE:INODE, in decimals (systemd.exec(5)). A
/// program that is started with its output elsewhere inherits the variable all the same.
fn names(stream: &str, open: BorrowedFd<'_>) -> bool {
    let named = stream
        .split_once(':')
        .and_then(|(device, inode)| Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?)));
    let there = open.try_clone_to_owned().and_then(|open| File::from(open).metadata());
    named.is_some_and(|named| there.is_ok_and(|there| (there.dev(), there.ino()) == named))
}

fn marked<'a>(lines: &'a [u8], prefix: &str) -> Cow<'a, [u8]> {
    if prefix.is_empty() {
        return Cow::Borrowed(lines);
    }
    let mut marked = Vec::with_capacity(lines.len() + prefix.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        marked.extend_from_slice(prefix.as_bytes());
        marked.extend_from_slice(line);
    }
    Cow::Owned(marked)
}

fn report_panic(info: &PanicHookInfo<'_>, backtrace: &Backtrace) {
    let name = std::thread::current().name().unwrap_or("<unnamed>").to_owned();
    let mut said = format!("thread '{name}' {info}\n");
    if backtrace.status() == BacktraceStatus::Captured {
        said += &format!("{backtrace}\n");
    }
    let _ = std::io::Write::write_all(&mut std::io::stderr(), &Priority::Error.mark(said.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_the_file_that_the_variable_names_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| File::create(folder.path().join(name)).unwrap();
        let (journal, other) = (open("journal"), open("other"));
        let there = journal.metadata().unwrap();
        let stream = format!("{}:{}", there.dev(), there.ino());
        assert!(names(&stream, journal.as_fd()));
        assert!(!names(&stream, other.as_fd()), "standard error was led elsewhere");
        assert!(!names(&format!("{}:{}", there.dev() + 1, there.ino()), journal.as_fd()));
        for strange in ["", ":", "8", "8:", "a:b", "8:1:2", "-1:-1"] {
            assert!(!names(strange, journal.as_fd()), "{strange}");
        }
    }

    #[test]
    fn every_line_has_its_priority_in_the_journal_and_none_elsewhere() {
        let two = b"terrace: one\n  two\n";
        for (priority, expected) in [
            (Priority::Error, "<3>terrace: one\n<3>  two\n"),
            (Priority::Warning, "<4>terrace: one\n<4>  two\n"),
            (Priority::Info, "<6>terrace: one\n<6>  two\n"),
            (Priority::Debug, "<7>terrace: one\n<7>  two\n"),
        ] {
            assert_eq!(marked(two, priority.of_journal()), expected.as_bytes());
            // The standard error of tests is no journal.
            assert_eq!(priority.mark(two), Cow::Borrowed(&two[..]));
        }
        assert_eq!(marked(b"", "<6>"), b"".as_slice());
    }

    #[test]
    fn levels_of_log_lines_have_priorities() {
        let of = |level: tracing::Level| Priority::from(&level);
        let levels =
            [tracing::Level::ERROR, tracing::Level::WARN, tracing::Level::INFO, tracing::Level::DEBUG];
        let all = [Priority::Error, Priority::Warning, Priority::Info, Priority::Debug];
        assert_eq!(levels.map(of), all);
        assert_eq!(of(tracing::Level::TRACE), Priority::Debug);
    }
}
