//! Memory against a slow, obvious reference, in histories drawn at random.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

fn owner(pick: usize) -> Owner {
    [Owner::Taken, Owner::Table, Owner::Kernel, Owner::Taken][pick % 4]
}

/// The obvious reference for memory of gigabytes: a flag per frame, and the page cache as a queue.
struct Reference {
    free: Vec<bool>,
    free_frames: u64,
    /// Frames of the page cache, those first that go first.
    cache: VecDeque<u64>,
    /// First frame and frames of what is isolated, and how many of these are free.
    isolated: Option<(Frame, PageSize)>,
    free_in_isolated: u64,
    low_water: u64,
    high_water: u64,
    max_order: u32,
}

impl Reference {
    fn of(memory: &TierMemory, max_order: u32) -> Reference {
        let (low_water, high_water) = memory.watermarks();
        Reference {
            free: vec![true; memory.frames() as usize],
            free_frames: memory.frames(),
            cache: VecDeque::new(),
            isolated: None,
            free_in_isolated: 0,
            low_water,
            high_water,
            max_order,
        }
    }

    fn is_free(&self, first: u64, frames: u64) -> bool {
        self.free.get(first as usize..(first + frames) as usize).is_some_and(|all| !all.contains(&false))
    }

    fn is_isolated(&self, first: u64, frames: u64) -> bool {
        let meets = |(at, size): (Frame, PageSize)| first < at.0 + size.base_pages() && at.0 < first + frames;
        self.isolated.is_some_and(meets)
    }

    fn set(&mut self, first: u64, frames: u64, free: bool) {
        for frame in first..first + frames {
            assert_ne!(std::mem::replace(&mut self.free[frame as usize], free), free, "frame {frame:#x}");
            let inside = u64::from(self.is_isolated(frame, 1));
            if free {
                self.free_frames += 1;
                self.free_in_isolated += inside;
            } else {
                self.free_frames -= 1;
                self.free_in_isolated -= inside;
            }
        }
    }

    fn isolate(&mut self, block: Option<(Frame, PageSize)>) {
        self.isolated = block;
        self.free_in_isolated = block.map_or(0, |(first, size)| {
            let all = &self.free[first.0 as usize..(first.0 + size.base_pages()) as usize];
            all.iter().filter(|free| **free).count() as u64
        });
    }

    fn evict(&mut self, free: u64) {
        while self.free_frames < free
            && let Some(frame) = self.cache.pop_front()
        {
            self.set(frame, 1, true);
        }
    }

    /// Whether a block of this size can be handed out.
    fn has(&self, size: PageSize) -> bool {
        let frames = size.base_pages();
        let usable = |first: u64| self.is_free(first, frames) && !self.is_isolated(first, frames);
        match size {
            PageSize::Base => self.free_frames > self.free_in_isolated,
            _ if size.order() > self.max_order => false,
            _ => (0..self.free.len() as u64 / frames).any(|block| usable(block * frames)),
        }
    }

