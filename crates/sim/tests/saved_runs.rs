//! Fifty-four saved runs across designs, policies and fidelities: every statistic is as it was, to the last digit.
//!
//! A change of the code's shape must leave `tests/saved/` as it is. A change of what is simulated says which numbers
//! move and why: `TERRACE_UPDATE=1 cargo test -p terrace-sim --test saved_runs` writes the files anew, and the
//! difference is part of the commit.

#[path = "machine_support/mod.rs"]
mod support;

use std::fmt::Write;
use std::path::PathBuf;
use support::mixes::{changes, turns};
use support::*;
use terrace_model::Value;
use terrace_sim::{Fidelity, Options, Outcome};

const FULL: Fidelity = Fidelity::Full;
const TRANSLATION: Fidelity = Fidelity::Translation;
const PAGES: Fidelity = Fidelity::Pages;

/// A run: its file's name, design, machine, changed keys, input and fidelity.
type Saved = (&'static str, &'static str, &'static str, Keys, &'static str, Fidelity);
type Keys = &'static [(&'static str, &'static str)];

/// Two tiers that the inputs below do not fit into the first of.
const TIGHT: &[(&str, &str)] =
    &[("os.reserved", "0 MiB"), ("tier.0.capacity", "24 MiB"), ("tier.1.capacity", "128 MiB")];

macro_rules! tight {
    ($policy:literal $(, $key:literal = $value:literal)*) => {
        &[
            ("os.reserved", "0 MiB"),
            ("tier.0.capacity", "12 MiB"),
            ("tier.1.capacity", "128 MiB"),
            ("os.policy.name", $policy)
            $(, ($key, $value))*
        ]
    };
}

