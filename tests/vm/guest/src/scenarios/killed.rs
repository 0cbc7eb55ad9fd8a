//! Terrace is killed at random instants while each of its mechanisms is at work: no byte differs, nobody waits, and all is
//! put back. What Nimble does over DAMON is `integrity`.

use super::harm::{STALL, quiet, restored, stall};
use super::swap::Zram;
use crate::check::{Checks, TIMEOUT, eventually, move_to, nodes_of, open, pages, rest, set, vmstat};
use crate::process::{Target, Terrace};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};
use terrace_live::kernel::{Kernel, Linux};
use terrace_policy::Random;

const UNBOUNDED: [&str; 4] = ["--cpu", "none", "--pressure", "none"];
/// Kills of each mechanism; commands have four modes.
const KILLS: u64 = 4;

/// With these nothing is too hot for the slow tier, so that pages go all the time.
const RESTLESS: [&str; 10] = [
    "--policy",
    "thermostat",
    "--set",
    "slowdown=1",
    "--set",
    "slow_latency=1 ns",
    "--set",
    "interval=300 ms",
    "--set",
    "sample=0.5",
];

/// A mechanism of Terrace that is attached, and how one sees it at work: by a number that grows.
struct Attached {
    mechanism: &'static str,
    verify: &'static [&'static str],
    terrace: Vec<&'static str>,
    /// The share of the memory that is moved to the slow node before each start, and the rest to the fast one, so that there
    /// is something to do; none where there is one node.
    slow: Option<f64>,
    done: fn() -> Result<u64>,
}

/// On two nodes: exchanges, splits and collapses.
pub fn on_nodes(checks: &mut Checks) -> Result<()> {
    let _ticker = quiet()?;
    let mut random = Random::new(2);
    let exchange = Attached {
        mechanism: "exchange",
        verify: &["--no-thp"],
        // Both tiers are full, so that nothing comes up unless something goes down.
        terrace: [
            "--policy",
            "nimble",
            "--set",
            "period=100 ms",
            "--limit",
            "dram=8MiB",
            "--limit",
            "slow=10MiB",
        ]
        .to_vec(),
        slow: Some(0.5),
        done: || {
            let status = super::watch::status().unwrap_or_default();
            Ok(status.pointer("/moves/exchanged").and_then(Value::as_u64).unwrap_or(0))
        },
    };
    attached(checks, &exchange, &mut random)?;
    let huge = Attached {
        mechanism: "splits and collapses",
        verify: &["--thp"],
        terrace: RESTLESS.to_vec(),
        slow: Some(0.0),
        done: || Ok(vmstat("thp_split_page")?.min(vmstat("thp_collapse_alloc")?)),
    };
    attached(checks, &huge, &mut random)
}

