//! The source files of the workspace.

mod rooms;
mod words;

use std::path::{Path, PathBuf};

/// Longer files hold more than one concern.
const MOST_LINES: usize = 500;
/// Lines of the command line, which is a door: what another door could use too is in a library.
const MOST_OF_COMMAND_LINE: usize = 6000;
/// Width of a comment at most; `rustfmt` cuts code at less and leaves comments alone.
const WIDEST_COMMENT: usize = 125;

/// How a number that has a type of its own in the simulator is declared without it, and the type.
const BARE: [(&str, &str); 12] = [
    ("space: u32", "SpaceId"),
    ("parent: u32", "SpaceId"),
    ("child: u32", "SpaceId"),
    ("addr: u64", "VirtAddr, GuestPhysAddr or PhysAddr"),
    ("address: u64", "VirtAddr, GuestPhysAddr or PhysAddr"),
    ("source: u64", "PhysAddr"),
    ("target: u64", "PhysAddr"),
    ("evicted: Vec<u64>", "Vec<PhysAddr>"),
    ("frame: u64", "Frame, or by another name a place in a tier"),
    ("device_line: u64", "DeviceLine"),
    ("first: u64, end: u64", "AddressRange"),
    ("core: usize", "CoreId"),
];

/// What is declared so outside of tests alone: they count pages and lines by hand.
const BARE_OUTSIDE_TESTS: [(&str, &str); 7] = [
    ("line: u64", "Line, CacheLine, DeviceLine, ChannelLine or GpuLine"),
    ("page: u64", "PageNumber, PageId or VirtAddr"),
    ("vpn: u64", "PageNumber, PageId or VirtAddr"),
    ("names: Range<u64>", "Range<CacheLine>"),
    ("names: &Range<u64>", "&Range<CacheLine>"),
    ("lines: Range<u64>", "Range of lines of one kind"),
    ("Vec<Range<u64>>", "Vec of ranges of addresses or lines of one kind"),
];

/// Endings of source files in other languages.
const OTHER_LANGUAGES: [&str; 8] = ["c", "cpp", "h", "cl", "py", "ts", "mjs", "css"];

/// The source files of a folder and the folders in it.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    files_with(&["rs"], folder, found);
}

/// The files with one of these endings, without what builds have left there.
fn files_with(endings: &[&str], folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !["target", "node_modules", "dist"].iter().any(|built| path.ends_with(built)) {
            files_with(endings, &path, found);
        } else if path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
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
    assert!(files.len() > 300 && files.iter().any(|file| file.ends_with("cli/tests/sources/main.rs")));
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
fn the_command_line_is_a_thin_door() {
    let (root, mut files) = workspace();
    files.retain(|file| file.starts_with(root.join("crates/cli/src")));
    let lines: usize = files.iter().map(|file| std::fs::read_to_string(file).unwrap().lines().count()).sum();
    assert!((1000..MOST_OF_COMMAND_LINE).contains(&lines), "crates/cli/src has {lines} lines");
}

#[test]
fn no_source_file_is_longer_than_five_hundred_lines() {
    let (root, mut files) = workspace();
    let ours = files.len();
    for folder in ["crates", "python", "scripts", "packaging", "tests"] {
        files_with(&OTHER_LANGUAGES, &root.join(folder), &mut files);
    }
    assert!(files.len() > ours + 30, "{} files in other languages", files.len() - ours);
    let lines = |file: &PathBuf| std::fs::read_to_string(file).unwrap().lines().count();
    let long: Vec<String> = files
        .iter()
        .map(|file| (lines(file), file))
        .filter(|(lines, _)| *lines > MOST_LINES)
        .map(|(lines, file)| format!("{} has {lines} lines", file.strip_prefix(root).unwrap().display()))
        .collect();
    assert!(long.is_empty(), "split by concern what is longer than {MOST_LINES} lines: {}", long.join(", "));
}

/// Whether `line` declares it, not as the end of a longer name.
fn declares(line: &str, bare: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices(bare).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + bare.len()..].chars().next();
        let of_word = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric());
        !of_word(before) && !of_word(after)
    })
}

/// What stands before the tests of a source file; nothing of a file of tests.
fn without_tests<'a>(file: &Path, text: &'a str) -> &'a str {
    let is_tests = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs";
    if file.iter().any(is_tests) { "" } else { text.split("\nmod tests {").next().unwrap_or_default() }
}

#[test]
fn addresses_lines_pages_spaces_and_cores_of_the_simulator_have_types() {
    let (root, mut files) = workspace();
    files.retain(|file| file.starts_with(root.join("crates/sim/src")));
    assert!(files.len() > 150, "{}", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let place = file.strip_prefix(root).unwrap();
        let own = without_tests(place, &text);
        for (text, list) in [(&text[..], &BARE[..]), (own, &BARE_OUTSIDE_TESTS[..])] {
            for (number, line) in text.lines().enumerate() {
                for (bare, wanted) in list.iter().filter(|(bare, _)| declares(line, bare)) {
                    let place = place.display();
                    found.push(format!("{place}:{}: `{bare}` should be a {wanted}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn declarations_are_found_and_longer_names_are_not() {
    assert!(declares("    fn table(&self, space: u32) -> &PageTable {", "space: u32"));
    assert!(declares("    pub space: u32,", "space: u32"));
    assert!(declares("    fn forget(&mut self, _space: u32) {}", "space: u32"));
    assert!(!declares("    workspace: u32,", "space: u32"));
    assert!(!declares("    // space: u32", "space: u32"));
    assert!(declares("    last_line: u64,", "line: u64") && !declares("    lines: u64,", "line: u64"));
    assert!(declares("    fn names(&mut self) -> Vec<Range<u64>> {", "Vec<Range<u64>>"));
    let file = "fn look_up(line: Line) {}\n\n#[cfg(test)]\nmod tests {\n    fn naive(line: u64) {}\n}\n";
    assert!(!without_tests(Path::new("crates/sim/src/cache/level.rs"), file).contains("line: u64"));
    assert!(without_tests(Path::new("crates/sim/src/cache/level.rs"), file).contains("line: Line"));
    assert_eq!(without_tests(Path::new("crates/sim/src/os/memory/tests/mod.rs"), file), "");
}
