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

mod decode;
mod encode;

pub(super) use decode::ChunkDecoder;
pub(super) use encode::{ChunkEncoder, Collected, Collector, Compressor};

use super::predictor::PathState;
use crate::StreamId;
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
