//! A small comparison with round numbers, shared by this crate's tests.

use crate::{Comparison, HeatMap, HeatRow, InputSummary, ReuseCurves, RunRecord};
use terrace_model::{Histogram, Stats, Unit};

/// One input (`gups`), three designs; 1000 instructions each; `native-4k` is the baseline.
pub(crate) fn comparison() -> Comparison {
    let runs = vec![
        run("native-4k", "radix", 1000, 500),
        run("native-2m", "radix", 625, 125),
        run("perfect-tlb", "perfect-tlb", 500, 0),
    ];
    Comparison {
        title: "Test comparison".to_owned(),
        command: "terrace compare native-4k native-2m perfect-tlb --workload gups".to_owned(),
        date: "2026-01-02".to_owned(),
        tool_version: "0.1.0".to_owned(),
        inputs: vec![input()],
        runs,
        baseline: "native-4k".to_owned(),
        ..Comparison::default()
    }
}

fn run(design: &str, scheme: &str, cycles: u64, translation: u64) -> RunRecord {
    let mut stats = Stats::new();
    stats.count("core.cycles.base", 300, Unit::Cycles);
    stats.count("core.cycles.memory", cycles - translation - 300, Unit::Cycles);
    stats.count("core.cycles.translation", translation, Unit::Cycles);
    stats.count("tlb.l2.miss", translation / 10, Unit::Count);
    stats.count("tier.dram.bytes_read", 6400, Unit::Bytes);
    stats.real("energy.dram", 0.5, Unit::Joules);
    let mut latency = Histogram::default();
    latency.record(3);
    stats.histogram("walk.latency", latency, Unit::Cycles);
    RunRecord {
        design: design.to_owned(),
        design_summary: format!("The {design} design."),
        machine: "test-machine".to_owned(),
        tiers: Vec::new(),
        input: "gups".to_owned(),
        fidelity: "full".to_owned(),
        scale: 1,
        seed: Some(7),
        accesses: 400,
        instructions: 1000,
        cycles,
        seconds_simulated: cycles as f64 * 1e-6,
        wall_seconds: 0.5,
        stats,
        parameters: vec![
            ("core.frequency".to_owned(), "1 GHz".to_owned()),
            ("translation.scheme".to_owned(), scheme.to_owned()),
        ],
        left_out: Vec::new(),
        command: format!("terrace sim --design {design} --workload gups"),
        notes: Vec::new(),
        timeline: Vec::new(),
        contiguity_over_time: Vec::new(),
        scaled_parameters: Vec::new(),
        pools: None,
        uncertainty: None,
    }
}

fn input() -> InputSummary {
    InputSummary {
        name: "gups".to_owned(),
        program: "gups".to_owned(),
        arguments: vec!["table=1 MiB".to_owned()],
        origin: "workload".to_owned(),
        accesses: 400,
        reads: 200,
        writes: 200,
        instructions: 1000,
        threads: 1,
        processes: 1,
        footprint_bytes: 1 << 20,
        heat: HeatMap {
            accesses_per_bin: 200,
            sample_every: 1,
            rows: vec![HeatRow {
                process: 0,
                start: 0x1000,
                bytes: 4096,
                name: "table".to_owned(),
                line: "table.c:7".to_owned(),
            }],
            reads: vec![vec![100, 100]],
            writes: vec![vec![100, 100]],
        },
        reuse: ReuseCurves {
            page_bytes: 4096,
            sampled_share: 1.0,
            memory_bytes: vec![4096, 8192],
            miss_ratio: vec![0.5, 0.0025],
            window_accesses: vec![1, 400],
            working_set_bytes: vec![4096.0, 6144.0],
            ..ReuseCurves::default()
        },
        ..InputSummary::default()
    }
}

