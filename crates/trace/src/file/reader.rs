//! Reads trace files.

use super::chunk::{ChunkDecoder, HEAD_BYTES, Head};
use super::index::{ChunkInfo, FOOTER_BYTES, Footer, Index, Totals};
use super::{MAGIC, MAX_HEADER_BYTES, PREFIX_BYTES, VERSION};
use crate::{Batch, BatchPool, EventSource, Header, SourceError, TraceEnding};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a trace is read from: a file, or bytes in memory.
pub(super) trait Storage: Read + Seek + Send {}

impl<T: Read + Seek + Send> Storage for T {}

/// Reads a trace file, batch by batch, one chunk in memory at a time.
pub struct TraceReader {
    path: PathBuf,
    file: Box<dyn Storage>,
    file_bytes: u64,
    header: Header,
    /// Absent in salvage mode.
    index: Option<Index>,
    /// Where the chunks end: at the index, or in salvage mode at the file's end.
    chunks_end: u64,
    /// Next chunk's number and place.
    chunk: u64,
    offset: u64,
    decoder: ChunkDecoder,
    pool: BatchPool,
    stored: Vec<u8>,
    /// Accesses handed out or passed over so far: the number of the next one.
    position: u64,
    /// Accesses of the next batch to leave out, after a seek.
    skip: usize,
    /// The current chunk was begun without its accesses.
    outline: bool,
    salvage: bool,
    damage: Option<String>,
}

impl TraceReader {
    /// Opens a complete trace file.
    ///
    /// # Errors
    /// When it cannot be read, is no trace, is damaged in header or index, or was not finished.
    pub fn open(path: impl AsRef<Path>) -> Result<TraceReader, SourceError> {
        TraceReader::begin(path.as_ref(), false)
    }

    /// Opens a trace file that may be damaged or unfinished: every whole chunk before the first damage is read, the
    /// index is not. [`TraceReader::damage`] tells what ended the reading.
    ///
    /// # Errors
    /// When it cannot be read, is no trace, or is damaged in the header.
    pub fn salvage(path: impl AsRef<Path>) -> Result<TraceReader, SourceError> {
        TraceReader::begin(path.as_ref(), true)
    }

    /// What ended the reading in salvage mode before the end of the file, once it has.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// The chunks, by the index; empty in salvage mode.
    pub fn chunks(&self) -> &[ChunkInfo] {
        self.index.as_ref().map_or(&[], |index| &index.chunks)
    }

