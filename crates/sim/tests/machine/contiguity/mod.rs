//! Hardware that profits from contiguity, in the whole machine: counted by hand, against plain TLBs, and end to end.
//!
//! In builds with debug assertions, as the tests are, every translation is compared with the page table's.

mod histories;

use crate::support::*;
use terrace_model::{AddressRange, Bytes, PageSize, Time};
use terrace_sim::design::{
    CoalescedLevels, CoalescedParameters, Design, PagePolicy, Placement, RangeParameters, SchemeParameters,
    SegmentParameters, SpotParameters,
};
use terrace_sim::{Fidelity, Options, Outcome, PartCost};
use terrace_trace::{AccessKind, Event, KernelAccess, VecSource};

fn with(mut design: Design, contiguity: SchemeParameters) -> Design {
    // Tables of the pages would lie among them.
    design.os.page_table_tier = Some(design.tiers[1].name.clone());
    design.translation.scheme = contiguity;
    design
}

fn coalesced(pages: u32, levels: CoalescedLevels) -> SchemeParameters {
    let sizes = vec![PageSize::Base, PageSize::Huge];
    SchemeParameters::with("colt", &CoalescedParameters { pages, levels, sizes })
}

fn range() -> SchemeParameters {
    SchemeParameters::with("rmm", &RangeParameters::default())
}

fn segment() -> SchemeParameters {
    SchemeParameters::with("direct-segment", &SegmentParameters { least: Bytes::kib(32), period: Time::ZERO })
}

fn spot() -> SchemeParameters {
    SchemeParameters::with("spot", &SpotParameters::default())
}

fn all() -> [SchemeParameters; 4] {
    [coalesced(8, CoalescedLevels::Both), range(), segment(), spot()]
}

/// Interleaving puts every second page into the other tier.
fn scattered(design: Design) -> Design {
    with_placement(design, Placement::Interleave)
}

/// Stores to every page in order, then `sweeps` times reads of every page in order, far enough apart that each finds what
/// the one before left.
fn sweeps(pages: u64, sweeps: u64) -> Program {
    let mut program = Program::new();
    program.map(DATA, pages * PAGE);
    for page in 0..pages {
        program.write(DATA + page * PAGE);
    }
    for _ in 0..sweeps {
        for page in 0..pages {
            program.access(DATA + page * PAGE, 8, AccessKind::Read, 0, 2000);
        }
    }
    program
}

/// Stores to every page in order, then reads and stores at random, as GUPS does.
fn updates(pages: u64, updates: u64) -> Program {
    let mut program = sweeps(pages, 0);
    let mut random = Random(7);
    for _ in 0..updates {
        let addr = DATA + random.below(pages) * PAGE + random.below(512) * 8;
        program.read(addr).write(addr);
    }
    program
}

/// Level-1 look-ups, level-2 misses and walks add up.
fn check_lookups(outcome: &Outcome, requests: u64) {
    let n = |name: &str| outcome.stats.integer(name);
    let l1 = |what: &str| PageSize::ALL.iter().map(|size| n(&format!("tlb.l1d.{size}.{what}"))).sum::<u64>();
    assert_eq!(l1("hit") + l1("miss") + n("tlb.segment.hit"), requests, "every access translates once");
    assert_eq!(l1("miss"), n("tlb.l2.hit") + n("tlb.l2.miss"));
    assert_eq!(n("tlb.l2.miss"), n("walk.count") + n("tlb.range.hit"));
    if outcome.stats.get("tlb.range.miss").is_some() {
        assert_eq!(n("tlb.range.miss"), n("walk.count"));
    }
    if outcome.stats.get("walk.predictions.none").is_some() {
        let predictions = ["right", "wrong", "none"].map(|what| n(&format!("walk.predictions.{what}")));
        assert_eq!(predictions.iter().sum::<u64>(), n("walk.count"));
    }
}

