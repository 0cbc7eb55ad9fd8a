//! A checksum of all source that decides what a run's result is, so that results are kept across builds that differ in
//! nothing else: the simulator with what it stands on, the inputs, and this crate, which makes the runs. Designs, machines
//! and claims are not part of it, as each result is kept under its whole design and input.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Crates whose source counts, beside the versions of all that is built in.
const CRATES: [&str; 10] =
    ["buddy", "handover", "hints", "model", "policy", "seam", "sim", "study", "trace", "workload"];

fn main() {
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = own.parent().expect("it lies among the crates").to_owned();
    let mut files = vec![crates.join("../Cargo.lock")];
    for name in CRATES {
        println!("cargo::rerun-if-changed={}", crates.join(name).join("src").display());
        sources(&crates.join(name).join("src"), &mut files);
    }
    println!("cargo::rerun-if-changed={}", files[0].display());
    // In the same order on every machine.
    files.sort();
    let sum = files.iter().try_fold((crc32fast::Hasher::new(), 0), |(mut sum, bytes), file| {
        let text = fs::read(file)?;
        sum.update(&text);
        io::Result::Ok((sum, bytes + text.len()))
    });
    // Outside the sources' own tree the program's file tells builds apart.
    let text = match sum {
        Ok((sum, bytes)) => format!("{bytes:x}-{:08x}", sum.finalize()),
        Err(_) => String::new(),
    };
    println!("cargo::rustc-env=TERRACE_SOURCE={text}");
}

/// All source files below a folder.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}
