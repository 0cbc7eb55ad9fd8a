//! Puts the events of all threads in one order, and delivers batches so that they keep it.
//!
//! Events that other threads may depend on carry a number from one counter. They are taken in exactly that order: a
//! thread's records wait while an event with a lower number is still to come. Its owner always has room for it (the
//! plugin takes a number only after it has reserved the record), so waiting ends; a number whose owner was killed
//! before it wrote the record is found missing and passed over.

use super::Collector;
use super::owners::{Child, Source};
use crate::entries::Record;
use crate::events;
use crate::stream::Stream;
use std::sync::atomic::Ordering::SeqCst;
use terrace_protocol::control::{self, Operation};
use terrace_protocol::layout::{CHUNK_RECORDS, CHUNKS};
use terrace_trace::{Event, MarkKind, StreamId};

/// Sequence numbers whose place in the trace's order is remembered. A record can lag behind by no more than all
/// chunks can hold events, two records each at the least.
const HISTORY: usize = CHUNKS * CHUNK_RECORDS / 2;
/// The order of the events of all threads: which sequence number comes next, and where those before it stand in the trace.
pub(super) struct Order {
    /// All events with lower sequence numbers have been taken.
    next: u64,
    /// Global events in the trace so far.
    emitted: u64,
    /// For sequence numbers of the recent past: events in the trace once it was taken.
    history: Vec<u64>,
    /// The stream of the last global event, and how many there were before its latest run of them.
    newest: (StreamId, u64),
}

impl Order {
    pub fn new() -> Order {
        Order { next: 1, emitted: 0, history: vec![0; HISTORY], newest: (StreamId(u32::MAX), 0) }
    }

    /// Whether all events before this number have been taken.
    pub fn is_due(&self, sequence: u64) -> bool {
        sequence <= self.next
    }

    /// Global events in the trace so far.
    pub fn emitted(&self) -> u64 {
        self.emitted
    }

    /// Events in the trace once the event of this number was taken; none while it is still to come.
    fn place_of(&self, sequence: u64) -> Option<u64> {
        (sequence < self.next).then(|| self.history[sequence as usize % HISTORY])
    }

    /// The last global event of another stream than this.
    fn latest_of_others(&self, stream: StreamId) -> u64 {
        if self.newest.0 == stream { self.newest.1 } else { self.emitted }
    }

    /// Counts one more global event, of this stream, and returns how many there are now.
    fn emit(&mut self, stream: StreamId) -> u64 {
        if self.newest.0 != stream {
            self.newest = (stream, self.emitted);
        }
        self.emitted += 1;
        self.emitted
    }

    /// The event of this number has been taken. One that had been passed over and came after all does not take the
    /// order back.
    fn take(&mut self, sequence: u64) {
        if sequence == self.next {
            self.pass_over();
        }
    }

    /// The next number has been taken, or will never come.
    fn pass_over(&mut self) {
        self.history[self.next as usize % HISTORY] = self.emitted;
        self.next += 1;
    }
}

