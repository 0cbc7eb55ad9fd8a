//! How the library is linked.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The library has a thread and handlers of forks, so it must never be taken out of a program.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let processor = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if processor != "x86_64" {
        println!("cargo::warning=libterrace.so is for x86-64 programs; the one for {processor} is empty");
        return;
    }
    // The unwinder becomes part of it where the compiler has it as an archive: one library less to load in every program.
    let asked = Command::new("gcc").arg("-print-file-name=libgcc_eh.a").output();
    let answer =
        asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let archive = Path::new(&answer);
    if let Some(folder) = archive.parent().filter(|_| archive.is_absolute() && archive.is_file()) {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static:+whole-archive=gcc_eh");
    }
}
