//! One thread's records, decoded into the columns of a batch: the recorder's hot loop.
//!
//! A record names an entry ([`crate::entries`]), which says what is known of its instruction; together they give size, kind,
//! instructions retired and, followed through the registers, the load that an address depends on.

use crate::blocks::{Blocks, LANES, Places};
use crate::entries::{ADDRESS_BITS, ADDRESS_MASK, Entries, Record};
use crate::origins::{Origins, Tracker};
use crate::short::Short;
use std::sync::Arc;
use terrace_protocol::entry::shape;
use terrace_trace::{AccessKind, BATCH_ACCESSES, Batch, BatchPool, Event, StreamId};

/// Room that a batch has beyond a full one: an instruction's accesses stay together, and an entry's number of callbacks
/// is a byte; each makes up to two accesses.
const SLACK: usize = 2 * (u8::MAX as usize + 1) + LANES;

/// Why decoding stopped, and at which record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All records are used.
    End,
    /// A control record; it is the next one.
    Control,
    /// The batch is full, or as many accesses are decoded as were asked for.
    Full,
}

/// The decoder's state for one thread.
pub struct Stream {
    /// Its number in the trace.
    pub id: StreamId,
    batch: Batch,
    /// For the batch after the one being filled: see [`Batch::after`].
    next_after: u64,
    /// Origins of the registers, instructions not yet told, and the short way of decoding.
    short: Box<Short>,
    /// The entry decoded last, and how many more callbacks its execution makes.
    last: u32,
    remaining: u8,
    /// Where the last callback ended, and what it did: a vector access continues there.
    last_end: u64,
    last_rw: u32,
    /// Whether the batch's last access is the last callback's, so that a vector access can grow it.
    can_grow: bool,
    /// Accesses left out since the last one kept.
    pub left_out: u64,
}

impl Stream {
    /// A thread of which nothing is decoded yet.
    pub fn new(id: StreamId) -> Stream {
        Stream {
            id,
            batch: Batch { stream: id, ..Batch::default() },
            next_after: 0,
            short: Box::new(Short::new()),
            last: 0,
            remaining: 0,
            last_end: 0,
            last_rw: 0,
            can_grow: false,
            left_out: 0,
        }
    }

    /// Whether nothing waits to be delivered.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Whether the batch is full. One that ends inside an instruction can take the rest of it first.
    pub fn is_full(&self) -> bool {
        let full = self.batch.len() >= BATCH_ACCESSES || self.batch.events.len() >= BATCH_ACCESSES;
        full && !self.is_inside_instruction()
    }

    /// Whether more callbacks of the last access's instruction are expected: records were taken while the program
    /// was writing them.
    pub fn is_inside_instruction(&self) -> bool {
        self.can_grow && self.remaining > 0
    }

    /// What the batch being filled says of the events before it.
    pub fn after(&self) -> u64 {
        self.batch.after
    }

    /// The next batch comes after this many global events; so does the current one, if nothing is in it yet.
    pub fn set_after(&mut self, after: u64) {
        self.next_after = self.next_after.max(after);
        if self.batch.is_empty() {
            self.batch.after = self.next_after;
        }
    }

    /// Takes the batch, and goes on with one of `pool`.
    pub fn take(&mut self, pool: &mut BatchPool) -> Arc<Batch> {
        let mut next = pool.take();
        next.clear();
        (next.stream, next.after) = (self.id, self.next_after);
        self.can_grow = false;
        pool.hand_out(std::mem::replace(&mut self.batch, next))
    }

    /// Appends an event; `sequence` as in [`Batch::push_event`].
    pub fn event(&mut self, sequence: u64, event: Event) {
        self.batch.push_event(sequence, event);
    }

    /// Instructions retired without a record of their own.
    pub fn add_instructions(&mut self, instructions: u64) {
        self.short.carry += instructions;
    }

    /// Instructions not yet told, because no access followed; they become an event.
    pub fn flush_instructions(&mut self) {
        let instructions = std::mem::take(&mut self.short.carry);
        if instructions > 0 {
            self.batch.push_event(0, Event::Compute { instructions });
        }
    }

    /// After accesses were left out: what is decoded from here on depends on none of them.
    pub fn begin_kept(&mut self) {
        self.short.origins = Origins::default();
        self.short.carry = 0;
        self.can_grow = false;
    }

