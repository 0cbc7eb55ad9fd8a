//! The machine is what the other scenarios take it for.

use super::doctor::{self, Machine};
use super::policies;
use crate::check::{Checks, eventually, move_to, nodes_of, open, pages, set, text, until, until_the_host};
use crate::process::{Target, Terrace};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use terrace_live::facts::Facts;
use terrace_live::kernel::{Kernel, Linux, PageScan, category};
use terrace_live::world::{Options, World};
use terrace_model::TierId;
use terrace_policy::{MemorySystem, Move, MoveOptions, PageId};

const NODES: &str = "/sys/devices/system/node";

/// DRAM, and a slow node without processors.
const TWO: Machine = Machine {
    processors: &[&[0, 1], &[]],
    tiers: &[("dram", &[0]), ("slow", &[1])],
    grouped_by: "the kernel's memory tiers",
    is_old: false,
};

pub fn two(checks: &mut Checks) -> Result<()> {
    nodes(checks, "0-1", "0")?;
    checks.equal("latency of node 0, ns", latency(0)?, 80);
    checks.equal("latency of node 1, ns", latency(1)?, 300);
    checks.equal("memory tiers", tiers()?, ["0", "1"].map(String::from).to_vec());
    let version = Command::new("terrace").arg("--version").output().context("terrace")?;
    checks.that(version.status.success(), "terrace runs", String::from_utf8_lossy(&version.stdout).trim());
    doctor::check(checks, &TWO)
}

pub fn four(checks: &mut Checks) -> Result<()> {
    nodes(checks, "0-3", "0-1")?;
    checks.equal("memory tiers", tiers()?, ["0-1", "2", "3"].map(String::from).to_vec());
    doctor::check(
        checks,
        &Machine {
            processors: &[&[0], &[1], &[], &[]],
            tiers: &[("dram", &[0, 1]), ("node2", &[2]), ("node3", &[3])],
            grouped_by: "the kernel's memory tiers",
            is_old: false,
        },
    )?;
    three_tiers(checks)
}

/// Nimble manages the two fastest tiers and leaves the third alone, TPP manages all; whoever orders moves may use all three.
fn three_tiers(checks: &mut Checks) -> Result<()> {
    let verify = ["verify", "--mib", "8", "--no-thp", "--on", "3"];
    let slowest = Target::start(&verify)?;
    let (process, memory) = (open(&slowest)?, slowest.range("memory")?);
    let count = pages(&memory).len();
    policies::on_nodes(checks, [&[0, 1], &[2]])?;
    policies::on_three_tiers(checks)?;
    let _ticker = Target::start(&["ticker"])?;
    let bounds = ["--policy", "nimble", "--set", "period=1 s", "--cpu", "none", "--pressure", "none"];
    let terrace = Terrace::attach(slowest.pid(), &bounds)?;
    let hot = until(
        || Ok(super::watch::status().unwrap_or_default().pointer("/tiers/2/hot").and_then(Value::as_u64)),
        |hot| *hot > Some(0),
    )?;
    checks.that(hot > Some(0), "pages in the third tier are seen to be accessed", format!("{hot:?} bytes"));
    checks.note(terrace.finish()?);
    checks.equal("and left there", nodes_of(&process, &memory)?, BTreeMap::from([(3, count)]));

    let kernel: Arc<dyn Kernel> = Arc::new(Linux);
    let facts = Facts::discover(&*kernel);
    let mut world = World::new(kernel, facts.tiers.clone(), facts.capabilities(), &Options::default())
        .map_err(anyhow::Error::msg)?;
    let space = world.adopt(slowest.pid())?;
    let vpns = pages(&memory).into_iter().map(|at| PageId { space, vpn: at >> 12 });
    let all: Vec<PageId> = vpns.collect();
    // Down and up by one tier and by two.
    for (tier, nodes) in [(1, &[2][..]), (0, &[0, 1]), (2, &[3]), (1, &[2]), (2, &[3]), (0, &[0, 1])] {
        let moves: Vec<Move> = all.iter().map(|page| Move { page: *page, to: TierId(tier) }).collect();
        world.migrate(&moves, MoveOptions { in_flight: None, ..MoveOptions::default() });
        while world.step().is_some() {}
        world.take_signals();
        let found = nodes_of(&process, &memory)?;
        let there: usize = nodes.iter().filter_map(|node| found.get(node)).sum();
        checks.that(there == count, format!("all pages in tier {tier}"), format!("{found:?}"));
    }
    drop(world);
    checks.that(true, "every byte as written", slowest.finish()?);
    Ok(())
}

