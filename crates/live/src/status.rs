//! What a running engine shows of itself, as one document: a snapshot that `terrace top`, the metrics and people read.

use crate::engine::{Engine, State};
use crate::map::MemoryMap;
use crate::session::Session;
use crate::space::Space;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_model::{Bytes, Stats};
use toml::Table;

/// The version of the document.
pub const SCHEMA: u32 = 1;
/// A snapshot is made at most so often: it reads `/proc/vmstat` and walks the statistics.
const EVERY: Duration = Duration::from_secs(1);
/// Rates are means over so long.
const RATE_OVER: Duration = Duration::from_secs(5);

/// A snapshot of a running engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of this document's shape.
    pub schema: u32,
    /// The process of Terrace itself.
    pub pid: u32,
    /// The policy at work.
    pub policy: String,
    /// The policy's parameters, all of them.
    pub parameters: Table,
    /// What was chosen at the start, and why.
    pub choices: Vec<String>,
    /// Where accesses are seen.
    pub accesses: String,
    /// What it is doing.
    pub state: State,
    /// Orders are only counted.
    pub dry_run: bool,
    /// Since the start.
    pub run_seconds: f64,
    /// The run ends so long after the start; none where nobody has said.
    #[serde(default)]
    pub ends_after_seconds: Option<f64>,
    /// Processor time of Terrace itself.
    pub cpu: Cpu,
    /// What moves are bounded by.
    #[serde(default)]
    pub bounds: Bounds,
    /// The tiers, fastest first.
    pub tiers: Vec<TierStatus>,
    /// The processes under management.
    pub processes: Vec<ProcessStatus>,
    /// What was moved.
    pub moves: Moves,
    /// The kernel's own counters since the start, by their names in `/proc/vmstat`, for the whole machine.
    pub kernel: BTreeMap<String, u64>,
    /// All statistics.
    pub statistics: Stats,
    /// The policy's remarks.
    pub notes: Vec<String>,
}

/// Processor time of Terrace itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Since the start.
    pub seconds: f64,
    /// Share of one core over the last seconds.
    pub share: f64,
    /// The share that it may use on average; none for no bound.
    pub budget: Option<f64>,
}

/// What moves are bounded by, beside processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Most bytes per second; none for no bound.
    pub bandwidth: Option<u64>,
    /// Moves stop while tasks lose more than this share of their time waiting for memory; none for no guard.
    pub pressure: Option<f64>,
}

/// One tier: what the managed processes have there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierStatus {
    /// The tier's name.
    pub name: String,
    /// What they may have there, in bytes.
    pub capacity: u64,
    /// What they have, in bytes.
    pub used: u64,
    /// Used bytes that were accessed since the policy's look before the last. Null where nobody has looked for accesses yet.
    pub hot: Option<u64>,
    /// Used bytes that were not accessed since then. Null where accesses to some pages do not show: nothing is known of
    /// those pages.
    pub cold: Option<u64>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// The process's number.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// Bytes by tier.
    pub bytes: BTreeMap<String, u64>,
    /// Bytes accessed since the policy's look before the last. Null where nobody has looked for accesses yet.
    pub hot: Option<u64>,
}

/// What was moved since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moves {
    /// Bytes that came to a faster tier.
    pub promoted: u64,
    /// Bytes that came to a slower tier.
    pub demoted: u64,
    /// Pieces of orders that failed.
    pub failed: u64,
    /// Pairs that changed places.
    pub exchanged: u64,
    /// Pieces of orders that wait for their turn.
    pub waiting: u64,
    /// Pieces of orders that a dry run did not carry out.
    pub planned: u64,
    /// Bytes moved per second, over the last seconds.
    pub bytes_per_second: f64,
    /// Pieces of orders done or given up per second, over the last seconds.
    #[serde(default)]
    pub pieces_per_second: f64,
    /// At that rate what waits is done after so long. None where nothing is done at the moment.
    #[serde(default)]
    pub eta_seconds: Option<f64>,
}

/// Where the engine leaves snapshots and others take them. Neither side ever waits for the other for longer than a
/// pointer is copied.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Sheets>);

#[derive(Debug, Default)]
struct Sheets {
    status: Mutex<Option<Arc<Status>>>,
    map: Mutex<Option<Arc<MemoryMap>>>,
    /// Somebody wants a newer map.
    map_is_wanted: AtomicBool,
}

