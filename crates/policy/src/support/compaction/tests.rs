//! Compaction on small worlds, by hand and at random.

use super::*;
use crate::spans::seconds;
use crate::{InMemory, PageId, Placement, Watermarks};
use proptest::prelude::*;
use terrace_model::Bytes;

const TIER: TierId = TierId(0);
const HUGE: u64 = 512;
const GIANT: u64 = 512 * 512;

/// Runs a compaction to its end.
fn run(compactor: &mut Compactor, size: PageSize, world: &mut InMemory) -> Progress {
    let mut progress = compactor.start(TIER, size, world.now(), world);
    while progress == Progress::Working {
        world.advance_to(world.now().plus(Time::from_nanos(20_000)));
        for signal in world.take_signals() {
            if let Some(now) = compactor.handle(&signal, world.now(), world) {
                progress = now;
            }
        }
    }
    world.check().unwrap();
    assert_eq!(world.isolated_blocks(), 0);
    progress
}

/// A tier of so many 2 MiB blocks, and so many frames of the page cache at the start of each.
fn filled(blocks: &[u64]) -> InMemory {
    let mut world = InMemory::new(&[("dram", Bytes::mib(2 * blocks.len() as u64))]);
    for (at, used) in blocks.iter().enumerate() {
        for frame in 0..*used {
            world.take_frame(Frame(at as u64 * HUGE + frame), true);
        }
    }
    world
}

/// Smart compaction by the paper's counter.
fn smart(retries: u32, timeout: Time) -> Compactor {
    Compactor::new(Compaction::Smart, SmartLimits { retries, timeout, unmovable: Unmovable::Counter })
}

fn free_blocks(world: &InMemory) -> Vec<u64> {
    let mut free = Vec::new();
    world.regions(TIER, PageSize::Huge, &mut |region| free.push(region.free));
    free
}

#[test]
fn smart_empties_the_freest_region_into_the_fullest() {
    let mut world = filled(&[300, 10, 200, 100]);
    let mut smart = Compactor::as_released(Compaction::Smart);
    assert_eq!(run(&mut smart, PageSize::Huge, &mut world), Progress::Free);
    // Bytes copied are the region less its free frames.
    assert_eq!(smart.work(), Work { runs: 1, succeeded: 1, sources: 1, copied: 10 * 4096, wasted: 0 });
    assert_eq!(free_blocks(&world), [212 - 10, 512, 312, 412]);
    assert_eq!(run(&mut smart, PageSize::Huge, &mut world), Progress::Free, "one is free already");
    assert_eq!(smart.work().copied, 10 * 4096);
}

#[test]
fn smart_passes_over_regions_with_unmovable_frames() {
    let mut world = filled(&[300, 10, 200, 100]);
    world.take_frame(Frame(HUGE + 400), false);
    let mut smart = Compactor::as_released(Compaction::Smart);
    assert_eq!(run(&mut smart, PageSize::Huge, &mut world), Progress::Free);
    assert_eq!(free_blocks(&world), [112, 501, 312, 512]);
}

#[test]
fn by_mobility_smart_tries_what_the_counter_says_is_in_vain_and_leaves_what_is_not() {
    let run = |unmovable: Unmovable| {
        // Two with a frame of the kernel's behind what moves, one of them in a pageblock for such frames, which another one
        // is too, though it has none.
        let mut world = filled(&[300, 10, 100, 20]);
        world.take_frame(Frame(HUGE + 400), false);
        world.keep_for_unmovable(Frame(3 * HUGE));
        let limits = SmartLimits { retries: 5, timeout: seconds(120), unmovable };
        let mut smart = Compactor::new(Compaction::Smart, limits);
        assert_eq!(run(&mut smart, PageSize::Huge, &mut world), Progress::Free);
        let work = smart.work();
        (free_blocks(&world), work.sources, work.copied / 4096, work.wasted / 4096)
    };
    assert_eq!(run(Unmovable::Counter), (vec![192, 501, 412, 512], 1, 20, 0));
    // The ten pages of the second block were copied before its frame was met; the fourth was none to try.
    let (free, sources, copied, wasted) = run(Unmovable::Mobility);
    assert_eq!((sources, copied, wasted), (2, 110, 10));
    assert_eq!(free, [212 - 110, 511, 512, 492]);
}

