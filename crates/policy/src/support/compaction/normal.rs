//! Compaction by two cursors, as Linux compacts for khugepaged.
//!
//! Up to two passes. The first is Linux's asynchronous compaction: it empties pageblocks that are kept for what can move
//! alone, and copies no started cluster of pages out of a block in which it meets something that does not move. Only when
//! its cursors have met does the second begin, the light synchronous one, over all pageblocks, after as much was
//! reclaimed as it may need. Free frames are taken in pageblocks for what can move in either pass. Blocks that the first
//! pass could not empty are marked, and left alone by both until nothing else has helped.
//!
//! Linux 4.19, mm/compaction.c: suitable_migration_source, suitable_migration_target, isolate_migratepages_block,
//! update_pageblock_skip, reset_cached_positions; mm/page_alloc.c, __alloc_pages_slowpath, for the order of the passes.

use super::{Met, Next, Progress, Work, gap, has_block, is_free, is_free_block, is_stuck, regions, walk};
use crate::{FrameRegion, MemorySystem, Outcome, PhysicalMemory, Relocate};
use std::collections::{BTreeMap, BTreeSet};
use terrace_model::{Bytes, Frame, PageSize, TierId};

#[derive(Clone, Copy, Debug)]
struct Cursors {
    first: u64,
    end: u64,
    /// Goes up: frames below it were emptied or passed over.
    source: u64,
    /// Goes down: frames from it on were filled or passed over.
    target: u64,
    /// The target cursor for blocks of 2 MiB.
    huge_target: u64,
}

/// Pages that are isolated and moved together (Linux: `COMPACT_CLUSTER_MAX`).
const CLUSTER: usize = 32;

/// Which blocks are emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pass {
    /// Blocks in pageblocks for movable pages: the asynchronous pass.
    #[default]
    Movable,
    /// All blocks: the light synchronous pass.
    All,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Normal {
    cursors: BTreeMap<TierId, Cursors>,
    /// Blocks of 2 MiB as they were when the pass began: full ones need no look.
    blocks: Vec<FrameRegion>,
    pass: Pass,
    /// Blocks of a size in which something was met that does not move, by first frame: Linux's skip hints.
    unsuitable: BTreeSet<(PageSize, u64)>,
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
        (self.pass, self.block, self.copied, self.stuck) = (Pass::Movable, None, 0, false);
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
                if self.pass == Pass::All {
                    self.unsuitable.retain(|(of, _)| *of != size);
                    break Next::Over(Progress::Failed);
                }
                self.pass = Pass::All;
                if let Some(physical) = memory.physical() {
                    reclaim_between_passes(tier, size, physical);
                    self.blocks = regions(tier, PageSize::Huge, physical);
                }
                continue;
            }
            let other_mobility = self.pass == Pass::Movable && !self.is_for_movable(block, block_end);
            if other_mobility || self.unsuitable.contains(&(size, block)) {
                cursors.source = block_end;
                continue;
            }
            let mut found = walk(cursors.source, block_end, memory);
            if self.pass == Pass::Movable && found.met != Met::Nothing {
                let clusters = found.pages.len() / CLUSTER;
                found.pages.truncate(clusters * CLUSTER);
            }
            let whole = found.pages.iter().any(|(_, page)| *page >= size);
            if whole || (found.pages.is_empty() && found.met != Met::Nothing) {
                // A page of the wanted size is none to take apart; anything unmovable makes the rest pointless.
                self.stuck = true;
                if !whole {
                    self.unsuitable.insert((size, block));
                }
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

    /// Whether every pageblock in these frames is kept for what can move.
    fn is_for_movable(&self, first: u64, end: u64) -> bool {
        let from = self.blocks.partition_point(|block| block.first.0 + block.frames <= first);
        self.blocks[from..].iter().take_while(|block| block.first.0 < end).all(|block| block.for_movable)
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
            let to = self.huge_target(size, floor, cursors, memory)?;
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
                && (block.free == 0 || !block.for_movable)
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
        &self,
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
            if self.is_for_movable(at, at + frames) && is_free_block(at, size, memory) {
                cursors.huge_target = at;
                return Some(at);
            }
        }
        None
    }
}

/// What Linux's direct reclaim does between the two: frees as much as compaction needs to copy to, unless that is free
/// above the high watermark already (mm/vmscan.c, compaction_ready and should_continue_reclaim).
fn reclaim_between_passes(tier: TierId, size: PageSize, physical: &mut dyn PhysicalMemory) {
    let free = physical.reclaim(tier, Bytes(0));
    if free.0 < physical.watermarks(tier).high.0 + gap(size).0 {
        physical.reclaim(tier, Bytes(free.0 + gap(size).0));
    }
}
