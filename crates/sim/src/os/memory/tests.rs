//! Memory against a slow, obvious reference; aged memory, and snapshots of it.

use super::buddy::HUGE;
use super::*;
use crate::design::{Aging, FreeLists};
use proptest::prelude::*;
use std::collections::VecDeque;
use terrace_policy::PageId;

fn parameters(lifo: bool, grouping: bool) -> MemoryParameters {
    let free_lists = if lifo { FreeLists::LastFreedFirst } else { FreeLists::LowestFirst };
    MemoryParameters { free_lists, grouping, ..MemoryParameters::default() }
}

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

#[test]
fn what_is_isolated_within_a_page_is_not_handed_out_when_that_is_freed() {
    let (huge, giant) = (PageSize::Huge, PageSize::Giant);
    let parameters = MemoryParameters { max_order: 18, ..parameters(false, false) };
    let mut memory = TierMemory::new("dram", 0, giant.base_pages(), &parameters);
    let page = memory.take(giant, Owner::Taken, Time::ZERO).unwrap().frame;
    let part = Frame(7 * huge.base_pages());
    memory.isolate(part, huge, true);
    memory.give_back(page, Time::ZERO);
    assert!(memory.take(giant, Owner::Taken, Time::ZERO).is_none());
    let taken: Vec<Frame> =
        std::iter::from_fn(|| memory.take(huge, Owner::Taken, Time::ZERO)).map(|block| block.frame).collect();
    assert_eq!((taken.len(), taken.contains(&part)), (511, false));
    taken.into_iter().for_each(|frame| memory.give_back(frame, Time::ZERO));
    memory.isolate(part, huge, false);
    memory.audit().unwrap();
    assert!(memory.take(giant, Owner::Taken, Time::ZERO).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Blocks up to 1 GiB, orders up to 19, pageblocks of 2 MiB and 1 GiB, and a page cache that gives way.
    #[test]
    fn gigabytes_never_overlap_and_never_go(
        frames in 1u64..(5 << 18), lifo: bool, grouping: bool, giant_blocks: bool, max_order in 17u32..=19,
        steps in prop::collection::vec((0u8..8, 0usize..3, any::<usize>(), 1usize..300), 1..16),
    ) {
        let pageblock = if giant_blocks { PageSize::Giant } else { PageSize::Huge };
        let parameters = MemoryParameters { max_order, pageblock, ..parameters(lifo, grouping) };
        let mut memory = TierMemory::new("dram", 0, frames, &parameters);
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
        let fresh = TierMemory::new("dram", 0, frames, &parameters);
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
    #[test]
    fn never_overlaps_never_loses(
        frames in 1u64..3000, lifo: bool, grouping: bool, max_order in 9u32..=19,
        steps in prop::collection::vec((0u8..4, 0usize..2, any::<usize>()), 0..300),
    ) {
        let parameters = MemoryParameters { max_order, ..parameters(lifo, grouping) };
        let mut memory = TierMemory::new("dram", 0, frames, &parameters);
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
                    let outside = |frame: u64| isolated.is_none_or(|block: Frame| frame / 512 != block.0 / 512);
                    let is_free = |frame: u64| memory.block_of(Frame(frame)).is_none() && outside(frame);
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
        for (frame, _) in held {
            memory.give_back(frame, Time::ZERO);
        }
        if let Some(block) = isolated {
            memory.isolate(block, PageSize::Huge, false);
        }
        // Everything merged again: as if new.
        let fresh = TierMemory::new("dram", 0, frames, &parameters);
        prop_assert_eq!(sorted(&memory), sorted(&fresh));
        prop_assert_eq!(memory.buddy.region(0, frames), (frames, 0));
    }

    #[test]
    fn damaged_snapshots_are_refused(at in 0usize..4000, bit in 0u8..8, cut in 0usize..4000) {
        let mut bytes = Vec::new();
        Snapshot::of(&aged(&builds(0.02), 4096)).write(&mut bytes).unwrap();
        let cut = cut % bytes.len();
        prop_assert!(Snapshot::parse(&bytes[..cut]).is_err());
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        // The checksum sees it, or zstd does, or nothing changed in what was meant.
        if let Ok(snapshot) = Snapshot::parse(&bytes[..]) {
            prop_assert_eq!(snapshot, Snapshot::of(&aged(&builds(0.02), 4096)));
        }
    }
}

fn builds(kernel: f64) -> Aging {
    Aging::Builds { rounds: 2, kernel, fmfi: None, seed: 1 }
}

fn aged(aging: &Aging, frames: u64) -> TierMemory {
    let mut memory = TierMemory::new("dram", 1 << 18, frames, &parameters(true, true));
    age(&mut memory, aging).unwrap();
    memory.audit().unwrap();
    memory
}

#[test]
fn an_audit_counts_what_cannot_move_region_by_region() {
    let mut memory = TierMemory::new("dram", 0, 4 * HUGE, &parameters(false, false));
    let kernel = |memory: &mut TierMemory, frame: u64| {
        assert!(memory.take_at(Frame(frame), PageSize::Base, Owner::Kernel, Time::ZERO));
    };
    kernel(&mut memory, 3 * HUGE);
    assert!(memory.take_at(Frame(7), PageSize::Base, Owner::Taken, Time::ZERO));
    memory.audit().unwrap();
    // As many cannot move as the counters of all regions say, but in another region.
    memory.give_back(Frame(3 * HUGE), Time::ZERO);
    kernel(&mut memory, HUGE);
    memory.owners.swap(HUGE as usize, 7);
    let error = memory.audit().unwrap_err();
    assert!(error.contains("of the region at 0x0 are (511, 1), its counters (511, 0)"), "{error}");
}

#[test]
fn the_fragmentation_index_by_hand() {
    let mut memory = TierMemory::new("dram", 0, 1024, &MemoryParameters::default());
    assert_eq!(memory.buddy.fragmentation_index(9), 0.0);
    assert_eq!(memory.take(PageSize::Base, Owner::Taken, Time::ZERO).unwrap().frame, Frame(0));
    // 1023 free: 512 in one block of order 9, 511 in smaller ones.
    assert_eq!(memory.buddy.fragmentation_index(9), 511.0 / 1023.0);
}

#[test]
fn what_was_freed_last_is_handed_out_first() {
    let mut memory = TierMemory::new("dram", 0, 4096, &parameters(true, false));
    let blocks: Vec<Frame> =
        (0..4).map(|_| memory.take(PageSize::Huge, Owner::Taken, Time::ZERO).unwrap().frame).collect();
    assert_eq!(blocks, [Frame(0), Frame(512), Frame(1024), Frame(1536)]);
    for at in [1, 3] {
        memory.give_back(blocks[at], Time::ZERO);
    }
    let next = memory.take(PageSize::Huge, Owner::Taken, Time::ZERO).unwrap().frame;
    assert_eq!(next, Frame(1536));
}

#[test]
fn what_cannot_move_is_kept_together() {
    // Every 16th frame goes to the kernel while programs take the others, then programs free theirs.
    let unmovable_blocks = |grouping: bool| {
        let mut memory = TierMemory::new("dram", 0, 64 * 512, &parameters(true, grouping));
        let mut movable = Vec::new();
        for at in 0..48 * 512 {
            let owner = if at % 16 == 0 { Owner::Kernel } else { Owner::Taken };
            let block = memory.take(PageSize::Base, owner, Time::ZERO).unwrap();
            if owner == Owner::Taken {
                movable.push(block.frame);
            }
        }
        for frame in movable {
            memory.give_back(frame, Time::ZERO);
        }
        memory.audit().unwrap();
        (0..64).filter(|block| memory.buddy.region(block * 512, 512).1 > 0).count()
    };
    // 1536 frames of the kernel's fill three blocks of 512.
    assert_eq!((unmovable_blocks(true), unmovable_blocks(false)), (3, 48));
}

#[test]
fn a_full_page_cache_leaves_holes_and_gives_way() {
    let aging = Aging::PageCache { reads: 2.0, dropped: 0.0, kernel: 0.01, fmfi: Some(0.9), seed: 1 };
    let mut memory = aged(&aging, 64 << 10);
    assert!(memory.cached() > 60 << 10);
    assert!(memory.buddy.fragmentation_index(9) >= 0.9);
    assert_eq!(memory.take(PageSize::Huge, Owner::Taken, Time::ZERO), None);
    // Pages of programs push it out, and all of it can be had.
    let mut taken = 0;
    while memory.take(PageSize::Base, Owner::Taken, Time::ZERO).is_some() {
        taken += 1;
    }
    let kernel = memory.buddy.region(0, 64 << 10).1;
    assert_eq!((memory.cached(), taken), (0, (64 << 10) - kernel));
    memory.audit().unwrap();
}

#[test]
fn an_index_out_of_reach_says_so() {
    let mut memory = TierMemory::new("dram", 0, 4096, &parameters(true, true));
    let aging = Aging::Builds { rounds: 1, kernel: 0.0, fmfi: Some(0.9), seed: 1 };
    let problem = age(&mut memory, &aging).unwrap_err();
    assert!(problem.contains("os.memory.aging.fmfi: 0.900 is not reached"), "{problem}");
}

#[test]
fn the_index_is_that_of_the_memory_that_is_left() {
    let cache = |dropped| Aging::PageCache { reads: 1.0, dropped, kernel: 0.01, fmfi: Some(0.9), seed: 1 };
    let index = |dropped| aged(&cache(dropped), 64 << 10).buddy.fragmentation_index(9);
    assert!(index(0.3) >= 0.9, "{}", index(0.3));
    // Without a page of files nearly all of memory is in large blocks again.
    let mut memory = TierMemory::new("dram", 0, 64 << 10, &parameters(true, true));
    let problem = age(&mut memory, &cache(1.0)).unwrap_err();
    assert!(problem.contains("os.memory.aging.fmfi: 0.900 is not reached"), "{problem}");
}

#[test]
fn builds_leave_free_memory_that_is_in_no_order() {
    // As Linux: blocks of 4 MiB at most.
    let linux = MemoryParameters { max_order: 10, ..parameters(true, true) };
    let neighbours = |memory: &mut TierMemory| {
        let mut last = 0;
        let mut next_to_each_other = 0;
        while let Some(block) = memory.take(PageSize::Huge, Owner::Taken, Time::ZERO) {
            let block = block.frame.0 / 1024;
            next_to_each_other += u32::from(last == block + 1 || block == last + 1);
            last = block;
        }
        next_to_each_other
    };
    let mut fresh = TierMemory::new("dram", 1 << 18, 256 << 10, &linux);
    let mut old = fresh.clone();
    age(&mut old, &builds(0.01)).unwrap();
    old.audit().unwrap();
    assert_eq!(old.cached(), 0);
    assert!((2620..2630).contains(&old.used()), "1 % of 262144: {}", old.used());
    let (before, after) = (neighbours(&mut fresh), neighbours(&mut old));
    assert_eq!(before, 255);
    assert!(after < 64, "{after} of 255 blocks of 4 MiB follow a neighbour");
}

#[test]
fn the_page_cache_gives_way_between_the_watermarks() {
    let free_while_taking = |min_free: f64| {
        let mut memory =
            TierMemory::new("dram", 0, 8192, &MemoryParameters { min_free, ..parameters(true, true) });
        age(&mut memory, &Aging::PageCache { reads: 1.0, dropped: 0.0, kernel: 0.0, fmfi: None, seed: 1 })
            .unwrap();
        let free = |_| {
            memory.take(PageSize::Base, Owner::Taken, Time::ZERO).unwrap();
            memory.buddy().free_frames()
        };
        let free: Vec<u64> = (0..1000).map(free).collect();
        (memory.watermarks(), *free.iter().min().unwrap(), *free.iter().max().unwrap())
    };
    // A step is a thousandth, or a quarter of what stays free.
    assert_eq!(free_while_taking(0.001), ((16, 24), 16, 24));
    assert_eq!(free_while_taking(0.05), ((512, 614), 512, 614));
}

#[test]
fn a_pageblock_with_a_frame_of_the_kernel_is_not_for_what_moves() {
    for grouping in [false, true] {
        let parameters = MemoryParameters { max_order: 9, ..parameters(true, grouping) };
        let mut memory = TierMemory::new("dram", 0, 4 * HUGE, &parameters);
        let frame = memory.take(PageSize::Base, Owner::Kernel, Time::ZERO).unwrap().frame.0;
        let first = frame & !(HUGE - 1);
        assert_eq!(memory.buddy().is_for_movable(first, HUGE), !grouping);
        assert_eq!(memory.buddy().is_for_movable(0, 4 * HUGE), !grouping);
        let others = (0..4 * HUGE).step_by(HUGE as usize).filter(|other| *other != first);
        assert_eq!(others.filter(|other| memory.buddy().is_for_movable(*other, HUGE)).count(), 3);
    }
}

#[test]
fn a_snapshot_comes_back_as_it_was() {
    for aging in
        [builds(0.02), Aging::PageCache { reads: 1.0, dropped: 0.3, kernel: 0.01, fmfi: None, seed: 3 }]
    {
        let mut old = aged(&aging, 8192);
        let mut bytes = Vec::new();
        Snapshot::of(&old).write(&mut bytes).unwrap();
        let snapshot = Snapshot::parse(&bytes[..]).unwrap();
        assert_eq!(snapshot, Snapshot::of(&old));
        let mut memory = TierMemory::new("dram", 1 << 18, 8192, &parameters(true, true));
        snapshot.restore(&mut memory).unwrap();
        memory.audit().unwrap();
        assert_eq!((memory.used(), memory.cached()), (old.used(), old.cached()));
        // And goes on as the other one would.
        loop {
            let taken = old.take(PageSize::Base, Owner::Taken, Time::ZERO);
            assert_eq!(memory.take(PageSize::Base, Owner::Taken, Time::ZERO), taken);
            if taken.is_none() {
                break;
            }
        }
        let mut other = TierMemory::new("dram", 0, 4096, &parameters(true, true));
        assert!(snapshot.restore(&mut other).unwrap_err().contains("the saved memory has 32 MiB"));
        let mut other = TierMemory::new("dram", 0, 8192, &parameters(true, false));
        assert!(snapshot.restore(&mut other).unwrap_err().contains("grouping true"));
    }
}

#[test]
fn zeroed_blocks_go_first_and_lose_it_when_used() {
    let mut memory = TierMemory::new("dram", 0, 8 * 512, &MemoryParameters::default());
    let all: Vec<Frame> =
        (0..8).map(|_| memory.take(PageSize::Huge, Owner::Taken, Time::ZERO).unwrap().frame).collect();
    for at in [0, 2, 5] {
        memory.give_back(all[at], Time::ZERO);
    }
    assert!(!memory.mark_zeroed(all[1], PageSize::Huge), "it is in use");
    assert!(memory.mark_zeroed(all[2], PageSize::Huge));
    assert_eq!(memory.buddy.free_blocks(9), (3, 1));
    let taken = memory.take(PageSize::Huge, Owner::Taken, Time::ZERO).unwrap();
    assert_eq!(taken, Block { frame: all[2], zeroed: true });
    memory.give_back(all[2], Time::ZERO);
    assert_eq!(memory.buddy.free_blocks(9), (3, 0));
    assert_eq!(
        memory.take(PageSize::Huge, Owner::Taken, Time::ZERO).unwrap(),
        Block { frame: all[0], zeroed: false }
    );
}

#[test]
fn figures_and_runs_by_hand() {
    // Four regions of 2 MiB: one of a program's page, one with a page of the kernel's, two free.
    let mut memory = TierMemory::new("dram", 1 << 20, 4 * HUGE, &MemoryParameters::default());
    let page = Owner::Page(PageId::new(7, 0x4000));
    memory.take(PageSize::Huge, page, Time::ZERO).unwrap();
    memory.take(PageSize::Base, Owner::Kernel, Time::ZERO).unwrap();
    memory.mark_zeroed(Frame((1 << 20) + 2 * HUGE), PageSize::Huge);
    let figures = memory.figures();
    assert_eq!((figures.frames, figures.free), (2048, 1535));
    assert_eq!((figures.kernel, figures.cached, figures.tables, figures.programs), (1, 0, 0, 512));
    assert_eq!(figures.huge, RegionFigures { total: 4, movable: 3, free: 2 });
    assert_eq!(figures.giant, RegionFigures::default());
    assert_eq!((figures.orders[0].blocks, figures.orders[8].blocks, figures.orders[10].blocks), (1, 1, 1));
    assert_eq!(figures.orders[9].fragmentation, 511.0 / 1535.0);
    assert_eq!(figures.orders[18].fragmentation, 1.0);
    let run = |first, frames, holder, size| FrameRun { first, frames, holder, size };
    let runs = memory.runs(|page| page.space.0);
    assert_eq!(
        runs,
        [
            run(0, 512, Holder::Part(7), PageSize::Huge),
            run(512, 1, Holder::Kernel, PageSize::Base),
            run(513, 511, Holder::Free, PageSize::Base),
            run(1024, 512, Holder::Zeroed, PageSize::Base),
            run(1536, 512, Holder::Free, PageSize::Base),
        ]
    );
}
