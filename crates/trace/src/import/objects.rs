//! Requests to a cache of objects, as [libCacheSim](https://github.com/1a1a11a/libCacheSim) reads them, taken for a
//! process that keeps all objects in memory.
//!
//! An object gets its place, at the next 64-byte boundary of one heap, when it is first requested, and is written there.
//! Each later request reads it, or writes it where the trace says so. An object that comes back larger gets a new place.
//! Nothing is evicted: which memory such a cache should lie in is the question, not what it should keep. Of an object
//! larger than 16 MiB the first 16 MiB are accessed. Each 128 bytes count 16 instructions, as copying them takes; the
//! times of the requests are left out.

use super::builder::{ImportBuilder, Row};
use crate::AccessKind;
use std::collections::HashMap;
use std::hash::Hash;

/// Where the heap begins; the place itself means nothing.
const HEAP: u64 = 0x1000_0000;
const ALIGNMENT: u64 = 64;
/// Bytes of an object that are accessed, at most.
const MOST_BYTES: u64 = 16 << 20;
/// Accessed at a time, so that a batch does not grow with an object.
const PIECE_BYTES: u64 = 4096;
/// The widest access of a copy loop that a batch holds whole.
const ACCESS_BYTES: u64 = 128;
const INSTRUCTIONS: u64 = 16;

/// The objects of a trace and their places.
#[derive(Debug)]
pub(super) struct Objects<K> {
    places: HashMap<K, Place>,
    next: u64,
    request: Request,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    addr: u64,
    bytes: u64,
}

/// What is left of the last request.
#[derive(Clone, Copy, Debug)]
struct Request {
    addr: u64,
    left: u64,
    kind: AccessKind,
}

impl<K> Default for Objects<K> {
    fn default() -> Objects<K> {
        let request = Request { addr: HEAP, left: 0, kind: AccessKind::Read };
        Objects { places: HashMap::new(), next: HEAP, request }
    }
}

impl<K: Hash + Eq> Objects<K> {
    /// Accesses the next piece of the last request; `false` where nothing of it is left.
    pub(super) fn step(&mut self, out: &mut ImportBuilder) -> Result<bool, String> {
        let Request { addr, left, kind } = self.request;
        if left == 0 {
            return Ok(false);
        }
        let piece = left.min(PIECE_BYTES);
        for at in (0..piece).step_by(ACCESS_BYTES as usize) {
            let bytes = ACCESS_BYTES.min(piece - at);
            let instructions = INSTRUCTIONS;
            out.access(Row { addr: addr + at, bytes, kind, depends_on: 0, instructions, pc: None })?;
        }
        self.request = Request { addr: addr + piece, left: left - piece, kind };
        Ok(true)
    }

    /// Begins a request for an object of so many bytes. One of none is passed over, as libCacheSim does.
    pub(super) fn request(&mut self, object: K, bytes: u64, write: bool) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes.min(MOST_BYTES);
        let known = self.places.get(&object).filter(|place| place.bytes >= bytes);
        let (addr, first) = match known {
            Some(place) => (place.addr, false),
            None => {
                let addr = self.next;
                self.next += bytes.next_multiple_of(ALIGNMENT);
                self.places.insert(object, Place { addr, bytes });
                (addr, true)
            }
        };
        let kind = if write || first { AccessKind::Write } else { AccessKind::Read };
        self.request = Request { addr, left: bytes, kind };
    }
}