#[test]
fn one_walk_serves_an_aligned_group_once_its_pages_were_touched() {
    let pages = 64;
    for (group, levels, expected) in [
        (8, CoalescedLevels::Both, pages + pages / 8),
        (8, CoalescedLevels::L2, pages + pages / 8),
        (16, CoalescedLevels::Both, pages + pages / 16),
        (2, CoalescedLevels::Both, pages + pages / 2),
        // Level 2 holds single pages, sixteen of them.
        (8, CoalescedLevels::L1, pages + pages / 8),
    ] {
        let design = with(small(), coalesced(group, levels));
        // The first touches fill TLBs page by page; an exact flush between is a remapped neighbour area of the same set.
        let outcome = sweeps(pages, 1).run(&design, Fidelity::Translation);
        let walks = count(&outcome, "walk.count");
        assert!(walks >= pages && walks <= expected, "{group} {levels:?}: {walks} walks");
        check_lookups(&outcome, 2 * pages);
    }
}

#[test]
fn coalescing_by_hand() {
    let mut design = with(small(), coalesced(8, CoalescedLevels::Both));
    design.translation.l1d.insert(PageSize::Base, tlb(4, 4));
    design.translation.l2.array.clear();
    let mut program = Program::new();
    program.map(DATA, 64 * PAGE);
    // Eight first touches: each faults and walks, and finds its predecessors in the line.
    for page in 0..8 {
        program.write(DATA + page * PAGE);
    }
    // Four other groups push the first out; then one walk brings all of it back.
    for group in 1..5 {
        program.write(DATA + group * 8 * PAGE);
    }
    for page in 0..8 {
        program.read(DATA + page * PAGE).write(DATA + page * PAGE + 8);
    }
    let outcome = program.run(&design, Fidelity::Translation);
    assert_eq!(counts(&outcome, ["walk.count", "walk.avoided", "tlb.l1d.4k.miss"]), [8 + 4 + 1, 7, 13]);
    assert_eq!(counts(&outcome, ["tlb.coalesced.fills", "tlb.coalesced.covered"]), [13, 36 + 4 + 8]);
    assert_eq!(counts(&outcome, ["tlb.coalesced.l1.hit", "walk.dirty_updates"]), [15, 0]);
    // Unmapping one page drops the entry; its neighbours walk again and find a hole.
    program
        .unmap(DATA + 3 * PAGE, PAGE)
        .read(DATA)
        .read(DATA + 2 * PAGE)
        .read(DATA + 4 * PAGE)
        .read(DATA + 7 * PAGE);
    let outcome = program.run(&design, Fidelity::Translation);
    assert_eq!(counts(&outcome, ["walk.count", "tlb.coalesced.covered"]), [13 + 2, 48 + 3 + 4]);
}

#[test]
fn huge_pages_coalesce_where_asked() {
    let mut design = with_pages(with(small(), coalesced(8, CoalescedLevels::Both)), PagePolicy::Huge);
    design.translation.l2.array.clear();
    let mut program = Program::new();
    program.map(DATA, 32 * 2 * MIB);
    for _ in 0..2 {
        for page in 0..32 {
            program.write(DATA + page * 2 * MIB);
        }
    }
    let outcome = program.run(&design, Fidelity::Translation);
    assert_eq!(counts(&outcome, ["walk.count", "walk.avoided"]), [32 + 4, 28]);
    design.translation.scheme = SchemeParameters::named("colt");
    let outcome = program.run(&design, Fidelity::Translation);
    assert_eq!(counts(&outcome, ["walk.count", "walk.avoided"]), [64, 0], "4 KiB only");
}

#[test]
fn every_first_store_still_sets_the_dirty_bit() {
    for contiguity in all() {
        let design = with(small(), contiguity.clone());
        let pages = 256;
        let mut program = Program::new();
        program.map(DATA, pages * PAGE);
        for round in 0..3 {
            for page in 0..pages {
                let addr = DATA + page * PAGE;
                if round == 0 {
                    program.read(addr)
                } else {
                    program.read(addr).write(addr)
                };
            }
        }
        let outcome = program.run(&design, Fidelity::Translation);
        // Each page's bit is set once: through an entry, or by a walk for the store.
        let updates = count(&outcome, "walk.dirty_updates");
        let kind = outcome.stats.get("tlb.segment.hit").is_some();
        assert!(updates == pages || (kind && updates <= pages), "{contiguity:?}: {updates}");
        check_lookups(&outcome, 5 * pages);
    }
}

