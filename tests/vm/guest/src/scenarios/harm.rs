//! Terrace does no harm: under the most aggressive settings, killed at any instant, on full memory, and against whoever
//! changes settings meanwhile.

use crate::check::{
    Checks, TIMEOUT, asked, eventually, huge_bytes, move_to, node_of_each, nodes_of, open, pages, set,
    share_on, text, until, vmstat,
};
use crate::memory::{GIANT, HUGE, PAGE};
use crate::process::{Target, Terrace};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_live::facts::Facts;
use terrace_live::kernel::{Kernel, Linux, Process};
use terrace_live::world::{Options, World};
use terrace_model::TierId;
use terrace_policy::{MemorySystem, Move, MoveOptions, PageId, Random};

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
const INSTANCES: &str = "/sys/kernel/tracing/instances";
const JOURNALS: &str = "/run/terrace";
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// No bound on anything, and a tick every 100 ms.
const AGGRESSIVE: &[&str] =
    &["--policy", "nimble", "--set", "period=100 ms", "--cpu", "none", "--pressure", "none"];

/// One page in a thousand may take as long as this to be checked and written anew, beside all other work of two
/// processors that take two nanoseconds for an instruction (one in `torture`). A thread that waited for a dead Terrace
/// would take for ever.
pub(super) const STALL: Duration = Duration::from_millis(50);
/// Pages that are moved while a program checks its memory, however long that takes.
const ENOUGH: usize = 1000;

/// What the scenarios need: accessed bits that are seen, and a kernel that moves nothing by itself.
pub(super) fn quiet() -> Result<Target> {
    set("/proc/sys/kernel/numa_balancing", 0)?;
    Target::start(&["ticker"])
}

/// Programs that check every byte while Terrace moves their pages, is killed at random instants, and starts again.
pub fn integrity(checks: &mut Checks) -> Result<()> {
    let _ticker = quiet()?;
    let cases: &[&[&str]] = &[
        &["--mode", "plain", "--no-thp"],
        &["--mode", "plain", "--thp"],
        &["--mode", "fork", "--no-thp"],
        &["--mode", "mremap", "--thp"],
        &["--mode", "munmap", "--no-thp"],
    ];
    // Without a wish 25 s in all.
    let each = Duration::from_secs(asked("duration")?.unwrap_or(25)) / cases.len() as u32;
    let mut random = Random::new(1);
    for case in cases {
        killed_again_and_again(checks, case, each, &mut random)?;
    }
    Ok(())
}

fn killed_again_and_again(
    checks: &mut Checks,
    case: &[&str],
    time: Duration,
    random: &mut Random,
) -> Result<()> {
    let name = case.join(" ");
    let target = Target::start(&[&["verify", "--mib", "16", "--threads", "4", "--on", "1"], case].concat())?;
    let (process, memory) = (open(&target)?, pages(&target.range("memory")?));
    let deadline = Instant::now() + time;
    let (mut kills, mut moved, mut left_behind) = (0, 0, Vec::new());
    while Instant::now() < deadline || (moved < ENOUGH && Instant::now() < deadline + TIMEOUT) {
        let terrace = Terrace::attach(target.pid(), &[AGGRESSIVE, &["--limit", "dram=8MiB"]].concat())?;
        let mut killed = Instant::now() + Duration::from_millis(300 + random.below(1700));
        // Every second one is killed at work, however long it takes until then.
        let mut begun = kills % 2 == 0;
        while Instant::now() < killed || !begun {
            std::thread::sleep(Duration::from_millis(100));
            let up = taken_down(&process, &memory)?;
            moved += up;
            if !begun && (up > 0 || Instant::now() > killed + TIMEOUT) {
                begun = true;
                killed = Instant::now() + Duration::from_millis(random.below(1000));
            }
        }
        terrace.kill()?;
        kills += 1;
        left_behind.extend(restored()?);
    }
    checks.that(
        left_behind.is_empty(),
        format!("{name}: all is put back after each of {kills} kills"),
        if left_behind.is_empty() { "nothing left".to_owned() } else { left_behind.join("; ") },
    );
    checks.that(
        moved >= ENOUGH,
        format!("{name}: pages were moved meanwhile"),
        format!("{moved} pages came up"),
    );
    match target.finish() {
        Ok(said) => {
            let worst = stall(&said)?;
            checks.that(
                worst < STALL,
                format!("{name}: every byte as written, and 99.9 % of the pages within {STALL:?}"),
                said,
            );
        }
        Err(error) => checks.that(false, format!("{name}: every byte as written"), error),
    }
    Ok(())
}

