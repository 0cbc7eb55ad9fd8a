//! `terrace trace convert`: any source to a Terrace trace. Other formats: [`crate::export()`].

use crate::export::{beside, is_in_place};
use crate::{EventSource, SourceError, Summary, TraceWriter, WriteError};
use std::io;
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

/// Writes all of `source` to a Terrace trace at `path`, which is there whole or not at all: a file that was there before
/// stays as it was until then. Pipes and devices are written in place.
///
/// # Errors
/// As [`EventSource::next_batch`] and [`TraceWriter`].
pub fn convert(source: &mut dyn EventSource, path: impl AsRef<Path>) -> Result<Summary, ConvertError> {
    let path = path.as_ref();
    // A folder is refused as any other place in which no file can be made.
    if is_in_place(path) {
        return in_place(source, path);
    }
    let failed = |error: io::Error| WriteError::new(path, error);
    let beside = beside(path).map_err(failed)?;
    let summary = in_place(source, beside.path()).map_err(|error| match error {
        ConvertError::Trace(error) => ConvertError::Trace(error.naming(path)),
        error @ ConvertError::Source(_) => error,
    })?;
    beside.persist(path).map_err(|error| failed(error.error))?;
    Ok(summary)
}

fn in_place(source: &mut dyn EventSource, path: &Path) -> Result<Summary, ConvertError> {
    let mut writer = TraceWriter::create(path, source.header())?;
    while let Some(batch) = source.next_batch()? {
        writer.push(&batch)?;
    }
    writer.ends(source.ending());
    Ok(writer.finish()?)
}
