//! A chunk: some 262,144 accesses of any streams, decodable on its own.
//!
//! Its bytes are a fixed head and six sections, each compressed by itself because each repeats in its own way:
//!
//! | section | content |
//! |---|---|
//! | batches | per batch: stream, flags, accesses, events, step of `after` |
//! | descriptions | the chunk's dictionary ([`super::dictionary`]) |
//! | events | all events ([`super::events`]) |
//! | codes | per access the number of its description: 1, 2 or 4 bytes, little-endian |
//! | control | per access a byte ([`super::predictor`]) |
//! | residuals | the addresses' residuals |

use super::dictionary::{Dictionary, DictionaryBuilder};
use super::events;
use super::predictor::{self, PathState, Predictor};
use super::varint::{self, Cursor};
use crate::{Batch, BatchPool, SequencedEvent, StreamId};
use std::collections::HashMap;

/// A chunk is closed when it holds this many accesses. Larger ones compress little better and cost memory.
pub(super) const TARGET_ACCESSES: usize = 1 << 18;
/// No chunk holds more; a longer batch is split.
pub(super) const MAX_ACCESSES: usize = 1 << 20;
/// A chunk is closed when its events take this many bytes before compression.
pub(super) const TARGET_EVENT_BYTES: usize = 1 << 20;
/// No section is longer than this before or after compression.
pub(super) const MAX_SECTION_BYTES: usize = 1 << 26;
/// A chunk is closed when it holds this many batches.
pub(super) const TARGET_BATCHES: usize = 1 << 16;

/// A batch holds at most this many events: one takes three bytes in a file but a hundred in memory.
pub(super) const MAX_BATCH_EVENTS: usize = 1 << 20;

/// Length of [`Head`] in bytes.
pub(super) const HEAD_BYTES: usize = 80;
const MAGIC: [u8; 4] = *b"TCHK";
/// The longest entry of the batch table: five numbers and the flags.
const MAX_BATCH_ENTRY_BYTES: u64 = 36;
/// The longest description: five bytes and the instruction address.
const MAX_DESCRIPTION_BYTES: u64 = 15;
/// The batch has instruction addresses.
const FLAG_PC: u8 = 1;
/// Allocation beyond a section, so that residuals can be read a word at a time.
const PADDING: usize = 8;

const SECTIONS: [&str; 6] = ["batches", "descriptions", "events", "codes", "control", "residuals"];
const BATCHES: usize = 0;
const DESCRIPTIONS: usize = 1;
const EVENTS: usize = 2;
const CODES: usize = 3;
const CONTROL: usize = 4;
const RESIDUALS: usize = 5;

/// What stands before a chunk's sections.
///
/// Layout, little-endian: magic `TCHK`; CRC-32 of everything after it in the head and the sections; number of the
/// first access (u64); accesses, batches, events, descriptions (u32 each); per section its length before and after
/// compression (u32 each).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) checksum: u32,
    pub(super) first_access: u64,
    pub(super) accesses: u32,
    pub(super) batches: u32,
    pub(super) events: u32,
    pub(super) descriptions: u32,
    pub(super) raw: [u32; 6],
    pub(super) stored: [u32; 6],
}

impl Head {
    fn words(&self) -> impl Iterator<Item = u32> {
        let first = [self.first_access as u32, (self.first_access >> 32) as u32];
        let counts = [self.accesses, self.batches, self.events, self.descriptions];
        first.into_iter().chain(counts).chain(self.raw).chain(self.stored)
    }