/// Moves everything to the slow node, so that there is always something for Terrace to move, and somebody who moves the
/// same pages at the same time; returns how many pages Terrace had brought up.
pub(super) fn taken_down(process: &Process, memory: &[u64]) -> Result<usize> {
    let nodes = node_of_each(process, memory)?;
    let up: Vec<u64> =
        memory.iter().zip(&nodes).filter(|(_, node)| **node == 0).map(|(page, _)| *page).collect();
    move_to(process, &up, 1)?;
    Ok(up.len())
}

/// The 99.9th percentile that the verifier prints.
pub(super) fn stall(said: &str) -> Result<Duration> {
    let value = said.split_whitespace().find_map(|pair| pair.strip_prefix("p999_us="));
    Ok(Duration::from_micros(value.context("no p999_us")?.parse()?))
}

/// The command of a Terrace that was killed goes on, until it is ended here, and nothing is left.
pub(super) fn outlived(checks: &mut Checks, pid: u32) -> Result<()> {
    let before = cpu_ticks(pid)?;
    checks.that(eventually(|| Ok(cpu_ticks(pid)? > before))?, "without Terrace the command goes on", pid);
    // SAFETY: it is a child of the killed process and so of the first process, which never waits: the number is its.
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    checks.equal("left after terrace restore", restored()?, Vec::new());
    Ok(())
}

/// Processor time of a process in ticks of a hundredth of a second.
pub(super) fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = text(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |at: usize| after_name.split_whitespace().nth(at).and_then(|field| field.parse::<u64>().ok());
    field(11).zip(field(12)).map(|(user, system)| user + system).context("no processor time")
}

/// Has `terrace restore` put back what a killed Terrace left; returns what is left all the same.
pub(super) fn restored() -> Result<Vec<String>> {
    let output = Command::new("terrace").arg("restore").output().context("terrace restore")?;
    let mut left = Vec::new();
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        left.push(format!("restore: {}", String::from_utf8_lossy(&said).trim().replace('\n', "; ")));
    }
    let threads = text(KDAMONDS)?;
    if threads != "0" {
        left.push(format!("nr_kdamonds is {threads}"));
    }
    for folder in [INSTANCES, JOURNALS] {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        left.extend(entries.filter_map(|entry| Some(entry.ok()?.path().display().to_string())));
    }
    Ok(left)
}