#[test]
fn normal_wastes_what_it_copied_before_an_unmovable_frame() {
    let mut world = filled(&[300, 10, 200, 100]);
    world.take_frame(Frame(450), false);
    let mut normal = Compactor::as_released(Compaction::Normal);
    assert_eq!(run(&mut normal, PageSize::Huge, &mut world), Progress::Free);
    let work = normal.work();
    // Nine clusters of 32 go before the frame is met; the twelve pages of the tenth are put back.
    assert_eq!((work.sources, work.copied, work.wasted), (2, 298 * 4096, 288 * 4096));
    assert_eq!(free_blocks(&world)[1], 512, "the second block, whatever lies in the others");
}

/// The kernel's frame in the first block, behind 200 that move; the second can be emptied into the others, but for 200
/// frames there are none to copy to.
fn kernel_below() -> InMemory {
    let mut world = filled(&[200, 150, 412, 412]);
    world.take_frame(Frame(511), false);
    world
}

#[test]
fn pageblocks_for_what_can_move_are_emptied_first() {
    let mut world = kernel_below();
    let mut normal = Compactor::as_released(Compaction::Normal);
    // Without mobility the free frames go to the block that cannot be emptied, and lie below all others then.
    assert_eq!(run(&mut normal, PageSize::Huge, &mut world), Progress::Failed);
    assert_eq!(normal.work().wasted, 192 * 4096);
    assert_eq!(free_blocks(&world), [311 + 192, 362, 8, 0]);

    let mut world = kernel_below();
    world.keep_for_unmovable(Frame(0));
    let mut normal = Compactor::as_released(Compaction::Normal);
    assert_eq!(run(&mut normal, PageSize::Huge, &mut world), Progress::Free);
    assert_eq!(normal.work(), Work { runs: 1, succeeded: 1, sources: 1, copied: 150 * 4096, wasted: 0 });
    assert_eq!(free_blocks(&world), [311, 512, 50, 0]);
}

#[test]
fn free_frames_in_pageblocks_for_what_cannot_move_are_left_alone() {
    let mut world = filled(&[100, 300, 1]);
    world.keep_for_unmovable(Frame(2 * HUGE));
    let mut normal = Compactor::as_released(Compaction::Normal);
    assert_eq!(run(&mut normal, PageSize::Huge, &mut world), Progress::Free);
    assert_eq!(free_blocks(&world), [512, 112, 511]);
}

#[test]
fn the_second_pass_empties_pageblocks_of_any_mobility() {
    let mut world = filled(&[100, 512, 412]);
    world.keep_for_unmovable(Frame(0));
    let mut normal = Compactor::as_released(Compaction::Normal);
    assert_eq!(run(&mut normal, PageSize::Huge, &mut world), Progress::Free);
    assert_eq!(free_blocks(&world), [512, 0, 0]);
    assert_eq!(normal.work().wasted, 0);
}

#[test]
fn a_block_that_could_not_be_emptied_is_left_alone_until_a_compaction_fails() {
    let mut world = filled(&[40, 500, 500]);
    world.take_frame(Frame(60), false);
    let copied = |normal: &mut Compactor, world: &mut InMemory| {
        let before = normal.work().copied;
        assert_eq!(run(normal, PageSize::Huge, world), Progress::Failed);
        (normal.work().copied - before) / 4096
    };
    let mut normal = Compactor::as_released(Compaction::Normal);
    // There is room for 24 pages: not for a cluster of the first block, nor for the second block.
    assert_eq!(copied(&mut normal, &mut world), 0);
    // The second pass moved none of the eight pages that would fit, as the first had marked the block; it begins anew.
    world.give_frames(&(512..544).collect::<Vec<_>>());
    assert_eq!(copied(&mut normal, &mut world), 32, "a cluster, once more than that is free");
    assert_eq!(copied(&mut normal, &mut world), 0, "the eight pages left are no cluster");
    assert_eq!(free_blocks(&world)[0], 512 - 9);
}

