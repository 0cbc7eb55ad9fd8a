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
    &["memory", "show", "input.memory", "--json", "OUT"],
    &["memory", "age", "-o", "aged.mem", "--json", "OUT"],
    &["profile", "--workload", SMALL, "-o", "hints.toml", "--json", "OUT"],
    &["record", "-o", "x.trace", "--json", "OUT", "--", "touch", "ran"],
    &["trace", "convert", "input.txt", "-o", "x.trace", "--json", "OUT"],
    &["trace", "slice", "input.trace", "-o", "x.trace", "--count", "1", "--json", "OUT"],
    &["trace", "head", "input.trace", "--json", "OUT"],
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
    &["attach", "--policy", "interleave", "--seconds", "1", "--json", "OUT", "--pid", "1"],
    &["top", "--json", "OUT"],
    &["restore", "--json", "OUT"],
    &["contiguity", "1", "--json", "OUT"],
];

/// Commands that write into a folder, which they make.
const FOLDERS: &[&[&str]] = &[
    &["compare", "native-4k", "native-2m", "--trace", "input.trace", "-o", "OUT"],
    &["sweep", "sweep.toml", "-o", "OUT"],
    &["run", "--policy", "interleave", "--report", "OUT", "--", "touch", "ran"],
    &["attach", "--policy", "interleave", "--seconds", "1", "--report", "OUT", "--pid", "1"],
    &["man", "OUT"],
];

/// All commands that write.
fn all() -> impl Iterator<Item = Vec<&'static str>> {
    into_files().chain(FOLDERS.iter().map(|words| words.to_vec()))
}

/// Commands that write a file; what can be written as JSON can be written as a table, too.
fn into_files() -> impl Iterator<Item = Vec<&'static str>> {
    let files = [COMMANDS, REFUSED].into_iter().flatten().map(|words| words.to_vec());
    let tables = [COMMANDS, REFUSED].into_iter().flatten().filter_map(|words| {
        let at = words.iter().position(|word| *word == "--json")?;
        let mut words = words.to_vec();
        words.splice(at..at + 2, ["--table", "OUT.csv"]);
        Some(words)
    });
    files.chain(tables)
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
    command.args(words.iter().map(|word| match *word {
        "OUT" => out.to_owned(),
        "OUT.csv" => out.with_extension("csv"),
        word => word.into(),
    }));
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
    fn mounted(at: PathBuf, options: &str) -> Disk {
        std::fs::create_dir(&at).unwrap();
        // SAFETY: this call cannot fail.
        assert_eq!(unsafe { libc::geteuid() }, 0, "a small disk is mounted: run this test as root");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&at).status().unwrap();
        assert!(mounted.success(), "mount -t tmpfs {}", at.display());
        Disk(at)
    }

    fn full(at: PathBuf) -> Disk {
        let disk = Disk::mounted(at, "size=64k");
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
        let output = command(&words, folder.path(), &disk.0.join("out")).output().unwrap();
        let said = check(&words, &output);
        assert!(said.contains("No space left on device") && said.contains("out"), "{words:?}: {said}");
        assert_eq!(files(&disk.0), [disk.0.join("full")], "{words:?}");
        assert!(!folder.path().join("ran").exists(), "{words:?}: the program was started");
    }
}

#[test]
fn a_disk_that_is_read_only() {
    let folder = folder();
    let before = files(folder.path());
    let disk = Disk::mounted(folder.path().join("disk"), "ro");
    for words in all() {
        let output = command(&words, folder.path(), &disk.0.join("out")).output().unwrap();
        let said = check(&words, &output);
        assert!(said.to_lowercase().contains("read-only file") && said.contains("out"), "{words:?}: {said}");
        assert_eq!(files(folder.path()), before, "{words:?}");
    }
}

#[test]
fn a_place_for_libraries_from_which_nothing_is_executed() {
    let folder = folder();
    let disk = Disk::mounted(folder.path().join("disk"), "noexec");
    // Others may not write into it: root would have another place for libraries then.
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&disk.0, private).unwrap();
    for option in ["--track-stores", "--track-accesses", "--track-structures", "--sample-faults"] {
        let words = ["run", "--policy", "first-touch", option, "--", "touch", "ran"];
        let mut command = command(&words, folder.path(), Path::new(""));
        let said = check(&words, &command.env("TMPDIR", &disk.0).output().unwrap());
        assert!(said.contains("noexec") && said.contains("set TMPDIR"), "{option}: {said}");
        assert!(!folder.path().join("ran").exists(), "{option}: the program was started");
        assert_eq!(files(&disk.0), Vec::<PathBuf>::new(), "{option}");
    }
}