#[test]
fn contiguity_pays_and_its_absence_changes_nothing() {
    let pages = 4096;
    let program = sweeps(pages, 4);
    let plain = with_table_elsewhere(small());
    let walks = |design: &Design| {
        let outcome = program.run(design, Fidelity::Full);
        check_lookups(&outcome, 5 * pages);
        let walked = count(&outcome, "walk.cycles") - outcome.stats.integer("walk.hidden_cycles");
        (count(&outcome, "walk.count"), walked, count(&outcome, "core.cycles.translation"))
    };
    let radix = walks(&plain);
    let nothing = walks(&scattered(plain.clone()));
    assert_eq!(radix.0, 5 * pages);
    for contiguity in all() {
        let design = with(small(), contiguity.clone());
        let (count, cycles, blamed) = walks(&design);
        println!("{contiguity:?}: walks {count} of {}, cycles {cycles} of {}", radix.0, radix.1);
        if contiguity.kind != "spot" {
            assert!(4 * (count - pages) <= radix.0 - pages, "{contiguity:?}: {count} walks");
        }
        assert!(cycles < radix.1 && blamed < radix.2, "{contiguity:?}");
        let (count, cycles, blamed) = walks(&scattered(design));
        assert_eq!((count, cycles, blamed), nothing, "{contiguity:?} on scattered pages");
    }
}

fn with_table_elsewhere(mut design: Design) -> Design {
    design.os.page_table_tier = Some(design.tiers[1].name.clone());
    design
}

#[test]
fn random_updates_end_to_end() {
    let pages = 16 << 8;
    let program = updates(pages, 60_000);
    for machine in ["vbi-table1", "zen4-cxl"] {
        let plain = with_table_elsewhere(design(
            "native-4k",
            machine,
            &[("core.count", "1"), ("os.zero_stores", "non-temporal")],
        ));
        let mut small_reach = plain;
        small_reach.translation.l2.array.iter_mut().for_each(|array| array.entries /= 4);
        let measure = |design: &Design| {
            let outcome = program.run(design, Fidelity::Full);
            let walked = count(&outcome, "walk.cycles") - outcome.stats.integer("walk.hidden_cycles");
            (count(&outcome, "walk.count"), walked, outcome.cycles)
        };
        let (radix, alone) = (measure(&small_reach), measure(&scattered(small_reach.clone())));
        println!("{machine}: native-4k {radix:?}, scattered {alone:?}");
        for name in ["colt", "rmm", "direct-segment", "spot"] {
            let own = design(name, machine, &[]).translation.scheme;
            let design = with(small_reach.clone(), own);
            let (contiguous, scattered) = (measure(&design), measure(&scattered(design)));
            println!("{machine}: {name} {contiguous:?}, scattered {scattered:?}");
            // An entry of eight pages multiplies the reach; the others cover everything.
            let most = if name == "colt" { 19 * radix.1 / 20 } else { radix.1 / 3 };
            assert!(contiguous.1 < most, "{name} on {machine}: {} cycles of walks", contiguous.1);
            // The one channel of the first machine is saturated either way.
            let bound = if machine == "vbi-table1" { radix.2 + radix.2 / 500 } else { radix.2 };
            assert!(contiguous.2 < bound, "{name} on {machine}: {} cycles", contiguous.2);
            if name == "colt" {
                // Pages of a group share a set, which moves a few conflicts.
                let moved = scattered.0.abs_diff(alone.0);
                assert!(100 * moved < alone.0, "{name} on {machine}, scattered: {moved} walks");
            } else {
                assert_eq!(scattered, alone, "{name} on {machine}, scattered");
            }
        }
    }
}

