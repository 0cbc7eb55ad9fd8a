//! Translation Ranger by hand and at random.

use crate::spans::seconds;
use crate::{
    Capability, Driver, FrameState, InMemory, MemorySystem, Open, Outcome, PageId, PhysicalMemory, Placement,
};
use proptest::prelude::*;
use terrace_model::{Bytes, Frame, PageSize, TierId};

const TIER: TierId = TierId(0);
const HUGE: u64 = 512;
/// Figures have areas of a few pages, anywhere.
const SMALL: &str = "smallest_area = \"4 KiB\"\nalign = false\nthp = false\n";

fn open(parameters: &str, world: InMemory) -> Driver {
    Driver::open("ranger", parameters, world).unwrap()
}

/// Brings a page in at a frame, whatever the allocator would choose.
fn fill(world: &mut InMemory, page: PageId, frame: u64, size: PageSize) {
    let (first, frames) = world.tier_frames(TIER);
    let step = size.base_pages();
    let others: Vec<u64> =
        (first.0..first.0 + frames).step_by(step as usize).filter(|at| *at != frame).collect();
    others.iter().for_each(|at| world.isolate(Frame(*at), size, true));
    let fault = world.touch(page, true).unwrap();
    world.fault_in(&fault, &Placement::ANYWHERE.or(TIER, Some(size)));
    assert!(world.touch(page, true).is_none());
    others.iter().for_each(|at| world.isolate(Frame(*at), size, false));
    assert_eq!(world.frame(page), Some(Frame(frame)));
}

fn frames(driver: &Driver, vpns: impl IntoIterator<Item = u64>) -> Vec<u64> {
    vpns.into_iter().map(|vpn| driver.world.frame(PageId::new(0, vpn)).unwrap().0).collect()
}

/// Figure 4.6, behind an area of four pages that has no pages yet and so gets the place (V.., P0).
fn figure_4_6() -> InMemory {
    let mut world = InMemory::new(&[("dram", Bytes::kib(64))]);
    world.map_anonymous(0, 0x10, 4);
    world.map_anonymous(0, 0x100, 4);
    for (vpn, frame) in [(0x100, 2), (0x101, 9), (0x102, 7), (0x103, 3)] {
        fill(&mut world, PageId::new(0, vpn), frame, PageSize::Base);
    }
    world.take_frame(Frame(5), true);
    world.take_frame(Frame(6), true);
    world
}

#[test]
fn figure_4_6_by_one_move_and_three_exchanges() {
    let mut driver = open(SMALL, figure_4_6());
    driver.advance(seconds(4));
    assert_eq!(frames(&driver, 0x100..0x104), [2, 9, 7, 3]);
    driver.advance(seconds(2));
    assert_eq!(frames(&driver, 0x100..0x104), [4, 5, 6, 7]);
    let stats = driver.report().stats;
    assert_eq!((stats.integer("moved"), stats.integer("exchanged")), (1, 3));
    assert_eq!(stats.integer("copied"), (1 + 3 * 2) * 4096);
    assert_eq!(driver.world.state(Frame(9)), FrameState::MovableOther, "P5 was the page cache's");
    driver.advance(seconds(60));
    assert_eq!(driver.world.ordered_pages(), 4, "what is at its place stays there");
    assert_eq!(driver.report().stats.integer("contiguous_regions"), 1);
}

#[test]
fn passes_come_as_often_as_said_and_orders_are_as_large() {
    let after = |parameters: &str, time: u64| {
        let mut driver = open(&format!("{SMALL}{parameters}"), figure_4_6());
        driver.advance(seconds(time));
        (frames(&driver, 0x100..0x104) == [4, 5, 6, 7], driver.report().stats.integer("passes"))
    };
    assert_eq!(after("period = \"50 s\"", 49), (false, 0));
    assert_eq!(after("period = \"50 s\"", 51), (true, 1));
    assert_eq!(after("batch = \"4 KiB\"", 6), (true, 1), "order after order in one pass");
    assert_eq!(after("coalesce = false", 60), (false, 0));
    let samples = |parameters: &str| {
        let mut driver = open(&format!("{SMALL}{parameters}"), figure_4_6());
        driver.advance(seconds(21));
        let stats = driver.report().stats;
        (stats.integer("contiguity_samples"), stats.number("contiguous_regions_mean"))
    };
    assert_eq!(samples("coalesce = false"), (4, 4.0));
    assert_eq!(samples("coalesce = false\nsample_period = \"1 s\"").0, 21);
    assert_eq!(samples("").1, (4.0 + 1.0 + 1.0 + 1.0) / 4.0);
}

