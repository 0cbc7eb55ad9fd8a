//! Entry functions for fuzzing the trace file: any bytes must be refused with a reason, or read as valid batches.

use super::TraceReader;
use super::chunk::{ChunkDecoder, ChunkEncoder, Collected, Collector, Head};
use crate::{Batch, BatchPool, EventSource, SourceError};
use std::io::Cursor;
use std::path::Path;

const NAME: &str = "fuzzed";

/// Reads everything of a source.
///
/// # Panics
/// When a batch breaks the rules, an error does not name the input, or something follows an error.
pub(crate) fn drain(source: &mut dyn EventSource) -> u64 {
    drain_at_most(source, u64::MAX)
}

/// As [`drain`], until so many accesses were read: a few bytes can stand for any number.
///
/// # Panics
/// As [`drain`].
pub(crate) fn drain_at_most(source: &mut dyn EventSource, most: u64) -> u64 {
    let mut accesses = 0;
    while accesses < most {
        match source.next_batch() {
            Ok(Some(batch)) => {
                assert_eq!(batch.validate(), Ok(()));
                accesses += batch.len() as u64;
            }
            Ok(None) => return accesses,
            Err(error) => {
                check_error(&error);
                assert!(matches!(source.next_batch(), Ok(None)), "a batch follows an error");
                return accesses;
            }
        }
    }
    accesses
}

/// # Panics
/// When an error does not name the input or says nothing beyond.
pub(crate) fn check_error(error: &SourceError) {
    let message = error.to_string();
    assert!(message.starts_with(NAME) && message.len() > NAME.len() + 2, "{message:?}");
}

/// A whole file: opened, read, sought, outlined, salvaged.
///
/// # Panics
/// When a promise is broken.
pub fn reader(data: &[u8]) {
    let open = |salvage| {
        let storage = Box::new(Cursor::new(data.to_vec()));
        TraceReader::of(Path::new(NAME), storage, data.len() as u64, salvage)
    };
    match open(false) {
        Err(error) => check_error(&error),
        Ok(mut reader) => {
            let claimed = reader.totals().map_or(0, |totals| totals.accesses);
            let read = drain(&mut reader);
            assert!(read <= claimed, "more accesses than the index says");
            if reader.seek(claimed / 2).is_ok() {
                drain(&mut reader);
            }
        }
    }
    if let Ok(mut reader) = open(false) {
        while let Ok(Some((batch, _))) = reader.next_outline(u64::MAX) {
            assert!(batch.addr.is_empty());
        }
        drain(&mut reader);
    }
    match open(true) {
        Err(error) => check_error(&error),
        Ok(mut reader) => loop {
            match reader.next_batch() {
                Ok(Some(batch)) => assert_eq!(batch.validate(), Ok(())),
                Ok(None) => break,
                // Memory does not fail to be read.
                Err(error) => panic!("salvage failed: {error}"),
            }
        },
    }
}

/// Numbers before the sections in the input of [`chunk`]: accesses, batches, events, descriptions, and the sections'
/// lengths.
const NUMBERS: usize = 10;

/// The content of a chunk before compression, in a sound container: what neither checksums nor zstd hold back.
///
/// # Panics
/// When a promise is broken.
pub fn chunk(data: &[u8]) {
    let (words, mut rest) = match data.split_at_checked(4 * NUMBERS) {
        Some((words, rest)) => (words.as_chunks::<4>().0, rest),
        None => return,
    };
    let word = |index: usize| u32::from_le_bytes(words[index]);
    let mut head = Head {
        accesses: word(0),
        batches: word(1),
        events: word(2),
        descriptions: word(3),
        ..Head::default()
    };
    let mut stored = Vec::new();
    for section in 0..6 {
        let (content, behind) = rest.split_at((word(4 + section) as usize).min(rest.len()));
        rest = behind;
        let compressed = if content.is_empty() {
            Vec::new()
        } else {
            zstd::bulk::compress(content, 1).expect("memory compresses")
        };
        head.raw[section] = content.len() as u32;
        head.stored[section] = compressed.len() as u32;
        stored.extend(compressed);
    }
    head.checksum = head.compute_checksum(&stored);
    let Ok(head) = Head::from_bytes(&head.to_bytes()).inspect_err(|what| assert!(!what.is_empty())) else {
        return;
    };
    let mut decoder = ChunkDecoder::new().expect("a decoder");
    if let Err(what) = decoder.begin(head.clone(), &stored) {
        assert!(!what.is_empty());
    }
    let mut pool = BatchPool::default();
    loop {
        match decoder.next_batch(&mut pool) {
            Ok(Some(batch)) => assert_eq!(batch.validate(), Ok(())),
            Ok(None) => break,
            Err(what) => {
                assert!(!what.is_empty());
                assert!(matches!(decoder.next_batch(&mut pool), Ok(None)), "a batch follows an error");
                break;
            }
        }
    }
    if decoder.begin_events(head, &stored).is_ok() {
        while let Ok(Some((batch, _))) = decoder.next_events_only() {
            assert!(batch.addr.is_empty());
        }
    }
}

/// An input of [`chunk`] that holds these batches.
///
/// # Panics
/// When they do not fit one chunk.
pub fn chunk_seed(batches: &[Batch]) -> Vec<u8> {
    let mut collector = Collector::default();
    batches.iter().for_each(|batch| collector.push(batch).expect("the batches fit one chunk"));
    let (mut collected, mut encoder) = (Collected::default(), ChunkEncoder::default());
    collector.finish(0, &mut collected);
    let chunk = encoder.encode(&mut collected);
    let head = &chunk.head;
    let numbers = [head.accesses, head.batches, head.events, head.descriptions].into_iter().chain(head.raw);
    numbers.flat_map(u32::to_le_bytes).chain(chunk.sections.iter().flatten().copied()).collect()
}
