//! The thesis' arithmetic and its example of eight pages, then runs.

use super::*;
use crate::spans::millis;
use crate::{Driver, InMemory, Open, PageRange};
use terrace_model::Bytes;

fn page(n: u64) -> PageId {
    PageId::new(0, n * 512)
}

#[test]
fn three_percent_at_one_microsecond_are_30_000_accesses_per_second() {
    let microsecond = 1e-6;
    assert!((budget(0.03, microsecond) - 30_000.0).abs() < 1e-6);
    assert!((0.05 * budget(0.03, microsecond) - 1500.0).abs() < 1e-6, "the share of a sample of 5 %");
    // Slow memory emulated by faults of 5 us.
    assert!((budget(0.03, 5e-6) - 6000.0).abs() < 1e-6);
}

#[test]
fn the_sample_is_scaled_by_the_pages_in_use() {
    // 2 poisoned of 100 accessed pages: 30 and 90 counts in 30 s.
    assert_eq!(estimated_rate(&[30, 90], 100, 30.0), 200.0);
    assert_eq!(estimated_rate(&[], 0, 30.0), 0.0, "nothing was accessed: as cold as can be");
    assert_eq!(estimated_rate(&[5], 1, 0.0), 0.0);
}

/// Fig. 6.4: eight huge pages, 25 % sampled. Round 1 samples pages 1 and 5: page 1 alone is within the budget, both
/// are not, so 1 is cold and 5 hot. Round 2 samples 2 and 4: 4 is cold, 2 is hot.
#[test]
fn figure_6_4() {
    let share = 0.25 * 40.0;
    // Subpages 1 and 4 of page 1, 3 and 8 of page 5, each the sample of four pages in use.
    let first = estimated_rate(&[2, 1], 4, 1.0);
    let fifth = estimated_rate(&[3, 2], 4, 1.0);
    assert_eq!((first, fifth), (6.0, 10.0));
    let cold = coldest_within(&mut [(page(5), fifth), (page(1), first)], share);
    assert_eq!(cold, BTreeSet::from([page(1)]));
    let cold = coldest_within(&mut [(page(2), 25.0), (page(4), 8.0)], share);
    assert_eq!(cold, BTreeSet::from([page(4)]));
}

#[test]
fn correction_takes_the_hottest_until_the_rest_is_within_the_budget() {
    let mut rates = [(page(1), 10.0), (page(2), 40.0), (page(3), 25.0), (page(4), 1.0)];
    assert_eq!(hottest_beyond(&mut rates, 36.0), [page(2)]);
    assert_eq!(hottest_beyond(&mut rates, 35.9), [page(2), page(3)]);
    assert_eq!(hottest_beyond(&mut rates, 76.0), []);
    assert_eq!(hottest_beyond(&mut rates, 0.0).len(), 4);
    assert_eq!(coldest_within(&mut rates, 11.0).len(), 2, "exactly the budget is within it");
}

/// Eight huge pages in fast memory. R = 30 accesses/s: slow accesses of 1 ms.
fn open(parameters: &str) -> Driver {
    let mut world = InMemory::new(&[("fast", Bytes::mib(32)), ("slow", Bytes::mib(32))]).with_huge_pages();
    world.map_anonymous(0, 0, 8 * 512);
    let sample = if parameters.contains("sample") { "" } else { "sample = 0.25" };
    let parameters = format!("slow_latency = \"1 ms\"\ninterval = \"1 s\"\n{sample}\n{parameters}");
    let mut driver = Driver::open_with("thermostat", &parameters, world, 7, None).unwrap();
    for n in 0..8 {
        driver.touch(page(n), true);
    }
    driver
}

/// Each second touches 20 subpages of each hot page ten times, spread over the second.
fn run(driver: &mut Driver, secs: u64, hot: &[u64]) {
    for _ in 0..secs * 10 {
        for n in hot {
            for sub in 0..20 {
                driver.touch(page(*n).plus(sub * 25), false);
            }
        }
        driver.advance(millis(100));
    }
}

fn slow_pages(driver: &Driver) -> Vec<u64> {
    (0..8).filter(|n| driver.world.locate(page(*n)).unwrap().0 == TierId(1)).collect()
}

#[test]
fn cold_pages_move_whole_and_hot_ones_stay() {
    for rounds in ["pipelined", "serial"] {
        let mut driver = open(&format!("rounds = \"{rounds}\""));
        run(&mut driver, 60, &[0, 2, 5]);
        assert_eq!(slow_pages(&driver), [1, 3, 4, 6, 7], "{rounds}");
        for n in slow_pages(&driver) {
            assert_eq!(driver.world.locate(page(n)).unwrap().1, PageSize::Huge, "collapsed before it moved");
        }
        let report = driver.report();
        assert_eq!(report.notes, [] as [String; 0]);
        assert!(report.stats.number("slow_accesses_per_second") <= 30.0);
    }
}

