//! Ambix where more is hot than fits: pages that are written are kept in the fast tier, pages that are only read as often
//! are not.

use crate::check::{Checks, lasting, open, set, share_on};
use crate::process::{Target, Terrace};
use anyhow::Result;
use std::time::Instant;
use terrace_live::kernel::{Kernel, Linux, Process};

/// Share of the written pages that has to lie in the fast tier in the end: it has room for 0.95 of them, Ambix's
/// `dram_target`.
const WRITTEN: f64 = 0.8;
/// Share of the pages that are only read that may lie there at most.
const READ: f64 = 0.2;
/// In so many looks in a row, one a second.
const LOOKS: usize = 5;

/// What is read and what is written are 4 MiB each, and the fast tier has room for one of them.
const OPTIONS: &[&str] = &[
    "--limit",
    "dram=4MiB",
    "--cpu",
    "none",
    "--pressure",
    "none",
    "--regions",
    "8192",
    "--policy",
    "ambix",
    "--set",
    "flush=false",
    "--set",
    "period=1 s",
    "--set",
    "delay=500 ms",
    "--set",
    "write_threshold=100 kB/s",
];

const WRITERS: &[&str] = &["writers", "--mib", "4", "--no-thp", "--on", "1"];

/// Both ways in which `PAGEMAP_SCAN` reports stores.
pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    set("/proc/sys/kernel/numa_balancing", 0)?;

    let mut target = Target::start(WRITERS)?;
    let terrace = Terrace::attach(target.pid(), OPTIONS)?;
    let (pid, process) = (target.pid(), open(&target)?);
    preferred(checks, "soft-dirty bits", &mut target, pid, &process)?;
    checks.note(terrace.finish()?);
    drop(target);

    let command = [&["run", "--track-stores"], OPTIONS, &["--", "/bin/guest"], WRITERS].concat();
    let mut target = Target::started_by("terrace", &command)?;
    let pid: u32 = target.value("pid")?.parse()?;
    let process = Linux.open(pid)?;
    preferred(checks, "write protection", &mut target, pid, &process)?;
    target.end(pid)
}

/// Before and after the regions change roles: the only thing that changes then is which pages are dirty.
fn preferred(
    checks: &mut Checks,
    stores: &str,
    target: &mut Target,
    pid: u32,
    process: &Process,
) -> Result<()> {
    for roles in ["at first", "with roles changed"] {
        let began = Instant::now();
        let ranges = [target.range("written")?, target.range("read")?, target.range("cold")?];
        let shares = || {
            let [written, read, cold] = &ranges;
            Ok((share_on(process, written, 0)?, share_on(process, read, 0)?, share_on(process, cold, 0)?))
        };
        let good = |shares: &(f64, f64, f64)| shares.0 >= WRITTEN && shares.1 <= READ && shares.2 <= READ;
        let looks = lasting(LOOKS, shares, good)?;
        let written = looks.iter().map(|look| look.0).fold(1.0, f64::min);
        let read = looks.iter().map(|look| look.1).fold(0.0, f64::max);
        let cold = looks.iter().map(|look| look.2).fold(0.0, f64::max);
        checks.that(
            good(&(written, read, cold)),
            format!("by {stores}, {roles}: written pages stay in the fast tier, read and cold ones do not"),
            format!(
                "at worst {written:.3} of the written, {read:.3} of the read, {cold:.3} of the cold ones, after {} s",
                began.elapsed().as_secs()
            ),
        );
        if roles == "at first" {
            // SAFETY: the program has not ended, for the process that started it was not asked to end it.
            unsafe { libc::kill(pid as i32, libc::SIGUSR1) };
            target.wait_for("phase")?;
        }
    }
    Ok(())
}
