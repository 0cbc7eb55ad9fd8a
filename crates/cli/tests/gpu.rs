//! What goes wrong with OpenCL programs on a machine without a GPU. Needs Oclgrind; `scripts/test` installs it.

mod common;
use common::{json, repository, stderr, stdout, terrace};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program of the recorder's tests, with other texts in it, into `folder`.
fn program(folder: &Path, name: &str, changes: &[(&str, &str)]) -> PathBuf {
    let sources = repository().join("crates/recorder/tests/opencl");
    let mut text = std::fs::read_to_string(sources.join(format!("{name}.c"))).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{name}.c has no {from}");
        text = text.replace(from, to);
    }
    let (source, built) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, text).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-w", "-I"]).arg(&sources).arg("-o").arg(&built).arg(&source).arg("-lOpenCL");
    assert!(compile.status().unwrap().success());
    built
}

/// Records it into `folder`.
fn recorded(folder: &Path, program: &Path, arguments: &[&str]) -> PathBuf {
    let trace = program.with_extension("trace");
    let mut record = terrace();
    record.current_dir(folder).args(["record", "--gpu", "-o"]).arg(&trace).arg("--").arg(program);
    stdout(record.args(arguments));
    trace
}

/// Records a program that is given a number of items, to `x.trace`.
fn recording(folder: &Path, program: &Path, items: &str) -> assert_cmd::Command {
    let mut record = terrace();
    record.current_dir(folder).args(["record", "--gpu", "-o", "x.trace", "--"]).arg(program).arg(items);
    record
}

#[test]
fn a_kernel_that_oclgrind_rejects_is_reported_and_the_program_ends_as_it_wants() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = program(folder.path(), "vecadd", &[("kernel void", "kernel no_such_type")]);
    let message = stderr(&mut recording(folder.path(), &wrong, "64"), 1);
    assert!(message.contains("unknown type name 'no_such_type'"), "the compiler's own words: {message}");
    assert!(
        message.contains("started no OpenCL kernel: it has none, or Oclgrind rejected them"),
        "{message}"
    );
    assert!(message.contains("build: OpenCL error -11"), "the program's own words: {message}");
    assert!(message.contains("ended with exit status: 1"), "{message}");

    // A comparison has nothing to compare, and says so.
    let mut compare = terrace();
    compare.current_dir(folder.path()).args(["compare", "gpu-local", "gpu-bw-aware", "--gpu", "--"]);
    let output = compare.arg(&wrong).arg("64").assert().code(1).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap().replace('\n', " ");
    assert!(text.contains("No winner on vecadd: it does nothing that takes time in gpu-local."), "{text}");
    assert!(text.contains("starts no kernel on a GPU"), "{text}");
}

#[test]
fn accesses_out_of_bounds_are_reported_with_kernel_and_line_and_are_not_fatal() {
    let folder = tempfile::tempdir().unwrap();
    // The third vector is half a page too short, and nobody looks at the sums.
    let changes = [
        ("c = buffer(4 * n, NULL)", "c = buffer(4 * n - 2048, NULL)"),
        ("0, 4 * n, numbers, 0, NULL, NULL), \"read\"", "0, 4, numbers, 0, NULL, NULL), \"read\""),
        ("2.0f * i", "numbers[i]"),
    ];
    let short = program(folder.path(), "vecadd", &changes);
    let output = recording(folder.path(), &short, "2048").assert().success().get_output().clone();
    let printed = String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap();
    for expected in [
        "Invalid write of size 4 at global memory address",
        "Kernel: vecadd",
        "At line 3",
        "c[i] = a[i] + b[i];",
        "Oclgrind reported 512 mistakes of its kernels, each with kernel and line above",
        "512 accesses outside of buffers are left out",
    ] {
        assert!(printed.contains(expected), "no {expected}: {printed}");
    }
    let mut simulate = terrace();
    simulate.current_dir(folder.path()).args(["sim", "--design", "gpu-local", "--trace", "x.trace"]);
    let run = &json(simulate.args(["--json", "-"]))["runs"][0];
    assert_eq!((&run["stats"]["gpu"]["loads"], &run["stats"]["gpu"]["stores"]), (&4096.into(), &1536.into()));
}

