//! A source that is read on a thread of its own: decoding and generating take no time of the thread that simulates.

use crate::{Batch, EventSource, Header, SourceError, TraceEnding};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Batches that are read ahead at most: enough to even out batches of unequal cost, and about 1 MB of columns, which the
/// host's second-level cache of the reading thread and the last level hold.
const WINDOW: usize = 16;

/// A batch, and the share of the input that was consumed with it.
type Read = Result<(Arc<Batch>, Option<f64>), SourceError>;

/// Reads a source ahead on another thread. The batches are the same, in the same order.
///
/// For sources that end by themselves: the thread notices only between two batches that nobody reads on, so a source that
/// waits for a running program would hold the end up.
pub struct ReadAhead {
    header: Header,
    progress: Option<f64>,
    /// How the source ended and what it left out, once it ended.
    ending: Arc<OnceLock<(TraceEnding, u64)>>,
    /// Gone when the end was reached, or when this is dropped.
    batches: Option<Receiver<Read>>,
    reader: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Begins to read `source`.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(source: Box<dyn EventSource>) -> std::io::Result<ReadAhead> {
        let header = source.header().clone();
        let progress = source.progress();
        let (sender, batches) = sync_channel(WINDOW);
        let ending = Arc::new(OnceLock::new());
        let found = Arc::clone(&ending);
        let read = move || read(source, &sender, &found);
        let reader = std::thread::Builder::new().name("reader".to_owned()).spawn(read)?;
        Ok(ReadAhead { header, progress, ending, batches: Some(batches), reader: Some(reader) })
    }

    /// Waits for the reader; a panic of the source goes on here.
    fn join(&mut self) {
        self.batches = None;
        if let Some(Err(panic)) = self.reader.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Sends what a source has, until its end, its first error, or until nobody reads on.
fn read(mut source: Box<dyn EventSource>, batches: &SyncSender<Read>, ending: &OnceLock<(TraceEnding, u64)>) {
    loop {
        let read = source.next_batch().transpose();
        let ends = !matches!(read, Some(Ok(_)));
        if ends {
            let _ = ending.set((source.ending(), source.left_out()));
        }
        let Some(read) = read else { return };
        if batches.send(read.map(|batch| (batch, source.progress()))).is_err() || ends {
            return;
        }
    }
}

impl EventSource for ReadAhead {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        match self.batches.as_ref().map(Receiver::recv) {
            Some(Ok(Ok((batch, progress)))) => {
                self.progress = progress;
                Ok(Some(batch))
            }
            Some(Ok(Err(error))) => {
                self.join();
                Err(error)
            }
            Some(Err(_)) | None => {
                self.join();
                Ok(None)
            }
        }
    }

    fn progress(&self) -> Option<f64> {
        self.progress
    }

    fn ending(&self) -> TraceEnding {
        self.ending.get().map_or(self.header.ending, |(ending, _)| *ending)
    }

    fn left_out(&self) -> u64 {
        self.ending.get().map_or(0, |(_, left_out)| *left_out)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessKind, StreamId};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Batches of one access each, then an end of its own.
    struct Counting {
        header: Header,
        batches: u64,
        read: Arc<AtomicU64>,
        end: fn() -> Result<Option<Arc<Batch>>, SourceError>,
    }

    impl EventSource for Counting {
        fn header(&self) -> &Header {
            &self.header
        }

        fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
            let at = self.read.fetch_add(1, Ordering::SeqCst);
            if at >= self.batches {
                return (self.end)();
            }
            let mut batch = Batch { stream: StreamId(0), ..Batch::default() };
            batch.push(at * 64, 8, AccessKind::Read, 0, 1);
            Ok(Some(Arc::new(batch)))
        }

        fn progress(&self) -> Option<f64> {
            Some(self.read.load(Ordering::SeqCst) as f64 / self.batches as f64)
        }
    }

    type End = fn() -> Result<Option<Arc<Batch>>, SourceError>;

    fn ahead(batches: u64, end: End) -> (ReadAhead, Arc<AtomicU64>) {
        let read = Arc::new(AtomicU64::new(0));
        let source = Counting { header: Header::default(), batches, read: Arc::clone(&read), end };
        (ReadAhead::start(Box::new(source)).unwrap(), read)
    }

    const BATCHES: u64 = 5 * WINDOW as u64;

    #[test]
    fn batches_come_in_order_with_the_progress_of_their_own_reading() {
        let (mut ahead, read) = ahead(BATCHES, || Ok(None));
        for at in 0..BATCHES {
            // The window, the batch that waits to enter it, and the one that was just taken.
            assert!(read.load(Ordering::SeqCst) <= at + WINDOW as u64 + 2);
            assert_eq!(ahead.next_batch().unwrap().unwrap().addr, [at * 64]);
            assert_eq!(ahead.progress(), Some((at + 1) as f64 / BATCHES as f64));
        }
        assert!(ahead.next_batch().unwrap().is_none());
        assert!(ahead.next_batch().unwrap().is_none(), "the end stays the end");
    }

    #[test]
    fn an_error_comes_after_the_batches_before_it() {
        let (mut ahead, _) = ahead(3, || Err(SourceError::Malformed("torn".to_owned())));
        for _ in 0..3 {
            assert!(ahead.next_batch().unwrap().is_some());
        }
        assert_eq!(ahead.next_batch().unwrap_err().to_string(), "torn");
        assert!(ahead.next_batch().unwrap().is_none());
    }

    #[test]
    fn the_thread_ends_when_nobody_reads_on() {
        let (mut ahead, read) = ahead(u64::MAX, || Ok(None));
        ahead.next_batch().unwrap();
        drop(ahead);
        // Dropping waits for the thread, which holds the other reference.
        assert_eq!(Arc::strong_count(&read), 1);
    }

    #[test]
    #[should_panic(expected = "the source's own words")]
    fn a_panic_of_the_source_is_not_taken_for_its_end() {
        let (mut ahead, _) = ahead(1, || panic!("the source's own words"));
        while ahead.next_batch().unwrap().is_some() {}
    }
}
