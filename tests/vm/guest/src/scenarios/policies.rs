//! Policies at work on a program whose hot pages are known: what is hot comes up, what is cold goes down, and a change of
//! phase is followed.

use crate::check::{Checks, huge_bytes, nodes_of, open, set, share_on, until};
use crate::process::{Target, Terrace};
use anyhow::Result;
use terrace_live::kernel::{Kernel, Linux};

/// A policy with the parameters that suit a run of seconds.
struct Case {
    /// None for the one that is preferred, which is Ambix here, with what it needs.
    policy: Option<&'static str>,
    sets: &'static [&'static str],
    /// The hot pages are written, not only read.
    write: bool,
}

const CASES: &[Case] = &[
    Case {
        policy: Some("ambix"),
        sets: &["flush=false", "period=1 s", "delay=500 ms", "write_threshold=100 kB/s"],
        write: true,
    },
    Case { policy: None, sets: &["period=1 s", "write_threshold=100 kB/s"], write: true },
    Case { policy: Some("nimble"), sets: &["period=1 s"], write: false },
    Case { policy: Some("idle"), sets: &["scan=1 s", "flush=false"], write: false },
    Case {
        policy: Some("damon"),
        sets: &["sampling=100 ms", "aggregation=1 s", "cold_age=2 s"],
        write: false,
    },
    Case { policy: Some("tpp"), sets: &["scan_period=500 ms"], write: false },
    Case { policy: Some("numa-balancing"), sets: &["scan_period=500 ms"], write: false },
    Case { policy: Some("memos"), sets: &["period=1 s", "delay=500 ms", "flush=false"], write: true },
];

/// Of the hot pages, so many have to lie in the fast tier in the end.
const SHARE: f64 = 0.95;

pub fn converge(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    // The kernel's own balancing would bring the hot pages up by itself.
    set("/proc/sys/kernel/numa_balancing", 0)?;
    for case in CASES {
        one(checks, case)?;
    }
    Ok(())
}

fn one(checks: &mut Checks, case: &Case) -> Result<()> {
    let arguments = [
        "hotset",
        "--mib",
        "16",
        "--no-thp",
        "--on",
        "1",
        "--hot-percent",
        "25",
        "--hot-start-percent",
        "30",
    ];
    let write = if case.write { &["--write"][..] } else { &[] };
    let mut target = Target::start(&[&arguments[..], write].concat())?;
    target.wait_for("phase")?;
    let process = open(&target)?;
    let memory = target.range("memory")?;
    let sets: Vec<&str> = case.sets.iter().flat_map(|set| ["--set", set]).collect();
    let bounds = ["--limit", "dram=8MiB", "--cpu", "none", "--pressure", "none", "--regions", "8192"];
    let named: Vec<&str> = case.policy.iter().flat_map(|name| ["--policy", name]).collect();
    let policy = case.policy.unwrap_or("without a name");
    let terrace = Terrace::attach(target.pid(), &[&bounds[..], &named, &sets].concat())?;
    for phase in ["first", "second"] {
        let hot = target.range("hot")?;
        let up = until(|| share_on(&process, &hot, 0), |up| *up >= SHARE)?;
        let fast = share_on(&process, &memory, 0)?;
        checks.that(
            up >= SHARE,
            format!("{policy}: the hot pages of the {phase} phase are in the fast tier"),
            format!("{up:.3}"),
        );
        checks.that(fast <= 0.5, format!("{policy}: and its limit holds"), format!("{fast:.3} of all"));
        if phase == "first" {
            target.next_phase()?;
        }
    }
    checks.note(format!("{policy}: {}", terrace.finish()?));
    Ok(())
}

/// A command's shared memory under Ambix, whose accesses are seen by zap-and-look and by nothing else: hot pages come up, and
/// pages without an entry go down to make room for those of the next phase.
pub fn zapped(checks: &mut Checks) -> Result<()> {
    set("/proc/sys/kernel/numa_balancing", 0)?;
    let bounds = ["run", "--track-accesses", "--limit", "dram=6MiB", "--cpu", "none", "--pressure", "none"];
    let policy =
        ["--policy", "ambix", "--set", "flush=false", "--set", "period=1 s", "--set", "delay=500 ms"];
    let command = ["--set", "write_threshold=100 kB/s", "--", "/bin/guest", "hotset", "--mib", "16"];
    let hot =
        ["--no-thp", "--shared", "--on", "1", "--hot-percent", "25", "--hot-start-percent", "30", "--write"];
    let mut target = Target::started_by("terrace", &[&bounds[..], &policy, &command, &hot].concat())?;
    target.wait_for("phase")?;
    let pid: u32 = target.value("pid")?.parse()?;
    let process = Linux.open(pid)?;
    let memory = target.range("memory")?;
    for phase in ["first", "second"] {
        let hot = target.range("hot")?;
        let up = until(|| share_on(&process, &hot, 0), |up| *up >= SHARE)?;
        checks.that(
            up >= SHARE,
            format!("the hot pages of the {phase} phase are in the fast tier"),
            format!("{up:.3}"),
        );
        if phase == "first" {
            let out = *nodes_of(&process, &memory)?.get(&-libc::ENOENT).unwrap_or(&0);
            checks.that(out > 0, "pages that nobody uses have no entry", out);
            // SAFETY: the command runs, for its child is the one that runs it.
            unsafe { libc::kill(pid as i32, libc::SIGUSR1) };
            target.wait_for("phase")?;
        }
    }
    target.kill()?;
    super::harm::outlived(checks, pid)
}

/// Cold huge pages go down, hot ones stay; both stay huge.
pub fn thermostat(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    set("/proc/sys/kernel/numa_balancing", 0)?;
    let arguments =
        ["hotset", "--mib", "32", "--thp", "--on", "0", "--hot-percent", "25", "--hot-start-percent", "50"];
    let mut target = Target::start(&arguments)?;
    target.wait_for("phase")?;
    let process = open(&target)?;
    let (memory, hot) = (target.range("memory")?, target.range("hot")?);
    let bounds = ["--cpu", "none", "--pressure", "none", "--regions", "8192", "--policy", "thermostat", "-v"];
    let sets = ["--set", "interval=2 s", "--set", "sample=0.4"];
    let terrace = Terrace::attach(target.pid(), &[&bounds[..], &sets].concat())?;
    let cold = memory.start..hot.start;
    // A hot page whose sample missed its accesses goes down too, until correction brings it back.
    let both = || Ok((share_on(&process, &cold, 1)?, share_on(&process, &hot, 0)?));
    let (down, stayed) = until(both, |(down, stayed)| *down >= 0.7 && *stayed >= SHARE)?;
    checks.that(down >= 0.7, "most cold pages are in the slow tier", format!("{down:.3}"));
    checks.that(stayed >= SHARE, "the hot ones are in the fast tier", format!("{stayed:.3}"));
    let huge = huge_bytes(&process, &memory)? as f64 / (memory.end - memory.start) as f64;
    checks.that(huge > 0.5, "most pages are huge", format!("{huge:.3}"));
    checks.note(terrace.finish()?);
    Ok(())
}
