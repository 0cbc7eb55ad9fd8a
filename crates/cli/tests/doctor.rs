//! `terrace doctor` on the machine that runs the tests, whichever it is.

mod common;
use common::{json, stdout, terrace};

#[test]
fn this_machine_is_described_in_words_and_in_json() {
    let screen = stdout(terrace().arg("doctor"));
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    for part in ["Kernel and privileges", "node 0", "tier dram", "PAGEMAP_SCAN", "Policies that run here"] {
        assert!(screen.contains(part), "no {part}:\n{screen}");
    }
    let document = json(terrace().args(["doctor", "--json", "-"]));
    assert_eq!(document["schema"], 1);
    assert!(document["tiers"][0]["capacity_bytes"].as_u64().unwrap() > 0);
    let policies = document["policies"].as_array().unwrap();
    assert_eq!(policies.len(), terrace_policy::all().len());
    let lacking: Vec<&str> = document["lacking"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["capability"].as_str().unwrap())
        .collect();
    for policy in policies {
        let lacks = policy["lacks"].as_array().unwrap();
        assert!(lacks.iter().all(|one| lacking.contains(&one.as_str().unwrap())), "{policy}");
        if policy["verdict"] == "does-not-run" {
            assert!(!lacks.is_empty() || policy["refusal"].is_string(), "{policy}");
        }
    }
    for finding in document["findings"].as_array().unwrap() {
        assert!(!finding["value"].as_str().unwrap().is_empty(), "{finding}");
    }
}

#[test]
fn measured_figures_stand_beside_what_the_firmware_tells() {
    let document = json(terrace().args(["doctor", "--measure", "--json", "-"]));
    let findings = document["findings"].as_array().unwrap();
    let item = |finding: &&serde_json::Value| finding["item"].as_str().unwrap().ends_with(" measured");
    let measured: Vec<_> = findings.iter().filter(item).collect();
    assert!(!measured.is_empty());
    for (finding, node) in measured.iter().zip(document["nodes"].as_array().unwrap()) {
        // A node without room says so instead.
        assert_eq!(finding["state"] == "ok", node["measured_latency_ns"].is_number(), "{finding}");
    }
}
