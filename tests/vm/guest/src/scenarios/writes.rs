//! Which pages were written, seen from outside and exact to the page.

use crate::check::{Checks, open, pages, set, until};
use crate::memory::PAGE;
use crate::process::Target;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_live::facts::Facts;
use terrace_live::help::Help;
use terrace_live::kernel::{Kernel, Linux, PageRun, PageScan, Process, category};
use terrace_live::space::Dirtiness;
use terrace_live::world::{Options, World};
use terrace_policy::{Clear, MemorySystem, ScanHand, Scope, SignalSet, Step};

/// Long enough for several rounds of the target on an idle machine.
const WATCHED: Duration = Duration::from_millis(300);

/// Soft-dirty bits of an unmodified process.
pub fn soft_dirty(checks: &mut Checks) -> Result<()> {
    let mut target = hotset(&[])?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    for _ in 0..2 {
        set(format!("/proc/{}/clear_refs", target.pid()), 4)?;
        let hot = target.range("hot")?;
        same(checks, "soft-dirty in pagemap", &hot, || dirty(&process, &memory))?;
        let scan = PageScan { all_of: category::SOFT_DIRTY, tell: category::SOFT_DIRTY, ..whole(&memory) };
        same(checks, "soft-dirty in PAGEMAP_SCAN", &hot, || scanned(&process, &scan))?;
        target.next_phase()?;
    }

    let target = Target::start(&["writers", "--mib", "4", "--no-thp"])?;
    let process = open(&target)?;
    set(format!("/proc/{}/clear_refs", target.pid()), 4)?;
    let written = target.range("written")?;
    same(checks, "a written region", &written, || dirty(&process, &written))?;
    for region in ["read", "cold"] {
        let found = dirty(&process, &target.range(region)?)?.len();
        checks.equal(format!("soft-dirty pages of a region that is {region}"), found, 0);
    }
    Ok(())
}

/// The soft-dirty pages of a range, from `/proc/PID/pagemap`.
fn dirty(process: &Process, range: &Range<u64>) -> Result<BTreeSet<u64>> {
    let mut entries = vec![0; pages(range).len()];
    let read = Linux.pagemap(process, range.start / PAGE, &mut entries).context("pagemap")?;
    ensure!(read == entries.len(), "{read} entries of {}", entries.len());
    let numbered = pages(range).into_iter().zip(&entries);
    Ok(numbered.filter(|(_, entry)| *entry >> 55 & 1 == 1).map(|(page, _)| page).collect())
}

/// Asynchronous write protection, for which the process itself must have registered.
pub fn protected(checks: &mut Checks) -> Result<()> {
    let mut target = hotset(&["--track-writes"])?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    let scan =
        PageScan { all_of: category::WRITTEN, tell: category::WRITTEN, protect: true, ..whole(&memory) };
    checks.equal("all pages begin as written", scanned(&process, &scan)?.len(), pages(&memory).len());
    for _ in 0..2 {
        scanned(&process, &scan)?;
        let (hot, look) = (target.range("hot")?, PageScan { protect: false, ..scan });
        same(checks, "written in PAGEMAP_SCAN", &hot, || scanned(&process, &look))?;
        target.next_phase()?;
    }
    // Without the registration nothing is protected, and the scan says so by finding nothing.
    let plain = hotset(&[])?;
    let tracked = category::WRITE_TRACKED;
    let scan = PageScan { all_of: tracked, tell: tracked, ..whole(&plain.range("memory")?) };
    let found = scanned(&open(&plain)?, &scan)?.len();
    checks.equal("write-tracked pages of an unmodified process", found, 0);
    Ok(())
}