    /// The head's bytes.
    pub(super) fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        for (place, word) in bytes[8..].chunks_exact_mut(4).zip(self.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Whether `bytes` begin as a chunk does.
    pub(super) fn is_chunk(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Reads a head and refuses one whose claims exceed what a writer writes.
    pub(super) fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Result<Head, String> {
        if !Head::is_chunk(bytes) {
            return Err(format!("expected a chunk's mark \"TCHK\", found {}", bytes[..4].escape_ascii()));
        }
        let word = |index: usize| {
            let at = 4 + 4 * index;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let head = Head {
            checksum: word(0),
            first_access: u64::from(word(1)) | u64::from(word(2)) << 32,
            accesses: word(3),
            batches: word(4),
            events: word(5),
            descriptions: word(6),
            raw: std::array::from_fn(|section| word(7 + section)),
            stored: std::array::from_fn(|section| word(13 + section)),
        };
        if head.accesses as usize > MAX_ACCESSES || head.descriptions > head.accesses {
            return Err(format!(
                "expected at most {MAX_ACCESSES} accesses and no more descriptions than accesses, found {} and {}",
                head.accesses, head.descriptions
            ));
        }
        // What the counts can take at most, so that a small file cannot claim much memory.
        let most = |count: u32, bytes: u64| (u64::from(count) * bytes).min(MAX_SECTION_BYTES as u64);
        let limits = [
            most(head.batches, MAX_BATCH_ENTRY_BYTES),
            most(head.descriptions, MAX_DESCRIPTION_BYTES),
            MAX_SECTION_BYTES as u64,
            MAX_SECTION_BYTES as u64,
            MAX_SECTION_BYTES as u64,
            most(head.accesses, 8),
        ];
        for ((&name, limit), (&raw, &stored)) in
            SECTIONS.iter().zip(limits).zip(head.raw.iter().zip(&head.stored))
        {
            // Data that does not compress is stored a little longer than it is.
            let claims = [(raw, limit), (stored, zstd::zstd_safe::compress_bound(limit as usize) as u64)];
            if let Some((claim, limit)) = claims.into_iter().find(|&(claim, limit)| u64::from(claim) > limit)
            {
                return Err(format!("section {name} claims {claim} bytes, more than {limit}"));
            }
        }
        let accesses = u64::from(head.accesses);
        let expected =
            [(CODES, accesses * code_bytes(head.descriptions as usize) as u64), (CONTROL, accesses)];
        for (section, bytes) in expected {
            if u64::from(head.raw[section]) != bytes {
                return Err(format!(
                    "section {} claims {} bytes where {accesses} accesses take {bytes}",
                    SECTIONS[section], head.raw[section]
                ));
            }
        }
        Ok(head)
    }

    /// Bytes of the sections as stored.
    pub(super) fn stored_bytes(&self) -> usize {
        self.stored.iter().map(|&bytes| bytes as usize).sum()
    }

    /// The checksum of this head and `sections`.
    pub(super) fn compute_checksum(&self, sections: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.to_bytes()[8..]);
        hasher.update(sections);
        hasher.finalize()
    }
}

/// Bytes per code where there are this many descriptions.
fn code_bytes(descriptions: usize) -> usize {
    match descriptions {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// Batches on their way into a chunk: events and descriptions encoded, codes and addresses as they came. Buffers are kept
/// from chunk to chunk.
#[derive(Debug, Default)]
pub(super) struct Collected {
    head: Head,
    batches: Vec<u8>,
    descriptions: Vec<u8>,
    events: Vec<u8>,
    codes: Vec<u32>,
    addresses: Vec<u64>,
    /// Per batch its stream and accesses.
    parts: Vec<(StreamId, usize)>,
}

/// Collects batches for a chunk: the first of two steps, so that two threads share the work.
#[derive(Debug, Default)]
pub(super) struct Collector {
    chunk: Collected,
    dictionary: DictionaryBuilder,
    after: u64,
    sequence: u64,
}

impl Collector {
    /// Accesses so far.
    pub(super) fn accesses(&self) -> usize {
        self.chunk.codes.len()
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.chunk.head.batches == 0
    }

    /// Whether it should be closed.
    pub(super) fn is_full(&self) -> bool {
        self.accesses() >= TARGET_ACCESSES
            || self.chunk.events.len() >= TARGET_EVENT_BYTES
            || self.chunk.head.batches as usize >= TARGET_BATCHES
    }

    /// Appends a valid batch of at most [`MAX_ACCESSES`] less [`Collector::accesses`] accesses.
    ///
    /// # Errors
    /// When the batch has too many events, or they make their section longer than it may be. The batch is left out then.
    pub(super) fn push(&mut self, batch: &Batch) -> Result<(), String> {
        if batch.events.len() > MAX_BATCH_EVENTS {
            return Err(format!("a batch has {} events, more than {MAX_BATCH_EVENTS}", batch.events.len()));
        }
        let chunk = &mut self.chunk;
        let begin = (chunk.events.len(), self.sequence);
        let mut before = 0;
        for event in &batch.events {
            events::write(&mut chunk.events, before, &mut self.sequence, event);
            before = event.before;
        }
        if chunk.events.len() > MAX_SECTION_BYTES {
            chunk.events.truncate(begin.0);
            self.sequence = begin.1;
            return Err(format!("a batch's events take more than {MAX_SECTION_BYTES} bytes"));
        }
        let table = &mut chunk.batches;
        varint::put(table, u64::from(batch.stream.0));
        table.push(if batch.pc.is_empty() { 0 } else { FLAG_PC });
        varint::put(table, batch.len() as u64);
        varint::put(table, batch.events.len() as u64);
        varint::put_delta(table, self.after, batch.after);
        self.after = batch.after;
        chunk.head.batches += 1;
        chunk.head.events += batch.events.len() as u32;

        self.dictionary.encode(batch, &mut chunk.codes);
        chunk.addresses.extend_from_slice(&batch.addr);
        chunk.parts.push((batch.stream, batch.len()));
        Ok(())
    }

    /// Closes the chunk into `out`, whose buffers are used for the next one.
    pub(super) fn finish(&mut self, first_access: u64, out: &mut Collected) {
        let chunk = &mut self.chunk;
        chunk.head.first_access = first_access;
        chunk.head.accesses = chunk.codes.len() as u32;
        chunk.head.descriptions = self.dictionary.len() as u32;
        self.dictionary.write(&mut chunk.descriptions);
        std::mem::swap(chunk, out);
        chunk.clear();
        self.dictionary.clear();
        self.after = 0;
        self.sequence = 0;
    }
}

impl Collected {
    fn clear(&mut self) {
        let Collected { head, batches, descriptions, events, codes, addresses, parts } = self;
        *head = Head::default();
        [batches, descriptions, events].into_iter().for_each(Vec::clear);
        codes.clear();
        addresses.clear();
        parts.clear();
    }
}

/// A chunk's content before compression.
#[derive(Debug, Default)]
pub(super) struct RawChunk {
    pub(super) head: Head,
    pub(super) sections: [Vec<u8>; 6],
}

/// Encodes what was collected: the second step. Buffers are kept from chunk to chunk.
#[derive(Debug, Default)]
pub(super) struct ChunkEncoder {
    raw: RawChunk,
    predictor: Predictor,
    paths: Paths,
}

impl ChunkEncoder {
    /// The chunk's content.
    pub(super) fn encode(&mut self, chunk: &mut Collected) -> &mut RawChunk {
        self.predictor.reset();
        self.paths.clear();
        self.raw.head = std::mem::take(&mut chunk.head);
        let [batches, descriptions, events, codes, control, residuals] = &mut self.raw.sections;
        [&mut *codes, control, residuals].into_iter().for_each(Vec::clear);
        std::mem::swap(batches, &mut chunk.batches);
        std::mem::swap(descriptions, &mut chunk.descriptions);
        std::mem::swap(events, &mut chunk.events);
        match code_bytes(self.raw.head.descriptions as usize) {
            1 => codes.extend(chunk.codes.iter().map(|&code| code as u8)),
            2 => codes.extend(chunk.codes.iter().flat_map(|&code| (code as u16).to_le_bytes())),
            _ => codes.extend(chunk.codes.iter().flat_map(|&code| code.to_le_bytes())),
        }
        let mut at = 0;
        for &(stream, accesses) in &chunk.parts {
            let part = at..at + accesses;
            let (codes, addresses) = (&chunk.codes[part.clone()], &chunk.addresses[part]);
            self.predictor.encode(self.paths.of(stream), codes, addresses, control, residuals);
            at += accesses;
        }
        for (length, section) in self.raw.head.raw.iter_mut().zip(&self.raw.sections) {
            *length = section.len() as u32;
        }
        chunk.clear();
        &mut self.raw
    }
}

/// Compresses chunks.
pub(super) struct Compressor {
    zstd: zstd::bulk::Compressor<'static>,
    /// For what does not compress: it is soon found out, and read at the speed of copying.
    plain: zstd::bulk::Compressor<'static>,
    /// The sections of the chunk, and what is left of longer ones.
    stored: Vec<u8>,
}

impl Compressor {
    /// Level 1: the sections are so repetitive that higher levels gain under five percent and cost a third of the
    /// writing speed.
    const LEVEL: i32 = 1;
    /// Bytes are left as they are but for long repetitions.
    const PLAIN_LEVEL: i32 = -50;

    pub(super) fn new() -> std::io::Result<Compressor> {
        let [zstd, plain] = [Self::LEVEL, Self::PLAIN_LEVEL].map(zstd::bulk::Compressor::new);
        Ok(Compressor { zstd: zstd?, plain: plain?, stored: Vec::new() })
    }

    /// The chunk's bytes: completes its head and returns it with the stored sections.
    pub(super) fn compress(&mut self, chunk: &mut RawChunk) -> std::io::Result<([u8; HEAD_BYTES], &[u8])> {
        let mut end = 0;
        for (section, length) in chunk.sections.iter().zip(&mut chunk.head.stored) {
            let begin = end;
            if !section.is_empty() {
                let room = begin + zstd::zstd_safe::compress_bound(section.len());
                if self.stored.len() < room {
                    self.stored.resize(room, 0);
                }
                let out = &mut self.stored[begin..room];
                let mut written = self.zstd.compress_to_buffer(section, out)?;
                // To save a sixteenth at the most by entropy coding costs the reader three nanoseconds an access.
                if written > section.len() / 16 * 15 {
                    written = self.plain.compress_to_buffer(section, out)?;
                }
                end += written;
            }
            *length = (end - begin) as u32;
        }
        let stored = &self.stored[..end];
        chunk.head.checksum = chunk.head.compute_checksum(stored);
        Ok((chunk.head.to_bytes(), stored))
    }
}

/// One line of the batch table.
#[derive(Clone, Copy, Debug)]
struct BatchEntry {
    stream: StreamId,
    accesses: usize,
    events: usize,
    after: u64,
    has_pc: bool,
}

/// Decodes a chunk, batch by batch.
pub(super) struct ChunkDecoder {
    zstd: zstd::bulk::Decompressor<'static>,
    head: Head,
    sections: [Vec<u8>; 6],
    dictionary: Dictionary,
    predictor: Predictor,
    paths: Paths,
    /// Whether the chunk was begun with its accesses, whose codes then are valid.
    has_accesses: bool,
    /// Reading positions: in the batch table and the events in bytes, in the codes and control in accesses, in the
    /// residuals in bytes.
    batches_at: usize,
    batches_left: u32,
    events_at: usize,
    access: usize,
    residuals_at: usize,
    after: u64,
    sequence: u64,
}

impl ChunkDecoder {
    pub(super) fn new() -> std::io::Result<ChunkDecoder> {
        Ok(ChunkDecoder {
            zstd: zstd::bulk::Decompressor::new()?,
            head: Head::default(),
            sections: Default::default(),
            dictionary: Dictionary::default(),
            predictor: Predictor::default(),
            paths: Paths::default(),
            has_accesses: false,
            batches_at: 0,
            batches_left: 0,
            events_at: 0,
            access: 0,
            residuals_at: 0,
            after: 0,
            sequence: 0,
        })
    }

    /// Begins a chunk from its head and stored sections.
    ///
    /// # Errors
    /// When checksum or content are not what a writer writes: a sentence that says what was expected.
    pub(super) fn begin(&mut self, head: Head, stored: &[u8]) -> Result<(), String> {
        self.batches_left = 0;
        self.has_accesses = false;
        let checksum = head.compute_checksum(stored);
        if checksum != head.checksum {
            return Err(format!("expected checksum {:#010x}, found {checksum:#010x}", head.checksum));
        }
        self.decompress(&head, stored, 0..SECTIONS.len())?;
        self.dictionary.read(
            &self.sections[DESCRIPTIONS][..head.raw[DESCRIPTIONS] as usize],
            head.descriptions as usize,
        )?;
        self.check_codes(&head)?;
        self.has_accesses = true;
        // The sum bounds every read of a residual.
        let residuals = predictor::residual_bytes(&self.sections[CONTROL][..head.accesses as usize]);
        if residuals != head.raw[RESIDUALS] as usize {
            return Err(format!(
                "the control bytes ask for {residuals} bytes of residuals, there are {}",
                head.raw[RESIDUALS]
            ));
        }
        self.predictor.reset();
        self.rewind(head);
        Ok(())
    }

    /// Begins a chunk whose accesses are not wanted: only [`ChunkDecoder::next_events_only`] may be called.
    pub(super) fn begin_events(&mut self, head: Head, stored: &[u8]) -> Result<(), String> {
        self.batches_left = 0;
        self.has_accesses = false;
        let checksum = head.compute_checksum(stored);
        if checksum != head.checksum {
            return Err(format!("expected checksum {:#010x}, found {checksum:#010x}", head.checksum));
        }
        for section in [BATCHES, EVENTS] {
            self.decompress(&head, stored, section..section + 1)?;
        }
        self.rewind(head);
        Ok(())
    }

    fn rewind(&mut self, head: Head) {
        self.paths.clear();
        self.batches_at = 0;
        self.batches_left = head.batches;
        self.events_at = 0;
        self.access = 0;
        self.residuals_at = 0;
        self.after = 0;
        self.sequence = 0;
        self.head = head;
    }

    fn decompress(
        &mut self,
        head: &Head,
        stored: &[u8],
        wanted: std::ops::Range<usize>,
    ) -> Result<(), String> {
        let mut rest = stored;
        for (section, name) in SECTIONS.iter().enumerate().take(wanted.end) {
            let stored = head.stored[section] as usize;
            let (bytes, behind) = rest
                .split_at_checked(stored)
                .ok_or_else(|| format!("section {name} lies beyond the chunk"))?;
            rest = behind;
            if !wanted.contains(&section) {
                continue;
            }
            let length = head.raw[section] as usize;
            let out = &mut self.sections[section];
            // What is left of earlier chunks is overwritten or lies beyond the length, where nobody looks.
            if out.len() < length + PADDING {
                out.resize(length + PADDING, 0);
            }
            let written = if bytes.is_empty() {
                0
            } else {
                self.zstd
                    .decompress_to_buffer(bytes, &mut out[..length])
                    .map_err(|error| format!("section {name} does not decompress: {error}"))?
            };
            if written != length {
                return Err(format!("section {name}: expected {length} bytes, found {written}"));
            }
        }
        Ok(())
    }

    /// Every code names a description, so that the hot loops cannot fail.
    fn check_codes(&self, head: &Head) -> Result<(), String> {
        let accesses = head.accesses as usize;
        let largest = match Codes::of(&self.sections[CODES], head.descriptions, 0..accesses) {
            Codes::Bytes(codes) => codes.iter().copied().max().map(u32::from),
            // Signed and shifted by half the range: SSE2 has no other maximum of 16 bits.
            Codes::Halves(codes) => {
                let largest = codes.iter().map(|&code| (u16::from_le_bytes(code) ^ 0x8000) as i16).max();
                largest.map(|code| u32::from(code as u16 ^ 0x8000))
            }
            Codes::Words(codes) => codes.iter().map(|&code| u32::from_le_bytes(code)).max(),
        };
        match largest {
            Some(code) if code as usize >= self.dictionary.len() => {
                Err(format!("an access names description {code}, there are {}", self.dictionary.len()))
            }
            _ => Ok(()),
        }
    }

    /// The number of batches not yet decoded.
    pub(super) fn batches_left(&self) -> u32 {
        self.batches_left
    }

    /// Ends the chunk.
    pub(super) fn clear(&mut self) {
        self.batches_left = 0;
    }

    /// The next batch, decoded into one of `pool`.
    ///
    /// # Errors
    /// When the content is not what a writer writes. The chunk is at its end then.
    pub(super) fn next_batch(&mut self, pool: &mut BatchPool) -> Result<Option<Batch>, String> {
        if self.batches_left == 0 {
            return Ok(None);
        }
        if !self.has_accesses {
            self.batches_left = 0;
            return Err("the chunk was begun without its accesses".to_owned());
        }
        let Some((entry, mut batch)) = self.next_events(pool.take())? else { return Ok(None) };
        let accesses = self.access..self.access + entry.accesses;
        if accesses.end > self.head.accesses as usize {
            self.batches_left = 0;
            return Err(format!("the batches hold more than the chunk's {} accesses", self.head.accesses));
        }
        let codes = Codes::of(&self.sections[CODES], self.head.descriptions, accesses.clone());
        let control = &self.sections[CONTROL][accesses.clone()];
        let residuals = &self.sections[RESIDUALS][self.residuals_at..];
        let mut parts = Parts {
            dictionary: &self.dictionary,
            predictor: &mut self.predictor,
            path: self.paths.of(entry.stream),
            control,
            residuals,
            has_pc: entry.has_pc,
        };
        // The loops are instantiated per code width.
        self.residuals_at += match codes {
            Codes::Bytes(codes) => parts.decode(codes.iter().map(|&code| usize::from(code)), &mut batch),
            Codes::Halves(codes) => {
                parts.decode(codes.iter().map(|&code| usize::from(u16::from_le_bytes(code))), &mut batch)
            }
            Codes::Words(codes) => {
                parts.decode(codes.iter().map(|&code| u32::from_le_bytes(code) as usize), &mut batch)
            }
        };
        self.access = accesses.end;
        if self.batches_left == 0 && self.access != self.head.accesses as usize {
            return Err(format!(
                "the batches hold {} accesses, the chunk's head says {}",
                self.access, self.head.accesses
            ));
        }
        Ok(Some(batch))
    }

    /// The next batch with its events and without its accesses, whose number the second value says.
    pub(super) fn next_events_only(&mut self) -> Result<Option<(Batch, usize)>, String> {
        Ok(self.next_events(Batch::default())?.map(|(entry, batch)| (batch, entry.accesses)))
    }

    /// The next batch's line of the table, and `batch` with its events and whatever columns it had.
    fn next_events(&mut self, mut batch: Batch) -> Result<Option<(BatchEntry, Batch)>, String> {
        if self.batches_left == 0 {
            return Ok(None);
        }
        let left = std::mem::take(&mut self.batches_left) - 1;
        let mut table =
            Cursor::new(&self.sections[BATCHES][self.batches_at..self.head.raw[BATCHES] as usize]);
        let stream = StreamId(table.small("a stream")?);
        let flags = table.byte()?;
        let entry = BatchEntry {
            stream,
            has_pc: flags & FLAG_PC != 0,
            accesses: table.small("a batch's accesses")?,
            events: table.small("a batch's events")?,
            after: table.delta(self.after)?,
        };
        self.batches_at += table.position();
        self.after = entry.after;
        if entry.accesses > self.head.accesses as usize {
            return Err(format!(
                "a batch claims {} of the chunk's {} accesses",
                entry.accesses, self.head.accesses
            ));
        }

        let mut cursor = Cursor::new(&self.sections[EVENTS][self.events_at..self.head.raw[EVENTS] as usize]);
        // Three bytes is the least an event takes; the check bounds the memory below.
        if entry.events > MAX_BATCH_EVENTS || entry.events.saturating_mul(3) > cursor.remaining() {
            return Err(format!("a batch claims {} events in {} bytes", entry.events, cursor.remaining()));
        }
        (batch.stream, batch.after) = (stream, entry.after);
        batch.events.clear();
        batch.events.reserve(entry.events);
        let mut before = 0;
        for _ in 0..entry.events {
            let event: SequencedEvent = events::read(&mut cursor, before, &mut self.sequence)?;
            before = event.before;
            batch.events.push(event);
        }
        if before as usize > entry.accesses {
            return Err(format!("an event lies before access {before} of a batch of {}", entry.accesses));
        }
        self.events_at += cursor.position();
        self.batches_left = left;
        Ok(Some((entry, batch)))
    }
}

/// What the accesses of a batch are made of, but their codes.
struct Parts<'a> {
    dictionary: &'a Dictionary,
    predictor: &'a mut Predictor,
    path: &'a mut PathState,
    control: &'a [u8],
    residuals: &'a [u8],
    has_pc: bool,
}

impl Parts<'_> {
    /// Decodes the accesses with these codes, each the number of a description; the bytes of residuals used.
    #[inline(always)]
    fn decode(&mut self, codes: impl ExactSizeIterator<Item = usize> + Clone, batch: &mut Batch) -> usize {
        let Parts { dictionary, predictor, path, control, residuals, has_pc } = self;
        batch.pc.clear();
        if *has_pc {
            batch.pc.extend(codes.clone().map(|code| at(&dictionary.pc, code)));
        }
        predictor.decode(path, codes.map(|code| at(&dictionary.packed, code)), control, residuals, batch)
    }
}

/// The description that belongs to a code of the current chunk.
#[inline(always)]
fn at<T: Copy>(descriptions: &[T], code: usize) -> T {
    debug_assert!(code < descriptions.len());
    // SAFETY: `ChunkDecoder::check_codes` has compared the chunk's largest code with the number of descriptions, and
    // neither changes before the next chunk; `next_batch` refuses a chunk that was begun without it.
    unsafe { *descriptions.get_unchecked(code) }
}

/// The codes of some accesses in the width they are stored in.
enum Codes<'a> {
    Bytes(&'a [u8]),
    Halves(&'a [[u8; 2]]),
    Words(&'a [[u8; 4]]),
}

impl<'a> Codes<'a> {
    fn of(section: &'a [u8], descriptions: u32, accesses: std::ops::Range<usize>) -> Codes<'a> {
        let bytes = code_bytes(descriptions as usize);
        let part = &section[accesses.start * bytes..accesses.end * bytes];
        match bytes {
            1 => Codes::Bytes(part),
            2 => Codes::Halves(part.as_chunks().0),
            _ => Codes::Words(part.as_chunks().0),
        }
    }
}

/// Path states of the streams in a chunk, numbered in the order of their first batch.
#[derive(Debug, Default)]
struct Paths {
    numbers: HashMap<StreamId, usize>,
    states: Vec<PathState>,
}

impl Paths {
    fn clear(&mut self) {
        self.numbers.clear();
        self.states.clear();
    }

    fn of(&mut self, stream: StreamId) -> &mut PathState {
        let number = *self.numbers.entry(stream).or_insert_with(|| {
            self.states.push(PathState::new(self.states.len()));
            self.states.len() - 1
        });
        &mut self.states[number]
    }
}