#[test]
fn what_cannot_move_is_skipped_and_the_anchor_stays() {
    let mut world = figure_4_6();
    world.take_frame(Frame(5), false);
    world.pin(PageId::new(0, 0x102));
    let mut driver = open(SMALL, world);
    driver.advance(seconds(30));
    // V1 stays in P9 for P5 is the kernel's; V2 is pinned in P7, so V3 cannot come there either.
    assert_eq!(frames(&driver, 0x100..0x104), [4, 9, 7, 3]);
    assert!(driver.report().stats.integer("skipped_unmovable") > 0);
}

#[test]
fn what_is_busy_is_tried_again_with_the_same_anchor() {
    let mut world = figure_4_6();
    world.fail_next(Outcome::Busy);
    let mut driver = open(SMALL, world);
    driver.advance(seconds(6));
    assert_eq!(frames(&driver, 0x100..0x101), [2], "the first move failed");
    driver.advance(seconds(5));
    assert_eq!(frames(&driver, 0x100..0x104), [4, 5, 6, 7]);
    assert_eq!(driver.report().stats.integer("failed"), 1);
}

#[test]
fn small_areas_are_left_alone_and_places_aligned() {
    let run = |parameters: &str| {
        let mut world = InMemory::new(&[("dram", Bytes::mib(16))]);
        world.map_anonymous(0, 100, HUGE - 1);
        world.map_anonymous(0, 3 * HUGE + 50, HUGE);
        let mut driver = open(&format!("thp = false\n{parameters}"), world);
        for vpn in [100, 101, 3 * HUGE + 60, 3 * HUGE + 61] {
            driver.touch(PageId::new(0, vpn), true);
        }
        driver.advance(seconds(11));
        frames(&driver, [100, 3 * HUGE + 60])
    };
    assert_eq!(run(""), [0, 60]);
    assert_eq!(run("smallest_area = \"4 KiB\""), [100, HUGE + HUGE + 60]);
    assert_eq!(run("smallest_area = \"4 KiB\"\nalign = false"), [0, HUGE - 1 + 10]);
}

/// Two ranges of 2 MiB in base pages, in each other's places; the first frame is taken by another's.
fn swapped() -> InMemory {
    let mut world = InMemory::new(&[("dram", Bytes::mib(8))]);
    world.map_anonymous(0, 0, 2 * HUGE);
    for at in 0..2 * HUGE {
        let fault = world.touch(PageId::new(0, (at + HUGE) % (2 * HUGE)), true).unwrap();
        world.fault_in(&fault, &Placement::ANYWHERE.or(TIER, Some(PageSize::Base)));
        assert!(world.touch(fault.page, true).is_none());
    }
    world
}

#[test]
fn runs_of_512_are_joined_where_they_lie() {
    let joined = |parameters: &str| {
        let mut driver = open(parameters, swapped());
        driver.advance(seconds(12));
        assert_eq!(frames(&driver, [0, 5, HUGE]), [0, 5, HUGE]);
        let stats = driver.report().stats;
        // One exchange puts both of a pair in place.
        assert_eq!((stats.integer("exchanged"), stats.integer("copied")), (HUGE, 4 << 20), "{parameters}");
        (driver.world.locate(PageId::new(0, 0)).unwrap().1, stats.integer("promoted"))
    };
    assert_eq!(joined(""), (PageSize::Huge, 2));
    assert_eq!(joined("promote = false"), (PageSize::Base, 0));
}

#[test]
fn a_huge_page_in_the_way_is_split_unless_switched_off() {
    let run = |parameters: &str| {
        let mut world = InMemory::new(&[("dram", Bytes::mib(8))]);
        world.map_anonymous(0, 0, HUGE);
        world.map_anonymous(0, 10 * HUGE, HUGE);
        fill(&mut world, PageId::new(0, 10 * HUGE), 0, PageSize::Huge);
        fill(&mut world, PageId::new(0, 3), HUGE + 40, PageSize::Base);
        let mut driver = open(&format!("promote = false\n{parameters}"), world);
        driver.advance(seconds(26));
        let size = driver.world.locate(PageId::new(0, 10 * HUGE)).unwrap().1;
        (frames(&driver, [3, 10 * HUGE]), size, driver.report().stats.integer("split"))
    };
    // The huge page goes to its own place, by an exchange with whatever is there: nothing need be split.
    assert_eq!(run("split = false").0, [3, HUGE]);
    let (places, size, split) = run("");
    assert_eq!((places, size, split), (vec![3, HUGE], PageSize::Base, 1), "in its way in the first pass");
}

#[test]
fn an_area_that_grows_keeps_its_place_or_the_smaller_one_moves() {
    let mut world = InMemory::new(&[("dram", Bytes::kib(256))]);
    world.map_anonymous(0, 0, 4);
    world.map_anonymous(0, 100, 8);
    let mut driver = open(SMALL, world);
    driver.touch_all(0, 0..4, true);
    driver.touch_all(0, 100..108, true);
    driver.advance(seconds(6));
    assert_eq!(frames(&driver, [0, 3, 100, 107]), [0, 3, 4, 11]);
    // The first one grows to six pages, into the place of the second, which is larger.
    driver.world.unmap(crate::PageRange::new(PageId::new(0, 0), 4));
    driver.world.map_anonymous(0, 0, 6);
    driver.touch_all(0, 0..6, true);
    driver.advance(seconds(5));
    assert_eq!(frames(&driver, [0, 5, 100, 107]), [12, 17, 4, 11]);
    assert_eq!(driver.report().stats.integer("anchors_moved"), 1);
}

