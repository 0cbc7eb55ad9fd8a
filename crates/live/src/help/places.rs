//! Where folders with libraries lie, and which of them nobody uses any more.

use crate::folder::{self, Folder, OTHERS_WRITE};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How the names of folders with libraries begin; the number of the process that made it follows.
pub(super) const PREFIX: &str = "terrace-help-";
/// Where root's folders with libraries lie, unless the folder for temporary files is root's alone.
const ROOTS: &str = "/var/lib/terrace/preload";

/// Where folders with libraries are made. Programs keep the path of one, and load from it, for as long as they live: root's
/// lie where nobody else can make a folder of that name once it is gone.
pub fn place() -> PathBuf {
    let temporary = preloadable(std::env::temp_dir());
    let is_shared = std::fs::metadata(&temporary).is_ok_and(|there| there.mode() & OTHERS_WRITE != 0);
    if folder::user() != 0 || !is_shared {
        return temporary;
    }
    match roots_own(Path::new(ROOTS)) {
        Ok(place) => place,
        Err(error) => {
            tracing::warn!(%error, "libraries for programs lie in {}, which others can write into", temporary.display());
            temporary
        }
    }
}

/// The folder, made where it is not there, and searchable for the users that programs become.
fn roots_own(place: &Path) -> io::Result<PathBuf> {
    for folder in place.parent().into_iter().chain([place]) {
        let made = std::fs::DirBuilder::new().recursive(false).create(folder);
        if made.is_ok() {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?;
        }
        // Refuses links, and what others own or can write into.
        Folder::open(folder)?;
    }
    if is_noexec(place)? {
        return Err(io::Error::other(format!("{} is mounted with noexec", place.display())));
    }
    Ok(place.to_owned())
}

/// The folder, or `/tmp` where the dynamic linker would part the paths of libraries in it: blanks and colons part them.
fn preloadable(folder: PathBuf) -> PathBuf {
    let parts = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    if folder.as_os_str().as_bytes().iter().any(parts) { PathBuf::from("/tmp") } else { folder }
}

/// Whether programs on this file system cannot be run.
pub(super) fn is_noexec(folder: &Path) -> io::Result<bool> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: zeros are a valid structure, which the call fills; the name ends with a zero.
    unsafe {
        let mut system: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(name.as_ptr(), &raw mut system) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(system.f_flag & libc::ST_NOEXEC != 0)
    }
}

/// Removes what runs that were killed have left in the folder for temporary files, where no process looks for it any more;
/// returns which.
pub fn remove_stale(temporary: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(temporary).into_iter().flatten().flatten();
    let mut stale: Vec<PathBuf> = entries.filter(is_of_the_dead).map(|entry| entry.path()).collect();
    if stale.is_empty() {
        return stale;
    }
    // A command that outlives its Terrace starts others, which load the library, too. A program that names itself for `ps`
    // overwrites what the kernel shows of its environment, but has the library mapped.
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let users = processes.flat_map(|process| ["environ", "maps"].map(|file| process.path().join(file)));
    for said in users.filter_map(|file| std::fs::read(file).ok()) {
        stale.retain(|folder| {
            let name = folder.as_os_str().as_bytes();
            !said.windows(name.len()).any(|part| part == name)
        });
    }
    // Whoever replaces the folder by a link meanwhile has it refused: no link is followed.
    stale.retain(|folder| std::fs::remove_dir_all(folder).is_ok());
    stale
}

/// Whether this is a folder of this user's that was made by a process which is no more.
fn is_of_the_dead(entry: &std::fs::DirEntry) -> bool {
    let name = entry.file_name();
    let number =
        name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
    let is_ours = |there: std::fs::Metadata| there.is_dir() && there.uid() == folder::user();
    // The metadata are those of a link itself.
    number.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
        && entry.metadata().is_ok_and(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_lie_where_the_linker_does_not_part_their_paths() {
        for parted in ["/var/a b", "/var/a:b", "/var/a\nb", "/var/a\tb"] {
            assert_eq!(preloadable(parted.into()), Path::new("/tmp"), "{parted:?}");
        }
        assert_eq!(preloadable("/var/ä,b".into()), Path::new("/var/ä,b"));
    }

    #[test]
    fn what_killed_runs_left_goes_when_nobody_looks_for_it() {
        let place = tempfile::tempdir().unwrap();
        // No process has this number, nor ever will: it is beyond the kernel's largest.
        let dead = place.path().join(format!("{PREFIX}4194305-abc"));
        let used = place.path().join(format!("{PREFIX}4194306-abc"));
        let alive = place.path().join(format!("{PREFIX}{}-abc", std::process::id()));
        let others = ["terrace-4194305", "terrace-help-x", "else"].map(|name| place.path().join(name));
        for folder in [&dead, &used, &alive].into_iter().chain(&others) {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("libterrace_helper.so"), "").unwrap();
        }
        let target = place.path().join("target");
        std::fs::create_dir(&target).unwrap();
        let link = place.path().join(format!("{PREFIX}4194307-abc"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut user =
            std::process::Command::new("sleep").arg("600").env("LD_AUDIT_NOT", &used).spawn().unwrap();
        // The kernel shows the environment a moment after the program was started.
        let environment = format!("/proc/{}/environ", user.id());
        while std::fs::read(&environment).unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(remove_stale(place.path()), [dead]);
        assert!(used.exists() && alive.exists() && others.iter().all(|other| other.exists()));
        assert!(target.exists() && link.exists());
        user.kill().unwrap();
        user.wait().unwrap();
        assert_eq!(remove_stale(place.path()), [used]);
    }

    #[test]
    fn roots_place_is_nobody_elses() {
        let above = tempfile::tempdir().unwrap();
        let with = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let (folder, place) = (above.path().join("terrace"), above.path().join("terrace/preload"));
        assert_eq!(roots_own(&place).unwrap(), place);
        for made in [&folder, &place] {
            assert_eq!(std::fs::metadata(made).unwrap().mode() & 0o7777, 0o711);
        }
        // One that is there keeps its mode, unless others could put a folder into it.
        with(&folder, 0o755);
        assert_eq!(roots_own(&place).unwrap(), place);
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o7777, 0o755);
        for (path, mode) in [(&folder, 0o1777), (&place, 0o775)] {
            with(path, mode);
            assert!(roots_own(&place).unwrap_err().to_string().contains("others may write into it"));
            with(path, 0o711);
        }
        std::fs::remove_dir(&place).unwrap();
        std::os::unix::fs::symlink(above.path(), &place).unwrap();
        assert!(roots_own(&place).unwrap_err().to_string().contains("symbolic link"));
    }
}
