//! Commands that cannot write: a full disk, a folder or a file that may not be written, too little memory. Each ends with a
//! status that is not 0 and one message, and leaves nothing half-written. A reader of a pipe that is gone is no failure.

mod common;

use common::{SMALL, terrace};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Commands that write a file, with `OUT` for it. They run in the [`folder`].
const COMMANDS: &[&[&str]] = &[
    &["trace", "convert", "input.txt", "-o", "OUT"],
    &["trace", "slice", "input.trace", "-o", "OUT", "--count", "1"],
    &["trace", "info", "input.trace", "--json", "OUT"],
    &["trace", "verify", "input.trace", "--json", "OUT"],
    &["record", "-o", "OUT", "--workload", SMALL],
    &["sim", "--design", "native-4k", "--trace", "input.trace", "--json", "OUT"],
    &["reproduce", "list", "--json", "OUT"],
    &["workload", "list", "--json", "OUT"],
    &["workload", "show", "gups", "--json", "OUT"],
    &["machine", "list", "--json", "OUT"],
    &["machine", "show", "zen4-cxl", "--json", "OUT"],
    &["design", "list", "--json", "OUT"],
    &["design", "show", "vivt", "--json", "OUT"],
    &["policy", "list", "--json", "OUT"],
    &["policy", "show", "ambix", "--json", "OUT"],
    &[
        "memory",
        "age",
        "-o",
        "OUT",
        "--set",
        "os.memory.aging.kind=builds",
        "--set",
        "tier.dram.capacity=64 MiB",
        "--set",
        "os.reserved=1 MiB",
    ],
];

/// Others that write a file: they are refused before they have done anything, whatever else they need.
const REFUSED: &[&[&str]] = &[
    &["profile", "--workload", SMALL, "-o", "OUT"],
    &["suite", "list", "--json", "OUT"],
    &["suite", "show", "sqlite", "--json", "OUT"],
    &["workload", "run", SMALL, "--json", "OUT"],
    &["calibrate", "--tiny", "-o", "OUT"],
    &["check", "--json", "OUT", "--", "touch", "ran"],
    &["memory", "show", "input.memory", "--svg", "OUT"],
    &["doctor", "--json", "OUT"],
    &["sim", "--design", "native-4k", "--trace", "input.trace", "--memory-map", "OUT"],
    &["sim", "--design", "native-4k", "--trace", "input.trace", "--placement-map", "OUT"],
    &["sim", "--design", "native-4k", "--trace", "input.trace", "--access", "1", "--access-picture", "OUT"],
    &["sim", "--design", "native-4k", "--json", "OUT", "--", "touch", "ran"],
    &["compare", "native-4k", "-o", "results", "--json", "OUT", "--", "touch", "ran"],
    &["diff", "results", "results", "--json", "OUT"],
    &["view", "results", "-o", "OUT"],
    &["advise", "--trace", "input.trace", "--json", "OUT"],
    &["advise", "--pages", "--json", "OUT", "--", "touch", "ran"],
    &["tune", "nimble", "--trace", "input.trace", "--json", "OUT"],
    &["reproduce", "trident", "--scoreboard", "OUT"],
    &["reproduce", "trident", "--json", "OUT"],
    &["run", "--policy", "interleave", "--json", "OUT", "--", "touch", "ran"],
    &["attach", "--policy", "interleave", "--json", "OUT", "--pid", "1"],
    &["top", "--json", "OUT"],
    &["restore", "--json", "OUT"],
    &["contiguity", "1", "--json", "OUT"],
];

/// Commands that write into a folder, which they make.
const FOLDERS: &[&[&str]] = &[
    &["compare", "native-4k", "native-2m", "--trace", "input.trace", "-o", "OUT"],
    &["sweep", "sweep.toml", "-o", "OUT"],
    &["run", "--policy", "interleave", "--report", "OUT", "--", "touch", "ran"],
    &["attach", "--policy", "interleave", "--report", "OUT", "--pid", "1"],
    &["man", "OUT"],
];

/// All of them.
fn all() -> impl Iterator<Item = &'static [&'static str]> {
    [COMMANDS, REFUSED, FOLDERS].into_iter().flatten().copied()
}

/// Those that write a file.
fn into_files() -> impl Iterator<Item = &'static [&'static str]> {
    [COMMANDS, REFUSED].into_iter().flatten().copied()
}

/// A folder with the inputs of the commands.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("input.txt"), "R 1000 8\nW 2000 8\nR 3000 8\n").unwrap();
    std::fs::write(
        folder.path().join("sweep.toml"),
        "designs = [\"native-4k\"]\ntraces = [\"input.trace\"]\n",
    )
    .unwrap();
    let mut convert = terrace();
    convert.current_dir(folder.path()).args(["trace", "convert", "input.txt", "-o", "input.trace"]);
    assert!(convert.output().unwrap().status.success());
    folder
}

/// The command with its output at `out`.
fn command(words: &[&str], folder: &Path, out: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("terrace"));
    command.current_dir(folder).env_remove("RUST_BACKTRACE");
    command.args(words.iter().map(|word| if *word == "OUT" { out.as_os_str() } else { (*word).as_ref() }));
    command
}

