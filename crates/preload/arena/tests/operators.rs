//! C++'s `new` and `delete` in programs that replace some of them, or whose C++ library only a module of theirs sees.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Builds one of the programs into a folder.
fn build(compiler: &str, source: &str, folder: &Path, options: &[&str]) -> PathBuf {
    let program = folder.join(source.split('.').next().unwrap());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-Wall", "-o"]).arg(&program).arg(source).args(options);
    let output = command.output().expect("g++ and gcc; on Debian: apt-get install g++");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// What a program prints with the library before it.
fn preloaded(command: &mut Command) -> String {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libterrace.so");
    let Output { status, stdout, stderr } = command.env("LD_PRELOAD", library).output().unwrap();
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn a_program_that_replaces_two_operators_has_its_own_in_all() {
    let folder = tempfile::tempdir().unwrap();
    for standard in ["-std=c++14", "-std=c++20"] {
        let program = build("g++", "pair.cpp", folder.path(), &[standard]);
        let alone = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
        assert_eq!(alone, "0\n");
        assert_eq!(preloaded(&mut Command::new(&program)), alone);
    }
}

#[test]
fn memory_that_is_out_is_said_to_a_module_whose_library_is_hidden() {
    let folder = tempfile::tempdir().unwrap();
    let module = build("g++", "plugin.cpp", folder.path(), &["-shared", "-fPIC"]);
    let program = build("gcc", "loads.c", folder.path(), &["-ldl"]);
    assert_eq!(preloaded(Command::new(program).arg(module)), "caught\n");
}
