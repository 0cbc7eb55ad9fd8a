//! For build scripts: builds the shared objects that a crate carries.
//!
//! They are loaded into other programs, so they cannot be linked; Cargo's way to depend on such an artifact is not
//! stable. A nested Cargo builds them into a target directory of its own, and their bytes become part of the crate:
//! whoever has the binary has it all. They are built for the processor that the crate is built for, and for programs that
//! use glibc: a command that is linked statically with musl carries libraries for programs of the machine's own C library.
//!
//! The package of a crate has no room for other crates. `packaging/crates` puts the libraries into it as they were built,
//! in the folder `libraries`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `libterrace_NAME.so` for each package, which lies in a folder NAME. Folders are relative to the one of the
/// build script. The crate finds the library's path in the variable `TERRACE_NAME_LIBRARY` at compile time. The libraries
/// are built anew when one of `packages` or of `shared` changes. Where a folder is missing, as in a package of the crate,
/// the library is expected in `libraries`.
///
/// # Panics
/// A library cannot be built, or the program is no build script.
pub fn build(packages: &[&str], shared: &[&str]) {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let target = PathBuf::from(variable("OUT_DIR")).join("libraries");
    let processor = other_processor(&variable("HOST"), &variable("TARGET"));
    let built = processor.as_deref().map_or_else(|| target.clone(), |triple| target.join(triple));
    for package in packages {
        let name = package.rsplit('/').next().unwrap_or(package);
        let file = format!("libterrace_{name}.so");
        let source = root.join(package);
        let library = if source.join("Cargo.toml").is_file() {
            one(&source, &target, processor.as_deref());
            built.join("release").join(file)
        } else {
            root.join("libraries").join(file)
        };
        assert!(library.is_file(), "{} was not built", library.display());
        println!("cargo:rustc-env=TERRACE_{}_LIBRARY={}", name.to_uppercase(), library.display());
    }
    for watched in packages.iter().chain(shared).chain(&["build.rs"]) {
        // What is not there would count as changed at every build.
        if root.join(watched).exists() {
            println!("cargo:rerun-if-changed={}", root.join(watched).display());
        }
    }
}

/// What the libraries are built for where that is not the machine that builds. Both arguments are target triples.
fn other_processor(host: &str, target: &str) -> Option<String> {
    let processor = |triple: &str| triple.split('-').next().unwrap_or_default().to_owned();
    let wanted = processor(target);
    (wanted != processor(host)).then(|| format!("{wanted}-unknown-linux-gnu"))
}

fn one(package: &Path, target: &Path, processor: Option<&str>) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--release", "--lib", "--manifest-path"]).arg(package.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(target);
    if let Some(triple) = processor {
        cargo.args(["--target", triple]);
    }
    // What the outer build was given about flags, targets and wrappers (coverage, sanitizers, another processor) is
    // not meant for libraries that other programs load.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let inherited = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"]
            .contains(&&*text)
            || text.starts_with("CARGO_FEATURE_")
            || text.starts_with("CARGO_CFG_")
            || text.starts_with("CARGO_PROFILE_")
            || text == "RUSTC_WORKSPACE_WRAPPER";
        if inherited {
            cargo.env_remove(&name);
        }
    }
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "fat");
    cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    cargo.env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    let status = cargo.status().unwrap_or_else(|error| panic!("cannot start cargo: {error}"));
    assert!(status.success(), "building {} failed: {status}", package.display());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_processor_gets_libraries_of_its_own() {
        let (gnu, musl) = ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl");
        assert_eq!(other_processor(gnu, gnu), None);
        assert_eq!(other_processor(gnu, musl), None, "for programs of the machine's own C library");
        let arm = Some("aarch64-unknown-linux-gnu".to_owned());
        assert_eq!(other_processor(gnu, "aarch64-unknown-linux-gnu"), arm);
        assert_eq!(other_processor(gnu, "aarch64-unknown-linux-musl"), arm);
    }
}
