//! Why a study has no result.

use std::error::Error as _;
use std::io::ErrorKind;
use terrace_policy::PolicyError;
use terrace_recorder::RecordError;
use terrace_sim::SimError;
use terrace_sim::design::DesignError;
use terrace_trace::{SourceError, WriteError};
use terrace_workload::WorkloadError;

/// A study that cannot begin, or cannot go on. Each message names the thing and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for contradicts itself or does not exist.
    #[error("{0}")]
    Request(String),
    /// A design, a machine or one of their parameters does not exist or cannot be.
    #[error(transparent)]
    Design(#[from] DesignError),
    /// A policy or one of its parameters does not exist or cannot be.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A built-in workload or one of its parameters does not exist or cannot be.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The program could not be started under the recorder.
    #[error(transparent)]
    Recorder(#[from] RecordError),
    /// A trace could not be opened.
    #[error(transparent)]
    Open(SourceError),
    /// An input failed while it was read.
    #[error(transparent)]
    Read(SourceError),
    /// A trace could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A folder for a recording could not be made.
    #[error(transparent)]
    Folder(std::io::Error),
    /// A simulation failed.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// The caller asked to stop before there was a result.
    #[error("{0}")]
    Stopped(String),
    /// Runs failed, so that there is no result.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// A request that cannot be met, in words.
    pub(crate) fn request(message: impl std::fmt::Display) -> Error {
        Error::Request(message.to_string())
    }

    /// A failed run, in words.
    pub(crate) fn failed(message: impl std::fmt::Display) -> Error {
        Error::Failed(message.to_string())
    }

    /// Whether the caller has to ask for something else, rather than that carrying it out failed.
    pub fn is_request(&self) -> bool {
        match self {
            Error::Request(_)
            | Error::Design(_)
            | Error::Policy(_)
            | Error::Workload(_)
            | Error::Recorder(_) => true,
            // A file that is not there is the caller's; one that is damaged or foreign is not.
            // What can be opened and not decompressed is damaged.
            Error::Open(SourceError::Io { error, .. }) => !matches!(
                error.kind(),
                ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof
            ),
            Error::Open(_) => false,
            // What the engine finds out about a design or what was asked of it.
            Error::Simulation(error) => matches!(error, SimError::Design { .. } | SimError::NoRegion),
            Error::Read(_) | Error::Write(_) | Error::Folder(_) => false,
            Error::Stopped(_) | Error::Failed(_) => false,
        }
    }

    /// The message with those of all causes.
    pub(crate) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}
