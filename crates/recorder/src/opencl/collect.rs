//! From messages to batches: two streams, the host's thread and the GPU.
//!
//! Buffers get addresses of their own in one address space. The collector holds back what the host does until the next
//! kernel begins: the names of data structures are the kernel's arguments, which are known only then. What the host does to
//! a buffer that no kernel has taken yet is held back until a kernel takes it, because pages are placed by the name of their
//! data structure. Where that would move an access beside a kernel, or away from one, nothing is held back: such a buffer is
//! announced later.
//!
//! What the host does between enqueueing a kernel and blocking for it overlaps the kernel; marks say so (`queues.rs`).

use super::deed::Deed;
use super::flow::Flow;
use super::queues::Queues;
use super::warps::{LANES, Lane, LaneAccess, Step, run};
use super::wire::{Message, Received};
use crate::symbols::Symbols;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use terrace_model::AddressRange;
use terrace_trace::{AccessKind, Agent, Batch, BatchBuilder, Event, MapKind, MarkKind, Protection, StreamId};

/// The first buffer's address. Every buffer begins at a multiple of 2 MiB, so that pages of that size can back it.
const FIRST_ADDRESS: u64 = 0x2000_0000_0000;
const ALIGNMENT: u64 = 2 << 20;

/// Bits of the offset within a buffer in an address of Oclgrind; the buffer's number lies above.
const OFFSET_BITS: u32 = 48;

/// What a host's copy moves at once, and its instructions: a vectorized loop.
const HOST_BYTES: u64 = 64;
const HOST_INSTRUCTIONS: u64 = 4;

const HOST: StreamId = StreamId(0);
const GPU: StreamId = StreamId(1);

/// A buffer.
#[derive(Debug)]
struct Buffer {
    range: AddressRange,
    /// File and address of the code that allocated it.
    caller: (String, u64),
    name: Option<String>,
}

/// Makes batches of messages.
#[derive(Debug)]
pub struct Collector {
    /// All buffers by their object's number, from 1.
    buffers: Vec<Buffer>,
    /// The living ones by context and number.
    living: HashMap<(u16, u16), u64>,
    next_address: u64,
    held: Vec<Deed>,
    queues: Queues,
    /// Buffers that are mapped and have no name yet.
    unnamed: Vec<u64>,
    sites: HashMap<String, u32>,
    symbols: Symbols,
    lanes: Vec<Lane>,
    /// Instructions of each work-item after its last access.
    rest: Vec<u32>,
    flow: Flow,
    stream: BatchBuilder,
    on: StreamId,
    sequence: u64,
    ready: VecDeque<Arc<Batch>>,
    /// Accesses so far, and how many are wanted.
    pub accesses: u64,
    limit: u64,
    /// Accesses outside of any buffer, which Oclgrind reports with kernel and line.
    pub outside: u64,
    /// Mistakes that Oclgrind reported.
    pub problems: u64,
    /// Kernels that began.
    pub kernels: u64,
    program: String,
    begun: bool,
    ended: bool,
}

impl Collector {
    /// A collector to which nothing has happened yet.
    pub fn new(program: &str, limit: Option<u64>) -> Collector {
        Collector {
            buffers: Vec::new(),
            living: HashMap::new(),
            next_address: FIRST_ADDRESS,
            held: Vec::new(),
            queues: Queues::default(),
            unnamed: Vec::new(),
            sites: HashMap::new(),
            symbols: Symbols::default(),
            lanes: Vec::new(),
            rest: Vec::new(),
            flow: Flow::default(),
            stream: BatchBuilder::new(HOST),
            on: HOST,
            sequence: 0,
            ready: VecDeque::new(),
            accesses: 0,
            limit: limit.unwrap_or(u64::MAX),
            outside: 0,
            problems: 0,
            kernels: 0,
            program: program.to_owned(),
            begun: false,
            ended: false,
        }
    }

    /// The next batch that is complete.
    pub fn take(&mut self) -> Option<Arc<Batch>> {
        self.ready.pop_front()
    }

