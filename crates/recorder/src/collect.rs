//! Takes records out of the shared memory and turns them into batches.
//!
//! Threads hand over chunks; the oldest is decoded first. Where no chunk waits, what threads have written so far of
//! the chunks they are filling is taken too: that is how a sleeping or a killed thread's records come out.
//!
//! Events that other threads may depend on carry a number from one counter. They are taken in exactly that order: a
//! thread's records wait while an event with a lower number is still to come. Its owner always has room for it (the
//! plugin takes a number only after it has reserved the record), so waiting ends; a number whose owner was killed
//! before it wrote the record is found missing and passed over.

use crate::blocks::Blocks;
use crate::entries::{Entries, Record};
use crate::filter::Filter;
use crate::process::Process;
use crate::session::Session;
use crate::stream::{Stop, Stream};
use crate::symbols::Symbols;
use crate::{RecordOptions, events};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};
use terrace_protocol::control::{self, Operation};
use terrace_protocol::layout::{
    BLOCK_ENTRIES, BLOCKS, CHUNK_BYTES, CHUNK_RECORDS, CHUNKS, LANES, PROCESSES, QUEUE, RECORD_BYTES, SLOTS,
    Shared, untag,
};
use terrace_trace::{Batch, BatchPool, Event, MarkKind, StreamId};

/// How long the first sleep lasts after something came: what a busy thread hands over comes sooner, and a process that
/// has ended is soon noticed.
const FIRST_NAP: Duration = Duration::from_micros(150);
/// Longest sleep before processes are looked at again.
const NAP: Duration = Duration::from_millis(5);
/// How long a forked process may take to register after all others have ended.
const FORK_GRACE: Duration = Duration::from_secs(2);
/// Sequence numbers whose place in the trace's order is remembered. A record can lag behind by no more than all
/// chunks can hold events, two records each at the least.
const HISTORY: usize = CHUNKS * CHUNK_RECORDS / 2;
/// After this many chunks in a row, chunks being filled are looked at too, so that a slow thread does not lag.
const HARVEST_EVERY: u32 = 64;

/// A slot's owner and how far its records have been taken.
struct Source {
    serial: u64,
    process: usize,
    stream: Stream,
    /// The chunk being filled, by tag, and how many of its records are taken.
    partial: (u32, usize),
    /// The last event of another thread that came before its records, and the stream's own last.
    sequence: u64,
    /// Records wait until this is the next sequence number; 0 when they do not.
    needs: u64,
    /// Whether accesses are kept at the moment.
    keeps: bool,
    /// An allocation being resized.
    resized: Option<crate::process::Object>,
}

/// The state of a recording.
pub struct Collector {
    pub(crate) session: Session,
    pub(crate) options: RecordOptions,
    pub(crate) processes: Vec<Option<Process>>,
    /// For each place in the shared table, the index into `processes`.
    places: Vec<Option<usize>>,
    sources: Vec<Option<Box<Source>>>,
    ready: VecDeque<Arc<Batch>>,
    pool: BatchPool,
    blocks: Blocks,
    filter: Filter,
    /// All events with lower sequence numbers have been taken.
    next_sequence: u64,
    /// Global events in the trace so far.
    emitted: u64,
    /// For sequence numbers of the recent past: events in the trace once it was taken.
    history: Vec<u64>,
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
    nap: Duration,
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
            sources: (0..SLOTS).map(|_| None).collect(),
            ready: VecDeque::new(),
            pool: BatchPool::default(),
            blocks: Blocks::default(),
            next_sequence: 1,
            emitted: 0,
            history: vec![0; HISTORY],
            open: None,
            serials: HashMap::new(),
            streams: 0,
            next_process: 0,
            symbols: Symbols::default(),
            site_numbers: HashMap::new(),
            warnings: Vec::new(),
            program,
            chunks_in_row: 0,
            nap: FIRST_NAP,
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

