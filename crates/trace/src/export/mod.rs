//! Any source in the formats of other tools: [`export`].
//!
//! | format | one record |
//! |---|---|
//! | Valgrind lackey's lines, plain lines | [`text`] |
//! | ChampSim's 64-byte instruction records | [`champsim`] |
//! | libCacheSim's oracleGeneral | [`oracle_general`] |
//! | folded stacks, for flame graphs | [`folded`] |
//!
//! None of these formats holds all that a trace has. [`Exported`] says what was left out.

mod champsim;
mod file;
mod folded;
mod oracle_general;
mod text;

use crate::file::advice;
use crate::{Batch, EventSource, SourceError, StreamId};
use champsim::ChampSim;
pub use file::ExportFile;
pub(crate) use file::{beside, is_in_place};
use folded::Folded;
pub use folded::Weight;
use oracle_general::OracleGeneral;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use text::{Lackey, Plain};

/// The formats of other tools that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExportFormat {
    /// Valgrind lackey's lines.
    Lackey,
    /// `R|W hexaddress size` lines.
    Text,
    /// ChampSim's instruction records.
    ChampSim,
    /// libCacheSim's requests for objects: an object is a block of so many bytes, a power of two from 64 to 2^30.
    OracleGeneral {
        /// Bytes of a block.
        block: u64,
    },
    /// `program;allocation site;read count` lines.
    Folded {
        /// What is counted.
        weight: Weight,
    },
}

/// An export that failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// On the reading side.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// On the writing side.
    #[error("cannot write the export: {0}{advice}", advice = advice(.0))]
    Write(#[from] io::Error),
    /// The stream that was asked for never came.
    #[error("the trace has no stream {asked}; its streams are {there}")]
    NoStream {
        /// The stream's number.
        asked: u32,
        /// Numbers of the streams that the trace has, in words.
        there: String,
    },
}

/// What was written, and what the format has no place for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exported {
    /// Accesses written.
    pub accesses: u64,
    /// Lines, instructions or requests written.
    pub records: u64,
    /// Streams merged into one.
    pub streams_merged: u64,
    /// Events left out, such as mappings, allocations, marks and waits.
    pub events_left_out: u64,
    /// ChampSim: records beyond the instructions of the trace, for accesses that did not fit into their own.
    pub instructions_added: u64,
    /// ChampSim: dependences on loads that no register holds any more.
    pub dependences_left_out: u64,
}

/// Turns batches into the bytes of one format.
trait Exporter {
    /// Takes in the next batch.
    fn batch(&mut self, batch: &Batch, done: &mut Exported, out: &mut dyn Write) -> io::Result<()>;

    /// Takes in a batch of a stream that was not asked for: only what the others need to know of it counts.
    fn other_stream(&mut self, _batch: &Batch) {}

    /// Writes what is left at the end of the trace.
    fn finish(&mut self, _done: &mut Exported, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// Streams named in an error, at most.
const MOST_NAMED: usize = 16;

/// Writes the accesses of `source`, or of one of its streams, in the format of another tool. `scratch` is a folder with room
/// for 24 bytes per request, which `OracleGeneral` alone needs.
///
/// # Errors
/// As [`EventSource::next_batch`] and the writer's own; and when the trace lacks the stream.
///
/// # Panics
/// `OracleGeneral` has a block whose size is no power of two from 64 to 2^30.
pub fn export(
    source: &mut dyn EventSource,
    format: ExportFormat,
    only: Option<StreamId>,
    scratch: &Path,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let mut exporter: Box<dyn Exporter> = match format {
        ExportFormat::Lackey => Box::new(Lackey),
        ExportFormat::Text => Box::new(Plain),
        ExportFormat::ChampSim => Box::new(ChampSim::default()),
        ExportFormat::OracleGeneral { block } => Box::new(OracleGeneral::new(block, scratch)?),
        ExportFormat::Folded { weight } => Box::new(Folded::new(weight, &source.header().program)),
    };
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    let mut done = Exported::default();
    let mut streams = BTreeSet::new();
    while let Some(batch) = source.next_batch()? {
        streams.insert(batch.stream);
        if only.is_none_or(|only| only == batch.stream) {
            exporter.batch(&batch, &mut done, &mut out)?;
        } else {
            exporter.other_stream(&batch);
        }
    }
    if let Some(only) = only.filter(|only| !streams.contains(only)) {
        let mut there: Vec<String> =
            streams.iter().take(MOST_NAMED).map(|stream| stream.0.to_string()).collect();
        if streams.len() > MOST_NAMED {
            there.push(format!("{} more", streams.len() - MOST_NAMED));
        }
        return Err(ExportError::NoStream { asked: only.0, there: there.join(", ") });
    }
    done.streams_merged = if only.is_some() { 1 } else { streams.len() as u64 };
    exporter.finish(&mut done, &mut out)?;
    out.flush()?;
    Ok(done)
}
