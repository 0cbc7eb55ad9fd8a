//! A pool's blocks as the frames that a policy sees.

use super::{Block, Blocks, locked};
use crate::frames::{FrameMemory, OwnFrames};
use std::sync::Arc;
use terrace_model::{Frame, PageSize};
use terrace_policy::{FrameRegion, FrameState, Outcome};

/// Base pages of a block.
const PAGES: u64 = PageSize::Huge.base_pages();

/// The frames of a pool, by their place in it. No page in the pool could move, because who has a block knows its address.
/// So all that a policy can order is zeroing.
pub(super) type PoolFrames = FrameMemory<Arc<Blocks>>;

impl OwnFrames for Arc<Blocks> {
    /// The block that is to be zeroed.
    type Order = usize;
    const NAME: &'static str = "pool";
    const LARGEST: PageSize = PageSize::Huge;

    fn frames(&self) -> u64 {
        locked(&self.states).len() as u64 * PAGES
    }

    fn free(&self) -> u64 {
        self.free_blocks(PageSize::Base).0
    }

    fn used(&self) -> u64 {
        0
    }

    fn free_blocks(&self, size: PageSize) -> (u64, u64) {
        let states = locked(&self.states);
        let count = |wanted: &[Block]| states.iter().filter(|state| wanted.contains(state)).count() as u64;
        let per = if size == PageSize::Base { PAGES } else { u64::from(size == PageSize::Huge) };
        (count(&[Block::Free, Block::Zeroed]) * per, count(&[Block::Zeroed]) * per)
    }

    fn regions(&self, size: PageSize, visit: &mut dyn FnMut(FrameRegion)) {
        if size != PageSize::Huge {
            return;
        }
        let states = locked(&self.states).clone();
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
        match locked(&self.states).get((frame.0 / PAGES) as usize) {
            Some(Block::Free) => FrameState::Free { zeroed: false },
            Some(Block::Zeroed) => FrameState::Free { zeroed: true },
            Some(Block::Busy) => FrameState::Busy,
            Some(Block::Used) | None => FrameState::Unmovable,
        }
    }

    fn zeroing(&self, block: Frame, size: PageSize) -> Option<usize> {
        (size == PageSize::Huge).then_some((block.0 / PAGES) as usize)
    }

    fn carry_out(&mut self, block: usize) -> (Outcome, u64) {
        let outcome = match self.zero(block) {
            None => Outcome::Gone,
            Some(false) => Outcome::NoSpace,
            Some(true) => Outcome::Done,
        };
        (outcome, 0)
    }
}
