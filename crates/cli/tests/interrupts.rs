//! Ctrl-C: what is complete is kept; a second one ends at once.

mod common;
use common::{json, send, stdout, terrace, wait_until};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Long enough that no machine finishes it before the signal.
const ENDLESS: &str = "gups,bytes=64 MiB,updates=1e12,init=none";

fn start(arguments: &[&str], folder: &Path) -> Child {
    Command::new(assert_cmd::cargo::cargo_bin("terrace"))
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(folder.join(SAID)).unwrap())
        .spawn()
        .unwrap()
}

/// Where a child's messages go: they can be read while it runs.
const SAID: &str = "said";

fn said(folder: &Path) -> String {
    std::fs::read_to_string(folder.join(SAID)).unwrap()
}

fn interrupt(child: &Child) {
    send(child, libc::SIGINT);
}

#[test]
fn a_recording_that_is_stopped_leaves_a_whole_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("x.trace");
    let child = start(&["record", "--workload", ENDLESS, "-o", "x.trace"], folder.path());
    wait_until("something was written", || std::fs::metadata(&trace).is_ok_and(|m| m.len() > 100_000));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(folder.path()));
    let verified = json(terrace().args(["trace", "verify", "--json", "-"]).arg(&trace));
    assert_eq!(verified["sound"], true);
    assert!(verified["totals"]["accesses"].as_u64().unwrap() > 10_000);
    // Numbers from it are not of the whole program, which they say.
    for arguments in [
        &["compare", "native-4k", "--no-intervals", "--trace", "x.trace"][..],
        &["sim", "--design", "native-4k", "--trace", "x.trace"],
        &["trace", "info", "x.trace"],
    ] {
        let shown = stdout(terrace().current_dir(folder.path()).args(arguments));
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("the recording was stopped before the program's end"), "{shown}");
    }
}

/// `timeout -s INT` sends its signal to the command and then to the command's group.
#[test]
fn two_signals_of_one_request_leave_a_whole_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("x.trace");
    let child = start(&["record", "--workload", ENDLESS, "-o", "x.trace"], folder.path());
    wait_until("something was written", || std::fs::metadata(&trace).is_ok_and(|m| m.len() > 100_000));
    interrupt(&child);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(folder.path()));
    let verified = json(terrace().args(["trace", "verify", "--json", "-"]).arg(&trace));
    assert_eq!(verified["sound"], true);
}

#[test]
fn a_simulation_that_is_stopped_shows_what_it_saw() {
    let folder = tempfile::tempdir().unwrap();
    let child = start(&["-v", "sim", "--design", "native-4k", "--workload", ENDLESS], folder.path());
    wait_until("it runs", || said(folder.path()).contains("run begins"));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("native-4k") && text.contains("stopped"), "{text}");
}

#[test]
fn a_comparison_that_is_stopped_writes_the_finished_runs() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("study/report.html");
    // The first input is over in a moment, the second never.
    let child = start(
        &[
            "-v",
            "compare",
            "native-4k",
            "--workload",
            "stream,bytes=1 MiB",
            "--workload",
            ENDLESS,
            "-o",
            "study",
        ],
        folder.path(),
    );
    let runs = |what: &str| said(folder.path()).matches(what).count();
    wait_until("one is over, the other not", || runs("run ends") == 1 && runs("run begins") == 2);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let message = said(folder.path());
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("1 of 2 runs were complete"), "{message}");
    let text = std::fs::read_to_string(folder.path().join("study/results.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 1);
    assert!(report.is_file());
}

/// A program that says that it runs, and never ends.
const SERVER: [&str; 4] = ["--", "sh", "-c", "echo up > up; while :; do :; done"];

#[test]
fn what_a_command_did_until_it_was_stopped_is_kept() {
    for before in [
        &["record", "-o", "x.trace"][..],
        &["sim", "--design", "native-4k", "--json", "run.json"],
        &["compare", "native-4k", "native-2m", "-o", "study"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let child = start(&[before, &SERVER].concat(), folder.path());
        wait_until("the program runs", || folder.path().join("up").exists());
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        let message = said(folder.path());
        assert_eq!(output.status.code(), Some(0), "{before:?}: {message}");
        let accesses = |path: &str, runs: usize| {
            let text = std::fs::read_to_string(folder.path().join(path)).unwrap();
            let document: serde_json::Value = serde_json::from_str(&text).unwrap();
            let found = document["runs"].as_array().unwrap();
            assert_eq!(found.len(), runs, "{message}");
            let is_noted = |run: &serde_json::Value| {
                run["notes"].to_string().contains("the recording was stopped before the program's end")
            };
            assert!(found.iter().all(is_noted), "{text}");
            found.iter().map(|run| run["accesses"].as_u64().unwrap()).min().unwrap()
        };
        match before[0] {
            "record" => {
                let trace = folder.path().join("x.trace");
                let verified = json(terrace().args(["trace", "verify", "--json", "-"]).arg(&trace));
                assert_eq!(verified["sound"], true);
                assert!(verified["totals"]["accesses"].as_u64().unwrap() > 10_000);
            }
            "sim" => assert!(accesses("run.json", 1) > 10_000),
            _ => {
                assert!(accesses("study/results.json", 2) > 10_000);
                assert!(folder.path().join("study/report.html").is_file());
            }
        }
    }
}

#[test]
fn what_is_said_of_a_stop_is_true_of_the_command() {
    for (before, kept) in [
        (&["compare", "native-4k"][..], true),
        (&["advise"], false),
        (&["advise", "--pages"], false),
        (&["tune", "nimble"], false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let child = start(&[before, &["-v", "--workload", ENDLESS]].concat(), folder.path());
        wait_until("it runs", || {
            ["run begins", "footprint begins"].iter().any(|begin| said(folder.path()).contains(begin))
        });
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        let message = said(folder.path());
        assert_eq!(output.status.code(), Some(1), "{before:?}: {message}");
        assert_eq!(message.contains("stopping; what is complete is kept"), kept, "{before:?}: {message}");
        assert_eq!(message.contains("so nothing is kept"), !kept, "{before:?}: {message}");
    }
}

#[test]
fn a_second_interrupt_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // A native run cannot be stopped in the middle, so only the second signal ends it.
    let mut child = start(&["record", "--workload", ENDLESS, "-o", "x.trace"], folder.path());
    wait_until("it runs", || folder.path().join("x.trace").exists());
    interrupt(&child);
    interrupt(&child);
    wait_until("it ended", || child.try_wait().unwrap().is_some());
    let code = child.wait().unwrap().code();
    // The first may have been enough by the time the second arrives.
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
}

/// As a terminal does: the signal goes to all of the group, and the command does with it what it wants.
#[test]
fn a_command_under_management_gets_its_interrupt() {
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'echo interrupted; exit 9' INT; touch up; while :; do sleep 0.05; done";
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("terrace"));
    command.args(["run", "--policy", "first-touch", "--", "sh", "-c", script]).current_dir(folder.path());
    let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the command runs", || folder.path().join("up").exists());
    // SAFETY: kill(2) takes no pointers, and the group is that of a child not yet waited for.
    assert_eq!(unsafe { libc::kill(-(child.id() as i32), libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "interrupted\n");
}