impl Board {
    /// The latest snapshot; none before the first.
    pub fn latest(&self) -> Option<Arc<Status>> {
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the snapshot. When a reader holds the board at this very moment the old one stays.
    pub fn put(&self, status: Arc<Status>) {
        if let Ok(mut latest) = self.0.status.try_lock() {
            *latest = Some(status);
        }
    }

    /// The latest map, and the wish for a newer one: a map is made only while somebody looks at maps. None before the first.
    pub fn map(&self) -> Option<Arc<MemoryMap>> {
        self.0.map_is_wanted.store(true, Ordering::Relaxed);
        self.0.map.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the map, as [`Board::put`] the snapshot.
    pub fn put_map(&self, map: MemoryMap) {
        if let Ok(mut latest) = self.0.map.try_lock() {
            *latest = Some(Arc::new(map));
        }
    }

    /// Whether a newer map was asked for since the last time.
    fn takes_wish(&self) -> bool {
        self.0.map_is_wanted.swap(false, Ordering::Relaxed)
    }
}

/// The part of a snapshot that stays the same for a whole run.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    /// The policy's name.
    pub policy: String,
    /// Parameters of the policy.
    pub parameters: Table,
    /// What was chosen for the user, in words.
    pub choices: Vec<String>,
}

/// What rates are made from.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    cpu: Duration,
    moved: u64,
    finished: u64,
}

/// What they are, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rates {
    cpu: f64,
    bytes: f64,
    pieces: f64,
}

/// The time from one map to the next. A map that took `took` is followed by ten times as long without one, so maps take at
/// most a tenth of the time.
fn until_next_map(took: Duration) -> Duration {
    EVERY.max(took * 10)
}

/// Makes snapshots of an engine, at most one per second.
#[derive(Debug)]
pub struct Reporter {
    heading: Heading,
    board: Board,
    samples: VecDeque<Sample>,
    next: Duration,
    next_map: Duration,
    ends_after: Option<Duration>,
}

impl Reporter {
    /// For the engine of a session.
    pub fn new(session: &Session, board: Board) -> Reporter {
        let heading = Heading {
            policy: session.policy.clone(),
            parameters: session.parameters.clone(),
            choices: session.choices.clone(),
        };
        Reporter::with(heading, board)
    }

    /// For an engine that no session opened.
    pub fn with(heading: Heading, board: Board) -> Reporter {
        let (next, next_map) = (Duration::ZERO, Duration::ZERO);
        Reporter { heading, board, samples: VecDeque::new(), next, next_map, ends_after: None }
    }

    /// The run ends so long after its start.
    pub fn ends_after(&mut self, length: Duration) {
        self.ends_after = Some(length);
    }

    /// After a turn of the engine: puts a snapshot on the board if one is due, and returns it.
    pub fn turn(&mut self, engine: &Engine) -> Option<Arc<Status>> {
        let now = engine.world().kernel().now();
        if now >= self.next_map && self.board.takes_wish() {
            self.board.put_map(MemoryMap::of(engine));
            let took = engine.world().kernel().now().saturating_sub(now);
            self.next_map = now + until_next_map(took);
        }
        // A stopped engine is reported at once: no later snapshot follows.
        if now < self.next && engine.state() != State::Stopped {
            return None;
        }
        self.next = now + EVERY;
        let status = Arc::new(self.snapshot(engine, now));
        self.board.put(status.clone());
        Some(status)
    }

    fn snapshot(&mut self, engine: &Engine, now: Duration) -> Status {
        let (statistics, notes) = engine.statistics();
        let seconds = |name: &str| statistics.number(name) / 1e9;
        let moved = statistics.integer("policy.copied_bytes");
        let cpu = Duration::from_nanos(statistics.integer("live.cpu_time"));
        let finished = engine.world().orders_finished();
        let rates = self.rates(Sample { at: now, cpu, moved, finished });
        let waiting = engine.world().orders_waiting() as u64;
        let bytes = |name: &str| statistics.integer(name) << 12;
        let moves = Moves {
            promoted: bytes("vmstat.pgpromote_success"),
            demoted: bytes("vmstat.pgdemote_policy"),
            failed: statistics.integer("vmstat.pgmigrate_fail"),
            exchanged: statistics.integer("policy.exchanges"),
            waiting,
            planned: statistics.integer("live.planned"),
            bytes_per_second: rates.bytes,
            pieces_per_second: rates.pieces,
            eta_seconds: eta(waiting, rates.pieces),
        };
        let kernel = statistics.under("kernel");
        let kernel = kernel.map(|(name, stat)| (name.to_owned(), stat.value.as_f64() as u64)).collect();
        let Heading { policy, parameters, choices } = self.heading.clone();
        Status {
            schema: SCHEMA,
            pid: std::process::id(),
            policy,
            parameters,
            choices,
            accesses: engine.source_name(),
            state: engine.state(),
            dry_run: engine.world().is_dry_run(),
            run_seconds: seconds("live.run_time"),
            ends_after_seconds: self.ends_after.map(|length| length.as_secs_f64()),
            bounds: Bounds {
                bandwidth: engine.limits().bandwidth.map(|bytes| bytes.0),
                pressure: engine.limits().pressure,
            },
            cpu: Cpu {
                seconds: cpu.as_secs_f64(),
                share: rates.cpu,
                budget: Some(engine.limits().cpu).filter(|share| share.is_finite()),
            },
            tiers: tiers(engine),
            processes: processes(engine),
            moves,
            kernel,
            statistics,
            notes,
        }
    }

