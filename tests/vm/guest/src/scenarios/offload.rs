//! A policy that the kernel carries out by itself: DAMON's schemes move what a cgroup has, and nothing else.

use crate::check::{Checks, open, set, share_on, text, until};
use crate::process::{Target, Terrace};
use anyhow::Result;

const CGROUP: &str = "/sys/fs/cgroup/managed";
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";

pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    set("/proc/sys/kernel/numa_balancing", 0)?;
    set("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
    std::fs::create_dir(CGROUP)?;
    promotes(checks)?;
    demotes(checks)?;
    checks.equal("DAMON is off again", text(KDAMONDS)?, "0".to_owned());
    std::fs::remove_dir(CGROUP)?;
    Ok(())
}

/// A hotset in the cgroup: memory belongs to the group in which it is touched first.
fn inside(arguments: &str) -> Result<Target> {
    let guest = std::env::current_exe()?;
    let command = format!("echo $$ > {CGROUP}/cgroup.procs; exec {} {arguments}", guest.display());
    Target::started_by("/bin/sh", &["-c", &command])
}

fn terrace(more: &[&str]) -> Result<Terrace> {
    let bounds = ["--cpu", "none", "--pressure", "none", "--policy", "damon", "--offload"];
    // Regions of some hundred KiB each, so that a hot set of 8 MiB has several of its own.
    let sets = ["--set", "min_regions=500", "--set", "sampling=20 ms", "--set", "aggregation=400 ms"];
    Terrace::attach_to(&["--cgroup", CGROUP], &[&bounds[..], &sets, more].concat())
}

fn promotes(checks: &mut Checks) -> Result<()> {
    let hotset = "hotset --mib 32 --no-thp --on 1 --hot-percent 25 --hot-start-percent 30";
    let mut managed = inside(hotset)?;
    let mut other = Target::start(&hotset.split(' ').collect::<Vec<_>>())?;
    managed.wait_for("phase")?;
    other.wait_for("phase")?;
    let (process, hot) = (open(&managed)?, managed.range("hot")?);
    let (others, others_hot) = (open(&other)?, other.range("hot")?);
    let terrace = terrace(&["--set", "high_usage=1"])?;
    let up = until(|| share_on(&process, &hot, 0), |up| *up >= 0.9)?;
    checks.that(up >= 0.9, "the kernel brings the cgroup's hot pages up", format!("{up:.3}"));
    let up = share_on(&others, &others_hot, 0)?;
    checks.that(up == 0.0, "and no page of another process", format!("{up:.3}"));
    // Regions are of physical memory, where cold pages lie between hot ones: how many come along differs from run to run.
    let cold = hot.end..managed.range("memory")?.end;
    checks.note(format!("{:.3} of the cold pages came up with them", share_on(&process, &cold, 0)?));
    checks.note(terrace.finish()?);
    Ok(())
}

fn demotes(checks: &mut Checks) -> Result<()> {
    // Regions of physical memory, of 3 MiB each at first, are to have no hot page among them.
    let mut managed = inside("hotset --mib 96 --no-thp --on 0 --hot-percent 10 --hot-start-percent 45")?;
    managed.wait_for("phase")?;
    let (process, hot) = (open(&managed)?, managed.range("hot")?);
    let cold = hot.end..managed.range("memory")?.end;
    // As if the node were full.
    // On a busy machine a program may not come to touch its pages for a second or two.
    let terrace = terrace(&["--set", "high_usage=0.01", "--set", "cold_age=5 s"])?;
    let down = until(|| share_on(&process, &cold, 1), |down| *down >= 0.15)?;
    checks.that(down >= 0.15, "the kernel takes cold pages down", format!("{down:.3}"));
    let stayed = share_on(&process, &hot, 0)?;
    checks.that(stayed >= 0.75, "the hot ones stay up", format!("{stayed:.3}"));
    checks.note(terrace.finish()?);
    Ok(())
}