/// Everything fast, first touch and a policy on a machine of two tiers, 400 pages in use; slow memory costs 0.4.
pub(crate) fn policies() -> Comparison {
    let placed = |design: &str, cycles, placement: &str, pages: [f64; 2]| {
        let mut run = run(design, "radix", cycles, 0);
        run.parameters = [
            ("os.placement.kind", placement),
            ("os.placement.tier", "fastest"),
            ("tier.dram.capacity", "1 GiB"),
            ("tier.cxl.capacity", "4 GiB"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        for (tier, pages) in ["dram", "cxl"].iter().zip(pages) {
            run.stats.real(format!("tier.{tier}.mean_pages"), pages, Unit::Pages);
        }
        run
    };
    let mut mover = placed("mover", 1100, "first-touch", [100.0, 300.0]);
    for (name, value, unit) in [
        ("policy.calls", 12, Unit::Count),
        ("policy.copied_bytes", 40_960, Unit::Bytes),
        ("policy.ping_pong", 2, Unit::Pages),
        ("policy.wait_time", 2_000_000, Unit::Nanoseconds),
        ("vmstat.pgpromote_success", 7, Unit::Pages),
        ("vmstat.pgdemote_policy", 3, Unit::Pages),
    ] {
        mover.stats.count(name, value, unit);
    }
    Comparison {
        runs: vec![
            placed("all-fast", 1000, "bind", [400.0, 0.0]),
            placed("first-touch", 1250, "first-touch", [200.0, 200.0]),
            mover,
        ],
        baseline: "first-touch".to_owned(),
        prices: vec![("cxl".to_owned(), 0.4)],
        ..comparison()
    }
}

/// Translation coherence by software and by hardware.
pub(crate) fn coherence() -> Comparison {
    let mut software = run("hatric-sw", "radix", 1000, 500);
    let mut hatric = run("hatric", "radix", 960, 460);
    for (name, value, unit) in [
        ("os.shootdowns.count", 4, Unit::Count),
        ("os.shootdowns.targets", 7, Unit::Count),
        ("os.shootdowns.time", 30_001, Unit::Nanoseconds),
        ("os.shootdowns.munmap.time", 25_000, Unit::Nanoseconds),
        ("os.shootdowns.migration.time", 5_000, Unit::Nanoseconds),
    ] {
        software.stats.count(name, value, unit);
    }
    software.parameters.push(("os.costs.interrupt".to_owned(), "1 us".to_owned()));
    for (name, value, unit) in [
        ("os.shootdowns.count", 4, Unit::Count),
        ("os.shootdowns.time", 400, Unit::Nanoseconds),
        ("os.shootdowns.munmap.time", 400, Unit::Nanoseconds),
        ("translation_coherence.messages.invalidations", 9, Unit::Count),
        ("translation_coherence.messages.back_invalidations", 2, Unit::Count),
    ] {
        hatric.stats.count(name, value, unit);
    }
    hatric.stats.real("energy.translation.total", 0.25, Unit::Joules);
    hatric.parameters.push(("translation.coherence".to_owned(), "hatric".to_owned()));
    Comparison { runs: vec![software, hatric], baseline: "hatric-sw".to_owned(), ..comparison() }
}

/// Translation coherence of a guest and its hypervisor: by software, by hardware, and with the guest's changes for nothing.
pub(crate) fn coherence_in_vms() -> Comparison {
    let hosted = |design: &str, coherence: &str, policy: &str, cycles, exits| {
        let mut run = run(design, "radix", cycles, 100);
        for (name, value, unit) in [
            ("os.shootdowns.count", 2, Unit::Count),
            ("os.shootdowns.targets", 3, Unit::Count),
            ("os.shootdowns.time", 2_000, Unit::Nanoseconds),
            ("os.shootdowns.mprotect.time", 2_000, Unit::Nanoseconds),
            ("host.shootdowns.count", 5, Unit::Count),
            ("host.shootdowns.targets", 6, Unit::Count),
            ("host.shootdowns.time", 9_000, Unit::Nanoseconds),
            ("host.shootdowns.fault.time", 1_000, Unit::Nanoseconds),
            ("host.shootdowns.migration.time", 8_000, Unit::Nanoseconds),
            ("host.vm_exits.interrupt", exits, Unit::Count),
        ] {
            run.stats.count(name, value, unit);
        }
        for (key, value) in [
            ("translation.coherence", coherence),
            ("os.costs.interrupt", "1 us"),
            ("host.policy.name", policy),
            ("host.vm_exit", "5 cycles"),
        ] {
            run.parameters.push((key.to_owned(), value.to_owned()));
        }
        run
    };
    let software = hosted("virtual-hatric-sw", "software", "demand-paging", 1000, 6);
    let hatric = hosted("virtual-hatric", "hatric", "demand-paging", 900, 0);
    let mut free = hosted("virtual-hatric-free", "hatric", "nimble", 880, 0);
    free.parameters.push(("translation.hatric.guest_changes".to_owned(), "free".to_owned()));
    Comparison {
        runs: vec![software, hatric, free],
        baseline: "virtual-hatric-sw".to_owned(),
        ..comparison()
    }
}

/// Native, and two virtual machines.
pub(crate) fn virtual_machines() -> Comparison {
    let mut hosted = run("virtual-4k", "radix", 1000, 500);
    for (name, value, unit) in [
        ("walk.count", 50, Unit::Count),
        ("walk.memory_refs", 550, Unit::Count),
        ("walk.host_refs", 400, Unit::Count),
        ("host.ept_violations", 9, Unit::Count),
        ("host.vm_exits.ept_violation", 9, Unit::Count),
        ("host.vm_exits.interrupt", 5, Unit::Count),
        ("host.vm_exits.preemption", 2, Unit::Count),
        ("host.vm_exits.hypercall", 0, Unit::Count),
        ("host.vm_exit_cycles", 50, Unit::Cycles),
        ("vm.0.programs", 1, Unit::Count),
        ("vm.0.accesses", 400, Unit::Count),
        ("vm.0.guest_pages", 20, Unit::Pages),
        ("vm.0.host_pages", 25, Unit::Pages),
        ("vm.0.ept_violations", 4, Unit::Count),
        ("vm.0.interrupts", 5, Unit::Count),
        ("vm.1.programs", 2, Unit::Count),
        ("vm.1.accesses", 600, Unit::Count),
        ("vm.1.guest_pages", 21, Unit::Pages),
        ("vm.1.host_pages", 30, Unit::Pages),
        ("vm.1.ept_violations", 5, Unit::Count),
        ("vm.1.interrupts", 0, Unit::Count),
    ] {
        hosted.stats.count(name, value, unit);
    }
    Comparison { runs: vec![run("native-4k", "radix", 900, 400), hosted], ..comparison() }
}

/// Plain TLBs, and a range TLB under a policy that makes memory contiguous.
pub(crate) fn contiguity() -> Comparison {
    let mut ranger = run("rmm", "radix", 800, 200);
    ranger.parameters.push(("translation.scheme.kind".to_owned(), "rmm".to_owned()));
    for (name, value, unit) in [
        ("tlb.range.hit", 20, Unit::Count),
        ("policy.calls", 12, Unit::Count),
        ("policy.copied_bytes", 40_960, Unit::Bytes),
        ("policy.relocated", 10, Unit::Pages),
        ("policy.interrupts", 9, Unit::Count),
        ("policy.time", 1_000, Unit::Nanoseconds),
        ("policy.migration_time", 30_000, Unit::Nanoseconds),
        ("policy.wait_time", 2_000, Unit::Nanoseconds),
    ] {
        ranger.stats.count(name, value, unit);
    }
    ranger.stats.real("policy.own.coverage_128", 0.75, Unit::Ratio);
    Comparison { runs: vec![run("native-4k", "radix", 1000, 500), ranger], ..comparison() }
}
