//! `terrace trace convert`: any source to a Terrace trace, or to the text of other tools.

use crate::{AccessKind, Event, EventSource, Item, SourceError, Summary, TraceWriter, WriteError};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::Path;

/// A conversion that failed.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// On the reading side.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// On the writing side, a Terrace trace.
    #[error(transparent)]
    Trace(#[from] WriteError),
    /// On the writing side, text.
    #[error("cannot write the text: {0}")]
    Text(#[from] io::Error),
}

/// The text formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextFormat {
    /// Valgrind lackey's lines. Instructions between accesses become `I` lines at the next access's instruction
    /// address (0 where it is not known), of one byte each.
    Lackey,
    /// `R|W hexaddress size` lines. Instruction counts are lost.
    Plain,
}

/// What a text conversion left out, since text has no place for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversion {
    /// Accesses written.
    pub accesses: u64,
    /// Events left out (mappings, allocations, marks, waits).
    pub events_left_out: u64,
    /// Streams merged into one.
    pub streams: u64,
}

/// Writes all of `source` to a Terrace trace at `path`.
///
/// # Errors
/// As [`EventSource::next_batch`] and [`TraceWriter`]. The file keeps the whole chunks written before, for salvage.
pub fn convert(source: &mut dyn EventSource, path: impl AsRef<Path>) -> Result<Summary, ConvertError> {
    let mut writer = TraceWriter::create(path, source.header())?;
    while let Some(batch) = source.next_batch()? {
        writer.push(&batch)?;
    }
    Ok(writer.finish()?)
}

/// Writes the accesses of `source` as text.
///
/// # Errors
/// As [`EventSource::next_batch`] and the writer's own.
pub fn write_text(
    source: &mut dyn EventSource,
    format: TextFormat,
    out: &mut dyn Write,
) -> Result<Conversion, ConvertError> {
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    let mut done = Conversion::default();
    let mut streams = std::collections::HashSet::new();
    while let Some(batch) = source.next_batch()? {
        streams.insert(batch.stream);
        for item in batch.items() {
            match (item, format) {
                (Item::Access(access), TextFormat::Plain) => {
                    done.accesses += 1;
                    let kind = if access.kind == AccessKind::Read { 'R' } else { 'W' };
                    writeln!(out, "{kind} {:#x} {}", access.addr, access.size)?;
                }
                (Item::Access(access), TextFormat::Lackey) => {
                    done.accesses += 1;
                    for _ in 0..access.instructions {
                        writeln!(out, "I  {:08x},1", access.pc.unwrap_or(0))?;
                    }
                    let kind = if access.kind == AccessKind::Read { 'L' } else { 'S' };
                    writeln!(out, " {kind} {:08x},{}", access.addr, access.size)?;
                }
                (Item::Event(event), TextFormat::Lackey) => {
                    if let Event::Compute { instructions } = event.event {
                        for _ in 0..instructions {
                            writeln!(out, "I  {:08x},1", 0)?;
                        }
                    } else {
                        done.events_left_out += 1;
                    }
                }
                (Item::Event(_), TextFormat::Plain) => done.events_left_out += 1,
            }
        }
    }
    out.flush()?;
    done.streams = streams.len() as u64;
    Ok(done)
}
