//! All at random, for as long as asked: policies, their bounds, the programs under them and how they come to be, calls of
//! the kernel that fail, swap and memory that go away and come back, and how Terrace ends.
//!
//! `scripts/torture HOURS` boots it again and again with other seeds. A seed that failed shows the same again, as the
//! guest's time passes with its instructions.

use super::harm::{STALL, quiet, restored, stall, taken_down};
use super::swap::Zram;
use crate::check::{Checks, asked, pages, set, text};
use crate::process::{Target, Terrace};
use crate::refusing::{self, CALLS, Refusals};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};
use terrace_live::kernel::{Advice, Kernel, Linux, Process};
use terrace_policy::Random;

/// Policies that this machine can run, with a period that makes them move all the time.
const POLICIES: &[&[&str]] = &[
    &["--policy", "nimble", "--set", "period=100 ms"],
    &["--policy", "ambix", "--set", "period=100 ms", "--set", "flush=false"],
    &["--policy", "idle", "--set", "scan=100 ms", "--set", "flush=false"],
    &["--policy", "numa-balancing", "--set", "scan_period=100 ms"],
    &["--policy", "memos", "--set", "period=100 ms", "--set", "flush=false"],
    &["--policy", "thp", "--set", "scan_sleep=100 ms", "--set", "fault=false"],
    &[
        "--policy",
        "hawkeye",
        "--set",
        "zero=false",
        "--set",
        "sample_period=1 s",
        "--set",
        "promote_period=100 ms",
    ],
    &["--policy", "interleave"],
];

/// What happens to the memory of the program that checks every byte.
const PROGRAMS: &[&[&str]] = &[
    &["--mode", "plain", "--no-thp"],
    &["--mode", "plain", "--thp"],
    &["--mode", "fork", "--no-thp"],
    &["--mode", "fork", "--thp"],
    &["--mode", "mremap", "--no-thp"],
    &["--mode", "mremap", "--thp"],
    &["--mode", "munmap", "--no-thp"],
    &["--mode", "munmap", "--thp"],
];

const LIMITS: &[&[&str]] = &[&[], &["--limit", "dram=2MiB"], &["--limit", "dram=8MiB"], &["--dry-run"]];
const BOUNDS: &[&[&str]] = &[&[], &["--cpu", "none", "--pressure", "none"]];
/// How a program that Terrace knows comes to be another one, beside those that are there from the start.
const WAYS: &[&[&str]] = &[&[], &[], &[], &["vfork"], &["fork"], &["exec"], &["namespace"]];
/// One call of the kernel in so many fails, where any does.
const ONE_IN: [u64; 3] = [2, 10, 100];
/// So many calls at most go well before.
const SPARED: u64 = 10_000;

fn any<'a>(random: &mut Random, of: &[&'a [&'a str]]) -> &'a [&'a str] {
    of[random.below(of.len() as u64) as usize]
}

/// Rounds until the time is over, each with a program of its own.
pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = quiet()?;
    let mut random = Random::new(asked("seed")?.unwrap_or(1));
    let deadline = Instant::now() + Duration::from_secs(asked("duration")?.unwrap_or(40));
    let mut others =
        Others { swap: Some(Zram::on()?), offline: None, done: BTreeMap::new(), refused: BTreeMap::new() };
    while Instant::now() < deadline {
        round(checks, &mut random, &mut others)?;
    }
    for (what, count) in &others.done {
        checks.note(format!("{count} times {what}"));
    }
    let calls: Vec<String> = others.refused.iter().map(|(call, count)| format!("{call} {count}")).collect();
    checks.note(format!("calls refused: {}", calls.join(", ")));
    others.end()
}