    /// Sleeps a little, or until records are handed over, and takes what there is. Delivers what is decoded if nothing
    /// came for a while.
    pub fn nap(&mut self) {
        self.session.wake_producers();
        let shared = self.shared();
        let sources = &self.sources;
        self.session.wait(self.nap, || {
            let used = shared.header().slots_used.load(SeqCst) as usize;
            (0..used.min(SLOTS)).any(|i| {
                let slot = shared.slot(i);
                match &sources[i] {
                    Some(source) => source.needs == 0 && slot.tail.load(SeqCst) != slot.head.load(Relaxed),
                    None => slot.state.load(SeqCst) & 0xff >= 2,
                }
            })
        });
        if self.pump(true) {
            self.nap = FIRST_NAP;
            return;
        }
        if self.nap == NAP {
            self.flush_all(false);
        }
        self.nap = (2 * self.nap).min(NAP);
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
            }
            if progress {
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
        self.pass_over_missing() || self.check_end()
    }

    /// Looks for processes and threads that have registered.
    fn discover(&mut self) {
        let shared = self.shared();
        let header = shared.header();
        let used = (header.processes_used.load(Acquire) as usize).min(PROCESSES);
        for place in 0..used {
            if self.places[place].is_some() {
                continue;
            }
            let entry = shared.process(place);
            let state = entry.state.load(Acquire);
            if state & 0xff != 2 {
                continue;
            }
            let pid = entry.seen_pid.load(Acquire);
            if pid == 0 {
                // The keeper is about to write it.
                continue;
            }
            // A program that replaced another comes after all that the other did.
            if self.processes.iter().flatten().any(|p| p.pid == pid) {
                continue;
            }
            let process = Process::new(
                place,
                pid,
                entry.base.load(Relaxed),
                entry.forked_from.load(Relaxed),
                entry.family.load(Relaxed),
            );
            let index = self.processes.iter().position(Option::is_none).unwrap_or(self.processes.len());
            if index == self.processes.len() {
                self.processes.push(None);
            }
            self.processes[index] = Some(process);
            self.places[place] = Some(index);
        }
        let used = (header.slots_used.load(Acquire) as usize).min(SLOTS);
        for number in 0..used {
            let slot = shared.slot(number);
            let state = slot.state.load(Acquire);
            if state & 0xff < 2 || self.sources[number].is_some() {
                continue;
            }
            let Some(process) = self.places[(state >> 8) as usize - 1] else {
                continue;
            };
            self.sources[number] = Some(Box::new(Source {
                serial: slot.serial.load(Relaxed),
                process,
                // Numbered when its first record, the spawn, is taken.
                stream: Stream::new(StreamId(u32::MAX)),
                partial: (0, 0),
                sequence: 0,
                needs: 0,
                keeps: true,
                resized: None,
            }));
        }
    }

    /// The slot that handed over the oldest chunk of those that need not wait, and whether any must.
    fn oldest_chunk(&self) -> (Option<usize>, bool) {
        let shared = self.shared();
        let used = (shared.header().slots_used.load(Acquire) as usize).min(SLOTS);
        let mut oldest: Option<(u64, usize)> = None;
        let mut blocked = false;
        for number in 0..used {
            let Some(source) = &self.sources[number] else { continue };
            if self.next_sequence < source.needs {
                blocked = true;
                continue;
            }
            let slot = shared.slot(number);
            let head = slot.head.load(Relaxed);
            if slot.tail.load(Acquire) == head {
                continue;
            }
            let chunk = untag(slot.queue[head as usize % QUEUE].load(Relaxed));
            let ticket = shared.chunk(chunk).ticket.load(Relaxed);
            if oldest.is_none_or(|(t, _)| ticket < t) {
                oldest = Some((ticket, number));
            }
        }
        (oldest.map(|(_, slot)| slot), blocked)
    }

