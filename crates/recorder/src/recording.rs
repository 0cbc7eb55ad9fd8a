//! A program being recorded, whatever it runs on.

use std::fmt;
use std::process::ExitStatus;
use std::sync::Arc;
use terrace_trace::{Batch, EventSource, Header, SourceError};

/// What a program runs on while it is recorded.
pub(crate) trait Source: Send {
    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError>;
    fn stop(&self);
    fn stopper(&self) -> Stopper;
    fn wait(self: Box<Self>) -> std::io::Result<ExitStatus>;
    fn id(&self) -> u32;
    fn status(&self) -> Option<ExitStatus>;
    fn accesses(&self) -> u64;
    /// See [`Recording::counted`].
    fn counted(&self) -> u64 {
        0
    }
    fn warnings(&self) -> &[String];
    /// See [`Recording::is_gpu`].
    fn is_gpu(&self) -> bool {
        false
    }
    /// Batches that nobody has taken yet.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        0
    }
}

/// A program being recorded.
///
/// Its batches come live. Dropping it ends the recording, not the program.
pub struct Recording {
    pub(crate) source: Box<dyn Source>,
    pub(crate) header: Header,
}

/// Ends a recording from another thread, or from a signal handler.
#[derive(Clone)]
pub struct Stopper(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}

impl Stopper {
    pub(crate) fn new(stop: impl Fn() + Send + Sync + 'static) -> Stopper {
        Stopper(Arc::new(stop))
    }

    /// Ends the recording: the source delivers what is complete, then ends. The program runs on.
    pub fn stop(&self) {
        (self.0)();
    }
}

impl Recording {
    /// Ends the recording. [`EventSource::next_batch`] delivers what is complete, then ends; the program runs on.
    pub fn stop(&self) {
        self.source.stop();
    }

    /// A handle that ends the recording from elsewhere.
    pub fn stopper(&mut self) -> Stopper {
        self.source.stopper()
    }

    /// Waits for the program to end and returns its exit status. Ends the recording, if it has not ended.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(self) -> std::io::Result<ExitStatus> {
        self.source.wait()
    }

    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.source.id()
    }

    /// The exit status of the program, once it is known.
    pub fn status(&self) -> Option<ExitStatus> {
        self.source.status()
    }

    /// Accesses delivered so far.
    pub fn accesses(&self) -> u64 {
        self.source.accesses()
    }

    /// Accesses counted by [`RecordOptions::count_only`](crate::RecordOptions::count_only), in processes that ended by
    /// themselves.
    pub fn counted(&self) -> u64 {
        self.source.counted()
    }

    /// Whether the program itself runs on the processor and its kernels on Oclgrind, in its process.
    pub fn is_gpu(&self) -> bool {
        self.source.is_gpu()
    }

    /// What the recording could not see, each said once. Complete when the source has ended.
    pub fn warnings(&self) -> &[String] {
        self.source.warnings()
    }
}

impl EventSource for Recording {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        self.source.next_batch()
    }

    fn progress(&self) -> Option<f64> {
        let limit = self.header.expected_accesses?;
        Some((self.source.accesses() as f64 / limit.max(1) as f64).min(1.0))
    }
}
