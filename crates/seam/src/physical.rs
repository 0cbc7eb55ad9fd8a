//! The physical view: frames, free blocks, regions. For policies about contiguity (Trident, Translation Ranger).

use crate::{MoveOptions, PageId, Ticket};
use terrace_model::{Bytes, Frame, PageSize, TierId};

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameState {
    /// Nothing. `zeroed`: it is known to hold only zeros.
    Free {
        /// Known to hold only zeros.
        zeroed: bool,
    },
    /// Part of a page that can move; where several share the frame, the one that it is named after.
    Movable(PageId),
    /// Movable data that belongs to no managed page, such as a file's pages in the page cache.
    MovableOther,
    /// Part of a page that cannot move just now: under I/O, locked, part of an order.
    Busy,
    /// The kernel's own: never moves.
    Unmovable,
}

/// A region of physical memory: an aligned run of frames with its counters (Trident §5.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRegion {
    /// The region's first frame.
    pub first: Frame,
    /// Frames in it.
    pub frames: u64,
    /// Free frames in it.
    pub free: u64,
    /// Frames in it that never move.
    pub unmovable: u64,
    /// The region is one free block that holds only zeros.
    pub zeroed: bool,
    /// Every pageblock in it is kept for what can move (Linux: `MIGRATE_MOVABLE`), whatever lies in it now. True where the
    /// world does not group memory by mobility.
    pub for_movable: bool,
}

/// Free memory that a world keeps by reclaiming (Linux: the watermarks of a zone).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this much it begins.
    pub low: Bytes,
    /// Up to this much it goes on.
    pub high: Bytes,
}

/// One page, or frame of the page cache, that is to lie elsewhere.
///
/// A page of any size goes whole, to an aligned block of its size. Without `exchange` the block has to be free, else the
/// answer is [`crate::Outcome::NoSpace`]. With it, whatever the block holds goes to the block `from`, frame by frame: base
/// pages, huge pages that fit in it, frames of the page cache, free ones, in any mixture. Nothing is split. A block that
/// holds part of a larger page, or anything that cannot move, is [`crate::Outcome::Unmovable`]; anything busy in it is
/// [`crate::Outcome::Busy`]. A page that lies at `to` already is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocate {
    /// Where it is: the first frame of a page.
    pub from: Frame,
    /// Where it shall be.
    pub to: Frame,
    /// What `to` holds comes to `from` in return.
    pub exchange: bool,
}

/// Frames by number, and work upon them. Results carry [`crate::Subject::Frame`] with the frame as ordered.
pub trait PhysicalMemory {
    /// The first frame of a tier and the number of its frames.
    fn tier_frames(&self, tier: TierId) -> (Frame, u64);

    /// Free blocks of `size` that the allocator could hand out now, and how many of them are known to be zeroed.
    fn free_blocks(&self, tier: TierId, size: PageSize) -> (u64, u64);

    /// The regions of `size` of a tier, by address, from counters that the allocator keeps: cheap.
    fn regions(&self, tier: TierId, size: PageSize, visit: &mut dyn FnMut(FrameRegion));

    /// What a frame holds.
    fn state(&self, frame: Frame) -> FrameState;

    /// Moves contents from frame to frame, in this order. The page tables follow.
    fn relocate(&mut self, moves: &[Relocate], how: MoveOptions) -> Ticket;

    /// Fills free blocks of `size` with zeros. A block that is no longer free when its turn comes is
    /// [`crate::Outcome::Gone`].
    fn zero(&mut self, blocks: &[Frame], size: PageSize) -> Ticket;

    /// Gives up pages of files that nobody uses, those read longest ago first, until `free` is free in the tier or there
    /// are no more. Returns what is free then.
    fn reclaim(&mut self, tier: TierId, free: Bytes) -> Bytes;

    /// How much free memory the world keeps in a tier by itself.
    fn watermarks(&self, tier: TierId) -> Watermarks;

    /// Keeps the allocator from handing out frames of a block while it is being emptied, or ends that. Its free frames
    /// still count as free memory, but not as free blocks; relocation into it remains possible.
    fn isolate(&mut self, block: Frame, size: PageSize, isolated: bool);
}