    /// Decodes what is left of the first chunk in a slot's queue, and gives it back when all of it is used.
    fn take_chunk(&mut self, number: usize) -> bool {
        let shared = self.shared();
        let slot = shared.slot(number);
        let head = slot.head.load(Relaxed);
        if slot.tail.load(Acquire) == head {
            return false;
        }
        let tag = slot.queue[head as usize % QUEUE].load(Relaxed);
        let chunk = untag(tag);
        let records = (shared.chunk(chunk).records.load(Relaxed) as usize).min(CHUNK_RECORDS);
        let Some(mut source) = self.sources[number].take() else { return false };
        let done = if source.partial.0 == tag { source.partial.1 } else { 0 };
        let used = self.advance(number, &mut source, chunk, done, records);
        source.partial = (tag, used);
        self.sources[number] = Some(source);
        if used == records {
            shared.chunk(chunk).owner.store(0, Release);
            slot.head.store(head.wrapping_add(1), Release);
            if slot.tail.load(Relaxed).wrapping_sub(head) <= QUEUE as u32 / 2 {
                // Not sooner, so that a thread that waited has much to do before it waits again.
                self.session.wake_producers();
            }
            return true;
        }
        used > done
    }

    /// Takes what all threads have written that need not wait.
    fn harvest_all(&mut self) -> bool {
        let used = (self.shared().header().slots_used.load(Acquire) as usize).min(SLOTS);
        let mut progress = false;
        for number in 0..used {
            progress |= self.harvest(number);
        }
        progress
    }

    /// Takes what one thread has written: the first chunk that it handed over or, where there is none, what stands in the one
    /// that it fills. No more at once, so that batches do not pile up before a thread that writes as fast as we read.
    fn harvest(&mut self, number: usize) -> bool {
        let shared = self.shared();
        let slot = shared.slot(number);
        loop {
            let Some(source) = &self.sources[number] else { return false };
            if self.next_sequence < source.needs {
                return false;
            }
            let tail = slot.tail.load(Acquire);
            if tail != slot.head.load(Relaxed) {
                return self.take_chunk(number);
            }
            let tag = slot.current.load(Acquire) as u32;
            let cursor = self.cursor(number);
            if slot.tail.load(Acquire) != tail || slot.current.load(Acquire) as u32 != tag {
                continue;
            }
            let Some(process) = &self.processes[source.process] else { return false };
            let Some(written) = written(tag, cursor, process.base) else { return false };
            let done = if source.partial.0 == tag { source.partial.1 } else { 0 };
            if written <= done {
                return false;
            }
            let Some(mut source) = self.sources[number].take() else { return false };
            let used = self.advance(number, &mut source, untag(tag), done, written);
            source.partial = (tag, used);
            self.sources[number] = Some(source);
            return used > done;
        }
    }

    /// Where the thread of a slot writes its next record.
    fn cursor(&self, number: usize) -> u64 {
        let slot = self.shared().slot(number);
        let place = (slot.state.load(Acquire) >> 8).saturating_sub(1) as usize % PROCESSES;
        self.shared().lane(place, slot.lane.load(Relaxed) as usize % LANES).cursor.load(Acquire)
    }

    /// Decodes records `done` to `end` of a chunk; how far it got.
    fn advance(
        &mut self,
        number: usize,
        source: &mut Source,
        chunk: usize,
        done: usize,
        end: usize,
    ) -> usize {
        // SAFETY: the records before the cursor, or of a chunk handed over, are written and change no more until we
        // give the chunk back.
        let records: &[Record] =
            unsafe { std::slice::from_raw_parts(self.shared().data(chunk).cast_const(), end) };
        // SAFETY: the table stays mapped as long as the session; entries are written before records name them.
        let entries = unsafe { Entries::new(self.shared().entries()) };
        let mut at = done;
        source.needs = 0;
        while (at < end || source.stream.has_derived()) && !self.filter.is_exhausted() {
            let (mut keep, mut run) = self.filter.next();
            let counts = !self.options.region || self.region_is_open(source);
            if !counts {
                (keep, run) = (false, u64::MAX);
            }
            if keep != source.keeps {
                source.keeps = keep;
                if keep {
                    self.resume(number, source);
                }
            }
            let (used, accesses, stop) = if keep {
                let options = (self.options.dependences, self.options.program_counters);
                source.stream.decode(&records[at..], entries, &mut self.blocks, run, options.0, options.1)
            } else {
                let process = self.processes[source.process].as_mut().expect("lives as long as its slots");
                let touched = &mut process.touched;
                let passed = source
                    .stream
                    .pass_over(&records[at..], entries, run, |address, size| touched.insert(address, size));
                source.stream.left_out += passed.1;
                passed
            };
            at += used;
            if counts {
                self.filter.advance(accesses);
            }
            if keep {
                self.accesses += accesses;
            }
            match stop {
                Stop::Control => match self.control(number, source, &records[at..]) {
                    Some(used) => at += used,
                    None => break,
                },
                Stop::Full | Stop::End => {}
            }
            if source.stream.is_full() {
                self.deliver(number, &mut source.stream);
            }
        }
        at
    }