#[test]
fn pipelined_rounds_begin_every_interval_serial_ones_every_other() {
    let rounds = |which: &str| {
        let mut driver = open(&format!("rounds = \"{which}\""));
        run(&mut driver, 12, &[0, 1, 2, 3, 4, 5, 6, 7]);
        driver.report().stats.integer("rounds")
    };
    assert_eq!((rounds("pipelined"), rounds("serial")), (12, 6));
}

#[test]
fn a_slow_page_that_becomes_hot_comes_back() {
    for correction in [true, false] {
        let mut driver = open(&format!("correction = {correction}"));
        run(&mut driver, 60, &[0, 2, 5]);
        run(&mut driver, 3, &[0, 2, 5, 6]);
        assert_eq!(!slow_pages(&driver).contains(&6), correction);
        assert_eq!(driver.report().stats.integer("returned"), u64::from(correction));
    }
}

#[test]
fn intervals_above_the_budget_are_counted_until_correction_ends_them() {
    let figures = |correction: bool| {
        let mut driver = open(&format!("correction = {correction}"));
        run(&mut driver, 60, &[0, 2, 5]);
        run(&mut driver, 5, &[0, 2, 5, 6]);
        let stats = driver.report().stats;
        assert!(stats.number("highest_slow_accesses_per_second") > 30.0);
        assert!(stats.integer("slow_accesses") > 0);
        let in_a_row = stats.integer("most_intervals_above_budget_in_a_row");
        assert_eq!(in_a_row, stats.integer("intervals_above_budget"));
        let says_so = driver.report().notes.iter().any(|note| note.contains("was not kept then"));
        assert_eq!(says_so, in_a_row > 2);
        in_a_row
    };
    assert_eq!(figures(true), 1);
    assert!(figures(false) > 3);
}

#[test]
fn a_page_that_finds_no_room_on_its_way_back_is_reported() {
    let mut driver = open("");
    run(&mut driver, 60, &[0, 2, 5]);
    driver.world.map_anonymous(1, 0, 8192);
    for vpn in (0..6656).step_by(512) {
        driver.touch(PageId::new(1, vpn), true);
    }
    // The new pages are as hot as the others, so nothing makes room.
    for _ in 0..30 {
        run(&mut driver, 1, &[0, 2, 5, 6]);
        for vpn in (0..6656).step_by(32) {
            driver.touch(PageId::new(1, vpn), false);
        }
        if driver.report().notes.iter().any(|note| note.contains("found no room")) {
            return;
        }
    }
    panic!("{:?}", driver.report());
}

/// Few hot subpages in a large page: without the prefilter, random poisoning misses them.
#[test]
fn the_prefilter_finds_the_few_hot_subpages() {
    let misplaced = |prefilter: bool| {
        let mut wrong = 0;
        for seed in 0..10 {
            let mut world =
                InMemory::new(&[("fast", Bytes::mib(32)), ("slow", Bytes::mib(32))]).with_huge_pages();
            world.map_anonymous(0, 0, 8 * 512);
            let parameters = format!(
                "slow_latency = \"1 ms\"\nsample = 1.0\ninterval = \"1 s\"\npoisoned = 10\ncorrection = false\nprefilter = {prefilter}"
            );
            let mut driver = Driver::open_with("thermostat", &parameters, world, seed, None).unwrap();
            for n in 0..8 {
                driver.touch(page(n), true);
            }
            // Page 3 has two hot subpages: 200 accesses/s in all.
            for _ in 0..400 {
                driver.touch(page(3).plus(100), true);
                driver.touch(page(3).plus(300), true);
                driver.advance(millis(10));
            }
            wrong += usize::from(slow_pages(&driver).contains(&3));
        }
        wrong
    };
    assert_eq!(misplaced(true), 0);
    assert!(misplaced(false) > 5);
}

#[test]
fn k_bounds_the_poisoned_pages() {
    let poisoned = |k: u32| {
        let mut driver = open(&format!("poisoned = {k}\nsample = 0.125"));
        run(&mut driver, 6, &[0, 1, 2, 3, 4, 5, 6, 7]);
        let stats = driver.report().stats;
        stats.integer("poisoned") as f64 / (stats.integer("rounds") - 2) as f64
    };
    assert_eq!((poisoned(5), poisoned(50)), (5.0, 20.0), "20 subpages are in use");
}