#[test]
fn both_cursors_begin_anew_once_they_have_met() {
    let mut world = filled(&[10, 20, 490, 512]);
    let mut normal = Compactor::as_released(Compaction::Normal);
    assert_eq!(run(&mut normal, PageSize::Huge, &mut world), Progress::Free);
    assert_eq!(free_blocks(&world), [512, 492, 12, 0]);
    // What is above the source has no room for the second block; the first, passed already, can be emptied again.
    for frame in 0..412 {
        world.take_frame(Frame(frame), true);
    }
    assert_eq!(run(&mut normal, PageSize::Huge, &mut world), Progress::Free);
    assert_eq!(free_blocks(&world), [512, 92, 0, 0]);
}

#[test]
fn as_much_is_reclaimed_before_the_second_pass_as_it_may_copy() {
    let full = |high: Bytes| {
        // Free memory enough to begin with, but in blocks that cannot be emptied, all below the one that could.
        let mut world = filled(&[0, 0, 0, 100, 0]);
        for block in 0..3 {
            world.take_frame(Frame(block * HUGE), false);
        }
        for frame in 0..HUGE {
            let frame = Frame(4 * HUGE + frame);
            if frame.0 < 4 * HUGE + 200 { world.cache_frame(frame) } else { world.take_frame(frame, true) }
        }
        world.set_watermarks(TIER, Watermarks { low: Bytes(0), high });
        let progress = run(&mut Compactor::as_released(Compaction::Normal), PageSize::Huge, &mut world);
        (progress, free_blocks(&world))
    };
    assert_eq!(full(Bytes::mib(8)), (Progress::Free, vec![511, 511, 511, 512, 100]));
    assert_eq!(full(Bytes(0)), (Progress::Failed, vec![511, 511, 511, 412, 0]), "enough is free above it");
}

#[test]
fn the_cursors_go_on_where_they_stopped() {
    let mut world = filled(&[10, 20, 30, 0]);
    world.take_frame(Frame(3 * HUGE), false);
    let mut normal = Compactor::as_released(Compaction::Normal);
    assert_eq!(run(&mut normal, PageSize::Huge, &mut world), Progress::Free);
    assert_eq!(free_blocks(&world), [512, 492, 482, 501]);
    world.take_frame(Frame(0), true);
    assert_eq!(run(&mut normal, PageSize::Huge, &mut world), Progress::Free);
    assert_eq!(free_blocks(&world), [511, 512, 482, 481], "the first block is not looked at again yet");
}

#[test]
fn a_source_that_failed_is_not_the_next_one() {
    let mut world = filled(&[100, 10]);
    let mut smart = smart(1, Time::ZERO);
    world.fail_next(Outcome::Unmovable);
    assert_eq!(run(&mut smart, PageSize::Huge, &mut world), Progress::Failed);
    assert_eq!(smart.work().wasted, 9 * 4096);
    assert_eq!(free_blocks(&world), [512 - 109, 511]);
    assert_eq!(run(&mut smart, PageSize::Huge, &mut world), Progress::Free);
    assert_eq!(free_blocks(&world), [512, 512 - 110], "although the other is freer");
}

#[test]
fn a_timeout_keeps_a_source_from_being_tried_by_every_compaction() {
    let tried = |timeout: u64, retries: u32| {
        let mut world = filled(&[100, 100, 100, 100]);
        world.fail_often(1, Outcome::Busy, 1);
        let mut smart = smart(retries, seconds(timeout));
        for _ in 0..4 {
            assert_eq!(run(&mut smart, PageSize::Huge, &mut world), Progress::Failed);
            world.advance_to(world.now().plus(seconds(1)));
        }
        smart.work().sources
    };
    assert_eq!(tried(120, 5), 4, "each once");
    assert_eq!(tried(0, 5), 20, "five per compaction, never the same twice running");
    assert_eq!(tried(0, 1), 4);
}

