//! One decoded input, many simulations.
//!
//! A thread decodes the source and hands each [`Batch`] (shared, never copied) to every branch through a bounded
//! channel. The slowest branch sets the pace, so memory stays at [`WINDOW`] batches however long the input is. All
//! branches of an input must be consumed at the same time: a branch that nobody reads holds up the others.

use crate::{Error, threads};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use terrace_trace::{Batch, EventSource, Header, SourceError};

/// Batches in flight at most: deep enough that a branch which is preempted does not stall the others at once,
/// small enough (about 4 MB of columns) to stay near the last-level cache.
const WINDOW: usize = 64;

/// Sees every batch once, in the order of the source.
pub type Observer = Box<dyn FnMut(&Batch, Option<f64>) + Send>;

/// The decoder of one input.
pub struct FanOut {
    decoder: JoinHandle<Observed>,
}

/// What the decoder leaves behind.
pub struct Observed {
    /// The source, for what it knows only at the end.
    pub source: Box<dyn EventSource>,
    /// The observer with all that it saw; drop it before reading what it shares.
    pub observer: Observer,
    /// Why the input ended early, if it did.
    pub error: Option<SourceError>,
    /// The user stopped it before its end.
    pub stopped: bool,
}

/// One consumer's view of the input.
pub struct Branch {
    header: Header,
    batches: Receiver<Result<Arc<Batch>, Broken>>,
}

/// A source's error, for every branch: [`SourceError`] cannot be cloned.
#[derive(Clone)]
enum Broken {
    Malformed(String),
    Recorder(String),
}

impl FanOut {
    /// Starts decoding `source` into `branches` branches. `stop` ends the input early, as if it were over.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        source: Box<dyn EventSource>,
        branches: usize,
        observer: Observer,
        stop: Arc<AtomicBool>,
    ) -> Result<(FanOut, Vec<Branch>), Error> {
        let header = source.header().clone();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..branches).map(|_| bounded(WINDOW)).unzip();
        let decoder = std::thread::Builder::new()
            .name("decoder".to_owned())
            .spawn(move || decode(source, senders, observer, &stop))
            .map_err(|error| Error::failed(threads::refused(&error)))?;
        let branches =
            receivers.into_iter().map(|batches| Branch { header: header.clone(), batches }).collect();
        Ok((FanOut { decoder }, branches))
    }

    /// Waits for the decoder. All branches must have been read to the end or dropped.
    ///
    /// # Panics
    /// When the source or the observer panicked.
    pub fn join(self) -> Observed {
        self.decoder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn decode(
    mut source: Box<dyn EventSource>,
    mut branches: Vec<Sender<Result<Arc<Batch>, Broken>>>,
    mut observer: Observer,
    stop: &AtomicBool,
) -> Observed {
    let (mut error, mut stopped) = (None, false);
    while !branches.is_empty() {
        if stop.load(Ordering::Relaxed) {
            stopped = true;
            break;
        }
        match source.next_batch() {
            Ok(Some(batch)) => {
                observer(&batch, source.progress());
                // A branch whose simulation failed is gone; the others go on.
                branches.retain(|branch| branch.send(Ok(Arc::clone(&batch))).is_ok());
            }
            Ok(None) => break,
            Err(found) => {
                let broken = match &found {
                    SourceError::Recorder(text) => Broken::Recorder(text.clone()),
                    other => Broken::Malformed(other.to_string()),
                };
                for branch in &branches {
                    let _ = branch.send(Err(broken.clone()));
                }
                error = Some(found);
                break;
            }
        }
    }
    Observed { source, observer, error, stopped }
}

impl EventSource for Branch {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        match self.batches.recv() {
            Ok(Ok(batch)) => Ok(Some(batch)),
            Ok(Err(Broken::Malformed(text))) => Err(SourceError::Malformed(text)),
            Ok(Err(Broken::Recorder(text))) => Err(SourceError::Recorder(text)),
            // The decoder hung up: the end.
            Err(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use terrace_trace::{AccessKind, StreamId, VecSource};

    const BATCHES: u64 = 5 * WINDOW as u64;

    fn input() -> Box<dyn EventSource> {
        let batches = (0..BATCHES).map(|n| {
            let mut batch = Batch { stream: StreamId(0), ..Batch::default() };
            batch.push(n * 64, 8, AccessKind::Read, 0, 1);
            batch
        });
        Box::new(VecSource::new(Header::default(), batches))
    }

    fn addresses(mut branch: Branch) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(batch) = branch.next_batch().unwrap() {
            all.extend(&batch.addr);
        }
        all
    }

    #[test]
    fn every_branch_sees_every_batch_and_the_source_is_read_once() {
        let seen = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&seen);
        let observer: Observer = Box::new(move |batch, _| {
            counter.fetch_add(batch.len() as u64, Ordering::Relaxed);
        });
        let (fanout, branches) = FanOut::start(input(), 5, observer, Arc::default()).unwrap();
        let readers: Vec<_> =
            branches.into_iter().map(|branch| std::thread::spawn(|| addresses(branch))).collect();
        let expected: Vec<u64> = (0..BATCHES).map(|n| n * 64).collect();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), expected);
        }
        assert!(fanout.join().error.is_none());
        assert_eq!(seen.load(Ordering::Relaxed), BATCHES);
    }

    #[test]
    fn a_branch_that_gives_up_does_not_hold_up_the_others() {
        let (fanout, mut branches) = FanOut::start(input(), 3, Box::new(|_, _| ()), Arc::default()).unwrap();
        drop(branches.remove(1));
        let readers: Vec<_> =
            branches.into_iter().map(|branch| std::thread::spawn(|| addresses(branch))).collect();
        for reader in readers {
            assert_eq!(reader.join().unwrap().len() as u64, BATCHES);
        }
        fanout.join();
    }

    #[test]
    fn the_decoder_never_runs_further_ahead_than_the_window() {
        let decoded = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&decoded);
        let observer: Observer = Box::new(move |_, _| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let (fanout, mut branches) = FanOut::start(input(), 1, observer, Arc::default()).unwrap();
        let mut branch = branches.pop().unwrap();
        for read in 0..BATCHES {
            // The window, and the batch that waits to enter it.
            assert!(decoded.load(Ordering::SeqCst) <= read + WINDOW as u64 + 1);
            branch.next_batch().unwrap().unwrap();
        }
        drop(branch);
        fanout.join();
    }

    #[test]
    fn stopping_ends_all_branches() {
        let stop = Arc::new(AtomicBool::new(true));
        let (fanout, branches) = FanOut::start(input(), 2, Box::new(|_, _| ()), stop).unwrap();
        for branch in branches {
            assert_eq!(addresses(branch).len(), 0);
        }
        assert!(fanout.join().stopped);
    }

    struct Damaged(Header);
    impl EventSource for Damaged {
        fn header(&self) -> &Header {
            &self.0
        }
        fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
            Err(SourceError::Malformed("a.trace: chunk 3: checksum differs".to_owned()))
        }
    }

    #[test]
    fn every_branch_gets_the_damage() {
        let source = Box::new(Damaged(Header::default()));
        let (fanout, branches) = FanOut::start(source, 2, Box::new(|_, _| ()), Arc::default()).unwrap();
        for mut branch in branches {
            assert!(branch.next_batch().unwrap_err().to_string().contains("chunk 3"));
        }
        assert!(fanout.join().error.is_some());
    }
}
