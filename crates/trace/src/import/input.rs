//! Bytes of a file, decompressed if need be, with a look at the start and a place for errors.

use super::archive;
use crate::SourceError;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BUFFER_BYTES: usize = 1 << 18;
/// No record or line is longer.
const MAX_LINE_BYTES: usize = 4096;
/// Limit on the dictionary that a compressed file can make the decoder allocate: more than any level of xz asks for.
const XZ_MEMORY_BYTES: u64 = 256 << 20;
const ZSTD_WINDOW_LOG: u32 = 27;
/// How streams of zlib begin, by level of compression.
const ZLIB: [[u8; 2]; 4] = [[0x78, 0x01], [0x78, 0x5e], [0x78, 0x9c], [0x78, 0xda]];
/// What text in UTF-8 may begin with.
pub(super) const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// Bytes at the start of a file by which its compression is known.
const LOOKED_AT: usize = 512;

/// A buffered, decompressing reader.
pub(super) struct Input {
    name: String,
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The unread part of `buffer`.
    begin: usize,
    end: usize,
    /// Bytes before `buffer`, after decompression.
    passed: u64,
    lines: u64,
    /// Why reading failed, until what came before was used up.
    failed: Option<io::Error>,
    compressed: bool,
    file_bytes: u64,
    file_read: Arc<AtomicU64>,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Input, SourceError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| match name.as_str() {
            "-" => SourceError::Malformed("-: no such file; /dev/stdin names standard input".to_owned()),
            _ => SourceError::Io { what: name.clone(), error },
        })?;
        Input::of_file(name, file)
    }

    /// A file, which may be an archive.
    pub(super) fn of_file(name: String, file: File) -> Result<Input, SourceError> {
        let io = |error| SourceError::Io { what: name.clone(), error };
        let file_bytes = file.metadata().map_err(io)?.len();
        if archive::is_one(&file) {
            let members = Box::new(archive::Members::of(file).map_err(io)?);
            return Input::decompressed(name, members, true, file_bytes, Arc::default(), BUFFER_BYTES);
        }
        Input::new(name, file, file_bytes)
    }

    /// Reads from anything; `bytes` is its length, for progress.
    pub(super) fn new(
        name: String,
        file: impl Read + Send + 'static,
        bytes: u64,
    ) -> Result<Input, SourceError> {
        Input::buffered(name, file, bytes, BUFFER_BYTES)
    }

    /// As [`Input::new`], with a buffer of so many bytes, which have to hold the longest line twice.
    pub(super) fn buffered(
        name: String,
        file: impl Read + Send + 'static,
        bytes: u64,
        buffer: usize,
    ) -> Result<Input, SourceError> {
        let file_read = Arc::new(AtomicU64::new(0));
        let mut file = Counted { inner: file, read: file_read.clone() };
        let io = |error| SourceError::Io { what: name.clone(), error };
        let mut start = [0; LOOKED_AT];
        let (length, failed) = fill(&mut file, &mut start);
        if let Some(error) = failed {
            return Err(io(error));
        }
        let start = start[..length].to_vec();
        let whole = io::Cursor::new(start.clone()).chain(file);
        let compressed = true;
        let (reader, compressed): (Box<dyn Read + Send>, bool) = if is_gzip(&start) {
            (Box::new(flate2::read::MultiGzDecoder::new(whole)), compressed)
        } else if start.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
            let stream =
                liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES, liblzma::stream::CONCATENATED);
            let stream = stream.map_err(|error| io(error.into()))?;
            (Box::new(liblzma::read::XzDecoder::new_stream(whole, stream)), compressed)
        } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            let mut decoder = zstd::stream::read::Decoder::new(whole).map_err(io)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(io)?;
            (Box::new(decoder), compressed)
        } else if is_zlib(&start) {
            (Box::new(ZlibStreams::new(BufReader::new(whole))), compressed)
        } else {
            (Box::new(whole), false)
        };
        Input::decompressed(name, reader, compressed, bytes, file_read, buffer)
    }

    fn decompressed(
        name: String,
        reader: Box<dyn Read + Send>,
        compressed: bool,
        file_bytes: u64,
        file_read: Arc<AtomicU64>,
        buffer: usize,
    ) -> Result<Input, SourceError> {
        let mut input = Input {
            name,
            reader,
            buffer: vec![0; buffer],
            begin: 0,
            end: 0,
            passed: 0,
            lines: 0,
            failed: None,
            compressed,
            file_bytes,
            file_read,
        };
        input.refill()?;
        Ok(input)
    }

    /// Passes over a mark that says how text is encoded, if the input begins with one.
    pub(super) fn pass_mark(&mut self) {
        if self.start().starts_with(&BYTE_ORDER_MARK) {
            self.begin += BYTE_ORDER_MARK.len();
        }
    }

    /// Whether what is read is what decompression yields.
    pub(super) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// The first bytes, up to the size of the buffer. To be called before anything is read.
    pub(super) fn start(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    /// The next line without its end, or `None` at the end of the input. A last line without newline counts.
    pub(super) fn line(&mut self) -> Result<Option<&[u8]>, SourceError> {
        let mut searched = 0;
        let length = loop {
            let unread = &self.buffer[self.begin..self.end];
            if let Some(at) = unread[searched..].iter().position(|&byte| byte == b'\n') {
                break searched + at;
            }
            searched = unread.len();
            if searched > MAX_LINE_BYTES || !self.refill()? {
                break searched;
            }
        };
        if length > MAX_LINE_BYTES {
            self.lines += 1;
            return Err(self.in_line(&format!("expected a line of at most {MAX_LINE_BYTES} bytes")));
        }
        if length == 0 && self.begin == self.end {
            return Ok(None);
        }
        self.lines += 1;
        let begin = self.begin;
        self.begin = (begin + length + 1).min(self.end);
        let line = &self.buffer[begin..begin + length];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// The next `N` bytes, or `None` at the end of the input; the error of a record cut short otherwise.
    pub(super) fn record<const N: usize>(&mut self) -> Result<Option<[u8; N]>, SourceError> {
        while self.end - self.begin < N {
            if !self.refill()? {
                return match self.end - self.begin {
                    0 => Ok(None),
                    left => {
                        Err(self
                            .in_record(&format!("expected a record of {N} bytes, only {left} are left"), 0))
                    }
                };
            }
        }
        let mut record = [0; N];
        record.copy_from_slice(&self.buffer[self.begin..self.begin + N]);
        self.begin += N;
        Ok(Some(record))
    }

    /// All that is left, of at most so many bytes.
    pub(super) fn rest(&mut self, most: usize) -> Result<Vec<u8>, SourceError> {
        let mut all = Vec::new();
        loop {
            all.extend_from_slice(&self.buffer[self.begin..self.end]);
            self.begin = self.end;
            if all.len() > most {
                return Err(self.malformed(&format!("expected at most {most} bytes after decompression")));
            }
            if !self.refill()? {
                return Ok(all);
            }
        }
    }

    /// An error at the line just read.
    pub(super) fn in_line(&self, what: &str) -> SourceError {
        self.malformed(&format!("line {}: {what}", self.lines))
    }

    /// An error at the record just read, which was `length` bytes long.
    pub(super) fn in_record(&self, what: &str, length: usize) -> SourceError {
        let at = self.passed + (self.begin - length) as u64;
        let after = if self.compressed { " (after decompression)" } else { "" };
        self.malformed(&format!("byte {at}{after}: {what}"))
    }

    pub(super) fn malformed(&self, what: &str) -> SourceError {
        SourceError::Malformed(format!("{}: {what}", self.name))
    }

    /// Bytes of the file, as it is compressed.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(super) fn progress(&self) -> Option<f64> {
        let read = self.file_read.load(Ordering::Relaxed);
        (self.file_bytes > 0).then(|| (read as f64 / self.file_bytes as f64).min(1.0))
    }

    /// Makes room and reads more; `false` at the end.
    fn refill(&mut self) -> Result<bool, SourceError> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.passed += self.begin as u64;
        self.end -= self.begin;
        self.begin = 0;
        let read = if self.failed.is_some() {
            0
        } else {
            let (read, failed) = fill(&mut self.reader, &mut self.buffer[self.end..]);
            self.failed = failed;
            read
        };
        if read == 0
            && let Some(error) = self.failed.take()
        {
            let at = self.passed + self.end as u64;
            let after = if self.compressed { " (after decompression)" } else { "" };
            return Err(SourceError::Io { what: format!("{}: byte {at}{after}", self.name), error });
        }
        self.end += read;
        Ok(read > 0)
    }
}

