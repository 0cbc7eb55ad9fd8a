//! Takes records out of the shared memory and decodes them.
//!
//! Threads hand over chunks; the oldest is decoded first. Where no chunk waits, what threads have written so far of
//! the chunks they are filling is taken too: that is how a sleeping or a killed thread's records come out.

use super::Collector;
use super::owners::{Child, Source};
use crate::entries::{Entries, Record};
use crate::stream::Stop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_protocol::layout::{
    CHUNK_BYTES, CHUNK_RECORDS, LANES, PROCESSES, QUEUE, RECORD_BYTES, Shared, untag,
};

impl Collector {
    /// The slot that handed over the oldest chunk of those that need not wait, and whether any must.
    pub(super) fn oldest_chunk(&self) -> (Option<usize>, bool) {
        let shared = self.shared();
        let used = self.slots_used();
        let mut oldest: Option<(u64, usize)> = None;
        let mut blocked = false;
        for number in 0..used {
            let Some(source) = &self.sources[number] else { continue };
            blocked |= source.child == Child::Awaited;
            if !self.order.is_due(source.needs) {
                blocked = true;
                continue;
            }
            let slot = shared.slot(number);
            let head = slot.head.load(Relaxed);
            if slot.tail.load(Acquire) == head {
                continue;
            }
            let chunk = untag(slot.queue[head as usize % QUEUE].load(Relaxed));
            let ticket = shared.chunk(chunk).ticket.load(Relaxed);
            if oldest.is_none_or(|(t, _)| ticket < t) {
                oldest = Some((ticket, number));
            }
        }
        (oldest.map(|(_, slot)| slot), blocked)
    }

    /// Decodes what is left of the first chunk in a slot's queue, and gives it back when all of it is used.
    pub(super) fn take_chunk(&mut self, number: usize) -> bool {
        let shared = self.shared();
        let slot = shared.slot(number);
        let head = slot.head.load(Relaxed);
        if slot.tail.load(Acquire) == head {
            return false;
        }
        let tag = slot.queue[head as usize % QUEUE].load(Relaxed);
        let chunk = untag(tag);
        let records = (shared.chunk(chunk).records.load(Relaxed) as usize).min(CHUNK_RECORDS);
        let Some(mut source) = self.sources[number].take() else { return false };
        let done = if source.partial.0 == tag { source.partial.1 } else { 0 };
        let used = self.advance(number, &mut source, chunk, done, records);
        source.partial = (tag, used);
        self.sources[number] = Some(source);
        if used == records {
            shared.chunk(chunk).owner.store(0, Release);
            slot.head.store(head.wrapping_add(1), Release);
            if slot.tail.load(Relaxed).wrapping_sub(head) <= QUEUE as u32 / 2 {
                // Not sooner, so that a thread that waited has much to do before it waits again.
                self.session.wake_producers();
            }
            return true;
        }
        used > done
    }

    /// Takes what all threads have written that need not wait.
    pub(super) fn harvest_all(&mut self) -> bool {
        let used = self.slots_used();
        let mut progress = false;
        for number in 0..used {
            progress |= self.harvest(number);
        }
        progress
    }

    /// Takes what one thread has written: the first chunk that it handed over or, where there is none, what stands in the
    /// one that it fills. No more at once, so that batches do not pile up before a thread that writes as fast as we read.
    pub(super) fn harvest(&mut self, number: usize) -> bool {
        let shared = self.shared();
        let slot = shared.slot(number);
        loop {
            let Some(source) = &self.sources[number] else { return false };
            if !self.order.is_due(source.needs) {
                return false;
            }
            let tail = slot.tail.load(Acquire);
            if tail != slot.head.load(Relaxed) {
                return self.take_chunk(number);
            }
            let tag = slot.current.load(Acquire) as u32;
            let cursor = self.cursor(number);
            if slot.tail.load(Acquire) != tail || slot.current.load(Acquire) as u32 != tag {
                continue;
            }
            let Some(process) = &self.processes[source.process] else { return false };
            let Some(written) = written(tag, cursor, process.base) else { return false };
            let done = if source.partial.0 == tag { source.partial.1 } else { 0 };
            if written <= done {
                return false;
            }
            let Some(mut source) = self.sources[number].take() else { return false };
            let used = self.advance(number, &mut source, untag(tag), done, written);
            source.partial = (tag, used);
            self.sources[number] = Some(source);
            return used > done;
        }
    }

