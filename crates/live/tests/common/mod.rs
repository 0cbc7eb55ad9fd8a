//! Machines that are not here. A fixture is one text: `=== PATH` before the content of every file.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use tempfile::TempDir;
use terrace_live::kernel::Rooted;

/// A machine's files, for as long as this lives.
pub struct Machine {
    folder: TempDir,
}

impl Machine {
    /// The machine of `tests/fixtures/NAME.txt`.
    pub fn named(name: &str) -> Machine {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.txt"));
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { folder };
        for file in std::fs::read_to_string(path).unwrap().split("=== /").skip(1) {
            let (path, content) = file.split_once('\n').unwrap();
            machine.set(path, content);
        }
        machine
    }

    /// This machine with another content of a file.
    pub fn set(&self, path: &str, content: &str) {
        let path = self.folder.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Where its files lie, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        let (mut found, mut folders) = (Vec::new(), vec![self.folder.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.path().is_dir() { folders.push(entry.path()) } else { found.push(entry.path()) }
            }
        }
        found.sort();
        found
    }

    /// This machine without a file.
    pub fn remove(&self, path: &str) {
        std::fs::remove_file(self.folder.path().join(path.trim_start_matches('/'))).unwrap();
    }

    /// The machine's kernel.
    pub fn kernel(&self) -> Rooted {
        Rooted::new(self.folder.path())
    }
}
