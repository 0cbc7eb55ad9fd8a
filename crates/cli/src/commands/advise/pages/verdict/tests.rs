use super::super::parts::SizeAnswer;
use super::super::ways::FaultLatency;
use super::*;

fn way(name: &str, gain: f64, bloat: f64) -> WayAnswer {
    let figures = WayFigures {
        seconds_simulated: 1.0,
        gain,
        translation_share: 0.2,
        walks: 0,
        walk_cycles: 0,
        walk_cycles_left: 0.1,
        resident_bytes: 0,
        large_share: 0.0,
        bloat,
        copied_bytes: 0,
        zeroed_ahead_bytes: 0,
        fallbacks: 0,
        fault_latency: FaultLatency::default(),
    };
    WayAnswer {
        name: name.to_owned(),
        meaning: "a policy",
        design: name.to_owned(),
        plain: name.to_owned(),
        tlb: name.split_once('+').map(|(_, tlb)| tlb.to_owned()),
        figures: Some(figures),
        refused: None,
        periods: None,
    }
}

fn part(name: &str, size: &'static str, gain: f64) -> PartAnswer {
    let sizes =
        ["2m", "1g"].map(|size| SizeAnswer { size, mappable_bytes: 0, bloat_bytes: 0, gain: Some(gain) });
    PartAnswer {
        name: name.to_owned(),
        process: 0,
        is_structure: true,
        walk_share: 0.5,
        walks: 1,
        walk_cycles: 1,
        touched_bytes: 1,
        sizes,
        size,
        costs: Vec::new(),
    }
}

fn verdict(ways: &[WayAnswer], parts: &[PartAnswer]) -> Verdict {
    Verdict::of(ways, parts, &Bounds { bloat: 0.1 })
}

#[test]
fn pages_that_do_not_pay_stay_off() {
    let found = verdict(
        &[way("4k", 0.0, 0.0), way("thp", 0.006, 0.0), way("ranger+rmm", 0.5, 0.0), way("2m", -0.1, 0.0)],
        &[],
    );
    assert_eq!((found.way, found.advice.contains("Leave huge pages off")), (None, true));
    assert!(found.reason.contains("thp, makes the run 0.6% faster"), "{}", found.reason);
}

#[test]
fn of_equals_the_simplest_is_taken_within_the_tolerated_memory() {
    let ways = [way("4k", 0.0, 0.0), way("1g", 0.3, 5.0), way("trident", 0.205, 0.1), way("thp", 0.2, 0.02)];
    let found = verdict(&ways, &[part("index", "2m", 0.2)]);
    assert_eq!(found.way.as_deref(), Some("thp"));
    assert!(found.reason.contains("2 MiB are right for index."), "{}", found.reason);
}

#[test]
fn what_costs_too_much_as_a_whole_is_asked_for_by_region() {
    let ways = [way("4k", 0.0, 0.0), way("thp", 0.3, 0.5)];
    let found = verdict(&ways, &[part("index", "2m", 0.2), part("log", "4k", 0.2)]);
    assert_eq!(found.way, None);
    assert!(found.advice.contains("for index (2m): about 25.0% faster"), "{}", found.advice);
    let found = verdict(&ways, &[part("log", "4k", 0.2)]);
    assert!(found.advice.contains("cost too much memory"), "{}", found.advice);
}
