//! The source files of the workspace.

use std::path::{Path, PathBuf};

/// Longer files hold more than one concern.
const MOST_LINES: usize = 500;
/// Of a comment; `rustfmt` cuts code at less and leaves comments alone.
const WIDEST_COMMENT: usize = 125;

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

/// The root of the workspace and all of its source files.
fn workspace() -> (&'static Path, Vec<PathBuf>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut files = Vec::new();
    for folder in ["crates", "fuzz", "python", "tests"] {
        sources(&root.join(folder), &mut files);
    }
    // This file and the largest crate are among them.
    assert!(files.len() > 300 && files.iter().any(|file| file.ends_with("cli/tests/sources.rs")));
    (root, files)
}

#[test]
fn comments_are_no_wider_than_a_screen_shows() {
    let (root, files) = workspace();
    let mut wide = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let place = file.strip_prefix(root).unwrap().display();
        let is_wide = |line: &str| {
            let comment = line.trim_start();
            // A row of a table cannot be cut.
            comment.starts_with("//") && !comment.contains(" | ") && line.chars().count() > WIDEST_COMMENT
        };
        let lines = text.lines().enumerate().filter(|(_, line)| is_wide(line));
        wide.extend(lines.map(|(number, _)| format!("{place}:{}", number + 1)));
    }
    assert!(wide.is_empty(), "comments are at most {WIDEST_COMMENT} characters wide:\n{}", wide.join("\n"));
}

#[test]
fn no_source_file_is_longer_than_five_hundred_lines() {
    let (root, files) = workspace();
    let lines = |file: &PathBuf| std::fs::read_to_string(file).unwrap().lines().count();
    let long: Vec<String> = files
        .iter()
        .map(|file| (lines(file), file))
        .filter(|(lines, _)| *lines > MOST_LINES)
        .map(|(lines, file)| format!("{} has {lines} lines", file.strip_prefix(root).unwrap().display()))
        .collect();
    assert!(long.is_empty(), "split by concern what is longer than {MOST_LINES} lines: {}", long.join(", "));
}
