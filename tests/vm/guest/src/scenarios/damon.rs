//! Whether DAMON tells single pages of a process apart, and what it costs.

use crate::check::Checks;
use crate::damon::{Attributes, Monitor, Region, Trace};
use crate::memory::PAGE;
use crate::process::Target;
use anyhow::Result;
use std::collections::HashSet;
use std::ops::Range;
use std::time::{Duration, Instant};

const SAMPLE: Duration = Duration::from_millis(100);
const SAMPLES: u32 = 4;

pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    for (name, mib, pages, operations, initial, min, max) in [
        ("pages 2000", 8, 2000, "fvaddr", 2000, 2000, 2000),
        ("pages 16384", 64, 16384, "fvaddr", 16384, 16384, 16384),
        ("default limits", 8, 2000, "fvaddr", 2000, 10, 1000),
        ("one region, min=max", 8, 2000, "fvaddr", 1, 2000, 2000),
        ("one region, max=4min", 8, 2000, "fvaddr", 1, 2000, 8000),
        ("vaddr pages", 8, 2000, "vaddr", 2000, 2000, 2000),
    ] {
        let mib = format!("{mib}");
        let mut target = Target::start(&["hotset", "--mib", &mib, "--no-thp", "--hot-start-percent", "30"])?;
        target.wait_for("phase")?;
        let memory = target.range("memory")?;
        let hot = target.range("hot")?;
        let memory = memory.start..memory.start + pages * PAGE;
        let each = (memory.end - memory.start) / initial / PAGE * PAGE;
        let regions: Vec<_> =
            (0..initial).map(|number| memory.start + number * each..memory.start + (number + 1) * each).collect();
        let attributes = Attributes { sample: SAMPLE, samples: SAMPLES, min_regions: min, max_regions: max };
        let started = Instant::now();
        let monitor = Monitor::new(target.pid(), operations, attributes, &regions)?;
        checks.note(format!("{name}: set up in {:?}", started.elapsed()));
        let mut trace = Trace::new(false, 4096)?;
        let started = Instant::now();
        monitor.start()?;
        checks.note(format!("{name}: started in {:?}", started.elapsed()));
        let rounds = if initial == 1 { 40 } else { 8 };
        let before = monitor.cpu_time()?;
        for round in 0..rounds {
            std::thread::sleep(SAMPLE * SAMPLES);
            let started = Instant::now();
            let found = if round % 2 == 0 { trace.read()? } else { trace.read_text()? };
            let took = started.elapsed();
            checks.note(format!("{name}: round {round} text={} {took:?}: {}", round % 2, summary(&found, &hot)));
        }
        let cpu = monitor.cpu_time()? - before;
        checks.note(format!("{name}: kdamond {:?} per sample", cpu / (rounds * SAMPLES)));
        let before = monitor.cpu_time()?;
        let started = Instant::now();
        let found = monitor.tried_regions()?;
        checks.note(format!(
            "{name}: tried {:?}, kdamond {:?}: {}",
            started.elapsed(),
            monitor.cpu_time()? - before,
            summary(&found, &hot)
        ));
    }
    checks.that(true, "ran", "");
    Ok(())
}

fn summary(found: &[Region], hot: &Range<u64>) -> String {
    let accessed: HashSet<u64> = found
        .iter()
        .filter(|region| region.accesses > 0)
        .flat_map(|region| (region.range.start..region.range.end).step_by(PAGE as usize))
        .collect();
    let right = accessed.iter().filter(|page| hot.contains(page)).count();
    let biggest = found.iter().map(|region| (region.range.end - region.range.start) / PAGE).max();
    format!(
        "{} regions (biggest {biggest:?}), accessed {} right {right} of {}, counts {:?}",
        found.len(),
        accessed.len(),
        (hot.end - hot.start) / PAGE,
        found.iter().filter(|region| region.accesses > 0).map(|region| region.accesses).sum::<u32>()
    )
}