#[test]
fn a_gigabyte_is_freed_with_its_huge_pages_whole() {
    for kind in [Compaction::Normal, Compaction::Smart] {
        let mut world = InMemory::new(&[("dram", Bytes::gib(2))]);
        world.map_anonymous(0, 0, 8 * HUGE);
        for vpn in [0, 512, 1024, 1025] {
            let size = if vpn < 1024 { PageSize::Huge } else { PageSize::Base };
            let fault = world.touch(PageId::new(0, vpn), true).unwrap();
            world.fault_in(&fault, &Placement::ANYWHERE.or(TIER, Some(size)));
        }
        for at in 0..100 {
            world.take_frame(Frame(GIANT + at * 1000), true);
        }
        let mut compactor = Compactor::as_released(kind);
        assert_eq!(run(&mut compactor, PageSize::Giant, &mut world), Progress::Free, "{kind:?}");
        assert_eq!(world.locate(PageId::new(0, 512)), Some((TIER, PageSize::Huge)));
        let smart = kind == Compaction::Smart;
        assert_eq!(
            compactor.work().copied,
            if smart { 100 * 4096 } else { (2 * HUGE + 2) * 4096 },
            "{kind:?}"
        );
    }
}

#[test]
fn without_compaction_nothing_is_copied() {
    let mut world = filled(&[1, 1]);
    assert_eq!(
        run(&mut Compactor::as_released(Compaction::None), PageSize::Huge, &mut world),
        Progress::Failed
    );
    assert_eq!(free_blocks(&world), [511, 511]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_mapping_survives_and_nothing_stays_isolated(
        smart in any::<bool>(),
        touched in prop::collection::vec(0..2048u64, 0..600),
        other in prop::collection::vec((0..2560u64, prop::bool::weighted(0.97)), 0..200),
        unmapped in prop::collection::vec((0..2048u64, 1..100u64), 0..10),
        huge in 0..3u64,
        failures in 0..6u64,
        pin in any::<bool>(),
        for_unmovable in prop::collection::vec(0..5u64, 0..3),
    ) {
        let mut world = InMemory::new(&[("dram", Bytes::mib(10))]);
        world.map_anonymous(0, 0, 2048);
        for pageblock in for_unmovable {
            world.keep_for_unmovable(Frame(pageblock * HUGE));
        }
        for (frame, movable) in other {
            world.take_frame(Frame(frame), movable);
        }
        let kernel = |world: &InMemory| -> Vec<FrameState> {
            (0..2560).map(|at| world.state(Frame(at))).filter(|s| *s == FrameState::Unmovable).collect()
        };
        let touch = |world: &mut InMemory, vpn: u64, size: PageSize| {
            let page = PageId::new(0, vpn);
            if let Some(fault) = world.touch(page, true)
                && world.tiers().free_pages(TIER) > 0
            {
                world.fault_in(&fault, &Placement::ANYWHERE.or(TIER, Some(size)));
                assert!(world.touch(page, true).is_none());
            }
        };
        for at in 0..huge {
            touch(&mut world, at * HUGE, PageSize::Huge);
        }
        for vpn in &touched {
            touch(&mut world, *vpn, PageSize::Base);
        }
        for (vpn, count) in unmapped {
            world.unmap(crate::PageRange::new(PageId::new(0, vpn), count.min(2048 - vpn)));
        }
        if pin {
            world.pin(PageId::new(0, 700));
        }
        world.fail_often(failures, Outcome::Busy, 7);
        let place = |world: &InMemory| -> Vec<bool> {
            (0..2048).map(|vpn| world.locate(PageId::new(0, vpn)).is_some()).collect()
        };
        let before = (place(&world), world.tiers().free_pages(TIER), kernel(&world).len());
        let mut compactor = Compactor::as_released(if smart { Compaction::Smart } else { Compaction::Normal });
        for _ in 0..3 {
            let progress = run(&mut compactor, PageSize::Huge, &mut world);
            let free = world.free_blocks(TIER, PageSize::Huge).0 > 0;
            prop_assert_eq!(progress == Progress::Free, free);
        }
        let work = compactor.work();
        prop_assert!(work.wasted <= work.copied && work.succeeded <= work.runs);
        prop_assert_eq!((place(&world), world.tiers().free_pages(TIER), kernel(&world).len()), before);
    }
}
