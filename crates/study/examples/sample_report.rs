//! Writes a report of invented numbers, to look at the page and to test it without a simulator:
//! `cargo run -p terrace-study --example sample_report -- DIRECTORY`.
//!
//! The address streams are real streams through the real observer; everything a simulator would count is made up from
//! a handful of plausible rates, and the page says so in its title and notes.

use std::path::PathBuf;
use terrace_model::{
    AddressRange, ContiguityPoint, Histogram, Pool, PoolInterval, PoolLink, PoolTraffic, Stats,
    StructureTraffic, Unit,
};
use terrace_report::{Charset, Comparison, InputSummary, MachineLedger, MachineTier, RunRecord, Uncertainty};
use terrace_study::InputObserver;
use terrace_trace::{AccessKind, Batch, Event, Header, MapKind, Protection};

/// Accesses of each invented input.
const ACCESSES: u64 = 4_000_000;

/// What an input is like under 4 KiB pages in DRAM.
struct Profile {
    name: &'static str,
    arguments: &'static [&'static str],
    footprint: u64,
    instructions_per_access: f64,
    /// Cycles per instruction.
    base: f64,
    translation: f64,
    cache: f64,
    memory: f64,
    os: f64,
}

const PROFILES: [Profile; 5] = [
    Profile {
        name: "gups",
        arguments: &["table=4 GiB"],
        footprint: 4 << 30,
        instructions_per_access: 4.0,
        base: 0.3,
        translation: 2.9,
        cache: 0.25,
        memory: 3.1,
        os: 0.22,
    },
    Profile {
        name: "bfs",
        arguments: &["scale=22", "degree=16"],
        footprint: 1 << 30,
        instructions_per_access: 3.2,
        base: 0.35,
        translation: 0.9,
        cache: 0.5,
        memory: 1.6,
        os: 0.08,
    },
    Profile {
        name: "kv",
        arguments: &["keys=8 M", "value=128 B", "zipf=0.99"],
        footprint: 3 << 29,
        instructions_per_access: 5.1,
        base: 0.32,
        translation: 0.55,
        cache: 0.35,
        memory: 0.75,
        os: 0.18,
    },
    Profile {
        name: "stencil",
        arguments: &["n=256"],
        footprint: 256 << 20,
        instructions_per_access: 2.4,
        base: 0.4,
        translation: 0.05,
        cache: 0.3,
        memory: 0.55,
        os: 0.03,
    },
    Profile {
        name: "gups+stencil",
        arguments: &["two programs side by side"],
        footprint: 1 << 30,
        instructions_per_access: 3.2,
        base: 0.35,
        translation: 1.4,
        cache: 0.3,
        memory: 1.9,
        os: 0.1,
    },
];

/// How a design changes a profile: factors on translation, memory, operating system, and its traits.
struct Change {
    name: &'static str,
    summary: &'static str,
    translation: f64,
    memory: f64,
    os: f64,
    pages: &'static str,
    placement: &'static str,
    scheme: &'static str,
    cxl_share: f64,
}