const RUNS: [Saved; 54] = [
    // Translation schemes.
    ("radix-4k-full", "native-4k", "vbi-table1", &[], "gups,bytes=32 MiB,updates=6e4", FULL),
    ("radix-4k-translation", "native-4k", "vbi-table1", &[], "gups,bytes=32 MiB,updates=6e4", TRANSLATION),
    ("radix-4k-pages", "native-4k", "vbi-table1", &[], "gups,bytes=32 MiB,updates=6e4", PAGES),
    ("radix-2m-full", "native-2m", "skylake-6140", &[], "hashjoin,build=4e4,probe=6e4", FULL),
    ("radix-1g-full", "native-1g", "skylake-6140", &[], "btree,keys=6e4,lookups=3e4", FULL),
    ("radix-thp-full", "native-thp", "zen4-cxl", &[], "kv,keys=8e3,requests=2e4,threads=5", FULL),
    ("radix-thp-translation", "native-thp", "zen5-turin", &[], "kv,keys=8e3,requests=2e4", TRANSLATION),
    ("perfect-full", "perfect-tlb", "vbi-table1", &[], "kv,keys=8e3,requests=2e4,threads=2", FULL),
    ("perfect-translation", "perfect-tlb", "zen4-cxl", &[], "stencil,side=48", TRANSLATION),
    ("vivt-full", "vivt", "vbi-table1", &[], "kv,keys=4e3,requests=1e4,threads=6", FULL),
    ("vivt-alone-full", "vivt", "haswell-32", &[], "chase,bytes=24 MiB,accesses=4e4", FULL),
    ("colt-full", "colt", "vbi-table1", &[], "kv,keys=8e3,requests=2e4,threads=3", FULL),
    ("colt-translation", "colt", "zen4-cxl", &[], "gups,bytes=32 MiB,updates=6e4", TRANSLATION),
    ("rmm-full", "rmm", "zen4-cxl", &[], "kv,keys=8e3,requests=2e4,threads=3", FULL),
    ("rmm-translation", "rmm", "vbi-table1", &[], "hashjoin,build=4e4,probe=6e4", TRANSLATION),
    ("direct-segment-full", "direct-segment", "vbi-table1", &[], "gups,bytes=32 MiB,updates=6e4", FULL),
    (
        "direct-segment-translation",
        "direct-segment",
        "zen4-cxl",
        &[],
        "slab,bytes=24 MiB,keys=2e4,requests=2e4",
        TRANSLATION,
    ),
    ("spot-full", "spot", "zen4-cxl", &[], "gups,bytes=32 MiB,updates=6e4", FULL),
    (
        "spot-translation",
        "spot",
        "vbi-table1",
        &[],
        "churn,bytes=32 MiB,largest=8 MiB,allocations=40,uses=2e3,threads=2",
        TRANSLATION,
    ),
    (
        "nested-4k-full",
        "native-4k",
        "haswell-32",
        &[("translation.nested.host", "4k")],
        "gups,bytes=32 MiB,updates=4e4",
        FULL,
    ),
    (
        "nested-2m-full",
        "native-2m",
        "haswell-32",
        &[("translation.nested.host", "4k")],
        "chase,bytes=24 MiB,accesses=4e4",
        FULL,
    ),
    (
        "nested-translation",
        "native-thp",
        "vbi-table1",
        &[("translation.nested.host", "2m")],
        "kv,keys=8e3,requests=2e4,threads=2",
        TRANSLATION,
    ),
    ("pom-tlb-full", "pom-tlb", "vbi-table1", &[], "gups,bytes=32 MiB,updates=6e4", FULL),
    ("vbi-full", "vbi-full", "vbi-table1", &[], "kv,keys=8e3,requests=2e4,threads=3", FULL),
    ("enigma-full", "enigma-2m", "vbi-table1", &[], "hashjoin,build=4e4,probe=6e4", FULL),
    // Placement, many cores.
    ("interleave-full", "interleave", "zen4-cxl", &[], "stream,bytes=6 MiB,iterations=1,threads=4", FULL),
    (
        "weighted-interleave-full",
        "weighted-interleave",
        "haswell-32",
        &[],
        "stream,bytes=6 MiB,iterations=1,threads=40",
        FULL,
    ),
    ("first-touch-pages", "first-touch", "zen4-cxl", TIGHT, "pb,bytes=48 MiB,threads=2", PAGES),
    ("in-order-full", "native-4k", "jetson-tx1", &[], "canneal,elements=2e5,moves=2e4", FULL),
    // Events of every kind, on one core and on four.
    ("changes-full", "native-thp", "vbi-table1", &[], "changes", FULL),
    ("changes-translation", "native-4k", "zen4-cxl", &[], "changes", TRANSLATION),
    ("changes-vivt-full", "vivt", "vbi-table1", &[], "changes", FULL),
    ("changes-colt-full", "colt", "zen4-cxl", &[], "changes", FULL),
    ("changes-pages", "native-2m", "zen4-cxl", &[], "changes", PAGES),
    // Policies.
    (
        "ambix-full",
        "first-touch",
        "xeon-5218-dcpmm",
        tight!("ambix", "os.policy.period" = "100 us", "os.policy.delay" = "10 us"),
        "pb,bytes=24 MiB,passes=60,threads=2",
        FULL,
    ),
    (
        "nimble-full",
        "first-touch",
        "haswell-2650v3",
        tight!("nimble", "os.policy.period" = "100 us"),
        "kv,keys=6e4,requests=6e4,threads=2",
        FULL,
    ),
    (
        "thermostat-translation",
        "first-touch",
        "e5-2699v3",
        tight!("thermostat", "os.policy.interval" = "100 us"),
        "kv,keys=6e4,requests=6e4",
        TRANSLATION,
    ),
    (
        "tpp-full",
        "first-touch",
        "zen4-cxl",
        tight!("tpp", "os.policy.scan_period" = "100 us"),
        "kv,keys=6e4,requests=6e4,threads=2",
        FULL,
    ),
    (
        "numa-balancing-full",
        "first-touch",
        "zen4-cxl",
        tight!("numa-balancing", "os.policy.scan_period" = "100 us"),
        "pmbench,bytes=24 MiB,accesses=3e5",
        FULL,
    ),
    (
        "trident-translation",
        "native-4k",
        "skylake-6140",
        &[
            ("os.policy.name", "trident"),
            ("os.policy.scan_sleep", "100 us"),
            ("os.policy.zero_period", "100 us"),
        ],
        "growth,bytes=64 MiB,chunk=4 MiB,accesses=5e4,compute=2e6",
        TRANSLATION,
    ),
    (
        "ranger-full",
        "native-4k",
        "broadwell-2650v4",
        &[("os.policy.name", "ranger"), ("os.policy.period", "100 us")],
        "churn,bytes=32 MiB,largest=8 MiB,allocations=40,uses=2e3,threads=2",
        FULL,
    ),
    (
        "hawkeye-full",
        "native-4k",
        "skylake-6140",
        &[
            ("os.policy.name", "hawkeye"),
            ("os.policy.sample_period", "100 us"),
            ("os.policy.sample_window", "30 us"),
            ("os.policy.zero_period", "100 us"),
        ],
        "hashjoin,build=4e4,probe=6e4",
        FULL,
    ),
    ("clock-dwf-full", "first-touch", "zen4-cxl", tight!("clock-dwf"), "kv,keys=6e4,requests=6e4", FULL),
    // Translation coherence in hardware, and a hypervisor that pages.
    (
        "hatric-full",
        "hatric",
        "haswell-32",
        tight!("nimble", "os.policy.period" = "100 us"),
        "kv,keys=6e4,requests=6e4,threads=2",
        FULL,
    ),
    ("unitd-full", "hatric-unitd", "haswell-32", &[], "changes", FULL),
    (
        "virtual-hypervisor-policy-full",
        "virtual-hatric",
        "haswell-32",
        &[
            ("os.reserved", "0 MiB"),
            ("tier.0.capacity", "12 MiB"),
            ("tier.1.capacity", "128 MiB"),
            ("vm.memory", "96 MiB"),
            ("host.policy.free_pool", "1 MiB"),
        ],
        "kv,keys=6e4,requests=6e4,threads=2",
        FULL,
    ),
    // Kernels and the host in turns.
    ("gpu-bw-aware-full", "gpu-bw-aware", "gpu-gtx480", &[], "gpu-stream,bytes=3 MiB,iterations=2", FULL),
    ("gpu-memcpy-full", "gpu-memcpy", "gpu-gtx480", &[], "turns", FULL),
    ("gpu-migrate-full", "gpu-migrate-th-re-bwb", "gpu-gtx480", &[], "turns", FULL),
    ("gpu-faults-full", "gpu-local", "gpu-gtx480", &[("gpu.fault.latency", "20 us")], "turns", FULL),
    ("selective-naive-full", "selective-naive", "gpu-selective", &[], "turns", FULL),
    ("selective-cc-vt-full", "selective-cc-vt", "gpu-selective", &[], "gpu-bfs,nodes=4096,degree=4", FULL),
    ("selective-ro-full", "selective-ro", "gpu-selective", &[], "turns", FULL),
    ("gpu-hw-coherent-full", "gpu-hw-coherent", "gpu-selective", &[], "turns", FULL),
];