/// Both nodes are full but for a rest, and the hot pages change places with cold ones.
pub fn exchange_full(checks: &mut Checks) -> Result<()> {
    let _ticker = quiet()?;
    let mut target =
        Target::start(&["hotset", "--mib", "16", "--no-thp", "--on", "1", "--hot-percent", "25"])?;
    target.wait_for("phase")?;
    let (process, memory, hot) = (open(&target)?, target.range("memory")?, target.range("hot")?);
    // Half of it lies in the fast tier, the cold half.
    let middle = (memory.start + memory.end) / 2;
    move_to(&process, &pages(&(middle..memory.end)), 0)?;
    // Both nodes are filled, in huge pages and then in base pages, up to what Terrace and the kernel keep in reserve: a
    // sixty-fourth, and what the programs of the test need.
    // The kernel's default is a multiple of that where it has huge pages.
    let kept = text("/proc/sys/vm/min_free_kbytes")?;
    set("/proc/sys/vm/min_free_kbytes", 8192)?;
    let mut balloons = Vec::new();
    for (node, rests) in [(1, [96, 24]), (0, [160, 80])] {
        for (rest, size) in rests.into_iter().zip(["--thp", "--no-thp"]) {
            let mib = free_mib(node)?.saturating_sub(rest).next_multiple_of(2).to_string();
            let node = node.to_string();
            balloons.push(Target::start(&[
                "hotset",
                "--mib",
                &mib,
                size,
                "--on",
                &node,
                "--hot-percent",
                "0",
            ])?);
        }
    }
    checks.note(format!("free: {} MiB on node 0, {} MiB on node 1", free_mib(0)?, free_mib(1)?));
    let exchanged = "/tmp/exchange.json";
    let limits = ["--limit", "dram=8MiB", "--limit", "slow=8MiB", "--json", exchanged];
    let terrace = Terrace::attach(target.pid(), &[AGGRESSIVE, &limits].concat())?;
    let up = until(|| share_on(&process, &hot, 0), |up| *up >= 0.95)?;
    checks.that(up >= 0.95, "the hot pages come up though both tiers are full", format!("{up:.3}"));
    checks.note(terrace.finish()?);
    // Other memory of the target, its stack for one, may have changed places, too.
    let fast = share_on(&process, &memory, 0)?;
    checks.that(fast <= 0.51, "and the limit holds", format!("{fast:.3} of all"));
    let pairs = statistic(exchanged, "policy.exchanges")?;
    checks.that(pairs >= 512, "by exchange", format!("{pairs} pairs"));
    drop(balloons);
    set("/proc/sys/vm/min_free_kbytes", kept)
}

/// Mebibytes that are free on a node.
fn free_mib(node: u32) -> Result<u64> {
    let text = text(format!("/sys/devices/system/node/node{node}/meminfo"))?;
    let line = text.lines().find(|line| line.contains("MemFree:")).context("no MemFree")?;
    Ok(line.split_whitespace().nth(3).context("no figure")?.parse::<u64>()? >> 10)
}

/// A count of a statistics file, by its name.
pub(super) fn statistic(file: &str, name: &str) -> Result<u64> {
    let text = text(file)?;
    let rest = text.split_once(&format!("\"{name}\"")).with_context(|| format!("no {name}"))?.1;
    let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    Ok(digits[..end].parse()?)
}

/// Huge pages that are hot come up as they are.
pub fn whole_huge_pages(checks: &mut Checks) -> Result<()> {
    let _ticker = quiet()?;
    let mut target = Target::start(&["hotset", "--mib", "64", "--thp", "--on", "1", "--hot-percent", "25"])?;
    target.wait_for("phase")?;
    let (process, memory, hot) = (open(&target)?, target.range("memory")?, target.range("hot")?);
    let before = huge_bytes(&process, &memory)?;
    checks.equal("bytes of huge pages", before, memory.end - memory.start);
    let counts = ["thp_migration_success", "thp_split_page", "thp_migration_split"];
    let [moved, split, split_to_move] = counts.map(vmstat);
    let terrace = Terrace::attach(target.pid(), AGGRESSIVE)?;
    let up = until(|| share_on(&process, &hot, 0), |up| *up >= 0.99)?;
    checks.that(up >= 0.99, "the hot pages come up", format!("{up:.3}"));
    checks.note(terrace.finish()?);
    let moved = vmstat("thp_migration_success")? - moved?;
    let hot_pages = (hot.end - hot.start) / HUGE;
    checks.that(moved >= hot_pages, "whole", format!("thp_migration_success + {moved}, {hot_pages} hot"));
    checks.equal("none was split", vmstat("thp_split_page")?, split?);
    checks.equal("none was split to be moved", vmstat("thp_migration_split")?, split_to_move?);
    checks.equal("bytes of huge pages afterwards", huge_bytes(&process, &memory)?, before);
    Ok(())
}

