//! Lists the policies: every file in `src/policies/` is one, under its own name.
//!
//! `two_lru.rs` becomes the module `two_lru` and the policy `two-lru`, built by the type `TwoLru` in it.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src/policies");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("src/policies exists")
        .map(|entry| entry.expect("the folder is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    let (mut modules, mut entries) = (String::new(), String::new());
    for path in &files {
        let module = path.file_stem().and_then(|stem| stem.to_str()).expect("file names are plain");
        let name = module.replace('_', "-");
        let type_name: String = module.split('_').map(capitalised).collect();
        let _ = writeln!(modules, "#[path = {path:?}]\npub mod {module};");
        let _ = writeln!(
            entries,
            "    crate::Entry::of::<policies::{module}::{type_name}>({name:?}, include_str!({path:?})),"
        );
    }
    let text = format!(
        "/// The policies, one file each.\npub mod policies {{\n{modules}}}\n\n\
         static ENTRIES: &[crate::Entry] = &[\n{entries}];\n"
    );
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("policies.rs");
    fs::write(out, text).expect("the output folder is writable");
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
