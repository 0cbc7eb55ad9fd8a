//! What scenarios look at, and how they report what they found.

use crate::memory::PAGE;
use crate::process::Target;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_live::kernel::{Kernel, Linux, Process, read_text};

/// The checks of one scenario.
pub struct Checks {
    scenario: &'static str,
    pub passed: u32,
    pub failed: u32,
}

impl Checks {
    pub fn new(scenario: &'static str) -> Checks {
        Checks { scenario, passed: 0, failed: 0 }
    }

    /// Counts a check and prints it; `found` explains either way.
    pub fn that(&mut self, holds: bool, what: impl Display, found: impl Display) {
        let Checks { scenario, .. } = self;
        if holds {
            self.passed += 1;
            println!("ok {scenario}: {what} ({found})");
        } else {
            self.failed += 1;
            println!("FAILED {scenario}: {what}: {found}");
        }
    }

    /// As [`Checks::that`], for two values that must be equal.
    pub fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: impl Display, found: T, expected: T) {
        let holds = found == expected;
        self.that(
            holds,
            what,
            if holds { format!("{found:?}") } else { format!("{found:?}, not {expected:?}") },
        );
    }

    /// A measurement, for the reader.
    pub fn note(&self, what: impl Display) {
        println!("note {}: {what}", self.scenario);
    }
}

/// A number that the kernel's command line carries for the scenarios: `KEY=NUMBER`.
pub fn asked(key: &str) -> Result<Option<u64>> {
    let line = text("/proc/cmdline")?;
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.map(|value| value.parse().with_context(|| format!("{key}={value}"))).transpose()
}

/// A file as text without the line end.
pub fn text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let text = read_text(&Linux, path).with_context(|| path.display().to_string())?;
    Ok(text.trim_end().to_owned())
}

/// Which part of a range lies on a node.
pub fn share_on(process: &Process, range: &Range<u64>, node: i32) -> Result<f64> {
    let nodes = nodes_of(process, range)?;
    let all: usize = nodes.values().sum();
    Ok(nodes.get(&node).copied().unwrap_or(0) as f64 / all as f64)
}

/// Writes a control file.
pub fn set(path: impl AsRef<Path>, value: impl Display) -> Result<()> {
    let path = path.as_ref();
    Linux.write(path, &value.to_string()).with_context(|| format!("{} = {value}", path.display()))
}

/// A target in the hands of the library.
pub fn open(target: &Target) -> Result<Process> {
    Linux.open(target.pid()).context("opening the target")
}

/// First addresses of the base pages of a range.
pub fn pages(range: &Range<u64>) -> Vec<u64> {
    (range.start..range.end).step_by(PAGE as usize).collect()
}

/// The node of each page; negative ones are error numbers.
pub fn node_of_each(process: &Process, pages: &[u64]) -> Result<Vec<i32>> {
    let mut nodes = vec![0; pages.len()];
    Linux.move_pages(process, pages, None, &mut nodes).context("querying nodes")?;
    Ok(nodes)
}

/// How many pages lie on each node; negative keys are error numbers.
pub fn nodes_of(process: &Process, range: &Range<u64>) -> Result<BTreeMap<i32, usize>> {
    Ok(counted(&node_of_each(process, &pages(range))?))
}

/// Moves pages to a node; returns what became of how many.
pub fn move_to(process: &Process, pages: &[u64], node: i32) -> Result<BTreeMap<i32, usize>> {
    let mut status = vec![0; pages.len()];
    Linux
        .move_pages(process, pages, Some(&vec![node; pages.len()]), &mut status)
        .context("moving pages (EINVAL: the process has ended)")?;
    Ok(counted(&status))
}

fn counted(status: &[i32]) -> BTreeMap<i32, usize> {
    let mut counts = BTreeMap::new();
    for status in status {
        *counts.entry(*status).or_default() += 1;
    }
    counts
}

/// Bytes of transparent huge pages in the mappings that lie in a range.
pub fn huge_bytes(process: &Process, range: &Range<u64>) -> Result<u64> {
    let smaps = text(format!("/proc/{}/smaps", process.pid))?;
    let mut inside = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((start, _)) = first.split_once('-') {
            inside = range.contains(&u64::from_str_radix(start, 16)?);
        } else if inside && first == "AnonHugePages:" {
            bytes += words.next().context("smaps")?.parse::<u64>()? << 10;
        }
    }
    Ok(bytes)
}

/// A counter of `/proc/vmstat`.
pub fn vmstat(name: &str) -> Result<u64> {
    text("/proc/vmstat")?
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        .with_context(|| format!("no {name} in vmstat"))
}

/// How long something is waited for that happens within seconds, or within a minute and a half where Terrace has to rest in
/// between. By the guest's time, which passes with its instructions.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// Waits until something holds; whether it came to hold.
pub fn eventually(holds: impl FnMut() -> Result<bool>) -> Result<bool> {
    until(holds, |holds| *holds)
}

/// Measures until the measurement is good, and returns that one; the last one where it never was. Judge the returned
/// measurement: a later one may show another moment.
pub fn until<T>(measure: impl FnMut() -> Result<T>, good: impl Fn(&T) -> bool) -> Result<T> {
    until_every(Duration::from_millis(50), measure, good)
}

/// As [`until`], for what the host does. Without sleeping, which takes the host no time: a minute would be over here before
/// the harness has read the request.
pub fn until_the_host<T>(measure: impl FnMut() -> Result<T>, good: impl Fn(&T) -> bool) -> Result<T> {
    until_every(Duration::ZERO, measure, good)
}

fn until_every<T>(
    pause: Duration,
    mut measure: impl FnMut() -> Result<T>,
    good: impl Fn(&T) -> bool,
) -> Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let started = Instant::now();
        let measured = measure()?;
        if good(&measured) || Instant::now() > deadline {
            return Ok(measured);
        }
        if !pause.is_zero() {
            rest(pause, started);
        }
    }
}

/// Rests between two looks: at least so long, and three times as long as the look that began then has taken. Rest costs the
/// emulation nothing, a command at each look more than what is waited for.
pub fn rest(least: Duration, began: Instant) {
    std::thread::sleep(least.max(3 * began.elapsed()));
}

/// As [`until`], for what has to stay as it is: measures once a second until the last `looks` measurements are all good, and
/// returns these, which are to be judged.
pub fn lasting<T>(
    looks: usize,
    mut measure: impl FnMut() -> Result<T>,
    good: impl Fn(&T) -> bool,
) -> Result<Vec<T>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut last = VecDeque::new();
    loop {
        last.push_back(measure()?);
        if last.len() > looks {
            last.pop_front();
        }
        if last.len() == looks && last.iter().all(&good) || Instant::now() > deadline {
            return Ok(last.into());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
