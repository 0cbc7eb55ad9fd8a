//! Conservation: what leaves one level enters the next, cycles are blamed exactly once, pages add up.

use crate::support::*;
use terrace_model::PageSize;
use terrace_sim::design::{Design, Placement};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::{AccessKind, EventSource, KernelAccess};

const DESIGNS: [&str; 15] = [
    "native-4k",
    "native-2m",
    "native-1g",
    "native-thp",
    "perfect-tlb",
    "vivt",
    "all-fast",
    "all-slow",
    "first-touch",
    "interleave",
    "weighted-interleave",
    "colt",
    "rmm",
    "direct-segment",
    "spot",
];

const WORKLOADS: [&str; 5] = [
    "gups,bytes=12 MiB,updates=2e4",
    "kv,keys=4e3,requests=1e4",
    "stencil,side=48",
    "stream,bytes=3 MiB,iterations=1,threads=3",
    "kv,keys=4e3,requests=1e4,threads=6",
];

/// Small caches and TLBs, so that little input fills them, and a small first tier, so that it spills.
fn tight(name: &str, machine: &str) -> Design {
    let mut design = design(name, machine, &[("cache.l2.capacity", "64 KiB"), ("core.count", "4")]);
    design.cache.llc.capacity.0 = 64 * 1024 * u64::from(design.cache.llc.ways);
    design
}

/// Sum of the statistics under `prefix` whose names end in one of `names`.
fn sum(outcome: &Outcome, prefix: &str, names: &[&str]) -> u64 {
    let stats = outcome.stats.iter();
    let of = stats.filter(|(name, _)| {
        name.strip_prefix(prefix).is_some_and(|rest| names.iter().any(|name| rest.ends_with(name)))
    });
    of.map(|(name, _)| outcome.stats.integer(name)).sum()
}

/// Checks every identity on a full run; `lines` are the accesses that lie on two lines.
fn check(design: &Design, outcome: &Outcome, lines: u64, what: &str) {
    let n = |name: &str| count(outcome, name);
    let perfect = design.translation.scheme.kind == "perfect-tlb";
    let requests = outcome.accesses + lines + n("os.kernel_lines");

    // Caches.
    let lookups = |level: &str| n(&format!("cache.{level}.hit")) + n(&format!("cache.{level}.miss"));
    let fetched = n("walk.memory_refs") + n("walk.dirty_updates") + n("os.page_table_stores");
    assert_eq!(
        lookups("l1"),
        requests + fetched,
        "{what}: L1 sees every access and every entry walked or changed"
    );
    assert_eq!(lookups("l2"), n("cache.l1.miss"), "{what}: L2 sees what L1 missed");
    assert_eq!(lookups("llc"), n("cache.l2.miss"), "{what}: the last level sees what L2 missed");
    let prefetches = n("cache.prefetches");
    assert!(prefetches == 0 || design.cache.prefetcher.enabled, "{what}: a prefetcher that is off");

    // Tiers.
    let by = |who: &str| sum(outcome, "tier.", &[&format!("bytes_by.{who}")]);
    let (reads, writes) = (sum(outcome, "tier.", &[".reads"]), sum(outcome, "tier.", &[".writes"]));
    assert_eq!(64 * reads, sum(outcome, "tier.", &["bytes_read"]), "{what}");
    assert_eq!(64 * writes, sum(outcome, "tier.", &["bytes_written"]), "{what}");
    assert_eq!(
        by("demand") + by("walk") + by("kernel"),
        64 * (n("cache.llc.miss") + n("cache.outside_fills")),
        "{what}: fills"
    );
    assert_eq!(by("writeback"), 64 * n("cache.llc.writeback"), "{what}: writebacks");
    let zeroed = by("zero") + 64 * n("cache.zero_fills");
    assert_eq!(zeroed, n("os.faults") * 4096 + zeroed_beyond_base(outcome), "{what}: zeroed pages");
    assert_eq!(by("copy"), 0, "{what}");
    assert!(by("prefetch") <= 64 * prefetches, "{what}: what is prefetched from memory was asked for");
    let all: u64 =
        ["demand", "walk", "kernel", "writeback", "zero", "prefetch"].iter().map(|who| by(who)).sum();
    assert_eq!(64 * (reads + writes), all, "{what}: every transfer has an initiator");

    // TLBs.
    let l1_hits = sum(outcome, "tlb.l1d.", &[".hit"]);
    let l1_misses = sum(outcome, "tlb.l1d.", &[".miss"]);
    if design.translation.scheme.kind != "vivt" {
        let bypassed = outcome.stats.integer("tlb.segment.hit");
        assert_eq!(l1_hits + l1_misses + bypassed, requests, "{what}: every access translates");
    }
    assert_eq!(l1_misses, n("tlb.l2.hit") + n("tlb.l2.miss"), "{what}: level 2 sees what level 1 missed");
    let by_range = outcome.stats.integer("tlb.range.hit");
    assert_eq!(n("walk.count") + by_range, n("tlb.l2.miss"), "{what}: every miss walks once");
    assert!(n("walk.memory_refs") >= n("walk.count") && n("walk.memory_refs") <= 4 * n("walk.count"));
    let cached = n("walk.page_walk_cache.hit") + n("walk.page_walk_cache.miss");
    let cache = design.translation.page_walk_cache.entries > 0;
    assert_eq!(
        cached,
        if cache { n("walk.count") } else { 0 },
        "{what}: every walk asks the page-walk cache"
    );
    if perfect {
        assert_eq!((l1_misses, n("walk.cycles")), (0, 0), "{what}");
    } else {
        assert!(n("walk.count") > 0, "{what}");
    }

    check_cycles(outcome, what);

    // Pages.
    let resident: u64 = PageSize::ALL.iter().map(|size| n(&format!("os.resident_bytes.{size}")) / 4096).sum();
    let brought: u64 =
        PageSize::ALL.iter().map(|size| n(&format!("os.faults_by_size.{size}")) * size.base_pages()).sum();
    assert_eq!(n("os.faults"), sum(outcome, "os.faults_by_size.", &[""]), "{what}");
    assert_eq!(resident, brought - n("os.pages_freed"), "{what}: what came and did not go");
    let reserved = design.os.reserved.0 / 4096;
    let used = sum(outcome, "tier.", &[".pages"]);
    assert_eq!(used, resident + reserved + n("os.page_table_pages"), "{what}: every frame has an owner");
    assert!(n("os.fault_cycles") <= n("core.cycles.os"), "{what}");
}