fn round(checks: &mut Checks, random: &mut Random, others: &mut Others) -> Result<()> {
    let program = any(random, PROGRAMS);
    let verify = [&["verify", "--mib", "16", "--threads", "4", "--on", "1"], program].concat();
    let way = any(random, WAYS).first().copied();
    let wait = random.below(1500).to_string();
    let mut target = match way {
        Some(way) => {
            Target::start(&[&["starter", "--by", way, "--wait-ms", &wait, "--"], &verify[..]].concat())?
        }
        None => Target::start(&verify)?,
    };
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    let mut program_known: Option<(u32, Process, Vec<u64>)> = None;
    for _ in 0..=random.below(4) {
        let settings = [any(random, POLICIES), any(random, LIMITS), any(random, BOUNDS)].concat();
        let refusals = (random.below(2) == 0).then(|| refusals(random));
        let terrace = Terrace::attach_refused(target.pid(), &settings, refusals)?;
        // What is executed meanwhile is known from here on.
        let (_, process, memory) = match &mut program_known {
            Some(known) => known,
            unknown => unknown.insert(known(&mut target, way)?),
        };
        let end = Instant::now() + Duration::from_millis(100 + random.below(2500));
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50 + random.below(200)));
            others.disturb(random, process, memory)?;
        }
        let with_refusals = refusals.is_some();
        let killed = random.below(3) > 0;
        rows.push(format!(
            "{}{}{}",
            settings[1],
            if with_refusals { " refused" } else { "" },
            if killed { " killed" } else { "" }
        ));
        failures.extend(
            ended(terrace, with_refusals, killed, others)?
                .map(|failure| format!("{}, {refusals:?}: {failure}", settings.join(" "))),
        );
        if with_refusals && random.below(2) == 0 {
            failures.extend(refused_restore(random.next())?);
        }
        failures.extend(restored()?);
    }
    let (pid, ..) = program_known.context("no Terrace was started")?;
    let name = format!("{} {}: {}", way.unwrap_or("there"), program.join(" "), rows.join(", "));
    checks.that(
        failures.is_empty(),
        format!("{name}: it ends well, and nothing is left"),
        failures.join("; "),
    );
    match target.finish_by(pid) {
        Ok(said) => {
            checks.that(
                stall(&said)? < STALL,
                format!("{name}: every byte as written, 99.9 % in time"),
                said,
            );
        }
        Err(error) => checks.that(false, format!("{name}: every byte as written"), error),
    }
    Ok(())
}

/// Any call fails now and then, or one of them often.
fn refusals(random: &mut Random) -> Refusals {
    let only = (random.below(3) > 0).then(|| random.below(CALLS.len() as u64) as usize);
    Refusals {
        seed: random.next(),
        only,
        one_in: ONE_IN[random.below(ONE_IN.len() as u64) as usize],
        after: random.below(if only.is_some() { SPARED / 100 } else { SPARED }),
    }
}

/// The program that checks its memory, once it is executed: its number and its pages.
fn known(target: &mut Target, way: Option<&str>) -> Result<(u32, Process, Vec<u64>)> {
    let pid = match way {
        None => target.pid(),
        Some(way) => {
            target.wait_for("memory")?;
            if way == "exec" { target.pid() } else { super::exec::child_of(target.pid())? }
        }
    };
    let process = Linux.open(pid).context("opening the program")?;
    let memory = pages(&target.range("memory")?);
    Ok((pid, process, memory))
}

/// Ends a Terrace, by a kill or as it is asked to; what was wrong with how it ended.
fn ended(terrace: Terrace, refused: bool, killed: bool, others: &mut Others) -> Result<Option<String>> {
    if refused {
        terrace.refused().counts().for_each(|(call, count)| others.refused(call, count));
    }
    let by_itself = terrace.has_ended();
    if by_itself && !refused {
        return Ok(Some("it ended by itself".to_owned()));
    }
    if killed && !by_itself {
        terrace.kill()?;
        return Ok(None);
    }
    Ok(match terrace.finish() {
        Ok(_) => None,
        // Asked to stop before it listens for that, it ends as any program does, and has changed nothing yet.
        Err(error) if error.to_string().starts_with("signal: 2") => None,
        // What a refused call costs may be the whole run, with a message and a status of its own.
        Err(error) if refused => {
            let said = error.to_string();
            let message =
                ["exit status: 1: ", "exit status: 2: "].iter().find_map(|status| said.strip_prefix(status));
            let orderly = message.is_some_and(|message| !message.is_empty() && !message.contains("panicked"));
            (!orderly).then_some(said)
        }
        Err(error) => Some(error.to_string()),
    })
}

