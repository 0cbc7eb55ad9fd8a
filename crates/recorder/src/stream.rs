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
use terrace_trace::{AccessKind, BATCH_ACCESSES, Batch, BatchPool, Event, MarkKind, StreamId};

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
    /// The thread's number in the trace.
    pub id: StreamId,
    batch: Batch,
    /// For the batch after the one being filled: see [`Batch::after`].
    next_after: u64,
    /// Origins of the registers, instructions not yet emitted, and the short way of decoding.
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

    /// Instructions not yet emitted, because no access followed; they become an event.
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

    /// Says how many accesses were left out since the last one that was kept, if any were.
    pub fn note_left_out(&mut self) {
        let value = std::mem::take(&mut self.left_out);
        if value > 0 {
            self.event(0, Event::Mark { kind: MarkKind::Gap, name: String::new(), value });
        }
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
                }
                // Where no template fits one may fit what follows.
                let one_run = has_blocks && records.len() - used >= LANES;
                let (taken, made) =
                    self.short.decode::<DEPENDENCES, PCS>(&records[used..], entries, room, one_run);
                if taken > 0 || made > 0 {
                    columns.append::<PCS>(&self.short, made);
                    // No records of an instruction are left to come, so none of the last instruction are looked at.
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

    /// Passes over at most `limit` accesses, and calls `touch` with the address and size of each. Returns how many
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
mod tests;
