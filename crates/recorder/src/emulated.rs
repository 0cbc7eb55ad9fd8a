//! A program that runs under QEMU's user-mode emulator.

use crate::collect::Collector;
use crate::folder::Folder;
use crate::launch;
use crate::recording::{Source, Stopper};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use terrace_trace::{Batch, SourceError};

/// The program and what collects its accesses.
pub struct Emulated {
    collector: Collector,
    program: String,
    child: Child,
    status: Option<ExitStatus>,
    /// Last: it stays as long as a process uses it.
    _folder: Folder,
}

impl Emulated {
    /// A program that has been started, as `program`.
    pub fn new(collector: Collector, program: &str, child: Child, folder: Folder) -> Emulated {
        Emulated { collector, program: program.to_owned(), child, status: None, _folder: folder }
    }

    fn look_at_child(&mut self) -> Result<(), SourceError> {
        if self.status.is_none() {
            self.status = self
                .child
                .try_wait()
                .map_err(|error| SourceError::Io { what: self.program.clone(), error })?;
            self.collector.child_ended = self.status.is_some();
        }
        Ok(())
    }
}

impl Source for Emulated {
    fn stop(&self) {
        self.collector.session.stop();
    }

    fn stopper(&self) -> Stopper {
        let wanted = Arc::clone(&self.collector.stop_wanted);
        Stopper::new(move || wanted.store(true, SeqCst))
    }

    fn wait(mut self: Box<Self>) -> std::io::Result<ExitStatus> {
        self.collector.session.stop();
        match self.status {
            Some(status) => Ok(status),
            None => self.child.wait(),
        }
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    fn accesses(&self) -> u64 {
        self.collector.accesses
    }

    fn counted(&self) -> u64 {
        self.collector.session.shared().header().counted.load(SeqCst)
    }

    fn warnings(&self) -> &[String] {
        &self.collector.warnings
    }

    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.collector.ready.len()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        loop {
            if let Some(batch) = self.collector.poll() {
                return Ok(Some(batch));
            }
            if self.collector.is_finished() {
                self.look_at_child()?;
                if self.collector.options.end_at_limit && self.collector.reached_limit() {
                    if self.status.is_none() {
                        // Errors mean that it has just ended by itself.
                        let _ = self.child.kill();
                    }
                    // A server that a script has started would run on with nobody to stop it. The script itself comes
                    // first, so that it is not seen to end by its server's end.
                    self.collector.kill_processes();
                }
                let nothing_ran = !self.collector.has_started() && !self.collector.options.count_only;
                return match self.status {
                    Some(status) if nothing_ran => Err(SourceError::Recorder(format!(
                        "{}: ended before its first instruction under {} ({status})",
                        self.program,
                        launch::QEMU
                    ))),
                    _ => Ok(None),
                };
            }
            self.look_at_child()?;
            self.collector.sleep();
        }
    }
}