    /// Decodes at most `limit` accesses (an atomic one may be one more) into the batch. Returns how many records and
    /// accesses that were.
    #[inline]
    pub fn decode(
        &mut self,
        records: &[Record],
        entries: Entries,
        blocks: &mut Blocks,
        limit: u64,
        dependences: bool,
        pcs: bool,
    ) -> (usize, u64, Stop) {
        match (dependences, pcs) {
            (false, false) => self.decode_as::<false, false>(records, entries, blocks, limit),
            (false, true) => self.decode_as::<false, true>(records, entries, blocks, limit),
            (true, false) => self.decode_as::<true, false>(records, entries, blocks, limit),
            (true, true) => self.decode_as::<true, true>(records, entries, blocks, limit),
        }
    }

    fn decode_as<const DEPENDENCES: bool, const PCS: bool>(
        &mut self,
        records: &[Record],
        entries: Entries,
        blocks: &mut Blocks,
        limit: u64,
    ) -> (usize, u64, Stop) {
        let has_blocks = Blocks::can_decode();
        let mut columns = Columns::new(&mut self.batch, PCS);
        let start = columns.length;
        let stop_at = BATCH_ACCESSES.min(start.saturating_add(usize::try_from(limit).unwrap_or(usize::MAX)));
        // Kept in registers over the loop.
        let (mut last, mut remaining) = (self.last, self.remaining);
        let (mut last_end, mut last_rw) = (self.last_end, self.last_rw);
        let mut can_grow = self.can_grow;
        let mut used = 0;
        let stop = loop {
            // Not in the middle of an instruction, whose other records are decoded already.
            if remaining == 0 || records.get(used).is_none_or(|record| record[1] as u32 != last) {
                let mut room = stop_at.saturating_sub(columns.length);
                let is_between = self.short.bases.following().is_none();
                if has_blocks && is_between && records.len() - used >= LANES {
                    let Short { carry, origins, .. } = &mut *self.short;
                    // SAFETY: asked just now; the columns have room for `room` more accesses and then for SLACK.
                    let (taken, made) = unsafe {
                        let places = columns.places();
                        blocks.decode::<DEPENDENCES, PCS>(
                            &records[used..],
                            entries,
                            room,
                            places,
                            carry,
                            origins,
                        )
                    };
                    if taken > 0 {
                        columns.length += made;
                        (remaining, can_grow) = (0, true);
                        used += taken;
                    }
                    room = stop_at.saturating_sub(columns.length);
                    // What no block begins with: then blocks may go on.
                    if records.len() - used >= LANES {
                        room = room.min(1);
                    }
                }
                let (taken, made) = self.short.decode::<DEPENDENCES, PCS>(&records[used..], entries, room);
                if taken > 0 || made > 0 {
                    columns.append::<PCS>(&self.short, made);
                    // Nothing of an instruction is left to come, so nothing of the last one is looked at.
                    (remaining, can_grow) = (0, true);
                    used += taken;
                    continue;
                }
            }
            if self.short.bases.following().is_some() {
                // Only for lack of room.
                break Stop::Full;
            }
            let Some(&[first, second]) = records.get(used) else { break Stop::End };
            let number = second as u32;
            let info = (second >> 32) as u32;
            let continues = number == last && remaining > 0;
            if number == 0 {
                break Stop::Control;
            }
            if columns.length >= stop_at && !continues {
                // Another instruction follows, whatever was expected of the last one: a signal cut it short.
                remaining = 0;
                break Stop::Full;
            }
            used += 1;
            let entry = entries.get(number);
            if info == 0 {
                self.short.carry += u64::from(entry.before) + (first >> ADDRESS_BITS);
                if DEPENDENCES {
                    self.short.origins.apply(entries.effects(number, 0, entry.effects_before));
                }
                (last, remaining) = (number, 0);
                continue;
            }
            let address = first & ADDRESS_MASK;
            let size = 1u8 << (info >> 4 & 7);
            let rw = info >> 16 & 3;
            let end = address + u64::from(size);
            let mut instructions = first >> ADDRESS_BITS;
            if continues {
                remaining -= 1;
                if address == last_end && rw == last_rw && can_grow {
                    // QEMU moves a vector in steps of 8 bytes; the program made one access.
                    columns.widen(size);
                    last_end = end;
                    if remaining == 0 {
                        self.short.complete::<DEPENDENCES>(entries, number);
                    }
                    continue;
                }
            } else {
                instructions += self.short.carry + u64::from(entry.before);
                self.short.carry = u64::from(entry.tail);
                last = number;
                // One callback stands for an atomic read-modify-write.
                remaining = if rw == 3 { 0 } else { entry.callbacks.saturating_sub(1) };
                self.short.bases.anchor(entry.base, address);
                if DEPENDENCES {
                    self.short.origins.apply(entries.effects(number, 0, entry.effects_before));
                }
            }
            (last_end, last_rw) = (end, rw);
            can_grow = true;
            let (mut depends_on, mut store_depends_on) = (0, 0);
            if DEPENDENCES {
                let origins = &mut self.short.origins;
                let registers = if rw & 1 != 0 { entry.load_address } else { entry.store_address };
                depends_on = origins.dependence(registers);
                origins.access(rw & 1 != 0, entry.destination);
                store_depends_on = origins.dependence(entry.store_address);
            }
            if remaining == 0 {
                self.short.complete::<DEPENDENCES>(entries, number);
            }
            if instructions > u64::from(u16::MAX) {
                columns.compute(instructions);
                instructions = 0;
            }
            let kind = if rw & 1 != 0 { AccessKind::Read } else { AccessKind::Write };
            columns.push::<PCS>(address, size, kind, depends_on, instructions as u16, entry.pc);
            if rw == 3 {
                columns.push::<PCS>(address, size, AccessKind::Write, store_depends_on, 0, entry.pc);
            }
        };
        let accesses = columns.finish() - start;
        (self.last, self.remaining) = (last, remaining);
        (self.last_end, self.last_rw, self.can_grow) = (last_end, last_rw, can_grow);
        (used, accesses as u64, stop)
    }

