//! The same decisions in both worlds: one scripted pattern, run on the real kernel and in the simulator with the same tiers
//! and the same policy, leaves the same pages in the fast tier.
//!
//! *Measure*: of the program's pages, the share that lies in the same tier in both worlds at the end; of the hot ones alone,
//! too. The end is when this share has not been below the floor in [`LOOKS`] looks in a row, one a second; the least of them
//! is reported. The pattern: all memory is touched once and lies in the slow tier (Thermostat: in the fast one); then a
//! quarter of it is used every 10 ms, and after some seconds another quarter. In the simulator bits are cleared with a
//! flush; in the virtual machine the ticker switches address spaces every other millisecond, which has the same effect.
//!
//! The simulator runs on the host, before the virtual machine starts, since the emulated processor would take minutes for
//! it. What it found is a file in the first file system.

use crate::check::{Checks, lasting, node_of_each, open, pages, set, text};
use crate::process::{Target, Terrace};
use anyhow::{Context, Result, anyhow};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_model::{AddressRange, Bytes, TierId};
use terrace_policy::{
    Capabilities, Clear, Fault, MemorySystem, Moment, Needs, NextTick, Placement, Policy, Report, ScanHand,
    Scope, Setup, Signal, Step, Topology, registry,
};
use terrace_sim::design::Library;
use terrace_sim::{Fidelity, Options, simulate};
use terrace_trace::{
    AccessKind, Agent, Batch, BatchBuilder, Event, EventSource, Header, MapKind, Protection, SourceError,
    StreamId,
};

/// A policy and the pattern it is shown.
struct Case {
    policy: &'static str,
    /// Parameters in both worlds.
    sets: &'static [(&'static str, &'static str)],
    /// Parameters of one world: what the other does by itself.
    live: &'static [(&'static str, &'static str)],
    simulated: &'static [(&'static str, &'static str)],
    mib: u64,
    huge: bool,
    write: bool,
    /// Most of the program's memory in the fast tier, in MiB.
    limit: Option<u64>,
    /// Where all memory lies at first.
    from: TierId,
    /// How long each phase lasts.
    seconds: &'static [u64],
    /// The least agreement.
    floor: f64,
}

const FAST: TierId = TierId(0);
const SLOW: TierId = TierId(1);

const CASES: &[Case] = &[
    Case {
        policy: "ambix",
        sets: &[("period", "1 s"), ("delay", "500 ms"), ("write_threshold", "100 kB/s")],
        live: &[("flush", "false")],
        simulated: &[("flush", "true")],
        mib: 16,
        huge: false,
        write: true,
        limit: Some(8),
        from: SLOW,
        seconds: &[6, 6],
        floor: 0.9,
    },
    Case {
        policy: "nimble",
        sets: &[("period", "1 s")],
        live: &[],
        simulated: &[("flush", "true")],
        mib: 16,
        huge: false,
        write: false,
        limit: Some(8),
        from: SLOW,
        seconds: &[6, 6],
        floor: 0.9,
    },
    Case {
        policy: "thermostat",
        sets: &[("interval", "2 s"), ("sample", "0.4")],
        live: &[],
        simulated: &[],
        mib: 32,
        huge: true,
        write: false,
        limit: None,
        from: FAST,
        seconds: &[50],
        floor: 0.9,
    },
];

/// So many looks in a row, one a second: two rounds of every policy, or more.
const LOOKS: usize = 5;

/// The tier of each page of the program's memory, by its number.
type Tiers = Vec<Option<TierId>>;

pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    set("/proc/sys/kernel/numa_balancing", 0)?;
    let found = text(SIMULATED)?;
    for case in CASES {
        let simulated = read(&found, case.policy)?;
        let live = live(case, &simulated)?;
        let hot = hot(case, case.seconds.len() as u64 - 1);
        let all = agreement(&live, &simulated, 0..live.len());
        let of_hot = agreement(&live, &simulated, hot.start as usize..hot.end as usize);
        let fast = |tiers: &Tiers| tiers.iter().filter(|tier| **tier == Some(FAST)).count();
        checks.that(
            all >= case.floor,
            format!("{}: pages lie in the same tier in both worlds, and stay there", case.policy),
            format!(
                "{all:.3} of all, {of_hot:.3} of the hot ones; in the fast tier {} and {} of {}",
                fast(&live),
                fast(&simulated),
                live.len()
            ),
        );
    }
    Ok(())
}

/// Where the harness puts what [`simulate_all`] prints.
const SIMULATED: &str = "/simulated";

/// On the host: prints each policy's name and the tiers of its pages, a digit for each.
pub fn simulate_all() -> Result<()> {
    for case in CASES {
        let digit = |tier: Option<TierId>| tier.map_or('-', |tier| char::from(b'0' + tier.0));
        let tiers: String = simulated(case)?.into_iter().map(digit).collect();
        println!("{} {tiers}", case.policy);
    }
    Ok(())
}

