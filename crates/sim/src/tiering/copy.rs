//! The lines that a copy moves.
//!
//! A copying thread issues one line after the other and may have as many outstanding as it has line buffers; a buffer is
//! free again when memory has taken the line at its new place. So what one thread can move follows from the latencies of
//! both places, what several can from the devices. Stores go past the caches without reading what they replace, as those of
//! `rep movs` do, but a line must be owned before it is written, so a buffer is kept for the way to its controller and back.
//! The two lines of a pair that changes places are loaded and stored through the cache, as the kernel does that word by
//! word: their buffers are free when both lines have come, and caches write them back. Devices see loads and stores of
//! threads that share a copy in the order of time. Lines that a cache holds are taken from there. Where caches have virtual
//! names the memory controller copies, from memory to memory: lines in caches keep their names, and are written back to
//! wherever their page lies then.

use super::State;
use crate::machine::FULL;
use crate::machine::Shared;
use crate::memory::Initiator;
use std::collections::VecDeque;
use terrace_model::{LINE_BYTES, Line, TierId, Time};

/// Lines of one step. A thread that copies alone issues as many; those of several take as many loads and stores in turn.
const PIECE: u64 = 16;

/// A run of lines for one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// First line of the source; none to write zeros.
    pub from: Option<Line>,
    /// First line of the destination.
    pub to: Line,
    pub lines: u64,
    /// What lies at the destination goes to the source.
    pub swap: bool,
}

impl Chunk {
    /// Lines of a guest's frames by where they lie in the machine: as many chunks as there are pages of the host between
    /// them. What has no memory yet gets it.
    pub fn in_machine(self, shared: &mut Shared) -> Vec<Chunk> {
        /// Lines of a base page.
        const PIECE: u64 = Line::PER_FRAME;
        let Some(hypervisor) = &mut shared.hypervisor else { return vec![self] };
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut at = 0;
        while at < self.lines {
            // Both ends begin at the same line of their pages.
            let lines = (PIECE - (self.to + at).0 % PIECE).min(self.lines - at);
            let from = self.from.map(|from| hypervisor.line(from + at));
            let to = hypervisor.line(self.to + at);
            at += lines;
            match chunks.last_mut() {
                Some(last)
                    if last.to + last.lines == to && last.from.map(|first| first + last.lines) == from =>
                {
                    last.lines += lines;
                }
                _ => chunks.push(Chunk { from, to, lines, ..self }),
            }
        }
        chunks
    }
}

/// One copying thread.
#[derive(Clone, Debug)]
struct CopyThread {
    now: Time,
    chunks: VecDeque<Chunk>,
    /// When each line buffer is free.
    buffers: Box<[Time]>,
    next_buffer: usize,
    /// When the last line so far has arrived.
    arrived: Time,
    /// Until when its time is charged.
    charged: Time,
    /// Lines that have come and are not yet stored.
    loaded: Vec<Loaded>,
    /// When it loads or stores next; [`HELD`] when all is done.
    next: Time,
}

/// A line that a thread has loaded.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    /// When it can be stored.
    at: Time,
    to: Line,
    by: Initiator,
    /// The line buffer that it holds until memory has taken it; none where it waits in the cache.
    buffer: Option<usize>,
}

/// A time for what has to wait until another line is stored.
const HELD: Time = Time(u64::MAX);

impl CopyThread {
    /// The line buffers of its next line, the second one for the other line of a pair.
    fn next_buffers(&self, swap: bool) -> (usize, usize) {
        let one = self.next_buffer;
        (one, if swap { (one + 1) % self.buffers.len() } else { one })
    }

    /// Takes the line buffers of its next line.
    fn take_buffers(&mut self, swap: bool) -> (usize, usize) {
        let (one, other) = self.next_buffers(swap);
        self.next_buffer = (other + 1) % self.buffers.len();
        (one, other)
    }

    /// Time at which the thread loads its next line, if none that it has loaded is stored before.
    fn next_load(&self) -> Time {
        let Some(chunk) = self.chunks.front() else { return HELD };
        let (one, other) = self.next_buffers(chunk.swap);
        self.now.max(self.buffers[one]).max(self.buffers[other])
    }