/// Unmodified programs that were launched with the library that hands over a userfaultfd: what they store to is known
/// exactly, and whoever holds the descriptor may end at any moment.
pub fn helped(checks: &mut Checks) -> Result<()> {
    let help = Help::start()?;
    let environment = help.environment();
    let start = |arguments: &[&str]| Target::started_with("/proc/self/exe", arguments, &environment);
    let mut target = start(HOTSET)?;
    target.wait_for("phase")?;
    let (mut process, memory) = (open(&target)?, target.range("memory")?);
    process.tracker = handed_over(&help, &target)?;
    checks.that(process.tracker.is_some(), "a program hands over its descriptor", target.pid());
    Linux.track_writes(&process, memory.start, memory.end - memory.start).context("tracking")?;
    let tracked =
        PageScan { all_of: category::WRITE_TRACKED, tell: category::WRITE_TRACKED, ..whole(&memory) };
    let scan =
        PageScan { all_of: category::WRITTEN, tell: category::WRITTEN, protect: true, ..whole(&memory) };
    for _ in 0..2 {
        scanned(&process, &scan)?;
        let (hot, look) = (target.range("hot")?, PageScan { protect: false, ..scan });
        same(checks, "written, with help", &hot, || scanned(&process, &look))?;
        target.next_phase()?;
    }
    // Pages are protected at this moment, and nobody is left to ask.
    process.tracker = None;
    checks.equal("tracked pages without the descriptor", scanned(&process, &tracked)?.len(), 0);
    target.next_phase()?;
    checks.that(true, "the program goes on", target.value("phase")?);

    // Programs that check every byte, while their stores are tracked and looked for without a pause.
    for mode in ["plain", "fork", "mremap", "munmap"] {
        let target = start(&["verify", "--mib", "16", "--mode", mode])?;
        let kernel: Arc<dyn Kernel> = Arc::new(Linux);
        let facts = Facts::discover(&*kernel);
        let options = Options { trackers: Some(help.trackers().clone()), ..Options::default() };
        let mut world = World::new(kernel, facts.tiers.clone(), facts.capabilities_with_help(), &options)
            .map_err(anyhow::Error::msg)?;
        world.serve(SignalSet::NONE, Dirtiness::Tracked);
        world.adopt(target.pid())?;
        let ended = Instant::now() + Duration::from_secs(3);
        let dirty = until(
            || {
                world.refresh();
                while Instant::now() < ended {
                    world.refresh();
                }
                let mut dirty = 0;
                world.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
                    dirty += u64::from(view.dirty);
                    Step::Keep
                });
                Ok(dirty)
            },
            |dirty| *dirty > 0,
        )?;
        checks.that(dirty > 0, format!("{mode}: its stores are seen"), dirty);
        drop(world);
        checks.note(format!("{mode}: {}", target.finish()?));
    }

    // The whole way, and Terrace killed in the middle of it.
    let mut arguments =
        vec!["run", "--cpu", "none", "--policy", "ambix", "--set", "flush=false", "--track-stores", "--"];
    arguments.push("/bin/guest");
    arguments.extend(HOTSET);
    let mut target = Target::started_by("terrace", &arguments)?;
    target.wait_for("phase")?;
    let pid: u32 = target.value("pid")?.parse()?;
    let process = Linux.open(pid).context("opening the command")?;
    let memory = target.range("memory")?;
    let tracked =
        PageScan { all_of: category::WRITE_TRACKED, tell: category::WRITE_TRACKED, ..whole(&memory) };
    let pages = pages(&memory).len();
    let found = until(|| Ok(scanned(&process, &tracked)?.len()), |found| *found == pages)?;
    checks.equal("run --track-stores: tracked pages", found, pages);
    target.kill()?;
    checks.equal("of a killed Terrace", scanned(&process, &tracked)?.len(), 0);
    super::harm::outlived(checks, pid)
}

/// What a target has handed over, once it has.
fn handed_over(help: &Help, target: &Target) -> Result<Option<OwnedFd>> {
    until(|| Ok(help.trackers().take(target.pid())), Option::is_some)
}

const HOTSET: &[&str] = &["hotset", "--mib", "16", "--no-thp", "--write", "--hot-start-percent", "30"];

fn hotset(more: &[&str]) -> Result<Target> {
    let mut target = Target::start(&[HOTSET, more].concat())?;
    target.wait_for("phase")?;
    Ok(target)
}

fn whole(memory: &Range<u64>) -> PageScan {
    PageScan { start: memory.start, end: memory.end, ..PageScan::default() }
}

/// The pages that a scan reports, in steps of as many runs as fit.
fn scanned(process: &Process, scan: &PageScan) -> Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    let mut runs = [PageRun::default(); 16];
    let mut start = scan.start;
    while start < scan.end {
        let (count, walked) =
            Linux.scan_pages(process, &PageScan { start, ..*scan }, &mut runs).context("PAGEMAP_SCAN")?;
        found.extend(runs[..count].iter().flat_map(|run| pages(&(run.start..run.end))));
        start = walked;
    }
    Ok(found)
}

/// Checks that in the end exactly these pages are found, however long the program takes until it has stored to all of them.
fn same(
    checks: &mut Checks,
    what: &str,
    hot: &Range<u64>,
    look: impl FnMut() -> Result<BTreeSet<u64>>,
) -> Result<()> {
    let expected: BTreeSet<u64> = pages(hot).into_iter().collect();
    std::thread::sleep(WATCHED);
    let found = until(look, |found| found.is_superset(&expected))?;
    let right = found.intersection(&expected).count();
    checks.that(
        found == expected && !expected.is_empty(),
        format!("{what}: exactly the pages in use"),
        format!("{} found, {right} of {} in use", found.len(), expected.len()),
    );
    Ok(())
}
