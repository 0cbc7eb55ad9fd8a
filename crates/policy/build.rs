//! Lists the policies: every file in `src/policies/` is one, under its own name.
//!
//! `two_lru.rs` becomes the module `two_lru` and the policy `two-lru`, built by the type `TwoLru` in it. A policy that
//! chooses among algorithms has them in `POLICY/algorithms/`, one file each, listed in the same way.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src/policies");
    println!("cargo::rerun-if-changed={}", folder.display());
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let (mut modules, mut entries) = (String::new(), String::new());
    for Source { path, module, name, type_name } in sources(&folder) {
        let algorithms = folder.join(&module).join("algorithms");
        let list = if algorithms.is_dir() {
            write_algorithms(&algorithms, &out.join(format!("{module}_algorithms.rs")));
            format!("policies::{module}::algorithms::ALL")
        } else {
            "&[]".to_owned()
        };
        let _ = writeln!(modules, "#[path = {path:?}]\npub mod {module};");
        let _ = writeln!(
            entries,
            "    crate::Entry::of::<policies::{module}::{type_name}>({name:?}, include_str!({path:?}), {list}),"
        );
    }
    let text = format!(
        "/// The policies, one file each.\npub mod policies {{\n{modules}}}\n\n\
         static ENTRIES: &[crate::Entry] = &[\n{entries}];\n"
    );
    fs::write(out.join("policies.rs"), text).expect("the output folder is writable");
}

/// The algorithms of one policy: their modules, and the lists of their documents and of what builds them.
fn write_algorithms(folder: &Path, to: &Path) {
    let (mut modules, mut entries, mut builders) = (String::new(), String::new(), String::new());
    for Source { path, module, name, type_name } in sources(folder) {
        let _ = writeln!(modules, "#[path = {path:?}]\npub mod {module};");
        let _ = writeln!(entries, "    AlgorithmEntry {{ name: {name:?}, source: include_str!({path:?}) }},");
        let _ = writeln!(builders, "    |setup| Ok(Box::new({module}::{type_name}::new(setup)?)),");
    }
    let text = format!(
        "use crate::registry::AlgorithmEntry;\n\n{modules}\n\
         /// All of them, by name.\npub static ALL: &[AlgorithmEntry] = &[\n{entries}];\n\n\
         /// What builds each of [`ALL`].\npub static BUILDERS: &[super::Builder] = &[\n{builders}];\n"
    );
    fs::write(to, text).expect("the output folder is writable");
}

/// A file with the names that follow from its own.
struct Source {
    path: PathBuf,
    module: String,
    name: String,
    type_name: String,
}

/// The Rust files of a folder, by name.
fn sources(folder: &Path) -> Vec<Source> {
    let entries = fs::read_dir(folder).expect("the folder exists");
    let paths = entries.map(|entry| entry.expect("the folder is readable").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect();
    paths.sort();
    let source = |path: PathBuf| {
        let module =
            path.file_stem().and_then(|stem| stem.to_str()).expect("file names are plain").to_owned();
        let (name, type_name) = (module.replace('_', "-"), module.split('_').map(capitalised).collect());
        Source { path, module, name, type_name }
    };
    paths.into_iter().map(source).collect()
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
