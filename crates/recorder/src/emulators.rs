//! Which QEMUs are installed, for one that crashes where a newer one may not.

use crate::launch::{QEMU, check_program};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where an emulator lies that was installed by hand, if the search path lacks it.
const BY_HAND: [&str; 2] = ["/usr/local/bin", "/opt/qemu/bin"];

/// A QEMU that is newer than the one which records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewerEmulator {
    /// Folder of its executable.
    pub folder: PathBuf,
    /// The version, such as `9.1.0`.
    pub version: String,
    /// The version of the one that records.
    pub recording: String,
}

/// The newest QEMU of the search path and of where QEMUs are installed by hand, if it is newer than the first of the search
/// path, which records.
pub fn newer_emulator() -> Option<NewerEmulator> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(BY_HAND.map(PathBuf::from));
    newer_in(folders.filter(|folder| check_program(&folder.join(QEMU)).is_ok()))
}

/// The newest emulator of `folders` if it is newer than the first one's.
fn newer_in(folders: impl Iterator<Item = PathBuf>) -> Option<NewerEmulator> {
    let mut found = folders.filter_map(|folder| {
        version_of(&folder.join(QEMU)).map(|version| (numbers(&version), version, folder))
    });
    let (first, recording, _) = found.next()?;
    let (newest, version, folder) = found.max()?;
    (newest > first).then_some(NewerEmulator { folder, version, recording })
}

/// What `qemu-x86_64 --version` says: `qemu-x86_64 version 7.2.22 (Debian 1:7.2+dfsg-7)`.
fn version_of(executable: &Path) -> Option<String> {
    let output = Command::new(executable).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = said.split_whitespace().skip_while(|word| *word != "version").skip(1);
    words.next().map(str::to_owned)
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn emulator(folder: &Path, says: &str) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let executable = folder.join(QEMU);
        std::fs::write(&executable, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        std::fs::set_permissions(&executable, PermissionsExt::from_mode(0o755)).unwrap();
        folder.to_owned()
    }

    #[test]
    fn the_newest_is_named_where_it_is_newer_than_the_one_that_records() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str, says: &str| emulator(&place.path().join(name), says);
        let old = at("old", "qemu-x86_64 version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)");
        let new = at("new", "qemu-x86_64 version 10.0.3");
        let between = at("between", "qemu-x86_64 version 9.2.1");
        let broken = at("broken", "Segmentation fault");
        let named = |folders: &[&PathBuf]| newer_in(folders.iter().map(|folder| (*folder).clone()));
        let newer =
            NewerEmulator { folder: new.clone(), version: "10.0.3".into(), recording: "7.2.22".into() };
        assert_eq!(named(&[&old, &between, &new, &broken]), Some(newer));
        assert_eq!(named(&[&new, &old, &between]), None, "the newest records already");
        assert_eq!(named(&[&old, &old]), None);
        assert_eq!(named(&[&old, &broken]), None);
        assert_eq!(named(&[]), None);
    }
}
