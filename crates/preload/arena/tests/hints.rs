//! `TERRACE_HINTS`: data structures by allocation site, also of C++, in a program that is preloaded with the library.
//!
//! Which node a page lies on is checked where there are several: `tests/vm/run arena-hints`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use tempfile::TempDir;

/// The folder with the program; none where there is no C++ compiler.
static FOLDER: LazyLock<Option<TempDir>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/sites.cpp");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-Wall", "-o"]).arg(folder.path().join("sites")).arg(source).arg("-lpthread");
    let output = compiler.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(folder)
});

fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libterrace.so")
}

/// Runs the program by a file of hints: what it printed, and what the library said.
fn run(hints: Option<&Path>, arguments: &[&str], more: &[(&str, &str)]) -> Option<(String, String)> {
    let mut command = Command::new(FOLDER.as_ref()?.path().join("sites"));
    command.args(arguments).env("LD_PRELOAD", library()).env("TERRACE_ARENA", "log");
    command.envs(hints.map(|path| ("TERRACE_HINTS", path))).envs(more.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{status}: {out}{err}");
    Some((out.trim().to_owned(), err))
}

/// A file of hints: offset in the program, and what a person says of it.
fn write(name: &str, sites: &[(&str, &str)]) -> Option<PathBuf> {
    let mut text = "version = 1\n".to_owned();
    for (offset, hint) in sites {
        text += &format!(
            "[[site]]\nname = \"site {offset}\"\nmodule = \"sites\"\noffset = \"{offset}\"\nbytes = 16777216\n\
             loads = 1000\nstores = 0\nhint = \"{hint}\"\n"
        );
    }
    let path = FOLDER.as_ref()?.path().join(name);
    std::fs::write(&path, text).unwrap();
    Some(path)
}

/// Offsets of the sites that have no hint, the one that allocated most first.
fn others(log: &str) -> Vec<String> {
    let of_line = |line: &str| Some(line.split_once("sites+")?.1.split_once(" allocated")?.0.to_owned());
    log.lines().filter_map(of_line).collect()
}

#[test]
fn sites_are_met_and_no_byte_changes() {
    let Some(path) = write("foreign.toml", &[("0x1", "CO")]) else { return };
    let (out, log) = run(Some(&path), &[], &[]).unwrap();
    assert_eq!(out, "same");
    assert!(log.contains("hints: 0 of 1 sites met"), "{log}");
    let sites = others(&log);
    assert_eq!(sites.len(), 3, "by malloc, new and new[]: {log}");
    let hints: Vec<(&str, &str)> = sites.iter().map(String::as_str).zip(["BO", "CO", "BW"]).collect();
    let path = write("own.toml", &hints).unwrap();
    let (out, log) = run(Some(&path), &[], &[]).unwrap();
    assert_eq!(out, "same");
    assert!(log.contains("hints: 3 of 3 sites met, 60 objects placed"), "{log}");
    // The MiB of the first structure, 16 in the file, that may be fast.
    let fast = |log: &str| {
        log.split_once(" objects placed, ").unwrap().1.split_once(" MiB hot").unwrap().0.to_owned()
    };
    let (_, little) = run(Some(&path), &[], &[("TERRACE_HINTS_FAST", "1 MiB")]).unwrap();
    assert_eq!(fast(&little).parse::<u64>().unwrap() / 20, 1, "{little}");
    assert!(fast(&log).parse::<u64>().unwrap() / 20 >= 8, "{log}");
    // Without hints nothing is said of them, and `new` is the C++ library's.
    let (out, log) = run(None, &[], &[]).unwrap();
    assert!(out == "same" && !log.contains("hints"), "{log}");
}

#[test]
fn what_is_wrong_is_said_once_and_the_program_runs() {
    let Some(path) = write("wrong.toml", &[("0x1", "C0")]) else { return };
    let said = |path: &Path, more: &[(&str, &str)]| {
        let (out, log) = run(Some(path), &[], more).unwrap();
        assert_eq!(out, "same");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("hints: ")).collect();
        assert_eq!(lines.len(), 1, "{log}");
        lines[0].to_owned()
    };
    assert!(said(&path, &[]).contains("wrong.toml:9: \"C0\" is no hint"));
    assert!(said(&path, &[("TERRACE_ARENA", "")]).ends_with("nothing is placed by them"));
    assert!(said(&path.with_extension("none"), &[]).contains("No such file"));
    let good = write("good.toml", &[("0x1", "CO")]).unwrap();
    assert!(said(&good, &[("TERRACE_HINTS_FAST", "much")]).contains("TERRACE_HINTS_FAST: "));
}

/// An allocator that is part of the program stays the only one, for C++ too.
#[test]
fn a_program_s_own_allocator_is_left_alone() {
    let Some(folder) = FOLDER.as_ref() else { return };
    let (source, program) = ("tests/programs/own.cpp", folder.path().join("own"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let output = Command::new("g++").args(["-O2", "-Wall", "-o"]).arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = write("for-own.toml", &[("0x1", "CO")]).unwrap();
    for hints in [None, Some(&path)] {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", library()).envs(hints.map(|path| ("TERRACE_HINTS", path)));
        let Output { status, stdout, stderr } = command.output().unwrap();
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success() && stdout == b"999\n", "{status}: {said}");
        assert_eq!(said.contains("the program has an allocator of its own"), hints.is_some(), "{said}");
    }
}

/// The thread joins what is dense to nine tenths. What is hot is joined from a half on.
#[test]
fn what_is_hot_is_joined_sooner() {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let Some(path) = write("foreign2.toml", &[("0x1", "CO")]) else { return };
    if !setting.contains("[madvise]") && !setting.contains("[always]") {
        return;
    }
    let (_, log) = run(Some(&path), &[], &[]).unwrap();
    let path = write("hot.toml", &[(&others(&log)[0], "BO")]).unwrap();
    let (out, log) = run(Some(&path), &["joined"], &[]).unwrap();
    if log.contains("does not join pages later") {
        return;
    }
    assert_eq!(out, "joined", "{log}");
}
