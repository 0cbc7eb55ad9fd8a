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
    /// All frames by address: blocks with their holders, and free frames in pieces that lie in one region of 2 MiB.
    /// Called with the first frame, counted from the tier's beginning, and the number of frames.
    pub(super) fn each_piece(&self, mut visit: impl FnMut(u64, u64, Option<(PageSize, Owner)>)) {
        let mut free: Vec<(u64, u32)> = self.buddy.blocks().collect();
        free.sort_unstable();
        let mut free = free.into_iter().map(|(first, order)| first..first + (1 << order)).peekable();
        let mut first = 0;
        while first < self.frames() {
            let block = self.block_of(self.base.plus(first));
            let frames = match block {
                Some((_, size, _)) => size.base_pages(),
                None => {
                    while free.next_if(|block| block.end <= first).is_some() {}
                    let end =
                        free.peek().filter(|block| block.start <= first).map_or(first + 1, |block| block.end);
                    end.min((first & !(HUGE - 1)) + HUGE) - first
                }
            };
            visit(first, frames, block.map(|(_, size, owner)| (size, owner)));
            first += frames;
        }
    }

    /// The frames in runs, by address. `part_of` says what a page of a program belongs to.
    pub fn runs(&self, mut part_of: impl FnMut(PageId) -> u32) -> Vec<FrameRun> {
        let mut runs: Vec<FrameRun> = Vec::new();
        self.each_piece(|first, frames, block| {
            let (holder, size) = match block {
                Some((size, owner)) => (
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
                Some(run) if (run.holder, run.size) == (holder, size) => run.frames += frames,
                _ => runs.push(FrameRun { first, frames, holder, size }),
            }
        });
        runs
    }
}
