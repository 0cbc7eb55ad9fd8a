//! Policies on the command line: first passes, comparisons over policies, advice and tuning.

mod common;
use common::{json, stderr, stdout, terrace};
use serde_json::Value;

/// A skewed input that takes a moment: 4 MiB, of which half fits in DRAM.
const KV: &str = "kv,keys=8e3,requests=4e4";
const HALF: [&str; 6] =
    ["--machine", "xeon-5218-dcpmm", "--set", "os.reserved=0 B", "--set", "tier.dram.capacity=2 MiB"];

fn sim(design: &str) -> Value {
    let document =
        json(terrace().args(["sim", "--json", "-", "--design", design, "--workload", KV]).args(HALF));
    document["runs"][0].clone()
}

#[test]
fn the_oracle_gets_its_first_pass() {
    let (oracle, blind) = (sim("oracle"), sim("first-touch"));
    let reads = |run: &Value| run["stats"]["tier"]["dram"]["reads"].as_u64().unwrap();
    assert!(reads(&oracle) > reads(&blind), "{} <= {}", reads(&oracle), reads(&blind));

    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("study");
    stdout(
        terrace()
            .args(["compare", "first-touch", "oracle", "--workload", KV, "-o"])
            .arg(&directory)
            .args(HALF),
    );
    let text = std::fs::read_to_string(directory.join("results.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["runs"][1]["stats"], oracle["stats"], "compare gives what sim gives");
}

#[test]
fn what_runs_only_once_has_no_first_pass() {
    for command in [&["sim", "--design", "oracle"][..], &["compare", "first-touch", "oracle"]] {
        let message = stderr(terrace().args(command).args(HALF).args(["--limit", "5", "--", "true"]), 2);
        for part in ["oracle looks at its input twice", "terrace record -o app.trace --limit 5 -- true"] {
            assert!(message.contains(part), "{message}");
        }
    }
    let sim = ["sim", "--design", "oracle", "--workload", KV, "--fidelity", "pages"];
    assert!(stderr(terrace().args(sim), 1).contains("use --fidelity full"));
}