    /// Whether an access without a record is the next.
    pub fn has_derived(&self) -> bool {
        self.short.bases.following().is_some()
    }

    /// Passes over at most `limit` accesses, telling `touch` of the address and size of each. Returns how many
    /// records and accesses that were.
    pub fn pass_over(
        &mut self,
        records: &[Record],
        entries: Entries,
        limit: u64,
        mut touch: impl FnMut(u64, u64),
    ) -> (usize, u64, Stop) {
        let (mut accesses, mut used) = (0, 0);
        self.can_grow = false;
        loop {
            if let Some(number) = self.short.bases.following() {
                if accesses >= limit {
                    return (used, accesses, Stop::Full);
                }
                let entry = entries.get(number);
                touch(self.short.bases.derived(entry.base), u64::from(entry.expected.size()));
                accesses += if entry.shape == shape::UPDATE { 2 } else { 1 };
                self.short.bases.passed(entry, number);
                continue;
            }
            let Some(&[first, second]) = records.get(used) else { return (used, accesses, Stop::End) };
            let number = second as u32;
            let info = (second >> 32) as u32;
            let continues = number == self.last && self.remaining > 0;
            if number == 0 || (accesses >= limit && !continues) {
                return (used, accesses, if number == 0 { Stop::Control } else { Stop::Full });
            }
            used += 1;
            if info == 0 {
                (self.last, self.remaining) = (number, 0);
                continue;
            }
            let entry = entries.get(number);
            let address = first & ADDRESS_MASK;
            let size = 1u64 << (info >> 4 & 7);
            let rw = info >> 16 & 3;
            touch(address, size);
            let widens = continues && address == self.last_end && rw == self.last_rw;
            if continues {
                self.remaining -= 1;
            } else {
                self.last = number;
                self.remaining = if rw == 3 { 0 } else { entry.callbacks.saturating_sub(1) };
                self.short.bases.anchor(entry.base, address);
            }
            if self.remaining == 0 {
                self.short.bases.passed(entry, number);
            }
            (self.last_end, self.last_rw) = (address + size, rw);
            accesses += if widens { 0 } else { 1 + u64::from(rw == 3) };
        }
    }
}

/// The columns of a batch while accesses are appended, without a capacity check per column and access: the decoder
/// stops at [`BATCH_ACCESSES`], and every column has room for [`SLACK`] more.
struct Columns<'a> {
    batch: &'a mut Batch,
    length: usize,
    addr: *mut u64,
    size: *mut u8,
    kind: *mut AccessKind,
    depends_on: *mut u8,
    instructions: *mut u16,
    pc: *mut u64,
}

