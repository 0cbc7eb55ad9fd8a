//! The lines that a copy moves.
//!
//! A copying thread issues one line after the other and may have as many outstanding as its core has line buffers; a
//! buffer is free again when memory has taken the line at its new place. So what one thread can move follows from the
//! latencies of both places, what several can from the devices. Stores go past the caches without reading what they replace,
//! as those of `rep movs` do, but a line must be owned before it is written, so a buffer is kept for the way to its
//! controller and back. Lines that a cache holds are taken from there. Where caches have virtual names the memory controller
//! copies, from memory to memory: lines in caches keep their names, and are written back to wherever their page lies then.

use super::State;
use crate::machine::FULL;
use crate::machine::Shared;
use crate::memory::Initiator;
use std::collections::VecDeque;
use terrace_model::{LINE_BYTES, Line, TierId, Time};

/// Lines that a thread copies before another may go on.
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
        copy
    }

    /// When its next line is issued; none when all were.
    pub fn next(&self) -> Option<Time> {
        self.threads.iter().filter(|thread| !thread.chunks.is_empty()).map(|thread| thread.now).min()
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

    /// Lets the thread that is furthest behind copy a piece. Returns which it was, from when on, and how long it took.
    pub fn step<const F: u8>(&mut self, shared: &mut Shared, state: &State) -> Option<(usize, Time, Time)> {
        let ready = self.threads.iter_mut().enumerate().filter(|(_, thread)| !thread.chunks.is_empty());
        let (at, thread) = ready.min_by_key(|(_, thread)| thread.now)?;
        let chunk = thread.chunks.front_mut()?;
        let begin = thread.arrived;
        let pace = state.costs.copy_line.at(state.cycle);
        let issued = if chunk.swap { pace.times(2) } else { pace };
        let lines = if F == FULL { PIECE.min(chunk.lines) } else { chunk.lines };
        let mut line = 0;
        // Every buffer's turn takes as long as its turn before, where devices are not simulated and tell no lines apart.
        let round = thread.buffers.len() as u64;
        let mut last_round = None;
        while line < lines {
            if F != FULL
                && line.is_multiple_of(round)
                && let Some(before) = last_round.replace(thread.now)
                && line >= 2 * round
            {
                let rounds = (lines - line) / round;
                let span = (thread.now - before).times(rounds);
                thread.now += span;
                thread.arrived += span;
                thread.buffers.iter_mut().for_each(|free| *free += span);
                line += rounds * round;
                if line == lines {
                    break;
                }
            }
            let buffer = thread.next_buffer;
            // Of a pair that changes places both lines are under way.
            let other = if chunk.swap { (buffer + 1) % thread.buffers.len() } else { buffer };
            thread.next_buffer = (other + 1) % thread.buffers.len();
            let now = thread.now.max(thread.buffers[buffer]).max(thread.buffers[other]);
            let from = chunk.from.map(|from| from + line);
            let done = if F == FULL {
                copy_line(shared, from, chunk.to + line, chunk.swap, now)
            } else {
                copy_line_untimed(shared, state, from, chunk.to + line, chunk.swap, now)
            };
            thread.buffers[buffer] = done;
            thread.buffers[other] = done;
            thread.arrived = thread.arrived.max(done);
            thread.now = now + issued;
            line += 1;
        }
        chunk.from = chunk.from.map(|from| from + lines);
        chunk.to += lines;
        chunk.lines -= lines;
        if chunk.lines == 0 {
            thread.chunks.pop_front();
        }
        Some((at, begin, thread.arrived - begin))
    }
}

/// Through caches and devices: when memory has taken the line, or both of a swap.
pub(crate) fn copy_line(shared: &mut Shared, from: Option<Line>, to: Line, swap: bool, now: Time) -> Time {
    let Shared { caches, memory, timing, virtual_caches, .. } = shared;
    let Some(from) = from else { return memory.write(memory.page_copy(to, now, Initiator::Zero)) };
    let mut is_cached = |line: Line| !*virtual_caches && caches.discard(line.in_caches());
    let cached = is_cached(from);
    if !cached
        && !swap
        && let Some(done) = memory.transfer(memory.page_copy(from, now, Initiator::Copy), to)
    {
        return done;
    }
    let mut fetch = |line: Line, cached: bool| {
        if cached { now + timing.llc } else { memory.read(memory.page_copy(line, now, Initiator::Copy)) }
    };
    let read = fetch(from, cached);
    if swap {
        // Both lines are in registers, and owned, before either is stored.
        let cached = is_cached(to);
        let read = read.max(fetch(to, cached));
        let copy = memory.page_copy(to, read, Initiator::Copy);
        let one = memory.write(copy);
        return one.max(memory.write(copy.for_line(from)));
    }
    if *virtual_caches {
        // The controller copies: no cache knows the line by its frame, and there is nothing to own.
        return memory.write(memory.page_copy(to, read, Initiator::Copy));
    }
    let owned = read + timing.llc + memory.round_trip(to);
    memory.write(memory.page_copy(to, owned, Initiator::Copy))
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