/// A page of 1 GiB that is in use comes up, where the other node's pool has one.
pub fn giant(checks: &mut Checks) -> Result<()> {
    let _ticker = quiet()?;
    for node in 0..2 {
        let pool = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-1048576kB/nr_hugepages");
        set(&pool, 1)?;
        ensure!(text(&pool)? == "1", "no page of 1 GiB on node {node}");
    }
    let target = Target::start(&["verify", "--mib", "1024", "--giant", "--on", "1"])?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    let all = |node: i32| -> Result<bool> {
        Ok(nodes_of(&process, &memory)? == BTreeMap::from([(node, (GIANT / PAGE) as usize)]))
    };
    checks.that(all(1)?, "it lies on the slow node", "1 GiB");
    let terrace = Terrace::attach(target.pid(), AGGRESSIVE)?;
    let came = eventually(|| all(0))?;
    checks.that(came, "the page is moved to the fast node", format!("{:?}", nodes_of(&process, &memory)?));
    checks.note(terrace.finish()?);
    match target.finish() {
        Ok(said) => checks.that(true, "every byte as written", said),
        Err(error) => checks.that(false, "every byte as written", error),
    }
    Ok(())
}

fn weights() -> Result<[String; 2]> {
    Ok([text(format!("{WEIGHTS}/node0"))?, text(format!("{WEIGHTS}/node1"))?])
}

/// A program whose memory a Terrace places with these shares; returns it, its number and its memory.
fn placed(policy: &[&str], mib: &str) -> Result<(Target, u32, Range<u64>)> {
    let arguments = [&["run"], policy, &["--", "/bin/guest", "hotset", "--mib", mib, "--no-thp"]].concat();
    let target = Target::started_by("terrace", &arguments)?;
    let pid = target.value("pid")?.parse()?;
    let memory = target.range("memory")?;
    Ok((target, pid, memory))
}

const FIVE_TO_TWO: &[&str] = &["--policy", "bw-aware", "--set", "fast_share=0.7142857"];

/// New pages go to the tiers in the shares that were asked for.
pub fn shares(checks: &mut Checks) -> Result<()> {
    set("/proc/sys/kernel/numa_balancing", 0)?;
    let before = weights()?;
    let (target, pid, memory) = placed(FIVE_TO_TWO, "28")?;
    checks.equal("weights meanwhile", weights()?, ["5", "2"].map(String::from));
    let process = Linux.open(pid)?;
    let fast = share_on(&process, &memory, 0)?;
    checks.that((fast - 5.0 / 7.0).abs() < 0.001, "five pages to two", format!("{fast:.5}"));
    target.end(pid)?;
    checks.equal("weights afterwards", weights()?, before.clone());

    let (target, pid, memory) = placed(&["--policy", "interleave"], "28")?;
    checks.equal("weights of an even interleave", weights()?, before);
    let fast = share_on(&Linux.open(pid)?, &memory, 0)?;
    checks.that((fast - 0.5).abs() < 0.001, "one page to one", format!("{fast:.5}"));
    target.end(pid)
}

/// What someone else has set meanwhile stays.
pub fn administrator(checks: &mut Checks) -> Result<()> {
    let before = weights()?;
    let (target, pid, _) = placed(FIVE_TO_TWO, "8")?;
    checks.equal("weights meanwhile", weights()?, ["5", "2"].map(String::from));
    set(format!("{WEIGHTS}/node1"), 9)?;
    target.end(pid)?;
    checks.equal("one is put back, one left alone", weights()?, [before[0].clone(), "9".to_owned()]);
    set(format!("{WEIGHTS}/node1"), &before[1])
}