impl<'a> Columns<'a> {
    fn new(batch: &'a mut Batch, pcs: bool) -> Columns<'a> {
        let room = BATCH_ACCESSES + SLACK;
        let length = batch.len();
        batch.addr.reserve(room.saturating_sub(length));
        batch.size.reserve(room.saturating_sub(length));
        batch.kind.reserve(room.saturating_sub(length));
        batch.depends_on.reserve(room.saturating_sub(length));
        batch.instructions.reserve(room.saturating_sub(length));
        let pc = if pcs {
            batch.pc.reserve(room.saturating_sub(length));
            batch.pc.as_mut_ptr()
        } else {
            std::ptr::null_mut()
        };
        Columns {
            length,
            addr: batch.addr.as_mut_ptr(),
            size: batch.size.as_mut_ptr(),
            kind: batch.kind.as_mut_ptr(),
            depends_on: batch.depends_on.as_mut_ptr(),
            instructions: batch.instructions.as_mut_ptr(),
            pc,
            batch,
        }
    }

    /// Where the next access goes.
    fn places(&mut self) -> Places {
        let i = self.length;
        debug_assert!(i <= BATCH_ACCESSES + SLACK);
        // SAFETY: `length` never exceeds the columns' capacity.
        unsafe {
            Places {
                addr: self.addr.add(i),
                size: self.size.add(i),
                kind: self.kind.add(i),
                depends_on: self.depends_on.add(i),
                instructions: self.instructions.add(i),
                pc: if self.pc.is_null() { self.pc } else { self.pc.add(i) },
            }
        }
    }

    #[inline(always)]
    fn push<const PCS: bool>(
        &mut self,
        addr: u64,
        size: u8,
        kind: AccessKind,
        depends_on: u8,
        instructions: u16,
        pc: u64,
    ) {
        let i = self.length;
        debug_assert!(i < BATCH_ACCESSES + SLACK);
        // SAFETY: the decoder stops at BATCH_ACCESSES, and only what is left of one instruction comes behind, for which
        // `new` made room.
        unsafe {
            self.addr.add(i).write(addr);
            self.size.add(i).write(size);
            self.kind.add(i).write(kind);
            self.depends_on.add(i).write(depends_on);
            self.instructions.add(i).write(instructions);
            if PCS {
                self.pc.add(i).write(pc);
            }
        }
        self.length = i + 1;
    }

    /// Appends `count` accesses that the short way has decoded.
    fn append<const PCS: bool>(&mut self, short: &Short, count: usize) {
        fn copy<T: Copy>(from: &[T], to: *mut T, at: usize) {
            // SAFETY: the caller has room for `from` behind `at`.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.add(at), from.len()) };
        }
        let i = self.length;
        assert!(i + count <= BATCH_ACCESSES + SLACK);
        copy(&short.addr[..count], self.addr, i);
        copy(&short.size[..count], self.size, i);
        copy(&short.kind[..count], self.kind, i);
        copy(&short.depends_on[..count], self.depends_on, i);
        copy(&short.instructions[..count], self.instructions, i);
        if PCS {
            copy(&short.pc[..count], self.pc, i);
        }
        self.length = i + count;
    }

    #[inline(always)]
    fn widen(&mut self, by: u8) {
        // SAFETY: the caller has pushed at least one access.
        unsafe { *self.size.add(self.length - 1) += by };
    }

    #[cold]
    fn compute(&mut self, instructions: u64) {
        let event = Event::Compute { instructions };
        let before = self.length as u32;
        self.batch.events.push(terrace_trace::SequencedEvent { before, sequence: 0, event });
    }

    fn finish(self) -> usize {
        // SAFETY: `push` has written every column up to `length`, which lies within their capacity.
        unsafe {
            self.batch.addr.set_len(self.length);
            self.batch.size.set_len(self.length);
            self.batch.kind.set_len(self.length);
            self.batch.depends_on.set_len(self.length);
            self.batch.instructions.set_len(self.length);
            if !self.pc.is_null() {
                self.batch.pc.set_len(self.length);
            }
        }
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_protocol::entry::{
        Base, Effect, Entry, Expected, NO_DESTINATION, NO_REGISTER, OWN_EFFECTS, RUN, RUN_RECORDS,
    };

    const READ: u32 = 1 << 16;
    const WRITE: u32 = 2 << 16;

    fn record(address: u64, pending: u64, number: u32, info: u32) -> Record {
        [address | pending << 48, u64::from(number) | u64::from(info) << 32]
    }

    fn eight(rw: u32) -> u32 {
        3 << 4 | rw
    }

    /// Pads the table to what the mask can reach from small numbers.
    fn decode(table: &[Entry], records: &[Record]) -> (Batch, Stream) {
        let mut stream = Stream::new(StreamId(0));
        // SAFETY: the tests name entries inside the table only.
        let entries = unsafe { Entries::new(table.as_ptr()) };
        let (used, _, stop) = stream.decode(records, entries, &mut Blocks::default(), u64::MAX, true, true);
        assert_eq!((used, stop), (records.len(), Stop::End));
        let batch = stream.take(&mut BatchPool::default());
        assert_eq!(batch.validate(), Ok(()));
        (Arc::unwrap_or_clone(batch), stream)
    }

    fn entry(callbacks: u8, before: u16, tail: u16) -> Entry {
        Entry { callbacks, before, tail, ..Entry::UNKNOWN }
    }

    #[test]
    fn instructions_are_conserved() {
        // A block of ten instructions: a load as the third, a store as the seventh; then a block of five without.
        let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(1, 3, 0), entry(1, 4, 3)];
        let round = [record(0x1000, 0, 2, eight(READ)), record(0x2000, 0, 3, eight(WRITE))];
        let (batch, _) = decode(&table, &[round[0], round[1], record(0x1000, 5, 2, eight(READ)), round[1]]);
        assert_eq!(batch.instructions, [3, 4, 3 + 5 + 3, 4]);
        assert_eq!(batch.kind[1], AccessKind::Write);
    }

    #[test]
    fn vector_accesses_are_one_access() {
        let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(2, 1, 1)];
        let at = |address| record(address, 0, 2, eight(READ));
        // Executed twice, at addresses that touch each other.
        let (batch, _) = decode(&table, &[at(0x1000), at(0x1008), at(0x1010), at(0x1018)]);
        assert_eq!(batch.addr, [0x1000, 0x1010]);
        assert_eq!(batch.size, [16, 16]);
        assert_eq!(batch.instructions, [1, 2]);
    }