    fn region_is_open(&self, source: &Source) -> bool {
        self.processes[source.process].as_ref().is_some_and(|p| p.region_is_open(source.sequence))
    }

    /// Accesses are kept again after some were left out: says how many those were and which pages they touched.
    fn resume(&mut self, number: usize, source: &mut Source) {
        source.stream.begin_kept();
        let left_out = std::mem::take(&mut source.stream.left_out);
        if left_out > 0 {
            let gap = Event::Mark { kind: MarkKind::Gap, name: String::new(), value: left_out };
            source.stream.event(0, gap);
        }
        let resident = self.processes[source.process].as_mut().map(|p| p.touched.take()).unwrap_or_default();
        for event in resident {
            self.emit_global(number, &mut source.stream, event);
        }
    }

    /// Takes a control record; how many records that were, or `None` if it must wait.
    fn control(&mut self, number: usize, source: &mut Source, records: &[Record]) -> Option<usize> {
        let (operation, words) = control::split_head(records[0][0]);
        let length = control::records(words);
        let Some(operation) = operation.filter(|_| length <= records.len()) else {
            // Cannot happen with a plugin of our version; the rest of the chunk is unreadable.
            self.warn("a record could not be read; the trace has a gap".to_owned());
            return Some(records.len());
        };
        let payload = &records[1..length].as_flattened()[..words];
        let sequence = payload.first().copied().unwrap_or(0);
        match operation {
            Operation::After if sequence >= self.next_sequence => {
                source.needs = sequence + 1;
                return None;
            }
            Operation::After => {
                source.sequence = source.sequence.max(sequence);
                let after = self.history[sequence as usize % HISTORY];
                if after > source.stream.after() && !source.stream.is_empty() {
                    self.deliver(number, &mut source.stream);
                }
                source.stream.set_after(after);
            }
            _ if operation.is_sequenced() && sequence != 0 => {
                if sequence > self.next_sequence {
                    source.needs = sequence;
                    return None;
                }
                self.event(number, source, operation, payload);
                source.sequence = source.sequence.max(sequence);
                // A number that had been given up and came after all must not take the order back.
                if sequence == self.next_sequence {
                    self.history[sequence as usize % HISTORY] = self.emitted;
                    self.next_sequence += 1;
                }
            }
            _ => self.event(number, source, operation, payload),
        }
        Some(length)
    }

    /// Turns one control record, in its right order, into the trace's events.
    fn event(&mut self, number: usize, source: &mut Source, operation: Operation, payload: &[u64]) {
        match operation {
            Operation::Spawn => self.spawn(number, source),
            Operation::Compute => source.stream.add_instructions(payload[0]),
            _ => {
                let index = source.process;
                let Some(mut process) = self.processes[index].take() else { return };
                let keeps = source.keeps;
                let mut made = Vec::new();
                let mut context = events::Context {
                    process: &mut process,
                    stream: source.stream.id,
                    keeps,
                    resized: &mut source.resized,
                    symbols: &mut self.symbols,
                    site_numbers: &mut self.site_numbers,
                };
                events::translate(operation, payload, &mut context, &mut made);
                self.processes[index] = Some(process);
                for event in made {
                    if event.is_global() {
                        self.emit_global(number, &mut source.stream, event);
                    } else {
                        source.stream.event(0, event);
                    }
                }
            }
        }
    }