#[test]
fn one_range_covers_what_the_page_table_holds_in_a_row() {
    let outcome = sweeps(512, 2).run(&with(small(), range()), Fidelity::Translation);
    // Only walks fill level 2: it keeps the last 16 pages of the first touches. Those walk; from the eighth page on each
    // makes the range longer, and its last form serves the rest.
    assert_eq!(counts(&outcome, ["walk.count", "walk.range.count", "tlb.range.miss"]), [512, 505, 512]);
    assert_eq!(counts(&outcome, ["tlb.range.hit", "tlb.l2.hit", "os.ranges.pages"]), [1024 - 32, 32, 512]);
    // A hole makes two of it.
    let mut program = sweeps(512, 0);
    program.unmap(DATA + 100 * PAGE, PAGE);
    for page in (0..512).filter(|page| *page != 100) {
        program.access(DATA + page * PAGE, 8, AccessKind::Read, 0, 2000);
    }
    let outcome = program.run(&with(small(), range()), Fidelity::Translation);
    assert_eq!(counts(&outcome, ["os.ranges.pages", "walk.range.count"]), [511, 505 + 2]);
    assert_eq!(count(&outcome, "walk.count"), 512 + 2);
}

#[test]
fn a_segment_bypasses_the_tlbs_until_it_is_shot_down() {
    let design = with(small(), segment());
    let program = sweeps(64, 1);
    let outcome = program.run(&design, Fidelity::Translation);
    assert_eq!(counts(&outcome, ["tlb.segment.hit", "walk.count", "os.segment.pages"]), [64, 64, 64]);
    let mut slow = design.clone();
    let never = SegmentParameters { least: Bytes::kib(32), period: Time::from_nanos(1 << 40) };
    slow.translation.scheme = SchemeParameters::with("direct-segment", &never);
    let outcome = program.run(&slow, Fidelity::Translation);
    assert_eq!(
        counts(&outcome, ["tlb.segment.hit", "os.segment.changes"]),
        [0, 0],
        "it looked once, too early"
    );
    let long = SegmentParameters { least: Bytes::kib(512), period: Time::ZERO };
    slow.translation.scheme = SchemeParameters::with("direct-segment", &long);
    assert_eq!(count(&program.run(&slow, Fidelity::Translation), "tlb.segment.hit"), 0, "too short");
}

#[test]
fn predictions_by_instruction_where_the_input_knows_them() {
    let program = sweeps(512, 2);
    let design = with(small(), spot());
    let without = program.run(&design, Fidelity::Full);
    assert!(without.notes.iter().any(|note| note.contains("no instruction addresses")));
    assert!(count(&without, "walk.predictions.right") > 1000);
    assert!(count(&without, "walk.hidden_cycles") > count(&without, "walk.cycles") / 2);
    // An instruction per page: none is seen often enough.
    let mut source = program.source();
    let mut batches = Vec::new();
    while let Some(batch) = terrace_trace::EventSource::next_batch(&mut source).unwrap() {
        let mut batch = (*batch).clone();
        batch.pc = batch.addr.iter().map(|addr| addr >> 12).collect();
        batches.push(batch);
    }
    let header = terrace_trace::Header { has_pc: true, ..Default::default() };
    let with_pc = run(&design, &mut VecSource::new(header, batches), Fidelity::Full);
    assert_eq!(counts(&with_pc, ["walk.predictions.right", "walk.predictions.wrong"]), [0, 0]);
    assert!(!with_pc.notes.iter().any(|note| note.contains("no instruction addresses")));
    assert!(with_pc.cycles > without.cycles);
}

#[test]
fn a_wrong_prediction_costs_the_walk_and_a_flush() {
    // Two halves a gap of frames apart, sixteen reads of one, then of the other: both are marked.
    let mut program = Program::new();
    program.map(DATA, 64 * PAGE).map(DATA + MIB, 64 * PAGE).map(DATA + 2 * MIB, PAGE);
    for half in [DATA, DATA + MIB] {
        for page in 0..64 {
            program.write(half + page * PAGE);
        }
        program.write(DATA + 2 * MIB);
    }
    for turn in 0..40u64 {
        for page in 0..8 {
            program.read(DATA + (turn % 2) * MIB + (turn * 8 + page) % 64 * PAGE);
        }
    }
    let cycles = |flush: f64| {
        let own = SpotParameters { flush: terrace_model::Cycles(flush), ..SpotParameters::default() };
        let mut design = with(small(), SchemeParameters::with("spot", &own));
        design.translation.l2.array.clear();
        let outcome = program.run(&design, Fidelity::Full);
        (count(&outcome, "walk.predictions.wrong"), outcome.cycles)
    };
    let ((wrong, cheap), (same, dear)) = (cycles(0.0), cycles(500.0));
    assert_eq!(wrong, same);
    assert!(wrong > 30 && dear > cheap, "{wrong} wrong: {cheap} and {dear} cycles");
}

