//! Accesses to watched pages of shared memory by sampled faults: which pages, how often, and that nobody is left waiting.

use crate::check::{Checks, eventually, pages, set, share_on, text, until};
use crate::memory::PAGE;
use crate::process::Target;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_live::facts::Facts;
use terrace_live::help::Help;
use terrace_live::kernel::{Kernel, Linux};
use terrace_live::space::Dirtiness;
use terrace_live::world::{Managed, Options, World};
use terrace_policy::{
    Clear, MemorySystem, Moment, PageCount, PageId, ScanHand, Scope, SignalSet, Step, Watch,
};

pub fn run(checks: &mut Checks) -> Result<()> {
    // Only Terrace is to move pages.
    set("/proc/sys/kernel/numa_balancing", 0)?;
    let help = Help::start_with_sampler()?;
    hot_pages(checks, &help)?;
    rates(checks, &help)?;
    every_byte(checks, &help)?;
    drop(help);
    thermostat(checks)
}

/// A program that has handed over what its faults are sampled with, and a world that knows so many of its pages.
fn sampled(help: &Help, arguments: &[&str], expected: u64) -> Result<(Target, World, Vec<PageId>)> {
    let target = Target::started_with("/proc/self/exe", arguments, &help.environment())?;
    let kernel: Arc<dyn Kernel> = Arc::new(Linux);
    let facts = Facts::discover(&*kernel);
    let trackers = Some(help.trackers().clone());
    let options = Options { trackers, managed: Managed::Sampled, ..Options::default() };
    let capabilities = facts.capabilities_with_sampled_faults();
    let mut world =
        World::new(kernel, facts.tiers.clone(), capabilities, &options).map_err(anyhow::Error::msg)?;
    world.serve(SignalSet::NONE, Dirtiness::Unknown);
    world.adopt(target.pid())?;
    let pages = until(
        || {
            look(&mut world, false);
            world.refresh();
            Ok(all_pages(&mut world))
        },
        |pages| pages.len() as u64 >= expected,
    )?;
    Ok((target, world, pages))
}

fn look(world: &mut World, may: bool) {
    world.set_now(Moment(world.kernel().now().as_nanos() as u64));
    world.sample_faults(&mut || may);
}

/// Looks for a while.
fn sample(world: &mut World, span: Duration, pause: Duration) {
    let started = Instant::now();
    while started.elapsed() < span {
        look(world, true);
        std::thread::sleep(pause);
    }
    look(world, false);
}

fn all_pages(world: &mut World) -> Vec<PageId> {
    let mut pages = Vec::new();
    world.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
        pages.push(view.page);
        Step::Keep
    });
    pages
}

fn counts(world: &mut World) -> Vec<PageCount> {
    let mut counts = Vec::new();
    world.counts(&mut |count| counts.push(count));
    counts
}

/// Exactly the pages in use are found, in two phases.
fn hot_pages(checks: &mut Checks, help: &Help) -> Result<()> {
    let hotset = ["hotset", "--mib", "8", "--shared", "--no-thp", "--hot-percent", "20"];
    let (mut target, mut world, pages_of) = sampled(help, &hotset, (8 << 20) / PAGE)?;
    target.wait_for("phase")?;
    world.watch(&pages_of, Watch::Count);
    for _ in 0..2 {
        // Until all that nobody uses is out.
        sample(&mut world, Duration::from_secs(3), Duration::from_millis(15));
        counts(&mut world);
        sample(&mut world, Duration::from_secs(2), Duration::from_millis(15));
        let used = counts(&mut world).into_iter().filter(|count| count.accesses > 0);
        let found: BTreeSet<u64> = used.map(|count| count.page.vpn * PAGE).collect();
        let hot: BTreeSet<u64> = pages(&target.range("hot")?).into_iter().collect();
        let right = found.intersection(&hot).count();
        checks.that(
            found == hot && !hot.is_empty(),
            "exactly the pages in use are seen: precision and recall 1",
            format!("{} found, {right} of {} in use", found.len(), hot.len()),
        );
        target.next_phase()?;
    }
    Ok(())
}

/// Accesses per second to the pages of each group.
const RATES: [u32; 5] = [1, 4, 10, 25, 60];
const GROUP: usize = 8;

