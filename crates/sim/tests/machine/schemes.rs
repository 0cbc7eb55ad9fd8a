//! The bound of all TLBs, and caches that need no translation.

use crate::support::*;
use terrace_sim::design::{Design, PagePolicy};
use terrace_sim::{Fidelity, Outcome};
use terrace_trace::MarkKind;

const WORKLOADS: [&str; 6] = [
    "gups,bytes=32 MiB,updates=2e4",
    "chase,bytes=24 MiB,accesses=2e4",
    "kv,keys=1e4,requests=15e3",
    "stencil,side=48",
    "stream,bytes=3 MiB,iterations=1",
    "hashjoin,build=2e4,probe=3e4",
];

fn sum(outcome: &Outcome, what: &str) -> u64 {
    ["4k", "2m", "1g"].iter().map(|size| count(outcome, &format!("tlb.l1d.{size}.{what}"))).sum()
}

#[test]
fn a_perfect_tlb_always_hits_and_never_waits() {
    for pages in [PagePolicy::Base, PagePolicy::Thp] {
        let design = with_pages(design("perfect-tlb", "vbi-table1", &[]), pages);
        for spec in WORKLOADS {
            for fidelity in [Fidelity::Full, Fidelity::Translation] {
                let outcome = run(&design, &mut *workload(spec), fidelity);
                assert_eq!(sum(&outcome, "miss"), 0, "{spec}");
                assert!(sum(&outcome, "hit") >= outcome.accesses, "{spec}");
                let names = ["tlb.l2.hit", "tlb.l2.miss", "walk.count", "walk.memory_refs", "walk.cycles"];
                assert_eq!(counts(&outcome, names), [0; 5], "{spec}");
                assert_eq!(count(&outcome, "walk.dirty_updates"), 0, "{spec}");
            }
        }
    }
}

#[test]
fn a_perfect_tlb_blames_nothing_on_translation() {
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    for page in 0..1024 {
        program.read(DATA + page * PAGE);
    }
    let mut random = Random(3);
    for step in 0..20_000 {
        if step == 1000 {
            program.mark(MarkKind::RegionBegin);
        }
        program.chase(DATA + random.below(4 * MIB / 64) * 64);
    }
    let perfect = program.run(&with_scheme(small(), "perfect-tlb"), Fidelity::Full);
    assert_eq!(count(&perfect, "core.cycles.translation"), 0);
    let radix = program.run(&small(), Fidelity::Full);
    assert!(count(&radix, "core.cycles.translation") > 20_000);
}

#[test]
fn nothing_beats_a_perfect_tlb() {
    let mut failed = Vec::new();
    for (machine, pages, names) in [
        ("vbi-table1", PagePolicy::Base, &["native-4k", "vivt"][..]),
        ("vbi-table1", PagePolicy::Huge, &["native-2m"]),
        ("zen4-cxl", PagePolicy::Base, &["native-4k", "vivt"]),
        ("zen4-cxl", PagePolicy::Huge, &["native-2m"]),
    ] {
        // A prefetcher is ahead of a core that walks by more than of one that does not.
        let alone = [("os.zero_stores", "non-temporal"), ("cache.prefetcher.enabled", "false")];
        let designs: Vec<Design> = names.iter().map(|name| design(name, machine, &alone)).collect();
        assert!(designs.iter().all(|design| design.os.pages == pages));
        for spec in WORKLOADS {
            let of = |design: &Design| run(design, &mut *workload(spec), Fidelity::Full);
            // The bound is the same for all designs with the same pages.
            let bound = of(&with_scheme(designs[0].clone(), "perfect-tlb"));
            for design in &designs {
                let own = of(design);
                assert_eq!(own.accesses, bound.accesses);
                let slowdown = own.cycles as f64 / bound.cycles as f64;
                // Page-table lines in the caches and other names of lines shift conflicts and turns a little.
                if slowdown < 0.998 {
                    failed.push(format!(
                        "{} on {machine}, {spec}: {slowdown:.4} of the perfect TLB's time",
                        design.name
                    ));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn vivt() -> Design {
    let mut design = with_scheme(small(), "vivt");
    design.os.pages = PagePolicy::Huge;
    design
}

#[test]
fn virtual_caches_translate_only_what_misses_the_level_2_cache() {
    let design = vivt();
    let lines = |kib: u64| kib * KIB / 64;
    let program = |lines: u64, rounds: u64| {
        let mut program = Program::new();
        program.map(DATA, 2 * MIB);
        for _ in 0..rounds {
            for line in 0..lines {
                program.read(DATA + 64 * line);
            }
        }
        program
    };
    let lookups = |outcome: &Outcome| sum(outcome, "hit") + sum(outcome, "miss");
    // Fits into L1, then into L2: each line translates once.
    for kib in [16, 128] {
        let outcome = program(lines(kib), 5).run(&design, Fidelity::Full);
        assert_eq!(lookups(&outcome), lines(kib), "{kib} KiB");
        assert_eq!(count(&outcome, "walk.count"), 1);
    }
    // Twice the L2 of 256 KiB: every access translates; all but the first hit the TLB.
    let outcome = program(lines(512), 5).run(&design, Fidelity::Full);
    assert_eq!(lookups(&outcome), 5 * lines(512));
    assert_eq!(counts(&outcome, ["tlb.l1d.2m.miss", "walk.count"]), [1, 1]);
    // The walk's own three entries miss the L2 as well; they need no translation.
    assert_eq!(count(&outcome, "cache.l2.miss"), 5 * lines(512) + 3);
}

#[test]
fn virtual_caches_forget_lines_of_memory_that_went() {
    let design = with_pages(vivt(), PagePolicy::Base);
    let mut program = Program::new();
    program.map(DATA, PAGE).write(DATA).write(DATA + 64).unmap(DATA, PAGE);
    program.map(DATA, PAGE).read(DATA).read(DATA + 128);
    let outcome = program.run(&design, Fidelity::Full);
    // The page that came after it is another one: its lines come from memory, and nothing dirty was written back.
    assert_eq!(counts(&outcome, ["os.faults", "os.pages_freed", "cache.llc.writeback"]), [2, 1, 0]);
    let walked = count(&outcome, "walk.memory_refs") + count(&outcome, "walk.dirty_updates");
    assert_eq!(count(&outcome, "os.page_table_stores"), 1, "munmap cleared one entry");
    assert_eq!(count(&outcome, "cache.l1.miss") + count(&outcome, "cache.l1.hit"), 4 + walked + 1);
    assert_eq!(count(&outcome, "tier.dram.bytes_by.demand"), 4 * 64);
}
