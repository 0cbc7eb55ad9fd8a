//! The columnar form of a stream: a few thousand accesses, a column per field, and the rarer events between them.

use crate::event::{AccessKind, Event, SequencedEvent, StreamId};

/// Accesses in a full batch.
pub const BATCH_ACCESSES: usize = 4096;

/// A run of consecutive events of one stream.
///
/// All access columns have the same length, except `pc`, which is either empty (the source knows no instruction
/// addresses) or of the same length. `events` are sorted by `before`.
///
/// Order across streams: every access in the batch was issued after all global events with `sequence <= after`,
/// and depends on no later one except those inside the batch itself. A consumer applies global events up to `after`
/// before it begins the batch, whatever its simulated clocks say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The stream that issued all of it.
    pub stream: StreamId,
    /// See above.
    pub after: u64,
    /// Virtual addresses.
    pub addr: Vec<u64>,
    /// Bytes accessed, 1 to 255 (a wider access is split by its source).
    pub size: Vec<u8>,
    /// Load or store.
    pub kind: Vec<AccessKind>,
    /// This many loads back in the same stream lies the load whose value the access's address depends on; 0: none known.
    pub depends_on: Vec<u8>,
    /// Instructions retired since the stream's previous access or event, this access's own instruction included
    /// (0 for the second access of one instruction).
    pub instructions: Vec<u16>,
    /// Instruction addresses, or empty.
    pub pc: Vec<u64>,
    /// Everything that is no access.
    pub events: Vec<SequencedEvent>,
}

/// One access, as a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Virtual address.
    pub addr: u64,
    /// Bytes.
    pub size: u8,
    /// Load or store.
    pub kind: AccessKind,
    /// See [`Batch::depends_on`].
    pub depends_on: u8,
    /// See [`Batch::instructions`].
    pub instructions: u16,
    /// Instruction address, where known.
    pub pc: Option<u64>,
}

/// One row or event of a batch, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    /// A load or store.
    Access(Access),
    /// Anything else.
    Event(&'a SequencedEvent),
}

impl Batch {
    /// An empty batch of `stream`, with room for a full one.
    pub fn with_capacity(stream: StreamId) -> Batch {
        Batch {
            stream,
            addr: Vec::with_capacity(BATCH_ACCESSES),
            size: Vec::with_capacity(BATCH_ACCESSES),
            kind: Vec::with_capacity(BATCH_ACCESSES),
            depends_on: Vec::with_capacity(BATCH_ACCESSES),
            instructions: Vec::with_capacity(BATCH_ACCESSES),
            ..Batch::default()
        }
    }

    /// Number of accesses.
    #[inline]
    pub fn len(&self) -> usize {
        self.addr.len()
    }

    /// Whether there is neither an access nor an event.
    pub fn is_empty(&self) -> bool {
        self.addr.is_empty() && self.events.is_empty()
    }

    /// Forgets the content, keeps the memory.
    pub fn clear(&mut self) {
        self.addr.clear();
        self.size.clear();
        self.kind.clear();
        self.depends_on.clear();
        self.instructions.clear();
        self.pc.clear();
        self.events.clear();
        self.after = 0;
    }

    /// Appends an access without an instruction address.
    #[inline]
    pub fn push(&mut self, addr: u64, size: u8, kind: AccessKind, depends_on: u8, instructions: u16) {
        self.addr.push(addr);
        self.size.push(size);
        self.kind.push(kind);
        self.depends_on.push(depends_on);
        self.instructions.push(instructions);
    }

    /// Appends an event after the accesses so far. `sequence` is 0 for events without a global order.
    pub fn push_event(&mut self, sequence: u64, event: Event) {
        self.events.push(SequencedEvent { before: self.addr.len() as u32, sequence, event });
    }

    /// The access at `index`. Panics when out of range.
    pub fn access(&self, index: usize) -> Access {
        Access {
            addr: self.addr[index],
            size: self.size[index],
            kind: self.kind[index],
            depends_on: self.depends_on[index],
            instructions: self.instructions[index],
            pc: self.pc.get(index).copied(),
        }
    }

    /// Instructions retired over the batch, `Compute` events included; saturates.
    pub fn instruction_count(&self) -> u64 {
        // A count is a claim of the input: damaged ones saturate.
        let counts = self.events.iter().map(|e| match e.event {
            Event::Compute { instructions } => instructions,
            _ => 0,
        });
        // Narrower sums first, of which more are added at once; so many cannot overflow.
        let narrow = |part: &[u16]| part.iter().map(|&n| u32::from(n)).sum::<u32>();
        let columns = self.instructions.chunks(65_536).map(|part| u64::from(narrow(part))).sum::<u64>();
        counts.fold(columns, u64::saturating_add)
    }

