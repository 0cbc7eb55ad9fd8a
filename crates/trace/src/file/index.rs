//! The index at a trace file's end: where each chunk lies, and what the whole trace holds.

use super::chunk::{HEAD_BYTES, TARGET_BATCHES};
use super::varint::{self, Cursor};
use crate::{AccessKind, Batch, Event, MAX_STREAMS, StreamInfo, TraceEnding};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const FOOTER_MAGIC: [u8; 8] = *b"TINDEX\x1a\n";
/// Length of the footer.
pub(super) const FOOTER_BYTES: usize = 32;
/// No index is longer before compression: 4 million chunks, a trillion accesses.
const MAX_INDEX_BYTES: u64 = 1 << 28;
/// The longest entry of a chunk: four numbers, and five bytes for each stream.
const MAX_ENTRY_BYTES: u64 = 32 + 5 * TARGET_BATCHES as u64;
/// The longest totals: five numbers, and thirty bytes for each stream.
const MAX_TOTALS_BYTES: u64 = 64 + 30 * MAX_STREAMS as u64;

/// One chunk of a trace file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkInfo {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// The chunk's length in the file, head included.
    pub bytes: u32,
    /// Number of its first access within the trace.
    pub first_access: u64,
    /// The chunk's accesses.
    pub accesses: u32,
    /// The chunk's streams, by number.
    pub streams: Vec<u32>,
}

/// What a whole trace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Loads and stores.
    pub accesses: u64,
    /// Loads among them.
    pub reads: u64,
    /// Stores among them.
    pub writes: u64,
    /// Instructions retired.
    pub instructions: u64,
    /// Events other than accesses.
    pub events: u64,
    /// Batches.
    pub batches: u64,
    /// Each stream, by number.
    pub streams: Vec<StreamInfo>,
}

impl Totals {
    /// Counts one batch.
    pub(crate) fn add(&mut self, batch: &Batch) {
        let accesses = batch.len() as u64;
        // Narrower sums first, of which more are added at once.
        let writes = |part: &[AccessKind]| part.iter().map(|&kind| kind as u16).sum::<u16>();
        let writes = batch.kind.chunks(4096).map(|part| u64::from(writes(part))).sum::<u64>();
        let instructions = batch.instruction_count();
        self.accesses += accesses;
        self.writes += writes;
        self.reads += accesses - writes;
        self.instructions = self.instructions.saturating_add(instructions);
        self.events += batch.events.len() as u64;
        self.batches += 1;
        let stream = batch.stream.index();
        if stream >= MAX_STREAMS {
            return;
        }
        if stream >= self.streams.len() {
            self.streams.resize(stream + 1, StreamInfo::default());
        }
        let info = &mut self.streams[stream];
        info.accesses += accesses;
        info.instructions = info.instructions.saturating_add(instructions);
        for event in &batch.events {
            if let Event::Spawn { process, thread, .. } = event.event {
                (info.process, info.thread) = (process, thread);
            }
        }
    }
}

/// The endings by their numbers in a file. A whole trace has none written.
const ENDINGS: [TraceEnding; 4] =
    [TraceEnding::Whole, TraceEnding::Stopped, TraceEnding::Cut, TraceEnding::Damaged];

/// The whole index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) chunks: Vec<ChunkInfo>,
    pub(super) totals: Totals,
    /// Files of before this was written are whole for all that can be known.
    pub(super) ending: TraceEnding,
}

impl Index {
    /// The index with its footer, to be written at `offset`.
    pub(super) fn to_bytes(&self, offset: u64) -> std::io::Result<Vec<u8>> {
        let mut raw = Vec::new();
        varint::put(&mut raw, self.chunks.len() as u64);
        let mut end = 0;
        for chunk in &self.chunks {
            varint::put_delta(&mut raw, end, chunk.offset);
            varint::put(&mut raw, u64::from(chunk.bytes));
            varint::put(&mut raw, u64::from(chunk.accesses));
            varint::put(&mut raw, chunk.streams.len() as u64);
            let mut previous = 0;
            for &stream in &chunk.streams {
                varint::put_delta(&mut raw, previous, u64::from(stream));
                previous = u64::from(stream);
            }
            end = chunk.offset + u64::from(chunk.bytes);
        }
        let totals = &self.totals;
        for total in [totals.writes, totals.instructions, totals.events, totals.batches] {
            varint::put(&mut raw, total);
        }
        varint::put(&mut raw, totals.streams.len() as u64);
        for stream in &totals.streams {
            for number in
                [u64::from(stream.process), stream.thread.into(), stream.accesses, stream.instructions]
            {
                varint::put(&mut raw, number);
            }
        }
        if let Some(number) = ENDINGS.iter().position(|ending| *ending == self.ending).filter(|at| *at > 0) {
            varint::put(&mut raw, number as u64);
        }
        let mut bytes = zstd::bulk::compress(&raw, 3)?;
        let stored = bytes.len() as u32;
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(FOOTER_MAGIC);
        bytes.extend(offset.to_le_bytes());
        for word in [stored, raw.len() as u32, checksum, super::VERSION] {
            bytes.extend(word.to_le_bytes());
        }
        Ok(bytes)
    }

