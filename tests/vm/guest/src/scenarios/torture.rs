//! All at random, for as long as asked: policies, their bounds, the programs under them, and how Terrace ends.
//!
//! `scripts/torture HOURS` boots it again and again with other seeds. A seed that failed shows the same again, as the
//! guest's time passes with its instructions.

use super::harm::{STALL, quiet, restored, stall, taken_down};
use crate::check::{Checks, asked, open, pages};
use crate::process::{Target, Terrace};
use anyhow::Result;
use std::time::{Duration, Instant};
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

fn any<'a>(random: &mut Random, of: &[&'a [&'a str]]) -> &'a [&'a str] {
    of[random.below(of.len() as u64) as usize]
}

/// Rounds until the time is over, each with a program of its own.
pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = quiet()?;
    let mut random = Random::new(asked("seed")?.unwrap_or(1));
    let deadline = Instant::now() + Duration::from_secs(asked("duration")?.unwrap_or(40));
    while Instant::now() < deadline {
        round(checks, &mut random)?;
    }
    Ok(())
}

fn round(checks: &mut Checks, random: &mut Random) -> Result<()> {
    let program = any(random, PROGRAMS);
    let target =
        Target::start(&[&["verify", "--mib", "16", "--threads", "4", "--on", "1"], program].concat())?;
    let (process, memory) = (open(&target)?, pages(&target.range("memory")?));
    let (mut told, mut failures) = (Vec::new(), Vec::new());
    for _ in 0..=random.below(4) {
        let settings = [any(random, POLICIES), any(random, LIMITS), any(random, BOUNDS)].concat();
        let terrace = Terrace::attach(target.pid(), &settings)?;
        let end = Instant::now() + Duration::from_millis(100 + random.below(2500));
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50 + random.below(200)));
            // Somebody else moves the same pages, or nobody does.
            if random.below(2) == 0 {
                taken_down(&process, &memory)?;
            }
        }
        if terrace.has_ended() {
            failures.push(format!("{}: it ended by itself", settings.join(" ")));
        }
        let killed = random.below(3) > 0;
        told.push(format!("{}{}", settings[1], if killed { " killed" } else { "" }));
        if killed {
            terrace.kill()?;
        } else if let Err(error) = terrace.finish()
            && !error.to_string().starts_with("signal: 2")
        {
            // Asked to stop before it listens for that, it ends as any program does, and has changed nothing yet.
            failures.push(format!("{}: {error}", settings.join(" ")));
        }
        failures.extend(restored()?);
    }
    let name = format!("{}: {}", program.join(" "), told.join(", "));
    checks.that(
        failures.is_empty(),
        format!("{name}: it ends well, and nothing is left"),
        failures.join("; "),
    );
    match target.finish() {
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