#[test]
fn a_crash_of_the_program_is_not_blamed_on_an_emulator_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let crashes = program(folder.path(), "vecadd", &[("return 0;", "abort();")]);
    let message = stderr(&mut recording(folder.path(), &crashes, "2048"), 1);
    assert!(
        message.contains("whether the program or Oclgrind has crashed, oclgrind PROGRAM shows"),
        "{message}"
    );
    assert!(!message.contains("qemu"), "{message}");
}

#[test]
fn hints_of_another_program_are_reported_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let bfs = recorded(folder.path(), &program(folder.path(), "bfs", &[]), &["512"]);
    let added = recorded(folder.path(), &program(folder.path(), "vecadd", &[]), &["4096"]);
    let mut profile = terrace();
    profile.current_dir(folder.path()).args(["profile", "-o", "hints.toml", "--trace"]);
    stdout(profile.arg(&bfs));
    let notes = |trace: &Path| {
        let mut simulate = terrace();
        simulate.current_dir(folder.path()).args([
            "sim",
            "--design",
            "gpu-annotated",
            "--hints",
            "hints.toml",
        ]);
        simulate.arg("--trace").arg(trace);
        stdout(&mut simulate).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let foreign = "data structures that the hints name was touched: are the hints of this program?";
    let text = notes(&added);
    assert!(text.contains(&format!("none of the 7 {foreign}")), "{text}");
    assert!(!notes(&bfs).contains(foreign));
}

#[test]
fn pages_that_a_gpu_lacks_are_refused_with_those_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let added = recorded(folder.path(), &program(folder.path(), "vecadd", &[]), &["1024"]);
    let ways: [&[&str]; 3] = [
        &["--design", "gpu-local", "--set", "os.pages=2m"],
        &["--design", "native-2m", "--machine", "gpu-gtx480"],
        &["--design", "gpu-bw-aware", "--set", "os.pages=thp"],
    ];
    for way in ways {
        let mut simulate = terrace();
        simulate.current_dir(folder.path()).args(["sim", "--trace"]).arg(&added);
        let message = stderr(simulate.args(way), 2);
        let expected = "os.pages: the GPU's TLBs hold pages of 4 KiB alone; use os.pages = \"4k\"";
        assert!(message.contains(expected), "{way:?}: {message}");
    }
}

#[test]
fn without_oclgrind_one_message_has_the_command_that_installs_it() {
    let folder = tempfile::tempdir().unwrap();
    let install = "sudo apt-get install oclgrind liboclgrind-dev opencl-c-headers g++";
    let mut record = terrace();
    record.current_dir(folder.path()).env("PATH", folder.path());
    let message = stderr(record.args(["record", "--gpu", "-o", "x.trace", "--", "/bin/true"]), 2);
    assert!(message.contains("oclgrind was not found") && message.contains(install), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(!folder.path().join("x.trace").exists(), "there is nothing to keep");

    let mut compare = terrace();
    compare.current_dir(folder.path()).env("PATH", folder.path());
    let message =
        stderr(compare.args(["compare", "gpu-local", "gpu-bw-aware", "--gpu", "--", "/bin/true"]), 2);
    assert_eq!(message.matches(install).count(), 1, "{message}");
}

#[test]
fn questions_about_memory_of_processors_are_refused_on_machines_with_a_gpu() {
    for question in [&["advise"][..], &["advise", "--pages"], &["tune", "nimble", "--runs", "1"]] {
        let mut command = terrace();
        command.args(question).args(["--machine", "gpu-gtx480", "--workload", "gpu-bfs"]);
        let message = stderr(&mut command, 2).replace('\n', " ");
        assert!(
            message.contains("the machine gpu-gtx480 has a GPU; terrace compare --machine gpu-gtx480"),
            "{message}"
        );
    }
}

#[test]
fn data_structures_of_a_program_for_a_gpu_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let built = program(folder.path(), "vecadd", &[]);
    let mut profile = terrace();
    profile
        .current_dir(folder.path())
        .args(["profile", "--gpu", "-o", "h.toml", "--"])
        .arg(&built)
        .arg("1024");
    assert!(stderr(&mut profile, 0).contains("h.toml: "));
    assert!(std::fs::read_to_string(folder.path().join("h.toml")).unwrap().contains("[[site]]"));
}
