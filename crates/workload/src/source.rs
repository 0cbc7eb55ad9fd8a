//! A program's threads as one [`EventSource`]: round robin, one batch each.

use crate::WorkloadError;
use crate::emitter::Emitter;
use crate::memory::{Contents, Memory};
use crate::program::{Kernel, Program, Progress};
use crate::thread::Thread;
use std::sync::Arc;
use terrace_model::AddressRange;
use terrace_trace::{
    Agent, Batch, BatchPool, Event, EventSource, Header, MapKind, MarkKind, Protection, SourceError, StreamId,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// At a barrier; true where it is the one at which the run begins.
    Waiting(bool),
    /// The stream's kernel is done, its exit not yet reported.
    Done,
    Exited,
}

struct Stream<P: Program> {
    thread: Thread<P>,
    state: State,
    begun: bool,
}

/// Emits the accesses of program `P`, with values from `C`.
pub(crate) struct StreamSource<P: Program, C, F> {
    program: P,
    header: Header,
    /// Makes the contents, at the first batch: preparing input data can take seconds and can fail.
    prepare: F,
    emitter: Option<Emitter<C>>,
    streams: Vec<Stream<P>>,
    next: usize,
    /// The run begins with the next batch of stream 0.
    announce_run: bool,
    emitted: u64,
    pool: BatchPool,
}

impl<P, C, F> StreamSource<P, C, F>
where
    P: Program,
    C: Contents,
    F: Fn(&P) -> Result<C, WorkloadError> + Send,
{
    pub fn new(program: P, header: Header, prepare: F) -> StreamSource<P, C, F> {
        StreamSource {
            program,
            header,
            prepare,
            emitter: None,
            streams: Vec::new(),
            next: 0,
            announce_run: false,
            emitted: 0,
            pool: BatchPool::default(),
        }
    }

    /// The next stream that can go on, all barriers considered; `None` when all have ended.
    fn choose(&mut self) -> Option<usize> {
        let count = self.streams.len();
        loop {
            let order = (0..count).map(|i| (self.next + i) % count);
            let mut ready = order.clone().filter(|&i| match self.streams[i].state {
                State::Ready => true,
                // The first thread's exit ends the process, so it comes last.
                State::Done => i != 0 || self.streams[1..].iter().all(|s| s.state == State::Exited),
                _ => false,
            });
            if let Some(index) = ready.next() {
                return Some(index);
            }
            let mut waiting = false;
            for stream in &mut self.streams {
                if let State::Waiting(run) = stream.state {
                    waiting = true;
                    self.announce_run |= run;
                    stream.state = State::Ready;
                }
            }
            if !waiting {
                return None;
            }
            if let Some(emitter) = &mut self.emitter {
                emitter.order();
            }
            self.next = 0;
        }
    }
}

impl<P, C, F> EventSource for StreamSource<P, C, F>
where
    P: Program,
    C: Contents,
    F: Fn(&P) -> Result<C, WorkloadError> + Send,
{
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        if self.streams.is_empty() {
            let contents =
                (self.prepare)(&self.program).map_err(|error| SourceError::Malformed(error.to_string()))?;
            self.emitter = Some(Emitter::new(contents));
            self.streams = (0..self.program.threads())
                .map(|i| Stream { thread: Thread::new(&self.program, i), state: State::Ready, begun: false })
                .collect();
        }
        loop {
            let Some(index) = self.choose() else { return Ok(None) };
            let recycled = self.pool.take();
            let Some(emitter) = &mut self.emitter else { return Ok(None) };
            let stream = &mut self.streams[index];
            // The first thread's exit, after those of all others.
            let all_ended = stream.state == State::Done;
            if all_ended {
                emitter.order();
            }
            emitter.begin(StreamId(index as u32), recycled);
            if !std::mem::replace(&mut stream.begun, true) {
                emitter.event(spawn(index as u32, P::INFO.name, self.program.agent(index as u32)));
                if index == 0 {
                    announce_layout(&self.program, emitter);
                    let name = "init".to_owned();
                    emitter.event(Event::Mark { kind: MarkKind::Phase, name, value: 0 });
                }
            }
            if index == 0 && std::mem::take(&mut self.announce_run) {
                let name = "run".to_owned();
                emitter.event(Event::Mark { kind: MarkKind::Phase, name: name.clone(), value: 0 });
                // Global, so every stream's run comes after it.
                emitter.event(Event::Mark { kind: MarkKind::RegionBegin, name, value: 0 });
            }
            while stream.state == State::Ready && !emitter.is_full() {
                stream.state = match stream.thread.step(emitter) {
                    Progress::Working => State::Ready,
                    Progress::Blocked => break,
                    Progress::Barrier => State::Waiting(false),
                    Progress::Run => State::Waiting(true),
                    Progress::Done => State::Done,
                };
            }
            if matches!(stream.state, State::Waiting(_)) && self.program.threads() > 1 {
                // Later batches of all threads come after it.
                let name = String::new();
                emitter.event(Event::Mark { kind: MarkKind::Barrier, name, value: 0 });
            }
            let alone = self.streams.len() == 1;
            let stream = &mut self.streams[index];
            // The first thread's exit has a batch of its own: its accesses wait for no other thread.
            if stream.state == State::Done && (index != 0 || alone || all_ended) {
                emitter.event(Event::Exit { process_ends: index == 0 });
                stream.state = State::Exited;
            }
            self.next = (index + 1) % self.streams.len();
            let batch = emitter.take();
            if batch.is_empty() {
                continue;
            }
            self.emitted += batch.len() as u64;
            return Ok(Some(self.pool.hand_out(batch)));
        }
    }

    fn progress(&self) -> Option<f64> {
        let expected = self.header.expected_accesses.filter(|n| *n > 0)?;
        Some((self.emitted as f64 / expected as f64).min(1.0))
    }
}

fn spawn(thread: u32, name: &str, agent: Agent) -> Event {
    let name = if thread == 0 { name.to_owned() } else { String::new() };
    Event::Spawn { process: 0, thread, agent, forked_from: None, os_id: thread + 1, name }
}

/// The mappings and data structures that exist before the first access.
fn announce_layout<P: Program, C: Contents>(program: &P, emitter: &mut Emitter<C>) {
    let layout = program.layout();
    let mut map = |range: AddressRange, kind, name: &str| {
        emitter.event(Event::Map { range, kind, protection: Protection::READ_WRITE, name: name.to_owned() });
    };
    if let Some(heap) = layout.heap() {
        map(heap, MapKind::Heap, "[heap]");
    }
    for (range, kind) in &layout.maps {
        map(*range, *kind, "");
    }
    for (site, name) in layout.sites.iter().enumerate() {
        emitter.event(Event::Site { site: site as u32, name: (*name).to_owned() });
    }
    for (object, structure) in layout.structures.iter().enumerate() {
        let (site, range) = (structure.site, structure.range);
        emitter.event(Event::Alloc { object: object as u64 + 1, site, range });
    }
}
