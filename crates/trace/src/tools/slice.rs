//! `terrace trace slice`: a part of a trace that is a valid trace again.

use super::residency::Residency;
use crate::{Batch, Event, EventSource, Header, MarkKind, SourceError, StreamId, TraceEnding};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Which part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceOptions {
    /// Accesses by number in the source's order, from 0.
    pub accesses: Range<u64>,
    /// Say which pages were touched before, with `Resident` events: the part then begins warm as it did in the
    /// program, at the price of decoding everything before it.
    pub residency: bool,
}

/// A part of `source`, as a source. One that begins beyond the last access is an error at the end of `source`.
///
/// Of what lies before the part, everything that shapes the state at its start is kept: address-space and lifetime
/// events, allocation sites, phases and regions. Accesses, instructions, waits and system-call copies are left out; a
/// `Gap` mark says how many accesses. What lies between the last access before the part and its first counts as before. The
/// part ends after its last access, without `Exit` events.
pub fn slice<S: EventSource>(source: S, options: SliceOptions) -> Slice<S> {
    let header = Header {
        expected_accesses: source
            .header()
            .expected_accesses
            .map(|accesses| options.accesses.end.min(accesses).saturating_sub(options.accesses.start)),
        ..source.header().clone()
    };
    Slice {
        source,
        header,
        residency: options.residency.then(Residency::default),
        position: 0,
        latest: 0,
        // A part that begins at the start leaves nothing out.
        inserted: (options.accesses.start == 0).then_some(0),
        ready: VecDeque::new(),
        accesses: options.accesses,
    }
}

/// See [`slice()`].
#[derive(Debug)]
pub struct Slice<S> {
    source: S,
    header: Header,
    accesses: Range<u64>,
    residency: Option<Residency>,
    /// Number of the source's next access.
    position: u64,
    /// The largest sequence number before the part.
    latest: u64,
    /// How many events were inserted after `latest`, once the part has begun.
    inserted: Option<u64>,
    ready: VecDeque<Batch>,
}

impl<S: EventSource> EventSource for Slice<S> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(Arc::new(batch)));
            }
            if self.inserted.is_some() && self.position >= self.accesses.end {
                return Ok(None);
            }
            // Residency needs the addresses; without it, what lies before is passed over.
            if self.inserted.is_none()
                && self.residency.is_none()
                && let Some((batch, accesses)) = self.source.next_outline(self.accesses.start)?
            {
                self.position += accesses;
                self.pass(batch);
                continue;
            }
            let Some(batch) = self.source.next_batch()? else { return self.end().map(|()| None) };
            self.take(&batch);
        }
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }

    fn ending(&self) -> TraceEnding {
        let all = self.accesses.start == 0 && self.position < self.accesses.end;
        self.source.ending().max(if all { TraceEnding::Whole } else { TraceEnding::Cut })
    }

    fn left_out(&self) -> u64 {
        self.source.left_out()
    }
}

impl<S: EventSource> Slice<S> {
    /// The source has nothing left.
    fn end(&self) -> Result<(), SourceError> {
        if self.inserted.is_some() {
            return Ok(());
        }
        let (all, start) = (self.position, self.accesses.start);
        Err(SourceError::Malformed(format!(
            "the input has {all} accesses: none is left from number {start} on"
        )))
    }

    fn take(&mut self, batch: &Batch) {
        let length = batch.len() as u64;
        let start = self.accesses.start.saturating_sub(self.position).min(length) as usize;
        let end = self.accesses.end.saturating_sub(self.position).min(length) as usize;
        self.position += length;
        let mut began = false;
        if self.inserted.is_none() {
            // The part begins inside or at the start of this batch, unless all of the batch lies before it.
            let before = if self.position > self.accesses.start { start } else { batch.len() };
            let front = part(batch, 0..before, false);
            if let Some(residency) = &mut self.residency {
                residency.observe(&front);
            }
            self.pass(front);
            if before == batch.len() {
                return;
            }
            self.begin(batch.stream);
            began = true;
        }
        let mut rest = part(batch, start..end, end < batch.len());
        // Events just before the part's first access have been taken care of.
        rest.events.retain(|event| !began || event.before > start as u32);
        rest.events.iter_mut().for_each(|event| event.before -= start as u32);
        // Numbers after the inserted events move up by their count; earlier ones keep their order before them.
        let inserted = self.inserted.unwrap_or(0);
        rest.events
            .iter_mut()
            .filter(|event| event.sequence > self.latest)
            .for_each(|event| event.sequence += inserted);
        if rest.after >= self.latest {
            rest.after += inserted;
        }
        if !rest.is_empty() {
            self.ready.push_back(rest);
        }
    }

    /// Keeps of a batch before the part what shapes the state.
    fn pass(&mut self, batch: Batch) {
        self.latest = batch.events.iter().map(|event| event.sequence).fold(self.latest, u64::max);
        let events = state_only(batch);
        if !events.is_empty() {
            self.ready.push_back(events);
        }
    }

    /// Says what was left out, and what was resident.
    fn begin(&mut self, stream: StreamId) {
        let events = self.residency.take().map(|residency| residency.events()).unwrap_or_default();
        self.inserted = Some(events.len() as u64);
        for (number, (stream, event)) in events.into_iter().enumerate() {
            let mut batch = Batch { stream, after: self.latest + number as u64, ..Batch::default() };
            batch.push_event(self.latest + 1 + number as u64, event);
            self.ready.push_back(batch);
        }
        let mut batch = Batch { stream, after: self.latest, ..Batch::default() };
        let value = self.accesses.start;
        batch.push_event(0, Event::Mark { kind: MarkKind::Gap, name: String::new(), value });
        self.ready.push_back(batch);
    }
}

/// The accesses in `range`, and the events up to its end: without those exactly at the end when `more` accesses
/// follow there, since they belong to those.
fn part(batch: &Batch, range: Range<usize>, more: bool) -> Batch {
    let column = range.clone();
    Batch {
        stream: batch.stream,
        after: batch.after,
        addr: batch.addr[column.clone()].to_vec(),
        size: batch.size[column.clone()].to_vec(),
        kind: batch.kind[column.clone()].to_vec(),
        depends_on: batch.depends_on[column.clone()].to_vec(),
        instructions: batch.instructions[column.clone()].to_vec(),
        pc: if batch.pc.is_empty() { Vec::new() } else { batch.pc[column].to_vec() },
        events: batch
            .events
            .iter()
            .filter(|event| {
                (event.before as usize) < range.end || (!more && event.before as usize == range.end)
            })
            .cloned()
            .collect(),
    }
}

/// The events that shape the state after a batch.
fn state_only(batch: Batch) -> Batch {
    let keep = |event: &Event| {
        event.is_global()
            || matches!(
                event,
                Event::Site { .. }
                    | Event::Mark { kind: MarkKind::Phase | MarkKind::RegionBegin | MarkKind::RegionEnd, .. }
            )
    };
    let mut events = batch.events;
    events.retain(|event| keep(&event.event));
    events.iter_mut().for_each(|event| event.before = 0);
    Batch { stream: batch.stream, after: batch.after, events, ..Batch::default() }
}
