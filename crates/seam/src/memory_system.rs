//! What a policy may see and do.

use crate::{
    Area, Block, Capabilities, Capability, CopyBy, Cost, Exchange, Move, MoveOptions, PageId, PageRange,
    PageView, PhysicalMemory, Resize, SpaceId, Ticket, TierTraffic, Topology,
};
use terrace_model::{Bytes, TierId, Time};

/// Which pages a scan visits, in the order of [`PageId`].
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// Every managed page.
    All,
    /// Every managed page that lies in this tier.
    Tier(TierId),
    /// The pages of this range.
    Range(PageRange),
    /// The pages that hold these, in the order given; those that are not mapped are passed over.
    Pages(&'a [PageId]),
}

/// Where a scan goes on: the hand of a clock. Starts at the lowest page.
///
/// A scan begins at the hand, goes up, wraps once, and ends where it began at the latest. A scan that was stopped leaves
/// the hand at the page that stopped it; a scan that showed everything leaves the hand where it was. Scans of
/// [`Scope::Pages`] ignore it. [`ScanHand::lap`] is this order, for every world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanHand {
    /// The first page to visit, or the next above it.
    pub next: PageId,
}

/// What clearing means in a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clear {
    /// [`Step::Clear`] clears the accessed bit.
    pub accessed: bool,
    /// [`Step::Clear`] clears the dirty bit.
    pub dirty: bool,
    /// Clearing also drops the translation from all TLBs, so that the next access sets the bits again. Costs a
    /// shootdown; a world may batch those of a scan.
    pub flush: bool,
}

impl Clear {
    /// Nothing is cleared.
    pub const NOTHING: Clear = Clear { accessed: false, dirty: false, flush: false };
    /// The accessed bit, without a flush.
    pub const ACCESSED: Clear = Clear { accessed: true, dirty: false, flush: false };
    /// Both bits, without a flush.
    pub const BOTH: Clear = Clear { accessed: true, dirty: true, flush: false };

    /// With a flush, where `flush`.
    pub const fn flushed(self, flush: bool) -> Clear {
        Clear { flush, ..self }
    }

    /// With a flush, where the world offers it.
    pub fn flushed_where_offered(self, memory: &dyn MemorySystem) -> Clear {
        self.flushed(memory.capabilities().has(Capability::FlushOnClear))
    }
}

/// What a visitor wants done with the page it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Leave its bits, go on.
    Keep,
    /// Clear its bits as the scan's [`Clear`] says, go on.
    Clear,
    /// Leave this page unvisited and end the scan; the hand stays on it.
    Stop,
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Pages shown, the one that stopped it excluded.
    pub pages: u64,
    /// Every page in scope was shown.
    pub lap: bool,
    /// What the scan cost.
    pub cost: Cost,
}

/// How accesses to a page are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Watch {
    /// Not at all.
    #[default]
    Off,
    /// The next access faults and is reported as [`crate::Signal::HintFault`]; then the page is no longer watched.
    Hint,
    /// The next store faults and is reported as [`crate::Signal::HintFault`]; loads pass.
    HintStore,
    /// Accesses are counted, one per TLB miss where the world can; read them with [`MemorySystem::counts`].
    Count,
}

/// Accesses counted on a page under [`Watch::Count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCount {
    /// The page.
    pub page: PageId,
    /// Counted since the last reading, or since the watch began.
    pub accesses: u64,
    /// There were more than the world could count; `accesses` is a lower bound.
    pub saturated: bool,
}

/// What is done with a huge page that is sampled: it is split, so many of its base pages are under [`Watch::Count`] for a
/// time, and it is collapsed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeSample {
    /// Base pages under watch.
    pub counted: u64,
    /// For so long.
    pub span: Time,
}

/// The memory of the machine, as far as a policy may see and change it.
///
/// The simulated operating system implements it, live Linux implements it, and a test double does for tests.
/// Orders are asynchronous: a method takes the order and returns a [`Ticket`]; what became of each page arrives later
/// as [`crate::Signal::Done`], also for orders that cannot be carried out at all. So no method can fail.
pub trait MemorySystem {
    /// What this world offers. Constant while a policy runs.
    fn capabilities(&self) -> &Capabilities;

    /// The tiers, with what is used now. Frames taken by moves under way count as used.
    fn topology(&self) -> &Topology;

    /// What went through each tier so far; by tier number.
    fn traffic(&mut self) -> &[TierTraffic];