    /// A thread begins: its first record.
    fn spawn(&mut self, number: usize, source: &mut Source) {
        let index = source.process;
        let thread = self.shared().slot(number).thread.load(Relaxed);
        let Some(process) = self.processes[index].as_mut() else { return };
        source.keeps = true;
        if let Some((stream, process_number, next_thread)) = process.inherited.take() {
            // The program was replaced: the stream goes on.
            process.number = Some(process_number);
            process.next_thread = next_thread;
            let name = process.name.clone();
            source.stream = Stream::new(stream);
            source.stream.set_after(self.emitted);
            self.serials.insert(source.serial, stream);
            self.emit_global(number, &mut source.stream, Event::Exec { name });
            return;
        }
        let stream = StreamId(self.streams);
        self.streams += 1;
        self.serials.insert(source.serial, stream);
        let thread_number = process.next_thread;
        process.next_thread += 1;
        let is_new = process.number.is_none();
        let process_number = *process.number.get_or_insert_with(|| {
            self.next_process += 1;
            self.next_process - 1
        });
        let forked_from = self.serials.get(&process.forked_from).copied().filter(|_| is_new);
        let mut name = String::new();
        if is_new && forked_from.is_none() {
            name.clone_from(&self.program);
            process.name.clone_from(&name);
        }
        if let Some(parent) = forked_from {
            let parent = self
                .sources
                .iter()
                .flatten()
                .find(|s| s.stream.id == parent)
                .map(|s| (s.process, s.sequence));
            if let Some((parent, sequence)) = parent.filter(|&(parent, _)| parent != index) {
                let mut child = self.processes[index].take().expect("present above");
                if let Some(parent) = &self.processes[parent] {
                    child.inherit(parent, sequence);
                }
                self.processes[index] = Some(child);
            }
        }
        source.stream = Stream::new(stream);
        source.stream.set_after(self.emitted);
        let agent = terrace_trace::Agent::Cpu;
        let event = Event::Spawn {
            process: process_number,
            thread: thread_number,
            agent,
            forked_from,
            os_id: thread,
            name,
        };
        self.emit_global(number, &mut source.stream, event);
    }

    /// Appends a global event, delivering before it the batch of another thread that holds earlier ones.
    fn emit_global(&mut self, number: usize, stream: &mut Stream, event: Event) {
        if let Some((open, _)) = self.open
            && open != number
        {
            self.deliver_slot(open);
        }
        self.emitted += 1;
        stream.event(self.emitted, event);
        stream.set_after(self.emitted - 1);
        self.open.get_or_insert((number, self.emitted));
        // Batches after this one come after the event.
        stream.set_after(self.emitted);
    }

    /// Delivers a stream's batch, after any that holds an event it comes after.
    fn deliver(&mut self, number: usize, stream: &mut Stream) {
        if stream.is_empty() {
            return;
        }
        match self.open {
            Some((open, _)) if open == number => self.open = None,
            Some((open, first)) if first <= stream.after() => self.deliver_slot(open),
            _ => {}
        }
        self.ready.push_back(stream.take(&mut self.pool));
    }

    fn deliver_slot(&mut self, number: usize) {
        if let Some(mut source) = self.sources[number].take() {
            self.deliver(number, &mut source.stream);
            self.sources[number] = Some(source);
        }
        if self.open.is_some_and(|(open, _)| open == number) {
            self.open = None;
        }
    }

    /// Delivers what is decoded; what ends inside an instruction only if that is `all` there will be.
    fn flush_all(&mut self, all: bool) {
        for number in 0..(self.shared().header().slots_used.load(Acquire) as usize).min(SLOTS) {
            if self.sources[number].as_ref().is_some_and(|s| all || !s.stream.is_inside_instruction()) {
                self.deliver_slot(number);
            }
        }
    }

    /// Ends threads and processes that have ended. `false` when there was none.
    fn reap(&mut self) -> bool {
        let mut progress = false;
        for number in 0..(self.shared().header().slots_used.load(Acquire) as usize).min(SLOTS) {
            let ended = self.shared().slot(number).state.load(Acquire) & 0xff == 3;
            if ended && self.sources[number].is_some() && self.is_drained(number) {
                self.end_thread(number, Some(false));
                progress = true;
            }
        }
        for index in 0..self.processes.len() {
            let Some(process) = self.processes[index].as_mut() else { continue };
            let ended = process.has_ended();
            let replaced = !ended && process.exec.as_ref().is_some_and(|e| e.1) && {
                let (pid, place) = (process.pid, process.place);
                self.is_replaced(pid, place)
            };
            if !ended && !replaced {
                continue;
            }
            // Nothing is written any more; take what is left, then see whether anything had to wait.
            let slots: Vec<usize> = (0..SLOTS)
                .filter(|&n| self.sources[n].as_ref().is_some_and(|s| s.process == index))
                .collect();
            for &number in &slots {
                progress |= self.harvest(number);
            }
            if slots.iter().all(|&number| self.is_drained(number)) && !self.has_unknown_slots(index) {
                self.end_process(index, replaced, &slots);
                progress = true;
            }
        }
        progress
    }

