//! What `terrace doctor` says of a machine is so.

use crate::check::{Checks, text};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;

const NODES: &str = "/sys/devices/system/node";
/// Columns of a screen.
const WIDTH: usize = 80;

/// Facts of the machine besides those that the kernel itself reports.
pub struct Machine {
    /// The processors of each node, by its number; none in slow memory.
    pub processors: &'static [&'static [u64]],
    /// Names and nodes of the tiers, fastest first.
    pub tiers: &'static [(&'static str, &'static [u64])],
    /// A part of the sentence on what distinguishes the tiers.
    pub grouped_by: &'static str,
    /// The kernel is older than `PAGEMAP_SCAN`, DAMON on addresses of processes and weighted interleave.
    pub is_old: bool,
}

/// Policies that run on 6.12 as they are, and those that do with other parameters. The rest need what only hardware or a
/// simulator reports.
const RUN: &[&str] = &[
    "block-hotness",
    "bw-aware",
    "damon",
    "demand-paging",
    "first-touch",
    "interleave",
    "nimble",
    "numa-balancing",
    "thermostat",
    "tpp",
];
const RUN_OTHERWISE: &[&str] = &["ambix", "hawkeye", "idle", "memos", "thp"];

/// Compares both of its forms with the machine.
pub fn check(checks: &mut Checks, machine: &Machine) -> Result<()> {
    let document: Value = serde_json::from_str(&said(&["doctor", "--json", "-"])?)?;
    checks.equal(
        "doctor: kernel",
        string(&document["kernel"]).to_owned(),
        text("/proc/sys/kernel/osrelease")?,
    );
    nodes(checks, machine, &document)?;
    let tiers: Vec<(&str, Vec<u64>)> =
        list(&document["tiers"]).map(|tier| (string(&tier["name"]), numbers(&tier["nodes"]))).collect();
    let expected: Vec<(&str, Vec<u64>)> =
        machine.tiers.iter().map(|(name, nodes)| (*name, nodes.to_vec())).collect();
    checks.equal("doctor: tiers", tiers, expected);

    let mut finding = |item: &str, state: &str, value: &str, enable: &str| {
        let found = list(&document["findings"]).find(|finding| finding["item"] == item);
        let found = found.cloned().unwrap_or_default();
        let holds = found["state"] == state
            && string(&found["value"]).contains(value)
            && string(&found["enable"]).contains(enable);
        checks.that(
            holds,
            format!("doctor: {item}"),
            format!("{}: {}; try: {}", found["state"], found["value"], found["enable"]),
        );
    };
    finding("tiers", "ok", machine.grouped_by, "");
    finding("privileges", "ok", "root, with all", "");
    finding("soft-dirty bits", "ok", "", "");
    if machine.is_old {
        finding("PAGEMAP_SCAN", "missing", "this kernel has no PAGEMAP_SCAN", "a kernel from 6.7 on");
        finding("DAMON", "missing", "this kernel has no DAMON", "CONFIG_DAMON");
        finding("weighted interleave", "missing", "", "a kernel from 6.9 on");
    } else {
        finding("PAGEMAP_SCAN", "ok", "finds pages by state", "");
        finding("DAMON", "ok", "free to use", "");
        finding("DAMON vaddr", "ok", "watches processes", "");
        let last = machine.processors.len() - 1;
        finding("weighted interleave", "ok", &format!("node {last} weighs 1"), "");
    }
    policies(checks, machine, &document);

    let screen = said(&["doctor"])?;
    let widest = screen.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    checks.that(widest <= WIDTH, "doctor in words fits a screen", format!("{widest} columns"));
    for (node, processors) in machine.processors.iter().enumerate() {
        let start = format!("  node {node} ");
        let line = screen.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
        let far = line.contains("no CPUs");
        checks.that(far == processors.is_empty() && !line.is_empty(), "doctor in words: a node", line.trim());
    }
    let shown = |item: &str| screen.lines().find(|line| line.starts_with(&format!("  {item} ")));
    let scan = shown("PAGEMAP_SCAN").unwrap_or_default();
    checks.that(scan.contains("missing") == machine.is_old, "doctor in words: PAGEMAP_SCAN", scan.trim());
    Ok(())
}

/// Processors of the nodes, sizes and latencies.
fn nodes(checks: &mut Checks, machine: &Machine, document: &Value) -> Result<()> {
    let entries: Vec<&Value> = list(&document["nodes"]).collect();
    let processors: Vec<Vec<u64>> = entries.iter().map(|entry| numbers(&entry["cpus"])).collect();
    let expected: Vec<Vec<u64>> = machine.processors.iter().map(|of| of.to_vec()).collect();
    checks.equal("doctor: processors of each node", processors, expected);
    for entry in entries {
        let folder = format!("{NODES}/node{}", entry["node"]);
        let meminfo = text(format!("{folder}/meminfo"))?;
        let total = meminfo.split_whitespace().skip_while(|word| *word != "MemTotal:").nth(1);
        let total: u64 = total.context("no MemTotal")?.parse()?;
        let latency = text(format!("{folder}/access0/initiators/read_latency"))?;
        checks.equal(
            format!("doctor: bytes and nanoseconds of node {}", entry["node"]),
            (entry["total_bytes"].as_u64(), entry["read_latency_ns"].as_f64()),
            (Some(total << 10), Some(latency.parse()?)),
        );
    }
    Ok(())
}

/// Which can run, and what the others lack.
fn policies(checks: &mut Checks, machine: &Machine, document: &Value) {
    let of = |verdict: &str| -> Vec<&str> {
        let policies = list(&document["policies"]).filter(|policy| policy["verdict"] == verdict);
        policies.map(|policy| string(&policy["name"])).collect()
    };
    let (run, otherwise) = if machine.is_old { (&[][..], &[][..]) } else { (RUN, RUN_OTHERWISE) };
    checks.equal("doctor: policies that run", of("runs"), run.to_vec());
    checks.equal("doctor: those that run otherwise", of("runs-with"), otherwise.to_vec());
    let unexplained = list(&document["policies"]).filter(|policy| {
        let lacks = list(&policy["lacks"]).next().is_some() || policy["refusal"].is_string();
        let scan = string(&policy["refusal"]).contains("PAGEMAP_SCAN");
        policy["verdict"] == "does-not-run" && (!lacks || scan != machine.is_old)
    });
    checks.equal("doctor: policies that do not run and lack nothing", unexplained.count(), 0);
}

/// What the command prints.
fn said(arguments: &[&str]) -> Result<String> {
    let output = Command::new("terrace").args(arguments).output()?;
    ensure!(output.status.success(), "terrace {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn numbers(value: &Value) -> Vec<u64> {
    list(value).filter_map(Value::as_u64).collect()
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
