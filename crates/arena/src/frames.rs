//! Memory that the process owns as frames that a policy sees: what a pool of blocks and a store have in common.

use crate::system;
use std::collections::VecDeque;
use terrace_model::{Bytes, BytesPerSec, Frame, PageSize, SpaceId, TierId, Time};
use terrace_policy::{
    Area, Capabilities, Capability, CapabilitySet, Clear, CopyBy, Cost, Exchange, FrameRegion, FrameState,
    MemorySystem, Move, MoveOptions, Outcome, PageCount, PageId, PageView, PhysicalMemory, Relocate, Resize,
    ScanHand, Scanned, Scope, Signal, Step, Subject, Ticket, Tier, TierTraffic, Topology, Watch, Watermarks,
};

/// Memory whose frames are numbered by their place in it.
pub trait OwnFrames {
    /// An order that it carries out.
    type Order;
    /// What its tier is called.
    const NAME: &'static str;
    /// The largest page that it hands out.
    const LARGEST: PageSize;

    /// Base pages in all.
    fn frames(&self) -> u64;

    /// Base pages that are free.
    fn free(&self) -> u64;

    /// Base pages that are in use when a policy begins to look.
    fn used(&self) -> u64;

    /// As [`PhysicalMemory::free_blocks`].
    fn free_blocks(&self, size: PageSize) -> (u64, u64);

    /// As [`PhysicalMemory::regions`].
    fn regions(&self, size: PageSize, visit: &mut dyn FnMut(FrameRegion));

    /// As [`PhysicalMemory::state`].
    fn state(&self, frame: Frame) -> FrameState;

    /// As [`PhysicalMemory::isolate`].
    fn isolate(&mut self, _block: Frame, _size: PageSize, _isolated: bool) {}

    /// A page's frame and size.
    fn page(&self, _page: PageId) -> Option<(Frame, PageSize)> {
        None
    }

    /// The order that moves a page between frames; none where it cannot.
    fn relocation(&self, _order: Relocate) -> Option<Self::Order> {
        None
    }

    /// The order that fills a block with zeros; none where it cannot.
    fn zeroing(&self, _block: Frame, _size: PageSize) -> Option<Self::Order> {
        None
    }

    /// Carries an order out: what became of it, and bytes that were copied.
    fn carry_out(&mut self, order: Self::Order) -> (Outcome, u64);
}

/// A memory of one tier, with such frames. What they cannot do is answered as not supported.
#[derive(Debug)]
pub struct FrameMemory<F: OwnFrames> {
    own: F,
    capabilities: Capabilities,
    topology: Topology,
    traffic: [TierTraffic; 1],
    orders: VecDeque<(Ticket, Subject, Option<F::Order>)>,
    tickets: u64,
    spent: Cost,
}

impl<F: OwnFrames> FrameMemory<F> {
    /// Without orders.
    pub fn new(own: F) -> FrameMemory<F> {
        let bytes = |frames: u64| Bytes(frames * PageSize::Base.bytes());
        let tier = Tier {
            name: F::NAME.to_owned(),
            capacity: bytes(own.frames()),
            used: bytes(own.used()),
            read_latency: Time::ZERO,
            write_latency: Time::ZERO,
            read_bandwidth: BytesPerSec(0.0),
            write_bandwidth: BytesPerSec(0.0),
        };
        FrameMemory {
            own,
            capabilities: Capabilities::new(CapabilitySet::of(&[Capability::Frames]), F::LARGEST),
            topology: Topology { tiers: vec![tier] },
            traffic: Default::default(),
            orders: VecDeque::new(),
            tickets: 0,
            spent: Cost::default(),
        }
    }

    /// Carries out the oldest order that is left, and returns what became of it.
    pub fn carry_out(&mut self) -> Option<Signal> {
        let (ticket, subject, order) = self.orders.pop_front()?;
        let begin = system::now();
        let (outcome, copied) = order.map_or((Outcome::Unsupported, 0), |order| self.own.carry_out(order));
        let cost = Cost { time: Time::from_nanos(system::now() - begin), copied, ..Cost::default() };
        self.spent += cost;
        Some(Signal::Done { ticket, subject, outcome, cost })
    }