    /// What the trace holds, by the index; `None` in salvage mode.
    pub fn totals(&self) -> Option<&Totals> {
        self.index.as_ref().map(|index| &index.totals)
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Number of the next access.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes to an access by its number in the file's order, from 0. The next batch begins with it; events before it
    /// are passed over, so a simulation needs [`crate::slice`] instead. Beyond the last access the next batch is `None`.
    ///
    /// # Errors
    /// In salvage mode, where there is no index.
    pub fn seek(&mut self, access: u64) -> Result<(), SourceError> {
        let Some(index) = &self.index else {
            return Err(
                self.malformed("random access needs the index, which salvage mode does not read".to_owned())
            );
        };
        let number =
            index.chunks.partition_point(|chunk| chunk.first_access + u64::from(chunk.accesses) <= access);
        let (offset, first_access) = match index.chunks.get(number) {
            Some(chunk) => (chunk.offset, chunk.first_access),
            None => (self.chunks_end, index.totals.accesses),
        };
        self.decoder.clear();
        self.chunk = number as u64;
        self.offset = offset;
        self.position = first_access;
        self.skip = (access.saturating_sub(first_access)) as usize;
        Ok(())
    }

    fn begin(path: &Path, salvage: bool) -> Result<TraceReader, SourceError> {
        let io = |error| SourceError::Io { what: path.display().to_string(), error };
        let file = File::open(path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        TraceReader::of(path, Box::new(file), file_bytes, salvage)
    }

    /// Reads a trace of `file_bytes` bytes that lies elsewhere than in a file; `path` names it in errors.
    pub(super) fn of(
        path: &Path,
        mut file: Box<dyn Storage>,
        file_bytes: u64,
        salvage: bool,
    ) -> Result<TraceReader, SourceError> {
        let name = || path.display().to_string();
        let io = |error| SourceError::Io { what: name(), error };
        let header = read_header(&mut *file, file_bytes).map_err(|error| match error {
            HeaderError::Io(error) => io(error),
            HeaderError::Content(what) => SourceError::Malformed(format!("{}: {what}", name())),
        })?;
        let first_chunk = file.stream_position().map_err(io)?;
        let decoder = ChunkDecoder::new().map_err(io)?;
        let mut reader = TraceReader {
            path: path.to_owned(),
            file,
            file_bytes,
            header,
            index: None,
            chunks_end: file_bytes,
            chunk: 0,
            offset: first_chunk,
            decoder,
            pool: BatchPool::default(),
            stored: Vec::new(),
            position: 0,
            skip: 0,
            outline: false,
            salvage,
            damage: None,
        };
        let index = reader.read_index();
        reader.header.ending = index.as_ref().map_or(TraceEnding::Whole, |index| index.ending);
        match index {
            Ok(index) if !salvage => reader.index = Some(index),
            Ok(_) => {}
            Err(error) if !salvage => return Err(error),
            Err(error) => reader.damage = Some(error.to_string()),
        }
        Ok(reader)
    }

    /// Reads footer and index and checks that the chunks lie one behind the other from the header to the index.
    fn read_index(&mut self) -> Result<Index, SourceError> {
        let first_chunk = self.offset;
        let unfinished = || {
            "it has no index at its end, so its writer was cut short or its end is lost; \
             --salvage reads the whole chunks that are there"
                .to_owned()
        };
        let Some(place) = self.file_bytes.checked_sub(FOOTER_BYTES as u64).filter(|&at| at >= first_chunk)
        else {
            return Err(self.malformed(unfinished()));
        };
        let mut footer = [0; FOOTER_BYTES];
        self.read_at(place, &mut footer)?;
        let footer = Footer::from_bytes(&footer)
            .map_err(|what| self.malformed(format!("footer at byte {place}: {what}")))?
            .ok_or_else(|| self.malformed(unfinished()))?;
        let in_index = |what: &str| format!("index at byte {}: {what}", footer.offset);
        if footer.offset < first_chunk || footer.offset.checked_add(footer.stored.into()) != Some(place) {
            return Err(self.malformed(in_index(&format!(
                "expected it to end at the footer, byte {place}, but it has {} bytes",
                footer.stored
            ))));
        }
        let mut stored = vec![0; footer.stored as usize];
        self.read_at(footer.offset, &mut stored)?;
        let index = Index::from_bytes(&footer, &stored).map_err(|what| self.malformed(in_index(&what)))?;
        let mut end = first_chunk;
        for (number, chunk) in index.chunks.iter().enumerate() {
            if chunk.offset != end {
                let what = format!("expected chunk {number} at byte {end}, it says {}", chunk.offset);
                return Err(self.malformed(in_index(&what)));
            }
            end = end.saturating_add(chunk.bytes.into());
        }
        if end != footer.offset {
            let what = format!("expected the chunks to end where it begins, they end at byte {end}");
            return Err(self.malformed(in_index(&what)));
        }
        self.chunks_end = footer.offset;
        Ok(index)
    }

    /// Begins the next chunk when the current one is used up; `false` at the end.
    fn ensure_chunk(
        &mut self,
        begin: fn(&mut ChunkDecoder, Head, &[u8]) -> Result<(), String>,
    ) -> Result<bool, SourceError> {
        while self.decoder.batches_left() == 0 {
            if self.offset >= self.chunks_end {
                return Ok(false);
            }
            let next = self.read_chunk(begin);
            let next = match next {
                Err(SourceError::Malformed(what)) if self.salvage => {
                    self.stop(what);
                    return Ok(false);
                }
                Err(error) => {
                    self.offset = self.chunks_end;
                    return Err(error);
                }
                Ok(bytes) => bytes,
            };
            self.chunk += 1;
            self.offset += next;
        }
        Ok(true)
    }

    /// Reads the chunk at `offset` and returns its length in the file.
    fn read_chunk(
        &mut self,
        begin: fn(&mut ChunkDecoder, Head, &[u8]) -> Result<(), String>,
    ) -> Result<u64, SourceError> {
        let in_chunk = |reader: &TraceReader, what: String| {
            reader.malformed(format!("chunk {} at byte {}: {what}", reader.chunk, reader.offset))
        };
        let left = self.chunks_end - self.offset;
        if left < HEAD_BYTES as u64 {
            return Err(in_chunk(
                self,
                format!("expected a head of {HEAD_BYTES} bytes, only {left} are left"),
            ));
        }
        let mut head = [0; HEAD_BYTES];
        self.read_at(self.offset, &mut head)?;
        let head = Head::from_bytes(&head).map_err(|what| in_chunk(self, what))?;
        let length = head.stored_bytes();
        if length as u64 > left - HEAD_BYTES as u64 {
            return Err(in_chunk(
                self,
                format!(
                    "expected {length} bytes behind its head, only {} are left",
                    left - HEAD_BYTES as u64
                ),
            ));
        }
        if head.first_access != self.position {
            return Err(in_chunk(
                self,
                format!("expected it to begin with access {}, it says {}", self.position, head.first_access),
            ));
        }
        let bytes = (HEAD_BYTES + length) as u64;
        if let Some(entry) = self.index.as_ref().and_then(|index| index.chunks.get(self.chunk as usize))
            && (u64::from(entry.bytes), entry.accesses) != (bytes, head.accesses)
        {
            return Err(in_chunk(
                self,
                format!(
                    "the index says {} accesses in {} bytes, it says {} in {bytes}",
                    entry.accesses, entry.bytes, head.accesses
                ),
            ));
        }
        let mut stored = std::mem::take(&mut self.stored);
        stored.resize(length, 0);
        let read = self.read_at(self.offset + HEAD_BYTES as u64, &mut stored);
        let begun =
            read.and_then(|()| begin(&mut self.decoder, head, &stored).map_err(|what| in_chunk(self, what)));
        self.stored = stored;
        begun.map(|()| bytes)
    }

    /// Turns a complaint about the current chunk into an error, or in salvage mode into the end (`None`).
    fn or_damage<T>(&mut self, result: Result<T, String>) -> Result<Option<T>, SourceError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(what) => {
                let what = format!("{}: chunk {}: {what}", self.path.display(), self.chunk - 1);
                self.stop(what.clone());
                if self.salvage { Ok(None) } else { Err(SourceError::Malformed(what)) }
            }
        }
    }

