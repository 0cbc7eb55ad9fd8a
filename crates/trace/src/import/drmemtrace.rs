//! DynamoRIO's drmemtrace: 12 bytes a record, little-endian, as `raw2trace` leaves them (`*.trace.zip`, `*.trace.gz`).
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | type of the record |
//! | 2..4 | bytes accessed, length of the instruction, instructions of a bundle, or type of a marker |
//! | 4..12 | address, or a number |
//!
//! Layout and types: `trace_entry_t` and `trace_type_t` of `clients/drcachesim/common/trace_entry.h`. An instruction
//! comes before the loads and stores that it makes. The format holds no dependences. A file is one thread, or what one
//! core ran; either is one stream. A folder of such files has a stream for each ([`super::threads`]). The iterations of
//! a `rep` instruction count as one; an access without a size has one byte. Left out: prefetches, flushes, encodings of
//! instructions, markers, and accesses to addresses of the kernel, which traces of system calls have.

use super::Parser;
use super::builder::{ImportBuilder, Row};
use super::input::{Input, word};
use crate::{AccessKind, Rules, SourceError};

const RECORD_BYTES: usize = 12;

const READ: u16 = 0;
const WRITE: u16 = 1;
const INSTRUCTION: u16 = 10;
const RETURN: u16 = 16;
const BUNDLE: u16 = 17;
const THREAD: u16 = 22;
const PROCESS: u16 = 24;
const HEADER: u16 = 25;
const MARKER: u16 = 28;
const NO_FETCH: u16 = 29;
const SYSENTER: u16 = 31;
const TAKEN_JUMP: u16 = 48;
const UNTAKEN_JUMP: u16 = 49;

/// Type of a marker: the time, in microseconds.
const TIME: u16 = 2;

/// A header holds no larger version; the last one known is 8.
const LAST_VERSION: u64 = 63;

/// Parses drmemtrace records.
#[derive(Debug, Default)]
pub(super) struct DrMemTrace {
    pc: u64,
    instructions: u64,
    process: Option<u64>,
    /// The last time that a record stated.
    pub(super) time: u64,
}

/// What the beginning of a file states of it. What the beginning does not state is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beginning {
    pub(super) process: u64,
    pub(super) thread: u64,
    /// The first time.
    pub(super) time: u64,
}

struct Record {
    kind: u16,
    size: u16,
    value: u64,
}

fn record(bytes: &[u8; RECORD_BYTES]) -> Record {
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    Record { kind: short(0), size: short(2), value: word(bytes, 4) }
}

impl DrMemTrace {
    /// A reader of a file whose first time is this.
    pub(super) fn since(time: u64) -> DrMemTrace {
        DrMemTrace { time, ..DrMemTrace::default() }
    }

    /// Whether a file begins with the header of a trace, and goes on with a known record.
    pub(super) fn is_plausible(start: &[u8]) -> bool {
        let (records, _) = start.as_chunks::<RECORD_BYTES>();
        let [header, rest @ ..] = records else { return false };
        let Record { kind, size, value } = record(header);
        (kind, size) == (HEADER, 0)
            && (1..=LAST_VERSION).contains(&value)
            && rest.first().is_none_or(|next| record(next).kind <= UNTAKEN_JUMP)
    }
}

impl Beginning {
    /// Reads a file's first bytes.
    pub(super) fn of(start: &[u8]) -> Beginning {
        let mut beginning = Beginning::default();
        for Record { kind, size, value } in start.as_chunks().0.iter().map(record) {
            match kind {
                THREAD => beginning.thread = value,
                PROCESS => beginning.process = value,
                MARKER if size == TIME => {
                    beginning.time = value;
                    break;
                }
                _ => {}
            }
        }
        beginning
    }
}

impl Parser for DrMemTrace {
    fn step(&mut self, input: &mut Input, out: &mut ImportBuilder) -> Result<bool, SourceError> {
        let Some(bytes) = input.record::<RECORD_BYTES>()? else {
            if self.instructions > 0 {
                out.compute(std::mem::take(&mut self.instructions));
            }
            return Ok(false);
        };
        let Record { kind, size, value } = record(&bytes);
        match kind {
            READ | WRITE if value >= Rules::default().user_end() => out.leave_out(0),
            READ | WRITE => {
                let kind = if kind == READ { AccessKind::Read } else { AccessKind::Write };
                let instructions = std::mem::take(&mut self.instructions);
                let pc = Some(self.pc);
                let row =
                    Row { addr: value, bytes: u64::from(size.max(1)), kind, depends_on: 0, instructions, pc };
                out.access(row).map_err(|what| input.in_record(&what, RECORD_BYTES))?;
            }
            INSTRUCTION..=RETURN | SYSENTER | TAKEN_JUMP | UNTAKEN_JUMP => {
                self.pc = value;
                self.instructions += 1;
            }
            NO_FETCH => self.pc = value,
            BUNDLE => self.instructions += u64::from(size),
            MARKER if size == TIME => self.time = value,
            PROCESS => match self.process.replace(value) {
                Some(before) if before != value => {
                    let what = format!(
                        "expected records of process {before} alone, found process {value}: what a core ran of several \
                         processes is not read; have drmemtrace write a file for each thread"
                    );
                    return Err(input.in_record(&what, RECORD_BYTES));
                }
                _ => {}
            },
            0..=UNTAKEN_JUMP => {}
            unknown => {
                let what = format!("expected a type of record from 0 to {UNTAKEN_JUMP}, found {unknown}");
                return Err(input.in_record(&what, RECORD_BYTES));
            }
        }
        Ok(true)
    }
}
