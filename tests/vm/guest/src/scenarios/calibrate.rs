//! `terrace calibrate` where there are two nodes: both are tiers of the preset, and moves between them have costs.
//!
//! The emulated nodes are equally fast, so what the values are is not looked at.

use crate::check::Checks;
use anyhow::{Context, Result};
use serde_json::Value;
use std::process::Command;

const FILE: &str = "/tmp/calibrated.toml";
const REPORT: &str = "/tmp/calibrated-report";

pub fn run(checks: &mut Checks) -> Result<()> {
    let before = left()?;
    let said = terrace(&["calibrate", "--tiny", "--output", FILE])?;
    for part in ["memory of node 0", "memory of node 1", "moves between nodes"] {
        checks.that(said.1.contains(&format!("measuring {part}\n")), format!("measured: {part}"), "");
    }
    let text = std::fs::read_to_string(FILE).context(FILE)?;
    for line in [
        "# Node 0, with 2 processors, from the processors of node 0.",
        "# Node 1, without processors, from the processors of node 0.",
    ] {
        checks.that(text.contains(line), "the preset lists its nodes", line);
    }
    let reasons: Vec<&str> = text.lines().filter(|line| line.contains("was not measured")).collect();
    checks.note(format!("{} lines, {reasons:?}", text.lines().count()));

    let shown: Value = serde_json::from_str(&terrace(&["machine", "show", FILE, "--json", "-"])?.0)?;
    let own = |key: &str| {
        let parameters = shown["parameters"].as_array().into_iter().flatten();
        let found = parameters.filter(|parameter| parameter["key"] == key).find_map(|parameter| {
            let is_own = parameter["origin"].as_str()?.starts_with(FILE);
            is_own.then(|| parameter["value"].as_str().unwrap_or_default().to_owned())
        });
        found.unwrap_or_default()
    };
    for key in ["order", "allocate", "unmap", "map", "free", "shootdown"] {
        let key = format!("os.costs.{key}");
        checks.that(!own(&key).is_empty(), format!("measured: {key}"), own(&key));
    }
    for tier in ["tier.dram", "tier.cxl"] {
        let keys =
            ["capacity", "path_latency", "link.latency", "link.read_bandwidth", "link.write_bandwidth"];
        for key in &keys[..if tier == "tier.dram" { 2 } else { 5 }] {
            let key = format!("{tier}.{key}");
            checks.that(!own(&key).is_empty(), format!("measured: {key}"), own(&key));
            if !key.ends_with("capacity") {
                checks.that(text.contains(&format!("\"{key} = ")), "its spread is stated", key);
            }
        }
    }
    let workload = "gups,bytes=4 MiB,updates=2000";
    let compared = terrace(&[
        "compare",
        "native-4k",
        "native-thp",
        "--machine",
        FILE,
        "--workload",
        workload,
        "--output",
        REPORT,
    ]);
    let compared = compared.map(|said| said.0).unwrap_or_else(|error| format!("{error:#}"));
    checks.that(compared.contains("native-thp"), "it can be compared on", compared.lines().count());

    std::fs::remove_file(FILE)?;
    std::fs::remove_dir_all(REPORT)?;
    checks.equal("files that are left", left()?, before);
    Ok(())
}

fn left() -> Result<usize> {
    Ok(std::fs::read_dir("/tmp")?.count())
}

/// What it prints, and what it says beside.
fn terrace(arguments: &[&str]) -> Result<(String, String)> {
    let output = Command::new("terrace").args(arguments).current_dir("/tmp").output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "terrace {arguments:?}: {said}");
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), said))
}