/// Faults of large pages zero all of them.
fn zeroed_beyond_base(outcome: &Outcome) -> u64 {
    let of = |size: PageSize| count(outcome, &format!("os.faults_by_size.{size}")) * (size.bytes() - 4096);
    of(PageSize::Huge) + of(PageSize::Giant)
}

/// Every cycle of every core is blamed on one thing; things that a fidelity does not simulate are absent.
fn check_cycles(outcome: &Outcome, what: &str) {
    let parts = ["base", "translation", "cache", "memory", "os", "idle"];
    let parts: u64 = parts.iter().map(|part| outcome.stats.integer(&format!("core.cycles.{part}"))).sum();
    assert_eq!(parts, outcome.cycles * count(outcome, "core.cores_used"), "{what}: cycles");
}

fn whole(design: &Design, source: &mut dyn EventSource, fidelity: Fidelity) -> Outcome {
    run_with(design, source, Options { fidelity, whole: true, ..Options::default() }).unwrap()
}

#[test]
fn every_design_conserves_on_every_workload() {
    for name in DESIGNS {
        let design = tight(name, "vbi-table1");
        for spec in WORKLOADS {
            if name == "native-1g" && spec.contains("kv") {
                // Two pages of 1 GiB for each of its areas take seconds to zero.
                continue;
            }
            let outcome = whole(&design, &mut *endless(spec), Fidelity::Full);
            let two = two_line_accesses(spec);
            check(&design, &outcome, two, &format!("{name} on {spec}"));
        }
    }
}

/// Accesses of a workload that lie on two lines.
fn two_line_accesses(spec: &str) -> u64 {
    let mut source = workload(spec);
    let mut two = 0;
    while let Some(batch) = source.next_batch().unwrap() {
        let rows = batch.addr.iter().zip(&batch.size);
        two += rows.filter(|(addr, size)| *addr % 64 + u64::from(**size) > 64).count() as u64;
    }
    two
}

#[test]
fn every_machine_conserves() {
    for machine in
        ["skylake-6140", "haswell-32", "broadwell-2650v4", "xeon-5218-dcpmm", "e5-2699v3", "zen4-cxl"]
    {
        for name in ["native-4k", "native-thp", "weighted-interleave"] {
            let design = tight(name, machine);
            for spec in ["gups,bytes=4 MiB,updates=1e4,threads=4", "kv,keys=2e3,requests=5e3,threads=2"] {
                let outcome = whole(&design, &mut *endless(spec), Fidelity::Full);
                check(&design, &outcome, two_line_accesses(spec), &format!("{name} on {machine}, {spec}"));
            }
        }
    }
}

#[test]
fn cycles_are_blamed_exactly_once_in_a_region_of_interest_too() {
    for name in ["native-4k", "perfect-tlb", "vivt"] {
        let design = tight(name, "vbi-table1");
        for spec in WORKLOADS {
            for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
                if name == "vivt" && fidelity == Fidelity::Translation {
                    continue;
                }
                let outcome = run(&design, &mut *workload(spec), fidelity);
                check_cycles(&outcome, &format!("{name} on {spec} at {fidelity:?}"));
                assert!(outcome.cycles > 0 && outcome.accesses > 0);
            }
        }
    }
}

