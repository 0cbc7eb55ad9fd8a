use super::*;
use crate::designs::Setting;
use crate::{Comparison, Silent};
use terrace_model::{Stats, Unit};

/// The baseline of the built-in study, with these settings.
fn job(sets: &[(&str, &str)]) -> (Job, Changes) {
    let sets = sets.iter().map(|(key, value)| Setting::of_all(*key, *value)).collect();
    let changes = Changes { machine: Some("zen4-cxl".to_owned()), sets, time_scale: 1 };
    (changes.resolve("native-4k", None).unwrap(), changes)
}

#[test]
fn what_is_assumed_varies_and_what_is_cited_or_set_does_not() {
    let (plain, changes) = job(&[]);
    let other = at_ends(&plain, &changes).unwrap().unwrap().design.design;
    let plain = plain.design.design;
    let ratio = |other: Time, plain: Time| other.as_nanos() / plain.as_nanos();
    assert!((ratio(other.os.fault_cost, plain.os.fault_cost) - 1.25).abs() < 1e-6);
    assert!((other.os.zero_bandwidth.0 / plain.os.zero_bandwidth.0 - 0.8).abs() < 1e-9);
    // The machine's ledger cites it.
    assert_eq!(other.os.huge_zero_bandwidth, plain.os.huge_zero_bandwidth);
    for (other, plain) in other.tiers.iter().zip(&plain.tiers) {
        assert!((ratio(other.path_latency, plain.path_latency) - 1.25).abs() < 1e-6);
    }
    // What hides latency is fewer: assumed, or cited.
    assert!((other.core.base_cpi / plain.core.base_cpi - 0.8).abs() < 1e-9);
    assert_eq!(other.cache.l1.outstanding, plain.cache.l1.outstanding);
    assert_eq!(other.translation.walkers, plain.translation.walkers);
    let link = |design: &Design| design.tiers[1].link.as_ref().unwrap().latency;
    assert!((ratio(link(&other), link(&plain)) - 1.25).abs() < 1e-6);
    assert!(
        other.os.costs.copy_line.0 < plain.os.costs.copy_line.0,
        "copying is cheap where slow memory is dear"
    );

    let (set, changes) = job(&[("os.fault_cost", "1 us"), ("tier.cxl.link.latency", "90 ns")]);
    let other = at_ends(&set, &changes).unwrap().unwrap().design.design;
    assert_eq!(other.os.fault_cost, Time::from_nanos(1000));
    assert_eq!(link(&other), Time::from_nanos(90));
    assert!(other.os.zero_bandwidth.0 < set.design.design.os.zero_bandwidth.0);
}

#[test]
fn a_measured_constant_varies_as_it_was_measured() {
    let (mut measured, changes) = job(&[]);
    measured.design.design.ledger.spread = vec![
        "os.fault_cost = 100 ns .. 900 ns".to_owned(),
        "os.zero_bandwidth = 1 GB/s .. 3 GB/s".to_owned(),
        "cache.l1.outstanding = 11 .. 14".to_owned(),
    ];
    let other = at_ends(&measured, &changes).unwrap().unwrap().design.design;
    assert_eq!(other.os.fault_cost, Time::from_nanos(900));
    assert!((other.os.zero_bandwidth.0 / 1e9 - 1.0).abs() < 1e-9);
    assert_eq!(other.cache.l1.outstanding, 11);
}

fn run(design: &str, os: u64, memory: u64) -> RunRecord {
    let mut stats = Stats::new();
    stats.count("core.cycles.os", os, Unit::Cycles);
    stats.count("core.cycles.memory", memory, Unit::Cycles);
    let seconds_simulated = (os + memory) as f64;
    let fidelity = "full".to_owned();
    RunRecord {
        design: design.to_owned(),
        input: "x".to_owned(),
        fidelity,
        seconds_simulated,
        stats,
        ..RunRecord::default()
    }
}