    /// Reads what [`Index::to_bytes`] wrote, without the footer.
    pub(super) fn from_bytes(footer: &Footer, bytes: &[u8]) -> Result<Index, String> {
        let checksum = crc32fast::hash(bytes);
        if checksum != footer.checksum {
            return Err(format!("expected checksum {:#010x}, found {checksum:#010x}", footer.checksum));
        }
        let raw = zstd::bulk::decompress(bytes, footer.raw as usize)
            .map_err(|error| format!("it does not decompress: {error}"))?;
        let mut cursor = Cursor::new(&raw);
        let mut index = Index::default();
        let (mut end, mut first_access) = (0u64, 0u64);
        for _ in 0..bounded(&mut cursor, 4, "chunks")? {
            let offset = cursor.delta(end)?;
            let bytes = cursor.small("a chunk's length")?;
            let accesses: u32 = cursor.small("a chunk's accesses")?;
            let mut streams = Vec::new();
            let mut previous = 0;
            for _ in 0..bounded(&mut cursor, 1, "streams")? {
                previous = cursor.delta(previous)?;
                streams.push(u32::try_from(previous).map_err(|_| "a stream's number exceeds 32 bits")?);
            }
            index.chunks.push(ChunkInfo { offset, bytes, first_access, accesses, streams });
            first_access = first_access.saturating_add(u64::from(accesses));
            end = offset.saturating_add(u64::from(bytes));
        }
        let totals = &mut index.totals;
        totals.accesses = first_access;
        totals.writes = cursor.number()?;
        totals.reads = first_access.checked_sub(totals.writes).ok_or("more stores than accesses")?;
        totals.instructions = cursor.number()?;
        totals.events = cursor.number()?;
        totals.batches = cursor.number()?;
        for _ in 0..bounded(&mut cursor, 4, "streams")? {
            totals.streams.push(StreamInfo {
                process: cursor.small("a process")?,
                thread: cursor.small("a thread")?,
                accesses: cursor.number()?,
                instructions: cursor.number()?,
            });
        }
        // Readers of before this was written pass over it.
        if cursor.remaining() > 0 {
            // What a later version may add is not whole.
            index.ending =
                ENDINGS.get(cursor.small::<usize>("the ending")?).copied().unwrap_or(TraceEnding::Stopped);
        }
        Ok(index)
    }
}

/// A count of entries that take at least `least` bytes each, checked against the bytes that are left.
fn bounded(cursor: &mut Cursor<'_>, least: usize, what: &str) -> Result<usize, String> {
    let count: usize = cursor.small(what)?;
    if count.saturating_mul(least) > cursor.remaining() {
        return Err(format!("it claims {count} {what} in {} bytes", cursor.remaining()));
    }
    Ok(count)
}

/// The last bytes of a complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) offset: u64,
    pub(super) stored: u32,
    raw: u32,
    checksum: u32,
}

impl Footer {
    /// `Ok(None)` when the bytes are no footer at all: the file was not finished.
    pub(super) fn from_bytes(bytes: &[u8; FOOTER_BYTES]) -> Result<Option<Footer>, String> {
        if bytes[..8] != FOOTER_MAGIC {
            return Ok(None);
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(28) != super::VERSION {
            return Err(format!("expected version {} in the footer, found {}", super::VERSION, word(28)));
        }
        let offset = u64::from(word(8)) | u64::from(word(12)) << 32;
        let footer = Footer { offset, stored: word(16), raw: word(20), checksum: word(24) };
        // What the chunks before it and its totals can take at most, so that a small file cannot claim much memory.
        let chunks = offset / HEAD_BYTES as u64;
        let limit =
            MAX_TOTALS_BYTES.saturating_add(chunks.saturating_mul(MAX_ENTRY_BYTES)).min(MAX_INDEX_BYTES);
        if u64::from(footer.raw) > limit {
            return Err(format!("the index claims {} bytes, more than {limit}", footer.raw));
        }
        Ok(Some(footer))
    }
}

/// Collects the streams of the chunk being written.
#[derive(Debug, Default)]
pub(super) struct StreamSet(BTreeSet<u32>);

impl StreamSet {
    pub(super) fn add(&mut self, batch: &Batch) {
        self.0.insert(batch.stream.0);
    }

    pub(super) fn take(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.0).into_iter().collect()
    }
}
