//! The folder of a recording: the libraries that recorded programs load, and the recorder's socket.
//!
//! A recorded program can outlive its recorder, and what it starts then may be on its way to load a library. So the
//! folder is removed when no process uses it any more: by the recording that made it, or by a later one, or by
//! [`remove_stale`]. Only its user can enter it.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use terrace_protocol::session::{ALLOCATIONS, MAX_SOCKET_PATH, PLUGIN, PRELOAD, SOCKET};

static PLUGIN_LIBRARY: &[u8] = include_bytes!(env!("TERRACE_PLUGIN_LIBRARY"));
static PRELOAD_LIBRARY: &[u8] = include_bytes!(env!("TERRACE_EXEC_LIBRARY"));
static ALLOCATIONS_LIBRARY: &[u8] = include_bytes!(env!("TERRACE_ALLOCATIONS_LIBRARY"));

/// How the names of these folders begin. Nothing else that Terrace makes has such a name.
const PREFIX: &str = "terrace-record-";
/// Random letters behind [`PREFIX`].
const RANDOM_LETTERS: usize = 8;
/// Where the folder may lie if the user's choice does not do.
const FALLBACKS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// A folder, locked by the process that made it until that ends.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Folder {
    /// Makes one and unpacks the libraries into it.
    ///
    /// # Errors
    /// When no place does: it must be writable, its programs must be executable, and its path must neither be too long
    /// for a socket nor have a comma, a colon or a blank.
    pub fn new() -> io::Result<Folder> {
        remove_stale();
        let mut places = vec![std::env::temp_dir()];
        places.extend(FALLBACKS.map(PathBuf::from));
        let mut refusals = Vec::new();
        for place in places {
            match Folder::new_in(&place) {
                Ok(folder) => return Ok(folder),
                Err(error) => refusals.push(format!("{}: {error}", place.display())),
            }
        }
        Err(io::Error::other(format!(
            "no folder for temporary files can be used ({}); set TMPDIR to one that can",
            refusals.join("; ")
        )))
    }

    fn new_in(place: &Path) -> io::Result<Folder> {
        // Programs change their working directory.
        let place = std::fs::canonicalize(place)?;
        let socket = place.as_os_str().len() + 1 + PREFIX.len() + RANDOM_LETTERS + 1 + SOCKET.len();
        if socket > MAX_SOCKET_PATH {
            return Err(io::Error::other("the path is too long for a socket in it"));
        }
        // QEMU separates the plugin's arguments by commas.
        if place.as_os_str().as_bytes().contains(&b',') {
            return Err(io::Error::other("the path has a comma"));
        }
        // The dynamic linker separates what it preloads by these.
        let parts = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
        if place.as_os_str().as_bytes().iter().any(parts) {
            return Err(io::Error::other("the path has a blank or a colon"));
        }
        if forbids_execution(&place)? {
            return Err(io::Error::other("mounted with noexec"));
        }
        loop {
            let made = tempfile::Builder::new()
                .prefix(PREFIX)
                .rand_bytes(RANDOM_LETTERS)
                .permissions(Permissions::from_mode(0o700))
                .disable_cleanup(true)
                .tempdir_in(&place)?;
            // Whatever the umask took away.
            std::fs::set_permissions(made.path(), Permissions::from_mode(0o700))?;
            let lock = open_folder(made.path())?;
            if !lock_folder(&lock, libc::LOCK_EX) {
                return Err(io::Error::last_os_error());
            }
            if lock.metadata()?.nlink() == 0 {
                // Another recorder took it for a stale one before it was locked.
                continue;
            }
            let folder = Folder { path: made.path().to_owned(), _lock: lock };
            for (name, content) in
                [(PLUGIN, PLUGIN_LIBRARY), (PRELOAD, PRELOAD_LIBRARY), (ALLOCATIONS, ALLOCATIONS_LIBRARY)]
            {
                let mut options = File::options();
                let mut file =
                    options.write(true).create_new(true).mode(0o755).open(folder.path.join(name))?;
                file.set_permissions(Permissions::from_mode(0o755))?;
                file.write_all(content)?;
            }
            return Ok(folder);
        }
    }

    /// Where it lies; absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Else it is removed when the next recording begins.
        if !is_in_use(&self.path) {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the folders of recordings whose recorder and whose programs have ended, and returns where they lay. Only
/// what this user made is touched.
pub fn remove_stale() -> Vec<PathBuf> {
    let mut places = vec![std::env::temp_dir()];
    places.extend(FALLBACKS.map(PathBuf::from));
    let mut places: Vec<PathBuf> =
        places.iter().filter_map(|place| std::fs::canonicalize(place).ok()).collect();
    places.sort();
    places.dedup();
    let entries = places.iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()));
    ours.map(|entry| entry.path()).filter(|path| remove_if_stale(path).unwrap_or(false)).collect()
}