    fn stop(&mut self, what: String) {
        if self.salvage {
            tracing::warn!("{what}; the trace ends here");
        }
        self.decoder.clear();
        self.offset = self.chunks_end;
        self.damage = Some(what);
    }

    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), SourceError> {
        let read = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(bytes));
        read.map_err(|error| SourceError::Io { what: format!("{}: byte {at}", self.path.display()), error })
    }

    fn malformed(&self, what: String) -> SourceError {
        SourceError::Malformed(format!("{}: {what}", self.path.display()))
    }
}

impl EventSource for TraceReader {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        loop {
            if std::mem::take(&mut self.outline) {
                // Whoever mixes the two within a chunk has asked for its outline, and gets the next chunk.
                while self.decoder.batches_left() > 0 {
                    let next = self.decoder.next_events_only();
                    let Some((_, accesses)) = self.or_damage(next)?.flatten() else { return Ok(None) };
                    self.position += accesses as u64;
                }
            }
            if !self.ensure_chunk(ChunkDecoder::begin)? {
                return Ok(None);
            }
            let next = self.decoder.next_batch(&mut self.pool);
            let Some(mut batch) = self.or_damage(next)?.flatten() else { return Ok(None) };
            if self.skip > 0 {
                let passed = self.skip.min(batch.len());
                self.position += passed as u64;
                self.skip -= passed;
                drop_front(&mut batch, passed);
                if batch.is_empty() {
                    continue;
                }
            }
            self.position += batch.len() as u64;
            return Ok(Some(self.pool.hand_out(batch)));
        }
    }

    fn next_outline(&mut self, before: u64) -> Result<Option<(Batch, u64)>, SourceError> {
        if !self.outline || self.decoder.batches_left() == 0 {
            // Only whole chunks are passed over: predictions inside a chunk build on each other.
            let chunk = self.chunks().get(self.chunk as usize);
            let passes = chunk.is_some_and(|chunk| chunk.first_access + u64::from(chunk.accesses) <= before);
            if self.decoder.batches_left() > 0 || self.skip > 0 || !passes {
                return Ok(None);
            }
            if !self.ensure_chunk(ChunkDecoder::begin_events)? {
                return Ok(None);
            }
            self.outline = true;
        }
        let next = self.decoder.next_events_only();
        let Some((batch, accesses)) = self.or_damage(next)?.flatten() else { return Ok(None) };
        self.position += accesses as u64;
        Ok(Some((batch, accesses as u64)))
    }

    fn progress(&self) -> Option<f64> {
        Some(self.offset as f64 / self.chunks_end.max(1) as f64)
    }

    fn ending(&self) -> TraceEnding {
        if self.damage.is_some() { TraceEnding::Damaged } else { self.header().ending }
    }
}

