//! The folder of journals and sockets. What lies there is obeyed, so nobody but its owner may have put it there.
//!
//! Everything in it is reached through one open handle, and nothing is followed or waited for on the way: neither a symbolic
//! link nor a pipe. Modes are set explicitly, whatever the user's mask.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Mode of the folder.
const PRIVATE_FOLDER: u32 = 0o700;
/// Mode of what is in it.
const PRIVATE_FILE: u32 = 0o600;
/// Others than the owner may write.
pub(crate) const OTHERS_WRITE: u32 = 0o022;
/// Bytes of the largest file that is read.
const MOST: u64 = 1 << 20;

/// Between two tries to lock it.
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// A folder that belongs to this user alone.
#[derive(Debug)]
pub struct Folder {
    handle: File,
    path: PathBuf,
}

/// A folder that is locked.
#[derive(Debug)]
pub struct Locked<'a>(&'a Folder);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: an open descriptor.
        unsafe { libc::flock(self.0.handle.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// The user that this process acts as.
pub fn user() -> u32 {
    // SAFETY: this call cannot fail.
    unsafe { libc::geteuid() }
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is not used: {why}", path.display()))
}

impl Folder {
    /// Opens a folder of this user's.
    ///
    /// # Errors
    /// It does not exist, is a symbolic link or no folder, belongs to another user, or others may write into it.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Folder::open_of(path, user())
    }

    fn open_of(path: &Path, user: u32) -> io::Result<Folder> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let handle =
            File::options().read(true).custom_flags(flags).open(path).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::ENOTDIR | libc::ELOOP) => {
                        refused(path, "it is no folder, or a symbolic link to one")
                    }
                    _ => error,
                }
            })?;
        let there = handle.metadata()?;
        if there.uid() != user {
            return Err(refused(path, &format!("it belongs to user {}, not to {user}", there.uid())));
        }
        if there.mode() & OTHERS_WRITE != 0 {
            let mode = there.mode() & 0o7777;
            let why =
                format!("others may write into it (mode {mode:04o}); look at what is in it, then chmod 700");
            return Err(refused(path, &why));
        }
        Ok(Folder { handle, path: path.to_owned() })
    }

    /// Opens a folder of this user's, or makes it. Nobody else may look into it afterwards.
    ///
    /// # Errors
    /// As [`Folder::open`], or it cannot be made.
    pub fn create(path: &Path) -> io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        match std::fs::DirBuilder::new().mode(PRIVATE_FOLDER).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // A mask may have taken even the owner's rights.
        let folder = Folder::open(path)?;
        folder.handle.set_permissions(PermissionsExt::from_mode(PRIVATE_FOLDER))?;
        Ok(folder)
    }

    /// Locks the folder for changes to what several programs share, until what comes back is dropped.
    ///
    /// # Errors
    /// Somebody else holds it for longer than `timeout`.
    pub fn lock(&self, timeout: Duration) -> io::Result<Locked<'_>> {
        let begin = Instant::now();
        loop {
            // SAFETY: an open descriptor.
            if unsafe { libc::flock(self.handle.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Locked(self));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            if begin.elapsed() >= timeout {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    format!(
                        "{} is locked by another program for {} s; try again when that has ended",
                        self.path.display(),
                        timeout.as_secs()
                    ),
                ));
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
    }

    /// The names in it, sorted.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))?;
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Where a file of it lies, for people.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The text of a file that this user has written and nobody else may have changed.
    ///
    /// # Errors
    /// It is no regular file, belongs to another user, has another name elsewhere, others may write it, or it is longer than
    /// anything that Terrace writes.
    pub fn read(&self, name: &str) -> io::Result<String> {
        self.read_of(name, user())
    }

    fn read_of(&self, name: &str, user: u32) -> io::Result<String> {
        let path = self.path_of(name);
        let file = self.file(name, libc::O_RDONLY | libc::O_NONBLOCK).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ELOOP) => refused(&path, "it is a symbolic link"),
                Some(libc::ENXIO) => refused(&path, "it is no regular file"),
                _ => error,
            }
        })?;
        let there = file.metadata()?;
        let why = match () {
            () if !there.is_file() => "it is no regular file".to_owned(),
            () if there.uid() != user => format!("it belongs to user {}, not to {user}", there.uid()),
            () if there.nlink() != 1 => "it has another name elsewhere".to_owned(),
            () if there.mode() & OTHERS_WRITE != 0 => "others may write it".to_owned(),
            () if there.len() > MOST => format!("it is longer than {MOST} bytes"),
            () => {
                let mut text = String::new();
                file.take(MOST).read_to_string(&mut text)?;
                return Ok(text);
            }
        };
        Err(refused(&path, &why))
    }

    /// Writes a file whole and puts it in its place: a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// Those of making and renaming it.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let draft = Path::new(name).with_extension("draft");
        let draft = draft.to_str().unwrap_or(name);
        let _ = self.remove(draft);
        let mut file = self.file(draft, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)?;
        file.set_permissions(PermissionsExt::from_mode(PRIVATE_FILE))?;
        file.write_all(text.as_bytes())?;
        let (from, to) = (terminated(draft.as_ref())?, terminated(name.as_ref())?);
        let handle = self.handle.as_raw_fd();
        // SAFETY: both names end with a zero, and the handle is open.
        checked(unsafe { libc::renameat(handle, from.as_ptr(), handle, to.as_ptr()) }).map(|_| ())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of removing it.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let name = terminated(name.as_ref())?;
        // SAFETY: the name ends with a zero, and the handle is open.
        checked(unsafe { libc::unlinkat(self.handle.as_raw_fd(), name.as_ptr(), 0) }).map(|_| ())
    }

    fn file(&self, name: &str, flags: libc::c_int) -> io::Result<File> {
        let name = terminated(name.as_ref())?;
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NOCTTY;
        // SAFETY: the name ends with a zero, and the handle is open; a new descriptor comes back or an error.
        unsafe {
            let file = libc::openat(self.handle.as_raw_fd(), name.as_ptr(), flags, PRIVATE_FILE);
            checked(file).map(|file| File::from_raw_fd(file))
        }
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A name for a system call. One with a slash would lead out of the folder.
fn terminated(name: &OsStr) -> io::Result<CString> {
    match CString::new(name.as_bytes()) {
        Ok(name) if !name.as_bytes().contains(&b'/') => Ok(name),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn refusal<T: std::fmt::Debug>(result: io::Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_is_made_is_private() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("terrace");
        let folder = Folder::create(&path).unwrap();
        folder.write("7.json", "text").unwrap();
        folder.write("7.json", "newer").unwrap();
        assert_eq!((mode(&path), mode(&path.join("7.json"))), (0o700, 0o600));
        assert_eq!(
            (folder.names().unwrap(), folder.read("7.json").unwrap()),
            (vec!["7.json".into()], "newer".into())
        );
        // One that was made by an older Terrace, open to readers, is closed.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Folder::create(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        folder.remove("7.json").unwrap();
        assert_eq!(folder.names().unwrap(), [""; 0]);
    }

    /// The mask is the whole process's, so the tests run once more in one of their own.
    #[test]
    fn modes_hold_under_any_mask() {
        let tests = [
            "folder::tests::what_is_made_is_private",
            "help::tests::modes_do_not_depend_on_the_users_mask",
            "journal::tests::journals_are_private",
            "server::tests::status_and_metrics_are_served_and_the_socket_goes_with_the_server",
        ];
        for mask in ["000", "077"] {
            let script = format!("umask {mask}; exec \"$0\" --exact \"$@\"");
            let program = std::env::current_exe().unwrap();
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .arg(program)
                .args(tests)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("4 passed"), "umask {mask}: {said}");
        }
    }

    #[test]
    fn a_folder_of_someone_elses_making_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("terrace");
        std::fs::create_dir(&path).unwrap();
        let stranger = user() + 1;
        assert!(refusal(Folder::open_of(&path, stranger)).contains("it belongs to user"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(refusal(Folder::open(&path)).contains("others may write into it (mode 0777)"));
        assert!(refusal(Folder::create(&path)).contains("others may write into it"));
        assert_eq!(mode(&path), 0o777, "what is not ours is not changed");
        let link = place.path().join("link");
        symlink(place.path(), &link).unwrap();
        assert!(refusal(Folder::create(&link)).contains("symbolic link"));
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(refusal(Folder::create(&file)).contains("it is no folder"));
    }

    #[test]
    fn a_file_of_someone_elses_making_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(&place.path().join("terrace")).unwrap();
        let path = |name: &str| folder.path_of(name);
        folder.write("own", "text").unwrap();
        assert!(refusal(folder.read_of("own", user() + 1)).contains("it belongs to user"));
        symlink(path("own"), path("link")).unwrap();
        assert!(refusal(folder.read("link")).contains("symbolic link"));
        let pipe = CString::new(path("pipe").as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert!(refusal(folder.read("pipe")).contains("no regular file"));
        let socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        assert!(refusal(folder.read("socket")).contains("no regular file"));
        drop(socket);
        std::fs::create_dir(path("folder")).unwrap();
        assert!(refusal(folder.read("folder")).contains("no regular file"));
        std::fs::hard_link(path("own"), place.path().join("elsewhere")).unwrap();
        assert!(refusal(folder.read("own")).contains("another name"));
        folder.write("own", "text").unwrap();
        std::fs::set_permissions(path("own"), PermissionsExt::from_mode(0o620)).unwrap();
        assert!(refusal(folder.read("own")).contains("others may write"));
        folder.write("long", &"x".repeat(MOST as usize + 1)).unwrap();
        assert!(refusal(folder.read("long")).contains("longer"));
        assert!(folder.read("../own").is_err() && folder.write("a/b", "").is_err());
    }
}