impl Collector {
    /// Takes a control record; how many records that were, or `None` if it must wait.
    pub(super) fn control(
        &mut self,
        number: usize,
        source: &mut Source,
        records: &[Record],
    ) -> Option<usize> {
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
            Operation::After => {
                let Some(after) = self.order.place_of(sequence) else {
                    source.needs = sequence + 1;
                    return None;
                };
                source.sequence = source.sequence.max(sequence);
                self.comes_after(number, source, after);
            }
            Operation::ChildEnded => {
                if self.is_still_to_end(source.process, payload[0]) && source.child != Child::GivenUp {
                    source.child = Child::Awaited;
                    return None;
                }
                source.child = Child::Unknown;
                self.comes_after(number, source, self.order.emitted());
            }
            _ if operation.is_sequenced() && sequence != 0 => {
                if !self.order.is_due(sequence) {
                    source.needs = sequence;
                    return None;
                }
                self.event(number, source, operation, payload);
                source.sequence = source.sequence.max(sequence);
                self.order.take(sequence);
            }
            _ => self.event(number, source, operation, payload),
        }
        Some(length)
    }

    /// What follows on a stream comes after so many global events. Its own need no mention.
    fn comes_after(&mut self, number: usize, source: &mut Source, after: u64) {
        let after = after.min(self.order.latest_of_others(source.stream.id));
        if after > source.stream.after() && !source.stream.is_empty() {
            self.deliver(number, &mut source.stream);
        }
        source.stream.set_after(after);
    }

    /// Turns one control record, in its right order, into the trace's events.
    pub(super) fn event(
        &mut self,
        number: usize,
        source: &mut Source,
        operation: Operation,
        payload: &[u64],
    ) {
        match operation {
            Operation::Spawn => self.spawn(number, source),
            Operation::Compute => source.stream.add_instructions(payload[0]),
            // Order between parts that are kept is all that is asked for.
            Operation::Wake if source.keeps => self.emit_wake(number, &mut source.stream),
            Operation::Wake => {}
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

    /// Appends a global event, delivering before it the batch of another thread that holds earlier ones.
    pub(super) fn emit_global(&mut self, number: usize, stream: &mut Stream, event: Event) {
        if let Some((open, _)) = self.open
            && open != number
        {
            self.deliver_slot(open);
        }
        let place = self.order.emit(stream.id);
        stream.event(place, event);
        stream.set_after(place - 1);
        self.open.get_or_insert((number, place));
        // Batches after this one come after the event.
        stream.set_after(place);
    }

    /// Appends the mark of a thread that lets others go on, which itself need not wait for anyone.
    fn emit_wake(&mut self, number: usize, stream: &mut Stream) {
        if let Some((open, _)) = self.open
            && open != number
        {
            self.deliver_slot(open);
        }
        let place = self.order.emit(stream.id);
        stream.event(place, Event::Mark { kind: MarkKind::Wake, name: String::new(), value: 0 });
        self.open.get_or_insert((number, place));
    }

    /// Delivers a stream's batch, after any that holds an event it comes after.
    pub(super) fn deliver(&mut self, number: usize, stream: &mut Stream) {
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

    pub(super) fn deliver_slot(&mut self, number: usize) {
        if let Some(mut source) = self.sources[number].take() {
            self.deliver(number, &mut source.stream);
            self.sources[number] = Some(source);
        }
        if self.open.is_some_and(|(open, _)| open == number) {
            self.open = None;
        }
    }

    /// Delivers what is decoded; what ends inside an instruction only if that is `all` there will be.
    pub(super) fn flush_all(&mut self, all: bool) {
        for number in 0..self.slots_used() {
            if self.sources[number].as_ref().is_some_and(|s| all || !s.stream.is_inside_instruction()) {
                self.deliver_slot(number);
            }
        }
    }

    /// When a sequence number is waited for that no living thread is about to write: its owner was killed.
    pub(super) fn pass_over_missing(&mut self) -> bool {
        if self.awaits_children() {
            // The next records of those children are all there.
            return false;
        }
        if !self.sources.iter().flatten().any(|source| !self.order.is_due(source.needs)) {
            return false;
        }
        let shared = self.shared();
        let used = self.slots_used();
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
            self.order.pass_over();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_in_order_and_each_keeps_its_place() {
        let mut order = Order::new();
        assert_eq!((order.is_due(1), order.is_due(2), order.place_of(1)), (true, false, None));
        // The first stands for two events, as a forked thread with pages to list does.
        order.emit(StreamId(0));
        order.emit(StreamId(0));
        order.take(1);
        assert_eq!((order.is_due(2), order.place_of(1)), (true, Some(2)));
        // The second never comes: who comes after it need not wait, and comes after the same events.
        order.pass_over();
        assert_eq!((order.place_of(2), order.is_due(3)), (Some(2), true));
        // The second comes nevertheless, and gets a place of its own.
        assert_eq!(order.emit(StreamId(1)), 3);
        order.take(2);
        assert_eq!((order.place_of(2), order.is_due(3), order.is_due(4)), (Some(2), true, false));
    }

    #[test]
    fn a_stream_need_not_come_after_its_own_events() {
        let (one, other) = (StreamId(0), StreamId(1));
        let mut order = Order::new();
        assert_eq!((order.latest_of_others(one), order.latest_of_others(other)), (0, 0));
        order.emit(one);
        order.emit(one);
        assert_eq!((order.latest_of_others(one), order.latest_of_others(other)), (0, 2));
        order.emit(other);
        order.emit(one);
        order.emit(one);
        assert_eq!((order.latest_of_others(one), order.latest_of_others(other)), (3, 5));
    }
}