enum HeaderError {
    Io(std::io::Error),
    Content(String),
}

fn read_header(file: &mut dyn Storage, file_bytes: u64) -> Result<Header, HeaderError> {
    let content = |what: String| Err(HeaderError::Content(what));
    if file_bytes == 0 {
        return content("the file is empty; expected a trace".to_owned());
    }
    let mut prefix = [0; PREFIX_BYTES];
    let read = PREFIX_BYTES.min(usize::try_from(file_bytes).unwrap_or(PREFIX_BYTES));
    file.read_exact(&mut prefix[..read]).map_err(HeaderError::Io)?;
    let magic = read.min(MAGIC.len());
    if prefix[..magic] != MAGIC[..magic] {
        return content(format!(
            "not a Terrace trace: expected the file to begin with \"{}\", found \"{}\"",
            MAGIC.escape_ascii(),
            prefix[..magic].escape_ascii()
        ));
    }
    if read < PREFIX_BYTES {
        return content(format!(
            "expected {PREFIX_BYTES} bytes before the header, the file has {file_bytes}"
        ));
    }
    let word = |at: usize| u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]);
    let (version, length, checksum) = (word(8), word(12) as usize, word(16));
    if version != VERSION {
        return content(format!(
            "expected trace version {VERSION}, found {version}; a newer Terrace may read it"
        ));
    }
    if length > MAX_HEADER_BYTES || length as u64 > file_bytes - PREFIX_BYTES as u64 {
        return content(format!(
            "header at byte {PREFIX_BYTES}: it claims {length} bytes of a file of {file_bytes}"
        ));
    }
    let mut json = vec![0; length];
    file.read_exact(&mut json).map_err(HeaderError::Io)?;
    let found = crc32fast::hash(&json);
    if found != checksum {
        return content(format!(
            "header at byte {PREFIX_BYTES}: expected checksum {checksum:#010x}, found {found:#010x}"
        ));
    }
    serde_json::from_slice(&json)
        .map_err(|error| HeaderError::Content(format!("header at byte {PREFIX_BYTES}: {error}")))
}

/// Takes away the first accesses of a batch and the events before them.
fn drop_front(batch: &mut Batch, accesses: usize) {
    batch.events.retain(|event| event.before as usize >= accesses);
    batch.events.iter_mut().for_each(|event| event.before -= accesses as u32);
    batch.addr.drain(..accesses);
    batch.size.drain(..accesses);
    batch.kind.drain(..accesses);
    batch.depends_on.drain(..accesses);
    batch.instructions.drain(..accesses);
    if !batch.pc.is_empty() {
        batch.pc.drain(..accesses);
    }
}
