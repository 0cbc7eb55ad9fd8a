//! The signals that a policy is called with.

use crate::{Agent, Cost, Moment, Outcome, PageId, PageRange, Subject, Ticket};
use terrace_model::{Bytes, PageSize, TierId, Time};

/// One signal. A batch holds them in the order in which they happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The time that the policy asked for has come. The first call has one.
    Tick,
    /// An order is done for one page, pair or frame. Failures come the same way.
    Done {
        /// The order.
        ticket: Ticket,
        /// The page, pair or frame.
        subject: Subject,
        /// How it ended.
        outcome: Outcome,
        /// What it cost, shares of batched work included.
        cost: Cost,
    },
    /// A page under [`crate::Watch::Hint`] or [`crate::Watch::HintStore`] was accessed.
    HintFault {
        /// The mapped page, by its first base page.
        page: PageId,
        /// The access was a store.
        write: bool,
        /// When.
        at: Moment,
        /// Time from the begin of the watch to the access.
        latency: Time,
        /// The agent that accessed the page.
        agent: Agent,
    },
    /// Accesses that reached memory, sampled or all (see [`crate::MemorySystem::sample_accesses`]).
    Access {
        /// The base page that was accessed, whatever page maps it.
        page: PageId,
        /// Stores; loads otherwise.
        write: bool,
        /// How many in a row, not scaled by the sampling period.
        count: u32,
    },
    /// A translation missed in an agent's TLBs.
    TlbMiss {
        /// The mapped page, by its first base page.
        page: PageId,
        /// The agent whose TLB missed.
        agent: Agent,
    },
    /// A fault brought in a page.
    Allocated {
        /// The page, by its first base page.
        page: PageId,
        /// The page's size.
        size: PageSize,
        /// Where it lies.
        tier: TierId,
        /// The page's block was known to hold only zeros, so the fault did not fill it.
        zeroed: bool,
    },
    /// A fault waits for a free block, as its placement asked for ([`crate::Placement::or_waits`]). It goes on at
    /// [`crate::MemorySystem::resume`], and asks the policy anew.
    Stalled {
        /// The page that the block is for.
        page: PageId,
        /// The page's size.
        size: PageSize,
        /// The tier that has no such block.
        tier: TierId,
    },
    /// A fault found no free block for the large page that its placement asked for first, and took something else
    /// ([`crate::Placement::or_notifies`]).
    Refused {
        /// The page that the block would have been for.
        page: PageId,
        /// The page's size.
        size: PageSize,
        /// The tier that has no such block.
        tier: TierId,
    },
    /// Pages are no longer mapped. Their names may come back for other contents.
    Unmapped {
        /// Which.
        range: PageRange,
    },
    /// Free memory fell below what [`crate::MemorySystem::wake_below`] asked for.
    LowWater {
        /// The tier whose memory is low.
        tier: TierId,
        /// What is free.
        free: Bytes,
    },
}