/// Everything that a run answered, a line each.
fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (name, stat) in outcome.stats.iter() {
        let _ = match &stat.value {
            Value::Integer(value) => writeln!(text, "{name} {value}"),
            // Bits, so that nothing is rounded.
            Value::Real(value) => writeln!(text, "{name} {value:?}"),
            Value::Histogram(value) => writeln!(text, "{name} {value:?}"),
        };
    }
    for note in &outcome.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let Outcome { accesses, instructions, cycles, seconds_simulated, contiguity, .. } = outcome;
    let _ = writeln!(
        text,
        "{accesses} accesses, {instructions} instructions, {cycles} cycles, {seconds_simulated:?} s"
    );
    let _ = writeln!(text, "{contiguity:?}");
    text
}

fn run_one(&(_, name, machine, sets, input, fidelity): &Saved) -> String {
    let design = design(name, machine, sets);
    let options = Options { fidelity, ..Options::default() };
    let outcome = match input {
        "changes" => run_with(&design, &mut changes().source(), options),
        "turns" => run_with(&design, &mut turns().source(), Options { whole: true, ..options }),
        _ => run_with(&design, &mut *workload(input), options),
    };
    text(&outcome.unwrap_or_else(|error| panic!("{name} on {input}: {error}")))
}

#[test]
fn every_statistic_is_as_it_was() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/saved");
    let halves = RUNS.split_at(RUNS.len() / 2);
    let results: Vec<(&Saved, String)> = std::thread::scope(|scope| {
        let threads = [halves.0, halves.1].map(|half| {
            scope.spawn(move || half.iter().map(|saved| (saved, run_one(saved))).collect::<Vec<_>>())
        });
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut moved = Vec::new();
    for (saved, now) in results {
        let path = folder.join(saved.0).with_extension("txt");
        if std::env::var_os("TERRACE_UPDATE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &now).unwrap();
        }
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        if now == before {
            continue;
        }
        let lines = now.lines().filter(|line| !before.lines().any(|old| old == *line));
        let first: Vec<_> = lines.take(8).collect();
        moved.push(format!("{}:\n  {}", saved.0, first.join("\n  ")));
    }
    assert!(moved.is_empty(), "statistics moved (now):\n{}", moved.join("\n"));
}
