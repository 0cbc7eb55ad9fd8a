//! Which pages were written, seen from outside and exact to the page.

use crate::check::{Checks, open, pages, set};
use crate::memory::PAGE;
use crate::process::Target;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use terrace_live::kernel::{Kernel, Linux, PageRun, PageScan, Process, category};

/// Long enough for several rounds of the target.
const WATCHED: Duration = Duration::from_millis(300);

/// Soft-dirty bits of an unmodified process.
pub fn soft_dirty(checks: &mut Checks) -> Result<()> {
    let mut target = hotset(&[])?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    for _ in 0..2 {
        set(format!("/proc/{}/clear_refs", target.pid()), 4)?;
        std::thread::sleep(WATCHED);
        let hot = target.range("hot")?;
        same(checks, "soft-dirty in pagemap", &dirty(&process, &memory)?, &hot);
        let scan = PageScan { all_of: category::SOFT_DIRTY, tell: category::SOFT_DIRTY, ..whole(&memory) };
        same(checks, "soft-dirty in PAGEMAP_SCAN", &scanned(&process, &scan)?, &hot);
        target.next_phase()?;
    }

    let target = Target::start(&["writers", "--mib", "4", "--no-thp"])?;
    let process = open(&target)?;
    set(format!("/proc/{}/clear_refs", target.pid()), 4)?;
    std::thread::sleep(WATCHED);
    let written = target.range("written")?;
    same(checks, "a written region", &dirty(&process, &written)?, &written);
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
        std::thread::sleep(WATCHED);
        let hot = target.range("hot")?;
        same(checks, "written in PAGEMAP_SCAN", &scanned(&process, &scan)?, &hot);
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

fn hotset(more: &[&str]) -> Result<Target> {
    let mut arguments = vec!["hotset", "--mib", "16", "--no-thp", "--write", "--hot-start-percent", "30"];
    arguments.extend(more);
    let mut target = Target::start(&arguments)?;
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

fn same(checks: &mut Checks, what: &str, found: &BTreeSet<u64>, hot: &Range<u64>) {
    let expected: BTreeSet<u64> = pages(hot).into_iter().collect();
    let right = found.intersection(&expected).count();
    checks.that(
        found == &expected && !expected.is_empty(),
        format!("{what}: exactly the pages in use"),
        format!("{} found, {right} of {} in use", found.len(), expected.len()),
    );
}