#[rustfmt::skip]
const CHANGES: [Change; 8] = [
    Change { name: "native-4k", summary: "Radix page tables, 4 KiB pages only.", translation: 1.0, memory: 1.0, os: 1.0, pages: "4k", placement: "first-touch", scheme: "radix", cxl_share: 0.0 },
    Change { name: "native-2m", summary: "Radix page tables, 2 MiB pages for every address.", translation: 0.16, memory: 0.97, os: 0.4, pages: "2m", placement: "first-touch", scheme: "radix", cxl_share: 0.0 },
    Change { name: "native-thp", summary: "Transparent huge pages at the fault, as Linux does with enabled=always.", translation: 0.24, memory: 0.98, os: 0.5, pages: "thp", placement: "first-touch", scheme: "radix", cxl_share: 0.0 },
    Change { name: "vivt", summary: "Virtual caches: translation only for, and in parallel with, the last-level cache access.", translation: 0.55, memory: 1.0, os: 1.0, pages: "4k", placement: "first-touch", scheme: "vivt", cxl_share: 0.0 },
    Change { name: "interleave", summary: "Pages alternate between DRAM and CXL memory.", translation: 1.05, memory: 1.45, os: 1.0, pages: "4k", placement: "interleave", scheme: "radix", cxl_share: 0.5 },
    Change { name: "mover", summary: "A policy that keeps what is hot in DRAM.", translation: 1.02, memory: 1.1, os: 1.1, pages: "4k", placement: "first-touch", scheme: "radix", cxl_share: 0.6 },
    Change { name: "all-fast", summary: "Everything in the fastest tier: the bound of all tiering.", translation: 1.0, memory: 0.99, os: 1.0, pages: "4k", placement: "bind", scheme: "radix", cxl_share: 0.0 },
    Change { name: "perfect-tlb", summary: "Every translation is free: the bound of what translation can cost.", translation: 0.0, memory: 0.96, os: 1.0, pages: "4k", placement: "first-touch", scheme: "perfect-tlb", cxl_share: 0.0 },
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err("usage: sample_report DIRECTORY".into());
    };
    let comparison = Comparison {
        title: "Sample data: four workloads and a mix, eight designs".to_owned(),
        command:
            "terrace compare native-4k native-2m native-thp vivt interleave mover all-fast perfect-tlb --price cxl=0.4 --workload gups \
                  --workload bfs --workload kv --workload stencil"
                .to_owned(),
        date: "2026-01-02".to_owned(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        inputs: PROFILES.iter().map(input).collect(),
        runs: PROFILES.iter().flat_map(|profile| CHANGES.iter().map(|change| run(profile, change))).collect(),
        baseline: "native-4k".to_owned(),
        prices: vec![("cxl".to_owned(), 0.4)],
        failures: Vec::new(),
        machines: vec![MachineLedger {
            name: "zen4-cxl".to_owned(),
            cited: vec!["core, translation, cache: a data sheet".to_owned()],
            assumed: vec!["tier.*.path_latency: no source".to_owned(), "core.base_cpi: no source".to_owned()],
            ..MachineLedger::default()
        }],
    };
    print!("{}", comparison.table(80, Charset::from_environment()));
    println!("{}", comparison.write_directory(&directory)?.display());
    Ok(())
}

/// Under the policy memory comes together, otherwise it falls apart a little.
/// Memories of a GPU that nobody has: the mover's traffic goes over to the fast one.
fn pools_of(change: &Change, profile: &Profile) -> Option<PoolTraffic> {
    let moves = change.name == "mover";
    if profile.name != "stencil" || !(moves || change.name == "native-4k") {
        return None;
    }
    let pool = |name: &str, bytes_per_second| Pool { name: name.to_owned(), bytes_per_second };
    let interval = |at: u64| {
        let moved = if moves { 20_000 - at * 500 } else { 0 };
        let near = if moves { 4_000 + at * 3_000 } else { 60_000 + at % 7 * 900 };
        PoolInterval {
            demand: vec![near, 70_000 - near / 2],
            migration: vec![moved; 2],
            to_cpu: 6_000 + at * 10,
            to_gpu: 70_000 - near / 2,
        }
    };
    let structure = |name: &str, mib: u64, lines: [u64; 2]| StructureTraffic {
        name: name.to_owned(),
        code_line: String::new(),
        bytes: mib << 20,
        lines: lines.into(),
    };
    Some(PoolTraffic {
        pools: vec![pool("dram", 2e11), pool("cxl", 8e10)],
        link: Some(PoolLink { to_cpu: 1.28e11, to_gpu: 1.28e11 }),
        interval_seconds: 1e-6,
        intervals: (0..40).map(interval).collect(),
        structures: vec![structure("grid", 192, [70_000, 21_000]), structure("halo", 3, [900, 14_000])],
    })
}

fn over_time(change: &Change) -> Vec<ContiguityPoint> {
    if !["native-4k", "native-thp", "mover"].contains(&change.name) {
        return Vec::new();
    }
    let comes_together = change.name == "mover";
    let point = |at: u32| {
        let passed = f64::from(at) / 30.0;
        let coverage_128 = if comes_together { 0.1 + 0.52 * passed.sqrt() } else { 0.1 - 0.05 * passed };
        let regions =
            if comes_together { 40_000 - 1_200 * u64::from(at) } else { 40_000 + 90 * u64::from(at) };
        ContiguityPoint {
            seconds: 0.004 * f64::from(at + 1),
            regions,
            coverage_32: coverage_128 / 2.0,
            coverage_128,
        }
    };
    (0..=30).map(point).collect()
}

