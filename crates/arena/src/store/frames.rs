//! A store as the memory with frames that compaction works upon.

use super::Store;
use crate::frames::{FrameMemory, OwnFrames};
use terrace_model::{Frame, PageSize};
use terrace_policy::{FrameRegion, FrameState, Outcome, PageId, Relocate};

/// A page is named by its handle, so that names are aligned to any size.
const SHIFT: u32 = 18;

fn name(handle: u32) -> PageId {
    PageId::new(0, u64::from(handle) << SHIFT)
}

/// The frames of a store, by their place in it. Pages that are not pinned can be moved to free blocks.
pub type StoreFrames<'a> = FrameMemory<&'a mut Store>;

impl Store {
    /// The page that a frame is part of: its handle and its size.
    fn page_at(&self, frame: Frame) -> Option<(u32, PageSize)> {
        let (first, handle) = self.at.range(..=frame.0).next_back()?;
        let page = self.page(*handle).ok()?;
        (frame.0 < first + page.size.base_pages()).then_some((*handle, page.size))
    }
}

impl OwnFrames for &mut Store {
    type Order = Relocate;
    const NAME: &'static str = "store";
    const LARGEST: PageSize = PageSize::Giant;

    fn frames(&self) -> u64 {
        self.buddy.frames()
    }

    fn free(&self) -> u64 {
        self.buddy.free_frames()
    }

    fn used(&self) -> u64 {
        self.buddy.frames() - self.buddy.free_frames()
    }

    fn free_blocks(&self, size: PageSize) -> (u64, u64) {
        self.buddy.free_blocks(size.order())
    }

    fn regions(&self, size: PageSize, visit: &mut dyn FnMut(FrameRegion)) {
        let (step, end) = (size.base_pages(), self.buddy.frames());
        for first in (0..end).step_by(step as usize) {
            let frames = step.min(end - first);
            let (free, unmovable) = self.buddy.region(first, frames);
            let first = Frame(first);
            visit(FrameRegion { first, frames, free, unmovable, zeroed: false, for_movable: true });
        }
    }

    fn state(&self, frame: Frame) -> FrameState {
        match self.page_at(frame) {
            None => FrameState::Free { zeroed: false },
            Some((handle, _)) => match Store::page(self, handle) {
                Ok(page) if page.pins == 0 => FrameState::Movable(name(handle)),
                _ => FrameState::Unmovable,
            },
        }
    }

    fn isolate(&mut self, block: Frame, size: PageSize, isolated: bool) {
        self.buddy.isolate(block.0, size.order(), isolated);
    }

    fn page(&self, page: PageId) -> Option<(Frame, PageSize)> {
        let found = Store::page(self, (page.vpn >> SHIFT) as u32).ok()?;
        Some((Frame(found.first), found.size))
    }

    fn relocation(&self, order: Relocate) -> Option<Relocate> {
        (!order.exchange).then_some(order)
    }

    fn carry_out(&mut self, Relocate { from, to, .. }: Relocate) -> (Outcome, u64) {
        let size = self.page_at(from).map_or(0, |(_, size)| size.bytes());
        if self.relocate(from, to) { (Outcome::Done, size) } else { (Outcome::NoSpace, 0) }
    }
}