    /// Time at which the thread stores the next of its loaded lines, and the index of that line.
    fn next_store(&self) -> Option<(Time, usize)> {
        self.loaded.iter().enumerate().map(|(at, line)| (line.at, at)).min()
    }

    /// The next `lines` of its chunk are under way.
    fn pass(&mut self, lines: u64) {
        let Some(chunk) = self.chunks.front_mut() else { return };
        chunk.from = chunk.from.map(|from| from + lines);
        chunk.to += lines;
        chunk.lines -= lines;
        if chunk.lines == 0 {
            self.chunks.pop_front();
        }
    }
}

/// A copy under way, shared by threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Copy {
    threads: Vec<CopyThread>,
}

impl Copy {
    /// Shares `chunks` among `threads` threads that begin at `now`: whole chunks where there are enough, else parts of
    /// each.
    pub fn new(state: &State, chunks: &[Chunk], threads: usize, now: Time) -> Copy {
        // The first thread is the one that carries out the order.
        let begins = if threads > 1 { now + state.costs.copy_thread } else { now };
        let mut copy = Copy::default();
        for _ in 0..threads {
            copy.threads.push(CopyThread {
                now: begins,
                chunks: VecDeque::new(),
                buffers: vec![Time::ZERO; state.line_buffers].into(),
                next_buffer: 0,
                arrived: now,
                charged: now,
                loaded: Vec::new(),
                next: begins,
            });
        }
        if chunks.len() >= threads {
            for (at, chunk) in chunks.iter().enumerate() {
                copy.threads[at * threads / chunks.len()].chunks.push_back(*chunk);
            }
        } else {
            for chunk in chunks {
                let share = chunk.lines.div_ceil(threads as u64);
                for (at, thread) in copy.threads.iter_mut().enumerate() {
                    let begin = (share * at as u64).min(chunk.lines);
                    let lines = share.min(chunk.lines - begin);
                    if lines > 0 {
                        let from = chunk.from.map(|from| from + begin);
                        thread.chunks.push_back(Chunk { from, to: chunk.to + begin, lines, ..*chunk });
                    }
                }
            }
        }
        for thread in copy.threads.iter_mut().filter(|thread| thread.chunks.is_empty()) {
            thread.next = HELD;
        }
        copy
    }

    /// When its next line is issued; none when all were, and those of several threads stored.
    pub fn next(&self) -> Option<Time> {
        self.threads.iter().map(|thread| thread.next).min().filter(|next| *next != HELD)
    }

    /// When all lines have arrived, those issued so far at least.
    pub fn arrived(&self) -> Time {
        self.threads.iter().map(|thread| thread.arrived).max().unwrap_or_default()
    }

    /// CPU time of the threads from `begin` on.
    pub fn time_since(&self, begin: Time) -> Time {
        self.threads
            .iter()
            .filter(|thread| thread.arrived > begin)
            .fold(Time::ZERO, |sum, thread| sum + thread.arrived.saturating_sub(begin))
    }

    /// Copies a piece: lines of a thread that copies alone, else loads and stores of all threads as their time comes, as
    /// devices serve requests in the order in which they are asked.
    pub fn step<const F: u8>(&mut self, shared: &mut Shared, state: &State) {
        let in_order = F == FULL && self.threads.len() > 1;
        let events = if in_order { PIECE } else { 1 };
        for _ in 0..events {
            let Some(thread) = self.threads.iter_mut().min_by_key(|thread| thread.next) else { return };
            match thread.next {
                HELD => return,
                _ if in_order => thread.event(shared, state),
                _ => thread.piece::<F>(shared, state),
            }
        }
    }

    /// Leaves out all that is not under way: its destination is no longer the order's.
    pub fn stop(&mut self) {
        for thread in &mut self.threads {
            thread.chunks.clear();
            thread.loaded.clear();
            thread.next = HELD;
        }
    }

