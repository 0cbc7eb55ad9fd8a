//! A store as the memory with frames that compaction works upon.

use super::Store;
use crate::{BASE, system};
use std::collections::VecDeque;
use terrace_model::{Bytes, BytesPerSec, Frame, PageSize, TierId, Time};
use terrace_policy::{
    Area, Capabilities, Capability, CapabilitySet, Clear, CopyBy, Cost, Exchange, FrameRegion, FrameState,
    MemorySystem, Move, MoveOptions, Outcome, PageCount, PageId, PageView, PhysicalMemory, Relocate, Resize,
    ScanHand, Scanned, Scope, Signal, Step, Subject, Ticket, Tier, TierTraffic, Topology, Watch, Watermarks,
};

/// A page is named by its handle, so that names are aligned to any size.
const SHIFT: u32 = 18;

fn name(handle: u32) -> PageId {
    PageId::new(0, u64::from(handle) << SHIFT)
}

/// A memory of one tier, whose frames are those of a store by their place in it. Pages that are not pinned can be moved to
/// free blocks; the rest that a policy could order is answered as not supported.
#[derive(Debug)]
pub struct StoreFrames<'a> {
    store: &'a mut Store,
    capabilities: Capabilities,
    topology: Topology,
    traffic: [TierTraffic; 1],
    orders: VecDeque<(Ticket, Subject, Option<Relocate>)>,
    tickets: u64,
    spent: Cost,
}

impl StoreFrames<'_> {
    pub(super) fn new(store: &mut Store) -> StoreFrames<'_> {
        let bytes = |frames: u64| Bytes(frames * BASE as u64);
        let (frames, free) = (store.buddy.frames(), store.buddy.free_frames());
        let tier = Tier {
            name: "store".to_owned(),
            capacity: bytes(frames),
            used: bytes(frames - free),
            read_latency: Time::ZERO,
            write_latency: Time::ZERO,
            read_bandwidth: BytesPerSec(0.0),
            write_bandwidth: BytesPerSec(0.0),
        };
        StoreFrames {
            store,
            capabilities: Capabilities::new(CapabilitySet::of(&[Capability::Frames]), PageSize::Giant),
            topology: Topology { tiers: vec![tier] },
            traffic: Default::default(),
            orders: VecDeque::new(),
            tickets: 0,
            spent: Cost::default(),
        }
    }

    /// Carries out the oldest order that is left, and returns what became of it.
    pub(super) fn carry_out(&mut self) -> Option<Signal> {
        let (ticket, subject, order) = self.orders.pop_front()?;
        let begin = system::now();
        let (outcome, copied) = match order {
            Some(Relocate { from, to, exchange: false }) => {
                let size = self.page_at(from).map_or(0, |(_, size)| size.bytes());
                if self.store.relocate(from, to) { (Outcome::Done, size) } else { (Outcome::NoSpace, 0) }
            }
            _ => (Outcome::Unsupported, 0),
        };
        let cost = Cost { time: Time::from_nanos(system::now() - begin), copied, ..Cost::default() };
        self.spent += cost;
        Some(Signal::Done { ticket, subject, outcome, cost })
    }

    /// The page that a frame is part of: its handle and its size.
    fn page_at(&self, frame: Frame) -> Option<(u32, PageSize)> {
        let (first, handle) = self.store.at.range(..=frame.0).next_back()?;
        let page = self.store.page(*handle).ok()?;
        (frame.0 < first + page.size.base_pages()).then_some((*handle, page.size))
    }

    fn order(&mut self, items: impl Iterator<Item = (Subject, Option<Relocate>)>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.orders.extend(items.map(|(subject, order)| (ticket, subject, order)));
        ticket
    }
}

impl PhysicalMemory for StoreFrames<'_> {
    fn tier_frames(&self, _: TierId) -> (Frame, u64) {
        (Frame(0), self.store.buddy.frames())
    }

    fn free_blocks(&self, _: TierId, size: PageSize) -> (u64, u64) {
        self.store.buddy.free_blocks(size.order())
    }

    fn regions(&self, _: TierId, size: PageSize, visit: &mut dyn FnMut(FrameRegion)) {
        let (step, end) = (size.base_pages(), self.store.buddy.frames());
        for first in (0..end).step_by(step as usize) {
            let frames = step.min(end - first);
            let (free, unmovable) = self.store.buddy.region(first, frames);
            let first = Frame(first);
            visit(FrameRegion { first, frames, free, unmovable, zeroed: false, for_movable: true });
        }
    }

    fn state(&self, frame: Frame) -> FrameState {
        match self.page_at(frame) {
            None => FrameState::Free { zeroed: false },
            Some((handle, _)) => match self.store.page(handle) {
                Ok(page) if page.pins == 0 => FrameState::Movable(name(handle)),
                _ => FrameState::Unmovable,
            },
        }
    }

    fn relocate(&mut self, moves: &[Relocate], _: MoveOptions) -> Ticket {
        self.order(moves.iter().map(|one| (Subject::Frame(one.from), Some(*one))))
    }

    fn zero(&mut self, blocks: &[Frame], _: PageSize) -> Ticket {
        self.order(blocks.iter().map(|frame| (Subject::Frame(*frame), None)))
    }

    fn reclaim(&mut self, _: TierId, _: Bytes) -> Bytes {
        Bytes(self.store.buddy.free_frames() * BASE as u64)
    }

    fn watermarks(&self, _: TierId) -> Watermarks {
        Watermarks::default()
    }

    fn isolate(&mut self, block: Frame, size: PageSize, isolated: bool) {
        self.store.buddy.isolate(block.0, size.order(), isolated);
    }
}

impl MemorySystem for StoreFrames<'_> {
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
        let found = self.store.page((page.vpn >> SHIFT) as u32).ok()?;
        Some(PageView {
            page,
            size: found.size,
            tier: TierId(0),
            accessed: false,
            dirty: false,
            writable: true,
            in_flight: false,
            frame: Some(Frame(found.first)),
        })
    }

    fn areas(&mut self, _: Option<terrace_policy::SpaceId>, _: &mut dyn FnMut(&Area)) {}

    fn area(&mut self, _: PageId) -> Option<Area> {
        None
    }

    fn watch(&mut self, _: &[PageId], _: Watch) {}

    fn counts(&mut self, _: &mut dyn FnMut(PageCount)) {}

    fn sample_accesses(&mut self, _: u64) {}

    fn wake_below(&mut self, _: TierId, _: Bytes) {}

    fn migrate(&mut self, moves: &[Move], _: MoveOptions) -> Ticket {
        self.order(moves.iter().map(|one| (Subject::Page(one.page), None)))
    }

    fn exchange(&mut self, pairs: &[Exchange], _: MoveOptions) -> Ticket {
        self.order(pairs.iter().map(|pair| (Subject::Pair(pair.one, pair.other), None)))
    }

    fn resize_by(&mut self, pages: &[Resize], _: CopyBy) -> Ticket {
        self.order(pages.iter().map(|page| (Subject::Page(page.page), None)))
    }

    fn zero_pages(&mut self, _: PageId) -> Option<u64> {
        None
    }

    fn drop_zeros(&mut self, pages: &[PageId]) -> Ticket {
        self.order(pages.iter().map(|page| (Subject::Page(*page), None)))
    }

    fn physical(&mut self) -> Option<&mut dyn PhysicalMemory> {
        Some(self)
    }
}