fn read(found: &str, policy: &str) -> Result<Tiers> {
    let line = found.lines().find_map(|line| line.strip_prefix(policy)?.strip_prefix(' '));
    let digits = line.with_context(|| format!("{SIMULATED} has no line of {policy}"))?;
    Ok(digits.chars().map(|digit| digit.to_digit(10).map(|tier| TierId(tier as u8))).collect())
}

fn agreement(one: &Tiers, other: &Tiers, range: std::ops::Range<usize>) -> f64 {
    let same = range.clone().filter(|at| one[*at] == other[*at]).count();
    same as f64 / range.len() as f64
}

/// The hot pages of a phase: a quarter of the memory, as the target program chooses it.
fn hot(case: &Case, phase: u64) -> std::ops::Range<u64> {
    let pages = case.mib << 8;
    let (hot, first) = (pages / 4, pages * 30 / 100);
    let first = (first + hot * phase) % (pages - hot + 1);
    first..first + hot
}

/// The tiers in the end, which comes when they stay those of the simulated run; those of some looks where it never does.
fn live(case: &Case, simulated: &Tiers) -> Result<Tiers> {
    let mib = case.mib.to_string();
    let on = case.from.0.to_string();
    let mut arguments =
        vec!["hotset", "--mib", &mib, "--on", &on, "--hot-percent", "25", "--hot-start-percent", "30"];
    arguments.push(if case.huge { "--thp" } else { "--no-thp" });
    arguments.extend(case.write.then_some("--write"));
    let mut target = Target::start(&arguments)?;
    target.wait_for("phase")?;
    let limit = case.limit.map(|limit| format!("dram={limit}MiB"));
    let mut options =
        vec!["--cpu", "none", "--pressure", "none", "--regions", "8192", "--policy", case.policy];
    options.extend(limit.iter().flat_map(|limit| ["--limit", limit]));
    let sets: Vec<String> =
        case.sets.iter().chain(case.live).map(|(key, value)| format!("{key}={value}")).collect();
    options.extend(sets.iter().flat_map(|set| ["--set", set]));
    let terrace = Terrace::attach(target.pid(), &options)?;
    for (phase, seconds) in case.seconds.iter().enumerate() {
        if phase > 0 {
            target.next_phase()?;
        }
        // A policy's periods are late on slow processors.
        std::thread::sleep(Duration::from_secs(seconds * 5 / 4));
    }
    let process = open(&target)?;
    let addresses = pages(&target.range("memory")?);
    let tiers = || -> Result<Tiers> {
        let nodes = node_of_each(&process, &addresses)?;
        Ok(nodes.iter().map(|node| u8::try_from(*node).ok().map(TierId)).collect())
    };
    let same = |tiers: &Tiers| agreement(tiers, simulated, 0..tiers.len());
    let looks = lasting(LOOKS, tiers, |tiers| same(tiers) >= case.floor)?;
    let worst = looks.into_iter().min_by(|one, other| same(one).total_cmp(&same(other)));
    terrace.finish()?;
    worst.context("no look")
}

/// The pattern as a stream of events: the memory is touched, then each phase's pages every 10 ms.
struct Pattern {
    header: Header,
    builder: BatchBuilder,
    first: u64,
    write: bool,
    /// The hot pages of every round to come.
    rounds: std::vec::IntoIter<std::ops::Range<u64>>,
    begun: bool,
    bytes: u64,
}

/// Where the program's memory lies in the simulator.
const DATA: u64 = 0x2000_0000_0000;
/// Nanoseconds.
const ROUND: u64 = 10_000_000;
/// What the simulated core retires in a round: two per cycle at 2.3 GHz.
const INSTRUCTIONS_PER_ROUND: u64 = 2 * 23_000_000;

impl Pattern {
    fn new(case: &Case) -> Pattern {
        let phases = case.seconds.iter().enumerate();
        let rounds: Vec<_> = phases
            .flat_map(|(phase, seconds)| {
                std::iter::repeat_n(hot(case, phase as u64), (seconds * 1_000_000_000 / ROUND) as usize)
            })
            .collect();
        Pattern {
            header: Header::default(),
            builder: BatchBuilder::new(StreamId(0)),
            first: DATA,
            write: case.write,
            rounds: rounds.into_iter(),
            begun: false,
            bytes: case.mib << 20,
        }
    }

    fn touch(&mut self, page: u64, write: bool, instructions: u64) {
        let kind = if write { AccessKind::Write } else { AccessKind::Read };
        // Another line of the page in each round.
        let line = self.rounds.len() as u64 % 64 * 64;
        self.builder.access(self.first + page * 4096 + line, 8, kind, 0, instructions);
    }
}

