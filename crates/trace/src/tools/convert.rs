//! `terrace trace convert`: any source to a Terrace trace. Other formats: [`crate::export()`].

use crate::{EventSource, SourceError, Summary, TraceWriter, WriteError};
use std::path::Path;

/// A conversion that failed.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// On the reading side.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// On the writing side.
    #[error(transparent)]
    Trace(#[from] WriteError),
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