/// Checks status and message, and returns the message.
fn check(words: &[&str], output: &Output) -> String {
    let problems = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(output.status.code().is_some_and(|code| code != 0), "{words:?}: {:?} {problems}", output.status);
    // Before a recorded program goes on, `sim` says that its own run ends.
    let said = problems.lines().filter(|line| {
        line.starts_with("terrace: ") && !line.starts_with("terrace: the simulation ends here")
    });
    let said: Vec<&str> = said.collect();
    assert_eq!(said.len(), 1, "{words:?}: one message, not:\n{problems}");
    assert!(!problems.contains("panicked") && !problems.contains("backtrace"), "{words:?}: {problems}");
    said[0].to_owned()
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A small disk for a test; it goes with the value.
struct Disk(PathBuf);

impl Disk {
    fn full(at: PathBuf) -> Disk {
        std::fs::create_dir(&at).unwrap();
        // SAFETY: this call cannot fail.
        assert_eq!(unsafe { libc::geteuid() }, 0, "a small disk is mounted: run this test as root");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&at).status().unwrap();
        assert!(mounted.success(), "mount -t tmpfs {}", at.display());
        let disk = Disk(at);
        let mut byte = std::fs::File::create(disk.0.join("full")).unwrap();
        while std::io::Write::write(&mut byte, &[0; 4096]).is_ok() {}
        disk
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk() {
    let folder = folder();
    let disk = Disk::full(folder.path().join("disk"));
    for words in all() {
        let output = command(words, folder.path(), &disk.0.join("out")).output().unwrap();
        let said = check(words, &output);
        assert!(said.contains("No space left on device") && said.contains("out"), "{words:?}: {said}");
        assert_eq!(files(&disk.0), [disk.0.join("full")], "{words:?}");
        assert!(!folder.path().join("ran").exists(), "{words:?}: the program was started");
    }
}

#[test]
fn a_folder_that_is_not_there() {
    let folder = folder();
    let before = files(folder.path());
    for words in into_files() {
        let output = command(words, folder.path(), &folder.path().join("none/out")).output().unwrap();
        let said = check(words, &output);
        assert!(said.contains("none"), "{words:?}: {said}");
        assert_eq!(files(folder.path()), before, "{words:?}");
    }
}

#[test]
fn a_place_that_is_no_folder() {
    let folder = folder();
    let before = files(folder.path());
    for words in all() {
        // A file stands where a folder is needed; unlike a mode, this also holds for root.
        let output = command(words, folder.path(), &folder.path().join("input.txt/out")).output().unwrap();
        let said = check(words, &output);
        assert!(said.contains("input.txt"), "{words:?}: {said}");
        assert_eq!(files(folder.path()), before, "{words:?}");
    }
}

#[test]
fn a_file_that_may_not_be_written() {
    let folder = folder();
    for words in into_files() {
        let out = folder.path().join("out");
        std::fs::create_dir_all(&out).unwrap();
        let output = command(words, folder.path(), &out).output().unwrap();
        let said = check(words, &output);
        assert!(said.contains("out"), "{words:?}: {said}");
        assert_eq!(files(&out), Vec::<PathBuf>::new(), "{words:?}");
    }
}

#[test]
fn a_reader_that_is_gone() {
    let folder = folder();
    for words in COMMANDS.iter().filter(|words| words.contains(&"--json")) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(words, folder.path(), Path::new("-"));
        let output = command.stdout(writer).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let problems = String::from_utf8(output.stderr.clone()).unwrap();
        // `terrace … | head` has seen enough: no panic and no message, as all files were written before.
        assert!(output.status.success(), "{words:?}: {:?} {problems}", output.status);
        assert!(!problems.contains("panicked") && !problems.contains("pipe"), "{words:?}: {problems}");
    }
}

#[test]
fn too_little_memory() {
    let folder = folder();
    let before = files(folder.path());
    for words in [
        &["sim", "--design", "native-4k", "--trace", "input.trace", "--json", "OUT"][..],
        &["sim", "--design", "memory-mode", "--trace", "input.trace", "--json", "OUT"],
        &["memory", "age", "-o", "OUT", "--set", "os.memory.aging.kind=builds"],
        &["advise", "--trace", "input.trace", "--json", "OUT"],
        &["profile", "--trace", "input.trace", "-o", "OUT"],
    ] {
        for mib in [48, 200] {
            let mut command = command(words, folder.path(), &folder.path().join("out"));
            // SAFETY: only a system call between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    let limit = libc::rlimit { rlim_cur: mib << 20, rlim_max: mib << 20 };
                    match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                        0 => Ok(()),
                        _ => Err(std::io::Error::last_os_error()),
                    }
                })
            };
            let said = check(words, &command.output().unwrap());
            assert!(said.contains("cannot be had"), "{words:?} in {mib} MiB: {said}");
            assert_eq!(files(folder.path()), before, "{words:?}");
        }
    }
}