    /// What its threads have spent and was not charged to them: which thread, from when on, how long.
    pub fn charges(&mut self) -> impl Iterator<Item = (usize, Time, Time)> {
        self.threads.iter_mut().enumerate().filter(|(_, thread)| thread.arrived > thread.charged).map(
            |(at, thread)| {
                let begin = std::mem::replace(&mut thread.charged, thread.arrived);
                (at, begin, thread.arrived - begin)
            },
        )
    }
}

impl CopyThread {
    /// The thread's next load or store.
    fn event(&mut self, shared: &mut Shared, state: &State) {
        let now = self.next;
        match self.next_store() {
            Some((at, line)) if at == now => {
                let Loaded { to, by, buffer, .. } = self.loaded.swap_remove(line);
                let arrived = shared.memory.write(shared.memory.page_copy(to, now, by));
                self.arrived = self.arrived.max(arrived);
                if let Some(buffer) = buffer {
                    self.buffers[buffer] = arrived;
                }
            }
            _ => self.load_next(shared, state, now),
        }
        let store = self.next_store().map_or(HELD, |(at, _)| at);
        self.next = self.next_load().min(store);
    }

    fn load_next(&mut self, shared: &mut Shared, state: &State, now: Time) {
        let Some(chunk) = self.chunks.front().copied() else { return };
        let (one, other) = self.take_buffers(chunk.swap);
        let pace = state.costs.copy_line.at(state.cycle);
        self.now = now + if chunk.swap { pace.times(2) } else { pace };
        match chunk.from {
            Some(from) if chunk.swap => {
                let came = load_pair(shared, from, chunk.to, now);
                let held = shared.controller_copies;
                let free = if held { HELD } else { came };
                (self.buffers[one], self.buffers[other]) = (free, free);
                for (to, buffer) in [(chunk.to, one), (from, other)] {
                    self.loaded.push(Loaded {
                        at: came,
                        to,
                        by: Initiator::Copy,
                        buffer: held.then_some(buffer),
                    });
                }
            }
            from => match load(shared, from, chunk.to, now) {
                Load::Moved(arrived) => {
                    self.buffers[one] = arrived;
                    self.arrived = self.arrived.max(arrived);
                }
                Load::Came(came) => {
                    self.buffers[one] = HELD;
                    self.loaded.push(Loaded {
                        at: came,
                        to: chunk.to,
                        by: stored_by(from),
                        buffer: Some(one),
                    });
                }
            },
        }
        self.pass(1);
    }

    /// The next lines of its chunk, all of it where devices are not simulated.
    fn piece<const F: u8>(&mut self, shared: &mut Shared, state: &State) {
        let Some(chunk) = self.chunks.front().copied() else { return };
        let pace = state.costs.copy_line.at(state.cycle);
        let issued = if chunk.swap { pace.times(2) } else { pace };
        let lines = if F == FULL { PIECE.min(chunk.lines) } else { chunk.lines };
        let mut line = 0;
        // Every buffer's turn takes as long as its turn before, where devices are not simulated and tell no lines apart.
        let round = self.buffers.len() as u64;
        let mut last_round = None;
        while line < lines {
            if F != FULL
                && line.is_multiple_of(round)
                && let Some(before) = last_round.replace(self.now)
                && line >= 2 * round
            {
                let rounds = (lines - line) / round;
                let span = (self.now - before).times(rounds);
                self.now += span;
                self.arrived += span;
                self.buffers.iter_mut().for_each(|free| *free += span);
                line += rounds * round;
                if line == lines {
                    break;
                }
            }
            // Both lines of a pair that changes places are under way.
            let (buffer, other) = self.take_buffers(chunk.swap);
            let now = self.now.max(self.buffers[buffer]).max(self.buffers[other]);
            let from = chunk.from.map(|from| from + line);
            let (free, arrived) = if F != FULL {
                let arrived = copy_line_untimed(shared, state, from, chunk.to + line, chunk.swap, now);
                (arrived, arrived)
            } else if let (true, Some(from)) = (chunk.swap, from) {
                swap_lines(shared, from, chunk.to + line, now)
            } else {
                let arrived = copy_line(shared, from, chunk.to + line, now);
                (arrived, arrived)
            };
            self.buffers[buffer] = free;
            self.buffers[other] = free;
            self.arrived = self.arrived.max(arrived);
            self.now = now + issued;
            line += 1;
        }
        self.pass(lines);
        self.next = if self.chunks.is_empty() { HELD } else { self.now };
    }
}

