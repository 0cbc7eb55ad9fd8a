//! Processes that execute programs are managed by the memory that they have then, and a process that gets the number of an
//! ended target is left alone.

use crate::check::{Checks, eventually, open, set, share_on, text, until};
use crate::process::{Target, Terrace};
use anyhow::{Context, Result, bail};
use std::time::Duration;
use terrace_live::kernel::{Kernel, Linux};

/// Share of the hot pages that has to lie in the fast tier in the end.
const SHARE: f64 = 0.95;
/// How often a process is started until it has the number that it is to have.
const ATTEMPTS: u32 = 50;

const HOTSET: &[&str] = &["hotset", "--mib", "16", "--no-thp", "--on", "1", "--hot-percent", "25"];
const OPTIONS: &[&str] = &[
    "--policy",
    "nimble",
    "--set",
    "period=1 s",
    "--limit",
    "dram=5MiB",
    "--cpu",
    "none",
    "--pressure",
    "none",
    "--regions",
    "8192",
];

pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    set("/proc/sys/kernel/numa_balancing", 0)?;
    for way in ["vfork", "fork", "exec", "namespace"] {
        followed(checks, way)?;
    }
    reused(checks)
}

/// A program that is executed 1.5 s after Terrace has begun, by a process that Terrace knows by then.
fn followed(checks: &mut Checks, way: &str) -> Result<()> {
    let starter = ["starter", "--by", way, "--wait-ms", "1500", "--"];
    let mut target = Target::start(&[&starter[..], HOTSET].concat())?;
    let terrace = Terrace::attach(target.pid(), OPTIONS)?;
    target.wait_for("phase")?;
    let pid = match way {
        "exec" => target.pid(),
        _ => child_of(target.pid())?,
    };
    let process = Linux.open(pid).context("opening the program")?;
    let hot = target.range("hot")?;
    let up = until(|| share_on(&process, &hot, 0), |up| *up >= SHARE)?;
    checks.that(
        up >= SHARE,
        format!("{way}: the hot pages of the program are in the fast tier"),
        format!("{up:.3}"),
    );
    // SAFETY: its parent, which has not ended, has not waited for it, so the number is still its own.
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    drop(target);
    let said = terrace.finish()?;
    checks.that(said.contains("promoted"), format!("{way}: Terrace ends"), said);
    Ok(())
}

pub(super) fn child_of(pid: u32) -> Result<u32> {
    let children = text(format!("/proc/{pid}/task/{pid}/children"))?;
    children.split_whitespace().next().context("no child")?.parse().context("no number")
}

/// A stranger with the number of the only target, which has ended, is neither managed nor waited for.
fn reused(checks: &mut Checks) -> Result<()> {
    let target = Target::start(HOTSET)?;
    let number = target.pid();
    let terrace = Terrace::attach_to(&["--pid", &number.to_string()], OPTIONS)?;
    let process = open(&target)?;
    let managed = eventually(|| Ok(share_on(&process, &target.range("memory")?, 0)? > 0.0))?;
    checks.that(managed, "the target is managed", number);
    drop(target);
    let mut stranger = with_number(number)?;
    stranger.wait_for("phase")?;
    let process = open(&stranger)?;
    std::thread::sleep(Duration::from_secs(5));
    let moved = share_on(&process, &stranger.range("memory")?, 0)?;
    checks.equal("share of the pages of a stranger with its number that moved", moved, 0.0);
    let ended = eventually(|| Ok(terrace.has_ended()))?;
    checks.that(ended, "Terrace ends with its target", number);
    terrace.finish().map(|_| ())
}

/// A program with this number, which nobody has.
fn with_number(number: u32) -> Result<Target> {
    for _ in 0..ATTEMPTS {
        set("/proc/sys/kernel/ns_last_pid", number - 1)?;
        let target = Target::start(HOTSET)?;
        if target.pid() == number {
            return Ok(target);
        }
    }
    bail!("no process gets the number {number}")
}
