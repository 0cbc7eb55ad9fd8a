//! What two fidelity levels both count is equal, for one thread.

use crate::support::*;
use terrace_model::{Unit, Value};
use terrace_sim::design::Design;
use terrace_sim::{Fidelity, Options, Outcome};

const WORKLOADS: [&str; 6] = [
    "gups,bytes=12 MiB,updates=2e4",
    "chase,bytes=8 MiB,accesses=2e4",
    "kv,keys=4e3,requests=1e4",
    "stencil,side=48",
    "hashjoin,build=1e4,probe=15e3",
    "slab,bytes=18 MiB,keys=4e3,requests=4e3",
];

/// Every integer statistic but cycles that both have: equal. Returns how many.
fn compare(one: &Outcome, other: &Outcome, what: &str) -> usize {
    let mut compared = 0;
    for (name, stat) in one.stats.iter() {
        let Some(same) = other.stats.get(name) else { continue };
        let over_time = stat.unit == Unit::Cycles || name.ends_with("mean_pages");
        if over_time && name != "os.fault_cycles" {
            continue;
        }
        if matches!(stat.value, Value::Integer(_) | Value::Real(_)) {
            assert_eq!(stat.value, same.value, "{what}: {name}");
            compared += 1;
        }
    }
    assert_eq!((one.accesses, one.instructions), (other.accesses, other.instructions), "{what}");
    compared
}

fn three(design: &Design, spec: &str, whole: bool) -> [Outcome; 3] {
    [Fidelity::Full, Fidelity::Translation, Fidelity::Pages].map(|fidelity| {
        let options = Options { fidelity, whole, ..Options::default() };
        run_with(design, &mut *endless(spec), options).unwrap()
    })
}

/// Pairs of levels on one design and input. Returns the outcome of the full one.
fn check(design: &Design, spec: &str, whole: bool) -> Outcome {
    let what = format!("{} on {spec}", design.name);
    let [full, translation, pages] = three(design, spec, whole);
    // TLBs and walks, tiers, operating system.
    assert!(compare(&full, &translation, &format!("{what}, full and translation")) > 30);
    assert!(compare(&translation, &pages, &format!("{what}, translation and pages")) > 18);
    assert!(compare(&full, &pages, &format!("{what}, full and pages")) > 18);
    let unfiltered: u64 = pages
        .stats
        .iter()
        .filter(|(name, _)| name.contains(".unfiltered_"))
        .map(|(name, _)| pages.stats.integer(name))
        .sum();
    assert_eq!(unfiltered, pages.accesses, "{what}: every access meets a tier");
    assert!(pages.stats.get("tlb.l2.miss").is_none() && pages.stats.get("tier.dram.reads").is_none());
    assert!(translation.stats.get("cache.l1.hit").is_none());
    full
}

#[test]
fn radix_designs_agree_on_what_levels_share() {
    for name in ["native-4k", "native-2m", "native-thp", "interleave", "weighted-interleave"] {
        let design = design(name, "vbi-table1", &[]);
        for spec in WORKLOADS {
            check(&design, spec, true);
        }
    }
}

#[test]
fn regions_of_interest_agree_too() {
    let design = design("native-thp", "zen4-cxl", &[]);
    for spec in WORKLOADS {
        check(&design, spec, false);
    }
}

#[test]
fn a_perfect_tlb_agrees() {
    let design = design("perfect-tlb", "vbi-table1", &[]);
    check(&design, WORKLOADS[0], true);
}

#[test]
fn a_spill_agrees() {
    let mut design = design("first-touch", "vbi-table1", &[]);
    design.tiers[0].capacity.0 = 6 * MIB;
    design.os.reserved.0 = 0;
    for spec in ["gups,bytes=12 MiB,updates=2e4", "kv,keys=4e4,preload=1,requests=5e3"] {
        let full = check(&design, spec, true);
        assert_eq!(count(&full, "tier.dram.pages"), 6 * MIB / PAGE);
    }
}

