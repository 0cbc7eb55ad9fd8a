//! A buddy allocator over the frames of one tier, with blocks up to 2 GiB and Linux's grouping by mobility.
//!
//! Free blocks of each order are one bit each in a bitmap with summary levels above it, so that finding the lowest
//! free block takes a handful of steps at any size; the whole costs about a byte per frame, and only where memory was
//! ever in use. Lists hand out the lowest address first, or the block that was freed last, as Linux does: placement is
//! the same in every run either way.
//!
//! The simulated operating system has one for each tier, and the arena one for the memory that it owns.

mod block_set;
mod free;
mod layout;
mod lists;
mod mobility;

use block_set::BlockSet;
pub use layout::Layout;
use lists::Lists;
pub use mobility::Mobility;

/// Frames of a 2 MiB block, for which free and unmovable frames are counted.
pub const HUGE: u64 = 512;
const HUGE_ORDER: u32 = 9;

/// How many blocks of a list are searched for a zeroed one.
const ZEROED_LOOKED_FOR: usize = 64;

/// Number of the lists of isolated blocks, behind those of each mobility.
const ISOLATED: usize = Mobility::ALL.len();
const KINDS: usize = ISOLATED + 1;

/// How an allocator is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Order of the largest free block: 10 as in Linux (4 MiB), 18 for 1 GiB.
    pub max_order: u32,
    /// The block of a list that was freed last is taken next, as in Linux; else the one with the lowest address.
    pub last_freed_first: bool,
    /// What moves and what does not is kept in separate pageblocks, as in Linux.
    pub grouping: bool,
    /// Order of a pageblock: 9 as in Linux, 18 as in the released code of Trident.
    pub pageblock_order: u32,
}

/// The free frames of one tier, numbered from 0 within it.
#[derive(Clone, Debug)]
pub struct Buddy {
    /// Free blocks by order, then by mobility; those of isolated ranges last.
    free: Vec<[BlockSet; KINDS]>,
    /// Bitmap of the orders that have free blocks, for each kind of list.
    filled: [u32; KINDS],
    lists: Option<Lists>,
    max_order: u32,
    grouping: bool,
    /// Mobility of each pageblock.
    pageblocks: Vec<Mobility>,
    pageblock_order: u32,
    /// Ranges that nothing is handed out of: first frame and order.
    isolated: Vec<(u64, u32)>,
    /// Free frames of each 2 MiB, and frames that hold what cannot move.
    free_in_huge: Vec<u16>,
    unmovable_in_huge: Vec<u16>,
    /// 2 MiB blocks that are free and known to hold only zeros.
    zeroed: BlockSet,
    frames: u64,
    free_frames: u64,
}

impl Buddy {
    /// All of `frames` frames free.
    pub fn new(frames: u64, shape: Shape) -> Buddy {
        let mut buddy = Buddy::full(frames, shape);
        buddy.free_frames = frames;
        let blocks = buddy.free_in_huge.iter_mut().zip(0..);
        blocks.for_each(|(free, block)| *free = (frames - block * HUGE).min(HUGE) as u16);
        // Blocks are added from the top, so that lists that hand out what came last begin at the bottom too.
        let mut end = frames;
        while end > 0 {
            let order = end.trailing_zeros().min(buddy.max_order);
            end -= 1 << order;
            buddy.insert(end, order, Mobility::Movable as usize);
        }
        buddy
    }

    /// None of them free.
    fn full(frames: u64, shape: Shape) -> Buddy {
        let Shape { max_order, last_freed_first, grouping, pageblock_order } = shape;
        let huge = frames.div_ceil(HUGE);
        Buddy {
            free: (0..=max_order)
                .map(|order| std::array::from_fn(|_| BlockSet::new(frames.div_ceil(1 << order))))
                .collect(),
            filled: [0; KINDS],
            lists: last_freed_first.then(|| Lists::new(frames, (max_order as usize + 1) * KINDS)),
            max_order,
            grouping,
            pageblocks: vec![Mobility::Movable; frames.div_ceil(1 << pageblock_order) as usize],
            pageblock_order,
            isolated: Vec::new(),
            free_in_huge: vec![0; huge as usize],
            unmovable_in_huge: vec![0; huge as usize],
            zeroed: BlockSet::new(huge),
            frames,
            free_frames: 0,
        }
    }