    /// Whether another program registered under the same process id.
    fn is_replaced(&self, pid: u32, place: usize) -> bool {
        let used = (self.shared().header().processes_used.load(Acquire) as usize).min(PROCESSES);
        (0..used).any(|other| {
            let entry = self.shared().process(other);
            other != place && entry.state.load(Acquire) & 0xff == 2 && entry.seen_pid.load(Acquire) == pid
        })
    }

    /// Whether a slot of the process is valid but not yet in our list.
    fn has_unknown_slots(&self, index: usize) -> bool {
        let Some(process) = &self.processes[index] else { return false };
        let used = (self.shared().header().slots_used.load(Acquire) as usize).min(SLOTS);
        (0..used).any(|number| {
            let state = self.shared().slot(number).state.load(Acquire);
            self.sources[number].is_none() && state & 0xff >= 2 && (state >> 8) as usize == process.place + 1
        })
    }

    /// Whether everything the slot's owner wrote has been taken.
    fn is_drained(&self, number: usize) -> bool {
        let Some(source) = &self.sources[number] else { return true };
        let slot = self.shared().slot(number);
        if slot.tail.load(Acquire) != slot.head.load(Relaxed) {
            return false;
        }
        let tag = slot.current.load(Acquire) as u32;
        let base = self.processes[source.process].as_ref().map_or(0, |p| p.base);
        let written = written(tag, self.cursor(number), base).unwrap_or(0);
        let done = if source.partial.0 == tag { source.partial.1 } else { 0 };
        written <= done
    }

    /// Ends a stream: `Some(whether the process ends)`, or `None` if another program goes on with it.
    fn end_thread(&mut self, number: usize, exit: Option<bool>) {
        let Some(mut source) = self.sources[number].take() else { return };
        let known = source.stream.id != StreamId(u32::MAX);
        if let Some(process_ends) = exit.filter(|_| known) {
            if source.keeps {
                source.stream.flush_instructions();
            }
            self.emit_global(number, &mut source.stream, Event::Exit { process_ends });
        }
        if known {
            self.deliver(number, &mut source.stream);
        }
        let shared = self.shared();
        for chunk in 0..CHUNKS {
            let owner = &shared.chunk(chunk).owner;
            if owner.load(Relaxed) == number as u32 + 1 {
                owner.store(0, Release);
            }
        }
        shared.slot(number).state.store(0, Release);
        self.session.wake_producers();
    }

