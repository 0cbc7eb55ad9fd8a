//! Free blocks that are being filled with zeros: the allocator does not have them, and nobody uses them.
//!
//! A fault that finds no free memory takes such a block back, as Linux takes back the free blocks that it has isolated
//! (`mm/page_isolation.c`). The order that fills it finds out and ends.

use super::{Owner, TierMemory};
use terrace_model::{Frame, PageSize, Time};

/// The blocks of one tier that are being filled.
#[derive(Clone, Debug, Default)]
pub(super) struct Zeroing {
    /// Each with the number of its filling, its first frame in the tier and its size.
    blocks: Vec<(u64, u64, PageSize)>,
    /// Fillings so far.
    begun: u64,
}

impl Zeroing {
    /// Frames of all of them.
    pub fn frames(&self) -> u64 {
        self.blocks.iter().map(|(_, _, size)| size.base_pages()).sum()
    }
}

impl TierMemory {
    /// Takes a free block that will be filled with zeros. Returns the number of this filling; none where not all of the
    /// block is free.
    pub fn begin_zeroing(&mut self, frame: Frame, size: PageSize, now: Time) -> Option<u64> {
        if !self.take_at(frame, size, Owner::Taken, now) {
            return None;
        }
        self.zeroing.begun += 1;
        self.zeroing.blocks.push((self.zeroing.begun, frame - self.base, size));
        Some(self.zeroing.begun)
    }

    /// Whether this filling goes on: its block was not taken back.
    pub fn is_being_zeroed(&self, filling: u64) -> bool {
        self.zeroing.blocks.iter().any(|(number, _, _)| *number == filling)
    }

    /// The block of this filling is free again, and known to hold only zeros.
    pub fn end_zeroing(&mut self, filling: u64, now: Time) {
        let Some(at) = self.zeroing.blocks.iter().position(|(number, _, _)| *number == filling) else {
            return;
        };
        let (first, size) = self.free_unfilled(at, now);
        self.mark_zeroed(self.base.plus(first), size);
    }

    /// Frees the block whose filling began last, as it is. Returns false where none is being filled.
    pub fn take_back_zeroing(&mut self, now: Time) -> bool {
        let last = self.zeroing.blocks.len().checked_sub(1);
        last.map(|last| self.free_unfilled(last, now)).is_some()
    }

    fn free_unfilled(&mut self, at: usize, now: Time) -> (u64, PageSize) {
        self.settle_usage(now);
        let (_, first, size) = self.zeroing.blocks.remove(at);
        self.give_back(self.base.plus(first), now);
        (first, size)
    }
}
