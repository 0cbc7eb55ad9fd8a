//! What names an input of a sweep.

use crate::{Error, Input, mix};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What an input is called, so that it can be opened when its turn comes.
#[derive(Clone, Debug, PartialEq)]
pub enum InputWord {
    /// A workload with its parameters.
    Workload(String),
    /// A trace's path.
    Trace(PathBuf),
    /// Programs side by side, as `--mix` names them.
    Mix(String),
}

impl InputWord {
    /// Opens it. A trace that is damaged, or none, fails when it is read: the runs on other inputs go on.
    ///
    /// # Errors
    /// A workload or a mix that cannot be, a trace that cannot be opened.
    pub fn open(&self) -> Result<Input, Error> {
        match self {
            InputWord::Workload(spec) => Input::workload(spec),
            InputWord::Trace(path) => Input::trace_among(path, false, usize::MAX),
            InputWord::Mix(word) => mix::parse(word, false),
        }
    }

    /// What distinguishes its content: a workload's parameters; a trace's name, length and time of change; of a mix that of
    /// each program.
    pub(super) fn identity(&self) -> Result<String, Error> {
        match self {
            InputWord::Workload(spec) => Ok(format!("workload {spec}")),
            InputWord::Trace(path) => identity_of_trace(path),
            InputWord::Mix(word) => {
                let mut identity = format!("mix {word}");
                for program in mix::parse(word, false)?.programs() {
                    let program = match program.words().as_slice() {
                        [option, path] if option == "--trace" => identity_of_trace(Path::new(path))?,
                        words => words.join(" "),
                    };
                    let _ = write!(identity, "\nwith {program}");
                }
                Ok(identity)
            }
        }
    }

    /// What the sweep's file calls the input of an [identity](super::Point::identity): a workload with its parameters, a
    /// trace's path, or a mix.
    pub(super) fn in_identity(identity: &str) -> Option<&str> {
        let line = identity.lines().nth(1)?;
        match line.strip_prefix("workload ").or_else(|| line.strip_prefix("mix ")) {
            Some(word) => Some(word),
            // The trace's length and the time of its last change follow.
            None => line.strip_prefix("trace ")?.rsplitn(3, ' ').nth(2),
        }
    }
}

/// A trace's name, length and time of change.
fn identity_of_trace(path: &Path) -> Result<String, Error> {
    let shown = path.display();
    let data = std::fs::metadata(path).map_err(|error| Error::request(format!("{shown}: {error}")))?;
    let changed = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let changed = changed.unwrap_or_default().as_nanos();
    Ok(format!("trace {shown} {} {changed}", data.len()))
}