/// Eight huge pages, all in use: a sample of 50 % is four of them, three while one is busy in an earlier round.
#[test]
fn no_more_pages_are_sampled_than_the_world_affords() {
    let run_with = |per_second: Option<f64>, rounds: &str| {
        let mut driver = open(&format!("sample = 0.5\nrounds = \"{rounds}\""));
        if let Some(per_second) = per_second {
            driver.world.afford(per_second);
        }
        run(&mut driver, 12, &[0, 1, 2, 3, 4, 5, 6, 7]);
        let report = driver.report();
        let says_so = report.notes.iter().any(|note| note.contains("fewer huge pages were sampled"));
        assert_eq!(says_so, report.stats.integer("curbed_rounds") > 0);
        (report.stats.integer("sampled"), report.stats.integer("curbed_rounds"))
    };
    let (unbounded, curbed) = run_with(None, "pipelined");
    assert!(unbounded > 24 && curbed == 0, "{unbounded}");
    assert_eq!(run_with(Some(100.0), "pipelined"), (unbounded, 0), "the parameter is less");
    assert_eq!(run_with(Some(1.0), "pipelined"), (12, 12));
    // A page every other second is sampled in every other round, and not one in each.
    assert_eq!(run_with(Some(0.5), "pipelined").0, 6);
    // Serial rounds have the time of two intervals each.
    assert_eq!(run_with(Some(1.0), "serial").0, 1 + 5 * 2);
    assert_eq!(run_with(Some(0.0), "pipelined").0, 0);
}

/// The first half of page 2's pages in use and all of page 5's cannot be seen.
#[test]
fn pages_of_which_nothing_is_known_are_not_taken_for_cold() {
    let mut driver = open("sample = 1.0");
    driver.world.hide(PageRange::new(page(2), 250));
    driver.world.hide(PageRange::new(page(5), 512));
    run(&mut driver, 20, &[2, 5]);
    assert_eq!(slow_pages(&driver), [0, 1, 3, 4, 6, 7]);
    // The half of page 2 that can be seen is counted: 10 of its pages, 10 accesses each, in each of the 6 rounds that it was
    // in.
    let stats = driver.report().stats;
    assert_eq!((stats.integer("poisoned"), stats.integer("counted")), (60, 600));
}

#[test]
fn too_few_counts_are_reported_instead_of_a_rate() {
    let mut driver = open("");
    run(&mut driver, 5, &[]);
    let report = driver.report();
    assert!(report.notes[0].contains("too few to tell hot from cold"), "{:?}", report.notes);
    assert!(report.stats.get("slow_accesses_per_second").is_none());
    let mut driver = open("least_counts = 10.5");
    run(&mut driver, 5, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(driver.report().notes[0].contains("fewer than 10.5 each"), "{:?}", driver.report().notes);
}

#[test]
fn a_larger_slowdown_lets_more_pages_go() {
    let cold = |slowdown: f64| {
        let mut driver = open(&format!("slowdown = {slowdown}\nsample = 1.0"));
        for _ in 0..300 {
            driver.advance(millis(500));
            for n in 0..8 {
                // Page n: n accesses/s on average.
                for _ in 0..n {
                    driver.touch(page(n), false);
                }
            }
            driver.advance(millis(500));
        }
        slow_pages(&driver).len()
    };
    let found: Vec<usize> = [0.002, 0.01, 0.03, 0.06].into_iter().map(cold).collect();
    assert!(found.is_sorted() && found[0] < found[3], "{found:?}");
}

#[test]
fn what_cannot_be_collapsed_is_given_up() {
    let mut driver = open("");
    driver.world.fail_often(1, Outcome::Busy, 1);
    run(&mut driver, 3, &[]);
    let before = driver.world.ordered_pages();
    driver.world.fail_often(0, Outcome::Busy, 1);
    run(&mut driver, 5, &[]);
    assert!(before < 10, "{before} orders while nothing succeeded");
    assert!(driver.report().stats.integer("demoted") > 0);
    // Now only collapses fail: three attempts each.
    let mut driver = open("");
    run(&mut driver, 1, &[]);
    driver.advance(millis(500));
    driver.world.fail_often(1, Outcome::NoSpace, 1);
    run(&mut driver, 3, &[]);
    assert!(driver.report().stats.integer("failed") >= 3);
    assert!(driver.report().notes.iter().any(|note| note.contains("could not be collapsed")));
}