    /// Whether as many accesses were recorded as are wanted.
    pub fn is_full(&self) -> bool {
        self.accesses >= self.limit
    }

    /// Takes in what happened.
    pub fn receive(&mut self, (context, message): Received) {
        match message {
            Message::Enter { item, code } => self.step(item, Step::Enter(code)),
            Message::Access { item, address, bytes, write, atomic, code, instructions } => {
                match self.place(context, address, u64::from(bytes)) {
                    Some(address) if bytes > 0 => {
                        let access = LaneAccess { code, address, bytes, write, atomic, instructions };
                        self.step(item, Step::Access(access));
                    }
                    _ => self.outside += 1,
                }
            }
            Message::ItemEnd { item, instructions } => {
                if let Some(rest) = self.rest.get_mut(item as usize) {
                    *rest = instructions;
                }
            }
            Message::GroupBegin { items } => {
                self.lanes.clear();
                self.lanes.resize_with((items as usize).min(1 << 16), Lane::default);
                self.rest.clear();
                self.rest.resize(self.lanes.len(), 0);
                self.mark(MarkKind::WorkGroup, "", u64::from(items));
            }
            Message::Barrier => {
                self.run_warps();
                self.mark(MarkKind::GroupBarrier, "", 0);
            }
            Message::GroupEnd => {
                self.run_warps();
                self.lanes.clear();
            }
            Message::Argument { address, name } => {
                let object = self.living.get(&(context, (address >> OFFSET_BITS) as u16)).copied();
                if let Some(buffer) = object.and_then(|object| self.buffers.get_mut(object as usize - 1)) {
                    buffer.name.get_or_insert(name);
                }
            }
            Message::KernelBegin { thread, name, groups } => {
                let enqueued = self.queues.begin(thread, &mut self.held);
                self.flush_host(enqueued);
                self.flow = Flow::default();
                self.kernels += 1;
                self.mark(MarkKind::KernelLaunch, &name, groups);
            }
            Message::KernelEnd => {}
            Message::Allocate { address, bytes, initialized, module, offset } => {
                let range = AddressRange::new(self.next_address, bytes);
                self.next_address = (range.end().0 + 1).next_multiple_of(ALIGNMENT);
                self.buffers.push(Buffer { range, caller: (module, offset), name: None });
                let object = self.buffers.len() as u64;
                self.living.insert((context, (address >> OFFSET_BITS) as u16), object);
                self.held.push(Deed::Allocate(object));
                if initialized {
                    self.held.push(Deed::Access { range, write: true });
                }
            }
            Message::Free { address } => {
                if let Some(object) = self.living.remove(&(context, (address >> OFFSET_BITS) as u16)) {
                    self.held.push(Deed::Free(object));
                }
            }
            Message::Host { thread, address, bytes, write } => match self.place(context, address, bytes) {
                Some(start) => {
                    let range = AddressRange::new(start, bytes);
                    self.queues.access(thread, &mut self.held, range, write);
                }
                None => self.outside += 1,
            },
            Message::Problem => self.problems += 1,
            Message::Enqueue { queue } => self.held.push(Deed::Enqueue(queue)),
            Message::Run { thread, queue, blocks } => self.queues.run(thread, queue, blocks),
            Message::Return { thread } => self.queues.returns(thread, &mut self.held),
            Message::Depends { queue, on } => self.queues.depends(queue, on),
        }
    }

