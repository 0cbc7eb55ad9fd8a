//! Writes trace files.

use super::chunk::{ChunkEncoder, Collected, Collector, Compressor, HEAD_BYTES, MAX_ACCESSES};
use super::index::{ChunkInfo, FOOTER_BYTES, Index, StreamSet, Totals};
use super::{MAGIC, MAX_HEADER_BYTES, PREFIX_BYTES, VERSION};
use crate::{Batch, Header, TraceEnding};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// A trace that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file system refused: disk full, no such directory, no permission.
    #[error(
        "{path}: cannot write the trace: {error}{}{}",
        advice(.error),
        if *.complete_chunks > 0 { format!(" (its first {complete_chunks} chunks can be read with --salvage)") } else { String::new() }
    )]
    Io {
        /// The trace.
        path: String,
        /// Chunks that were written whole.
        complete_chunks: u64,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
    /// A batch or header breaks the rules stated at [`Batch`] or exceeds the file format's limits.
    #[error("{path}: {what}")]
    Content {
        /// The trace.
        path: String,
        /// Which rule.
        what: String,
    },
}

/// What to do about an error of a file that is written.
pub(crate) fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space, or write to another disk",
        ErrorKind::NotFound => "; its folder does not exist, make it first",
        _ => "",
    }
}

impl WriteError {
    /// What the system said of a trace of which nothing is there.
    pub(crate) fn new(path: &Path, error: std::io::Error) -> WriteError {
        io(path, 0, error)
    }

    /// The error of a temporary file, of which nothing is kept, as that of the file whose place it was to take.
    pub(crate) fn naming(self, path: &Path) -> WriteError {
        match self {
            WriteError::Io { error, .. } => WriteError::new(path, error),
            WriteError::Content { what, .. } => content(path, what),
        }
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Length of the file.
    pub file_bytes: u64,
    /// Chunks of the file.
    pub chunks: u64,
    /// What it holds.
    pub totals: Totals,
}

impl Summary {
    /// File length over accesses; 0 for a trace without any.
    pub fn bytes_per_access(&self) -> f64 {
        if self.totals.accesses == 0 { 0.0 } else { self.file_bytes as f64 / self.totals.accesses as f64 }
    }
}

/// Writes a trace file: [`push`](TraceWriter::push) batches, then [`finish`](TraceWriter::finish).
///
/// Accesses are described on the caller's thread, and encoded, compressed and written on a second one; when that falls
/// behind, `push` waits. Memory is bounded by a few chunks. A writer that is dropped without `finish` writes out what it was
/// given but no index: the file is then read in salvage mode. Where writing fails before the first whole chunk, the file is
/// removed.
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    collector: Collector,
    streams: StreamSet,
    totals: Totals,
    first_access: u64,
    ending: TraceEnding,
    /// `None` once the other thread was joined.
    output: Option<Output>,
}

/// The second thread, seen from the first.
#[derive(Debug)]
struct Output {
    chunks: SyncSender<(Collected, Vec<u32>)>,
    empty: Receiver<Collected>,
    thread: JoinHandle<Result<Written, WriteError>>,
}

/// What the second thread hands back at the end.
#[derive(Debug)]
struct Written {
    file: File,
    end: u64,
    chunks: Vec<ChunkInfo>,
}