impl EventSource for Pattern {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        if !self.begun {
            self.begun = true;
            let spawn = Event::Spawn {
                process: 0,
                thread: 0,
                agent: Agent::Cpu,
                forked_from: None,
                os_id: 0,
                name: String::new(),
            };
            let map = Event::Map {
                range: AddressRange::new(self.first, self.bytes),
                kind: MapKind::Anonymous,
                protection: Protection::READ_WRITE,
                name: String::new(),
            };
            self.builder.event(1, spawn);
            self.builder.event(2, map);
            for page in 0..self.bytes / 4096 {
                self.touch(page, true, 1);
            }
            return Ok(Some(self.builder.take(0).into()));
        }
        let Some(hot) = self.rounds.next() else { return Ok(None) };
        // The simulator leaves idle time out, so a round's time is spent between its accesses.
        let between = INSTRUCTIONS_PER_ROUND / (hot.end - hot.start);
        for page in hot {
            self.touch(page, self.write, between);
        }
        Ok(Some(self.builder.take(2).into()))
    }
}

/// A policy that is watched: where pages lie is noted with every tick, and new pages go to one tier.
struct Noted {
    policy: Box<dyn Policy>,
    from: TierId,
    tiers: Arc<Mutex<BTreeMap<u64, TierId>>>,
}

impl Policy for Noted {
    fn needs(&self) -> Needs {
        self.policy.needs()
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        Placement::tier(self.from)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        let next = self.policy.on(now, signals, memory);
        let mut tiers = BTreeMap::new();
        memory.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
            for part in 0..view.base_pages() {
                tiers.insert(view.page.vpn + part, view.tier);
            }
            Step::Keep
        });
        // At its end the program's memory is unmapped.
        if let (false, Ok(mut noted)) = (tiers.is_empty(), self.tiers.lock()) {
            *noted = tiers;
        }
        next
    }

    fn report(&self, report: &mut Report) {
        self.policy.report(report);
    }
}

/// Caches smaller than the hot pages, so that what is written reaches memory: live, stores are reported by the page. TLBs
/// that hold nothing for a round, as on the real kernel, where they are flushed ten times in that time.
const SMALL: [(&str, &str); 9] = [
    ("os.reserved", "0 B"),
    ("core.count", "2"),
    ("cache.llc.capacity", "1280 KiB"),
    ("translation.l1d.4k.entries", "4"),
    ("translation.l1d.4k.ways", "4"),
    ("translation.l1d.2m.entries", "2"),
    ("translation.l1d.2m.ways", "2"),
    ("translation.l2.array.0.entries", "8"),
    ("translation.l2.array.0.ways", "8"),
];

fn simulated(case: &Case) -> Result<Tiers> {
    let pages = if case.huge { "native-2m" } else { "native-4k" };
    let sets = SMALL.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut design = Library::embedded().design(pages, Some("haswell-2650v3"), &sets)?.design;
    // Room for page tables beside what the program may have.
    design.tiers[0].capacity = case.limit.map_or(Bytes::gib(1), Bytes::mib);
    design.tiers[1].capacity = Bytes::gib(1);
    let mut parameters = toml::Table::new();
    for (key, value) in case.sets.iter().chain(case.simulated) {
        registry::set(&mut parameters, key, value);
    }
    let tiers = Arc::new(Mutex::new(BTreeMap::new()));
    let (name, from, log) = (case.policy, case.from, tiers.clone());
    let open = move |setup: Setup<'_>| {
        let _: &Capabilities = setup.capabilities;
        let policy = registry::find(name)?.open(&parameters, setup)?;
        Ok(Box::new(Noted { policy, from, tiers: log }) as Box<dyn Policy>)
    };
    let options =
        Options { fidelity: Fidelity::Full, policy: Some(Box::new(open)), whole: true, ..Options::default() };
    simulate(&design, &mut Pattern::new(case), options).map_err(|error| anyhow!("{error}"))?;
    let tiers = tiers.lock().map_err(|_| anyhow!("the simulation has panicked"))?;
    Ok((0..case.mib << 8).map(|page| tiers.get(&((DATA >> 12) + page)).copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_simulator_the_hot_pages_are_fast_in_the_end() {
        for case in CASES {
            let tiers = simulated(case).unwrap();
            let hot = hot(case, case.seconds.len() as u64 - 1);
            let fast = hot.clone().filter(|page| tiers[*page as usize] == Some(FAST)).count() as u64;
            let all = tiers.iter().filter(|tier| **tier == Some(FAST)).count();
            assert!(
                fast * 100 >= (hot.end - hot.start) * 85,
                "{}: {fast} hot pages, {all} pages",
                case.policy
            );
        }
    }
}