    fn rates(&mut self, now: Sample) -> Rates {
        while self.samples.get(1).is_some_and(|second| now.at.saturating_sub(second.at) >= RATE_OVER) {
            self.samples.pop_front();
        }
        self.samples.push_back(now);
        let first = self.samples[0];
        let passed = now.at.saturating_sub(first.at).as_secs_f64();
        if passed <= 0.0 {
            return Rates::default();
        }
        Rates {
            cpu: now.cpu.saturating_sub(first.cpu).as_secs_f64() / passed,
            bytes: now.moved.saturating_sub(first.moved) as f64 / passed,
            pieces: now.finished.saturating_sub(first.finished) as f64 / passed,
        }
    }
}

/// How long what waits takes at a rate.
fn eta(waiting: u64, per_second: f64) -> Option<f64> {
    match waiting {
        0 => Some(0.0),
        _ => (per_second > 0.0).then(|| waiting as f64 / per_second),
    }
}

fn tiers(engine: &Engine) -> Vec<TierStatus> {
    let world = engine.world();
    let tiers = world.tiers().iter().enumerate();
    tiers
        .map(|(at, tier)| {
            let Bytes(used) = tier.used;
            let hot: u64 = world.spaces().map(|space| space.hot[at] << 12).sum();
            // Pages may have left since they were counted.
            let hot = engine.sees_accesses().then_some(hot.min(used));
            let hot = hot.filter(|_| !engine.sees_all_pages() || world.spaces().any(Space::is_looked_at));
            let cold = hot.map(|hot| used - hot);
            let cold = cold.filter(|_| engine.sees_all_pages() && world.spaces().all(Space::is_looked_at));
            TierStatus { name: tier.name.clone(), capacity: tier.capacity.0, used, hot, cold }
        })
        .collect()
}

fn processes(engine: &Engine) -> Vec<ProcessStatus> {
    let tiers = engine.world().tiers();
    let of = |pages: &[u64]| {
        let named = tiers.iter().zip(pages);
        named.map(|(tier, pages)| (tier.name.clone(), pages << 12)).collect()
    };
    let spaces = engine.world().spaces();
    spaces
        .map(|space| ProcessStatus {
            pid: space.process.pid,
            name: space.name.clone(),
            bytes: of(&space.resident),
            hot: engine.knows_accesses_of(space).then(|| space.hot.iter().sum::<u64>() << 12),
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A snapshot as others read it: two tiers, two processes, the second with a name that wants to clear the screen.
    pub(crate) fn example() -> Status {
        serde_json::from_str(include_str!("../tests/fixtures/status.json")).unwrap()
    }

    #[test]
    fn a_snapshot_survives_the_way_through_json() {
        let status = example();
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
        assert!(text.contains(r#""state":"working""#), "{text}");
    }

    #[test]
    fn rates_are_means_over_the_last_seconds() {
        let heading = Heading { policy: String::new(), parameters: Table::new(), choices: Vec::new() };
        let mut reporter = Reporter::with(heading, Board::default());
        let mut rates = |second: u64, cpu: u64, moved: u64, finished: u64| {
            let (at, cpu) = (Duration::from_secs(second), Duration::from_secs(cpu));
            let Rates { cpu, bytes, pieces } = reporter.rates(Sample { at, cpu, moved, finished });
            (cpu, bytes, pieces)
        };
        assert_eq!(rates(100, 0, 0, 0), (0.0, 0.0, 0.0));
        assert_eq!(rates(104, 1, 400, 8), (0.25, 100.0, 2.0));
        assert_eq!(rates(105, 1, 400, 8), (0.2, 80.0, 1.6));
        assert_eq!(rates(110, 1, 400, 8), (0.0, 0.0, 0.0), "what is older than five seconds does not count");
    }

    #[test]
    fn what_waits_is_done_at_the_rate_of_the_last_seconds() {
        assert_eq!(eta(12, 4.0), Some(3.0));
        assert_eq!((eta(0, 0.0), eta(12, 0.0)), (Some(0.0), None), "held back or paused");
    }

    #[test]
    fn a_map_is_made_only_where_one_was_asked_for() {
        let board = Board::default();
        assert!(!board.takes_wish());
        assert!(board.map().is_none() && board.takes_wish() && !board.takes_wish());
        board.put_map(MemoryMap::default());
        assert_eq!(board.map().as_deref(), Some(&MemoryMap::default()));
    }

    #[test]
    fn maps_are_a_second_apart_and_take_a_tenth_of_the_time() {
        assert_eq!(until_next_map(Duration::from_millis(3)), Duration::from_secs(1));
        assert_eq!(until_next_map(Duration::from_secs(2)), Duration::from_secs(20));
    }

    #[test]
    fn a_board_shows_the_latest() {
        let board = Board::default();
        assert_eq!(board.latest(), None);
        let held = {
            board.put(Arc::new(example()));
            board.latest().unwrap()
        };
        board.put(Arc::new(Status { policy: "nimble".to_owned(), ..example() }));
        assert_eq!((held.policy.as_str(), board.latest().unwrap().policy.as_str()), ("ambix", "nimble"));
    }
}
