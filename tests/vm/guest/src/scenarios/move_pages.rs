//! Pages move between nodes, whole huge pages too, while their contents are checked all the time.

use crate::check::{Checks, huge_bytes, move_to, nodes_of, open, pages, set, text, vmstat};
use crate::memory::{GIANT, HUGE, PAGE};
use crate::process::Target;
use anyhow::Result;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub fn base_and_huge(checks: &mut Checks) -> Result<()> {
    base(checks, "private", &[])?;
    base(checks, "shared", &["--shared"])?;
    huge(checks)
}

fn base(checks: &mut Checks, what: &str, more: &[&str]) -> Result<()> {
    let arguments = ["verify", "--mib", "16", "--no-thp", "--on", "0"];
    let target = Target::start(&[&arguments, more].concat())?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    let all = pages(&memory);
    for node in [1, 0] {
        let started = Instant::now();
        checks.equal(
            format!("{what} base pages to node {node}"),
            move_to(&process, &all, node)?,
            BTreeMap::from([(node, all.len())]),
        );
        checks.note(format!("{} pages in {:?}", all.len(), started.elapsed()));
        checks.equal("and lie there", nodes_of(&process, &memory)?, BTreeMap::from([(node, all.len())]));
    }
    intact(checks, &format!("{what} base pages"), target);
    Ok(())
}

fn huge(checks: &mut Checks) -> Result<()> {
    let target = Target::start(&["verify", "--mib", "32", "--thp", "--on", "0"])?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    let bytes = memory.end - memory.start;
    let heads: Vec<u64> = (memory.start..memory.end).step_by(HUGE as usize).collect();
    checks.equal("bytes of huge pages", huge_bytes(&process, &memory)?, bytes);
    let splits = vmstat("thp_split_page")?;
    for node in [1, 0] {
        let heads_moved = move_to(&process, &heads, node)?;
        checks.equal(format!("heads to node {node}"), heads_moved, BTreeMap::from([(node, heads.len())]));
        let everywhere = BTreeMap::from([(node, (bytes / PAGE) as usize)]);
        checks.equal("and all their pages lie there", nodes_of(&process, &memory)?, everywhere);
        checks.equal("still huge", huge_bytes(&process, &memory)?, bytes);
    }
    checks.equal("none was split", vmstat("thp_split_page")?, splits);
    intact(checks, "huge pages", target);
    Ok(())
}

/// Pages of 1 GiB, of which each node has one.
pub fn giant(checks: &mut Checks) -> Result<()> {
    for node in 0..2 {
        let pool = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-1048576kB/nr_hugepages");
        set(&pool, 1)?;
        checks.equal(format!("1 GiB pages in the pool of node {node}"), text(&pool)?.as_str(), "1");
    }
    let target = Target::start(&["verify", "--mib", "1024", "--giant", "--on", "0"])?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    for node in [1, 0] {
        let started = Instant::now();
        let moved = move_to(&process, &[memory.start], node)?;
        checks.equal(format!("a 1 GiB page to node {node}"), moved, BTreeMap::from([(node, 1)]));
        checks.note(format!("1 GiB in {:?}", started.elapsed()));
        let everywhere = BTreeMap::from([(node, (GIANT / PAGE) as usize)]);
        checks.equal("and lies there", nodes_of(&process, &memory)?, everywhere);
    }
    intact(checks, "a 1 GiB page", target);
    Ok(())
}

/// Moves back and forth without rest while each mode of the verifier is at work.
pub fn under_fire(checks: &mut Checks) -> Result<()> {
    for (mode, pages, seconds) in [
        ("plain", "--no-thp", 4),
        ("plain", "--thp", 3),
        ("fork", "--no-thp", 3),
        ("mremap", "--thp", 3),
        ("munmap", "--no-thp", 3),
    ] {
        let target = Target::start(&["verify", "--mib", "16", "--threads", "4", "--mode", mode, pages])?;
        let moved = back_and_forth(&target, Duration::from_secs(seconds))?;
        checks.that(moved > 0, format!("{mode} {pages}: pages move"), format!("{moved} moves"));
        intact(checks, &format!("{mode} {pages}"), target);
    }
    Ok(())
}

/// Returns how many pages arrived.
fn back_and_forth(target: &Target, time: Duration) -> Result<usize> {
    let (process, memory) = (open(target)?, target.range("memory")?);
    let all = pages(&memory);
    let deadline = Instant::now() + time;
    let mut moved = 0;
    while Instant::now() < deadline {
        for node in [1, 0] {
            for batch in all.chunks(512) {
                moved += move_to(&process, batch, node)?.get(&node).copied().unwrap_or_default();
            }
        }
    }
    Ok(moved)
}

fn intact(checks: &mut Checks, what: &str, target: Target) {
    match target.finish() {
        Ok(said) => checks.that(true, format!("{what}: every byte as written"), said),
        Err(error) => checks.that(false, format!("{what}: every byte as written"), error),
    }
}