fn run(profile: &Profile, change: &Change) -> RunRecord {
    let accesses = ACCESSES as f64;
    let instructions = accesses * profile.instructions_per_access;
    let part = |cycles_per_instruction: f64| (cycles_per_instruction * instructions).round() as u64;
    let components = [
        ("base", part(profile.base)),
        ("translation", part(profile.translation * change.translation)),
        ("cache", part(profile.cache)),
        ("memory", part(profile.memory * change.memory)),
        ("os", part(profile.os * change.os)),
    ];
    let cycles: u64 = components.iter().map(|(_, cycles)| cycles).sum();
    let mut stats = Stats::new();
    for (name, cycles) in components {
        stats.count(format!("core.cycles.{name}"), cycles, Unit::Cycles);
    }

    let l2_miss = (accesses * 0.09 * profile.translation * change.translation).round() as u64;
    let l1_miss = l2_miss * 3 + (accesses * 0.01 * change.translation) as u64;
    let l1 = if change.pages == "2m" { "2m" } else { "4k" };
    for size in ["4k", "2m", "1g"] {
        let used = size == l1;
        stats.count(format!("tlb.l1d.{size}.miss"), if used { l1_miss } else { 0 }, Unit::Count);
        stats.count(format!("tlb.l1d.{size}.hit"), if used { ACCESSES - l1_miss } else { 0 }, Unit::Count);
    }
    let references = if change.pages == "4k" { 1.32 } else { 1.08 };
    stats.count("tlb.l2.hit", l1_miss - l2_miss, Unit::Count);
    stats.count("tlb.l2.miss", l2_miss, Unit::Count);
    stats.count("walk.count", l2_miss, Unit::Count);
    stats.count("walk.memory_refs", (l2_miss as f64 * references) as u64, Unit::Count);
    stats.count("walk.cycles", l2_miss * 62, Unit::Cycles);
    let mut latency = Histogram::default();
    for cycles in [20, 31, 45, 62, 80, 170, 240] {
        latency.record(cycles);
    }
    stats.histogram("walk.latency", latency, Unit::Cycles);

    let llc_miss = (accesses * 0.055 * profile.memory) as u64;
    for (level, hit, miss) in [
        ("l1", ACCESSES - llc_miss * 2, llc_miss * 2),
        ("l2", llc_miss / 3, llc_miss * 5 / 3),
        ("llc", llc_miss * 2 / 3, llc_miss),
    ] {
        stats.count(format!("cache.{level}.hit"), hit, Unit::Count);
        stats.count(format!("cache.{level}.miss"), miss, Unit::Count);
        stats.count(format!("cache.{level}.writeback"), miss / 3, Unit::Count);
    }
    for (tier, share, joules) in [("dram", 1.0 - change.cxl_share, 20e-9), ("cxl", change.cxl_share, 31e-9)] {
        let reads = (llc_miss as f64 * share) as u64;
        let writes = reads / 3;
        stats.count(format!("tier.{tier}.reads"), reads, Unit::Count);
        stats.count(format!("tier.{tier}.writes"), writes, Unit::Count);
        stats.count(format!("tier.{tier}.bytes_read"), reads * 64, Unit::Bytes);
        stats.count(format!("tier.{tier}.bytes_written"), writes * 64, Unit::Bytes);
        let moved = (reads + writes) * 64;
        let walks = (moved as f64 * 0.2 * change.translation) as u64;
        for (cause, bytes) in
            [("demand", moved - moved / 4 - walks), ("walk", walks), ("writeback", moved / 4)]
        {
            stats.count(format!("tier.{tier}.bytes_by.{cause}"), bytes, Unit::Bytes);
        }
        stats.count(
            format!("tier.{tier}.pages"),
            (profile.footprint as f64 * share) as u64 / 4096,
            Unit::Pages,
        );
        stats.real(format!("tier.{tier}.mean_pages"), profile.footprint as f64 * share / 4096.0, Unit::Pages);
        stats.real(format!("energy.{tier}"), (reads + writes) as f64 * joules, Unit::Joules);
    }
    if change.name == "mover" {
        let pages = profile.footprint / 4096;
        for (name, value, unit) in [
            ("policy.calls", 120, Unit::Count),
            ("policy.copied_bytes", profile.footprint / 3, Unit::Bytes),
            ("policy.ping_pong", pages / 90, Unit::Pages),
            ("policy.interrupts", pages / 20, Unit::Count),
            ("policy.wait_time", 410_000, Unit::Nanoseconds),
            ("policy.time", 2_700_000, Unit::Nanoseconds),
            ("policy.migration_time", 31_000_000, Unit::Nanoseconds),
            ("policy.relocated", pages / 30, Unit::Pages),
            ("vmstat.pgpromote_success", pages / 7, Unit::Pages),
            ("vmstat.pgdemote_policy", pages / 5, Unit::Pages),
        ] {
            stats.count(name, value, unit);
        }
        stats.real("policy.own.coverage_128", 0.62, Unit::Ratio);
    }
    let (small, huge) = match change.pages {
        "2m" => (0, profile.footprint + (24 << 20)),
        "thp" => (profile.footprint / 16, profile.footprint * 15 / 16),
        _ => (profile.footprint, 0),
    };
    for (size, bytes) in [("4k", small), ("2m", huge), ("1g", 0)] {
        stats.count(format!("os.resident_bytes.{size}"), bytes, Unit::Bytes);
    }
    stats.count("os.faults", small / 4096 + huge / (2 << 20), Unit::Count);
    stats.count("os.fault_cycles", components[4].1, Unit::Cycles);

    if profile.name.contains('+') {
        add_mix(&mut stats, profile, cycles);
    }

    let parameter = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    RunRecord {
        design: change.name.to_owned(),
        design_summary: change.summary.to_owned(),
        machine: "zen4-cxl".to_owned(),
        tiers: [("dram", 64, 95.0), ("cxl", 256, 250.0)].map(machine_tier).into(),
        input: profile.name.to_owned(),
        fidelity: "full".to_owned(),
        scale: 4,
        seed: Some(42),
        accesses: ACCESSES,
        instructions: instructions as u64,
        cycles,
        seconds_simulated: cycles as f64 / 3.7e9,
        wall_seconds: accesses / 21.5e6,
        stats,
        scaled_parameters: Vec::new(),
        parameters: vec![
            parameter("core.count", "8"),
            parameter("core.frequency", "3.7 GHz"),
            parameter("core.dispatch_width", "6"),
            parameter("core.reorder_buffer", "320"),
            parameter("translation.scheme", change.scheme),
            parameter("translation.l1d.4k.entries", "72"),
            parameter("translation.l2.array[0].entries", "3072"),
            parameter("translation.page_walk_cache.entries", "64"),
            parameter("cache.l1.capacity", "32 KiB"),
            parameter("cache.l2.capacity", "1 MiB"),
            parameter("cache.llc.capacity", "32 MiB"),
            parameter("cache.llc.index", "hashed"),
            parameter("cache.prefetcher.enabled", "true"),
            parameter("tier.dram.capacity", "64 GiB"),
            parameter("tier.cxl.capacity", "256 GiB"),
            parameter("tier.cxl.link.latency", "70 ns"),
            parameter("os.pages", change.pages),
            parameter("os.placement.kind", change.placement),
            parameter("os.placement.tier", "dram"),
        ],
        left_out: vec!["speculative wrong-path accesses".to_owned()],
        command: format!(
            "terrace sim --design {} --workload {} --scale 4 --seed 42",
            change.name, profile.name
        ),
        timeline: Vec::new(),
        contiguity_over_time: over_time(change),
        pools: pools_of(change, profile),
        uncertainty: Some(Uncertainty {
            os_constants: 0.1 * profile.os * (1.0 - change.os).abs(),
            memory_constants: 0.02 + 0.2 * (1.0 - change.memory).abs(),
            seeds: Some(0.004),
        }),
        notes: [
            Some("Sample data: these numbers are invented to show the page; no simulation made them."),
            (profile.name == "gups").then_some("The updates of this input are invented one by one."),
        ]
        .into_iter()
        .flatten()
        .map(str::to_owned)
        .collect(),
    }
}

