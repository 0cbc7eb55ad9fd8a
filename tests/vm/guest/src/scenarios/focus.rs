//! Hot pages far apart in more memory than can be watched page by page: regions close in on them.

use crate::check::{Checks, lasting, node_of_each, open, set};
use crate::memory::PAGE;
use crate::process::{Target, Terrace};
use anyhow::Result;

/// Every sixteenth of 4,096 pages is hot.
const EVERY: u64 = 16;
/// A region for four pages: two hot pages are sixteen apart, so at first a region with a hot page has three cold ones.
const REGIONS: &str = "1024";
/// There is room for half as many pages again as are hot. Were all pages of their regions taken for hot, it would not hold
/// half of them.
const LIMIT: &str = "dram=1536KiB";
/// Share of the hot pages that has to lie in the fast tier in the end, in so many looks in a row.
const SHARE: f64 = 0.95;
const LOOKS: usize = 5;

pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    set("/proc/sys/kernel/numa_balancing", 0)?;
    let every = EVERY.to_string();
    let arguments =
        ["hotset", "--mib", "16", "--no-thp", "--on", "1", "--hot-percent", "100", "--hot-every", &every];
    let mut target = Target::start(&arguments)?;
    target.wait_for("phase")?;
    let process = open(&target)?;
    let memory = target.range("memory")?;
    let hot: Vec<u64> = (memory.start..memory.end).step_by((EVERY * PAGE) as usize).collect();
    let bounds = ["--limit", LIMIT, "--cpu", "none", "--pressure", "none", "--regions", REGIONS, "-v"];
    let policy = ["--policy", "nimble", "--set", "period=1 s"];
    let terrace = Terrace::attach(target.pid(), &[&bounds[..], &policy].concat())?;
    let share = || {
        let nodes = node_of_each(&process, &hot)?;
        Ok(nodes.iter().filter(|node| **node == 0).count() as f64 / hot.len() as f64)
    };
    let looks = lasting(LOOKS, share, |up| *up >= SHARE)?;
    let up = looks.into_iter().fold(1.0, f64::min);
    checks.that(up >= SHARE, "hot pages, each alone, are in the fast tier, and stay", format!("{up:.3}"));
    let said = terrace.finish()?;
    let times = said.matches("DAMON watches").count();
    checks.that(times > 1, "regions were set up anew where accesses were", format!("{times} times"));
    Ok(())
}