    /// What all mechanisms cost so far: scans, faults of watched pages, samples, moves, splits, collapses.
    fn spent(&self) -> Cost;

    /// Shows the pages in scope to `visit` and clears bits as the returned [`Step`] says. Pages under way are shown where
    /// they are.
    ///
    /// Nothing else happens to memory during a scan. `visit` is called once per page, so it must be cheap.
    fn scan(
        &mut self,
        scope: Scope<'_>,
        hand: &mut ScanHand,
        clear: Clear,
        visit: &mut dyn FnMut(&PageView) -> Step,
    ) -> Scanned;

    /// The page that holds `page` as a scan would show it; none where nothing is mapped.
    fn page(&mut self, page: PageId) -> Option<PageView>;

    /// The areas of one space or of all, by address.
    fn areas(&mut self, space: Option<SpaceId>, visit: &mut dyn FnMut(&Area));

    /// The area that holds `page`, with the data structure where the world knows it.
    fn area(&mut self, page: PageId) -> Option<Area>;

    /// The blocks that the world knows; their counts begin anew. What lies in none of them lies in areas only. Nothing where
    /// neither data structures are known ([`Capability::Objects`]) nor accesses are counted by block
    /// ([`Capability::BlockCounts`]).
    fn blocks(&mut self, _visit: &mut dyn FnMut(Block)) {}

    /// Watches pages, or ends it. A watch stays with a page that moves, and ends when it is split, collapsed or
    /// unmapped. Pages that are not mapped are passed over.
    fn watch(&mut self, pages: &[PageId], how: Watch);

    /// Shows the counts of all pages under [`Watch::Count`], in page order, and sets them back to zero.
    fn counts(&mut self, visit: &mut dyn FnMut(PageCount));

    /// How many huge pages per second can be sampled like this within what the world may use, as far as it knows what that
    /// costs here. None: it sets no bound.
    fn affordable_samples(&self, _sample: HugeSample) -> Option<f64> {
        None
    }

    /// Reports one of `one_in` accesses that reach memory as [`crate::Signal::Access`]; 1 needs
    /// [`crate::Capability::ExactAccesses`], 0 ends it.
    fn sample_accesses(&mut self, one_in: u64);

    /// Sends [`crate::Signal::LowWater`] when free memory of the tier falls below `free`, once per fall; zero ends it.
    fn wake_below(&mut self, tier: TierId, free: Bytes);

    /// Moves pages to tiers, in this order, `how.in_flight` at a time. A page's frame is allocated when its turn
    /// comes. A page that is already there is done at once.
    fn migrate(&mut self, moves: &[Move], how: MoveOptions) -> Ticket;

    /// Swaps the places of pairs of pages of equal size, in this order. Either both pages of a pair change or none;
    /// where huge pages are split first, that holds for each pair of their base pages.
    fn exchange(&mut self, pairs: &[Exchange], how: MoveOptions) -> Ticket;

    /// Splits or collapses pages. A collapsed page lies in the tier in which most of it lay; bytes that are not yet
    /// mapped are zero-filled. Where the parts already lie in one aligned block, nothing is copied.
    fn resize(&mut self, pages: &[Resize]) -> Ticket {
        self.resize_by(pages, CopyBy::Bytes)
    }

    /// As [`MemorySystem::resize`]; `copy` says how the parts of a collapsed page get to their new block.
    /// [`CopyBy::Mapping`] needs [`Capability::CopylessExchange`]; elsewhere each page is answered with
    /// [`crate::Outcome::Unsupported`].
    fn resize_by(&mut self, pages: &[Resize], copy: CopyBy) -> Ticket;

    /// How many base pages hold only zeros, within the page that holds `page`. Looks at their contents, which takes time.
    /// None where nothing is mapped or the world cannot tell ([`Capability::ZeroPages`]).
    fn zero_pages(&mut self, page: PageId) -> Option<u64>;

    /// Splits each page and unmaps its base pages that hold only zeros: they read as zeros, and the next store to one
    /// faults a page in. Pages that hold no zeros are split as well.
    fn drop_zeros(&mut self, pages: &[PageId]) -> Ticket;

    /// Lets a fault go on that waits for a block ([`crate::Signal::Stalled`]), whether there is one now or not.
    fn resume(&mut self, _page: PageId) {}

    /// Frames, where the world shows them ([`crate::Capability::Frames`]).
    fn physical(&mut self) -> Option<&mut dyn PhysicalMemory>;
}