#[test]
fn every_level_says_what_it_leaves_out() {
    let design = design("native-4k", "vbi-table1", &[]);
    let [full, translation, pages] = three(&design, "gups,bytes=1 MiB,updates=100", true);
    assert!(full.left_out.is_empty());
    assert!(translation.left_out.iter().any(|text| text.contains("caches")));
    assert!(pages.left_out.iter().any(|text| text.contains("TLB")));
}

#[test]
fn what_is_left_out_has_no_cycles_rather_than_none_of_them() {
    let design = design("native-4k", "skylake-6140", &[]);
    let runs = three(&design, "gups,bytes=1 MiB,updates=100", true);
    let has = |name: &str| runs.each_ref().map(|run| run.stats.get(&format!("core.cycles.{name}")).is_some());
    assert_eq!([has("base"), has("os"), has("idle")], [[true; 3]; 3]);
    assert_eq!([has("translation"), has("memory")], [[true, true, false]; 2]);
    assert_eq!(has("cache"), [true, false, false]);
}

#[test]
fn virtual_caches_refuse_the_level_without_caches() {
    let design = design("vivt", "vbi-table1", &[]);
    let options = Options { fidelity: Fidelity::Translation, ..Options::default() };
    let error = run_with(&design, &mut *workload("gups,bytes=1 MiB,updates=100"), options).unwrap_err();
    assert!(error.to_string().contains("--fidelity full"), "{error}");
    let pages = run(&design, &mut *workload("gups,bytes=1 MiB,updates=100"), Fidelity::Pages);
    assert!(pages.accesses > 0);
}

#[test]
fn what_is_passed_over_leaves_memory_as_it_would_be() {
    // A run that passes over its beginning starts with empty caches, so neither run keeps zeros there.
    let past_caches = ("os.zero_stores", "non-temporal");
    for (name, sets) in
        [("native-thp", vec![past_caches]), ("native-4k", vec![("os.policy.name", "thp"), past_caches])]
    {
        let design = design(name, "skylake-6140", &sets);
        let run = |fast_forward| {
            let spec = "gups,bytes=128 MiB,updates=1e5,threads=2";
            let options = Options { fast_forward, ..Options::default() };
            run_with(&design, &mut *workload(spec), options).unwrap()
        };
        let (whole, forwarded) = (run(false), run(true));
        assert_eq!(forwarded.accesses, whole.accesses);
        assert_eq!(forwarded.instructions, whole.instructions);
        for state in
            ["os.peak_resident_bytes.2m", "os.peak_resident_bytes.4k", "tier.dram.peak_pages", "os.faults"]
        {
            assert_eq!(count(&forwarded, state), count(&whole, state), "{name}: {state}");
        }
        // The region itself is simulated whole, from empty TLBs and caches on.
        for counter in ["walk.count", "cache.llc.miss", "tier.dram.reads"] {
            let (cold, warm) = (count(&forwarded, counter) as f64, count(&whole, counter) as f64);
            assert!(cold > 0.9 * warm && cold < 1.2 * warm + 300.0, "{name}: {counter}: {cold} for {warm}");
        }
        let cycles = forwarded.cycles as f64 / whole.cycles as f64;
        assert!((0.9..1.1).contains(&cycles), "{name}: {cycles}");
        assert!(forwarded.notes.iter().any(|note| note.contains("began it empty")), "{:?}", forwarded.notes);
    }
}

#[test]
fn nothing_is_passed_over_where_all_is_to_be_counted() {
    let design = design("native-4k", "skylake-6140", &[]);
    let input = || workload("gups,bytes=1 MiB,updates=100");
    let options = Options { whole: true, fast_forward: true, ..Options::default() };
    let error = run_with(&design, &mut *input(), options).unwrap_err();
    assert!(error.to_string().contains("no part of it can be passed over"), "{error}");
    // An input without marks would be passed over as a whole.
    let mut program = Program::new();
    program.map(DATA, MIB).read(DATA).write(DATA + PAGE);
    let options = Options { fast_forward: true, ..Options::default() };
    let error = run_with(&design, &mut program.source(), options).unwrap_err();
    assert!(error.to_string().contains("this input marks none: leave --fast-forward out"), "{error}");
}
