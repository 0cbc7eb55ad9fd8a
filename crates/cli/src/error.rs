//! How a command ends, as an exit code and one message.

use std::fmt;
use std::process::ExitCode;
use terrace_live::session::Problem;
use terrace_live::systemd::Priority;
use terrace_model::printable::printable;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that does not exist or makes no sense: exit code 2.
    Usage(anyhow::Error),
    /// The request was fine, carrying it out failed: exit code 1.
    Run(anyhow::Error),
}

/// What every command returns.
pub type CommandResult = Result<(), Failure>;

impl Failure {
    /// Wrong usage, in words.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure::Usage(anyhow::anyhow!("{message}"))
    }

    /// A failed run, in words.
    pub fn run(message: impl fmt::Display) -> Failure {
        Failure::Run(anyhow::anyhow!("{message}"))
    }

    /// Why, on one line.
    pub fn message(&self) -> String {
        let (Failure::Usage(error) | Failure::Run(error)) = self;
        without_repetition(error)
    }

    fn is_broken_pipe(&self) -> bool {
        let (Failure::Usage(error) | Failure::Run(error)) = self;
        error.chain().any(|cause| {
            cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
                || cause
                    .downcast_ref::<serde_json::Error>()
                    .is_some_and(|e| e.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe))
        })
    }

    /// Prints the message and gives the exit code.
    ///
    /// A reader that has seen enough (`terrace … | head`) is no failure: everything on disk was written before the
    /// terminal output began, so the exit is silent and 0.
    pub fn report(&self) -> ExitCode {
        if self.is_broken_pipe() {
            return ExitCode::SUCCESS;
        }
        let code = match self {
            Failure::Usage(_) => 2,
            Failure::Run(_) => 1,
        };
        let message = self.message();
        match crate::logging::is_json() {
            true => crate::logging::error(&message),
            false => crate::progress::say(Priority::Error, &format!("terrace: {}", printable(&message))),
        }
        ExitCode::from(code)
    }
}

/// The chain of causes on one line; a cause that its wrapper's text already contains is not said twice.
fn without_repetition(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let part = cause.to_string();
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
    }
    text
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Run(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Run(error.into())
    }
}

impl From<terrace_study::Error> for Failure {
    fn from(error: terrace_study::Error) -> Failure {
        if error.is_request() { Failure::Usage(error.into()) } else { Failure::Run(error.into()) }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        match problem {
            Problem::Usage(message) => Failure::usage(message),
            Problem::Machine(message) => Failure::run(message),
        }
    }
}

/// Turns errors of libraries into failures where the caller knows whose fault they are.
pub trait Blame<T> {
    /// The user asked for something impossible.
    fn or_usage(self) -> Result<T, Failure>;
    /// The run failed.
    fn or_run(self) -> Result<T, Failure>;
}

impl<T, E: std::error::Error + Send + Sync + 'static> Blame<T> for Result<T, E> {
    fn or_usage(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Usage(error.into()))
    }

    fn or_run(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Run(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn a_broken_pipe_is_recognized_below_other_causes() {
        let cause = Error::from(ErrorKind::BrokenPipe);
        let failure = Failure::Run(anyhow::Error::new(cause).context("writing the table"));
        assert!(failure.is_broken_pipe());
        assert!(!Failure::run("broken pipe, in words only").is_broken_pipe());
    }

    #[test]
    fn a_cause_is_said_once() {
        let inner = Error::new(ErrorKind::NotFound, "no such file");
        let error = anyhow::Error::new(inner).context("x.trace: no such file");
        assert_eq!(without_repetition(&error), "x.trace: no such file");
    }
}
