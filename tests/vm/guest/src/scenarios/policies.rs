//! Policies at work on a program whose hot pages are known: what is hot comes up, what is cold goes down, and a change of
//! phase is followed, for which the fast tier is too small to keep the pages of both phases.

use crate::check::{Checks, huge_bytes, lasting, nodes_of, open, set, share_on, until};
use crate::memory::PAGE;
use crate::process::{Target, Terrace};
use anyhow::Result;
use std::ops::Range;
use std::time::Instant;
use terrace_live::kernel::{Kernel, Linux, Process};

/// A policy with the parameters that suit a run of seconds and a fast tier of a thousand pages: shares of it that are kept
/// free are larger, or a few pages at a time would change places.
struct Case {
    /// None for the one that is preferred, which is Ambix here, with what it needs.
    policy: Option<&'static str>,
    sets: &'static [&'static str],
    /// The hot pages are written, not only read.
    write: bool,
    /// What Terrace may use; the defaults where nothing is said.
    bounds: &'static [&'static str],
    /// The nodes of the fast tier and of slower ones; all memory lies on the first of these at first, and what has cooled on
    /// the last in the end.
    nodes: [&'static [i32]; 2],
}

/// No bound on processor time, and no guard.
const UNBOUNDED: &[&str] = &["--cpu", "none", "--pressure", "none", "--regions", "8192"];
const TWO_NODES: [&[i32]; 2] = [&[0], &[1]];
const NIMBLE: Case =
    Case { policy: Some("nimble"), sets: &["period=1 s"], write: false, bounds: UNBOUNDED, nodes: TWO_NODES };

const TPP: Case =
    Case { policy: Some("tpp"), sets: &["scan_period=500 ms", "demote_scale=0.1"], write: false, ..NIMBLE };

/// Ambix is the one without a name, and the machine of four nodes has Nimble and TPP.
const CASES: &[Case] = &[
    Case { policy: None, sets: &["period=1 s", "write_threshold=100 kB/s"], write: true, ..NIMBLE },
    Case {
        policy: Some("damon"),
        sets: &["sampling=100 ms", "aggregation=1 s", "cold_age=2 s", "high_usage=0.85"],
        write: false,
        ..NIMBLE
    },
];

const MORE_CASES: &[Case] = &[
    // Where pages go up in small portions, throughput rises and falls by chance between two cycles: with the default it soon
    // promotes fewer pages than are hot, and in the end none.
    Case {
        policy: Some("memos"),
        sets: &["period=1 s", "delay=500 ms", "flush=false", "shrink=1"],
        write: true,
        ..NIMBLE
    },
    Case { policy: Some("idle"), sets: &["scan=1 s", "flush=false"], write: false, ..NIMBLE },
    Case {
        policy: Some("numa-balancing"),
        sets: &["scan_period=500 ms", "low_watermark=0.05", "high_watermark=0.1"],
        write: false,
        ..NIMBLE
    },
];

/// Share of the hot pages that has to lie in the fast tier in the end.
const SHARE: f64 = 0.95;
/// Share of the cold pages, and of those that were hot in the phase before, that has to lie in the slow tier then.
const LEFT: f64 = 0.7;
/// Looks in a row in which this has to hold, one a second.
const LOOKS: usize = 3;
/// Limit of the fast tier. In either phase 4 of 16 MiB are hot: those of the second fit only where those of the first make
/// room.
const LIMIT_MIB: u64 = 5;

pub fn converge(checks: &mut Checks) -> Result<()> {
    each(checks, CASES)
}

pub fn more_converge(checks: &mut Checks) -> Result<()> {
    each(checks, MORE_CASES)
}

fn each(checks: &mut Checks, cases: &[Case]) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    // The kernel's own balancing would bring the hot pages up by itself.
    set("/proc/sys/kernel/numa_balancing", 0)?;
    for case in cases {
        one(checks, case)?;
    }
    Ok(())
}