    /// Accesses and events in program order. For code that is not in a hurry.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let mut next_access = 0;
        let mut next_event = 0;
        std::iter::from_fn(move || {
            if let Some(event) = self.events.get(next_event)
                && event.before as usize <= next_access
            {
                next_event += 1;
                return Some(Item::Event(event));
            }
            if next_access < self.len() {
                next_access += 1;
                return Some(Item::Access(self.access(next_access - 1)));
            }
            None
        })
    }

    /// Checks the invariants stated above; the message says which one is broken.
    pub fn validate(&self) -> Result<(), String> {
        let n = self.len();
        let lengths = [self.size.len(), self.kind.len(), self.depends_on.len(), self.instructions.len()];
        if lengths.iter().any(|&l| l != n) || !(self.pc.is_empty() || self.pc.len() == n) {
            return Err(format!(
                "columns differ in length: {n} addresses, {lengths:?}, {} pcs",
                self.pc.len()
            ));
        }
        if self.size.contains(&0) {
            return Err("an access of zero bytes".to_owned());
        }
        if self.events.iter().any(|e| e.before as usize > n) {
            return Err(format!("an event lies beyond the {n} accesses"));
        }
        if self.events.windows(2).any(|pair| pair[0].before > pair[1].before) {
            return Err("events are out of order".to_owned());
        }
        if self.events.iter().any(|e| (e.sequence != 0) != e.event.is_global()) {
            return Err("a global event without sequence number, or the reverse".to_owned());
        }
        Ok(())
    }
}

/// Fills batches for one stream, turning instruction counts and wide accesses into what the columns can hold.
#[derive(Debug)]
pub struct BatchBuilder {
    batch: Batch,
}

impl BatchBuilder {
    /// A builder for `stream`.
    pub fn new(stream: StreamId) -> BatchBuilder {
        BatchBuilder { batch: Batch::with_capacity(stream) }
    }

    /// Appends an access; `instructions` beyond 65,535 become a [`Event::Compute`] before it.
    #[inline]
    pub fn access(&mut self, addr: u64, size: u8, kind: AccessKind, depends_on: u8, instructions: u64) {
        let instructions = u16::try_from(instructions).unwrap_or_else(|_| {
            self.batch.push_event(0, Event::Compute { instructions });
            0
        });
        self.batch.push(addr, size, kind, depends_on, instructions);
    }

    /// Appends an event; see [`Batch::push_event`].
    pub fn event(&mut self, sequence: u64, event: Event) {
        self.batch.push_event(sequence, event);
    }

    /// Whether the batch holds [`BATCH_ACCESSES`] accesses or more, or many events: time to take it.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.batch.len() >= BATCH_ACCESSES || self.batch.events.len() >= BATCH_ACCESSES
    }

    /// The batch so far, for a look.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Takes the batch and begins a new one of the same stream. `after` as in [`Batch::after`].
    pub fn take(&mut self, after: u64) -> Batch {
        let next = Batch::with_capacity(self.batch.stream);
        let mut batch = std::mem::replace(&mut self.batch, next);
        batch.after = after;
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_interleave_events_at_their_place() {
        let mut builder = BatchBuilder::new(StreamId(3));
        builder.event(0, Event::Wait { nanos: 1 });
        builder.access(0x1000, 8, AccessKind::Read, 0, 5);
        builder.access(0x2000, 4, AccessKind::Write, 1, 70_000);
        builder.event(0, Event::Wait { nanos: 2 });
        let batch = builder.take(7);
        assert_eq!(batch.validate(), Ok(()));
        let kinds: Vec<String> = batch
            .items()
            .map(|item| match item {
                Item::Access(a) => format!("{:x}", a.addr),
                Item::Event(e) => format!("{:?}", e.event).split(' ').next().unwrap().to_owned(),
            })
            .collect();
        assert_eq!(kinds, ["Wait", "1000", "Compute", "2000", "Wait"]);
        assert_eq!(batch.instruction_count(), 70_005);
        assert_eq!(batch.after, 7);
    }

    #[test]
    fn validate_names_the_broken_rule() {
        let mut batch = Batch::default();
        batch.push(1, 0, AccessKind::Read, 0, 1);
        assert_eq!(batch.validate(), Err("an access of zero bytes".to_owned()));
        batch.size[0] = 1;
        batch.push_event(0, Event::Exit { process_ends: true });
        assert!(batch.validate().unwrap_err().contains("sequence number"));
    }
}
