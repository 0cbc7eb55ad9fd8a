//! Terrace's own trace file.
//!
//! ```text
//! magic "TERRACE\x1a" | version u32 | header length u32 | header CRC-32 u32 | header (JSON)
//! chunk | chunk | ...                                     each: head, six zstd-compressed sections, CRC-32
//! index (zstd) | footer: magic "TINDEX\x1a\n", offset u64, stored length u32, length u32, CRC-32 u32, version u32
//! ```
//!
//! All numbers are little-endian. The writer appends chunk by chunk under the file's final name, so that a killed
//! writer loses at most the chunk it was filling; such a file lacks the index and is read in salvage mode
//! ([`TraceReader::salvage`]). Nothing in a file is trusted: every length is checked against the file or a fixed limit
//! before memory is allocated, every chunk against its checksum.

mod chunk;
mod dictionary;
mod events;
pub(crate) mod fuzz;
mod index;
mod packed;
mod predictor;
mod reader;
mod varint;
mod writer;

pub use index::{ChunkInfo, Totals};
pub use reader::TraceReader;
pub(crate) use writer::advice;
pub use writer::{Summary, TraceWriter, WriteError};

/// The first bytes of every trace file.
pub(crate) const MAGIC: [u8; 8] = *b"TERRACE\x1a";
/// The version this crate writes, and the only one it reads.
pub(crate) const VERSION: u32 = 1;
/// Magic, version, header length, header checksum.
const PREFIX_BYTES: usize = 20;
/// No header is longer.
const MAX_HEADER_BYTES: usize = 1 << 24;
