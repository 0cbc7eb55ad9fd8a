//! libCacheSim's oracleGeneral: 24 bytes a request, little-endian, without any mark or version.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | time, in seconds |
//! | 4..12 | object |
//! | 12..16 | its size in bytes |
//! | 16..24 | number of the next request for it, counted from 1; -1 or 2^63 - 1: none |
//!
//! Layout: `libCacheSim/traceReader/customizedReader/oracle/oracleGeneralBin.h`. What a request becomes: [`super::objects`].

use super::Parser;
use super::builder::ImportBuilder;
use super::input::{Input, word};
use super::objects::Objects;
use crate::SourceError;

const RECORD_BYTES: usize = 24;
/// Records looked at to recognise the format.
const RECOGNISED_BY: usize = 64;
/// No trace has so many requests; eight bytes of text make larger numbers.
const LAST: i64 = 1 << 48;

/// Parses oracleGeneral records.
#[derive(Debug, Default)]
pub(super) struct OracleGeneral {
    objects: Objects<u64>,
}

struct Record {
    time: u32,
    object: u64,
    bytes: u32,
    next: i64,
}

fn record(bytes: &[u8; RECORD_BYTES]) -> Record {
    let short = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Record { time: short(0), object: word(bytes, 4), bytes: short(12), next: word(bytes, 16) as i64 }
}

impl OracleGeneral {
    /// Whether the bytes at the start of a file look like records: times that do not fall, a size, and next requests that
    /// are later.
    pub(super) fn is_plausible(start: &[u8]) -> bool {
        let (records, _) = start.as_chunks::<RECORD_BYTES>();
        let records = &records[..records.len().min(RECOGNISED_BY)];
        let mut time = 0;
        // Numbers of 64 bits have bytes that no text has.
        let is_text = start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        !records.is_empty()
            && !is_text
            && records.iter().zip(1..).all(|(bytes, number)| {
                let record = record(bytes);
                let before = std::mem::replace(&mut time, record.time);
                let comes =
                    record.next == -1 || record.next == i64::MAX || (number..LAST).contains(&record.next);
                record.time >= before && comes
            })
            && records.iter().any(|bytes| record(bytes).bytes > 0)
    }
}

impl Parser for OracleGeneral {
    fn step(&mut self, input: &mut Input, out: &mut ImportBuilder) -> Result<bool, SourceError> {
        if self.objects.step(out).map_err(|what| input.in_record(&what, RECORD_BYTES))? {
            return Ok(true);
        }
        let Some(bytes) = input.record::<RECORD_BYTES>()? else { return Ok(false) };
        let Record { object, bytes, .. } = record(&bytes);
        self.objects.request(object, u64::from(bytes), false);
        Ok(true)
    }
}
