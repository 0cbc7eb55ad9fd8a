//! Grouping by mobility, as Linux does (`mm/page_alloc.c`): every pageblock has a mobility, and requests are served from
//! blocks of theirs. When there are none, a request takes over the free blocks of the pageblock in which another's largest
//! one lies, and the pageblock itself where at least half of it is the request's by then.

use super::{Buddy, ISOLATED};

/// Whether what lies in a frame can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mobility {
    /// Pages of programs, and of files.
    Movable,
    /// The kernel's own: page tables, slabs.
    Unmovable,
    /// The kernel's caches, which can be dropped but not moved.
    Reclaimable,
}

impl Mobility {
    /// All of them, by number.
    pub const ALL: [Mobility; 3] = [Mobility::Movable, Mobility::Unmovable, Mobility::Reclaimable];

    /// The mobilities whose blocks a request takes when there are none of its own, first choice first.
    const fn fallbacks(self) -> [Mobility; 2] {
        match self {
            Mobility::Movable => [Mobility::Reclaimable, Mobility::Unmovable],
            Mobility::Unmovable => [Mobility::Reclaimable, Mobility::Movable],
            Mobility::Reclaimable => [Mobility::Unmovable, Mobility::Movable],
        }
    }
}

impl Buddy {
    /// Whether every pageblock that these frames lie in is kept for what can move.
    pub fn is_for_movable(&self, first: u64, frames: u64) -> bool {
        let last = (first + frames - 1) >> self.pageblock_order;
        let pageblocks = (first >> self.pageblock_order) as usize..=last as usize;
        self.pageblocks[pageblocks].iter().all(|mobility| *mobility == Mobility::Movable)
    }

    /// The lists that a block's frames belong to.
    pub(super) fn kind_of(&self, frame: u64) -> usize {
        let inside = |&(first, order): &(u64, u32)| frame >= first && frame < first + (1 << order);
        if !self.isolated.is_empty() && self.isolated.iter().any(inside) {
            return ISOLATED;
        }
        self.pageblocks[(frame >> self.pageblock_order) as usize] as usize
    }

    pub(super) fn set_pageblocks(&mut self, frame: u64, order: u32, mobility: Mobility) {
        let first = (frame >> self.pageblock_order) as usize;
        let blocks = 1usize << order.saturating_sub(self.pageblock_order);
        let end = (first + blocks).min(self.pageblocks.len());
        self.pageblocks[first..end].fill(mobility);
    }

    /// The order and the list to take a block from when there is none of the right mobility. The blocks of a pageblock that
    /// become the request's move to its lists here.
    pub(super) fn fall_back(&mut self, order: u32, wanted: Mobility) -> Option<(u32, usize)> {
        let largest = (order..=self.max_order).rev().find_map(|have| {
            let others = wanted.fallbacks().into_iter();
            let mut filled = others.filter(|other| self.filled[*other as usize] >> have & 1 != 0);
            filled.next().map(|other| (have, other))
        });
        let (have, other) = largest?;
        // Small requests for memory that moves do little harm where they fall, so they take the smallest block.
        let steals = wanted != Mobility::Movable || have >= self.pageblock_order / 2;
        if !steals {
            return self.smallest(order, other as usize).map(|have| (have, other as usize));
        }
        let frame = self.choose(order, have, other as usize)?;
        if have >= self.pageblock_order {
            self.remove(frame, have, other as usize);
            self.set_pageblocks(frame, have, wanted);
            self.insert(frame, have, wanted as usize);
            return Some((have, wanted as usize));
        }
        let first = frame >> self.pageblock_order << self.pageblock_order;
        let frames = (1u64 << self.pageblock_order).min(self.frames - first);
        let (free, unmovable) = self.region(first, frames);
        let alike = match (wanted, other) {
            (Mobility::Movable, _) => frames - free - unmovable,
            (_, Mobility::Movable) => unmovable,
            _ => 0,
        };
        // The free blocks of the pageblock come over, so that later requests are served from there too. The pageblock itself
        // comes over if at least half of it is then of the wanted mobility.
        if 2 * (free + alike) >= frames {
            self.pageblocks[(first >> self.pageblock_order) as usize] = wanted;
        }
        for below in 0..self.pageblock_order.min(self.max_order + 1) {
            let inside =
                self.free[below as usize][other as usize].range(first >> below, (first + frames) >> below);
            for block in inside.collect::<Vec<_>>() {
                self.remove(block << below, below, other as usize);
                self.insert(block << below, below, wanted as usize);
            }
        }
        self.smallest(order, wanted as usize).map(|have| (have, wanted as usize))
    }
}