/// The dynamic linker parts paths of libraries there, says so in each program and loads none.
#[test]
fn a_place_for_libraries_with_a_blank_and_a_colon() {
    let folder = folder();
    let place = folder.path().join("a b:c");
    std::fs::create_dir(&place).unwrap();
    let words = ["run", "--policy", "first-touch", "--track-structures", "--", "true"];
    let output = command(&words, folder.path(), Path::new("")).env("TMPDIR", &place).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("ld.so") && !said.contains("did not load"), "{said}");
    assert_eq!(files(&place), Vec::<PathBuf>::new());
}

#[test]
fn a_folder_that_is_not_there() {
    let folder = folder();
    let before = files(folder.path());
    for words in into_files() {
        let output = command(&words, folder.path(), &folder.path().join("none/out")).output().unwrap();
        let said = check(&words, &output);
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
        let output = command(&words, folder.path(), &folder.path().join("input.txt/out")).output().unwrap();
        let said = check(&words, &output);
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
        std::fs::create_dir_all(out.with_extension("csv")).unwrap();
        let output = command(&words, folder.path(), &out).output().unwrap();
        let said = check(&words, &output);
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

/// The command with so much memory, in MiB.
fn limited(words: &[&str], folder: &Path, mib: u64) -> Output {
    let mut command = command(words, folder, &folder.join("out"));
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
    command.output().unwrap()
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
        &["tune", "nimble", "--trace", "input.trace", "--table", "OUT.csv"],
        &["profile", "--trace", "input.trace", "-o", "OUT"],
    ] {
        for mib in [56, 200] {
            let said = check(words, &limited(words, folder.path(), mib));
            // The system refuses memory, or a thread.
            let named =
                ["cannot be had", "a thread cannot be started"].iter().any(|what| said.contains(what));
            assert!(named, "{words:?} in {mib} MiB: {said}");
            assert_eq!(files(folder.path()), before, "{words:?}");
        }
    }
    // Commands that go on when one of their runs fails, and name each; the system also refuses threads.
    for words in FOLDERS.iter().filter(|words| ["compare", "sweep"].contains(&words[0])) {
        for mib in [56, 60, 64, 80, 120, 200] {
            let output = limited(words, folder.path(), mib);
            let problems = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{words:?} in {mib} MiB: {problems}");
            let is_said = problems.lines().all(|line| line.starts_with("terrace: "));
            assert!(is_said && problems.contains("cannot be"), "{words:?} in {mib} MiB: {problems}");
            let results = files(folder.path()).into_iter().filter(|path| path.ends_with("results.json"));
            assert_eq!(results.count(), 0, "{words:?} in {mib} MiB");
        }
    }
    // Whatever else writes either has enough, and has written it all, or ends in the same way.
    let long = ["reproduce", "calibrate", "attach", "compare", "sweep", "workload", "run"];
    for words in all().filter(|words| !long.contains(&words[0])) {
        let output = limited(&words, folder.path(), 56);
        if !output.status.success() {
            check(&words, &output);
        }
    }
}

#[test]
fn every_option_that_names_what_is_written_is_tried() {
    const WRITTEN: [&str; 8] = [
        "--output",
        "--json",
        "--table",
        "--report",
        "--svg",
        "--memory-map",
        "--placement-map",
        "--scoreboard",
    ];
    let folder = tempfile::tempdir().unwrap();
    assert!(terrace().arg("man").arg(folder.path()).output().unwrap().status.success());
    let tried: Vec<Vec<&str>> = all().collect();
    let mut seen = 0;
    for page in files(folder.path()) {
        let name = page.file_stem().unwrap().to_str().unwrap().to_owned();
        let command: Vec<&str> = name.split('-').skip(1).collect();
        let text = std::fs::read_to_string(&page).unwrap().replace("\\-", "-");
        for option in WRITTEN {
            let heading = |line: &str| line.contains(&format!("\\fB{option}\\fR \\fI<"));
            if !text.lines().any(heading) {
                continue;
            }
            let short = if option == "--output" { "-o" } else { option };
            let is_tried = |words: &Vec<&str>| {
                words.starts_with(&command)
                    && words.windows(2).any(|pair| pair[0] == short && pair[1].starts_with("OUT"))
            };
            assert!(tried.iter().any(is_tried), "terrace {} {option}", command.join(" "));
            seen += 1;
        }
    }
    assert!(seen > 80, "{seen}");
}
