//! Files of designs, machines and parts: their kinds, and their text.

use std::borrow::Cow;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
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

/// The design that a policy's name stands for: 4 KiB pages, first touch where it has no wish, and the policy.
pub(super) fn policy_file(name: &str) -> Option<File> {
    let policy = terrace_policy::find(name).ok()?;
    let summary = policy.summary().trim_end_matches('.').replace('\\', "\\\\").replace('"', "\\\"");
    let text =
        format!("summary = \"{summary}\"\nextends = \"first-touch\"\n\n[os.policy]\nname = \"{name}\"\n");
    Some(File { name: name.to_owned(), shown: format!("policy {name}"), text: text.into(), directory: None })
}

/// A file of the user, which may be a shell's pipe (`<(…)`) or a device that never ends. A pipe with a name is refused: to
/// open it would wait for a writer, for ever where there is none.
pub(super) fn read_text(path: &Path) -> Result<String, String> {
    // A pipe without a name is in no folder, so that its path leads nowhere.
    let there = std::fs::canonicalize(path).and_then(std::fs::metadata);
    if there.is_ok_and(|there| there.file_type().is_fifo()) {
        return Err("is a pipe with a name, not a file; write its text to a file".to_owned());
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn pipes_of_a_shell_are_read_and_pipes_with_a_name_refused() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("machine.toml");
        assert!(std::process::Command::new("mkfifo").arg(&named).status().unwrap().success());
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&named, &link).unwrap();
        for path in [&named, &link] {
            assert!(read_text(path).unwrap_err().starts_with("is a pipe with a name"));
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"kind = \"machine\"\n").unwrap();
        drop(writer);
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        assert_eq!(read_text(path.as_ref()).as_deref(), Ok("kind = \"machine\"\n"));
    }
}