/// What each program of a mix did and lost.
fn add_mix(stats: &mut Stats, profile: &Profile, cycles: u64) {
    let programs = [("gups", 1.21, 2), ("stencil", 1.06, 0)];
    stats.count("mix.programs", programs.len() as u64, Unit::Count);
    let mut weighted = 0.0;
    let nanos = cycles as f64 / 3.7;
    for (name, slowdown, repeats) in programs {
        let stat = |what: &str| format!("mix.program.{name}.{what}");
        stats.count(stat("accesses"), ACCESSES / 2, Unit::Count);
        stats.count(
            stat("instructions"),
            (ACCESSES as f64 * profile.instructions_per_access / 2.0) as u64,
            Unit::Count,
        );
        stats.count(stat("repeats"), repeats, Unit::Count);
        stats.real(
            stat("ipc"),
            ACCESSES as f64 * profile.instructions_per_access / 2.0 / cycles as f64,
            Unit::Ratio,
        );
        stats.real(stat("time"), nanos, Unit::Nanoseconds);
        stats.real(stat("alone_time"), nanos / slowdown, Unit::Nanoseconds);
        stats.real(stat("slowdown"), slowdown, Unit::Ratio);
        weighted += 1.0 / slowdown;
    }
    stats.real("mix.weighted_speedup", weighted, Unit::Ratio);
    stats.real("mix.harmonic_speedup", weighted / programs.len() as f64, Unit::Ratio);
    stats.real("mix.largest_slowdown", 1.21, Unit::Ratio);
}