/// Reads until the buffer is full or the input ends or fails; the error comes with what was read before it.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}

/// Whether a file begins as gzip's do: the mark, the only method there is, and no flag that means nothing.
fn is_gzip(start: &[u8]) -> bool {
    matches!(start, [0x1f, 0x8b, 8, flags, ..] if flags & 0xe0 == 0)
        || (start.starts_with(&[0x1f, 0x8b]) && start.len() < 4)
}

/// Whether a file begins as zlib's do. Its mark has two bytes, which records of other formats may begin with, so what
/// follows has to decompress.
fn is_zlib(start: &[u8]) -> bool {
    let mut sink = [0; 4 * LOOKED_AT];
    ZLIB.iter().any(|mark| start.starts_with(mark))
        && flate2::Decompress::new(true).decompress(start, &mut sink, flate2::FlushDecompress::None).is_ok()
}

/// One stream of zlib behind the other, as files of other compressions may have them.
struct ZlibStreams<R> {
    /// Gone while its reader is handed on.
    decoder: Option<flate2::bufread::ZlibDecoder<R>>,
}

impl<R: BufRead> ZlibStreams<R> {
    fn new(reader: R) -> ZlibStreams<R> {
        ZlibStreams { decoder: Some(flate2::bufread::ZlibDecoder::new(reader)) }
    }
}