impl TraceWriter {
    /// Creates the file, replacing one that exists, and writes the header.
    ///
    /// # Errors
    /// When the file cannot be created or written, or the header exceeds 16 MiB.
    pub fn create(path: impl AsRef<Path>, header: &Header) -> Result<TraceWriter, WriteError> {
        let path = path.as_ref().to_owned();
        let json = serde_json::to_vec(header).map_err(|error| content(&path, error.to_string()))?;
        if json.len() > MAX_HEADER_BYTES {
            let what = format!("the header takes {} bytes, more than {MAX_HEADER_BYTES}", json.len());
            return Err(content(&path, what));
        }
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + json.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((json.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(&json).to_le_bytes());
        bytes.extend(json);
        let begin = || -> std::io::Result<(File, Compressor)> {
            let mut file = File::create(&path)?;
            file.write_all(&bytes).inspect_err(|_| discard(&path))?;
            Ok((file, Compressor::new()?))
        };
        let (file, compressor) = begin().map_err(|error| io(&path, 0, error))?;

        let (chunks, incoming) = sync_channel(1);
        let (outgoing, empty) = channel();
        let written = Written { file, end: bytes.len() as u64, chunks: Vec::new() };
        let thread_path = path.clone();
        let thread = std::thread::Builder::new()
            .name("trace-writer".to_owned())
            .spawn(move || write_chunks(&thread_path, written, compressor, incoming, outgoing))
            .map_err(|error| io(&path, 0, error))?;
        Ok(TraceWriter {
            path,
            collector: Collector::default(),
            streams: StreamSet::default(),
            totals: Totals::default(),
            first_access: 0,
            ending: TraceEnding::Whole,
            output: Some(Output { chunks, empty, thread }),
        })
    }

    /// Says at the trace's end how it ended; it is whole where nothing was said.
    pub fn ends(&mut self, ending: TraceEnding) {
        self.ending = ending;
    }

    /// Where it writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was pushed so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Appends a batch. One without accesses and events is left out; one of more than a million accesses is split.
    ///
    /// # Errors
    /// When the batch breaks a rule of [`Batch`] or has more than a million events or
    /// events of more than 64 MiB (it is left out then), or when
    /// writing failed, now or since the last call (every further call fails then).
    pub fn push(&mut self, batch: &Batch) -> Result<(), WriteError> {
        batch.validate().map_err(|what| content(&self.path, what))?;
        if batch.is_empty() {
            return Ok(());
        }
        if self.collector.accesses() + batch.len() > MAX_ACCESSES {
            self.close_chunk()?;
            if batch.len() > MAX_ACCESSES {
                return split(batch, MAX_ACCESSES).iter().try_for_each(|part| self.push(part));
            }
        }
        self.collector.push(batch).map_err(|what| content(&self.path, what))?;
        self.totals.add(batch);
        self.streams.add(batch);
        if self.collector.is_full() { self.close_chunk() } else { Ok(()) }
    }

    /// Writes what is left, the index and the footer.
    ///
    /// # Errors
    /// When writing failed, now or before.
    pub fn finish(mut self) -> Result<Summary, WriteError> {
        self.close_chunk()?;
        let Written { mut file, end, chunks } = self.join()?;
        let complete = chunks.len() as u64;
        let (totals, ending) = (std::mem::take(&mut self.totals), self.ending);
        let index = Index { chunks, totals, ending };
        let write = || -> std::io::Result<u64> {
            let bytes = index.to_bytes(end)?;
            debug_assert!(bytes.len() >= FOOTER_BYTES);
            file.write_all(&bytes)?;
            file.flush()?;
            Ok(end + bytes.len() as u64)
        };
        let file_bytes = { write }().map_err(|error| io(&self.path, complete, error))?;
        Ok(Summary { file_bytes, chunks: complete, totals: index.totals })
    }

    fn close_chunk(&mut self) -> Result<(), WriteError> {
        if self.collector.is_empty() {
            return self.output.as_ref().map(|_| ()).ok_or_else(|| self.closed());
        }
        let Some(output) = &self.output else { return Err(self.closed()) };
        let mut chunk = output.empty.try_recv().unwrap_or_default();
        let first_access = self.first_access;
        self.first_access += self.collector.accesses() as u64;
        self.collector.finish(first_access, &mut chunk);
        if output.chunks.send((chunk, self.streams.take())).is_err() {
            // The other thread ended: it holds the reason.
            return Err(self.join().err().unwrap_or_else(|| self.closed()));
        }
        Ok(())
    }

    fn join(&mut self) -> Result<Written, WriteError> {
        let Some(Output { chunks, thread, .. }) = self.output.take() else { return Err(self.closed()) };
        drop(chunks);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn closed(&self) -> WriteError {
        content(&self.path, "writing failed earlier".to_owned())
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        // No caller is left to report an error to; `finish` is for those who want to.
        if self.output.is_some() {
            let _ = self.close_chunk();
            let _ = self.join();
        }
    }
}

fn write_chunks(
    path: &Path,
    mut written: Written,
    mut compressor: Compressor,
    incoming: Receiver<(Collected, Vec<u32>)>,
    outgoing: Sender<Collected>,
) -> Result<Written, WriteError> {
    let mut encoder = ChunkEncoder::default();
    for (mut collected, streams) in incoming {
        let complete = written.chunks.len() as u64;
        let chunk = encoder.encode(&mut collected);
        let (head, sections) = compressor.compress(chunk).map_err(|error| io(path, complete, error))?;
        let bytes = HEAD_BYTES + sections.len();
        let write = written.file.write_all(&head).and_then(|()| written.file.write_all(sections));
        write.map_err(|error| {
            if complete == 0 {
                discard(path);
            }
            io(path, complete, error)
        })?;
        written.chunks.push(ChunkInfo {
            offset: written.end,
            bytes: bytes as u32,
            first_access: chunk.head.first_access,
            accesses: chunk.head.accesses,
            streams,
        });
        written.end += bytes as u64;
        // The caller may have gone.
        let _ = outgoing.send(collected);
    }
    Ok(written)
}

/// Cuts a batch into parts of at most `longest` accesses.
fn split(batch: &Batch, longest: usize) -> Vec<Batch> {
    let mut events = batch.events.as_slice();
    let mut parts = Vec::new();
    for begin in (0..batch.len()).step_by(longest) {
        let end = (begin + longest).min(batch.len());
        let last = end == batch.len();
        let count = events.partition_point(|event| last || (event.before as usize) < end);
        let (mine, rest) = events.split_at(count);
        events = rest;
        let mut part = Batch {
            stream: batch.stream,
            after: batch.after,
            addr: batch.addr[begin..end].to_vec(),
            size: batch.size[begin..end].to_vec(),
            kind: batch.kind[begin..end].to_vec(),
            depends_on: batch.depends_on[begin..end].to_vec(),
            instructions: batch.instructions[begin..end].to_vec(),
            pc: if batch.pc.is_empty() { Vec::new() } else { batch.pc[begin..end].to_vec() },
            events: mine.to_vec(),
        };
        part.events.iter_mut().for_each(|event| event.before -= begin as u32);
        parts.push(part);
    }
    parts
}

fn content(path: &Path, what: String) -> WriteError {
    WriteError::Content { path: path.display().to_string(), what }
}

/// Removes a file without a whole chunk, in which nothing could be read. What is no file of its own stays.
fn discard(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        let _ = std::fs::remove_file(path);
    }
}

fn io(path: &Path, complete_chunks: u64, error: std::io::Error) -> WriteError {
    WriteError::Io { path: path.display().to_string(), complete_chunks, error }
}