    fn order(&mut self, items: impl Iterator<Item = (Subject, Option<F::Order>)>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.orders.extend(items.map(|(subject, order)| (ticket, subject, order)));
        ticket
    }

    fn refuse(&mut self, subjects: impl Iterator<Item = Subject>) -> Ticket {
        self.order(subjects.map(|subject| (subject, None)))
    }
}

impl<F: OwnFrames> PhysicalMemory for FrameMemory<F> {
    fn tier_frames(&self, _: TierId) -> (Frame, u64) {
        (Frame(0), self.own.frames())
    }

    fn free_blocks(&self, _: TierId, size: PageSize) -> (u64, u64) {
        self.own.free_blocks(size)
    }

    fn regions(&self, _: TierId, size: PageSize, visit: &mut dyn FnMut(FrameRegion)) {
        self.own.regions(size, visit);
    }

    fn state(&self, frame: Frame) -> FrameState {
        self.own.state(frame)
    }

    fn relocate(&mut self, moves: &[Relocate], _: MoveOptions) -> Ticket {
        let orders: Vec<_> =
            moves.iter().map(|one| (Subject::Frame(one.from), self.own.relocation(*one))).collect();
        self.order(orders.into_iter())
    }

    fn zero(&mut self, blocks: &[Frame], size: PageSize) -> Ticket {
        let orders: Vec<_> =
            blocks.iter().map(|block| (Subject::Frame(*block), self.own.zeroing(*block, size))).collect();
        self.order(orders.into_iter())
    }

    fn reclaim(&mut self, _: TierId, _: Bytes) -> Bytes {
        Bytes(self.own.free() * PageSize::Base.bytes())
    }

    fn watermarks(&self, _: TierId) -> Watermarks {
        Watermarks::default()
    }

    fn isolate(&mut self, block: Frame, size: PageSize, isolated: bool) {
        self.own.isolate(block, size, isolated);
    }
}

impl<F: OwnFrames> MemorySystem for FrameMemory<F> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn traffic(&mut self) -> &[TierTraffic] {
        &self.traffic
    }

    fn spent(&self) -> Cost {
        self.spent
    }

    fn scan(
        &mut self,
        _: Scope<'_>,
        _: &mut ScanHand,
        _: Clear,
        _: &mut dyn FnMut(&PageView) -> Step,
    ) -> Scanned {
        Scanned { lap: true, ..Scanned::default() }
    }

    fn page(&mut self, page: PageId) -> Option<PageView> {
        let (frame, size) = self.own.page(page)?;
        Some(PageView {
            page,
            size,
            tier: TierId(0),
            accessed: false,
            dirty: false,
            writable: true,
            in_flight: false,
            frame: Some(frame),
        })
    }

    fn areas(&mut self, _: Option<SpaceId>, _: &mut dyn FnMut(&Area)) {}

    fn area(&mut self, _: PageId) -> Option<Area> {
        None
    }

    fn watch(&mut self, _: &[PageId], _: Watch) {}

    fn counts(&mut self, _: &mut dyn FnMut(PageCount)) {}

    fn sample_accesses(&mut self, _: u64) {}

    fn wake_below(&mut self, _: TierId, _: Bytes) {}

    fn migrate(&mut self, moves: &[Move], _: MoveOptions) -> Ticket {
        self.refuse(moves.iter().map(|one| Subject::Page(one.page)))
    }

    fn exchange(&mut self, pairs: &[Exchange], _: MoveOptions) -> Ticket {
        self.refuse(pairs.iter().map(|pair| Subject::Pair(pair.one, pair.other)))
    }

    fn resize_by(&mut self, pages: &[Resize], _: CopyBy) -> Ticket {
        self.refuse(pages.iter().map(|page| Subject::Page(page.page)))
    }

    fn zero_pages(&mut self, _: PageId) -> Option<u64> {
        None
    }

    fn drop_zeros(&mut self, pages: &[PageId]) -> Ticket {
        self.refuse(pages.iter().map(|page| Subject::Page(*page)))
    }

    fn physical(&mut self) -> Option<&mut dyn PhysicalMemory> {
        Some(self)
    }
}
