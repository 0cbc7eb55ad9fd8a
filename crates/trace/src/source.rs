//! Where batches come from.

use crate::{Batch, Header, MixedProgram, TraceEnding};
use std::collections::VecDeque;
use std::sync::Arc;

/// A source that cannot go on. The message names file, place and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Reading failed.
    #[error("{what}: {error}")]
    Io {
        /// What was read.
        what: String,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
    /// The content is not what it should be.
    #[error("{0}")]
    Malformed(String),
    /// The recorded program or the recorder died.
    #[error("{0}")]
    Recorder(String),
}

/// Yields the batches of one program.
///
/// Batches of one stream come in program order. Batches of different streams come in an order close to that of the
/// recorded run, and the order is part of the input: the same source yields the same order again (a live recording
/// excepted). Every stream's first batch begins with its `Spawn`.
///
/// Batches are shared, not copied: several simulations can consume the same decoded batch.
pub trait EventSource: Send {
    /// What is known about the input.
    fn header(&self) -> &Header;

    /// The next batch, or `None` at the end.
    ///
    /// # Errors
    /// When the input is damaged or the recorded program's recorder died. No batch follows an error.
    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError>;

    /// The next batch with its events alone, and the number of accesses it has: a cheaper way to pass over a part of
    /// the input, where a source has one. `None` when the source has none, or none that surely ends before access
    /// number `before`; the caller then goes on with [`EventSource::next_batch`].
    ///
    /// # Errors
    /// As [`EventSource::next_batch`].
    fn next_outline(&mut self, before: u64) -> Result<Option<(Batch, u64)>, SourceError> {
        let _ = before;
        Ok(None)
    }

    /// Share of the input that was consumed, 0 to 1, where it is known.
    fn progress(&self) -> Option<f64> {
        None
    }

    /// How the input ends, as far as that is known before its last batch. Where damage has ended what is read with
    /// `salvage`, that is [`TraceEnding::Damaged`].
    fn ending(&self) -> TraceEnding {
        self.header().ending
    }

    /// Accesses that were left out so far, since what they touch is not the program's memory or is not stated.
    fn left_out(&self) -> u64 {
        0
    }

    /// The programs of a [mix](crate::Mix), which run side by side; none where the input is no mix.
    ///
    /// Of `n` programs, stream, process and site `k` of program `p` have the number `k * n + p`. Sequence numbers are each
    /// program's own.
    fn programs(&self) -> &[MixedProgram] {
        &[]
    }

    /// The next batch of one program of a mix, or `None` at its end: who consumes several programs decides how far each
    /// is read.
    ///
    /// # Errors
    /// As [`EventSource::next_batch`].
    fn next_of(&mut self, program: usize) -> Result<Option<Arc<Batch>>, SourceError> {
        let _ = program;
        self.next_batch()
    }

    /// Begins one program of a mix again from its beginning, under the same numbers.
    ///
    /// # Errors
    /// When its input cannot be opened again.
    fn restart(&mut self, program: usize) -> Result<(), SourceError> {
        let _ = program;
        Err(SourceError::Malformed(
            "this input is no mix, so that none of its programs can begin again".into(),
        ))
    }
}

impl<T: EventSource + ?Sized> EventSource for Box<T> {
    fn header(&self) -> &Header {
        (**self).header()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        (**self).next_batch()
    }

    fn next_outline(&mut self, before: u64) -> Result<Option<(Batch, u64)>, SourceError> {
        (**self).next_outline(before)
    }

    fn progress(&self) -> Option<f64> {
        (**self).progress()
    }

    fn ending(&self) -> TraceEnding {
        (**self).ending()
    }

    fn left_out(&self) -> u64 {
        (**self).left_out()
    }

    fn programs(&self) -> &[MixedProgram] {
        (**self).programs()
    }

    fn next_of(&mut self, program: usize) -> Result<Option<Arc<Batch>>, SourceError> {
        (**self).next_of(program)
    }

    fn restart(&mut self, program: usize) -> Result<(), SourceError> {
        (**self).restart(program)
    }
}

/// Batches from memory: for tests, and for small inputs that several runs share.
#[derive(Debug, Clone, Default)]
pub struct VecSource {
    header: Header,
    batches: VecDeque<Arc<Batch>>,
}

impl VecSource {
    /// A source that yields `batches` in order.
    pub fn new(header: Header, batches: impl IntoIterator<Item = Batch>) -> VecSource {
        VecSource { header, batches: batches.into_iter().map(Arc::new).collect() }
    }
}

impl EventSource for VecSource {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        Ok(self.batches.pop_front())
    }
}