    /// The program has ended, or nobody wants more of it.
    pub fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.flush_host(None);
        self.announce(true);
        self.event(GPU, Event::Exit { process_ends: false });
        self.event(HOST, Event::Exit { process_ends: true });
        self.deliver();
    }

    /// Where an address of Oclgrind lies, if all of the access is in one buffer.
    fn place(&self, context: u16, address: u64, bytes: u64) -> Option<u64> {
        let object = self.living.get(&(context, (address >> OFFSET_BITS) as u16))?;
        let buffer = &self.buffers[*object as usize - 1];
        let offset = address & ((1 << OFFSET_BITS) - 1);
        (offset.checked_add(bytes)? <= buffer.range.bytes).then_some(buffer.range.start.0 + offset)
    }

    fn step(&mut self, item: u32, step: Step) {
        if let Some(lane) = self.lanes.get_mut(item as usize) {
            lane.steps.push(step);
        }
    }

    /// What the work-items of the group did since the last barrier.
    fn run_warps(&mut self) {
        let mut lanes = std::mem::take(&mut self.lanes);
        let mut flow = std::mem::take(&mut self.flow);
        for (warp, lanes) in lanes.chunks_mut(LANES).enumerate() {
            self.mark(MarkKind::Warp, "", warp as u64);
            run(lanes, &mut flow, &mut |accesses, instructions| self.issue(accesses, instructions));
            let rest = &mut self.rest[warp * LANES..][..lanes.len()];
            let instructions = rest.iter_mut().map(std::mem::take).max().unwrap_or(0);
            if instructions > 0 {
                self.event(GPU, Event::Compute { instructions: u64::from(instructions) });
            }
        }
        (self.lanes, self.flow) = (lanes, flow);
    }

    /// One access of a warp: its lanes' accesses, of which only the first brings instructions.
    fn issue(&mut self, accesses: &[LaneAccess], instructions: u32) {
        if self.is_full() {
            return;
        }
        self.switch(GPU);
        if self.stream.is_full() {
            self.deliver();
        }
        let mut instructions = u64::from(instructions);
        for access in accesses {
            let kind = if access.write { AccessKind::Write } else { AccessKind::Read };
            self.stream.access(access.address, access.bytes, kind, 0, instructions);
            instructions = 0;
        }
        self.accesses += accesses.len() as u64;
    }

    /// What the host did, with the mark of the kernel that begins where its place was `enqueued`. Other kernels are enqueued
    /// for the trace when they begin, so that launches come in the order of marks.
    fn flush_host(&mut self, enqueued: Option<usize>) {
        self.begin();
        self.announce(false);
        let kept = if enqueued.is_none() && !self.ended { self.kept_back() } else { HashSet::new() };
        for (at, deed) in std::mem::take(&mut self.held).into_iter().enumerate() {
            match deed {
                Deed::Allocate(object) if kept.contains(&object) => self.held.push(deed),
                Deed::Access { range, .. } if kept.contains(&self.object_at(range)) => self.held.push(deed),
                Deed::Enqueue(_) if enqueued == Some(at) => {
                    self.queues.marked += 1;
                    self.mark_on(HOST, MarkKind::KernelEnqueue, "", 0);
                }
                Deed::Enqueue(_) => self.held.push(deed),
                Deed::Wait(launch) => {
                    self.mark_on(HOST, MarkKind::KernelWait, "", self.queues.marked - launch);
                }
                Deed::Allocate(object) => {
                    let range = self.pages_of(object);
                    let (kind, protection) = (MapKind::Anonymous, Protection::READ_WRITE);
                    self.event(HOST, Event::Map { range, kind, protection, name: String::new() });
                    self.unnamed.push(object);
                    self.announce(false);
                }
                Deed::Free(object) => {
                    // A freed buffer gets no name any more.
                    self.announce(self.unnamed.contains(&object));
                    let range = self.pages_of(object);
                    self.event(HOST, Event::Free { object });
                    self.event(HOST, Event::Unmap { range });
                }
                Deed::Access { range, write } => self.host_copies(range, write),
            }
        }
    }

    /// The buffers without a name that wait for one. All that was done to them comes before any kernel that the host does
    /// not wait for at once.
    fn kept_back(&self) -> HashSet<u64> {
        if self.queues.overlap() {
            return HashSet::new();
        }
        let of_a_queue = |deed: &Deed| matches!(deed, Deed::Enqueue(_) | Deed::Wait(_));
        let first = self.held.iter().position(of_a_queue).unwrap_or(self.held.len());
        let (before, after) = self.held.split_at(first);
        let has_no_name = |object: &u64| self.buffers[*object as usize - 1].name.is_none();
        let allocated = before.iter().filter_map(|deed| match deed {
            Deed::Allocate(object) => Some(*object).filter(has_no_name),
            _ => None,
        });
        let mut kept: HashSet<u64> = allocated.collect();
        for deed in after {
            if let Deed::Access { range, .. } = deed {
                kept.remove(&self.object_at(*range));
            }
        }
        for deed in &self.held {
            if let Deed::Free(object) = deed {
                kept.remove(object);
            }
        }
        kept
    }

    /// The buffer that this range lies in. Buffers lie in the order of their numbers.
    fn object_at(&self, range: AddressRange) -> u64 {
        self.buffers.partition_point(|buffer| buffer.range.start <= range.start) as u64
    }

    fn pages_of(&self, object: u64) -> AddressRange {
        let range = self.buffers[object as usize - 1].range;
        AddressRange::new(range.start.0, range.bytes.next_multiple_of(4096))
    }

    /// Announces the buffers that have a name now, or all.
    fn announce(&mut self, all: bool) {
        for object in std::mem::take(&mut self.unnamed) {
            let buffer = &self.buffers[object as usize - 1];
            let (range, (module, offset)) = (buffer.range, &buffer.caller);
            let name = match &buffer.name {
                Some(name) => name.clone(),
                None if all => self.symbols.name_in(module, *offset),
                None => {
                    self.unnamed.push(object);
                    continue;
                }
            };
            let fresh = self.sites.len() as u32;
            let site = *self.sites.entry(name.clone()).or_insert(fresh);
            if site == fresh {
                self.event(HOST, Event::Site { site, name });
            }
            self.event(HOST, Event::Alloc { object, site, range });
        }
    }

    /// The host goes through a range, line by line.
    fn host_copies(&mut self, range: AddressRange, write: bool) {
        self.switch(HOST);
        let kind = if write { AccessKind::Write } else { AccessKind::Read };
        let mut at = range.start.0;
        while at < range.end().0 && !self.is_full() {
            if self.stream.is_full() {
                self.deliver();
            }
            let end = (at + 1).next_multiple_of(HOST_BYTES).min(range.end().0);
            self.stream.access(at, (end - at) as u8, kind, 0, HOST_INSTRUCTIONS);
            self.accesses += 1;
            at = end;
        }
    }

    /// Both streams begin before anything else.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        for (stream, thread, agent) in [(HOST, 0, Agent::Cpu), (GPU, 1, Agent::Gpu)] {
            let name = if thread == 0 { self.program.clone() } else { String::new() };
            let spawn =
                Event::Spawn { process: 0, thread, agent, forked_from: None, os_id: thread + 1, name };
            self.event(stream, spawn);
        }
    }

    fn mark(&mut self, kind: MarkKind, name: &str, value: u64) {
        self.mark_on(GPU, kind, name, value);
    }

    fn mark_on(&mut self, stream: StreamId, kind: MarkKind, name: &str, value: u64) {
        self.event(stream, Event::Mark { kind, name: name.to_owned(), value });
    }

    fn event(&mut self, stream: StreamId, event: Event) {
        self.switch(stream);
        if self.stream.is_full() {
            self.deliver();
        }
        let sequence = if event.is_global() {
            self.sequence += 1;
            self.sequence
        } else {
            0
        };
        self.stream.event(sequence, event);
    }

    /// Batches come in the order of what happened, so what was before on the other stream goes first.
    fn switch(&mut self, stream: StreamId) {
        if self.on != stream {
            self.deliver();
            self.on = stream;
            self.stream = BatchBuilder::new(stream);
        }
    }

    fn deliver(&mut self) {
        if !self.stream.batch().is_empty() {
            // The batch's own events are part of it; all others before it have been delivered.
            let own = self.stream.batch().events.iter().find(|event| event.sequence > 0);
            let after = own.map_or(self.sequence, |event| event.sequence - 1);
            let batch = self.stream.take(after);
            self.ready.push_back(Arc::new(batch));
        }
    }
}