/// What a command takes out for Terrace.
pub fn helped(checks: &mut Checks) -> Result<()> {
    set("/proc/sys/kernel/numa_balancing", 0)?;
    let mut random = Random::new(4);
    let dropped = ["--track-accesses", "--policy", "ambix", "--set", "flush=false", "--set", "period=500 ms"];
    let dropped = [&dropped[..], &["--set", "delay=250 ms", "--limit", "dram=8MiB"]].concat();
    launched(checks, "entry dropping", &dropped, "--no-thp", &mut random)?;
    set("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "advise")?;
    let sampled = [&["--sample-faults", "--set", "prefilter=false"], &RESTLESS[..]].concat();
    launched(checks, "sampled faults", &sampled, "--thp", &mut random)?;
    set("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "never")
}

/// With compressed swap: the page-out probe, and pages that go to swap and are brought back.
pub fn with_swap(checks: &mut Checks) -> Result<()> {
    let zram = Zram::on()?;
    let mut random = Random::new(3);
    for size in ["--no-thp", "--thp"] {
        let case = Attached {
            mechanism: if size == "--thp" { "page-out probe, huge pages" } else { "page-out probe" },
            verify: if size == "--thp" { &["--thp"] } else { &["--no-thp"] },
            terrace: [&RESTLESS[..], &["--set", "prefilter=false"]].concat(),
            slow: None,
            done: || vmstat("pswpout"),
        };
        attached(checks, &case, &mut random)?;
    }
    zram.off()
}

/// Waits for a moment at which to kill: some time, or `at_work` some time after the first work was seen, however long it
/// takes until then. Returns the most work that was seen.
fn wait_to_kill(at_work: bool, random: &mut Random, work: impl Fn() -> Result<u64>) -> Result<u64> {
    let began = Instant::now();
    let (mut seen, mut kill) = (0, began + Duration::from_millis(200 + random.below(1800)));
    let mut begun = !at_work;
    while Instant::now() < kill || !begun {
        let asked = Instant::now();
        seen = seen.max(work()?);
        rest(Duration::from_millis(20), asked);
        if !begun && (seen > 0 || began.elapsed() > TIMEOUT) {
            begun = true;
            kill = Instant::now() + Duration::from_millis(random.below(500));
        }
    }
    Ok(seen)
}

fn attached(checks: &mut Checks, case: &Attached, random: &mut Random) -> Result<()> {
    let name = case.mechanism;
    let verify = ["verify", "--mib", "16", "--threads", "2"];
    let target = Target::start(&[&verify, case.verify].concat())?;
    let (process, memory) = (open(&target)?, pages(&target.range("memory")?));
    let (mut done, mut left) = (0, Vec::new());
    for kills in 0..KILLS {
        if let Some(slow) = case.slow {
            let (down, up) = memory.split_at((memory.len() as f64 * slow) as usize);
            move_to(&process, down, 1)?;
            move_to(&process, up, 0)?;
        }
        let terrace = Terrace::attach(target.pid(), &[&UNBOUNDED[..], &case.terrace].concat())?;
        let before = (case.done)()?;
        done += wait_to_kill(kills % 2 == 1, random, || Ok((case.done)()?.saturating_sub(before)))?;
        terrace.kill()?;
        left.extend(restored()?);
    }
    checks.that(done > 0, format!("{name}: at work when it is killed"), done);
    checks.equal(format!("{name}: left after terrace restore"), left, Vec::new());
    verified(checks, name, target.finish())
}

/// Kills a Terrace that a launched command uses: the command goes on without it.
fn launched(
    checks: &mut Checks,
    name: &str,
    terrace: &[&str],
    size: &str,
    random: &mut Random,
) -> Result<()> {
    let mut out_at_some_time = 0;
    for kills in 0..KILLS {
        let mode = ["plain", "fork", "mremap", "munmap"][kills as usize % 4];
        let command = ["--", "/bin/guest", "verify", "--mib", "8", "--shared", size, "--mode", mode];
        let arguments = [&["run"], &UNBOUNDED[..], terrace, &command].concat();
        let mut target = Target::started_by("terrace", &arguments)?;
        let pid: u32 = target.value("pid")?.parse()?;
        let process = Linux.open(pid).context("opening the command")?;
        let memory = target.range("memory")?;
        // What moves or goes all the time may be mapped anew before it is seen to be out.
        let out = || Ok(u64::from(nodes_of(&process, &memory)?.contains_key(&-libc::ENOENT)));
        out_at_some_time += wait_to_kill(mode == "plain", random, out)?;
        target.kill()?;
        let before = super::harm::cpu_ticks(pid)?;
        let goes_on = eventually(|| Ok(super::harm::cpu_ticks(pid)? > before + 20))?;
        checks.that(goes_on, format!("{name}, {mode}: goes on after the kill"), pid);
        ensure!(goes_on, "it waits for ever");
        verified(checks, &format!("{name}, {mode}"), target.finish_orphan())?;
        checks.equal(format!("{name}, {mode}: left after terrace restore"), restored()?, Vec::new());
    }
    let times = format!("in {out_at_some_time} of {KILLS} runs");
    checks.that(out_at_some_time > 0, format!("{name}: pages are seen to be out before a kill"), times);
    Ok(())
}

fn verified(checks: &mut Checks, name: &str, said: Result<String>) -> Result<()> {
    match said {
        Ok(said) => {
            let worst = stall(&said)?;
            let what = format!("{name}: every byte as written, and 99.9 % of the pages within {STALL:?}");
            checks.that(worst < STALL, what, said);
        }
        Err(error) => checks.that(false, format!("{name}: every byte as written"), error),
    }
    Ok(())
}
