//! The simulated frames as a [`PhysicalMemory`].

use super::orders::Item;
use super::world::World;
use std::num::NonZeroU32;
use terrace_model::{Bytes, Frame, PageSize, TierId};
use terrace_policy::{
    Cost, FrameRegion, FrameState, MoveOptions, PhysicalMemory, Relocate, Ticket, Watermarks,
};

impl PhysicalMemory for World<'_> {
    fn tier_frames(&self, tier: TierId) -> (Frame, u64) {
        self.machine.shared.system(self.state.system).tier_frames(self.state.guest.in_os(tier))
    }

    fn free_blocks(&self, tier: TierId, size: PageSize) -> (u64, u64) {
        self.machine
            .shared
            .system(self.state.system)
            .buddy(self.state.guest.in_os(tier))
            .free_blocks(size.order())
    }

    fn regions(&self, tier: TierId, size: PageSize, visit: &mut dyn FnMut(FrameRegion)) {
        let os = self.machine.shared.system(self.state.system);
        let tier = self.state.guest.in_os(tier);
        let (base, frames) = os.tier_frames(tier);
        let length = size.base_pages();
        for at in (0..frames).step_by(length as usize) {
            let count = length.min(frames - at);
            let (free, unmovable) = match size {
                PageSize::Base => return,
                _ => os.buddy(tier).region(at, count),
            };
            let zeroed = free == length && os.buddy(tier).is_zeroed(at, size.order());
            let for_movable = os.buddy(tier).is_for_movable(at, count);
            visit(FrameRegion {
                first: Frame(base.0 + at),
                frames: count,
                free,
                unmovable,
                zeroed,
                for_movable,
            });
        }
    }

    fn state(&self, frame: Frame) -> FrameState {
        self.state.frame_state(self.machine.shared.system(self.state.system), frame)
    }

    fn relocate(&mut self, moves: &[Relocate], how: MoveOptions) -> Ticket {
        self.order(moves.iter().map(|one| Item::Relocate(*one)).collect(), how)
    }

    fn zero(&mut self, blocks: &[Frame], size: PageSize) -> Ticket {
        let one = MoveOptions { in_flight: NonZeroU32::new(1), ..MoveOptions::default() };
        self.order(blocks.iter().map(|block| Item::Zero(*block, size)).collect(), one)
    }

    fn reclaim(&mut self, tier: TierId, free: Bytes) -> Bytes {
        let tier = self.state.guest.in_os(tier);
        let evicted = self.machine.shared.system_mut(self.state.system).reclaim(tier, free.0 >> 12);
        let span = self.state.costs.free.times(evicted);
        self.works(span, Cost { time: span, ..Cost::default() });
        self.state.counters.evicted += evicted;
        Bytes(self.machine.shared.system(self.state.system).buddy(tier).free_frames() << 12)
    }

    fn watermarks(&self, tier: TierId) -> Watermarks {
        let os = self.machine.shared.system(self.state.system);
        let (low, high) = os.watermarks(self.state.guest.in_os(tier));
        Watermarks { low: Bytes(low << 12), high: Bytes(high << 12) }
    }

    fn isolate(&mut self, block: Frame, size: PageSize, isolated: bool) {
        let os = self.machine.shared.system_mut(self.state.system);
        if self.state.guest.contains(os, block) {
            os.isolate(block, size, isolated);
        }
    }
}
