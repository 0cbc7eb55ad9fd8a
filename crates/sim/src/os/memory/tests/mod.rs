//! Memory by hand: which frame a request gets, what stays free, and what the figures say.

mod aged;
mod reference;

use super::*;
use terrace_buddy::HUGE;
use terrace_policy::PageId;

fn parameters(lifo: bool, grouping: bool) -> MemoryParameters {
    let free_lists = if lifo { FreeLists::LastFreedFirst } else { FreeLists::LowestFirst };
    MemoryParameters { free_lists, grouping, ..MemoryParameters::default() }
}

#[test]
fn what_is_isolated_within_a_page_is_not_handed_out_when_that_is_freed() {
    let (huge, giant) = (PageSize::Huge, PageSize::Giant);
    let parameters = MemoryParameters { max_order: 18, ..parameters(false, false) };
    let mut memory = TierMemory::new("dram", Frame(0), giant.base_pages(), &parameters);
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

#[test]
fn an_audit_counts_what_cannot_move_region_by_region() {
    let mut memory = TierMemory::new("dram", Frame(0), 4 * HUGE, &parameters(false, false));
    let kernel = |memory: &mut TierMemory, frame: Frame| {
        assert!(memory.take_at(frame, PageSize::Base, Owner::Kernel, Time::ZERO));
    };
    kernel(&mut memory, Frame(3 * HUGE));
    assert!(memory.take_at(Frame(7), PageSize::Base, Owner::Taken, Time::ZERO));
    memory.audit().unwrap();
    // As many cannot move as the counters of all regions say, but in another region.
    memory.give_back(Frame(3 * HUGE), Time::ZERO);
    kernel(&mut memory, Frame(HUGE));
    memory.owners.swap(HUGE as usize, 7);
    let error = memory.audit().unwrap_err();
    assert!(error.contains("of the region at 0x0 are (511, 1), its counters (511, 0)"), "{error}");
}

#[test]
fn the_fragmentation_index_by_hand() {
    let mut memory = TierMemory::new("dram", Frame(0), 1024, &MemoryParameters::default());
    assert_eq!(memory.buddy.fragmentation_index(9), 0.0);
    assert_eq!(memory.take(PageSize::Base, Owner::Taken, Time::ZERO).unwrap().frame, Frame(0));
    // 1023 free: 512 in one block of order 9, 511 in smaller ones.
    assert_eq!(memory.buddy.fragmentation_index(9), 511.0 / 1023.0);
}

#[test]
fn what_was_freed_last_is_handed_out_first() {
    let mut memory = TierMemory::new("dram", Frame(0), 4096, &parameters(true, false));
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
        let mut memory = TierMemory::new("dram", Frame(0), 64 * 512, &parameters(true, grouping));
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
fn a_pageblock_with_a_frame_of_the_kernel_is_not_for_what_moves() {
    for grouping in [false, true] {
        let parameters = MemoryParameters { max_order: 9, ..parameters(true, grouping) };
        let mut memory = TierMemory::new("dram", Frame(0), 4 * HUGE, &parameters);
        let frame = memory.take(PageSize::Base, Owner::Kernel, Time::ZERO).unwrap().frame.0;
        let first = frame & !(HUGE - 1);
        assert_eq!(memory.buddy().is_for_movable(first, HUGE), !grouping);
        assert_eq!(memory.buddy().is_for_movable(0, 4 * HUGE), !grouping);
        let others = (0..4 * HUGE).step_by(HUGE as usize).filter(|other| *other != first);
        assert_eq!(others.filter(|other| memory.buddy().is_for_movable(*other, HUGE)).count(), 3);
    }
}

#[test]
fn zeroed_blocks_go_first_and_lose_it_when_used() {
    let mut memory = TierMemory::new("dram", Frame(0), 8 * 512, &MemoryParameters::default());
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
    let mut memory = TierMemory::new("dram", Frame(1 << 20), 4 * HUGE, &MemoryParameters::default());
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
