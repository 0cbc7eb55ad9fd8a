//! HawkEye by hand.

use crate::spans::{millis, seconds};
use crate::{Capability, Driver, InMemory, Open, PageId, PhysicalMemory};
use terrace_model::{Bytes, Frame, PageSize, TierId};

const TIER: TierId = TierId(0);
const HUGE: u64 = 512;

fn world(blocks: u64) -> InMemory {
    let mut world = InMemory::new(&[("dram", Bytes::mib(2 * blocks))]);
    world.map_anonymous(0, 0, 4 * HUGE);
    world
}

fn open(parameters: &str, world: InMemory) -> Driver {
    Driver::open("hawkeye", parameters, world).unwrap()
}

fn huge(driver: &Driver) -> Vec<u64> {
    let is_huge = |range: &u64| {
        driver.world.locate(PageId::new(0, range * HUGE)).is_some_and(|(_, size)| size == PageSize::Huge)
    };
    (0..4).filter(is_huge).collect()
}

#[test]
fn blocks_are_zeroed_ahead_at_a_rate() {
    let zeroed = |parameters: &str, time: u64| {
        let mut driver = open(parameters, world(64));
        driver.advance(millis(time));
        driver.world.free_blocks(TIER, PageSize::Huge).1
    };
    assert_eq!((zeroed("", 900), zeroed("", 1900), zeroed("", 9900)), (20, 40, 64));
    assert_eq!(zeroed("zero_blocks = 5", 900), 5);
    assert_eq!(zeroed("zero_period = \"100 ms\"", 190), 40);
    assert_eq!(zeroed("zero = false", 9000), 0);
    let mut driver = open("zero_blocks = 1", world(8));
    driver.advance(millis(500));
    driver.touch(PageId::new(0, 0), true);
    driver.touch(PageId::new(0, HUGE), true);
    driver.advance(millis(1));
    let stats = driver.report().stats;
    assert_eq!((stats.integer("zeroed_hits"), stats.integer("zeroed_misses")), (1, 1));
    assert_eq!(huge(&driver), [0, 1]);
}

/// Four ranges of base pages, for at the faults no block was free; the second range is accessed most, the third never.
fn sampled(parameters: &str, time: u64) -> Vec<u64> {
    let mut world = world(16);
    for block in 0..16 {
        world.take_frame(Frame(block * HUGE + 7), true);
    }
    let mut driver = open(&format!("zero = false\n{parameters}"), world);
    for range in 0..4 {
        driver.touch_all(0, range * HUGE..range * HUGE + 400, true);
    }
    let broken: Vec<u64> = (0..16).map(|block| block * HUGE + 7).collect();
    if !parameters.contains("compaction") {
        driver.world.give_frames(&broken);
    }
    for _ in 0..4 * time {
        for (range, pages) in [(0, 60), (1, 300), (3, 120)] {
            driver.touch_all(0, range * HUGE..range * HUGE + pages, false);
        }
        driver.advance(millis(250));
    }
    huge(&driver)
}

#[test]
fn the_most_accessed_ranges_are_promoted_first() {
    // The window from the start of the run sees all; from 30 s on, accesses tell the ranges apart.
    let one = "promotions = 1\nsample_period = \"4 s\"\nweight = 1.0\n";
    assert_eq!(sampled(one, 9), []);
    assert_eq!(sampled(one, 12), [1]);
    assert_eq!(sampled(one, 22), [1, 3]);
    assert_eq!(sampled(one, 32), [0, 1, 3]);
    assert_eq!(sampled(one, 80), [0, 1, 3], "nothing of the third range is accessed");
    assert_eq!(sampled("sample_period = \"4 s\"\nweight = 1.0", 12), [0, 1, 3]);
    assert_eq!(sampled("promotions = 1\nsample_period = \"4 s\"\npromote_period = \"5 s\"", 12), [1, 3]);
}

#[test]
fn samples_have_a_period_a_window_and_a_memory() {
    // The first sample ends after the window, when all pages were just faulted in.
    assert_eq!(sampled("promotions = 1", 12).len(), 1);
    let never = "promotions = 1\nsample_window = \"25 s\"\nsample_period = \"50 s\"";
    assert_eq!((sampled(never, 12), sampled(never, 32)), (vec![], vec![0]), "in 25 s all were accessed");
    let first =
        |weight: &str| sampled(&format!("promotions = 1\nsample_period = \"4 s\"\nweight = {weight}"), 12);
    assert_eq!((first("0.0"), first("1.0")), (vec![], vec![1]), "without weight no sample counts");
}

