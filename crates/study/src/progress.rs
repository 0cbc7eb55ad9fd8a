//! What a front door shows while a study takes.

use crate::{Stop, partial};
use std::sync::Arc;
use terrace_trace::{Batch, EventSource, Header, MixedProgram, SourceError, TraceEnding, left_out_words};

/// How a study speaks to whoever started it. A front door implements it; [`Silent`] shows nothing.
pub trait Progress: Sync {
    /// An input begins to be read under `name`. What is returned gets to know how far that is, and is dropped at the end.
    fn begin(&self, name: &str) -> Box<dyn Task>;

    /// Something to know before there is a result, in one sentence.
    fn note(&self, message: &str);

    /// The wish to stop, which the front door may express at any time.
    fn stop(&self) -> Stop;
}

/// One input that is being read.
pub trait Task: Send {
    /// `accesses` more are read; `share` tells how much of the whole is done, 0 to 1, where that is known. Called for
    /// every few thousand accesses: `share` is only to be called where something is shown.
    fn advance(&mut self, accesses: u64, share: &dyn Fn() -> Option<f64>);
}

/// Shows nothing and never asks to stop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _name: &str) -> Box<dyn Task> {
        Box::new(Silent)
    }

    fn note(&self, _message: &str) {}

    fn stop(&self) -> Stop {
        Stop::new()
    }
}

impl Task for Silent {
    fn advance(&mut self, _accesses: u64, _share: &dyn Fn() -> Option<f64>) {}
}

/// Tells the progress of a source while it is read, and ends it when the caller asks to.
pub struct Watched<'a> {
    source: &'a mut dyn EventSource,
    task: Box<dyn Task>,
    stop: Option<Stop>,
    accesses: u64,
}

impl<'a> Watched<'a> {
    /// Watches `source` under `name`.
    pub fn new(name: &str, source: &'a mut dyn EventSource, progress: &dyn Progress) -> Watched<'a> {
        Watched { source, task: progress.begin(name), stop: None, accesses: 0 }
    }

    /// Ends as if the input were over when the caller asks to stop.
    pub fn until(mut self, stop: &Stop) -> Watched<'a> {
        self.stop = Some(stop.clone());
        self
    }
}

impl Watched<'_> {
    /// Accesses so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// What a reader of numbers must know where the input, now read, is a part of what its program did, and of what is left
    /// out of it. `stopped`: its recording was, just now.
    pub fn partial(&self, stopped: bool) -> Vec<String> {
        let ending = if stopped { TraceEnding::Stopped } else { self.source.ending() };
        let part = partial::remark(self.header(), self.accesses, ending);
        part.into_iter().chain(left_out_words(self.source.left_out())).collect()
    }
}

impl EventSource for Watched<'_> {
    fn header(&self) -> &Header {
        self.source.header()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        self.read(|source| source.next_batch())
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }

    /// A caller who asked to stop has left the rest out.
    fn ending(&self) -> TraceEnding {
        let stopped = self.stop.as_ref().is_some_and(Stop::requested);
        self.source.ending().max(if stopped { TraceEnding::Stopped } else { TraceEnding::Whole })
    }

    fn left_out(&self) -> u64 {
        self.source.left_out()
    }

    fn programs(&self) -> &[MixedProgram] {
        self.source.programs()
    }

    fn next_of(&mut self, program: usize) -> Result<Option<Arc<Batch>>, SourceError> {
        self.read(|source| source.next_of(program))
    }

    fn restart(&mut self, program: usize) -> Result<(), SourceError> {
        self.source.restart(program)
    }
}

impl Watched<'_> {
    fn read(
        &mut self,
        next: impl FnOnce(&mut dyn EventSource) -> Result<Option<Arc<Batch>>, SourceError>,
    ) -> Result<Option<Arc<Batch>>, SourceError> {
        if self.stop.as_ref().is_some_and(Stop::requested) {
            return Ok(None);
        }
        let batch = next(self.source)?;
        if let Some(batch) = &batch {
            self.accesses += batch.len() as u64;
            let (source, accesses) = (&*self.source, self.accesses);
            self.task.advance(batch.len() as u64, &|| share(source.progress(), source.header(), accesses));
        }
        Ok(batch)
    }
}

/// The share that is done: what the source says of itself, else by the number of accesses it announced.
pub(crate) fn share(progress: Option<f64>, header: &Header, accesses: u64) -> Option<f64> {
    let announced = header.expected_accesses.filter(|&expected| expected > 0);
    progress.or_else(|| announced.map(|expected| accesses as f64 / expected as f64))
}
