//! Accesses by the page-out probe: which pages, how often, and what is said of pages that it cannot see.

use super::swap::Zram;
use crate::check::{Checks, TIMEOUT, huge_bytes, open, pages, until};
use crate::memory::{HUGE, PAGE};
use crate::process::Target;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use terrace_live::access::AccessSource;
use terrace_live::access::page_out::PageOut;
use terrace_live::facts::Facts;
use terrace_live::kernel::{Advice, Kernel, Linux};
use terrace_live::space::Dirtiness;
use terrace_live::world::{Options, World};
use terrace_model::PageSize;
use terrace_policy::{MemorySystem, Moment, PageCount, PageId, Resize, SignalSet, SpaceId, Watch};

pub fn run(checks: &mut Checks) -> Result<()> {
    let zram = Zram::on()?;
    let outcome = with_swap(checks);
    zram.off()?;
    outcome
}

fn with_swap(checks: &mut Checks) -> Result<()> {
    hot_pages(checks)?;
    rates(checks)?;
    shared_pages(checks)?;
    back_as_huge(checks)
}

/// A world that knows one program's memory by base pages, and the probe.
struct Probed {
    world: World,
    probe: PageOut,
    space: SpaceId,
    started: Instant,
}

impl Probed {
    /// Watches all base pages of a range, as Thermostat does: what counts as one page by 2 MiB is split first.
    fn of(target: &Target, range: &Range<u64>) -> Result<Probed> {
        let kernel: Arc<dyn Kernel> = Arc::new(Linux);
        let facts = Facts::discover(&*kernel);
        let mut world =
            World::new(kernel.clone(), facts.tiers.clone(), facts.capabilities(), &Options::default())
                .map_err(anyhow::Error::msg)?;
        world.serve(SignalSet::NONE, Dirtiness::Unknown);
        let space = world.adopt(target.pid())?;
        let huge = (range.start..range.end).step_by(HUGE as usize);
        let splits: Vec<Resize> =
            huge.map(|at| Resize { page: PageId { space, vpn: at / PAGE }, to: PageSize::Base }).collect();
        world.resize(&splits);
        while world.step().is_some() {}
        let cpus: Vec<u32> = facts.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        let probe = PageOut::new(kernel, &cpus);
        let mut probed = Probed { world, probe, space, started: Instant::now() };
        let watched: Vec<PageId> =
            pages(range).into_iter().map(|at| PageId { space, vpn: at / PAGE }).collect();
        probed.world.watch(&watched, Watch::Count);
        Ok(probed)
    }

    /// One look, and the time until the next.
    fn look(&mut self) -> Result<()> {
        self.world.set_now(Moment(self.started.elapsed().as_nanos() as u64));
        let next = self.probe.collect(&mut self.world)?;
        std::thread::sleep(next);
        Ok(())
    }

    /// What was counted of each page since the last time, by address.
    fn counts(&mut self) -> BTreeMap<u64, PageCount> {
        let mut counts = BTreeMap::new();
        self.world.counts(&mut |count| {
            if count.page.space == self.space {
                counts.insert(count.page.vpn * PAGE, count);
            }
        });
        counts
    }
}

/// Whether nothing is known of a page.
fn is_unknown(count: &PageCount) -> bool {
    count.saturated && count.accesses == 0
}

/// In so many intervals all hot pages are accessed.
const LOOKS: usize = 8;

/// Exactly the pages in use are found, in two phases.
fn hot_pages(checks: &mut Checks) -> Result<()> {
    let mut target = Target::start(&["hotset", "--mib", "8", "--no-thp", "--hot-percent", "20"])?;
    target.wait_for("phase")?;
    let memory = target.range("memory")?;
    let mut probed = Probed::of(&target, &memory)?;
    for phase in ["first", "second"] {
        let hot: BTreeSet<u64> = pages(&target.range("hot")?).into_iter().collect();
        // Until all that nobody uses is out, and all that is in use was out once.
        until(
            || {
                probed.look()?;
                let counts = probed.counts();
                Ok(counts.values().filter(|count| is_unknown(count)).count())
            },
            |unknown| *unknown == 0,
        )?;
        let stayed = probed.world.counters().stayed;
        for _ in 0..LOOKS {
            probed.look()?;
        }
        let counts = probed.counts();
        let found: BTreeSet<u64> =
            counts.iter().filter(|(_, count)| count.accesses > 0).map(|(at, _)| *at).collect();
        let right = found.intersection(&hot).count();
        let precision = right as f64 / found.len().max(1) as f64;
        let recall = right as f64 / hot.len() as f64;
        checks.that(
            precision == 1.0 && recall >= 0.99,
            format!("{phase} phase: precision 1, recall at least 0.99"),
            format!("{} found, {right} of {} in use: {precision:.4}, {recall:.4}", found.len(), hot.len()),
        );
        checks.note(format!(
            "{} times a page was in memory after it was sent out",
            probed.world.counters().stayed - stayed
        ));
        target.next_phase()?;
    }
    Ok(())
}

