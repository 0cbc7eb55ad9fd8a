//! Real programs through the whole path. Needs `qemu-x86_64`; `scripts/test` installs it.

mod common;
use common::{json, stderr, stdout, terrace};

#[test]
fn a_program_is_recorded_and_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("sort.trace");
    let words = folder.path().join("words");
    std::fs::write(&words, "pear\napple\nfig\n").unwrap();
    let sorted = stdout(terrace().args(["record", "-o"]).arg(&trace).args(["--", "sort"]).arg(&words));
    assert_eq!(sorted, "apple\nfig\npear\n", "standard output is the program's");
    let info = json(terrace().args(["trace", "info", "--json", "-"]).arg(&trace));
    assert_eq!(info["header"]["program"], "sort");
    assert_eq!(info["header"]["origin"], "recorded");
    assert!(info["totals"]["accesses"].as_u64().unwrap() > 10_000);
    let run = json(terrace().args(["sim", "--design", "native-4k", "--json", "-", "--trace"]).arg(&trace));
    assert_eq!(run["runs"][0]["accesses"], info["totals"]["accesses"]);
}

#[test]
fn a_program_streams_into_a_comparison_without_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = terrace();
    command.current_dir(folder.path());
    command.args(["compare", "native-4k", "native-thp", "vivt", "--", "sh", "-c", "echo hello"]);
    let text = stdout(&mut command);
    assert!(text.contains("hello") && text.contains("native-thp"), "{text}");
    let content = std::fs::read_to_string(folder.path().join("terrace-compare/results.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&content).unwrap();
    let accesses: Vec<_> = document["runs"].as_array().unwrap().iter().map(|run| &run["accesses"]).collect();
    assert_eq!(accesses.len(), 3);
    assert!(accesses.iter().all(|n| *n == accesses[0]), "all designs saw the same run: {accesses:?}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["terrace-compare"], "no trace was written");
}

#[test]
fn a_program_that_fails_is_said_and_its_trace_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("false.trace");
    let message = stderr(terrace().args(["record", "-o"]).arg(&trace).args(["--", "sh", "-c", "exit 3"]), 1);
    assert!(message.contains("exit status: 3") && message.contains("kept"), "{message}");
    terrace().args(["trace", "verify"]).arg(&trace).assert().success();
}

#[test]
fn the_limit_ends_the_recording_and_on_request_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("loop.trace");
    let mut command = terrace();
    command.args(["record", "--limit", "1e6", "--end-at-limit", "-o"]).arg(&trace);
    command.args(["--", "sh", "-c", "while :; do :; done"]);
    // The program was ended by us, so how it ended is no failure of its own; the trace is what counts.
    command.output().unwrap();
    let info = json(terrace().args(["trace", "info", "--json", "-"]).arg(&trace));
    assert_eq!(info["totals"]["accesses"], 1_000_000);
}
