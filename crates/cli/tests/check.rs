//! `terrace check` end to end: that both ways are run, recorded and compared. What they say depends on the machine.

mod common;
use common::{stderr, stdout, terrace};

/// Touches 32 MiB, so that the two ways differ in their page faults by thousands.
const TOUCH: &str = "#include <stdlib.h>\nint main(void) {\n    volatile char *b = malloc(32 << 20);\n    \
    for (int at = 0; at < 32 << 20; at += 4096) b[at] = 1;\n}\n";

/// Takes and frees 400 KB of the heap five hundred times.
const SHRINK: &str = "#include <stdlib.h>\nint main(void) {\n    for (int i = 0; i < 500; i++) {\n        \
    volatile char *b[4];\n        for (int j = 0; j < 4; j++) {\n            b[j] = malloc(100000);\n            \
    for (int at = 0; at < 100000; at += 1024) b[j][at] = 1;\n        }\n        \
    for (int j = 0; j < 4; j++) free((void *)b[j]);\n    }\n}\n";

#[test]
fn a_program_is_run_both_ways_and_predicted() {
    let home = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str]| {
        let mut command = terrace();
        command.env("XDG_DATA_HOME", home.path()).args(["check", "--pairs", "2"]).args(arguments);
        command
    };
    let message = stderr(&mut check(&["--", "true"]), 2);
    assert!(message.contains("run `terrace calibrate` first"), "{message}");
    stderr(terrace().env("XDG_DATA_HOME", home.path()).args(["calibrate", "--tiny"]), 0);

    let program = |name: &str, text: &str| {
        let path = home.path().join(name);
        common::compile(&path, text, &["-O1"]);
        path.into_os_string().into_string().unwrap()
    };
    let text = stdout(&mut check(&["--json", "-", "--", &program("touch", TOUCH)]));
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let number = |path: &str| result.pointer(path).and_then(serde_json::Value::as_f64).unwrap();
    assert_eq!((result["pairs"].as_u64(), result["program"].as_str()), (Some(2), Some("touch")));
    // 32 MiB are 8,192 base pages, or 16 huge ones.
    assert!(number("/base/faults") > number("/huge/faults") + 3000.0, "{text}");
    assert!(number("/base/predicted_faults") > number("/huge/predicted_faults") + 3000.0, "{text}");
    let error = number("/predicted/value") / number("/measured/value") - 1.0;
    assert!((number("/error") - error).abs() < 1e-9, "{text}");
    assert!(["right", "wrong", "missed", "undecided"].contains(&result["sign"].as_str().unwrap()), "{text}");
    // A third way where this system has a pool, which it rarely has.
    let pool = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let has_pool = pool.is_ok_and(|text| text.trim() != "0");
    assert_eq!(result["hugetlb"].is_object(), has_pool, "{text}");
    for interval in ["measured", "predicted"] {
        let of = |end: &str| number(&format!("/{interval}/{end}"));
        assert!(of("low") <= of("value") && of("value") <= of("high"), "{text}");
    }

    // What the allocator returns to the system and takes again depends on its setting for huge pages: a heap that
    // shrinks at each step faults nine times as often where it does so by small pages.
    let text = stdout(&mut check(&["--json", "-", "--", &program("shrink", SHRINK)]));
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    for way in ["base", "huge"] {
        let of = |what: &str| result[way][what].as_f64().unwrap();
        let (natively, predicted) = (of("faults"), of("predicted_faults"));
        assert!((predicted / natively - 1.0).abs() < 0.25, "{way}: {predicted} for {natively}\n{text}");
    }
}

#[test]
fn what_cannot_be_compared_is_one_message() {
    let check = |arguments: &[&str], code| {
        stderr(terrace().args(["check", "--machine", "zen4-cxl", "--pairs", "1"]).args(arguments), code)
    };
    let message = check(&["--", "sh", "-c", "exit 3"], 1);
    assert!(
        message.contains("sh ended with exit status: 3; only programs that succeed can be compared"),
        "{message}"
    );
    let message = check(&["--", "no-such-program-anywhere"], 2);
    assert!(message.contains("no-such-program-anywhere"), "{message}");
    let message = check(&["--gpu", "--", "true"], 2);
    assert!(message.contains("--gpu records kernels"), "{message}");
    let message = check(&["--limit", "1000", "--", "true"], 2);
    assert!(message.contains("--limit records a part of the program"), "{message}");
    assert!(check(&["--region", "--", "true"], 2).contains("--region records a part"));
    let message = stderr(terrace().args(["check", "--machine", "zen4-cxl", "--pairs", "0", "--", "true"]), 2);
    assert!(message.contains("--pairs 0 measures nothing"), "{message}");
}

#[test]
fn the_program_reads_nothing_in_any_run() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut check = terrace();
    let script = format!("wc -l >> {}", log.display());
    check.args(["check", "--machine", "zen4-cxl", "--pairs", "1", "--", "sh", "-c", &script]);
    check.write_stdin("one\ntwo\n");
    let text = stdout(&mut check).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("The program's input was empty in each run"), "{text}");
    let lines = std::fs::read_to_string(&log).unwrap();
    assert!(lines.lines().count() >= 3 && lines.lines().all(|line| line.trim() == "0"), "{lines}");
}