    /// What it was made with.
    pub fn shape(&self) -> Shape {
        Shape {
            max_order: self.max_order,
            last_freed_first: self.lists.is_some(),
            grouping: self.grouping,
            pageblock_order: self.pageblock_order,
        }
    }

    /// Notes that a frame holds what cannot move.
    pub fn count_unmovable(&mut self, frame: u64) {
        self.unmovable_in_huge[(frame / HUGE) as usize] += 1;
    }

    /// The largest order of a free block.
    pub fn max_order(&self) -> u32 {
        self.max_order
    }

    /// Frames in all.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Frames that are free.
    pub fn free_frames(&self) -> u64 {
        self.free_frames
    }

    /// Takes a free block; the answer is its first frame and whether it is known to hold only zeros.
    ///
    /// It comes from the smallest sufficient order of the blocks of its mobility. Of several free blocks one that is
    /// zeroed is taken first.
    pub fn allocate(&mut self, order: u32, mobility: Mobility) -> Option<(u64, bool)> {
        let wanted = if self.grouping { mobility } else { Mobility::Movable };
        let (have, kind) = match self.smallest(order, wanted as usize) {
            Some(have) => (have, wanted as usize),
            None => self.fall_back(order, wanted)?,
        };
        let frame = self.choose(order, have, kind)?;
        self.remove(frame, have, kind);
        self.split(frame, have, frame, order, kind);
        Some((frame, self.taken(frame, order, mobility)))
    }

    /// Takes exactly this block, if all of it is free. Isolated frames can be had this way only.
    pub fn take_at(&mut self, frame: u64, order: u32, mobility: Mobility) -> bool {
        let Some((first, have, kind)) = self.free_block_of(frame, order) else { return false };
        self.remove(first, have, kind);
        self.split(first, have, frame, order, kind);
        self.taken(frame, order, mobility);
        true
    }

    /// Gives a block back; it merges with its free buddies. What it held could be moved, or not.
    pub fn release(&mut self, frame: u64, order: u32, mobility: Mobility) {
        debug_assert!(frame.is_multiple_of(1 << order) && frame + (1 << order) <= self.frames);
        self.free_frames += 1 << order;
        self.count(frame, order, |free, _, frames| *free += frames);
        if mobility != Mobility::Movable {
            self.count(frame, order, |_, unmovable, frames| *unmovable -= frames);
        }
        self.insert_around_isolated(frame, order);
    }

    /// Keeps the block from being handed out, or ends that.
    pub fn isolate(&mut self, frame: u64, order: u32, isolated: bool) {
        let at = self.isolated.iter().position(|block| *block == (frame, order));
        if isolated == at.is_some() {
            return;
        }
        // A free block that is larger is cut at the borders first.
        if let Some((first, have, kind)) = self.free_block_of(frame, order) {
            self.remove(first, have, kind);
            self.split(first, have, frame, order, kind);
            self.insert(frame, order, kind);
        }
        let mut inside = Vec::new();
        for below in 0..=order.min(self.max_order) {
            for kind in 0..KINDS {
                let blocks =
                    self.free[below as usize][kind].range(frame >> below, (frame + (1 << order)) >> below);
                inside.extend(blocks.map(|block| (block << below, below, kind)));
            }
        }
        for (block, below, kind) in &inside {
            self.remove(*block, *below, *kind);
        }
        match at {
            Some(at) => {
                self.isolated.swap_remove(at);
            }
            None => self.isolated.push((frame, order)),
        }
        for (block, below, _) in inside {
            self.insert_merging(block, below);
        }
    }

    /// Whether every frame of the block is free.
    pub fn is_free(&self, frame: u64, order: u32) -> bool {
        self.free_block_of(frame, order).is_some()
    }

    /// Notes that a block, of 2 MiB or more, holds only zeros. Returns whether it is free, as it has to be.
    pub fn mark_zeroed(&mut self, frame: u64, order: u32) -> bool {
        if order < HUGE_ORDER || !self.is_free(frame, order) {
            return false;
        }
        for block in frame / HUGE..(frame + (1 << order)) / HUGE {
            if !self.zeroed.contains(block) {
                self.zeroed.insert(block);
            }
        }
        true
    }

