//! Chunks become batches again.

use super::{
    BATCHES, CODES, CONTROL, DESCRIPTIONS, EVENTS, FLAG_PC, Head, MAX_BATCH_EVENTS, PADDING, Paths,
    RESIDUALS, SECTIONS, code_bytes,
};
use crate::file::dictionary::Dictionary;
use crate::file::events;
use crate::file::predictor::{self, PathState, Predictor};
use crate::file::varint::Cursor;
use crate::{Batch, BatchPool, SequencedEvent, StreamId};

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
pub(in crate::file) struct ChunkDecoder {
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
    pub(in crate::file) fn new() -> std::io::Result<ChunkDecoder> {
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
    pub(in crate::file) fn begin(&mut self, head: Head, stored: &[u8]) -> Result<(), String> {
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
    pub(in crate::file) fn begin_events(&mut self, head: Head, stored: &[u8]) -> Result<(), String> {
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
        // Folds and not `max`, whose comparison is a function of its own that no pass takes several codes at once through.
        let largest = match Codes::of(&self.sections[CODES], head.descriptions, 0..accesses) {
            Codes::Bytes(codes) => codes.iter().fold(0, |largest, &code| u8::max(largest, code)).into(),
            // Signed and shifted by half the range: SSE2 has no other maximum of 16 bits.
            Codes::Halves(codes) => {
                let shifted = |code| (u16::from_le_bytes(code) ^ 0x8000) as i16;
                let largest = codes.iter().fold(i16::MIN, |largest, &code| i16::max(largest, shifted(code)));
                u32::from(largest as u16 ^ 0x8000)
            }
            Codes::Words(codes) => {
                codes.iter().fold(0, |largest, &code| u32::max(largest, u32::from_le_bytes(code)))
            }
        };
        if accesses > 0 && largest as usize >= self.dictionary.len() {
            return Err(format!(
                "an access names description {largest}, there are {}",
                self.dictionary.len()
            ));
        }
        Ok(())
    }

    /// The number of batches not yet decoded.
    pub(in crate::file) fn batches_left(&self) -> u32 {
        self.batches_left
    }

    /// Ends the chunk.
    pub(in crate::file) fn clear(&mut self) {
        self.batches_left = 0;
    }

    /// The next batch, decoded into one of `pool`.
    ///
    /// # Errors
    /// When the content is not what a writer writes. The chunk is at its end then.
    pub(in crate::file) fn next_batch(&mut self, pool: &mut BatchPool) -> Result<Option<Batch>, String> {
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
    pub(in crate::file) fn next_events_only(&mut self) -> Result<Option<(Batch, usize)>, String> {
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