#[test]
fn faults_take_2_mib_and_an_area_without_a_hole_stays() {
    let mut world = InMemory::new(&[("dram", Bytes::mib(4)), ("slow", Bytes::mib(16))]);
    world.map_anonymous(0, 0, 3 * HUGE);
    let mut driver = open("", world);
    driver.touch(PageId::new(0, 0), true);
    assert_eq!(driver.world.locate(PageId::new(0, 0)), Some((TIER, PageSize::Huge)));
    driver.advance(seconds(6));
    let stats = driver.report().stats;
    assert_eq!((stats.integer("areas_without_place"), driver.world.ordered_pages()), (1, 0));
    let mut world = InMemory::new(&[("dram", Bytes::mib(4))]);
    world.map_anonymous(0, 0, HUGE);
    let mut driver = open("thp = false", world);
    driver.touch(PageId::new(0, 0), true);
    assert_eq!(driver.world.locate(PageId::new(0, 0)), Some((TIER, PageSize::Base)));
}

#[test]
fn it_needs_frames_and_what_its_switches_take() {
    let world = || InMemory::new(&[("dram", Bytes::mib(4))]);
    for (capability, switch) in [(Capability::Collapse, "promote"), (Capability::Split, "split")] {
        let error = Driver::open("ranger", "", world().without(capability)).err().unwrap().to_string();
        assert!(error.contains(capability.name()), "{error}");
        assert!(Driver::open("ranger", &format!("{switch} = false"), world().without(capability)).is_ok());
    }
    assert!(Driver::open("ranger", "", world().without(Capability::Frames)).is_err());
    assert!(Driver::open("ranger", "batch = \"1 KiB\"", world()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Random faults, unmaps, page cache and kernel frames: every byte stays, and in the end what can be at its place is.
    #[test]
    fn areas_come_together_whatever_lies_about(
        touched in prop::collection::vec((0..3u64, 0..1200u64), 1..400),
        huge in any::<bool>(),
        other in prop::collection::vec((0..4096u64, prop::bool::weighted(0.9)), 0..120),
        unmapped in prop::collection::vec((0..3u64, 0..1200u64, 1..300u64), 0..4),
        failures in 0..5u64,
    ) {
        let mut world = InMemory::new(&[("dram", Bytes::mib(16))]);
        for area in 0..3 {
            world.map_anonymous(0, area * 10_000 + 77, 1200);
        }
        let mut kernel = 0;
        for (frame, movable) in &other {
            world.take_frame(Frame(*frame), *movable);
            kernel += u64::from(!movable);
        }
        let mut driver = open(if huge { "" } else { "thp = false" }, world);
        driver.world.fail_often(failures, Outcome::Busy, 3);
        for (at, (area, vpn)) in touched.iter().enumerate() {
            driver.touch(PageId::new(0, area * 10_000 + 77 + vpn), true);
            if at % 100 == 99 {
                driver.advance(seconds(3));
            }
        }
        for (area, vpn, pages) in unmapped {
            let pages = pages.min(1200 - vpn);
            driver.unmap(0, area * 10_000 + 77 + vpn, pages);
        }
        driver.world.fail_often(0, Outcome::Busy, 3);
        driver.advance(seconds(60));
        prop_assert_eq!(driver.world.check(), Ok(()));
        let stats = driver.report().stats;
        prop_assert!(stats.number("coverage_32") <= stats.number("coverage_128"));
        let ordered = driver.world.ordered_pages();
        driver.advance(seconds(20));
        if kernel == 0 {
            prop_assert_eq!(driver.world.ordered_pages(), ordered, "it comes to rest");
            let mut areas = Vec::new();
            driver.world.areas(None, &mut |area| areas.push(area.range));
            // Areas of 2 MiB and more have a place, unless there was no hole for one.
            areas.retain(|range| range.pages >= HUGE);
            let apart = areas.iter().filter(|range| offsets(&driver, **range) > 1).count() as u64;
            prop_assert!(apart <= stats.integer("areas_without_place"), "{} of {:?}", apart, areas);
        }
    }
}

/// How many places an area lies in: differences between frame and page.
fn offsets(driver: &Driver, range: crate::PageRange) -> usize {
    let pages = (0..range.pages).map(|at| range.first.plus(at));
    let frames = pages.filter_map(|page| Some(driver.world.frame(page)?.0.wrapping_sub(page.vpn)));
    frames.collect::<std::collections::BTreeSet<u64>>().len()
}