impl<R: BufRead> Read for ZlibStreams<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(0) };
            let read = decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() || decoder.get_mut().fill_buf()?.is_empty() {
                return Ok(read);
            }
            let rest = self.decoder.take().map(flate2::bufread::ZlibDecoder::into_inner);
            self.decoder = rest.map(flate2::bufread::ZlibDecoder::new);
        }
    }
}

/// Counts what was read of the file itself.
struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A hexadecimal number of at most 64 bits at the start of `text`, and what follows it.
pub(super) fn hexadecimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut length = 0;
    for &byte in text {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => break,
        };
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
        length += 1;
    }
    (length > 0).then(|| (value, &text[length..]))
}

/// A decimal number of at most six digits that is all of `text`.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let valid = (1..=6).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    valid.then(|| text.iter().fold(0, |value, &byte| 10 * value + u64::from(byte - b'0')))
}

/// The number of 64 bits, little-endian, that begins at a byte of a record.
#[inline]
pub(super) fn word(record: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// The beginning of a line, for an error that says what was found.
pub(super) fn beginning(line: &[u8]) -> String {
    line[..line.len().min(60)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_ending() {
        let mut input = Input::new("t".into(), &b"a\r\n\nb"[..], 5).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = input.line().unwrap() {
            lines.push(line.to_vec());
        }
        assert_eq!(lines, [&b"a"[..], b"", b"b"]);
    }

    #[test]
    fn an_endless_line_is_refused_without_being_read() {
        let mut input = Input::new("t".into(), io::repeat(b'x'), 0).unwrap();
        assert_eq!(input.line().unwrap_err().to_string(), "t: line 1: expected a line of at most 4096 bytes");
    }

    #[test]
    fn numbers() {
        assert_eq!(hexadecimal(b"1fFe,8"), Some((0x1ffe, &b",8"[..])));
        assert_eq!(hexadecimal(b"10000000000000000"), None);
        assert_eq!(hexadecimal(b",8"), None);
        assert_eq!(decimal(b"512"), Some(512));
        assert_eq!((decimal(b""), decimal(b"8x"), decimal(b"1234567")), (None, None, None));
    }
}