/// Whether the folder was stale and is removed.
fn remove_if_stale(path: &Path) -> io::Result<bool> {
    let folder = open_folder(path)?;
    let metadata = folder.metadata()?;
    // SAFETY: this call cannot fail.
    let is_own = metadata.uid() == unsafe { libc::geteuid() };
    if !is_own || !lock_folder(&folder, libc::LOCK_EX | libc::LOCK_NB) || is_in_use(path) {
        return Ok(false);
    }
    std::fs::remove_dir_all(path)?;
    Ok(true)
}

/// Opens a folder, not what a link points to.
fn open_folder(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    File::options().read(true).custom_flags(flags).open(path)
}

/// Locks it until the descriptor is closed, also by the end of the process.
fn lock_folder(folder: &File, how: libc::c_int) -> bool {
    // SAFETY: no pointer is passed.
    unsafe { libc::flock(folder.as_raw_fd(), how) == 0 }
}

/// Whether a process was started with the folder's name in its arguments or its environment: QEMU for a recorded
/// program, and a program that is to preload the recorder's library.
fn is_in_use(folder: &Path) -> bool {
    let name = folder.as_os_str().as_bytes();
    let own = std::process::id().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    processes.flatten().filter(|process| *process.file_name() != *OsStr::new(&own)).any(|process| {
        let texts =
            ["cmdline", "environ"].map(|file| std::fs::read(process.path().join(file)).unwrap_or_default());
        // Between the begin of an exec and its end a process has neither, and nobody knows what it will have. Threads of
        // the kernel and processes that have ended have no executable.
        if texts.iter().all(Vec::is_empty) {
            return process.path().join("exe").read_link().is_ok();
        }
        texts.iter().any(|text| text.windows(name.len()).any(|part| part == name))
    })
}

fn forbids_execution(path: &Path) -> io::Result<bool> {
    let directory = open_folder(path)?;
    // SAFETY: all zeroes is a valid value, and the pointer is valid for the call.
    unsafe {
        let mut status: libc::statvfs = std::mem::zeroed();
        match libc::fstatvfs(directory.as_raw_fd(), &raw mut status) {
            0 => Ok(status.f_flag & libc::ST_NOEXEC != 0),
            _ => match io::Error::last_os_error() {
                error if error.kind() == ErrorKind::Unsupported => Ok(false),
                error => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_do_not_depend_on_the_umask() {
        for umask in [0o000, 0o077] {
            // SAFETY: changes the mode of files made from here on. Other tests of this process do not look at modes.
            let before = unsafe { libc::umask(umask) };
            let folder = Folder::new().unwrap();
            // SAFETY: as above.
            unsafe { libc::umask(before) };
            let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode(folder.path()), 0o700);
            for library in [PLUGIN, PRELOAD, ALLOCATIONS] {
                assert_eq!(mode(&folder.path().join(library)), 0o755, "{library}");
            }
        }
    }

    #[test]
    fn paths_that_would_be_parted_are_refused() {
        for name in ["a b", "a:b", "a\nb", "a,b"] {
            let folder = tempfile::Builder::new().prefix(name).tempdir().unwrap();
            let refusal = Folder::new_in(folder.path()).unwrap_err().to_string();
            assert!(refusal.starts_with("the path has a "), "{name:?}: {refusal}");
        }
    }

    #[test]
    fn a_folder_goes_with_its_last_user() {
        let folder = Folder::new().unwrap();
        let path = folder.path().to_owned();
        let mut user = std::process::Command::new("sleep").arg("1000").env("USED", &path).spawn().unwrap();
        assert!(!remove_stale().contains(&path), "locked by its recorder");
        drop(folder);
        assert!(path.exists() && !remove_stale().contains(&path), "used by a program");
        user.kill().unwrap();
        user.wait().unwrap();
        // Any process of the machine that is within an exec just now keeps it a little longer.
        while path.exists() {
            remove_stale();
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_only_looks_like_one_is_left_alone() {
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("kept"), "").unwrap();
        let link = std::env::temp_dir().join(format!("{PREFIX}link-{}", std::process::id()));
        let file = std::env::temp_dir().join(format!("{PREFIX}file-{}", std::process::id()));
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        std::fs::write(&file, "").unwrap();
        let removed = remove_stale();
        assert!(!removed.contains(&link) && !removed.contains(&file));
        assert!(link.exists() && file.exists() && elsewhere.path().join("kept").exists());
        std::fs::remove_file(link).unwrap();
        std::fs::remove_file(file).unwrap();
    }
}