/// A restoration whose calls fail as well; what it leaves the next one puts back.
fn refused_restore(seed: u64) -> Result<Option<String>> {
    let refusals = Refusals { seed, only: None, one_in: ONE_IN[0], after: seed % 20 };
    let mut command = Command::new("terrace");
    command.arg("restore").stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let (child, _) = refusing::start(&mut command, refusals)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let orderly = matches!(output.status.code(), Some(0..=2)) && !said.contains("panicked");
    Ok((!orderly).then(|| format!("restore, {refusals:?}: {}: {}", output.status, said.trim())))
}

const MEMORY: &str = "/sys/devices/system/memory";

/// Whoever else changes things meanwhile.
struct Others {
    /// None while it is switched off.
    swap: Option<Zram>,
    /// The block of memory that is off line.
    offline: Option<String>,
    /// How often what was done.
    done: BTreeMap<&'static str, u64>,
    /// How often which call failed.
    refused: BTreeMap<&'static str, u64>,
}

impl Others {
    /// One thing that somebody else may do to a program's memory.
    fn disturb(&mut self, random: &mut Random, process: &Process, memory: &[u64]) -> Result<()> {
        match random.below(10) {
            0..4 => {
                let moved = taken_down(process, memory)?;
                self.count("a page that Terrace had brought up was taken down", moved as u64);
            }
            4 => {
                let first = memory[random.below(memory.len() as u64) as usize];
                let bytes = (1 + random.below(1024)) << 12;
                // Not all of it is mapped in every program.
                if Linux.advise(process, &[(first, bytes)], Advice::PageOut).is_ok() {
                    self.count("memory was paged out by somebody else", 1);
                }
            }
            5 => match self.swap.take() {
                Some(swap) => {
                    swap.off()?;
                    self.count("swap was switched off", 1);
                }
                None => self.swap = Some(Zram::on()?),
            },
            6 => self.unplug(random)?,
            _ => {}
        }
        Ok(())
    }

    /// Takes a block of the slow node off line, or brings it back.
    fn unplug(&mut self, random: &mut Random) -> Result<()> {
        if let Some(block) = self.offline.take() {
            return set(format!("{MEMORY}/{block}/state"), "online_movable");
        }
        let mut blocks = Vec::new();
        for entry in std::fs::read_dir(MEMORY)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let movable = || text(format!("{MEMORY}/{name}/valid_zones")).is_ok_and(|zone| zone == "Movable");
            if name.strip_prefix("memory").is_some_and(|number| number.parse::<u32>().is_ok()) && movable() {
                blocks.push(name);
            }
        }
        blocks.sort();
        let block = blocks.get(random.below(blocks.len() as u64) as usize).context("no block that may go")?;
        // Pages that are on their way at this moment cannot be taken off it.
        if set(format!("{MEMORY}/{block}/state"), "offline").is_ok() {
            self.count("a block of memory went off line", 1);
            self.offline = Some(block.clone());
        }
        Ok(())
    }

    fn refused(&mut self, call: &'static str, times: u64) {
        *self.refused.entry(call).or_default() += times;
    }

    fn count(&mut self, what: &'static str, times: u64) {
        *self.done.entry(what).or_default() += times;
    }

    /// Everything as it was.
    fn end(mut self) -> Result<()> {
        if let Some(block) = self.offline.take() {
            set(format!("{MEMORY}/{block}/state"), "online_movable")?;
        }
        self.swap.take().map_or(Ok(()), Zram::off)
    }
}