#[test]
fn what_moves_a_speed_up_is_separated() {
    let at_ends = |name: &str, os, memory| run(&format!("{name}{AT_ENDS}"), os, memory);
    let own = InputResult {
        name: "x".to_owned(),
        runs: vec![run("a", 200, 800), run("b", 100, 400), at_ends("a", 240, 960), at_ends("b", 100, 480)],
        failures: vec![format!("b{AT_ENDS} on x: no memory"), "c on x: no memory".to_owned()],
        ..InputResult::default()
    };
    let other = InputResult {
        name: format!("x{RESEEDED}"),
        runs: vec![run("a", 200, 800), run("b", 100, 425)],
        ..InputResult::default()
    };
    let [result] = &settle(vec![own, other], "a")[..] else { panic!("the other seed is no result") };
    assert_eq!(result.failures, ["c on x: no memory"]);
    let names: Vec<&str> = result.runs.iter().map(|run| run.design.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(result.runs[0].uncertainty.unwrap().total(), 0.0, "the baseline is 1 whatever happens");
    let b = result.runs[1].uncertainty.unwrap();
    // The operating system's part alone makes the baseline 1.04 times as long, b's time stays.
    assert!((b.os_constants - 1.04f64.ln()).abs() < 1e-12, "{b:?}");
    // Together: 1200 / 580 in place of 1000 / 500.
    assert!((b.memory_constants - (1200.0 / 580.0 / 2.0 / 1.04f64).ln().abs()).abs() < 1e-12, "{b:?}");
    assert!((b.seeds.unwrap() - (525.0f64 / 500.0).ln()).abs() < 1e-12, "{b:?}");
}

#[test]
fn a_comparison_says_how_far_its_speed_ups_could_be_off() {
    let compare = || {
        Comparison::new(["native-4k", "native-2m", "all-slow"])
            .machine("zen4-cxl")
            .input(Input::workload("gups,bytes=64MiB,updates=1e4").unwrap())
    };
    let plain = compare().intervals(false).run(&Silent).unwrap().comparison;
    assert!(plain.runs.iter().all(|run| run.uncertainty.is_none()));
    let result = compare().run(&Silent).unwrap();
    assert!(result.failures.is_empty() && result.is_complete());
    let comparison = result.comparison;
    assert_eq!((comparison.inputs.len(), comparison.runs.len()), (1, 3));
    for (run, plain) in comparison.runs.iter().zip(&plain.runs) {
        assert_eq!(
            (&run.design, &run.stats),
            (&plain.design, &plain.stats),
            "what runs beside changes nothing"
        );
    }
    let slow = comparison.speedup_of(&comparison.runs[2]).unwrap();
    let causes = slow.uncertainty.unwrap();
    assert!(slow.low < slow.value && slow.value < slow.high && slow.high < 1.0, "{slow:?}");
    assert!(causes.memory_constants > 0.01, "latencies decide what slow memory costs: {causes:?}");
    assert!(causes.seeds.is_some_and(|seeds| seeds > 0.0 && seeds < 0.05), "{causes:?}");
}

#[test]
fn a_policy_draws_anew_where_the_input_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gups.trace");
    let workload = Input::workload("gups,bytes=16MiB,updates=2e4").unwrap();
    crate::record::write_trace(workload, &path, &Silent).unwrap();
    let changes = Changes { machine: Some("zen4-cxl".to_owned()), ..Changes::default() };
    let jobs: Vec<Job> = ["native-4k", "tpp"].map(|name| changes.resolve(name, None).unwrap()).into();
    let mut inputs = vec![(Input::trace(&path, false).unwrap(), jobs)];
    assert!(beside(&mut inputs, &changes).unwrap().is_empty(), "a trace has one seed");
    let names: Vec<&str> = inputs[0].1.iter().map(|job| job.design.design.name.as_str()).collect();
    let expected = ["native-4k", "tpp"].map(str::to_owned).into_iter().chain([
        format!("native-4k{AT_ENDS}"),
        format!("tpp{AT_ENDS}"),
        format!("tpp{RESEEDED}"),
    ]);
    assert_eq!(names, expected.collect::<Vec<_>>());
}