/// What became of a line that a copy asked for.
enum Load {
    /// The device has moved the line by itself, by this time.
    Moved(Time),
    /// The line can be stored from this time on.
    Came(Time),
}

/// Through caches and devices: when memory has taken the line.
pub(crate) fn copy_line(shared: &mut Shared, from: Option<Line>, to: Line, now: Time) -> Time {
    match load(shared, from, to, now) {
        Load::Moved(arrived) => arrived,
        Load::Came(came) => shared.memory.write(shared.memory.page_copy(to, came, stored_by(from))),
    }
}

/// The initiator of a line's store: the copy of another line, or zeroing.
fn stored_by(from: Option<Line>) -> Initiator {
    if from.is_some() { Initiator::Copy } else { Initiator::Zero }
}

/// Loads a line that is stored at `to`, and owns its new place.
fn load(shared: &mut Shared, from: Option<Line>, to: Line, now: Time) -> Load {
    let Some(from) = from else { return Load::Came(now) };
    let cached = drop_cached(shared, from);
    let memory = &mut shared.memory;
    if !cached && let Some(done) = memory.transfer(memory.page_copy(from, now, Initiator::Copy), to) {
        return Load::Moved(done);
    }
    let read = fetch(shared, from, cached, now);
    // No cache knows a line that the controller copies by its frame, and there is nothing to own.
    let own =
        if shared.controller_copies { Time::ZERO } else { shared.timing.llc + shared.memory.round_trip(to) };
    Load::Came(read + own)
}

/// Loads two lines that change places: when both have come. The kernel loads both and stores each at the other's place.
/// Stores find their lines in the cache then, so that line buffers are free from that time on; caches write them back.
fn load_pair(shared: &mut Shared, one: Line, other: Line, now: Time) -> Time {
    let cached = drop_cached(shared, one);
    let read = fetch(shared, one, cached, now);
    let cached = drop_cached(shared, other);
    read.max(fetch(shared, other, cached, now))
}

/// Two lines that change places: when the line buffers of both are free, and when memory has taken both.
fn swap_lines(shared: &mut Shared, one: Line, other: Line, now: Time) -> (Time, Time) {
    let came = load_pair(shared, one, other, now);
    let memory = &mut shared.memory;
    let copy = memory.page_copy(other, came, Initiator::Copy);
    let written = memory.write(copy).max(memory.write(copy.for_line(one)));
    (if shared.controller_copies { written } else { came }, written)
}

/// Drops the line from the caches, by the name of its frame: whether one held it. Lines with virtual names were written
/// back before.
fn drop_cached(shared: &mut Shared, line: Line) -> bool {
    !shared.virtual_caches && shared.caches.discard(line.in_caches())
}

/// When a line that a copy reads has come, from a cache or from memory.
fn fetch(shared: &mut Shared, line: Line, cached: bool, now: Time) -> Time {
    let Shared { memory, timing, .. } = shared;
    if cached { now + timing.llc } else { memory.read(memory.page_copy(line, now, Initiator::Copy)) }
}

/// Where devices are not simulated: idle latencies, and no faster than the slower tier's bandwidth.
fn copy_line_untimed(
    shared: &Shared,
    state: &State,
    from: Option<Line>,
    to: Line,
    swap: bool,
    now: Time,
) -> Time {
    let tier = |line: Line| -> TierId { shared.memory.tier_of_line(line) };
    let buffers = state.line_buffers as f64;
    let destination = state.machine.tier(tier(to));
    let mut slowest = destination.write_bandwidth.0;
    let mut latency = Time::ZERO;
    if let Some(from) = from {
        let source = state.machine.tier(tier(from));
        latency = source.read_latency;
        slowest = slowest.min(source.read_bandwidth.0);
    }
    if swap {
        slowest /= 2.0;
    }
    let shared_by_buffers = Time::from_nanos_f64(LINE_BYTES as f64 * 1e9 / slowest.max(1.0) * buffers);
    now + latency.max(shared_by_buffers)
}