#[test]
fn mistakes_in_the_table_name_their_key() {
    let library = terrace_sim::design::Library::embedded();
    let error = |sets: &[(&str, &str)]| {
        let sets: Vec<_> = sets.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        library.design("native-4k", None, &sets).unwrap_err().to_string()
    };
    for (value, expected) in [
        ("{ kind = \"colt\", pages = 6 }", "translation.scheme.pages: 6 is not 2, 4, 8 or 16"),
        ("{ kind = \"colt\", sizes = [\"1g\"] }", "translation.scheme.sizes: only 4k and 2m"),
        ("{ kind = \"rmm\", entries = 0 }", "translation.scheme.entries: 0 is not between 1 and 1048576"),
        (
            "{ kind = \"direct-segment\", least = \"4 KiB\" }",
            "translation.scheme.least: 4 KiB is not between 8 KiB and 8 TiB",
        ),
        ("{ kind = \"spot\", ways = 5 }", "translation.scheme.ways: 5 ways do not divide 32"),
        ("{ kind = \"spot\", confidence = 4 }", "translation.scheme.confidence: 4 is not between 1 and 3"),
        ("{ kind = \"spot\", substitute_region = \"3 MiB\" }", "translation.scheme.substitute_region: "),
        ("{ kind = \"rmm\", pages = 8 }", "unknown key \"translation.scheme.pages\""),
        ("{ kind = \"rmm\", least = 8 }", "translation.scheme.least"),
        ("rnm", "translation.scheme: \"rnm\" is not valid; did you mean \"rmm\"?"),
        ("{ entries = 8 }", "unknown key \"translation.scheme.entries\""),
    ] {
        let found = error(&[("translation.scheme", value)]);
        assert!(found.contains(expected), "{value}: {found}");
    }
}

#[test]
fn the_older_spelling_of_schemes_is_read() {
    let newer = design("rmm", "vbi-table1", &[("translation.scheme.entries", "8")]);
    for (older, name) in [("{ kind = \"range\", entries = 8 }", "rmm"), ("{ kind = \"coalesced\" }", "colt")]
    {
        let read = design("native-4k", "vbi-table1", &[("translation.contiguity", older)]);
        assert_eq!(read.translation.scheme.kind, name);
        if name == newer.translation.scheme.kind {
            assert_eq!(read.translation, newer.translation);
        }
    }
    let set = design("colt", "vbi-table1", &[("translation.contiguity.pages", "4")]);
    assert_eq!(set.translation.scheme, coalesced_of_base_pages(4));
}

fn coalesced_of_base_pages(pages: u32) -> SchemeParameters {
    SchemeParameters::with("colt", &CoalescedParameters { pages, ..CoalescedParameters::default() })
}

