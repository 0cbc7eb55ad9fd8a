//! The machine is what the other scenarios take it for.

use crate::check::{Checks, text};
use anyhow::{Context, Result};
use std::process::Command;

pub fn two(checks: &mut Checks) -> Result<()> {
    nodes(checks, "0-1", "0")?;
    checks.equal("latency of node 0, ns", latency(0)?, 80);
    checks.equal("latency of node 1, ns", latency(1)?, 300);
    checks.equal("memory tiers", tiers()?, ["0", "1"].map(String::from).to_vec());
    let version = Command::new("terrace").arg("--version").output().context("terrace")?;
    checks.that(version.status.success(), "terrace runs", String::from_utf8_lossy(&version.stdout).trim());
    Ok(())
}

fn nodes(checks: &mut Checks, memory: &str, cpu: &str) -> Result<()> {
    let folder = "/sys/devices/system/node";
    checks.equal("nodes with memory", text(format!("{folder}/has_memory"))?.as_str(), memory);
    checks.equal("nodes with processors", text(format!("{folder}/has_cpu"))?.as_str(), cpu);
    Ok(())
}

fn latency(node: u32) -> Result<u32> {
    let path = format!("/sys/devices/system/node/node{node}/access0/initiators/read_latency");
    Ok(text(path)?.parse()?)
}

/// The nodes of each memory tier, fastest first.
fn tiers() -> Result<Vec<String>> {
    let mut tiers = Vec::new();
    for entry in std::fs::read_dir("/sys/devices/virtual/memory_tiering")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix("memory_tier").and_then(|number| number.parse::<u32>().ok()) {
            tiers.push((number, text(entry.path().join("nodelist"))?));
        }
    }
    tiers.sort();
    Ok(tiers.into_iter().map(|(_, nodes)| nodes).collect())
}
