//! Real programs as inputs: what each is, and its recording.
//!
//! An entry names a program of the distribution, makes its input on the spot, and says which part of the run is recorded
//! and which published programs it stands for. Recordings are made here and lie in the user's cache, never in a repository:
//! inputs and compilers differ between machines, so a manifest says what a recording was made of.

mod entry;
mod manifest;
mod page;
mod recording;

pub use entry::{Entry, Source, entries, find};
pub use manifest::{Figures, Manifest};
pub use page::{List, Mixed, Program, describe};
pub use recording::{record, record_all, verify};

use crate::keeping::cache_folder;
use crate::sweep::word::InputWord;
use crate::{Error, Input};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How far an entry is.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Commands that it needs are not installed; these.
    Lacks(Vec<String>),
    /// The entry can be recorded.
    Ready,
    /// What it is has changed since it was recorded.
    Outdated,
    /// The entry is recorded.
    Recorded(Box<Manifest>),
    /// The entry is a built-in workload, which needs no recording.
    BuiltIn,
}

impl State {
    /// In two words.
    pub fn name(&self) -> &'static str {
        match self {
            State::Lacks(_) => "not installed",
            State::Ready => "not recorded",
            State::Outdated => "outdated",
            State::Recorded(_) => "recorded",
            State::BuiltIn => "built in",
        }
    }
}

/// The folder of recordings.
#[derive(Clone, Debug)]
pub struct Suite {
    folder: PathBuf,
}

impl Suite {
    /// The user's, in `$XDG_CACHE_HOME/terrace/suite` (`~/.cache` where that is not set).
    ///
    /// # Errors
    /// Neither variable names an absolute path.
    pub fn of_user() -> Result<Suite, Error> {
        let cache = cache_folder().ok_or_else(|| {
            Error::request("recordings of the suite need a folder: set HOME or XDG_CACHE_HOME")
        })?;
        Ok(Suite::in_folder(&cache.join("terrace/suite")))
    }

    /// One in this folder.
    pub fn in_folder(folder: &Path) -> Suite {
        Suite { folder: folder.to_owned() }
    }

    /// Where the recording of `entry` lies, or will.
    pub fn trace(&self, entry: &Entry) -> PathBuf {
        self.folder.join(format!("{}.trace", entry.name))
    }

    fn manifest(&self, entry: &Entry) -> PathBuf {
        self.folder.join(format!("{}.json", entry.name))
    }

    /// How far an entry is. A recording counts where its file has the length that its manifest says.
    pub fn state(&self, entry: &Entry) -> State {
        if matches!(entry.source, Source::Workload(_)) {
            return State::BuiltIn;
        }
        if let Some(manifest) = Manifest::read(&self.manifest(entry)) {
            let length = std::fs::metadata(self.trace(entry)).map(|data| data.len());
            if length.is_ok_and(|length| length == manifest.bytes) {
                return match manifest.entry == entry.identity() {
                    true => State::Recorded(Box::new(manifest)),
                    false => State::Outdated,
                };
            }
        }
        let lacks = missing(entry);
        if lacks.is_empty() { State::Ready } else { State::Lacks(lacks) }
    }

    /// The packages that entries lack, or of `all` those named also what is there, each once. Without names: of all entries.
    ///
    /// # Errors
    /// No entry of a name.
    pub fn packages(&self, names: &[String], all: bool) -> Result<Vec<String>, Error> {
        let mut packages: Vec<String> = Vec::new();
        for entry in chosen(names)? {
            if matches!(self.state(&entry), State::Lacks(_)) || (all && !names.is_empty()) {
                let new = entry.packages.into_iter().filter(|package| !packages.contains(package));
                packages.extend(new.collect::<Vec<_>>());
            }
        }
        Ok(packages)
    }

    /// An entry as an input.
    ///
    /// # Errors
    /// As [`Suite::word`], and a recording that cannot be read.
    pub fn input(&self, name: &str) -> Result<Input, Error> {
        let words = vec!["--suite".to_owned(), name.to_owned()];
        Ok(self.word(name)?.open()?.named(name, words))
    }

    /// What is read for an entry: its workload, or its recording.
    ///
    /// # Errors
    /// No entry of this name, or one that is not recorded; the message says what to do first.
    pub fn word(&self, name: &str) -> Result<InputWord, Error> {
        let entry = find(name)?;
        if let Source::Workload(spec) = entry.source {
            return Ok(InputWord::Workload(spec));
        }
        match self.state(&entry) {
            State::Recorded(_) => Ok(InputWord::Trace(self.trace(&entry))),
            State::Outdated => Err(Error::request(format!(
                "{name} of the suite was recorded by another version of its entry; record it again: terrace suite record {name}"
            ))),
            State::Lacks(commands) => Err(lacking(&entry, &commands)),
            State::Ready | State::BuiltIn => Err(Error::request(format!(
                "{name} of the suite is not recorded yet; record it first: terrace suite record {name}"
            ))),
        }
    }
}

/// The entries of these names; all where there is none.
fn chosen(names: &[String]) -> Result<Vec<Entry>, Error> {
    if names.is_empty() { Ok(entries()) } else { names.iter().map(|name| find(name)).collect() }
}

/// The commands of an entry that are not installed.
fn missing(entry: &Entry) -> Vec<String> {
    entry.commands.iter().filter(|command| !is_installed(command)).cloned().collect()
}

/// What is said of an entry whose programs are not installed.
fn lacking(entry: &Entry, commands: &[String]) -> Error {
    let name = &entry.name;
    Error::request(format!(
        "{name} of the suite needs {}; install it: terrace suite install {name}",
        commands.join(" and ")
    ))
}

/// Whether a program of this name is found as a shell finds it, or a file with this absolute path is there.
fn is_installed(command: &str) -> bool {
    let runs = |path: &Path| {
        let mode = std::fs::metadata(path).map(|data| (data.is_file(), data.permissions().mode()));
        mode.is_ok_and(|(is_file, mode)| is_file && mode & 0o111 != 0)
    };
    if command.starts_with('/') {
        return Path::new(command).exists();
    }
    // Debian keeps games apart, and they are not in everybody's path.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(GAMES)]);
    folders.into_iter().any(|folder| runs(&folder.join(OsStr::new(command))))
}

/// Where Debian keeps games.
const GAMES: &str = "/usr/games";

#[cfg(test)]
mod tests;
