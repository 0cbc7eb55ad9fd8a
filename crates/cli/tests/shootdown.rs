//! `terrace run --microbenchmark shootdown` end to end, with the least work: what it measures and shows, not how long.

mod common;
use common::{json, stderr, stdout, terrace};

const RUN: [&str; 4] = ["run", "--microbenchmark", "shootdown", "--tiny"];

#[test]
fn what_one_thread_takes_is_fitted_and_the_rest_is_predicted() {
    let found = json(terrace().args(RUN).args(["--json", "-", "--machine", "haswell-32"]));
    assert_eq!(found["microbenchmark"], "shootdown");
    assert_eq!(found["machine"], "haswell-32");
    let rows = found["rows"].as_array().unwrap();
    let processors = found["processors"].as_u64().unwrap().min(64);
    let of = |call: &str| -> Vec<_> { rows.iter().filter(|row| row["call"] == call).collect() };
    for call in ["munmap", "mprotect", "MADV_DONTNEED"] {
        let rows = of(call);
        let number = |at: usize, key: &str| rows[at][key].as_f64().unwrap();
        assert_eq!(rows[0]["threads"], 1);
        assert_eq!(number(0, "predicted"), number(0, "median"));
        assert!(rows[0]["error"].is_null());
        let last = rows.len() - 1;
        assert_eq!(rows[last]["threads"], processors);
        if processors > 1 {
            // The machine's costs: 1 us to send, and 100 ns for each further thread.
            let added = 1000.0 + 100.0 * (processors - 1) as f64;
            assert!((number(last, "predicted") - number(0, "predicted") - added).abs() < 1e-3, "{rows:?}");
            let error = number(last, "predicted") / number(last, "median") - 1.0;
            assert!((number(last, "error") - error).abs() < 1e-9);
        }
    }
    let left_out = found["left_out"].as_array().unwrap();
    assert_ne!(of("move_pages").is_empty(), left_out.is_empty(), "measured, or left out with a reason");
}

#[test]
fn the_table_says_what_it_shows() {
    let text = stdout(terrace().args(RUN));
    assert!(text.starts_with("One page of 4 KiB taken away from all threads of a process\n"), "{text}");
    assert!(text.contains("fitted") && text.contains("MADV_DONTNEED"), "{text}");
}

#[test]
fn it_stands_alone() {
    for (more, expected) in [
        (&["--", "true"][..], "cannot be used with"),
        (&["--policy", "nimble"], "cannot be used with"),
        (&["--machine", "no-such-machine"], "no-such-machine"),
    ] {
        let message = stderr(terrace().args(RUN).args(more), 2);
        assert!(message.contains(expected), "{more:?}: {message}");
    }
    let message = stderr(terrace().args(["run", "--machine", "haswell-32", "--", "true"]), 2);
    assert!(message.contains("cannot be used with"), "{message}");
}
