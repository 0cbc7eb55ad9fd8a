//! What the tests of the command line share.

#![allow(dead_code, reason = "each test file uses its part")]

use assert_cmd::Command;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// The binary under test. The limit only keeps a hanging test from hanging forever.
pub fn terrace() -> Command {
    let mut command = Command::cargo_bin("terrace").expect("the binary is built with the tests");
    command.timeout(Duration::from_secs(300));
    command.env("LC_ALL", "C.UTF-8").env_remove("TERRACE_LOG").env_remove("NOTIFY_SOCKET");
    command
}

/// The command's standard output after success.
pub fn stdout(command: &mut Command) -> String {
    let output = command.assert().success().get_output().stdout.clone();
    String::from_utf8(output).expect("output is UTF-8")
}

/// The command's standard error after this exit code.
pub fn stderr(command: &mut Command, code: i32) -> String {
    let output = command.assert().code(code).get_output().stderr.clone();
    String::from_utf8(output).expect("output is UTF-8")
}

/// Standard output as JSON.
pub fn json(command: &mut Command) -> serde_json::Value {
    serde_json::from_str(&stdout(command)).expect("output is JSON")
}

/// Sends a signal to a child, which is not yet waited for.
pub fn send(child: &Child, signal: i32) {
    // SAFETY: kill(2) takes no pointers, and the child is ours.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Waits until `condition` holds; the limit only keeps a broken test from hanging, and a machine may be busy.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Compiles a program of C, whose source is left beside it.
pub fn compile(program: &Path, source: &str, options: &[&str]) {
    let file = program.with_extension("c");
    std::fs::write(&file, source).expect("the folder is writable");
    let mut compiler = std::process::Command::new("gcc");
    let built = compiler.args(options).arg("-o").args([program, &file]).status();
    assert!(built.expect("gcc is installed").success(), "gcc {options:?}");
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository exists")
}

/// An input that takes a moment at most.
pub const SMALL: &str = "gups,bytes=16 MiB,updates=2e4";