/// A dry run plans and moves nothing.
pub fn dry_run(checks: &mut Checks) -> Result<()> {
    let _ticker = quiet()?;
    let mut target =
        Target::start(&["hotset", "--mib", "16", "--no-thp", "--on", "1", "--hot-percent", "25"])?;
    target.wait_for("phase")?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    let planned = "/tmp/dry-run.json";
    let terrace = Terrace::attach(target.pid(), &[AGGRESSIVE, &["--dry-run", "--json", planned]].concat())?;
    eventually(|| {
        let status = super::watch::status().unwrap_or_default();
        Ok(status.pointer("/moves/planned").and_then(Value::as_u64) > Some(0))
    })?;
    checks.note(terrace.finish()?);
    let pieces = statistic(planned, "live.planned")?;
    checks.that(pieces > 0, "moves are planned", format!("{pieces} pieces"));
    let count = pages(&memory).len();
    checks.equal("and nothing moves", nodes_of(&process, &memory)?, BTreeMap::from([(1, count)]));
    Ok(())
}

/// The same pages are moved by Terrace's orders and by the bare call, in turns. How fast each is, is noted and not judged.
pub fn speed(checks: &mut Checks) -> Result<()> {
    const ROUNDS: usize = 3;
    set("/proc/sys/kernel/numa_balancing", 0)?;
    for (kind, what) in [("--no-thp", "base pages"), ("--thp", "huge pages")] {
        let target = Target::start(&["hotset", "--mib", "64", kind, "--on", "0", "--hot-percent", "0"])?;
        let (process, memory) = (open(&target)?, target.range("memory")?);
        let kernel: Arc<dyn Kernel> = Arc::new(Linux);
        let facts = Facts::discover(&*kernel);
        let options = Options { workers: 1, ..Options::default() };
        let mut world = World::new(kernel, facts.tiers.clone(), facts.capabilities(), &options)
            .map_err(anyhow::Error::msg)?;
        let space = world.adopt(target.pid())?;
        let step = if kind == "--thp" { HUGE } else { PAGE };
        let addresses: Vec<u64> = (memory.start..memory.end).step_by(step as usize).collect();
        let all = pages(&memory).len();
        let (mut ordered, mut bare, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let mut arrived = 0;
        let mut arrive = |node: i32| -> Result<()> {
            arrived += usize::from(nodes_of(&process, &memory)? == BTreeMap::from([(node, all)]));
            Ok(())
        };
        for _ in 0..ROUNDS {
            for node in [1, 0] {
                let started = Instant::now();
                move_to(&process, &addresses, node)?;
                bare.push(started.elapsed().as_secs_f64());
                arrive(node)?;
            }
            for node in [1, 0] {
                let started = Instant::now();
                for some in addresses.chunks(512) {
                    move_to(&process, some, node)?;
                }
                parts.push(started.elapsed().as_secs_f64());
                arrive(node)?;
            }
            for node in [1, 0] {
                let to = TierId(node as u8);
                let page = |address: &u64| PageId { space, vpn: address >> 12 };
                let moves: Vec<Move> = addresses.iter().map(|at| Move { page: page(at), to }).collect();
                let started = Instant::now();
                world.migrate(&moves, MoveOptions { in_flight: None, ..MoveOptions::default() });
                while world.step().is_some() {}
                ordered.push(started.elapsed().as_secs_f64());
                world.take_signals();
                arrive(node)?;
            }
        }
        let rate = |seconds: f64| (memory.end - memory.start) as f64 / 1e6 / seconds;
        let [ordered, bare, parts] = [ordered, bare, parts].map(|times| rate(median(times)));
        let share = ordered / bare;
        checks.note(format!(
            "{what}: {ordered:.0} MB/s by orders, {bare:.0} MB/s by one call of move_pages, {parts:.0} MB/s by calls for \
             512 pages: orders have {share:.3} of the one call"
        ));
        checks.equal(format!("{what}: times that all of them arrived"), arrived, 3 * 2 * ROUNDS);
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
