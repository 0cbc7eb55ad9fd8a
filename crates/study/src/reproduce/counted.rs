//! A source whose accesses are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_trace::{Batch, EventSource, Header, MixedProgram, SourceError};

/// Counts accesses over all runs.
pub(super) struct Counted {
    pub source: Box<dyn EventSource>,
    pub accesses: Arc<AtomicU64>,
}

impl EventSource for Counted {
    fn header(&self) -> &Header {
        self.source.header()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        let batch = self.source.next_batch()?;
        Ok(self.counted(batch))
    }

    fn programs(&self) -> &[MixedProgram] {
        self.source.programs()
    }

    fn next_of(&mut self, program: usize) -> Result<Option<Arc<Batch>>, SourceError> {
        let batch = self.source.next_of(program)?;
        Ok(self.counted(batch))
    }

    fn restart(&mut self, program: usize) -> Result<(), SourceError> {
        self.source.restart(program)
    }
}

impl Counted {
    fn counted(&self, batch: Option<Arc<Batch>>) -> Option<Arc<Batch>> {
        let accesses = batch.as_ref().map_or(0, |batch| batch.len());
        self.accesses.fetch_add(accesses as u64, Ordering::Relaxed);
        batch
    }
}
