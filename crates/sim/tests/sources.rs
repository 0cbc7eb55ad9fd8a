//! Numbers that have a type of their own are not passed as bare numbers.

use std::path::{Path, PathBuf};

/// How a bare number is declared, and the type that it has instead.
const BARE: [(&str, &str); 3] =
    [("space: u32", "SpaceId"), ("parent: u32", "SpaceId"), ("child: u32", "SpaceId")];

/// Files in which a bare number of that name is right, and why.
const EXCEPTIONS: [(&str, &str, &str); 0] = [];

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
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

#[test]
fn addresses_lines_spaces_and_cores_have_types() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 150, "{}", files.len());
    let mut found = Vec::new();
    let mut used = [false; EXCEPTIONS.len()];
    for file in files {
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            for (bare, wanted) in BARE.iter().filter(|(bare, _)| declares(line, bare)) {
                let excepted =
                    EXCEPTIONS.iter().position(|(of, path, _)| of == bare && name.starts_with(path));
                match excepted {
                    Some(at) => used[at] = true,
                    None => found.push(format!("{name}:{}: `{bare}` should be a {wanted}", number + 1)),
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (used, (bare, path, _)) in used.iter().zip(EXCEPTIONS) {
        assert!(used, "{path} has no `{bare}` any more: remove the exception");
    }
}

#[test]
fn declarations_are_found_and_longer_names_are_not() {
    assert!(declares("    fn table(&self, space: u32) -> &PageTable {", "space: u32"));
    assert!(declares("    pub space: u32,", "space: u32"));
    assert!(declares("    fn forget(&mut self, _space: u32) {}", "space: u32"));
    assert!(!declares("    workspace: u32,", "space: u32"));
    assert!(!declares("    // space: u32", "space: u32"));
}
