//! `terrace trace info`.

use crate::import::Opened;
use crate::{Format, Header, SourceError, Totals};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a trace file is and holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceInfo {
    /// The file.
    pub path: String,
    /// The file's format.
    pub format: Format,
    /// What it says about itself.
    pub header: Header,
    /// The file's length.
    pub file_bytes: u64,
    /// File length over accesses; 0 for a trace without any.
    pub bytes_per_access: f64,
    /// Chunks of a Terrace trace, by its index.
    pub chunks: Option<u64>,
    /// Accesses, instructions, events, streams.
    pub totals: Totals,
    /// What ended the reading early, in salvage mode: the totals are those of what can be read.
    pub damage: Option<String>,
}

/// Describes a trace. A complete Terrace trace answers from its index, at once; everything else is read whole.
///
/// # Errors
/// As [`crate::open_any`] and [`crate::EventSource::next_batch`].
pub fn info(path: impl AsRef<Path>, salvage: bool) -> Result<TraceInfo, SourceError> {
    info_watched(path, salvage, |_, _| ())
}

/// As [`info`]; calls `watch` with each batch's accesses and the share of the trace that is read, where that is known.
///
/// # Errors
/// As [`info`].
pub fn info_watched(
    path: impl AsRef<Path>,
    salvage: bool,
    mut watch: impl FnMut(u64, Option<f64>),
) -> Result<TraceInfo, SourceError> {
    let path = path.as_ref();
    let mut opened = Opened::open(path, salvage)?;
    let chunks = match &opened {
        Opened::Terrace(reader) if !salvage => Some(reader.chunks().len() as u64),
        _ => None,
    };
    let totals = match &opened {
        Opened::Terrace(reader) => reader.totals().cloned(),
        Opened::Import(_) | Opened::Threads(_) => None,
    };
    let totals = match totals {
        Some(totals) => totals,
        None => {
            let mut totals = Totals::default();
            while let Some(batch) = opened.source().next_batch()? {
                totals.add(&batch);
                watch(batch.len() as u64, opened.source().progress());
            }
            totals
        }
    };
    let file_bytes = match &opened {
        Opened::Threads(threads) => threads.file_bytes(),
        Opened::Terrace(_) | Opened::Import(_) => std::fs::metadata(path)
            .map_err(|error| SourceError::Io { what: path.display().to_string(), error })?
            .len(),
    };
    Ok(TraceInfo {
        path: path.display().to_string(),
        format: opened.format(),
        header: opened.source().header().clone(),
        file_bytes,
        bytes_per_access: if totals.accesses == 0 { 0.0 } else { file_bytes as f64 / totals.accesses as f64 },
        chunks,
        totals,
        damage: opened.damage().map(str::to_owned),
    })
}