    fn end_process(&mut self, index: usize, replaced: bool, slots: &[usize]) {
        let Some(mut process) = self.processes[index].take() else { return };
        let exec = process.exec.take();
        let heir = exec.as_ref().filter(|_| replaced).map(|e| e.0);
        let stream_of = |this: &Collector, n: usize| this.sources[n].as_ref().map(|s| s.stream.id);
        // The process ends with the last of its streams; the one that replaced the program goes on.
        let mut others: Vec<usize> = slots.iter().copied().filter(|&n| stream_of(self, n) != heir).collect();
        others.sort_by_key(|&n| std::cmp::Reverse(stream_of(self, n)));
        for (i, &number) in others.iter().enumerate() {
            let last = heir.is_none() && i + 1 == others.len();
            self.processes[index] = Some(process);
            self.end_thread(number, Some(last));
            process = self.processes[index].take().expect("put there above");
        }
        if let Some(&number) = slots.iter().find(|&&n| self.sources[n].is_some()) {
            self.processes[index] = Some(process);
            self.end_thread(number, None);
            process = self.processes[index].take().expect("put there above");
        }
        if self.options.allocations && !process.reports_allocations && !replaced {
            self.warn(format!(
                "{}: allocations are not recorded, because the program is statically linked or does not load \
                 preload libraries",
                process.name
            ));
        }
        let family = process.family;
        let (pid, number, threads) = (process.pid, process.number, process.next_thread);
        self.places[process.place] = None;
        let shared = self.shared();
        for number in 0..SLOTS {
            // A slot claimed by a thread that was killed before it said so.
            let state = &shared.slot(number).state;
            let claimed = state.load(Relaxed);
            if claimed != 0 && (claimed >> 8) as usize == process.place + 1 && self.sources[number].is_none()
            {
                state.store(0, Release);
            }
        }
        shared.process(process.place).seen_pid.store(0, Relaxed);
        shared.process(process.place).state.store(0, Release);
        match exec {
            Some((_, false, name)) => self.warn(format!(
                "{name}: not recorded, because the program that started it is statically linked, or started it \
                 by a direct system call, or can no longer see the recorder's files, or exec-following is off, \
                 or it is no x86-64 program or one that gains privileges"
            )),
            Some((stream, true, name)) if replaced => {
                self.discover();
                let successor = self.processes.iter_mut().flatten().find(|p| p.pid == pid);
                if let Some(successor) = successor {
                    successor.inherited = number.map(|number| (stream, number, threads));
                    successor.name = name;
                }
            }
            _ => {}
        }
        if !self.processes.iter().flatten().any(|p| p.family == family) {
            for block in 0..BLOCKS {
                let owner = shared.block_owner(block);
                if owner.load(Relaxed) == family {
                    self.blocks.forget(block * BLOCK_ENTRIES..(block + 1) * BLOCK_ENTRIES);
                    owner.store(0, Release);
                }
            }
        }
    }

    /// When a sequence number is waited for that no living thread is about to write: its owner was killed.
    fn pass_over_missing(&mut self) -> bool {
        if !self.sources.iter().flatten().any(|source| self.next_sequence < source.needs) {
            return false;
        }
        let shared = self.shared();
        let used = (shared.header().slots_used.load(Acquire) as usize).min(SLOTS);
        let claiming = (0..used).any(|number| {
            let Some(source) = &self.sources[number] else {
                return shared.slot(number).state.load(SeqCst) != 0;
            };
            let dead = self.processes[source.process].as_ref().is_none_or(|p| p.is_dead);
            !dead && shared.slot(number).claiming.load(SeqCst) != 0
        });
        if claiming {
            return false;
        }
        self.discover();
        if !self.harvest_all() {
            self.history[self.next_sequence as usize % HISTORY] = self.emitted;
            self.next_sequence += 1;
        }
        true
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

/// Records written in the chunk of this tag, from a cursor in a process's mapping; `None` if the cursor does not lie
/// in it.
fn written(tag: u32, cursor: u64, base: u64) -> Option<usize> {
    if tag == 0 {
        return None;
    }
    let start = base + Shared::data_offset(untag(tag)) as u64;
    let bytes = cursor.checked_sub(start).filter(|&bytes| bytes <= CHUNK_BYTES as u64)?;
    Some(bytes as usize / RECORD_BYTES)
}

#[cfg(test)]
mod tests {
    use crate::{RecordOptions, record};
    use terrace_trace::EventSource;

    /// A thread that always has a full queue, because we read slower than it writes.
    #[test]
    fn batches_do_not_pile_up() {
        let script = "i=0; while [ $i -lt 8000 ]; do i=$((i + 1)); done";
        let command = ["/bin/dash", "-c", script].map(std::ffi::OsString::from);
        let mut recording = record(&command, &RecordOptions::default()).unwrap();
        let mut most = 0;
        while recording.next_batch().unwrap().is_some() {
            most = most.max(recording.collector.ready.len());
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        assert!(recording.accesses() > 100 * terrace_trace::BATCH_ACCESSES as u64);
        // A chunk each of the thread and of what else was looked at, and what stood in a batch before.
        assert!(most <= 4, "{most} batches at once");
    }
}
