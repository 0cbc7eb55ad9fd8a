//! What lies where in a memory, for pictures of it.

use super::{Owner, TierMemory};
use terrace_buddy::HUGE;
use terrace_model::PageSize;
use terrace_policy::PageId;

/// What frames are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holder {
    /// Nothing.
    Free,
    /// Nothing, and they are known to hold only zeros.
    Zeroed,
    /// The kernel's own, for good.
    Kernel,
    /// Page tables.
    Tables,
    /// The page cache: pages of files.
    Cached,
    /// An order's: contents come or go.
    Moving,
    /// A part of a program, by its number.
    Part(u32),
}

/// Frames side by side with the same holder, in pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// The first frame, counted from the tier's beginning.
    pub first: u64,
    /// Frames.
    pub frames: u64,
    /// The holder of the frames.
    pub holder: Holder,
    /// Size of the pages; base pages where nobody holds them.
    pub size: PageSize,
}

impl TierMemory {
    /// The frames in runs, by address. `part_of` says what a page of a program belongs to.
    pub fn runs(&self, mut part_of: impl FnMut(PageId) -> u32) -> Vec<FrameRun> {
        let mut runs: Vec<FrameRun> = Vec::new();
        let mut first = 0;
        while first < self.frames() {
            let (holder, size) = match self.block_of(self.base.plus(first)) {
                Some((_, size, owner)) => (
                    match owner {
                        Owner::Taken => Holder::Moving,
                        Owner::Page(page) => Holder::Part(part_of(page)),
                        Owner::Table => Holder::Tables,
                        Owner::Kernel => Holder::Kernel,
                        Owner::Cache(_) => Holder::Cached,
                    },
                    size,
                ),
                None if self.buddy.is_zeroed(first & !(HUGE - 1), PageSize::Huge.order()) => {
                    (Holder::Zeroed, PageSize::Base)
                }
                None => (Holder::Free, PageSize::Base),
            };
            match runs.last_mut() {
                Some(run) if (run.holder, run.size) == (holder, size) => run.frames += size.base_pages(),
                _ => runs.push(FrameRun { first, frames: size.base_pages(), holder, size }),
            }
            first += size.base_pages();
        }
        runs
    }
}