#[test]
fn compaction_makes_blocks_and_a_failure_makes_it_sleep() {
    assert_eq!(sampled("compaction = \"normal\"\nweight = 1.0\nsample_period = \"4 s\"", 22), [0, 1, 3]);
    assert_eq!(sampled("compaction = \"none\"\nsample_period = \"4 s\"", 22), []);
    let tried = |parameters: &str| {
        let mut world = world(8);
        for block in 0..8 {
            world.take_frame(Frame(block * HUGE + 7), false);
        }
        let mut driver = open(&format!("zero = false\ncompaction = \"none\"\n{parameters}"), world);
        driver.touch_all(0, 0..4 * HUGE, true);
        for _ in 0..90 {
            driver.touch_all(0, 0..4 * HUGE, true);
            driver.advance(seconds(1));
        }
        driver.report().stats.integer("promotion_2m_failed")
    };
    assert!(tried("") > tried("alloc_sleep = \"60 s\""));
}

#[test]
fn cached_translations_hide_accesses_unless_they_are_flushed() {
    let observed = |flush: bool| {
        let mut world = world(16).with_tlb(4000);
        for block in 0..16 {
            world.take_frame(Frame(block * HUGE + 7), false);
        }
        let mut driver = open(&format!("flush = {flush}\nsample_period = \"2 s\"\nweight = 1.0"), world);
        driver.touch_all(0, 0..HUGE, true);
        for _ in 0..40 {
            driver.touch_all(0, 0..HUGE, false);
            driver.advance(millis(500));
        }
        driver.report().stats.integer("promotion_2m_failed") > 0
    };
    assert_eq!((observed(true), observed(false)), (true, false));
}

#[test]
fn zeros_are_taken_back_when_memory_is_short() {
    let resident = |parameters: &str| {
        let mut world = InMemory::new(&[("dram", Bytes::mib(16))]);
        world.map_anonymous(0, 0, 8 * HUGE);
        let mut driver = open(&format!("zero = false\n{parameters}"), world);
        for range in 0..7 {
            driver.touch_all(0, range * HUGE..range * HUGE + 1 + range * 60, true);
        }
        driver.advance(seconds(5));
        driver.world.resident(TIER)
    };
    assert_eq!(resident("recover = false"), 7 * HUGE);
    assert_eq!(resident("recover_below = 0.1"), 7 * HUGE);
    // 30 % of 4096 frames are to be free, 512 are: the first two pages give 511 + 451.
    assert_eq!(resident(""), 7 * HUGE - 511 - 451);
    assert_eq!(
        resident("recover_until = 1.0"),
        (1 + 61 + 121 + 181 + 241) + 2 * HUGE,
        "no more than half is stored"
    );
    assert_eq!(resident("recover_until = 1.0\nrecover_zeros = 0.8"), (1 + 61) + 5 * HUGE);
    let again = |parameters: &str| {
        let mut driver =
            open(&format!("recover_until = 1.0\nrecover_below = 1.0\nzero = false\n{parameters}"), world(8));
        driver.touch(PageId::new(0, HUGE), true);
        driver.advance(seconds(5));
        driver.touch(PageId::new(0, 0), true);
        driver.advance(seconds(20));
        driver.world.resident(TIER)
    };
    assert_eq!((again(""), again("recover_sleep = \"5 s\"")), (1 + HUGE, 2));
}

#[test]
fn it_needs_accessed_bits_and_what_its_switches_take() {
    for capability in [Capability::AccessedBits, Capability::Collapse] {
        let error = Driver::open("hawkeye", "", world(4).without(capability)).err().unwrap().to_string();
        assert!(error.contains(capability.name()), "{error}");
    }
    let without = |capability, parameters: &str| {
        Driver::open("hawkeye", parameters, world(4).without(capability)).is_ok()
    };
    assert!(!without(Capability::Frames, "") && without(Capability::Frames, "zero = false"));
    assert!(!without(Capability::Split, "") && without(Capability::Split, "recover = false"));
    assert!(!without(Capability::FlushOnClear, "flush = true") && without(Capability::FlushOnClear, ""));
}