    #[test]
    fn an_instruction_taken_in_parts_is_the_same() {
        let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(4, 1, 0), entry(1, 1, 0)];
        // SAFETY: as in `decode`.
        let entries = unsafe { Entries::new(table.as_ptr()) };
        let mut records: Vec<Record> = (0..4).map(|i| record(0x1000 + i * 8, 0, 2, eight(WRITE))).collect();
        records.push(record(0x1020, 0, 3, eight(WRITE)));
        for cut in 0..=records.len() {
            let mut stream = Stream::new(StreamId(0));
            stream.decode(&records[..cut], entries, &mut Blocks::default(), u64::MAX, true, false);
            assert_eq!(stream.is_inside_instruction(), (1..4).contains(&cut));
            stream.decode(&records[cut..], entries, &mut Blocks::default(), u64::MAX, true, false);
            let batch = stream.take(&mut BatchPool::default());
            assert_eq!((&batch.size[..], &batch.instructions[..]), (&[32, 8][..], &[1, 1][..]), "{cut}");
        }
        // A batch that is full waits for the rest, but not if something else comes.
        let mut stream = Stream::new(StreamId(0));
        let filler = vec![record(0x9000, 0, 3, eight(WRITE)); BATCH_ACCESSES - 1];
        stream.decode(&filler, entries, &mut Blocks::default(), u64::MAX, true, false);
        stream.decode(&records[..2], entries, &mut Blocks::default(), u64::MAX, true, false);
        assert!(!stream.is_full());
        let (used, _, stop) =
            stream.decode(&records[4..], entries, &mut Blocks::default(), u64::MAX, true, false);
        assert_eq!((used, stop, stream.is_full()), (0, Stop::Full, true));
    }

    #[test]
    fn read_modify_write_counts_its_instruction_once() {
        let update = Entry { shape: shape::UPDATE, expected: Expected::update(8), left: 1, ..entry(1, 1, 0) };
        let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(2, 1, 0), update];
        let load = record(0x1000, 0, 2, eight(READ));
        let store = record(0x1000, 0, 2, eight(WRITE));
        let atomic = record(0x1000, 0, 2, eight(READ | WRITE));
        let both = record(0x1000, 0, 3, eight(READ | WRITE));
        let (batch, _) = decode(&table, &[load, store, atomic, load, store, both]);
        assert_eq!(batch.instructions, [1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(batch.addr, [0x1000; 8]);
        let kinds: Vec<u8> = batch.kind.iter().map(|&k| k as u8).collect();
        assert_eq!(kinds, [0, 1, 0, 1, 0, 1, 0, 1]);
    }

    /// A block of mov rax, [rbx]; mov [rbx + 8], rcx; add [rbx - 16], rcx; mov rdx, [rip + …], and as a run of its own
    /// mov rsi, [rdi]: two records for six accesses, whatever the room in which they are decoded.
    #[test]
    fn derived_accesses_need_no_record() {
        let eight_bytes = |loads| Expected::new(3, 8, loads);
        let access =
            |left, loads, shape| Entry { left, shape, expected: eight_bytes(loads), ..entry(0, 1, 0) };
        let derived = |slot, distance: i64| Base::new(slot, distance as u64);
        let table = [
            Entry::UNKNOWN,
            Entry::UNKNOWN,
            Entry { callbacks: 1, base: Base::OWN.going_on(), ..access(5, true, shape::ONE) },
            Entry { base: derived(0, 8).going_on(), ..access(4, false, shape::ONE) },
            Entry { base: derived(0, -16).going_on(), ..access(3, true, shape::UPDATE) },
            Entry { base: derived(Base::CONSTANT, 0x4000), ..access(2, true, shape::ONE) },
            Entry { callbacks: 1, tail: 2, ..access(1, true, shape::ONE) },
        ];
        // SAFETY: as in `decode`.
        let entries = unsafe { Entries::new(table.as_ptr()) };
        let rounds = 20;
        let records: Vec<Record> = (1..=rounds)
            .flat_map(|i| [record(i << 20, 0, 2, eight(READ)), record(0x9000, 0, 6, eight(READ))])
            .collect();
        let expected: Vec<u64> =
            (1..=rounds).flat_map(|i| [0, 8, -16, -16].map(|d| (i << 20).wrapping_add_signed(d))).collect();
        for room in [1, 2, 5, 100, u64::MAX] {
            let mut stream = Stream::new(StreamId(0));
            let (mut passing, mut passed, mut used, mut touched) =
                (Stream::new(StreamId(0)), 0, 0, Vec::new());
            let mut blocks = Blocks::default();
            let mut at = 0;
            while at < records.len() || stream.has_derived() {
                at += stream.decode(&records[at..], entries, &mut blocks, room, true, true).0;
                let now = passing.pass_over(&records[used..], entries, room, |a, _| touched.push(a));
                (used, passed) = (used + now.0, passed + now.1);
            }
            let batch = stream.take(&mut BatchPool::default());
            assert_eq!(batch.validate(), Ok(()));
            let (own, other): (Vec<u64>, Vec<u64>) = batch.addr.iter().partition(|&&a| a >= 1 << 19);
            assert_eq!(own, expected, "room {room}");
            assert_eq!(other, [0x4000, 0x9000].repeat(rounds as usize));
            assert_eq!(batch.instructions[6..12], [3, 1, 1, 0, 1, 1]);
            assert_eq!((used, passed, touched.len()), (at, batch.len() as u64, 5 * rounds as usize));
        }
    }

    #[test]
    fn chains_are_followed_through_registers() {
        // 2: mov rax, [rax]. 3: mov rcx, [rbx + 8]. Then rbx := rax + rcx, without access. 4: mov [rbx], rdx.
        let mut chase = entry(1, 1, 0);
        (chase.load_address, chase.destination) = ([0, NO_REGISTER], 0);
        let mut other = entry(1, 1, 0);
        (other.load_address, other.destination) = ([3, NO_REGISTER], 1);
        let mut sum = Entry { shape: shape::EFFECTS, before: 1, effects_before: 1, ..Entry::UNKNOWN };
        sum.effects[0] = Effect::new(3, 0, 1);
        let mut store = entry(1, 1, 0);
        store.store_address = [3, NO_REGISTER];
        let table = [Entry::UNKNOWN, Entry::UNKNOWN, chase, other, sum, store];
        let load = |number| record(0x1000, 0, number, eight(READ));
        let records = [load(2), load(2), load(2), load(3), [0, 4], record(8, 0, 5, eight(WRITE)), load(2)];
        let (batch, _) = decode(&table, &records);
        // The store's address derives from the load before it; the chase's from the load before that one.
        assert_eq!(batch.depends_on, [0, 1, 1, 0, 1, 2]);
        assert_eq!(batch.instructions, [1, 1, 1, 1, 2, 1]);
    }

    #[test]
    fn effects_run_on_into_the_next_places() {
        let mut load = entry(1, 1, 0);
        load.destination = 0;
        // rax moves on through eleven registers, one after the other; the last is an address.
        let chain: Vec<Effect> = (0..11).map(|r| Effect::new(r + 1, r, NO_REGISTER)).collect();
        let mut long = entry(1, 1, 0);
        long.load_address = [11, NO_REGISTER];
        long.effects_before = 11;
        long.effects.copy_from_slice(&chain[..OWN_EFFECTS]);
        let mut table = vec![Entry::UNKNOWN, Entry::UNKNOWN, load, long, Entry::UNKNOWN];
        // SAFETY: eight effects fit into the last entry.
        unsafe {
            let behind = table.as_mut_ptr().add(4).cast::<Effect>();
            std::ptr::copy_nonoverlapping(chain[OWN_EFFECTS..].as_ptr(), behind, 8);
        }
        let load = |number| record(0x1000, 0, number, eight(READ));
        let (batch, _) = decode(&table, &[load(2), load(3)]);
        assert_eq!(batch.depends_on, [0, 1]);
    }

    #[test]
    fn far_loads_are_not_known() {
        let mut chase = entry(1, 1, 0);
        (chase.load_address, chase.destination) = ([0, NO_REGISTER], 0);
        let table = [Entry::UNKNOWN, Entry::UNKNOWN, chase, entry(1, 1, 0)];
        for (between, expected) in [(253, 254), (254, 255), (255, 0)] {
            let mut records = vec![record(0x1000, 0, 2, eight(READ))];
            records.extend(vec![record(0x1000, 0, 3, eight(READ)); between]);
            records.push(record(0x1000, 0, 2, eight(READ)));
            let (batch, _) = decode(&table, &records);
            assert_eq!(*batch.depends_on.last().unwrap(), expected);
        }
    }

    #[test]
    fn many_instructions_become_an_event() {
        let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(1, 1, 0)];
        let (batch, mut stream) = decode(&table, &[record(8, 65_535, 2, eight(READ))]);
        assert_eq!(batch.events[0].event, Event::Compute { instructions: 65_536 });
        assert_eq!(batch.instruction_count(), 65_536);
        stream.add_instructions(7);
        stream.flush_instructions();
        assert_eq!(stream.take(&mut BatchPool::default()).instruction_count(), 7);
    }

    /// Executions of random blocks, some begun in the middle, some cut short, some not as expected.
    #[test]
    fn the_short_ways_and_the_long_way_agree() {
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        // No load defines register 4, which stands for none.
        let defined = |register: u64| if register == 4 { 5 } else { register as u8 };
        let mut table = vec![Entry::UNKNOWN; 80];
        let mut left = 0;
        // Of the run: records, accesses, and the records with which its anchors begin.
        let (mut made, mut accesses, mut anchors) = (0, 0, Vec::new());
        for i in 2..table.len() {
            let [base, index] = [next(16) as u8, next(16) as u8];
            let destination = defined(next(17));
            let loads = next(2) == 0;
            let (shape, callbacks, size) = [
                (shape::ONE, 1, 4),
                (shape::ONE, 1, 8),
                (shape::VECTOR, 2, 16),
                (shape::VECTOR, 4, 32),
                (shape::UPDATE, 1, 8),
                (shape::EFFECTS, 0, 0),
                (shape::OTHER, 0, 8),
            ][next(7) as usize];
            let loads = loads || shape == shape::UPDATE;
            let effects_before = next(4) as u8;
            let begins = left == 0;
            if begins {
                left = (1 + next(12)).min(80 - i as u64) as u8;
            }
            let many = if shape == shape::UPDATE { 2 } else { 1 };
            let is_alone = shape == shape::OTHER || shape == shape::EFFECTS;
            let is_full = made + usize::from(callbacks) > RUN_RECORDS || accesses + many > RUN;
            if begins || is_alone || is_full || next(8) == 0 {
                (made, accesses, anchors) = (0, 0, Vec::new());
            }
            let is_derived = made > 0 && next(2) == 0;
            let base_of = match next(4) {
                _ if !is_derived && made == 0 => Base::OWN,
                _ if !is_derived => Base::new(made as u8, 0),
                0 => Base::new(Base::CONSTANT, next(1 << 40)),
                _ => Base::new(
                    anchors[next(anchors.len() as u64) as usize],
                    next(1 << 40).wrapping_sub(1 << 39),
                ),
            };
            if is_derived {
                table[i - 1].base = table[i - 1].base.going_on();
            } else {
                anchors.push(made as u8);
                made += usize::from(callbacks);
            }
            accesses += many;
            if is_alone {
                made = RUN;
            }
            let entry = &mut table[i];
            *entry = Entry {
                pc: next(1 << 30),
                base: base_of,
                before: next(9) as u16,
                tail: next(9) as u16,
                expected: match shape {
                    shape::UPDATE => Expected::update(size),
                    _ => Expected::new(u32::from(size).clamp(1, 8).trailing_zeros(), size, loads),
                },
                callbacks: if is_derived { 0 } else { callbacks },
                destination: if loads { destination } else { NO_DESTINATION },
                load_address: [base, index],
                store_address: [base, index],
                effects_before,
                effects_after: if shape == shape::EFFECTS {
                    0
                } else {
                    next(4 - u64::from(effects_before)) as u8
                },
                shape,
                left,
                ..Entry::UNKNOWN
            };
            entry.effects =
                std::array::from_fn(|_| Effect::new(defined(next(16)), next(16) as u8, next(16) as u8));
            left -= 1;
        }
        let starts: Vec<u32> = (2..80).filter(|&i| table[i as usize].base.begins()).collect();
        assert!(starts.len() > 20 && table.iter().filter(|e| e.is_derived()).count() > 10);
        let mut records = Vec::new();
        let (mut number, mut begins) = (2, true);
        for _ in 0..40_000 {
            let entry = table[number as usize];
            // Instructions of other blocks come with the first access of one.
            let (address, pending) = (next(1 << 40), if begins && next(9) == 0 { next(65_536) } else { 0 });
            // Most often the block goes on.
            begins = entry.left == 1 || next(20) == 0;
            let following = if begins { starts[next(starts.len() as u64) as usize] } else { number + 1 };
            let number = std::mem::replace(&mut number, following);
            if entry.is_derived() {
                continue;
            }
            if entry.shape == shape::EFFECTS {
                records.push([pending << 48, u64::from(number)]);
                continue;
            }
            let unusual = next(60) == 0;
            let made = match entry.shape {
                shape::OTHER if unusual => next(6),
                _ if unusual => 1 + next(5),
                _ => u64::from(entry.callbacks.max(1)),
            };
            let step = u64::from(entry.expected.size().min(8));
            for part in 0..made {
                let info = match entry.expected.0 & Expected::INFO {
                    _ if unusual && next(2) == 0 => eight(READ | WRITE),
                    info => info,
                };
                let offset = if entry.shape == shape::UPDATE { 0 } else { part * step };
                records.push(record(address + offset, if part == 0 { pending } else { 0 }, number, info));
            }
        }
        // No record is as expected, and no run begins with one.
        let unexpected = |e: &Entry| match e.shape {
            shape::EFFECTS => Entry { shape: shape::OTHER, left: 0, ..*e },
            _ => Entry { expected: Expected(e.expected.0 & !Expected::INFO), left: 0, ..*e },
        };
        let long: Vec<Entry> = table.iter().map(unexpected).collect();
        let all = |table: &[Entry]| {
            // SAFETY: as in `decode`.
            let entries = unsafe { Entries::new(table.as_ptr()) };
            let (mut stream, mut pool) = (Stream::new(StreamId(0)), BatchPool::default());
            let (mut batches, mut at, mut blocks) = (Vec::new(), 0, Blocks::default());
            while at < records.len() {
                let end = records.len().min(at + 1000);
                at += stream.decode(&records[at..end], entries, &mut blocks, 700, true, true).0;
                if stream.is_full() {
                    batches.push(stream.take(&mut pool));
                }
            }
            batches.push(stream.take(&mut pool));
            (batches, blocks.count())
        };
        let ((short, templates), (long, none)) = (all(&table), all(&long));
        assert_eq!((templates > 20, none), (Blocks::can_decode(), 0));
        assert_eq!(short.len(), long.len());
        for (short, long) in short.iter().zip(&long) {
            let different = (0..short.len().min(long.len())).find(|&i| short.access(i) != long.access(i));
            assert_eq!(different.map(|i| (i, short.access(i), long.access(i))), None);
            assert_eq!((short.len(), &short.events), (long.len(), &long.events));
        }
    }

    #[test]
    fn passing_over_counts_what_decoding_counts() {
        let table = [Entry::UNKNOWN, Entry::UNKNOWN, entry(2, 1, 1), entry(1, 1, 0)];
        // SAFETY: as in `decode`.
        let entries = unsafe { Entries::new(table.as_ptr()) };
        let mut records = Vec::new();
        for i in 0..100u64 {
            records.push(record(0x1000 + i * 16, 0, 2, eight(READ)));
            records.push(record(0x1008 + i * 16, 0, 2, eight(READ)));
            records.push(record(0x9000, 0, 3, eight(READ | WRITE)));
            records.push(record(0x9000, 0, 3, eight(WRITE)));
        }
        let mut decoded = Stream::new(StreamId(0));
        let (_, all, _) = decoded.decode(&records, entries, &mut Blocks::default(), u64::MAX, false, false);
        assert_eq!(all, 400);
        for limit in [1, 2, 3, 77, 400] {
            let (mut a, mut b) = (Stream::new(StreamId(0)), Stream::new(StreamId(0)));
            let passed = a.pass_over(&records, entries, limit, |_, _| {});
            let decoded = b.decode(&records, entries, &mut Blocks::default(), limit, false, false);
            assert_eq!((passed.0, passed.1), (decoded.0, decoded.1), "{limit}");
        }
    }
}