/// Nimble on a machine whose tiers are made of other nodes.
pub(super) fn on_nodes(checks: &mut Checks, nodes: [&'static [i32]; 2]) -> Result<()> {
    let _ticker = super::harm::quiet()?;
    one(checks, &Case { nodes, ..NIMBLE })
}

/// TPP on three tiers: what is hot comes up from the third past the second, and what has cooled sinks to the second.
pub(super) fn on_three_tiers(checks: &mut Checks) -> Result<()> {
    let _ticker = super::harm::quiet()?;
    one(checks, &Case { nodes: [&[0, 1], &[3, 2]], ..TPP })
}

/// The defaults, 3 % of a core and the guard, let a policy converge.
pub fn bounded(checks: &mut Checks) -> Result<()> {
    let _ticker = super::harm::quiet()?;
    one(checks, &Case { bounds: &[], ..NIMBLE })
}

/// Which part of a range lies on some nodes.
fn share_in(process: &Process, range: &Range<u64>, nodes: &[i32]) -> Result<f64> {
    nodes.iter().map(|node| share_on(process, range, *node)).sum()
}

fn one(checks: &mut Checks, case: &Case) -> Result<()> {
    let [fast, slow] = case.nodes;
    let on = slow[0].to_string();
    let arguments = [
        "hotset",
        "--mib",
        "16",
        "--no-thp",
        "--on",
        &on,
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
    let limit = format!("dram={LIMIT_MIB}MiB");
    let named: Vec<&str> = case.policy.iter().flat_map(|name| ["--policy", name]).collect();
    let policy = case.policy.unwrap_or("without a name");
    let terrace =
        Terrace::attach(target.pid(), &[&["--limit", &limit], case.bounds, &named, &sets].concat())?;
    let first = target.range("hot")?;
    let looks = lasting(LOOKS, || share_in(&process, &first, fast), |up| *up >= SHARE)?;
    let up = looks.into_iter().fold(1.0, f64::min);
    checks.that(
        up >= SHARE,
        format!("{policy}: the hot pages of the first phase are in the fast tier, and stay"),
        format!("{up:.3}"),
    );
    within_limit(checks, case, &process, &memory)?;

    target.next_phase()?;
    let second = target.range("hot")?;
    let began = Instant::now();
    let both = || Ok((share_in(&process, &second, fast)?, share_in(&process, &first, slow)?));
    let looks = lasting(LOOKS, both, |(up, down)| *up >= SHARE && *down >= LEFT)?;
    let up = looks.iter().map(|look| look.0).fold(1.0, f64::min);
    let down = looks.iter().map(|look| look.1).fold(1.0, f64::min);
    let seconds = began.elapsed().as_secs();
    checks.that(
        up >= SHARE,
        format!("{policy}: the hot pages of the second phase are in the fast tier, and stay"),
        format!("{up:.3}, after {seconds} s"),
    );
    checks.that(
        down >= LEFT,
        format!("{policy}: those of the first, cold now, are in the slow tier"),
        format!("{down:.3}"),
    );
    within_limit(checks, case, &process, &memory)?;
    if let [_, .., next] = slow {
        let sunk = share_on(&process, &first, *next)?;
        checks.that(sunk >= LEFT, format!("{policy}: they sank to the next tier"), format!("{sunk:.3}"));
    }
    checks.note(format!("{policy}: {}", terrace.finish()?));
    Ok(())
}

fn within_limit(checks: &mut Checks, case: &Case, process: &Process, memory: &Range<u64>) -> Result<()> {
    let nodes = nodes_of(process, memory)?;
    let fast: u64 = case.nodes[0].iter().filter_map(|node| nodes.get(node)).map(|pages| *pages as u64).sum();
    let policy = case.policy.unwrap_or("without a name");
    checks.that(
        fast * PAGE <= LIMIT_MIB << 20,
        format!("{policy}: and its limit holds"),
        format!("{fast} pages"),
    );
    Ok(())
}

/// A command's shared memory under Ambix, whose accesses are seen by entry dropping and by nothing else: hot pages come up,
/// and pages without an entry go down to make room for those of the next phase.
pub fn track_accesses(checks: &mut Checks) -> Result<()> {
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
    let (down, stayed) = until(both, |(down, stayed)| *down >= LEFT && *stayed >= SHARE)?;
    checks.that(down >= LEFT, "most cold pages are in the slow tier", format!("{down:.3}"));
    checks.that(stayed >= SHARE, "the hot ones are in the fast tier", format!("{stayed:.3}"));
    target.next_phase()?;
    let next = target.range("hot")?;
    let both = || Ok((share_on(&process, &next, 0)?, share_on(&process, &hot, 1)?));
    let (up, down) = until(both, |(up, down)| *up >= SHARE && *down >= LEFT)?;
    checks.that(up >= SHARE, "the hot pages of the next phase are in the fast tier", format!("{up:.3}"));
    checks.that(down >= LEFT, "most of those before are in the slow tier", format!("{down:.3}"));
    let huge = huge_bytes(&process, &memory)? as f64 / (memory.end - memory.start) as f64;
    checks.that(huge > 0.5, "most pages are huge", format!("{huge:.3}"));
    checks.note(terrace.finish()?);
    Ok(())
}
