//! Takes records out of the shared memory and turns them into batches.
//!
//! The loop is here: what is taken next, when it sleeps, and when the recording ends. [`chunks`] takes records out of the
//! shared memory and decodes them, [`order`] puts the events of all threads in one order and delivers batches, and
//! [`owners`] knows the threads and processes that write them.

mod chunks;
mod order;
mod owners;

use crate::RecordOptions;
use crate::blocks::Blocks;
use crate::filter::Filter;
use crate::process::Process;
use crate::session::Session;
use crate::symbols::Symbols;
use order::Order;
use owners::{Child, Registration, Source};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::{Duration, Instant};
use terrace_protocol::layout::{PROCESSES, SLOTS, Shared};
use terrace_trace::{Batch, BatchPool, StreamId};

/// How long the first sleep lasts after something came: what a busy thread hands over comes sooner, and a process that
/// has ended is soon noticed.
const FIRST_SLEEP: Duration = Duration::from_micros(150);
/// Longest sleep before processes are looked at again.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);
/// How long a forked process may take to register after all others have ended.
const FORK_GRACE: Duration = Duration::from_secs(2);
/// After this many chunks in a row, chunks being filled are looked at too, so that a slow thread does not lag.
const HARVEST_EVERY: u32 = 64;

/// The state of a recording.
pub struct Collector {
    pub(crate) session: Session,
    pub(crate) options: RecordOptions,
    pub(crate) processes: Vec<Option<Process>>,
    /// For each place in the shared table, the index into `processes`.
    places: Vec<Option<usize>>,
    /// Room for those that have registered and are not yet known.
    new: Vec<Registration>,
    sources: Vec<Option<Box<Source>>>,
    pub ready: VecDeque<Arc<Batch>>,
    pool: BatchPool,
    blocks: Blocks,
    filter: Filter,
    order: Order,
    /// The slot whose current batch holds global events, and the first of them. There is at most one.
    open: Option<(usize, u64)>,
    /// Streams by serial, for forks.
    serials: HashMap<u64, StreamId>,
    streams: u32,
    next_process: u32,
    pub(crate) symbols: Symbols,
    pub(crate) site_numbers: HashMap<String, u32>,
    pub(crate) warnings: Vec<String>,
    /// Name of the program that is started first.
    program: String,
    chunks_in_row: u32,
    sleep: Duration,
    quiet_since: Option<Instant>,
    /// Accesses delivered.
    pub(crate) accesses: u64,
    finished: bool,
    /// Set when the process started first is known to have ended.
    pub(crate) child_ended: bool,
    /// Set by others to end the recording.
    pub(crate) stop_wanted: Arc<AtomicBool>,
}

impl Collector {
    pub fn new(session: Session, options: RecordOptions, program: String) -> Collector {
        Collector {
            filter: Filter::new(options.skip, options.limit, options.every),
            session,
            options,
            processes: Vec::new(),
            places: vec![None; PROCESSES],
            new: Vec::new(),
            sources: (0..SLOTS).map(|_| None).collect(),
            ready: VecDeque::new(),
            pool: BatchPool::default(),
            blocks: Blocks::default(),
            order: Order::new(),
            open: None,
            serials: HashMap::new(),
            streams: 0,
            next_process: 0,
            symbols: Symbols::default(),
            site_numbers: HashMap::new(),
            warnings: Vec::new(),
            program,
            chunks_in_row: 0,
            sleep: FIRST_SLEEP,
            quiet_since: None,
            accesses: 0,
            finished: false,
            child_ended: false,
            stop_wanted: Arc::default(),
        }
    }

    fn shared(&self) -> Shared {
        self.session.shared()
    }

    /// Slots that threads have claimed so far: all others lie behind them.
    fn slots_used(&self) -> usize {
        (self.shared().header().slots_used.load(Acquire) as usize).min(SLOTS)
    }

