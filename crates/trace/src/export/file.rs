//! The file of an export: compressed as its name says, and there whole or not at all.

use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Records repeat, so that more effort gains little.
const XZ_LEVEL: u32 = 1;

/// A file that is written as a whole. Its content is compressed where its name ends in `.gz`, `.xz` or `.zst`, as
/// ChampSim and other tools tell it. Without [`ExportFile::finish`], a file that was there before stays as it was.
pub struct ExportFile {
    path: PathBuf,
    encoder: Encoder,
}

enum Encoder {
    Plain(Target),
    Gz(GzEncoder<Target>),
    Xz(XzEncoder<Target>),
    Zst(zstd::Encoder<'static, Target>),
}

/// Where the bytes go.
enum Target {
    /// A file beside the one that is named, which it replaces at the end.
    Beside(NamedTempFile),
    /// A pipe or a device, in place.
    InPlace(File),
}

/// What says how a file is compressed.
fn ending(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

impl ExportFile {
    /// Begins a file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> io::Result<ExportFile> {
        let target = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            // Behind what is there: standard output may be a file that others write to as well.
            Ok(_) if is_in_place(path) => Target::InPlace(fs::OpenOptions::new().append(true).open(path)?),
            _ => Target::Beside(beside(path)?),
        };
        let encoder = match ending(path) {
            Some("gz") => Encoder::Gz(GzEncoder::new(target, flate2::Compression::fast())),
            Some("xz") => Encoder::Xz(XzEncoder::new(target, XZ_LEVEL)),
            Some("zst") => Encoder::Zst(zstd::Encoder::new(target, zstd::DEFAULT_COMPRESSION_LEVEL)?),
            _ => Encoder::Plain(target),
        };
        Ok(ExportFile { path: path.to_owned(), encoder })
    }

    /// Whether a file of this name is compressed.
    pub fn is_compressed(path: &Path) -> bool {
        matches!(ending(path), Some("gz" | "xz" | "zst"))
    }

    /// A folder with room for what is needed while the file is written: its own, or for a pipe that of temporary files.
    pub fn scratch(&self) -> PathBuf {
        match fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => std::env::temp_dir(),
            _ => folder_of(&self.path).to_owned(),
        }
    }

    /// Ends the file and puts it in its place.
    ///
    /// # Errors
    /// When what is left cannot be written, or the file not be put in its place.
    pub fn finish(self) -> io::Result<()> {
        let target = match self.encoder {
            Encoder::Plain(target) => target,
            Encoder::Gz(encoder) => encoder.finish()?,
            Encoder::Xz(encoder) => encoder.finish()?,
            Encoder::Zst(encoder) => encoder.finish()?,
        };
        match target {
            Target::Beside(file) => file.persist(&self.path).map(drop).map_err(|error| error.error),
            Target::InPlace(mut file) => file.flush(),
        }
    }
}

/// Whether nothing can take the place of what is there: a pipe, a device, or a name of an open file such as `/dev/stdout`.
pub fn is_in_place(path: &Path) -> bool {
    let is_of_open_file = path.is_symlink() && (path.starts_with("/dev") || path.starts_with("/proc"));
    fs::metadata(path).is_ok_and(|found| !found.is_file() || is_of_open_file)
}

/// A file in the folder of `path`, to take its place.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // As any other file the user creates; the user's mask still applies.
    builder.prefix(".terrace-").permissions(fs::Permissions::from_mode(0o666));
    // The error names the temporary path, which means nothing to the user.
    builder.tempfile_in(folder_of(path)).map_err(|error| io::Error::from(error.kind()))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Write for ExportFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Encoder::Plain(target) => target.write(bytes),
            Encoder::Gz(encoder) => encoder.write(bytes),
            Encoder::Xz(encoder) => encoder.write(bytes),
            Encoder::Zst(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::Plain(target) => target.flush(),
            // A flush would end a block, and is of no use before the end.
            Encoder::Gz(_) | Encoder::Xz(_) | Encoder::Zst(_) => Ok(()),
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // Without its temporary path, which errors would name.
            Target::Beside(file) => file.as_file_mut().write(bytes),
            Target::InPlace(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Beside(file) => file.as_file_mut().flush(),
            Target::InPlace(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_an_open_file_comes_behind_what_is_there() {
        use std::os::fd::AsRawFd;
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(b"before ").unwrap();
        let name = PathBuf::from(format!("/proc/self/fd/{}", file.as_file().as_raw_fd()));
        let mut export = ExportFile::create(&name).unwrap();
        export.write_all(b"after").unwrap();
        export.finish().unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "before after");
    }
}
