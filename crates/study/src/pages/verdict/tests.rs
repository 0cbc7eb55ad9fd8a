use super::super::parts::{RegionCost, SizedRegion};
use super::super::ways::FaultLatency;
use super::*;

const BOUNDS: Bounds = Bounds { bloat: 0.1 };

/// A way that gains `gain`, between these, with that much more memory.
fn way(name: &str, gain: f64, gain_interval: Option<[f64; 2]>, bloat: f64) -> WayResult {
    let figures = WayFigures {
        seconds_simulated: 1.0 / (1.0 + gain),
        gain,
        gain_interval,
        translation_share: 0.1,
        walks: 100,
        walk_cycles: 1000,
        walk_cycles_left: 0.1,
        resident_bytes: 1 << 20,
        large_share: 1.0,
        bloat,
        copied_bytes: 0,
        zeroed_ahead_bytes: 0,
        fallbacks: 0,
        fault_latency: Some(FaultLatency { p50_ns: 500, p99_ns: 900, max_ns: 178_000 }),
    };
    WayResult {
        name: name.to_owned(),
        meaning: "a way",
        design: name.to_owned(),
        plain: name.to_owned(),
        tlb: None,
        figures: Some(figures),
        refused: None,
        periods: None,
    }
}

fn verdict(ways: &[WayResult]) -> Verdict {
    let base = way("4k", 0.0, None, 0.0);
    Verdict::of(&[std::slice::from_ref(&base), ways].concat(), &[], &BOUNDS, None)
}

#[test]
fn what_the_recording_left_no_place_for_is_no_reason_to_leave_huge_pages_off() {
    let ways = [way("4k", 0.0, None, 0.0), way("thp", 0.0, None, 0.0), way("2m", 0.5, None, 0.15)];
    let found = Verdict::of(&ways, &[], &BOUNDS, Some(0.95));
    assert!(found.is_undecided && found.way.is_none(), "{found:?}");
    assert!(
        found.advice.starts_with("Undecided: as it was recorded, transparent huge pages find no place in 95"),
        "{found:?}"
    );
    assert!(found.reason.contains("GLIBC_TUNABLES=glibc.malloc.hugetlb=1"), "{found:?}");
    assert!(found.reason.contains("terrace check -- PROGRAM"), "{found:?}");
    assert!(found.reason.contains("2m makes the run 50.0% faster, but holds 15.0% more memory"), "{found:?}");
    // Where the program takes its memory as it always would, they do not pay.
    let found = Verdict::of(&ways, &[], &BOUNDS, None);
    assert!(!found.is_undecided, "{found:?}");
    assert!(found.advice.contains("transparent ones do not pay, and 2m costs too much memory"), "{found:?}");
    // A way that is right is recommended, and what the others could do is said beside it.
    let fits = [ways[0].clone(), ways[1].clone(), way("2m", 0.5, None, 0.05)];
    let found = Verdict::of(&fits, &[], &BOUNDS, Some(0.95));
    assert_eq!(found.way.as_deref(), Some("2m"));
    assert!(found.reason.contains("GLIBC_TUNABLES=glibc.malloc.hugetlb=1"), "{found:?}");
}

#[test]
fn a_gain_within_its_interval_is_no_advice() {
    let found = verdict(&[way("2m", 0.02, Some([-0.01, 0.05]), 0.0)]);
    assert!(found.way.is_none() && found.is_undecided, "{found:?}");
    assert!(found.advice.starts_with("Undecided: "), "{found:?}");
    assert!(found.reason.contains("2.0% faster (-1.0% to 5.0%)"), "{found:?}");
    assert!(found.reason.contains("terrace check -- PROGRAM"), "{found:?}");

    let found = verdict(&[way("2m", 0.02, Some([0.01, 0.03]), 0.0)]);
    assert_eq!((found.way.as_deref(), found.is_undecided), (Some("2m"), false));
    assert!(found.advice.contains("2.0% faster (1.0% to 3.0%)"), "{found:?}");
    let found = verdict(&[way("2m", 0.02, None, 0.0)]);
    assert_eq!(found.way.as_deref(), Some("2m"), "without intervals the gain decides");
    assert!(found.advice.ends_with("2.0% faster."), "{found:?}");
}