#[test]
fn kernel_accesses_are_accesses_to_caches_and_tlbs() {
    let mut program = Program::new();
    program.map(DATA, 64 * PAGE).write(DATA);
    program.kernel(DATA + 32, 3 * PAGE, KernelAccess::Write);
    program.kernel(DATA + 64, 64, KernelAccess::Read);
    program.kernel(DATA + 64, 0, KernelAccess::Read);
    let design = small();
    let outcome = program.run(&design, Fidelity::Full);
    // 3 pages from the middle of a line touch 3 * 64 + 1 lines.
    assert_eq!(counts(&outcome, ["os.kernel_lines", "os.faults"]), [3 * 64 + 1 + 1, 4]);
    assert_eq!(outcome.accesses, 1);
    check(&design, &outcome, 0, "kernel accesses");
}

#[test]
fn a_spilled_tier_still_adds_up() {
    let mut design = tight("native-4k", "vbi-table1");
    design.tiers[0].capacity.0 = 16 * MIB;
    design.os.reserved.0 = 4 * MIB;
    design.os.placement = Placement::FirstTouch;
    let spec = "gups,bytes=24 MiB,updates=4e4,threads=2";
    let outcome = whole(&design, &mut *endless(spec), Fidelity::Full);
    check(&design, &outcome, two_line_accesses(spec), "spilled");
    assert_eq!(count(&outcome, "tier.dram.pages"), 16 * MIB / PAGE);
    assert!(count(&outcome, "tier.pcm.reads") > 0 && count(&outcome, "tier.pcm.writes") > 0);
}

#[test]
fn a_process_that_ended_owns_nothing() {
    for name in ["native-4k", "native-thp", "vivt"] {
        let design = tight(name, "vbi-table1");
        let outcome = whole(&design, &mut *workload("kv,keys=8e3,requests=2e4"), Fidelity::Full);
        check(&design, &outcome, two_line_accesses("kv,keys=8e3,requests=2e4"), name);
        assert_eq!(count(&outcome, "os.page_table_pages"), 0);
        assert_eq!(sum(&outcome, "os.resident_bytes.", &[""]), 0);
        assert_eq!(sum(&outcome, "tier.", &[".pages"]), design.os.reserved.0 / PAGE);
    }
}

#[test]
fn devices_see_what_their_tiers_sent() {
    let design = tight("interleave", "zen4-cxl");
    let outcome = whole(&design, &mut *endless("gups,bytes=16 MiB,updates=4e4"), Fidelity::Full);
    for name in ["dram", "cxl"] {
        for what in ["reads", "writes"] {
            let device = sum(&outcome, &format!("device.{name}.{what}."), &[""]);
            let tier = count(&outcome, &format!("tier.{name}.{what}"));
            assert!(tier > 0);
            assert_eq!(device, tier, "{name}.{what}");
        }
    }
}

/// The second line of an access may find the clock ahead of its own issue, because the first waited for a register.
#[test]
fn accesses_on_two_lines_are_blamed_once() {
    let mut program = Program::new();
    program.map(DATA, 64 * MIB);
    let mut random = Random(7);
    for _ in 0..20_000 {
        let kind = if random.below(2) == 0 { AccessKind::Read } else { AccessKind::Write };
        program.access(DATA + random.below(MIB - 1) * 64 + 60, 8, kind, 0, 1);
    }
    for name in ["native-4k", "perfect-tlb", "vivt"] {
        let mut design = tight(name, "vbi-table1");
        design.cache.l1.outstanding = 2;
        let outcome = program.run(&design, Fidelity::Full);
        let parts = ["base", "translation", "cache", "memory", "os", "idle"];
        let parts = parts.map(|part| count(&outcome, &format!("core.cycles.{part}")));
        assert!(parts.iter().all(|&part| part <= outcome.cycles), "{name}: {parts:?} of {}", outcome.cycles);
        assert_eq!(parts.iter().sum::<u64>(), outcome.cycles * count(&outcome, "core.cores_used"), "{name}");
    }
}

#[test]
fn every_line_that_a_device_moves_finds_its_row() {
    // Writes that still wait in a queue when the run ends are counted by the row they would find.
    for (name, machine) in
        [("interleave", "zen4-cxl"), ("first-touch", "vbi-table1"), ("native-4k", "skylake-6140")]
    {
        let design = tight(name, machine);
        for spec in ["gups,bytes=16 MiB,updates=4e4", "stream,bytes=6 MiB,iterations=1"] {
            let outcome = whole(&design, &mut *endless(spec), Fidelity::Full);
            for (device, parameters) in design.devices.iter().filter(|(_, device)| device.bank.is_some()) {
                let of = |what: &str| sum(&outcome, &format!("device.{device}."), &[what]);
                let by_row = of("row.hit") + of("row.miss") + of("row.conflict");
                let moved =
                    INITIATORS.iter().map(|who| of(&format!("reads.{who}")) + of(&format!("writes.{who}")));
                assert_eq!(by_row, moved.sum::<u64>(), "{name} {spec} {device} {}", parameters.channels);
            }
        }
    }
}

const INITIATORS: [&str; 7] = ["demand", "walk", "writeback", "prefetch", "copy", "zero", "kernel"];