/// A kernel before DAMON on addresses of processes, `PAGEMAP_SCAN` and tiers from the firmware's tables: what the kernel
/// lacks is reported and refused, not misunderstood.
pub fn old(checks: &mut Checks) -> Result<()> {
    nodes(checks, "0-1", "0")?;
    checks.equal("memory tiers", tiers()?, vec!["0-1".to_owned()]);
    checks.equal("DAMON is there", std::fs::exists("/sys/kernel/mm/damon/admin")?, false);
    let target = Target::start(&["verify", "--mib", "8", "--no-thp", "--on", "0"])?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    let scan =
        PageScan { start: memory.start, end: memory.end, tell: category::PRESENT, ..PageScan::default() };
    let refused = Linux.scan_pages(&process, &scan, &mut []).map_err(|error| error.raw_os_error());
    checks.equal("PAGEMAP_SCAN is refused", refused, Err(Some(libc::ENOTTY)));
    let all = pages(&memory);
    checks.equal("pages move", move_to(&process, &all, 1)?, BTreeMap::from([(1, all.len())]));
    doctor::check(
        checks,
        &Machine {
            processors: &[&[0], &[]],
            grouped_by: "latencies from the firmware (HMAT); the kernel holds them for one",
            is_old: true,
            ..TWO
        },
    )?;
    // One that needs no accesses, and the one that Terrace would choose.
    for policy in [&["--policy", "first-touch"][..], &[]] {
        let pid = target.pid().to_string();
        let attached = Command::new("terrace")
            .args(["attach", "--pid", &pid, "--seconds", "10"])
            .args(policy)
            .output()?;
        let said = String::from_utf8_lossy(&attached.stderr);
        let words = ["this kernel has no PAGEMAP_SCAN", "6.7"];
        checks.that(
            !attached.status.success() && words.iter().all(|words| said.contains(words)),
            format!("attach {} is refused in words", policy.join(" ")),
            said.trim(),
        );
    }
    checks.that(true, "every byte as written", target.finish()?);
    Ok(())
}

/// A node that comes and goes while the machine runs.
pub fn hotplug(checks: &mut Checks) -> Result<()> {
    nodes(checks, "0", "0")?;
    // The harness sees this line and plugs the memory in.
    println!("REQUEST hot-add");
    let came = until_the_host(|| text(format!("{NODES}/has_memory")), |nodes| nodes == "0-1")?;
    checks.that(came == "0-1", "node 1 appears", came);
    // The kernel puts it into a tier a little later.
    let found = until(tiers, |found| found.len() == 2)?;
    checks.equal("memory tiers", found, ["0", "1"].map(String::from).to_vec());
    // The kernel lets processes have it a little later.
    let allowed = || Ok(text("/proc/self/status")?.lines().any(|line| line == "Mems_allowed_list:\t0-1"));
    checks.that(eventually(allowed)?, "programs may use it", "Mems_allowed_list");
    // The node's memory comes on line one block after the other.
    let whole = || Ok(text(format!("{NODES}/node1/meminfo"))?.contains("MemTotal:        1048576 kB"));
    checks.that(eventually(whole)?, "all of it comes", "MemTotal");
    doctor::check(checks, &TWO)?;
    policies::on_nodes(checks, [&[0], &[1]])?;
    let target = Target::start(&["verify", "--mib", "8", "--no-thp", "--on", "1"])?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    let count = pages(&memory).len();
    checks.equal("memory on it", nodes_of(&process, &memory)?, BTreeMap::from([(1, count)]));
    // The node goes away while a policy is at work, which may have a part of the memory in the fast tier.
    let bounds = ["--limit", "dram=4MiB", "--cpu", "none", "--pressure", "none"];
    let terrace = Terrace::attach(
        target.pid(),
        &[&["--policy", "nimble", "--set", "period=500 ms"], &bounds[..]].concat(),
    )?;
    let up = until(|| Ok(nodes_of(&process, &memory)?.get(&0).copied().unwrap_or(0)), |up| *up > 0)?;
    checks.that(up > 0, "a policy is at work on it", format!("{up} pages came up"));
    for entry in std::fs::read_dir(format!("{NODES}/node1"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_prefix("memory").is_some_and(|number| number.parse::<u32>().is_ok()) {
            // Pages that are on their way at this moment cannot be taken off it.
            let state = entry.path().join("state");
            let gone = eventually(|| Ok(set(&state, "offline").is_ok() || text(&state)? == "offline"))?;
            checks.that(gone, "a block goes off line", &name);
        }
    }
    checks.equal("nodes with memory afterwards", text(format!("{NODES}/has_memory"))?.as_str(), "0");
    checks.equal("memory off it", nodes_of(&process, &memory)?, BTreeMap::from([(0, count)]));
    checks.note(terrace.finish()?);
    checks.that(true, "every byte as written", target.finish()?);
    Ok(())
}

fn nodes(checks: &mut Checks, memory: &str, cpu: &str) -> Result<()> {
    checks.equal("nodes with memory", text(format!("{NODES}/has_memory"))?.as_str(), memory);
    checks.equal("nodes with processors", text(format!("{NODES}/has_cpu"))?.as_str(), cpu);
    Ok(())
}

fn latency(node: u32) -> Result<u32> {
    let path = format!("{NODES}/node{node}/access0/initiators/read_latency");
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
