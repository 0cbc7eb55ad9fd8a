//! The plugin for Oclgrind: carried as source, compiled once for each version of Oclgrind.
//!
//! It is C++ against Oclgrind's headers, so it cannot be built where Terrace is; see the decision on recording OpenCL
//! programs.

use crate::RecordError;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// What is compiled, and what it includes.
const SOURCES: [(&str, &str); 3] = [
    ("plugin.cpp", include_str!("../../opencl/plugin.cpp")),
    ("calls.h", include_str!("../../opencl/calls.h")),
    ("process.h", include_str!("../../opencl/process.h")),
];
const FLAGS: &[&str] = &["-std=c++17", "-O2", "-fPIC", "-shared", "-fno-rtti", "-pthread"];

/// The executable that runs a program on Oclgrind.
pub const OCLGRIND: &str = "oclgrind";

/// The version that Oclgrind says it has.
///
/// # Errors
/// There is none.
pub fn version() -> Result<String, RecordError> {
    let output = Command::new(OCLGRIND).arg("--version").output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            RecordError::OclgrindMissing { what: "oclgrind was not found".to_owned() }
        }
        _ => RecordError::Io { what: "cannot start oclgrind".to_owned(), error },
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("Oclgrind"));
    Ok(line.unwrap_or("Oclgrind of unknown version").to_owned())
}

/// The plugin's file, and its folder where it is of one recording alone and goes with it.
#[derive(Debug)]
pub struct Plugin {
    pub path: PathBuf,
    _folder: Option<TempDir>,
}

/// The plugin's file for this version. It is compiled where the user's cache does not have it, and for one recording alone
/// where there is no cache that only this user and root can write: what is loaded from there acts as the user.
///
/// # Errors
/// It cannot be compiled: the message names the packages.
pub fn compiled(version: &str) -> Result<Plugin, RecordError> {
    // SAFETY: this call cannot fail.
    let user = unsafe { libc::geteuid() };
    let made = |folder: &PathBuf| fs::create_dir_all(folder).is_ok() && is_private(folder, user);
    let (folder, own) = match cache_folder().filter(made) {
        Some(folder) => (folder, None),
        None => {
            let failed =
                |error| RecordError::Io { what: "cannot make a folder for the plugin".to_owned(), error };
            let own = tempfile::tempdir().map_err(failed)?;
            (own.path().to_owned(), Some(own))
        }
    };
    let mut hasher = DefaultHasher::new();
    (SOURCES, FLAGS, version).hash(&mut hasher);
    let path = folder.join(format!("opencl-{:016x}.so", hasher.finish()));
    let plugin = Plugin { path: path.clone(), _folder: own };
    if path.is_file() && is_private(&path, user) {
        return Ok(plugin);
    }
    let failed = |error| RecordError::Io { what: format!("cannot write {}", path.display()), error };
    let work = tempfile::tempdir_in(&folder).map_err(failed)?;
    for (name, text) in SOURCES {
        fs::write(work.path().join(name), text).map_err(failed)?;
    }
    let built = work.path().join("plugin.so");
    compile(&work.path().join(SOURCES[0].0), &built)?;
    // A name that appears at once: another recording may do the same.
    fs::rename(&built, &path).map_err(failed)?;
    Ok(plugin)
}

/// Whether nobody but `user` and root can change this file or folder, or put another in its place: it and all folders above
/// it belong to one of them, others may not write into them, and it is no symbolic link. A folder above it may have the
/// sticky bit, with which others cannot rename what is not theirs.
fn is_private(path: &Path, user: u32) -> bool {
    path.ancestors().enumerate().all(|(above, place)| {
        let Ok(there) = fs::symlink_metadata(place) else { return false };
        // Links above it are the system's or the user's own, as their owner is looked at.
        let is_of_ours = there.uid() == user || there.uid() == 0;
        let others_write = there.mode() & 0o022 != 0 && !there.is_symlink();
        let is_sticky = above > 0 && there.mode() & libc::S_ISVTX != 0;
        is_of_ours && (!others_write || is_sticky) && (above > 0 || !there.is_symlink())
    })
}

fn compile(source: &Path, built: &Path) -> Result<(), RecordError> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut command = Command::new(&compiler);
    let output = command.args(FLAGS).arg("-o").arg(built).arg(source).arg("-ldl").output();
    let name = compiler.to_string_lossy();
    let output =
        output.map_err(|_| RecordError::OclgrindMissing { what: format!("{name} was not found") })?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().find(|line| line.contains("error")).unwrap_or("it failed");
    Err(RecordError::OclgrindMissing { what: format!("{name} cannot compile the plugin ({first})") })
}

/// Whether the loader can take the plugin's path: blanks and colons part paths there.
pub fn can_be_preloaded(plugin: &Path) -> bool {
    plugin.to_str().is_some_and(|path| !path.contains([' ', ':']))
}

/// The user's folder for what can be made again, if there is one.
fn cache_folder() -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(absolute);
    let home =
        || std::env::var_os("HOME").map(PathBuf::from).filter(absolute).map(|home| home.join(".cache"));
    cache.or_else(home).map(|cache| cache.join("terrace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_could_replace_is_not_loaded() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("terrace");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("x.so");
        fs::write(&file, "").unwrap();
        let user = fs::metadata(&file).unwrap().uid();
        let with = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            let found = is_private(&file, user);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            found
        };
        assert!(is_private(&file, user) && with(&file, 0o644));
        assert!(!with(&file, 0o775) && !with(&file, 0o646) && !with(&folder, 0o777));
        assert!(with(place.path(), 0o1777), "a folder above it may be sticky, as /tmp is");
        assert!(!with(place.path(), 0o777));
        let link = folder.join("link.so");
        symlink(&file, &link).unwrap();
        assert!(!is_private(&link, user) && !is_private(&folder.join("none"), user));
        // Nobody's is neither the user's nor root's.
        if user == 0 {
            std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
            assert!(!is_private(&file, user) && is_private(&file, 65534));
        } else {
            assert!(!is_private(&file, user + 1));
        }
    }

    #[test]
    fn paths_that_the_loader_would_part_are_not_preloaded() {
        let can = ["/home/a/.cache/terrace/x.so", "/home/a b/x.so", "/a:b/x.so"]
            .map(|path| can_be_preloaded(path.as_ref()));
        assert_eq!(can, [true, false, false]);
    }
}