#[test]
fn a_way_that_is_clear_goes_before_a_faster_one_that_is_not() {
    let found = verdict(&[way("1g", 0.3, Some([-0.1, 0.9]), 0.0), way("2m", 0.2, Some([0.1, 0.3]), 0.0)]);
    assert_eq!(found.way.as_deref(), Some("2m"));
}

#[test]
fn small_gains_and_too_much_memory_leave_huge_pages_off() {
    let found = verdict(&[way("2m", 0.005, Some([0.004, 0.006]), 0.0)]);
    assert!(found.way.is_none() && !found.is_undecided, "{found:?}");
    assert!(found.advice.contains("they do not pay"), "{found:?}");
    let found = verdict(&[way("2m", 0.2, Some([0.1, 0.3]), 0.11)]);
    assert!(found.way.is_none() && found.advice.contains("cost too much memory"), "{found:?}");
    assert!(found.reason.contains("10% is tolerated"), "{found:?}");
}

#[test]
fn a_way_that_costs_time_is_said_to_take_so_many_times_as_long() {
    let found = verdict(&[way("2m", 1.0 / 8.5 - 1.0, Some([1.0 / 9.0 - 1.0, 1.0 / 8.0 - 1.0]), 0.0)]);
    assert!(found.advice.contains("they do not pay"), "{found:?}");
    assert!(found.reason.ends_with("makes the run 8.5 times as long (8.0 to 9.0)."), "{found:?}");
    let found = verdict(&[way("2m", -0.2, None, 0.0)]);
    assert!(found.reason.ends_with("makes the run 25.0% slower."), "{found:?}");
}

#[test]
fn of_equal_gains_the_simplest_way_is_taken() {
    let found =
        verdict(&[way("trident", 0.205, None, 0.0), way("thp", 0.2, None, 0.0), way("2m", 0.201, None, 0.0)]);
    assert_eq!(found.way.as_deref(), Some("thp"));
}

#[test]
fn faults_that_are_not_in_the_input_are_not_said_to_be_free() {
    let with = verdict(&[way("2m", 0.2, None, 0.0)]);
    assert!(with.reason.ends_with("more memory, and its slowest fault takes 178 us."), "{with:?}");
    let mut late = way("2m", 0.2, None, 0.0);
    late.figures.as_mut().unwrap().fault_latency = None;
    let without = verdict(&[late]);
    assert!(
        without.reason.ends_with("more memory. What its page faults cost is not known: the input has none."),
        "{without:?}"
    );
}

/// A region that deserves 2 MiB, and how many of its 100 MiB each way lays in large pages.
fn region(name: &str, laid: &[(&str, u64)]) -> Region {
    let size = |size| SizedRegion { size, mappable_bytes: 0, bloat_bytes: 0, saved_share: None, gain: None };
    let costs = laid.iter().map(|(way, large)| RegionCost {
        way: (*way).to_owned(),
        faults: 0,
        fault_seconds: 0.0,
        fault_latency: FaultLatency { p50_ns: 0, p99_ns: 0, max_ns: 0 },
        copied_bytes: 0,
        resident_bytes: 100 << 20,
        large_bytes: large << 20,
    });
    Region {
        name: name.to_owned(),
        line: String::new(),
        process: 0,
        is_structure: true,
        walk_share: 0.5,
        walks: 100,
        walk_cycles: 1000,
        touched_bytes: 100 << 20,
        sizes: [size("2m"), size("1g")],
        size: "2m",
        costs: costs.collect(),
    }
}

#[test]
fn larger_pages_are_right_for_what_the_recommended_way_lays_in_them() {
    let ways = [way("4k", 0.0, None, 0.0), way("thp-fault", 0.2, None, 0.0), way("2m", 0.3, None, 0.5)];
    let parts = [
        region("table", &[("thp-fault", 90), ("2m", 100)]),
        region("lists", &[("thp-fault", 4), ("2m", 95)]),
    ];
    let found = Verdict::of(&ways, &parts, &BOUNDS, None);
    assert_eq!(found.way.as_deref(), Some("thp-fault"));
    let said = " 2 MiB are right for table. 2 MiB would be right for lists as well, but thp-fault finds a place for \
                4.0% of it; 2m for 95.0%.";
    assert!(found.reason.contains(said), "{found:?}");
    let found = Verdict::of(&ways, &parts[..1], &BOUNDS, None);
    assert!(found.reason.ends_with(" 2 MiB are right for table."), "{found:?}");
}
