//! Recorded programs: what their environment says of their memory.

use super::{Input, Kind};
use crate::Error;
use std::ffi::OsString;
use std::path::Path;

impl Input {
    /// A program to record with a variable more in its environment; other inputs as they are.
    pub(crate) fn with_variable(mut self, variable: (OsString, OsString)) -> Input {
        if let Kind::Command(_, options) = &mut self.kind {
            options.environment.push(variable);
        }
        self
    }

    /// Telling variables of a recording's environment, `NAME=VALUE` each; none where the input is no recorded program.
    pub(crate) fn recorded_environment(&self) -> Option<&[String]> {
        match &self.kind {
            Kind::Trace { source, .. } => {
                source.as_ref().ok().map(|source| source.header().environment.as_slice())
            }
            _ => None,
        }
    }

    /// A trace of this name, in place of a command that was recorded to it.
    pub fn recorded(path: &Path, name: &str) -> Result<Input, Error> {
        Ok(Input { name: name.to_owned(), ..Input::trace(path, false)? })
    }
}
