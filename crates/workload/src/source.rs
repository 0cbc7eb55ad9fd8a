//! A program's threads as one [`EventSource`]: round robin, one batch each.

use crate::WorkloadError;
use crate::any::{AnyProgram, AnyThread, Emits};
use crate::emitter::Emitter;
use crate::layout::Layout;
use crate::memory::{Contents, Memory};
use crate::program::Progress;
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

struct Stream {
    thread: Box<dyn AnyThread>,
    state: State,
    begun: bool,
}

/// Emits the accesses of a program, with values from `C`.
pub(crate) struct StreamSource<C> {
    program: Box<dyn AnyProgram>,
    header: Header,
    /// Makes the contents, at the first batch: preparing input data can take seconds and can fail.
    prepare: fn(&dyn AnyProgram) -> Result<C, WorkloadError>,
    emitter: Option<Emitter<C>>,
    streams: Vec<Stream>,
    next: usize,
    /// The run begins with the next batch of stream 0.
    announce_run: bool,
    emitted: u64,
    pool: BatchPool,
}

impl<C: Contents> StreamSource<C> {
    pub fn new(
        program: Box<dyn AnyProgram>,
        header: Header,
        prepare: fn(&dyn AnyProgram) -> Result<C, WorkloadError>,
    ) -> StreamSource<C> {
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

impl<C: Contents> EventSource for StreamSource<C>
where
    dyn AnyThread: Emits<C>,
{
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        if self.streams.is_empty() {
            let contents =
                (self.prepare)(&*self.program).map_err(|error| SourceError::Malformed(error.to_string()))?;
            self.emitter = Some(Emitter::new(contents));
            self.streams = (0..self.program.threads())
                .map(|i| Stream { thread: self.program.thread(i), state: State::Ready, begun: false })
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
                let (name, agent) = (self.program.info().name, self.program.agent(index as u32));
                emitter.event(spawn(index as u32, name, agent));
                if index == 0 {
                    announce_layout(self.program.layout(), emitter);
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
            if stream.state == State::Ready {
                stream.state = match stream.thread.emit(emitter) {
                    Progress::Working | Progress::Blocked => State::Ready,
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
fn announce_layout<C: Contents>(layout: &Layout, emitter: &mut Emitter<C>) {
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
