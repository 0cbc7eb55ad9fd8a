//! The columns of a batch that the loops over accesses read.

use std::ops::Range;
use terrace_trace::{AccessKind, Batch};

/// What the loops read of some accesses of a batch.
pub(super) struct Columns<'a> {
    pub addr: &'a [u64],
    pub size: &'a [u8],
    pub kind: &'a [AccessKind],
    pub depends_on: &'a [u8],
    pub instructions: &'a [u16],
}

impl<'a> Columns<'a> {
    #[inline(always)]
    pub fn of(batch: &'a Batch, accesses: Range<usize>) -> Columns<'a> {
        Columns {
            addr: &batch.addr[accesses.clone()],
            size: &batch.size[accesses.clone()],
            kind: &batch.kind[accesses.clone()],
            depends_on: &batch.depends_on[accesses.clone()],
            instructions: &batch.instructions[accesses],
        }
    }
}