    /// Whether this block can be taken: all of it is free, and no part of it alone is isolated.
    fn has_at(&self, first: u64, size: PageSize) -> bool {
        let parted = self.isolated.is_some_and(|(_, part)| part < size);
        size.order() <= self.max_order
            && self.is_free(first, size.base_pages())
            && !(parted && self.is_isolated(first, size.base_pages()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// Blocks up to 1 GiB, orders up to 19, pageblocks of 2 MiB and 1 GiB, and a page cache that gives way.
    #[test]
    fn gigabytes_never_overlap_and_never_go(
        frames in 1u64..(5 << 18), lifo: bool, grouping: bool, giant_blocks: bool, max_order in 17u32..=19,
        steps in prop::collection::vec((0u8..8, 0usize..3, any::<usize>(), 1usize..300), 1..16),
    ) {
        let pageblock = if giant_blocks { PageSize::Giant } else { PageSize::Huge };
        let parameters = MemoryParameters { max_order, pageblock, ..parameters(lifo, grouping) };
        let mut memory = TierMemory::new("dram", Frame(0), frames, &parameters);
        let mut reference = Reference::of(&memory, max_order);
        let mut held: Vec<(Frame, PageSize)> = Vec::new();
        for (what, size, pick, times) in steps {
            let size = PageSize::ALL[size];
            match what {
                0 | 1 => {
                    for at in 0..times.min(held.len()) {
                        let (frame, size) = held.swap_remove((pick ^ at) % held.len());
                        memory.give_back(frame, Time::ZERO);
                        reference.set(frame.0, size.base_pages(), true);
                    }
                }
                2 => {
                    let frame = Frame((pick as u64 % frames) & !(size.base_pages() - 1));
                    let free = reference.has_at(frame.0, size);
                    prop_assert_eq!(memory.take_at(frame, size, owner(pick), Time::ZERO), free);
                    if free {
                        reference.set(frame.0, size.base_pages(), false);
                        held.push((frame, size));
                    }
                }
                3 => {
                    if let Some((block, size)) = reference.isolated {
                        memory.isolate(block, size, false);
                        reference.isolate(None);
                    } else if size != PageSize::Base && frames >= size.base_pages() {
                        let block = Frame(pick as u64 % (frames / size.base_pages()) * size.base_pages());
                        memory.isolate(block, size, true);
                        reference.isolate(Some((block, size)));
                    }
                }
                4 => {
                    for _ in 0..pick as u64 % frames {
                        if reference.free_frames <= reference.low_water {
                            reference.evict(reference.low_water + 1);
                        }
                        let frame = memory.cache_page();
                        prop_assert_eq!(frame.is_some(), reference.has(PageSize::Base));
                        let Some(frame) = frame else { break };
                        prop_assert!(!reference.is_isolated(frame, 1));
                        reference.set(frame, 1, false);
                        reference.cache.push_back(frame);
                    }
                }
                5 => {
                    for at in 0..8.min(reference.cache.len()) {
                        let place = (pick ^ at) % reference.cache.len();
                        if let Some(frame) = reference.cache.remove(place) {
                            memory.touch_cached(frame);
                            reference.cache.push_back(frame);
                        }
                    }
                }
                _ => {
                    for at in 0..times {
                        let frames = size.base_pages();
                        if !reference.cache.is_empty() && reference.free_frames < reference.low_water + frames {
                            reference.evict(reference.high_water + frames);
                        }
                        let taken = memory.take(size, owner(pick ^ at), Time::ZERO);
                        // Where all that is free is isolated, pages of files give way for a base page.
                        while size == PageSize::Base && !reference.has(size) && !reference.cache.is_empty() {
                            reference.evict(reference.free_frames + 1);
                        }
                        // A refusal is only right when no aligned free block exists.
                        prop_assert_eq!(taken.is_some(), reference.has(size));
                        let Some(Block { frame, .. }) = taken else { break };
                        prop_assert!(frame.0.is_multiple_of(frames) && !reference.is_isolated(frame.0, frames));
                        reference.set(frame.0, frames, false);
                        held.push((frame, size));
                    }
                }
            }
            memory.audit().unwrap();
            prop_assert_eq!(memory.buddy.free_frames(), reference.free_frames);
            prop_assert_eq!(memory.cached(), reference.cache.len() as u64);
        }
        for (frame, _) in held {
            memory.give_back(frame, Time::ZERO);
        }
        if let Some((block, size)) = reference.isolated {
            memory.isolate(block, size, false);
        }
        memory.reclaim(u64::MAX);
        let fresh = TierMemory::new("dram", Frame(0), frames, &parameters);
        prop_assert_eq!(sorted(&memory), sorted(&fresh));
        prop_assert_eq!(memory.buddy.region(0, frames), (frames, 0));
    }
}

/// The free blocks by address.
fn sorted(memory: &TierMemory) -> Vec<(u64, u32)> {
    let mut blocks: Vec<(u64, u32)> = memory.buddy.blocks().collect();
    blocks.sort_unstable();
    blocks
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn never_overlaps_never_loses(
        frames in 1u64..3000, lifo: bool, grouping: bool, max_order in 9u32..=19,
        steps in prop::collection::vec((0u8..4, 0usize..2, any::<usize>()), 0..300),
    ) {
        let parameters = MemoryParameters { max_order, ..parameters(lifo, grouping) };
        let mut memory = TierMemory::new("dram", Frame(0), frames, &parameters);
        let mut held: Vec<(Frame, PageSize)> = Vec::new();
        let mut isolated = None;
        for (what, size, pick) in steps {
            let size = PageSize::ALL[size];
            match what {
                0 if !held.is_empty() => {
                    let (frame, _) = held.swap_remove(pick % held.len());
                    memory.give_back(frame, Time::ZERO);
                }
                1 => {
                    let frame = Frame((pick as u64 % frames) & !(size.base_pages() - 1));
                    let fits = frame.0 + size.base_pages() <= frames;
                    let free = fits && (frame.0..frame.0 + size.base_pages()).all(|f| memory.block_of(Frame(f)).is_none());
                    prop_assert_eq!(memory.take_at(frame, size, owner(pick), Time::ZERO), free);
                    if free {
                        held.push((frame, size));
                    }
                }
                2 => {
                    let before = isolated.take();
                    if let Some(block) = before {
                        memory.isolate(block, PageSize::Huge, false);
                    } else if frames >= 512 {
                        let block = Frame(pick as u64 % (frames / 512) * 512);
                        memory.isolate(block, PageSize::Huge, true);
                        isolated = Some(block);
                    }
                }
                _ => {
                    let outside = |at: u64| isolated.is_none_or(|block: Frame| at / 512 != block.0 / 512);
                    let is_free = |at: u64| memory.block_of(Frame(at)).is_none() && outside(at);
                    let blocks = 0..frames >> size.order();
                    let any = blocks.clone().any(|block| {
                        (block << size.order()..(block + 1) << size.order()).all(is_free)
                    });
                    let taken = memory.take(size, owner(pick), Time::ZERO);
                    // A refusal is only right when no aligned free block exists.
                    prop_assert_eq!(taken.is_some(), any);
                    if let Some(block) = taken {
                        prop_assert!(outside(block.frame.0) && block.frame.0 % size.base_pages() == 0);
                        held.push((block.frame, size));
                    }
                }
            }
            memory.audit().unwrap();
            prop_assert_eq!(memory.used(), held.iter().map(|(_, size)| size.base_pages()).sum::<u64>());
        }
        // Pieces are all of memory, in order, and each frame of one is held as it says.
        let mut next = 0;
        memory.each_piece(|first, pages, block| {
            assert_eq!(first, next);
            next += pages;
            for frame in first..next {
                assert_eq!(memory.block_of(Frame(frame)).map(|(_, size, owner)| (size, owner)), block);
            }
        });
        prop_assert_eq!(next, frames);
        for (frame, _) in held {
            memory.give_back(frame, Time::ZERO);
        }
        if let Some(block) = isolated {
            memory.isolate(block, PageSize::Huge, false);
        }
        // Everything merged again: as if new.
        let fresh = TierMemory::new("dram", Frame(0), frames, &parameters);
        prop_assert_eq!(sorted(&memory), sorted(&fresh));
        prop_assert_eq!(memory.buddy.region(0, frames), (frames, 0));
    }
}