/// Accesses per second to the pages of each group: the range for which the probe is meant.
const RATES: [f64; 4] = [0.01, 0.1, 0.3, 1.0];
const GROUP: usize = 128;
/// Accesses of the slowest group that are waited for; the other groups have more.
const ENOUGH: u64 = 100;
/// What an estimate may be wrong by: the 4 % that are stated for the probe, and a few accesses more, those between a count
/// and the look beside it.
const WRONG: f64 = 0.04;
const BESIDE: f64 = 3.0;

/// Rates of accesses that come at random are recovered by `-ln(1 - k/m) / δ`: compared with how often the program did
/// access.
fn rates(checks: &mut Checks) -> Result<()> {
    let list = RATES.map(|rate| rate.to_string()).join(",");
    let group = GROUP.to_string();
    let beats = ["beats", "--mib", "2", "--no-thp", "--rates", &list, "--group", &group];
    let mut target = Target::start(&beats)?;
    let memory = target.range("memory")?;
    let mut probed = Probed::of(&target, &memory)?;
    // The first look sends the pages out.
    probed.look()?;
    probed.look()?;
    probed.counts();
    let before = target.counts()?;
    let started = Instant::now();
    let mut made = vec![0; RATES.len()];
    // A few more looks than there are questions, which take the program's time.
    while made[0] < ENOUGH && started.elapsed() < TIMEOUT {
        for _ in 0..20 {
            probed.look()?;
        }
        made = target.counts()?.iter().zip(&before).map(|(after, before)| after - before).collect();
    }
    let seconds = started.elapsed().as_secs_f64();
    let mut estimated = [0; RATES.len()];
    for (at, count) in probed.counts() {
        estimated[((at - memory.start) / PAGE) as usize / GROUP] += count.accesses;
    }
    target.finish()?;
    for ((rate, made), estimated) in RATES.into_iter().zip(made).zip(estimated) {
        let error = estimated as f64 - made as f64;
        let bound = WRONG * made as f64 + BESIDE;
        checks.that(
            made >= ENOUGH && error.abs() <= bound,
            format!("{rate} accesses per second to each of {GROUP} pages"),
            format!(
                "{estimated} for {made} in {seconds:.0} s, {:+.1} %, within {:.1} %",
                error / made as f64 * 1e2,
                bound / made as f64 * 1e2
            ),
        );
    }
    Ok(())
}

/// Pages that a child shares do not go, and nothing is said of them; the call itself says yes.
fn shared_pages(checks: &mut Checks) -> Result<()> {
    let hotset = ["hotset", "--mib", "2", "--no-thp", "--hot-percent", "25", "--with-child"];
    let mut target = Target::start(&hotset)?;
    target.wait_for("phase")?;
    let memory = target.range("memory")?;
    let process = open(&target)?;
    let whole = [(memory.start, memory.end - memory.start)];
    let advised = Linux.advise(&process, &whole, Advice::PageOut).context("process_madvise")?;
    checks.equal("the kernel says that it has advised all", advised, memory.end - memory.start);
    let mut probed = Probed::of(&target, &memory)?;
    let count = pages(&memory).len();
    for _ in 0..LOOKS {
        probed.look()?;
    }
    let unknown = probed.counts().values().filter(|count| is_unknown(count)).count();
    checks.equal("shared pages of which nothing is known", unknown, count);
    checks.equal("each is reported with each look", probed.world.counters().stayed, (LOOKS * count) as u64);
    Ok(())
}

/// Pages that come back as part of a huge page were brought back by the kernel.
fn back_as_huge(checks: &mut Checks) -> Result<()> {
    let mut target = Target::start(&["hotset", "--mib", "2", "--thp", "--hot-percent", "0"])?;
    target.wait_for("phase")?;
    let memory = target.range("memory")?;
    let process = open(&target)?;
    checks.equal("huge pages at first", huge_bytes(&process, &memory)?, HUGE);
    // As many as are poisoned of a huge page.
    let watched = memory.start..memory.start + 50 * PAGE;
    let mut probed = Probed::of(&target, &watched)?;
    let out = until(
        || {
            probed.look()?;
            Ok(probed.counts().values().filter(|count| !is_unknown(count)).count())
        },
        |out| *out == 50,
    )?;
    checks.equal("watched pages out", out, 50);
    checks.equal("one of them splits the huge page", huge_bytes(&process, &memory)?, 0);
    let collapsed = Linux.advise(&process, &[(memory.start, HUGE)], Advice::Collapse);
    collapsed.context("process_madvise with MADV_COLLAPSE")?;
    checks.equal("huge pages after the kernel has joined them", huge_bytes(&process, &memory)?, HUGE);
    let read = probed.world.counters().count_faults;
    probed.look()?;
    let counts = probed.counts();
    let unknown = counts.values().filter(|count| is_unknown(count)).count();
    let accessed = counts.values().filter(|count| count.accesses > 0).count();
    checks.equal("pages of which nothing is known, and taken for accessed", (unknown, accessed), (50, 0));
    checks.equal("and no fault of them is reported", probed.world.counters().count_faults, read);
    // The kernel may join them once more before they are seen to be out.
    let is_idle = |count: &&PageCount| !is_unknown(count) && count.accesses == 0;
    let idle = until(
        || {
            probed.look()?;
            Ok(probed.counts().values().filter(is_idle).count())
        },
        |idle| *idle == 50,
    )?;
    checks.equal("sent out again, they are seen to be idle", idle, 50);
    Ok(())
}
