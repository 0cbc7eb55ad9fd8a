//! The members of a zip archive, one after the other: drmemtrace keeps a trace in one as `chunk.0000`, `chunk.0001`, ….

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use zip::{CompressionMethod, ZipArchive};

pub(super) const MARK: [u8; 4] = *b"PK\x03\x04";

/// Whether a file begins as an archive does. What cannot be read at a place, such as a pipe, does not.
pub(super) fn is_one(file: &File) -> bool {
    let mut start = [0; MARK.len()];
    file.read_exact_at(&mut start, 0).is_ok() && start == MARK
}

/// The order in which `part.2` comes before `part.10`: numbers within names count as such.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let ([first, ..], [other, ..]) = (a, b) {
        if !(first.is_ascii_digit() && other.is_ascii_digit()) {
            match first.cmp(other) {
                Ordering::Equal => (a, b) = (&a[1..], &b[1..]),
                unequal => return unequal,
            }
            continue;
        }
        let (number, rest) = leading_number(a);
        let (others, others_rest) = leading_number(b);
        match number.len().cmp(&others.len()).then_with(|| number.cmp(others)) {
            Ordering::Equal => (a, b) = (rest, others_rest),
            unequal => return unequal,
        }
    }
    a.len().cmp(&b.len())
}

/// The digits that a text begins with, without leading zeros, and what follows them.
fn leading_number(text: &[u8]) -> (&[u8], &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let zeros = text[..digits].iter().take_while(|byte| **byte == b'0').count();
    (&text[zeros..digits], &text[digits..])
}

/// The contents of an archive's members in the order of their names, numbers within them by value.
pub(super) struct Members {
    file: File,
    /// The members to come, the next one last.
    left: Vec<Member>,
    current: Option<Open>,
}

struct Member {
    name: String,
    begins: u64,
    compressed_bytes: u64,
    method: CompressionMethod,
    checksum: u32,
}

struct Open {
    name: String,
    reader: Box<dyn Read + Send>,
    expected: u32,
    found: crc32fast::Hasher,
}

fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl Members {
    pub(super) fn of(file: File) -> io::Result<Members> {
        let mut archive = ZipArchive::new(file.try_clone()?).map_err(invalid)?;
        let mut left = Vec::new();
        for index in 0..archive.len() {
            let member = archive.by_index_raw(index).map_err(invalid)?;
            if member.is_dir() {
                continue;
            }
            let name = member.name().map_err(invalid)?.into_owned();
            let method = member.compression();
            let supported = matches!(method, CompressionMethod::Stored | CompressionMethod::Deflated);
            if member.encrypted() || !supported {
                return Err(invalid(format!("the member {name:?} is neither stored nor deflated")));
            }
            let begins =
                member.data_start().ok_or_else(|| invalid(format!("the member {name:?} has no place")))?;
            let (compressed_bytes, checksum) = (member.compressed_size(), member.crc32());
            left.push(Member { name, begins, compressed_bytes, method, checksum });
        }
        left.sort_by(|a, b| natural_order(&b.name, &a.name));
        Ok(Members { file, left, current: None })
    }

    fn open(&self, member: Member) -> io::Result<Open> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(member.begins))?;
        let bytes = file.take(member.compressed_bytes);
        let reader: Box<dyn Read + Send> = match member.method {
            CompressionMethod::Stored => Box::new(bytes),
            _ => Box::new(flate2::read::DeflateDecoder::new(bytes)),
        };
        Ok(Open { name: member.name, reader, expected: member.checksum, found: crc32fast::Hasher::new() })
    }
}

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(open) = &mut self.current {
                let read = open.reader.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    open.found.update(&buffer[..read]);
                    return Ok(read);
                }
                if open.found.clone().finalize() != open.expected {
                    return Err(invalid(format!("the member {:?} has another checksum", open.name)));
                }
                self.current = None;
            }
            let Some(member) = self.left.pop() else { return Ok(0) };
            self.current = Some(self.open(member)?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_within_names_count_as_numbers() {
        let mut names =
            ["part.10", "part.2", "part", "chunk.0009", "part.1", "chunk.10000", "part.2b", "chunk.0010"];
        names.sort_by(|a, b| natural_order(a, b));
        let sorted =
            ["chunk.0009", "chunk.0010", "chunk.10000", "part", "part.1", "part.2", "part.2b", "part.10"];
        assert_eq!(names, sorted);
    }
}
