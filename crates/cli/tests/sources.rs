//! The source files of the workspace.

use std::path::{Path, PathBuf};

/// Longer files hold more than one concern.
const MOST_LINES: usize = 500;

/// The source files of a folder and the folders in it, without what builds have left there.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_is_longer_than_five_hundred_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut files = Vec::new();
    for folder in ["crates", "fuzz", "python", "tests"] {
        sources(&root.join(folder), &mut files);
    }
    let lines = |file: &PathBuf| std::fs::read_to_string(file).unwrap().lines().count();
    // This file and the largest crate are among them.
    assert!(files.len() > 300 && files.iter().any(|file| file.ends_with("cli/tests/sources.rs")));
    let long: Vec<String> = files
        .iter()
        .map(|file| (lines(file), file))
        .filter(|(lines, _)| *lines > MOST_LINES)
        .map(|(lines, file)| format!("{} has {lines} lines", file.strip_prefix(root).unwrap().display()))
        .collect();
    assert!(long.is_empty(), "split by concern what is longer than {MOST_LINES} lines: {}", long.join(", "));
}
