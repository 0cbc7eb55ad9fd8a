//! Compaction by two cursors.

use super::{Met, Next, Progress, Work, has_block, is_free, is_free_block, is_stuck, regions, walk};
use crate::{FrameRegion, MemorySystem, Outcome, Relocate};
use std::collections::BTreeMap;
use terrace_model::{Frame, PageSize, TierId};

#[derive(Clone, Copy, Debug)]
struct Cursors {
    first: u64,
    end: u64,
    /// Goes up: frames below it were emptied or passed over.
    source: u64,
    /// Goes down: frames from it on were filled or passed over.
    target: u64,
    /// The same for blocks of 2 MiB.
    huge_target: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Normal {
    cursors: BTreeMap<TierId, Cursors>,
    /// Blocks of 2 MiB as they were when the compaction began: full ones need no look.
    blocks: Vec<FrameRegion>,
    /// The cursors have met once in this compaction.
    wrapped: bool,
    /// The block being emptied, and what was copied out of it.
    block: Option<u64>,
    copied: u64,
    /// A page of this block does not move.
    stuck: bool,
}

impl Normal {
    pub fn begin(&mut self, tier: TierId, memory: &mut dyn MemorySystem) {
        let Some(physical) = memory.physical() else { return };
        self.blocks = regions(tier, PageSize::Huge, physical);
        let (first, frames) = physical.tier_frames(tier);
        let end = first.0 + frames;
        let fresh = Cursors { first: first.0, end, source: first.0, target: end, huge_target: end };
        self.cursors.entry(tier).or_insert(fresh);
        (self.wrapped, self.block, self.copied, self.stuck) = (false, None, 0, false);
    }

    pub fn answered(&mut self, outcome: Outcome, copied: u64) {
        self.copied += copied;
        self.stuck |= is_stuck(outcome) || outcome.is_worth_a_retry();
    }

    pub fn step(
        &mut self,
        tier: TierId,
        size: PageSize,
        work: &mut Work,
        memory: &mut dyn MemorySystem,
    ) -> Next {
        let Some(mut cursors) = self.cursors.get(&tier).copied() else { return Next::Over(Progress::Failed) };
        let next = loop {
            if has_block(tier, size, memory) {
                break Next::Over(Progress::Free);
            }
            let block = cursors.source & !(size.base_pages() - 1);
            let block_end = block + size.base_pages();
            if std::mem::take(&mut self.stuck) {
                self.give_up(work);
                cursors.source = block_end;
                continue;
            }
            if self.block != Some(block) {
                // What was copied out of the block before was of use: it is empty.
                self.copied = 0;
            }
            if block_end > cursors.target || block_end > cursors.end {
                self.give_up(work);
                cursors = Cursors {
                    source: cursors.first,
                    target: cursors.end,
                    huge_target: cursors.end,
                    ..cursors
                };
                if self.wrapped {
                    break Next::Over(Progress::Failed);
                }
                self.wrapped = true;
                continue;
            }
            let found = walk(cursors.source, block_end, memory);
            let whole = found.pages.iter().any(|(_, page)| *page >= size);
            if whole || (found.pages.is_empty() && found.met != Met::Nothing) {
                // A page of the wanted size is none to take apart; anything unmovable makes the rest pointless.
                self.stuck = true;
                continue;
            }
            if found.pages.is_empty() {
                cursors.source = block_end;
                continue;
            }
            cursors.source = found.at;
            match self.find_targets(&found.pages, block_end, &mut cursors, memory) {
                Some(moves) => {
                    work.sources += u64::from(self.block.replace(block) != Some(block));
                    break Next::Order(moves);
                }
                None => {
                    // No free frames are left above the source.
                    self.give_up(work);
                    cursors.source = cursors.end;
                }
            }
        };
        if let Next::Over(progress) = &next {
            if *progress == Progress::Free {
                self.copied = 0;
            }
            self.blocks = Vec::new();
        }
        self.cursors.insert(tier, cursors);
        next
    }

    /// What was copied out of the block is of no use.
    fn give_up(&mut self, work: &mut Work) {
        work.wasted += std::mem::take(&mut self.copied);
        self.block = None;
    }

    /// Free frames for pages, from the top down, all above the source block.
    fn find_targets(
        &self,
        pages: &[(Frame, PageSize)],
        floor: u64,
        cursors: &mut Cursors,
        memory: &mut dyn MemorySystem,
    ) -> Option<Vec<Relocate>> {
        let mut moves = Vec::with_capacity(pages.len());
        // Large blocks first: base pages fit anywhere.
        let (base, huge): (Vec<_>, Vec<_>) = pages.iter().partition(|(_, size)| *size == PageSize::Base);
        let mut taken = Vec::new();
        for (from, size) in huge {
            let to = Self::huge_target(size, floor, cursors, memory)?;
            taken.push(to);
            moves.push(Relocate { from, to: Frame(to), exchange: false });
        }
        for (from, _) in base {
            let to = self.base_target(floor, &taken, cursors, memory)?;
            moves.push(Relocate { from, to: Frame(to), exchange: false });
        }
        Some(moves)
    }

    fn base_target(
        &self,
        floor: u64,
        taken: &[u64],
        cursors: &mut Cursors,
        memory: &mut dyn MemorySystem,
    ) -> Option<u64> {
        while cursors.target > floor {
            let at = self.blocks.partition_point(|block| block.first.0 < cursors.target);
            if let Some(block) = at.checked_sub(1).map(|at| &self.blocks[at])
                && block.free == 0
            {
                cursors.target = block.first.0.max(floor);
                continue;
            }
            cursors.target -= 1;
            let huge = cursors.target & !(PageSize::Huge.base_pages() - 1);
            if !taken.contains(&huge) && is_free(cursors.target, memory) {
                return Some(cursors.target);
            }
        }
        None
    }

    fn huge_target(
        size: PageSize,
        floor: u64,
        cursors: &mut Cursors,
        memory: &mut dyn MemorySystem,
    ) -> Option<u64> {
        let frames = size.base_pages();
        // Frames from the other cursor on are filled.
        let mut at = cursors.huge_target.min(cursors.target) & !(frames - 1);
        while at >= floor + frames {
            at -= frames;
            if is_free_block(at, size, memory) {
                cursors.huge_target = at;
                return Some(at);
            }
        }
        None
    }
}