fn machine_tier((name, gib, read_latency_ns): (&str, u64, f64)) -> MachineTier {
    MachineTier { name: name.to_owned(), capacity_bytes: gib << 30, read_latency_ns }
}

/// A synthetic address stream with the look of the workload, seen by the real observer.
fn input(profile: &Profile) -> InputSummary {
    let mut observer = InputObserver::new();
    let mut batch = Batch::default();
    let table = 0x7f00_0000_0000u64;
    let stack = 0x7fff_ffff_0000u64;
    for (start, bytes, kind, name) in [
        (0x40_0000, 1 << 20, MapKind::PrivateFile, format!("/usr/bin/{}", profile.name)),
        (table, profile.footprint, MapKind::Anonymous, String::new()),
        (stack, 1 << 16, MapKind::Stack, "[stack]".to_owned()),
    ] {
        let range = AddressRange::new(start, bytes);
        batch.push_event(1, Event::Map { range, kind, protection: Protection::READ_WRITE, name });
    }
    let sites = match profile.name {
        "bfs" => ["offsets", "edges", "parents"],
        "kv" => ["buckets", "entries", "log"],
        "stencil" => ["in", "out", "coefficients"],
        _ => ["table", "table", "table"],
    };
    let third = (profile.footprint / 3) & !4095;
    for (at, site) in sites.iter().enumerate() {
        let at = at as u64;
        batch.push_event(0, Event::Site { site: at as u32, name: (*site).to_owned() });
        let range = AddressRange::new(table + at * third, third);
        batch.push_event(2 + at, Event::Alloc { object: at, site: at as u32, range });
    }
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        random >> 33
    };
    for i in 0..ACCESSES {
        let time = i as f64 / ACCESSES as f64;
        let r = next();
        let offset = match profile.name {
            "gups" => ((r << 12) | (next() % 4096)) % (third * 3),
            // The frontier of a search sweeps the edges while parents are hit at random.
            "bfs" if r % 3 == 0 => third * 2 + next() * 64 % third,
            "bfs" if r % 3 == 1 => third + ((time * 5.0).fract() * third as f64) as u64 + next() % (4 << 20),
            "bfs" => (next() % 65536) * (next() % 65536) % third,
            // Keys by popularity; the log grows.
            "kv" if r % 8 == 0 => third * 2 + (time * (third - 4096) as f64) as u64,
            "kv" if r % 8 < 3 => (next() % 32768) * (next() % 32768) % third,
            "kv" => {
                third + (next() % 32768) * (next() % 32768) / 3 % ((third as f64 * (0.3 + 0.7 * time)) as u64)
            }
            // Two arrays swept in turn, thirteen times.
            _ if r % 40 == 0 => third * 2 + next() % (64 << 10),
            _ => third * (r & 1) + ((time * 13.0).fract() * third as f64) as u64 % third,
        };
        let addr = if r % 23 == 0 { stack + 0x8000 + next() % 8192 } else { table + offset % (third * 3) };
        let kind = if r % 7 < 2 { AccessKind::Write } else { AccessKind::Read };
        batch.push(addr, 8, kind, 0, profile.instructions_per_access as u16);
        if batch.len() == 4096 {
            observer.observe(&batch);
            batch.clear();
        }
    }
    let header = Header {
        program: profile.name.to_owned(),
        arguments: profile.arguments.iter().map(|&a| a.to_owned()).collect(),
        origin: "workload".to_owned(),
        seed: Some(42),
        ..Header::default()
    };
    observer.finish(profile.name, &header)
}
