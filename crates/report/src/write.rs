//! Output files appear whole or not at all: written beside their place, flushed to disk, then renamed.

use crate::Comparison;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// An output that could not be written. What stood in its place before is unchanged.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {}", path.display(), cause_and_advice(error))]
pub struct WriteError {
    /// The file or directory.
    pub path: PathBuf,
    /// What the system said; the message has it.
    pub error: io::Error,
}

impl WriteError {
    /// Whether the name is wrong, and not the disk.
    pub fn is_misnamed(&self) -> bool {
        use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound};
        matches!(self.error.kind(), AlreadyExists | IsADirectory | NotADirectory | NotFound)
    }
}

fn cause_and_advice(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{error}; free some space or choose another directory")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{error}; choose a directory you may write to")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "a file is in the way".to_owned(),
        io::ErrorKind::IsADirectory => "a directory is there".to_owned(),
        io::ErrorKind::NotFound => "its parent directory does not exist".to_owned(),
        _ => error.to_string(),
    }
}

impl Comparison {
    /// Writes `report.html`, `results.json`, `results.csv` and `results.parquet` into `directory`, which is created where it
    /// is missing. No file is replaced before all four are safely on disk. Returns the path of `report.html`.
    ///
    /// # Errors
    /// When the directory cannot be created or a file cannot be written; earlier files stay as they were.
    pub fn write_directory(&self, directory: &Path) -> Result<PathBuf, WriteError> {
        fs::create_dir_all(directory).map_err(|error| WriteError { path: directory.to_owned(), error })?;
        let columns = self.columns();
        let contents = [
            ("results.json", self.to_json().into_bytes()),
            ("results.csv", columns.to_csv().into_bytes()),
            ("results.parquet", columns.to_parquet()),
            ("report.html", self.to_html().into_bytes()),
        ];
        let prepared = contents
            .iter()
            .map(|(name, content)| {
                let path = directory.join(name);
                let file = prepare(&path, content)?;
                Ok((path, file))
            })
            .collect::<Result<Vec<_>, WriteError>>()?;
        for (path, file) in prepared {
            commit(path, file)?;
        }
        Ok(directory.join("report.html"))
    }

    /// Writes the page to `path`.
    ///
    /// # Errors
    /// When the file cannot be written; an earlier one stays as it was.
    pub fn write_html(&self, path: &Path) -> Result<(), WriteError> {
        write_atomically(path, self.to_html().as_bytes())
    }
}

/// Writes `content` to `path` whole or not at all. Special files such as `/dev/stdout` are written in place.
///
/// # Errors
/// When the file cannot be written; an earlier one stays as it was.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<(), WriteError> {
    if is_special(path) {
        // Behind what is there: standard output may be a file that others write to as well.
        return fs::OpenOptions::new()
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(content))
            .map_err(|error| WriteError { path: path.to_owned(), error });
    }
    let file = prepare(path, content)?;
    commit(path.to_owned(), file)
}

/// Whether `path` can be written, found out before there is anything to write: what stands there stays as it is.
///
/// # Errors
/// When a file of one byte cannot be written beside it.
pub fn try_to_write(path: &Path) -> Result<(), WriteError> {
    match is_special(path) {
        true => Ok(()),
        false => prepare(path, &[0]).map(drop),
    }
}

/// Whether files can be written into a folder, which is made only then where it is missing; found out before there are any.
///
/// # Errors
/// When a file of one byte cannot be written into the folder, or into the nearest one above it that is there.
pub fn try_to_write_into(folder: &Path) -> Result<(), WriteError> {
    let there = folder.ancestors().find(|folder| folder.symlink_metadata().is_ok());
    let there = there.filter(|there| !there.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = prepare(&there.join("any"), &[0]);
    file.map(drop).map_err(|WriteError { error, .. }| WriteError { path: folder.to_owned(), error })
}

/// Whether nothing can take the place of what is there: a pipe, a device, or the name of an open file, such as `/dev/stdout`
/// where it goes to a file.
fn is_special(path: &Path) -> bool {
    let names_an_open_file = path.is_symlink() && (path.starts_with("/dev") || path.starts_with("/proc"));
    fs::metadata(path).is_ok_and(|m| !m.is_dir() && (names_an_open_file || !m.is_file()))
}

/// A temporary file beside `path` with the content on disk.
fn prepare(path: &Path, content: &[u8]) -> Result<NamedTempFile, WriteError> {
    let failed = |error| WriteError { path: path.to_owned(), error };
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".terrace-");
    #[cfg(unix)]
    {
        // As any other file the user creates; the user's mask still applies.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    // tempfile's error names its temporary path, which means nothing to the user.
    let plain = |error: io::Error| error.raw_os_error().map_or(error, io::Error::from_raw_os_error);
    let refused = |error: io::Error| match plain(error).kind() {
        // As /proc does.
        io::ErrorKind::NotFound if directory.is_dir() => {
            io::Error::other(format!("{} takes no files; choose another directory", directory.display()))
        }
        kind => io::Error::from(kind),
    };
    let mut file = builder.tempfile_in(directory).map_err(|error| failed(refused(error)))?;
    file.as_file_mut().write_all(content).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    Ok(file)
}

fn commit(path: PathBuf, file: NamedTempFile) -> Result<(), WriteError> {
    match file.persist(&path) {
        Ok(_) => Ok(()),
        Err(persist) => Err(WriteError { path, error: persist.error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data;

    #[test]
    fn a_directory_gets_its_files_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("deep/er");
        let page = test_data::comparison().write_directory(&directory).unwrap();
        assert_eq!(page, directory.join("report.html"));
        let mut names: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["report.html", "results.csv", "results.json", "results.parquet"]);
    }

    #[test]
    fn when_one_file_cannot_be_replaced_none_is() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("results.json"), "old").unwrap();
        fs::create_dir(directory.path().join("report.html")).unwrap();
        let error = test_data::comparison().write_directory(directory.path()).unwrap_err().to_string();
        assert!(error.contains("report.html"), "{error}");
        assert_eq!(fs::read_to_string(directory.path().join("results.json")).unwrap(), "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "temporary files are gone");
    }

    #[test]
    fn a_missing_parent_is_named() {
        let error = write_atomically(Path::new("/nonexistent/x.json"), b"").unwrap_err().to_string();
        assert!(error.contains("/nonexistent/x.json") && error.contains("parent"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_said_and_a_special_file_written_in_place() {
        let error = write_atomically(Path::new("/dev/full"), b"x").unwrap_err().to_string();
        assert!(error.contains("/dev/full") && error.contains("free some space"), "{error}");
        write_atomically(Path::new("/dev/null"), b"x").unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_name_of_an_open_file_stays_and_what_is_written_comes_behind() {
        use std::os::fd::AsRawFd;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"before ").unwrap();
        let name = PathBuf::from(format!("/proc/self/fd/{}", file.as_file().as_raw_fd()));
        write_atomically(&name, b"after").unwrap();
        assert!(name.is_symlink());
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "before after");
    }
}