    /// The next batch, or `None` when there is nothing to deliver right now.
    pub fn poll(&mut self) -> Option<Arc<Batch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(batch);
            }
            if self.finished {
                return None;
            }
            let stopped = self.stop_wanted.load(Relaxed) || self.shared().header().stop.load(Relaxed) != 0;
            if self.filter.is_exhausted() || stopped {
                self.finish();
                continue;
            }
            if !self.pump(false) {
                return None;
            }
        }
    }

    /// Whether no batch will come any more.
    pub fn is_finished(&self) -> bool {
        self.finished && self.ready.is_empty()
    }

    /// Whether the limit was reached.
    pub fn reached_limit(&self) -> bool {
        self.filter.is_exhausted()
    }

    /// Whether any thread has been recorded.
    pub fn has_started(&self) -> bool {
        self.streams > 0
    }

    /// Kills all recorded processes.
    pub fn kill_processes(&mut self) {
        self.discover();
        self.processes.iter().flatten().for_each(Process::kill);
    }

    /// Sleeps a little, or until records are handed over, and takes what there is. Delivers what is decoded if nothing
    /// came for a while.
    pub fn sleep(&mut self) {
        self.session.wake_producers();
        let shared = self.shared();
        let sources = &self.sources;
        self.session.wait(self.sleep, || {
            let used = shared.header().slots_used.load(SeqCst) as usize;
            (0..used.min(SLOTS)).any(|i| {
                let slot = shared.slot(i);
                match &sources[i] {
                    Some(source) => {
                        let waits = source.needs != 0 || source.child == Child::Awaited;
                        !waits && slot.tail.load(SeqCst) != slot.head.load(Relaxed)
                    }
                    None => slot.state.load(SeqCst) & 0xff >= 2,
                }
            })
        });
        if self.pump(true) {
            self.sleep = FIRST_SLEEP;
            return;
        }
        if self.sleep == LONGEST_SLEEP {
            self.flush_all(false);
        }
        self.sleep = (2 * self.sleep).min(LONGEST_SLEEP);
    }

    /// Takes one chunk; where there is none, whatever else there is, if `partial` or if a thread waits for it. `false`
    /// when nothing could be taken.
    ///
    /// Chunks that are still being filled are left alone while others come: looking into them takes the memory that a
    /// thread writes out of its processor's cache, time and again.
    fn pump(&mut self, partial: bool) -> bool {
        self.discover();
        let (oldest, blocked) = self.oldest_chunk();
        if let Some(slot) = oldest {
            self.chunks_in_row += 1;
            let progress = self.take_chunk(slot);
            if blocked || self.chunks_in_row >= HARVEST_EVERY {
                self.chunks_in_row = 0;
                self.harvest_all();
                if self.awaits_children() {
                    self.reap();
                }
            }
            if progress {
                self.quiet_since = None;
                return true;
            }
        }
        if !partial && !blocked {
            return false;
        }
        if blocked {
            self.session.wake_producers();
        }
        let progress = self.harvest_all() | self.reap();
        if progress {
            self.quiet_since = None;
            return true;
        }
        if self.awaits_children() {
            let quiet = self.quiet_since.get_or_insert_with(Instant::now).elapsed();
            if quiet >= FORK_GRACE {
                self.give_up_children();
                return true;
            }
            return false;
        }
        self.pass_over_missing() || self.check_end()
    }

    /// Finishes when all processes have ended.
    fn check_end(&mut self) -> bool {
        let alive = self.processes.iter().any(Option::is_some);
        if alive || !self.child_ended {
            self.quiet_since = None;
            return false;
        }
        let unregistered = (0..PROCESSES).any(|place| {
            let state = self.shared().process(place).state.load(Acquire);
            state & 0xff == 2 && self.places[place].is_none()
        });
        let quiet = self.quiet_since.get_or_insert_with(Instant::now).elapsed();
        let forks = self.shared().header().forks.load(SeqCst) as i32;
        if unregistered || (forks > 0 && quiet < FORK_GRACE) {
            return false;
        }
        self.finish();
        true
    }

    /// Delivers what is decoded and ends.
    fn finish(&mut self) {
        self.sources.iter_mut().flatten().for_each(|source| source.stream.note_left_out());
        self.flush_all(true);
        let header = self.shared().header();
        let unrecorded = header.unrecorded.load(Relaxed);
        if unrecorded > 0 {
            self.warn(format!("{unrecorded} threads or processes ran unrecorded: too many at the same time, or out of the recorder's reach"));
        }
        if header.entries_exhausted.load(Relaxed) != 0 {
            self.warn(
                "the program runs more different code than the recorder can describe: some accesses carry no \
                 instruction address, and dependences through them are missing"
                    .to_owned(),
            );
        }
        self.session.stop();
        self.finished = true;
    }

    fn warn(&mut self, message: String) {
        if !self.warnings.contains(&message) {
            self.warnings.push(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{RecordOptions, record};
    use terrace_trace::EventSource;

    /// A thread that always has a full queue, because we read slower than it writes.
    #[test]
    fn batches_do_not_pile_up() {
        let script = "i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done";
        let command = ["/bin/dash", "-c", script].map(std::ffi::OsString::from);
        let mut recording = record(&command, &RecordOptions::default()).unwrap();
        let mut most = 0;
        while recording.next_batch().unwrap().is_some() {
            most = most.max(recording.source.waiting());
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        assert!(recording.accesses() > 25 * terrace_trace::BATCH_ACCESSES as u64);
        // A chunk each of the thread and of what else was looked at, and what stood in a batch before.
        assert!(most <= 4, "{most} batches at once");
    }
}
