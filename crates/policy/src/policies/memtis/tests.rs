//! Thresholds that follow what fits, cooling, warm pages that stay, and splitting.

use super::*;
use crate::spans::millis;
use crate::{Driver, InMemory, Open};
use terrace_model::Bytes;

/// A fast tier of 8 pages, 24 pages in use, every access sampled, thresholds adapted every 100 samples.
fn open(parameters: &str) -> Driver {
    let mut world = InMemory::new(&[("fast", Bytes::kib(32)), ("slow", Bytes::kib(96))]);
    world.map_anonymous(0, 0, 24);
    let adapt = if parameters.contains("adapt_every") { "" } else { "adapt_every = 100" };
    let headroom = if parameters.contains("headroom") { "" } else { "headroom = 0" };
    let parameters = format!("sample_period = 1\n{headroom}\n{adapt}\n{parameters}");
    let mut driver = Driver::open("memtis", &parameters, world).unwrap();
    driver.touch_all(0, 0..24, true);
    driver
}

fn in_fast(driver: &Driver) -> Vec<u64> {
    (0..24).filter(|vpn| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0)).collect()
}

/// Accesses pages `times` times each, in every one of `rounds` half seconds.
fn run(driver: &mut Driver, rounds: u32, heat: &[(std::ops::Range<u64>, u32)]) {
    for _ in 0..rounds {
        for (pages, times) in heat {
            for _ in 0..*times {
                driver.touch_all(0, pages.clone(), false);
            }
        }
        driver.advance(millis(500));
    }
}

#[test]
fn the_hottest_that_fit_end_up_in_fast_memory() {
    let mut driver = open("");
    run(&mut driver, 8, &[(0..24, 1), (10..18, 20)]);
    assert_eq!(in_fast(&driver), (10..18).collect::<Vec<_>>());
}

#[test]
fn between_adaptations_the_threshold_stands() {
    let mut driver = open("adapt_every = 1000000");
    run(&mut driver, 8, &[(0..24, 1), (10..18, 20)]);
    assert_eq!(driver.report().stats.integer("hot_bin"), 1, "everything that was sampled is hot");
}

#[test]
fn cooling_lets_a_new_hot_set_replace_the_old() {
    let moved = |cool_every: u64| {
        let mut driver = open(&format!("cool_every = {cool_every}"));
        run(&mut driver, 40, &[(0..8, 20)]);
        run(&mut driver, 10, &[(10..18, 20)]);
        in_fast(&driver) == (10..18).collect::<Vec<_>>()
    };
    assert!(moved(500));
    assert!(!moved(1_000_000));
}

#[test]
fn warm_pages_stay_unless_hot_ones_need_their_room() {
    // Four hot pages in the slow tier, eight warm ones in the fast tier: one bin below hot.
    let heat = [(0..8, 4), (20..24, 9)];
    let mut driver = open("alpha = 1.0");
    run(&mut driver, 4, &heat);
    assert_eq!(in_fast(&driver)[4..], [20, 21, 22, 23]);
    let mut driver = open("headroom = 0.25\nalpha = 1.0");
    run(&mut driver, 4, &heat);
    assert_eq!(in_fast(&driver).len(), 6, "headroom takes warm pages, too");
}

/// Four huge pages, a fast tier that holds one; in each, one base page gets all accesses.
fn huge(parameters: &str) -> Driver {
    let mut world = InMemory::new(&[("fast", Bytes::mib(2)), ("slow", Bytes::mib(8))]).with_huge_pages();
    world.map_anonymous(0, 0, 2048);
    let adapt = if parameters.contains("adapt_every") { "" } else { "adapt_every = 100" };
    let parameters = format!("sample_period = 1\nheadroom = 0\n{adapt}\n{parameters}");
    let mut driver = Driver::open("memtis", &parameters, world).unwrap();
    for vpn in (0..2048).step_by(512) {
        driver.touch(PageId::new(0, vpn), true);
    }
    for _ in 0..20 {
        for vpn in (7..2048).step_by(512) {
            for _ in 0..50 {
                driver.touch(PageId::new(0, vpn), false);
            }
        }
        driver.advance(millis(500));
    }
    driver
}

#[test]
fn skewed_huge_pages_are_split_so_that_all_their_hot_parts_fit() {
    let hot_in_fast = |driver: &Driver| {
        let fast = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0);
        (7..2048).step_by(512).filter(fast).count()
    };
    let driver = huge("");
    assert_eq!((hot_in_fast(&driver), driver.report().stats.integer("split")), (4, 4));
    let driver = huge("split = false");
    assert_eq!((hot_in_fast(&driver), driver.report().stats.integer("split")), (1, 0));
    assert_eq!(huge("split_gain = 0.9").report().stats.integer("split"), 0);
    let at_most_two_at_once = huge("split_limit = 2\nadapt_every = 4000");
    assert_eq!(at_most_two_at_once.report().stats.integer("split"), 2);
}

#[test]
fn the_warm_bin_is_one_below_hot_unless_hot_pages_fill_the_tier() {
    // Fast: 0 is warm, 1 cold, 2 to 7 hot. Slow: 20 is hot and wants in, 21 warm; seven hot pages do not fill eight.
    let left = |alpha: f64| {
        let mut driver = open(&format!("alpha = {alpha}\nadapt_every = 97"));
        run(&mut driver, 1, &[(0..1, 5), (21..22, 5), (2..8, 9), (20..21, 9)]);
        driver.advance(millis(600));
        in_fast(&driver)
    };
    assert_eq!(left(1.0), [0, 2, 3, 4, 5, 6, 7, 20], "the cold page went");
    assert_eq!(left(0.1), [1, 2, 3, 4, 5, 6, 7, 20], "below hot all are cold: the first went");
}

#[test]
fn rarer_samples_and_longer_periods_know_and_do_less() {
    let driver_after = |parameters: &str| {
        let mut world = InMemory::new(&[("fast", Bytes::kib(32)), ("slow", Bytes::kib(96))]);
        world.map_anonymous(0, 0, 24);
        let mut driver =
            Driver::open("memtis", &format!("headroom = 0\nadapt_every = 10\n{parameters}"), world).unwrap();
        driver.touch_all(0, 0..24, true);
        run(&mut driver, 6, &[(10..18, 25)]);
        driver
    };
    let samples =
        |period: u64| driver_after(&format!("sample_period = {period}")).report().stats.integer("samples");
    assert_eq!((samples(10), samples(100)), (122, 12), "of 1224 accesses");
    assert_eq!(
        in_fast(&driver_after("sample_period = 1\nperiod = \"500 ms\"")),
        (10..18).collect::<Vec<_>>()
    );
    assert_eq!(in_fast(&driver_after("sample_period = 1\nperiod = \"50 s\"")), (0..8).collect::<Vec<_>>());
}