    /// Whether the block, of 2 MiB or more, is known to hold only zeros.
    pub fn is_zeroed(&self, frame: u64, order: u32) -> bool {
        order >= HUGE_ORDER && self.zeroed.count() > 0 && {
            let (from, until) = (frame / HUGE, (frame + (1 << order)) / HUGE);
            self.zeroed.range(from, until).count() as u64 == until - from
        }
    }

    /// Free blocks of `order` that could be handed out, parts of larger ones included, and how many of them are zeroed.
    pub fn free_blocks(&self, order: u32) -> (u64, u64) {
        let mut blocks = 0;
        let mut zeroed = 0;
        for have in order..=self.max_order {
            for kind in 0..ISOLATED {
                let set = &self.free[have as usize][kind];
                blocks += set.count() << (have - order);
                if self.zeroed.count() > 0 {
                    let parts = |block: u64| (block << (have - order))..((block + 1) << (have - order));
                    let inside = set.range(0, u64::MAX).flat_map(parts);
                    zeroed += inside.filter(|part| self.is_zeroed(part << order, order)).count() as u64;
                }
            }
        }
        (blocks, zeroed)
    }

    /// Free frames of the `frames` frames from `first` on, and those that hold what cannot move: whole 2 MiB blocks.
    pub fn region(&self, first: u64, frames: u64) -> (u64, u64) {
        let blocks = (first / HUGE) as usize..(first + frames).div_ceil(HUGE) as usize;
        let sum = |counts: &[u16]| counts.iter().map(|count| u64::from(*count)).sum();
        (sum(&self.free_in_huge[blocks.clone()]), sum(&self.unmovable_in_huge[blocks]))
    }

    /// Free-memory fragmentation index at `order`: the share of free memory that lies in blocks too small for a
    /// request of that order (Gorman's "unusable free space index"). 0 is unfragmented; 0 too when nothing is free.
    pub fn fragmentation_index(&self, order: u32) -> f64 {
        if self.free_frames == 0 {
            return 0.0;
        }
        let blocks = |have: u32| self.free[have as usize].iter().map(BlockSet::count).sum::<u64>() << have;
        let usable: u64 = (order..=self.max_order).map(blocks).sum();
        (self.free_frames - usable) as f64 / self.free_frames as f64
    }

    /// The free blocks, by order and then by address: first frame and order.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.blocks_from(0)
    }

    /// The free blocks of order `least` and above, by order and then by address.
    pub fn blocks_from(&self, least: u32) -> impl Iterator<Item = (u64, u32)> + '_ {
        let orders = self.free.iter().zip(0u32..).skip(least as usize);
        let kinds = orders.flat_map(|(kinds, order)| kinds.iter().map(move |set| (set, order)));
        kinds.flat_map(|(set, order)| set.range(0, u64::MAX).map(move |block| (block << order, order)))
    }

    /// Counts a block that was taken; returns whether it was zeroed.
    fn taken(&mut self, frame: u64, order: u32, mobility: Mobility) -> bool {
        self.free_frames -= 1 << order;
        self.count(frame, order, |free, _, frames| *free -= frames);
        if mobility != Mobility::Movable {
            self.count(frame, order, |_, unmovable, frames| *unmovable += frames);
        }
        if self.zeroed.count() == 0 {
            return false;
        }
        let was = self.is_zeroed(frame, order);
        let last = frame + (1 << order) - 1;
        let gone: Vec<u64> = self.zeroed.range(frame / HUGE, last / HUGE + 1).collect();
        for block in gone {
            self.zeroed.remove(block);
        }
        was
    }

    /// Changes the counts of the 2 MiB blocks that a block lies in.
    fn count(&mut self, frame: u64, order: u32, change: impl Fn(&mut u16, &mut u16, u16)) {
        let first = (frame / HUGE) as usize;
        if order < HUGE_ORDER {
            return change(&mut self.free_in_huge[first], &mut self.unmovable_in_huge[first], 1 << order);
        }
        let blocks = first..first + (1 << (order - HUGE_ORDER));
        let counts = self.free_in_huge[blocks.clone()].iter_mut().zip(&mut self.unmovable_in_huge[blocks]);
        counts.for_each(|(free, unmovable)| change(free, unmovable, HUGE as u16));
    }
}
