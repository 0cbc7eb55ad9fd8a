//! A pool's blocks as the frames that a policy sees.

use super::{Block, Blocks, locked};
use crate::BASE;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_model::{Bytes, BytesPerSec, Frame, PageSize, TierId, Time};
use terrace_policy::{
    Area, Capabilities, Capability, CapabilitySet, Clear, CopyBy, Cost, Exchange, FrameRegion, FrameState,
    MemorySystem, Move, MoveOptions, Outcome, PageCount, PageId, PageView, PhysicalMemory, Relocate, Resize,
    ScanHand, Scanned, Scope, Signal, SpaceId, Step, Subject, Ticket, Tier, TierTraffic, Topology, Watch,
    Watermarks,
};

/// Base pages of a block.
const PAGES: u64 = PageSize::Huge.base_pages();

/// A memory of one tier whose frames are those of a pool, by their place in it. There are no pages in it that could move:
/// who has a block knows its address. So all that a policy can order is zeroing; the rest is answered as not supported.
#[derive(Debug)]
pub struct PoolFrames {
    blocks: Arc<Blocks>,
    capabilities: Capabilities,
    topology: Topology,
    traffic: [TierTraffic; 1],
    /// What is ordered: of a block, whether it is to be zeroed.
    orders: VecDeque<(Ticket, Subject, Option<usize>)>,
    tickets: u64,
    spent: Cost,
}

impl PoolFrames {
    pub(super) fn new(blocks: Arc<Blocks>) -> PoolFrames {
        let count = locked(&blocks.states).len();
        let tier = Tier {
            name: "pool".to_owned(),
            capacity: Bytes(count as u64 * PageSize::Huge.bytes()),
            used: Bytes(0),
            read_latency: Time::ZERO,
            write_latency: Time::ZERO,
            read_bandwidth: BytesPerSec(0.0),
            write_bandwidth: BytesPerSec(0.0),
        };
        PoolFrames {
            blocks,
            capabilities: Capabilities::new(CapabilitySet::of(&[Capability::Frames]), PageSize::Huge),
            topology: Topology { tiers: vec![tier] },
            traffic: Default::default(),
            orders: VecDeque::new(),
            tickets: 0,
            spent: Cost::default(),
        }
    }

    /// Carries out the oldest order that is left, and returns what became of it.
    pub(super) fn carry_out(&mut self) -> Option<Signal> {
        let (ticket, subject, block) = self.orders.pop_front()?;
        let begin = crate::system::now();
        let outcome = match block.map(|block| self.blocks.zero(block)) {
            None => Outcome::Unsupported,
            Some(None) => Outcome::Gone,
            Some(Some(false)) => Outcome::NoSpace,
            Some(Some(true)) => Outcome::Done,
        };
        let cost = Cost { time: Time::from_nanos(crate::system::now() - begin), ..Cost::default() };
        self.spent += cost;
        Some(Signal::Done { ticket, subject, outcome, cost })
    }

    fn order(&mut self, items: impl Iterator<Item = (Subject, Option<usize>)>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.orders.extend(items.map(|(subject, block)| (ticket, subject, block)));
        ticket
    }
}

impl PhysicalMemory for PoolFrames {
    fn tier_frames(&self, _: TierId) -> (Frame, u64) {
        (Frame(0), locked(&self.blocks.states).len() as u64 * PAGES)
    }

    fn free_blocks(&self, _: TierId, size: PageSize) -> (u64, u64) {
        let states = locked(&self.blocks.states);
        let count = |wanted: &[Block]| states.iter().filter(|state| wanted.contains(state)).count() as u64;
        let per = if size == PageSize::Base { PAGES } else { u64::from(size == PageSize::Huge) };
        (count(&[Block::Free, Block::Zeroed]) * per, count(&[Block::Zeroed]) * per)
    }

    fn regions(&self, _: TierId, size: PageSize, visit: &mut dyn FnMut(FrameRegion)) {
        if size != PageSize::Huge {
            return;
        }
        let states = locked(&self.blocks.states).clone();
        for (at, state) in states.into_iter().enumerate() {
            let is_free = matches!(state, Block::Free | Block::Zeroed);
            visit(FrameRegion {
                first: Frame(at as u64 * PAGES),
                frames: PAGES,
                free: if is_free { PAGES } else { 0 },
                unmovable: if is_free { 0 } else { PAGES },
                zeroed: state == Block::Zeroed,
                for_movable: false,
            });
        }
    }

    fn state(&self, frame: Frame) -> FrameState {
        match locked(&self.blocks.states).get((frame.0 / PAGES) as usize) {
            Some(Block::Free) => FrameState::Free { zeroed: false },
            Some(Block::Zeroed) => FrameState::Free { zeroed: true },
            Some(Block::Busy) => FrameState::Busy,
            Some(Block::Used) | None => FrameState::Unmovable,
        }
    }

    fn relocate(&mut self, moves: &[Relocate], _: MoveOptions) -> Ticket {
        self.order(moves.iter().map(|one| (Subject::Frame(one.from), None)))
    }

    fn zero(&mut self, blocks: &[Frame], size: PageSize) -> Ticket {
        let block = |frame: &Frame| (size == PageSize::Huge).then_some((frame.0 / PAGES) as usize);
        self.order(blocks.iter().map(|frame| (Subject::Frame(*frame), block(frame))))
    }

    fn reclaim(&mut self, tier: TierId, _: Bytes) -> Bytes {
        Bytes(self.free_blocks(tier, PageSize::Base).0 * BASE as u64)
    }

    fn watermarks(&self, _: TierId) -> Watermarks {
        Watermarks::default()
    }

    fn isolate(&mut self, _: Frame, _: PageSize, _: bool) {}
}

impl MemorySystem for PoolFrames {
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

    fn page(&mut self, _: PageId) -> Option<PageView> {
        None
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
