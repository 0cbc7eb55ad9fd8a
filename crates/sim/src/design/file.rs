//! Files of designs, machines and parts: their kinds, and their text.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest text of a design, machine or claim file: a hundred times the longest there is.
const LONGEST_TEXT: u64 = 4 << 20;

/// What a file describes: its key `kind`, a design when absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Hardware.
    Machine,
    /// Choices on any machine.
    Design,
    /// Settings that machines share; not a machine by itself.
    Part,
}

/// A file that has a name.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub name: String,
    /// As shown in messages.
    pub shown: String,
    pub text: Cow<'static, str>,
    /// Directory that relative `extends` of a user's file start from.
    pub directory: Option<PathBuf>,
}

/// A file of the user, which may be a pipe or a device that never ends.
pub(super) fn read_text(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LONGEST_TEXT + 1).read_to_string(&mut text))
        .map_err(|error| reason(&error))?;
    match text.len() as u64 > LONGEST_TEXT {
        true => Err(format!("longer than {} MiB, which no such file is", LONGEST_TEXT >> 20)),
        false => Ok(text),
    }
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::InvalidData => "is not UTF-8 text".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}
