//! Where results go: stdout without panics, and files that appear whole or not at all.

use crate::error::{Blame, CommandResult, Failure};
use anyhow::Context;
use clap::{ArgMatches, Id};
use std::ffi::OsString;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use terrace_model::printable::printable;
use terrace_report::WriteError;

pub use terrace_study::words::shell_join;

/// Writes `text` to stdout; a closed pipe becomes an error that ends the process quietly.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(printable(text).as_bytes()).and_then(|()| stdout.flush());
    Ok(written.context("standard output cannot be written")?)
}

/// Writes `text` and a line end to stdout.
pub fn print_line(text: &str) -> Result<(), Failure> {
    print(&format!("{}\n", text.trim_end_matches('\n')))
}

/// A file that a command writes when its work is done; `-` is standard output where its help says so.
#[derive(Clone, Debug)]
pub struct OutputFile(PathBuf);

impl OutputFile {
    /// Whether it is standard output.
    pub fn is_stdout(&self) -> bool {
        self.0.as_os_str() == "-"
    }
}

impl From<PathBuf> for OutputFile {
    fn from(path: PathBuf) -> OutputFile {
        OutputFile(path)
    }
}

impl From<OsString> for OutputFile {
    fn from(path: OsString) -> OutputFile {
        OutputFile(path.into())
    }
}

impl Deref for OutputFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

/// A folder into which a command writes when its work is done, and which it makes where it is missing.
#[derive(Clone, Debug)]
pub struct OutputFolder(PathBuf);

impl Deref for OutputFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl From<OsString> for OutputFolder {
    fn from(path: OsString) -> OutputFolder {
        OutputFolder(path.into())
    }
}

/// Whether all that a command is to write can be written, so that no work is done, and no program started, whose result
/// would be lost.
pub fn try_to_write_all(arguments: &ArgMatches) -> CommandResult {
    for id in arguments.ids() {
        for file in values::<OutputFile>(arguments, id).filter(|file| !file.is_stdout()) {
            terrace_report::try_to_write(file).map_err(refused)?;
        }
        for folder in values::<OutputFolder>(arguments, id) {
            if folder.0.as_os_str() == "-" {
                return Err(Failure::usage(
                    "-: what is written are several files, which standard output does not take; name a directory (one of \
                     this name: ./-)",
                ));
            }
            terrace_report::try_to_write_into(folder).map_err(refused)?;
        }
    }
    arguments.subcommand().map_or(Ok(()), |(_, arguments)| try_to_write_all(arguments))
}

fn refused(error: WriteError) -> Failure {
    if error.is_misnamed() { Failure::usage(error) } else { Failure::run(error) }
}

/// The values of an option, where they are of this type.
fn values<'a, T: Clone + Send + Sync + 'static>(
    arguments: &'a ArgMatches,
    id: &Id,
) -> impl Iterator<Item = &'a T> {
    arguments.try_get_many(id.as_str()).ok().flatten().into_iter().flatten()
}

/// Writes a text to a file, whole or not at all, or to standard output; its last line ends.
pub fn write_text(destination: &OutputFile, text: &str) -> Result<(), Failure> {
    if destination.is_stdout() {
        return print_line(text);
    }
    let text = format!("{}\n", text.trim_end_matches('\n'));
    terrace_report::write_atomically(destination, text.as_bytes()).or_run()
}
