//! Batches become chunks, in two steps, so that two threads share the work.

use super::{
    FLAG_PC, HEAD_BYTES, Head, MAX_BATCH_EVENTS, MAX_SECTION_BYTES, Paths, TARGET_ACCESSES, TARGET_BATCHES,
    TARGET_EVENT_BYTES, code_bytes,
};
use crate::file::dictionary::DictionaryBuilder;
use crate::file::predictor::Predictor;
use crate::file::{events, varint};
use crate::{Batch, StreamId};

/// Batches on their way into a chunk: events and descriptions encoded, codes and addresses as they came. Buffers are kept
/// from chunk to chunk.
#[derive(Debug, Default)]
pub(in crate::file) struct Collected {
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
pub(in crate::file) struct Collector {
    chunk: Collected,
    dictionary: DictionaryBuilder,
    after: u64,
    sequence: u64,
}

impl Collector {
    /// Accesses so far.
    pub(in crate::file) fn accesses(&self) -> usize {
        self.chunk.codes.len()
    }

    /// Whether there is nothing in it.
    pub(in crate::file) fn is_empty(&self) -> bool {
        self.chunk.head.batches == 0
    }

    /// Whether it should be closed.
    pub(in crate::file) fn is_full(&self) -> bool {
        self.accesses() >= TARGET_ACCESSES
            || self.chunk.events.len() >= TARGET_EVENT_BYTES
            || self.chunk.head.batches as usize >= TARGET_BATCHES
    }

    /// Appends a valid batch of at most [`MAX_ACCESSES`] less [`Collector::accesses`] accesses.
    ///
    /// # Errors
    /// When the batch has too many events, or they make their section longer than it may be. The batch is left out then.
    pub(in crate::file) fn push(&mut self, batch: &Batch) -> Result<(), String> {
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
    pub(in crate::file) fn finish(&mut self, first_access: u64, out: &mut Collected) {
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
pub(in crate::file) struct RawChunk {
    pub(in crate::file) head: Head,
    pub(in crate::file) sections: [Vec<u8>; 6],
}

/// Encodes what was collected: the second step. Buffers are kept from chunk to chunk.
#[derive(Debug, Default)]
pub(in crate::file) struct ChunkEncoder {
    raw: RawChunk,
    predictor: Predictor,
    paths: Paths,
}

impl ChunkEncoder {
    /// The chunk's content.
    pub(in crate::file) fn encode(&mut self, chunk: &mut Collected) -> &mut RawChunk {
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
pub(in crate::file) struct Compressor {
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

    pub(in crate::file) fn new() -> std::io::Result<Compressor> {
        let [zstd, plain] = [Self::LEVEL, Self::PLAIN_LEVEL].map(zstd::bulk::Compressor::new);
        Ok(Compressor { zstd: zstd?, plain: plain?, stored: Vec::new() })
    }

    /// The chunk's bytes: completes its head and returns it with the stored sections.
    pub(in crate::file) fn compress(
        &mut self,
        chunk: &mut RawChunk,
    ) -> std::io::Result<([u8; HEAD_BYTES], &[u8])> {
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