/// Rates of accesses that come at random are right within 4 standard errors and 10 %.
fn rates(checks: &mut Checks, help: &Help) -> Result<()> {
    let list = RATES.map(|rate| rate.to_string()).join(",");
    let beats = ["beats", "--mib", "2", "--shared", "--no-thp", "--rates", &list];
    let (target, mut world, pages_of) = sampled(help, &beats, 512)?;
    world.watch(&pages_of, Watch::Count);
    let memory = target.range("memory")?;
    let started = Instant::now();
    sample(&mut world, Duration::from_secs(20), Duration::from_millis(50));
    let mut estimated = [0u64; RATES.len()];
    for count in counts(&mut world) {
        if let Some(sum) = estimated.get_mut((count.page.vpn - memory.start / PAGE) as usize / GROUP) {
            *sum += count.accesses;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    target.finish()?;
    for (rate, estimated) in RATES.into_iter().zip(estimated) {
        let made = f64::from(rate) * seconds * GROUP as f64;
        // So many were seen, at least: a page is out again 70 ms after an access.
        let seen = seconds / (0.07 + 1.0 / f64::from(rate)) * GROUP as f64;
        let (error, bound) = (estimated as f64 / made - 1.0, 4.0 / seen.sqrt() + 0.1);
        checks.that(
            error.abs() <= bound,
            format!("{rate} accesses per second to each of {GROUP} pages"),
            format!("{estimated} of {made:.0}, {:+.1} %, within {:.1} %", error * 1e2, bound * 1e2),
        );
    }
    Ok(())
}

/// Programs that check every byte, while all of their pages are sampled without a pause.
fn every_byte(checks: &mut Checks, help: &Help) -> Result<()> {
    // What moves with each pass over all memory must stay long enough to be found in between.
    for (mode, mib, seconds) in
        [("plain", "8", 2), ("fork", "8", 2), ("mremap", "64", 4), ("munmap", "64", 4)]
    {
        let verify = ["verify", "--mib", mib, "--shared", "--no-thp", "--mode", mode];
        let (target, mut world, _) = sampled(help, &verify, 1)?;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(seconds) {
            // As soon as a mapping is known its pages are taken out, for it may be another one a moment later.
            world.refresh();
            let pages = all_pages(&mut world);
            world.watch(&pages, Watch::Count);
            sample(&mut world, Duration::from_millis(4), Duration::from_millis(1));
        }
        let accesses = world.counters().count_faults;
        // What is unmapped was used once since it was mapped: registered and taken out, and seldom accessed after that.
        let enough = mode == "munmap" || accesses > 20;
        checks.that(enough, format!("{mode}: accesses are seen"), accesses);
        // With entries out.
        drop(world);
        let said = target.finish()?;
        checks.that(true, format!("{mode}: no byte differs, nobody waits"), said);
    }
    Ok(())
}

/// `terrace run --sample-faults` with Thermostat: cold huge pages of shared memory go down, hot ones stay. Then an access
/// that waits for a Terrace that is stopped goes on when that is killed.
fn thermostat(checks: &mut Checks) -> Result<()> {
    set("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "advise")?;
    let bounds = ["run", "--sample-faults", "--cpu", "none", "--pressure", "none", "--policy", "thermostat"];
    // Next to nothing may be accessed in the slow tier: how fast the hot pages are used on this machine is not known.
    let slowdown = ["--set", "slowdown=0.00002", "--set", "prefilter=false"];
    let sets = ["--set", "interval=2 s", "--set", "sample=0.4", "--", "/bin/guest"];
    let hotset = ["hotset", "--mib", "32", "--shared", "--thp", "--on", "0", "--hot-percent", "25"];
    let start = ["--hot-start-percent", "50"];
    let mut target =
        Target::started_by("terrace", &[&bounds[..], &slowdown, &sets, &hotset, &start].concat())?;
    target.wait_for("phase")?;
    let pid: u32 = target.value("pid")?.parse()?;
    let process = Linux.open(pid).context("opening the command")?;
    let (memory, hot) = (target.range("memory")?, target.range("hot")?);
    let share = |kib: u64| kib as f64 / ((memory.end - memory.start) >> 10) as f64;
    // Pages without an entry show no node, and those in the slow tier are out all the time. Three quarters are cold, so that
    // with more than half of all in the slow tier any quarter that is cold has one there.
    let before = shared_on(1)?;
    let down = until(|| Ok(share(shared_on(1)?.saturating_sub(before))), |down| *down >= 0.55)?;
    checks.that(down >= 0.55, "most cold pages are in the slow tier", format!("{down:.3} of all"));
    let stayed = until(|| share_on(&process, &hot, 0), |stayed| *stayed >= 0.95)?;
    checks.that(stayed >= 0.95, "the hot ones are in the fast tier", format!("{stayed:.3}"));
    // Hot ones are in the sample, and split, most of the time.
    let huge = until(|| Ok(share(kib_of("/proc/meminfo", "ShmemHugePages:", 1)?)), |huge| *huge >= 0.5)?;
    checks.that(huge >= 0.5, "most pages are huge", format!("{huge:.3}"));

    // The next phase uses pages that were cold, which are out.
    let signal = |pid: u32, signal: i32| -> Result<()> {
        // SAFETY: both are ours, and nobody has waited for them.
        ensure!(unsafe { libc::kill(pid as i32, signal) } == 0, "kill");
        Ok(())
    };
    signal(target.pid(), libc::SIGSTOP)?;
    let state = || Ok(text(format!("/proc/{}/status", target.pid()))?.contains("State:\tT"));
    checks.that(eventually(state)?, "Terrace is stopped", target.pid());
    signal(pid, libc::SIGUSR1)?;
    checks.that(eventually(|| waiting(pid))?, "an access waits while Terrace is stopped", pid);
    std::thread::sleep(Duration::from_millis(500));
    checks.that(waiting(pid)?, "and goes on waiting", pid);
    target.kill()?;
    target.wait_for("phase")?;
    checks.equal(
        "the phase that a killed Terrace lets begin",
        target.value("phase")?.to_owned(),
        "1".to_owned(),
    );
    checks.that(!waiting(pid)?, "and no access waits", pid);
    super::harm::outlived(checks, pid)?;
    set("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "never")?;
    Ok(())
}

/// KiB of shared memory on a node.
fn shared_on(node: u32) -> Result<u64> {
    kib_of(&format!("/sys/devices/system/node/node{node}/meminfo"), "Shmem:", 3)
}

/// The number of a line of a file, which is the word `at`.
fn kib_of(path: &str, name: &str, at: usize) -> Result<u64> {
    let memory = text(path)?;
    let line = memory.lines().find(|line| line.contains(name)).with_context(|| format!("no {name}"))?;
    line.split_whitespace().nth(at).and_then(|number| number.parse().ok()).context("no number")
}

/// Whether the main thread waits for the answer to a fault.
fn waiting(pid: u32) -> Result<bool> {
    Ok(text(format!("/proc/{pid}/stack"))?.contains("handle_userfault"))
}