    /// Whether everything the slot's owner wrote has been taken.
    pub(super) fn is_drained(&self, number: usize) -> bool {
        let Some(source) = &self.sources[number] else { return true };
        let slot = self.shared().slot(number);
        if slot.tail.load(Acquire) != slot.head.load(Relaxed) {
            return false;
        }
        let tag = slot.current.load(Acquire) as u32;
        let base = self.processes[source.process].as_ref().map_or(0, |p| p.base);
        let written = written(tag, self.cursor(number), base).unwrap_or(0);
        let done = if source.partial.0 == tag { source.partial.1 } else { 0 };
        written <= done
    }

    /// Where the thread of a slot writes its next record.
    pub(super) fn cursor(&self, number: usize) -> u64 {
        let slot = self.shared().slot(number);
        let place = (slot.state.load(Acquire) >> 8).saturating_sub(1) as usize % PROCESSES;
        self.shared().lane(place, slot.lane.load(Relaxed) as usize % LANES).cursor.load(Acquire)
    }

    /// Decodes records `done` to `end` of a chunk; how far it got.
    pub(super) fn advance(
        &mut self,
        number: usize,
        source: &mut Source,
        chunk: usize,
        done: usize,
        end: usize,
    ) -> usize {
        // SAFETY: the records before the cursor, or of a chunk handed over, are written and change no more until we
        // give the chunk back.
        let records: &[Record] =
            unsafe { std::slice::from_raw_parts(self.shared().data(chunk).cast_const(), end) };
        // SAFETY: the table stays mapped as long as the session; entries are written before records name them.
        let entries = unsafe { Entries::new(self.shared().entries()) };
        let mut at = done;
        source.needs = 0;
        while (at < end || source.stream.has_derived()) && !self.filter.is_exhausted() {
            let (mut keep, mut run) = self.filter.next();
            let counts = !self.options.region || self.region_is_open(source);
            if !counts {
                (keep, run) = (false, u64::MAX);
            }
            if keep != source.keeps {
                source.keeps = keep;
                if keep {
                    self.resume(number, source);
                }
            }
            let (used, accesses, stop) = if keep {
                let options = (self.options.dependences, self.options.program_counters);
                source.stream.decode(&records[at..], entries, &mut self.blocks, run, options.0, options.1)
            } else {
                let process = self.processes[source.process].as_mut().expect("lives as long as its slots");
                let touched = &mut process.touched;
                let passed = source
                    .stream
                    .pass_over(&records[at..], entries, run, |address, size| touched.insert(address, size));
                source.stream.left_out += passed.1;
                passed
            };
            at += used;
            if counts {
                self.filter.advance(accesses);
            }
            if keep {
                self.accesses += accesses;
            }
            match stop {
                Stop::Control => match self.control(number, source, &records[at..]) {
                    Some(used) => at += used,
                    None => break,
                },
                Stop::Full | Stop::End => {}
            }
            if source.stream.is_full() {
                self.deliver(number, &mut source.stream);
            }
        }
        at
    }

    pub(super) fn region_is_open(&self, source: &Source) -> bool {
        self.processes[source.process].as_ref().is_some_and(|p| p.region_is_open(source.sequence))
    }

    /// Accesses are kept again after some were left out: says how many those were and which pages they touched.
    pub(super) fn resume(&mut self, number: usize, source: &mut Source) {
        source.stream.begin_kept();
        source.stream.note_left_out();
        let resident = self.processes[source.process].as_mut().map(|p| p.touched.take()).unwrap_or_default();
        for event in resident {
            self.emit_global(number, &mut source.stream, event);
        }
    }
}

/// Records written in the chunk of this tag, from a cursor in a process's mapping; `None` if the cursor does not lie
/// in it.
fn written(tag: u32, cursor: u64, base: u64) -> Option<usize> {
    if tag == 0 {
        return None;
    }
    let start = base + Shared::data_offset(untag(tag)) as u64;
    let bytes = cursor.checked_sub(start).filter(|&bytes| bytes <= CHUNK_BYTES as u64)?;
    Some(bytes as usize / RECORD_BYTES)
}
