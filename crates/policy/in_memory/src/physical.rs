//! The test double's frames.

use super::orders::Item;
use super::{Holder, InMemory};
use terrace_model::{Bytes, Frame, PageSize, TierId};
use terrace_seam::{FrameRegion, FrameState, MoveOptions, PhysicalMemory, Relocate, Ticket, Watermarks};

impl PhysicalMemory for InMemory {
    fn tier_frames(&self, tier: TierId) -> (Frame, u64) {
        let frames = &self.frames[tier.index()];
        (Frame(frames.base), frames.count())
    }

    fn free_blocks(&self, tier: TierId, size: PageSize) -> (u64, u64) {
        let frames = &self.frames[tier.index()];
        let blocks = frames.free_blocks(size);
        blocks.fold((0, 0), |(free, zeroed), first| {
            (free + 1, zeroed + u64::from(frames.is_zeroed(first, size.base_pages())))
        })
    }

    fn regions(&self, tier: TierId, size: PageSize, visit: &mut dyn FnMut(FrameRegion)) {
        let frames = &self.frames[tier.index()];
        let length = size.base_pages();
        let mut first = frames.base;
        while first < frames.base + frames.count() {
            let count = length.min(frames.base + frames.count() - first);
            let holders = || (first..first + count).map(|frame| frames.holder(frame));
            visit(FrameRegion {
                first: Frame(first),
                frames: count,
                free: holders().filter(|holder| matches!(holder, Holder::Free { .. })).count() as u64,
                unmovable: holders().filter(|holder| *holder == Holder::Kernel).count() as u64,
                zeroed: count == length && frames.is_zeroed(first, length),
                for_movable: frames.is_for_movable(first, count),
            });
            first += length;
        }
    }

    fn state(&self, frame: Frame) -> FrameState {
        let Some(tier) = self.tier_of(frame.0) else { return FrameState::Unmovable };
        match self.frames[tier].holder(frame.0) {
            Holder::Free { zeroed } => FrameState::Free { zeroed },
            Holder::Reserved(_) | Holder::OtherInFlight(_) => FrameState::Busy,
            Holder::Other => FrameState::MovableOther,
            Holder::Kernel => FrameState::Unmovable,
            Holder::Page(name) => match &self.pages[&name] {
                page if page.held_by.is_some() => FrameState::Busy,
                page if page.pinned => FrameState::Unmovable,
                _ => FrameState::Movable(name),
            },
        }
    }

    fn relocate(&mut self, moves: &[Relocate], how: MoveOptions) -> Ticket {
        self.order(moves.iter().map(|one| Item::Relocate(*one)).collect(), how)
    }

    fn zero(&mut self, blocks: &[Frame], size: PageSize) -> Ticket {
        self.order(blocks.iter().map(|block| Item::Zero(*block, size)).collect(), MoveOptions::default())
    }

    fn reclaim(&mut self, tier: TierId, free: Bytes) -> Bytes {
        self.frames[tier.index()].reclaim(free.0 >> 12);
        self.account();
        Bytes(self.frames[tier.index()].free() << 12)
    }

    fn watermarks(&self, tier: TierId) -> Watermarks {
        self.frames[tier.index()].watermarks
    }

    fn isolate(&mut self, block: Frame, size: PageSize, isolated: bool) {
        if let Some(tier) = self.tier_of(block.0) {
            self.frames[tier].isolate(block.0, size.base_pages(), isolated);
        }
    }
}
