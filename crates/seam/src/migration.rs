//! Work that a policy orders: moves, exchanges, splits, collapses, and what became of them.

use crate::PageId;
use std::num::{NonZeroU16, NonZeroU32};
use terrace_model::{Frame, PageSize, TierId, Time};

/// One page to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The page, by the first base page in it.
    pub page: PageId,
    /// Where to.
    pub to: TierId,
}

/// Two pages of equal size that are to swap places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// One of them.
    pub one: PageId,
    /// The other.
    pub other: PageId,
}

/// One page to split or to collapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// The first base page of the page as it will be, or of the range that becomes one page.
    pub page: PageId,
    /// The size of the page, or of its parts, afterwards.
    pub to: PageSize,
}

/// Whether huge pages stay huge when they move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Huge pages move whole, and are still huge where they arrive.
    #[default]
    Whole,
    /// Huge pages are split first and arrive as base pages, as Linux did before 4.14.
    SplitFirst,
}

/// How pages are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyBy {
    /// The CPU, or a DMA engine, moves the bytes.
    #[default]
    Bytes,
    /// A lower level of translation is rewritten so that the same bytes appear at the new place (Trident^PV), by requests of
    /// so many pairs of pages; 1: one request for each. What that level does not exchange is copied: pages that are too
    /// small for it, and those that it refuses.
    Mapping(NonZeroU16),
}

/// How to carry out an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveOptions {
    /// What happens to huge pages.
    pub huge: HugePages,
    /// Threads that share each copy; at most [`crate::Capabilities::copy_threads`] are used.
    pub threads: u16,
    /// Pages between unmap and map at the same time. 1: one page after the other. None: all of the order at once.
    pub in_flight: Option<NonZeroU32>,
    /// How the bytes get there.
    pub copy: CopyBy,
    /// Whether the lists of pages that cores have under way are emptied first, as `move_pages` does. What the kernel
    /// moves by itself, in a fault or in reclaim, it moves without that (Linux, mm/migrate.c, migrate_misplaced_page;
    /// mm/vmscan.c, demote_page_list). Live Linux has `move_pages` alone.
    pub empties_lists: bool,
}

impl Default for MoveOptions {
    /// One page after the other, whole, copied by one thread.
    fn default() -> MoveOptions {
        MoveOptions {
            huge: HugePages::Whole,
            threads: 1,
            in_flight: NonZeroU32::new(1),
            copy: CopyBy::Bytes,
            empties_lists: true,
        }
    }
}

/// An order that was taken. [`crate::Signal::Done`] with it comes once for each page, pair or frame of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A page that was moved, split or collapsed.
    Page(PageId),
    /// A pair that was exchanged.
    Pair(PageId, PageId),
    /// A frame that was relocated or zeroed, by where it was.
    Frame(Frame),
}

impl Subject {
    /// The page; of a pair the first, of a frame none.
    pub fn page(self) -> Option<PageId> {
        match self {
            Subject::Page(page) | Subject::Pair(page, _) => Some(page),
            Subject::Frame(_) => None,
        }
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// As ordered, or already so.
    Done,
    /// No free frame, or no free block of the size, at the destination. May work later.
    NoSpace,
    /// Locked, under I/O, or part of another order. May work later.
    Busy,
    /// Pinned or the kernel's own: will not work.
    Unmovable,
    /// Unmapped, or of another size than when it was ordered.
    Gone,
    /// This world cannot do that.
    Unsupported,
}

impl Outcome {
    /// Whether the same order may succeed later.
    pub const fn is_worth_a_retry(self) -> bool {
        matches!(self, Outcome::NoSpace | Outcome::Busy)
    }
}

/// What something cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time spent, all threads together, that of interrupted cores included.
    pub time: Time,
    /// Bytes read and written by copies, zeroing excluded; each copied byte counts once.
    pub copied: u64,
    /// TLB shootdowns sent.
    pub shootdowns: u64,
    /// Faults that the program took for it.
    pub faults: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.time += other.time;
        self.copied += other.copied;
        self.shootdowns += other.shootdowns;
        self.faults += other.faults;
    }
}