/// Migrations, splits, collapses, watches and cleared bits under every mechanism: each translation is compared inside.
#[test]
fn policies_may_move_what_mechanisms_cover() {
    let mut moved = 0;
    for policy in ["nimble", "tpp", "ambix", "thermostat", "memtis", "idle", "ranger", "trident", "thp"] {
        for pages in ["4k", "thp"] {
            let sets = [
                ("tier.dram.capacity", "6 MiB"),
                ("os.reserved", "0 KiB"),
                ("core.count", "2"),
                // Caches as large as the machine's take longer to make than such a run.
                ("cache.llc.capacity", "704 KiB"),
                ("os.zero_stores", "non-temporal"),
                ("os.pages", pages),
            ];
            for contiguity in all().into_iter().chain([SchemeParameters::named("pom-tlb")]) {
                let mut design = design(policy, "xeon-5218-dcpmm", &sets);
                design.translation.scheme = contiguity;
                shorten_periods(&mut design, 8000);
                let outcome = run(&design, &mut *workload("gups,bytes=12 MiB,updates=2e4"), Fidelity::Full);
                let n = |name: &str| outcome.stats.integer(name);
                moved += n("vmstat.pgmigrate_success");
                let l1 = n("tlb.l1d.4k.miss") + n("tlb.l1d.2m.miss");
                assert_eq!(l1, n("tlb.l2.hit") + n("tlb.l2.miss"), "{policy}");
                let elsewhere = n("tlb.range.hit") + n("tlb.pom.hit");
                assert_eq!(n("tlb.l2.miss"), n("walk.count") + elsewhere, "{policy}");
            }
        }
    }
    assert!(moved > 10_000, "{moved} pages moved in the region");
}

/// What regions cost adds up to what the run cost.
#[test]
fn parts_share_faults_and_copies() {
    let mut copied = 0;
    for (policy, pages) in [("thp", "4k"), ("trident", "4k"), ("nimble", "thp")] {
        let sets = [("tier.dram.capacity", "12 MiB"), ("os.reserved", "0 KiB"), ("os.pages", pages)];
        let mut design = design(policy, "xeon-5218-dcpmm", &sets);
        shorten_periods(&mut design, 2000);
        let options = Options { parts: true, whole: true, ..Options::default() };
        let outcome = run_with(&design, &mut *endless("kv,keys=8e3,requests=1e5"), options).unwrap();
        let sum = |of: fn(&PartCost) -> u64| outcome.parts.iter().map(|part| of(&part.cost)).sum::<u64>();
        assert_eq!(sum(|cost| cost.fault_latency.count), outcome.stats.integer("os.faults"), "{policy}");
        let cycles = outcome.stats.integer("os.fault_cycles") as f64;
        let time = sum(|cost| cost.fault_time.0) as f64 * 1e-15 * design.core.frequency.0;
        assert!((time - cycles).abs() <= 1.0 + 1e-6 * cycles, "{policy}: {time} {cycles}");
        assert_eq!(sum(|cost| cost.copied_bytes), outcome.stats.integer("policy.copied_bytes"), "{policy}");
        copied += sum(|cost| cost.copied_bytes);
        // Objects hold most of what is resident.
        let of_structures = outcome.parts.iter().filter(|part| part.part.is_structure);
        let theirs: u64 = of_structures.map(|part| part.cost.fault_latency.count).sum();
        assert!(2 * theirs > sum(|cost| cost.fault_latency.count), "{policy}: {theirs} of structures");
    }
    assert!(copied > MIB);
}

/// What is freed and then unmapped was resident as long as it lived.
#[test]
fn memory_is_its_structures_until_it_is_freed() {
    let mut program = Program::new();
    program.map(DATA, 4 * MIB).event(Event::Site { site: 1, name: "table".to_owned() });
    program.event(Event::Alloc { object: 1, site: 1, range: AddressRange::new(DATA, 4 * MIB) });
    for page in 0..1024 {
        program.write(DATA + page * PAGE);
    }
    program.event(Event::Free { object: 1 }).unmap(DATA, 4 * MIB);
    program.map(DATA, 16 * PAGE).write(DATA);
    let options = Options { parts: true, whole: true, ..Options::default() };
    let outcome = run_with(&small(), &mut program.source(), options).unwrap();
    let table = outcome.parts.iter().find(|part| part.part.name == "table").unwrap();
    assert_eq!(table.resident, [4 * MIB, 0, 0]);
}

/// Divides the periods of a design's policy, so that short runs see it act.
fn shorten_periods(design: &mut Design, by: u32) {
    let policy = design.os.policy.as_mut().unwrap();
    policy.parameters = terrace_policy::find(&policy.name).unwrap().scaled(&policy.parameters, by).unwrap();
}
