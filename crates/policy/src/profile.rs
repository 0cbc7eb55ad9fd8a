//! What a first pass over the same program found, for policies in two passes (oracle, annotated placement).

use crate::PageId;
use std::collections::BTreeMap;

/// Accesses of one page or data structure that reached memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

impl Heat {
    /// Both.
    pub const fn total(&self) -> u64 {
        self.reads + self.writes
    }
}

/// A data structure as the first pass saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectProfile {
    /// Its size in bytes; the sum over all allocations of the site.
    pub bytes: u64,
    /// Its accesses.
    pub heat: Heat,
}

/// A first pass: exact counts per base page, and per allocation site where allocations were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// By base page.
    pub pages: BTreeMap<PageId, Heat>,
    /// By [`crate::Object::site`].
    pub objects: BTreeMap<u64, ObjectProfile>,
}
