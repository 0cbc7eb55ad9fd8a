//! Data structures are the blocks of policies that decide by blocks: one that is hot gets fast memory, and what lies beside
//! it in the same area does not.

use super::hints::Run;
use crate::check::{Checks, set};
use anyhow::Result;
use std::process::Command;

fn with(more: &[&str]) -> Result<Run> {
    let mut command = Command::new("terrace");
    command.args([
        "run",
        "--cpu",
        "none",
        "--policy",
        "block-hotness",
        "--set",
        "epoch=\"1 s\"",
        "--limit",
        "dram=14MiB",
    ]);
    command.args(more).args(["--", "/bin/guest", "structures", "--hot-seconds", "20"]);
    Run::by(&mut command)
}

pub fn run(checks: &mut Checks) -> Result<()> {
    set("/proc/sys/kernel/numa_balancing", 0)?;
    let known = with(&["--track-structures"])?;
    let [hot, before, behind] =
        [known.shares("hot")?, known.shares("before")?, known.shares("behind")?].map(|[fast, _]| fast);
    checks.that(hot > 0.97, "the hot structure is on the fast node", format!("{hot:.3}"));
    // There is room for 6 MiB beside it.
    let cold = 16.0 * (before + behind);
    checks.that(
        cold <= 6.5,
        "and hardly more of the others than there is room for",
        format!("{cold:.2} MiB"),
    );
    checks.equal("the data is right", known.values.get("same").map(String::as_str), Some("1"));
    // The area of the hot structure alone is 40 MiB, and nobody knows which part is hot.
    let unknown = with(&[])?;
    let [hot, _] = unknown.shares("hot")?;
    checks.that(hot < 0.9, "without them the area is the block", format!("{hot:.3}"));
    checks.equal("the data is right", unknown.values.get("same").map(String::as_str), Some("1"));
    // A program that loads no library: one message, and it runs.
    let mut command = Command::new("terrace");
    command.args(["run", "--policy", "block-hotness", "--track-structures", "--", "/bin/busybox", "true"]);
    let static_one = Run::by(&mut command)?;
    let message = "busybox did not load the library that reports data structures";
    checks.equal("a program that loads no library is reported", static_one.said.matches(message).count(), 1);
    Ok(())
}
