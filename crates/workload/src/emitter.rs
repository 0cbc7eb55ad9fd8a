//! Turns a kernel's accesses into event batches, columns written in bulk.

use crate::memory::{Contents, Memory, Word};
use terrace_trace::{AccessKind, BATCH_ACCESSES, Batch, Event, MarkKind, StreamId};

/// Most accesses that one step of a kernel issues. A batch is closed once fewer are left, so that no batch is longer
/// than [`BATCH_ACCESSES`].
pub(crate) const STEP_ACCESSES: usize = 256;

/// Room in the columns: a full batch and a step that goes beyond its promise.
const CAPACITY: usize = BATCH_ACCESSES + 4 * STEP_ACCESSES;

/// A [`Memory`] that records. Values come from its contents.
pub(crate) struct Emitter<C> {
    contents: C,
    batch: Batch,
    /// Accesses written to the columns so far. The columns' own lengths lag behind until [`Emitter::take`].
    length: usize,
    /// Elements reserved in every column: [`CAPACITY`] while a batch is open, else none.
    room: usize,
    /// Number of the last event with a global order.
    sequence: u64,
    /// Number of the last event that batches which begin now come after.
    ordered: u64,
    after: u64,
}

impl<C: Contents> Emitter<C> {
    pub fn new(contents: C) -> Emitter<C> {
        Emitter { contents, batch: Batch::default(), length: 0, room: 0, sequence: 0, ordered: 0, after: 0 }
    }

    /// Begins a batch of `stream` in the memory of `recycled`.
    pub fn begin(&mut self, stream: StreamId, mut recycled: Batch) {
        recycled.clear();
        recycled.stream = stream;
        recycled.addr.reserve(CAPACITY);
        recycled.size.reserve(CAPACITY);
        recycled.kind.reserve(CAPACITY);
        recycled.depends_on.reserve(CAPACITY);
        recycled.instructions.reserve(CAPACITY);
        self.batch = recycled;
        self.length = 0;
        self.room = CAPACITY;
        self.after = self.ordered;
    }

    /// Whether another step might not fit.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.length > BATCH_ACCESSES - STEP_ACCESSES || self.batch.events.len() >= BATCH_ACCESSES
    }

    /// Batches that begin now come after all events so far: every thread has come to a barrier, or has ended.
    pub fn order(&mut self) {
        self.ordered = self.sequence;
    }

    /// Ends the batch.
    pub fn take(&mut self) -> Batch {
        let length = self.length;
        let batch = &mut self.batch;
        // SAFETY: `push` wrote the first `length` elements of every column, and never beyond `room`, which
        // `begin` reserved.
        unsafe {
            batch.addr.set_len(length);
            batch.size.set_len(length);
            batch.kind.set_len(length);
            batch.depends_on.set_len(length);
            batch.instructions.set_len(length);
        }
        batch.after = self.after;
        self.length = 0;
        self.room = 0;
        std::mem::take(&mut self.batch)
    }

    #[inline(always)]
    fn push(&mut self, addr: u64, size: u8, kind: AccessKind, depends_on: u8, instructions: u16) {
        let i = self.length;
        assert!(i < self.room, "a kernel's step issued too many accesses");
        let batch = &mut self.batch;
        // SAFETY: `begin` reserved `room` elements in every column, and `i` is below it.
        unsafe {
            batch.addr.as_mut_ptr().add(i).write(addr);
            batch.size.as_mut_ptr().add(i).write(size);
            batch.kind.as_mut_ptr().add(i).write(kind);
            batch.depends_on.as_mut_ptr().add(i).write(depends_on);
            batch.instructions.as_mut_ptr().add(i).write(instructions);
        }
        self.length = i + 1;
    }
}

impl<C: Contents> Memory for Emitter<C> {
    const HOLDS_DATA: bool = C::HOLDS_DATA;
    const WANTS_EVENTS: bool = true;

    #[inline(always)]
    fn load<T: Word>(&mut self, addr: u64, depends_on: u8, instructions: u16) -> T {
        self.push(addr, T::BYTES, AccessKind::Read, depends_on, instructions);
        self.contents.read(addr)
    }

    #[inline(always)]
    fn store<T: Word>(&mut self, addr: u64, value: T, depends_on: u8, instructions: u16) {
        self.push(addr, T::BYTES, AccessKind::Write, depends_on, instructions);
        self.contents.write(addr, value);
    }

    #[inline(always)]
    fn load_payload<T: Word>(&mut self, addr: u64, depends_on: u8, instructions: u16) {
        self.push(addr, T::BYTES, AccessKind::Read, depends_on, instructions);
    }

    #[inline(always)]
    fn store_payload<T: Word>(&mut self, addr: u64, _: T, depends_on: u8, instructions: u16) {
        self.push(addr, T::BYTES, AccessKind::Write, depends_on, instructions);
    }

    #[inline(always)]
    fn touch(&mut self, addr: u64, instructions: u16) {
        self.push(addr, 8, AccessKind::Write, 0, instructions);
    }

    #[inline(always)]
    fn glance(&self, addr: u64) -> Option<u64> {
        self.contents.glance(addr)
    }

    #[inline(always)]
    fn prefetch(&self, addr: u64) {
        self.contents.prefetch(addr);
    }

    fn event(&mut self, event: Event) {
        let sequence = if event.is_global() {
            self.sequence += 1;
            // Events of other threads do not wait for one that comes to a barrier, or ends, before all have.
            if !matches!(event, Event::Mark { kind: MarkKind::Barrier, .. } | Event::Exit { .. }) {
                self.ordered = self.sequence;
            }
            self.sequence
        } else {
            0
        };
        // Not `push_event`: the columns' lengths lag behind.
        let before = self.length as u32;
        self.batch.events.push(terrace_trace::SequencedEvent { before, sequence, event });
    }

    fn compute(&mut self, instructions: u64) {
        if instructions > 0 {
            self.event(Event::Compute { instructions });
        }
    }
}
