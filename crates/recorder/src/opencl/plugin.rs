//! The plugin for Oclgrind: carried as source, compiled once for each version of Oclgrind.
//!
//! It is C++ against Oclgrind's headers, so it cannot be built where Terrace is; see the decision on recording OpenCL
//! programs.

use crate::RecordError;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The plugin's file for this version, compiled where it has not been.
///
/// # Errors
/// It cannot be compiled: the message names the packages.
pub fn compiled(version: &str) -> Result<PathBuf, RecordError> {
    let folder = cache_folder();
    let mut hasher = DefaultHasher::new();
    (SOURCES, FLAGS, version).hash(&mut hasher);
    let path = folder.join(format!("opencl-{:016x}.so", hasher.finish()));
    if path.is_file() {
        return Ok(path);
    }
    let failed = |error| RecordError::Io { what: format!("cannot write {}", path.display()), error };
    fs::create_dir_all(&folder).map_err(failed)?;
    let work = tempfile::tempdir_in(&folder).map_err(failed)?;
    for (name, text) in SOURCES {
        fs::write(work.path().join(name), text).map_err(failed)?;
    }
    let built = work.path().join("plugin.so");
    compile(&work.path().join(SOURCES[0].0), &built)?;
    // A name that appears at once: another recording may do the same.
    fs::rename(&built, &path).map_err(failed)?;
    Ok(path)
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

/// The user's folder for what can be made again; a temporary one where there is none.
fn cache_folder() -> PathBuf {
    let absolute = |path: &PathBuf| path.is_absolute();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(absolute);
    let home =
        || std::env::var_os("HOME").map(PathBuf::from).filter(absolute).map(|home| home.join(".cache"));
    // SAFETY: this call cannot fail.
    let user = unsafe { libc::geteuid() };
    cache
        .or_else(home)
        .map_or_else(|| std::env::temp_dir().join(format!("terrace-{user}")), |cache| cache.join("terrace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_the_loader_would_part_are_not_preloaded() {
        let can = ["/home/a/.cache/terrace/x.so", "/home/a b/x.so", "/a:b/x.so"]
            .map(|path| can_be_preloaded(path.as_ref()));
        assert_eq!(can, [true, false, false]);
    }
}
