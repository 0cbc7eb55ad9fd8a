//! Pages shared since a fork, and streams that wait for each other's events.

use crate::support::*;
use terrace_sim::design::{Design, PagePolicy};
use terrace_sim::{Fidelity, Options};
use terrace_trace::{Event, MarkKind};

fn cores(mut design: Design, count: u32) -> Design {
    design.core.count = count;
    design
}

/// After a fork, a page that was dirty before it and is read first gets a TLB entry that says "dirty": the store after
/// it goes into the shared frame without a fault.
#[test]
fn reading_first_does_not_lose_the_copy_on_write_fault() {
    for fidelity in [Fidelity::Pages, Fidelity::Translation, Fidelity::Full] {
        let mut program = Program::new();
        program.map(DATA, PAGE).write(DATA);
        program.on(1).spawn(1, 0, Some(0)).read(DATA).write(DATA);
        let outcome = program.run(&cores(small(), 2), fidelity);
        assert_eq!(counts(&outcome, ["os.copy_on_write_faults", "os.faults"]), [1, 2], "{fidelity:?}");
        assert_eq!(count(&outcome, "os.resident_bytes.4k"), 2 * PAGE, "{fidelity:?}");
    }
}

/// Under virtual caches a store to a line that is in the private caches never asks for a translation, so the parent's stores
/// after a fork go into the shared frame.
#[test]
fn virtual_caches_do_not_lose_the_copy_on_write_fault() {
    let mut program = Program::new();
    program.map(DATA, PAGE).write(DATA);
    program.on(1).spawn(1, 0, Some(0)).event(Event::Free { object: 0 });
    program.on(0).write(DATA);
    let design = cores(with_scheme(small(), "vivt"), 2);
    let outcome = program.run(&design, Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.copy_on_write_faults", "os.faults"]), [1, 2]);
}

/// A thread that breaks a page's sharing moves it to another frame: the other threads of its process must not go on with
/// the old one, which now belongs to the child.
#[test]
fn breaking_a_page_s_sharing_tells_the_other_cores() {
    for (size, pages) in [("4k", PagePolicy::Base), ("2m", PagePolicy::Huge)] {
        let mut program = Program::new();
        program.map(DATA, 2 * MIB).write(DATA);
        program.on(1).spawn(1, 0, Some(0)).mark(MarkKind::Barrier);
        program.on(2).spawn(0, 1, None).read(DATA).mark(MarkKind::Barrier);
        program.on(0).write(DATA).mark(MarkKind::Barrier);
        program.on(2).read(DATA);
        let outcome = program.run(&cores(with_pages(small(), pages), 3), Fidelity::Full);
        assert_eq!(count(&outcome, "os.copy_on_write_faults"), 1);
        // The first store, the other thread's load, the store after the fork, and the load after the store.
        assert_eq!(count(&outcome, &format!("tlb.l1d.{size}.miss")), 4, "{size}");
    }
}

/// Streams 0 and 1 wait for an event of stream 2, whose clock is a fault ahead of theirs: they step past each other by
/// a femtosecond at a time, and give up after 10,000 steps.
#[test]
fn two_streams_wait_for_a_third_that_is_ahead() {
    let mut program = Program::new();
    program.on(1).spawn(0, 1, None);
    program
        .on(2)
        .spawn(0, 2, None)
        .map(DATA + GIB, PAGE)
        .read(DATA + GIB)
        .read(DATA + 2 * GIB)
        .map(DATA, PAGE);
    program.on(0).read(DATA);
    program.on(1).read(DATA);
    let outcome = program.run(&cores(small(), 3), Fidelity::Full);
    assert_eq!(counts(&outcome, ["input.order_violations", "os.unmapped_accesses"]), [0, 1]);
}

/// Built-in workloads lose no event.
#[test]
fn complete_inputs_violate_no_order() {
    let mut failed = Vec::new();
    for (threads, cores_) in [(3, 4), (6, 4), (6, 8), (4, 2), (2, 1)] {
        for spec in ["kv,keys=8e3,requests=2e4", "gups,bytes=1 MiB,updates=3e4"] {
            let design = cores(design("native-4k", "vbi-table1", &[]), cores_);
            let mut source = workload(&format!("{spec},threads={threads}"));
            let options = Options { whole: true, ..Options::default() };
            let outcome = run_with(&design, &mut *source, options).unwrap();
            let names = ["input.order_violations", "os.unmapped_accesses", "os.resident_bytes.4k"];
            let found = counts(&outcome, names);
            let leaked = count(&outcome, "tier.dram.pages") - design.os.reserved.0 / PAGE;
            if found != [0, 0, 0] || leaked != 0 {
                failed.push(format!(
                    "{spec}, {threads} threads on {cores_} cores: {found:?}, {leaked} pages leaked"
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A thread that computes for long and then loads does not take the memory's banks at a time that others have not reached
/// yet.
#[test]
fn what_computes_waits_for_others_before_it_loads() {
    let waits = |loads_afterwards: bool| {
        let mut program = Program::new();
        let pages = 64;
        program.map(DATA, 2 * pages * PAGE);
        for page in 0..2 * pages {
            program.write(DATA + page * PAGE);
        }
        program
            .on(1)
            .spawn(0, 1, None)
            .mark(MarkKind::Barrier)
            .event(Event::Compute { instructions: 50_000_000 });
        if loads_afterwards {
            program.read(DATA + pages * PAGE + 64);
        }
        program.on(0).mark(MarkKind::Barrier);
        for line in 1..pages * PAGE / 64 {
            program.chase(DATA + line * 64);
        }
        count(&program.run(&cores(small(), 2), Fidelity::Full), "core.cycles.memory")
    };
    let (alone, beside) = (waits(false), waits(true));
    assert!(beside < alone + alone / 10, "{alone} and {beside} cycles");
}

/// A fault's time lies between an access's start and its translation, so part of its wait for memory is blamed on
/// translation.
#[test]
fn a_perfect_tlb_blames_nothing_on_translation_where_pages_fault() {
    let mut program = Program::new();
    program.map(DATA, 16 * PAGE);
    for page in 0..16 {
        program.chase(DATA + page * PAGE);
    }
    let outcome = program.run(&with_scheme(small(), "perfect-tlb"), Fidelity::Full);
    assert_eq!(count(&outcome, "core.cycles.translation"), 0);
}

/// A mapping without touched pages moves onto touched ones (MREMAP_FIXED): the pages that go stay in the TLBs.
#[test]
fn moving_onto_touched_pages_tells_the_tlbs() {
    let mut found = Vec::new();
    for fidelity in [Fidelity::Pages, Fidelity::Translation, Fidelity::Full] {
        let mut program = Program::new();
        program.map(DATA, PAGE).map(DATA + GIB, PAGE).read(DATA + GIB);
        program.remap((DATA, PAGE), (DATA + GIB, PAGE)).read(DATA + GIB);
        let outcome = program.run(&small(), fidelity);
        found.push(counts(&outcome, ["os.faults", "os.pages_freed"]));
    }
    assert_eq!(found, [[2, 1]; 3]);
}

/// A huge page that a fork shares is split by one process; then both end.
fn split_shared(first_to_end: u32) -> [u64; 4] {
    let mut program = Program::new();
    program.map(DATA, 2 * MIB).write(DATA);
    program.on(1).spawn(1, 0, Some(0)).unmap(DATA, PAGE);
    program.on(first_to_end).exit(true);
    program.on(1 - first_to_end).exit(true);
    let design = with_pages(small(), PagePolicy::Thp);
    let outcome = program.run(&design, Fidelity::Pages);
    let used = count(&outcome, "tier.dram.pages") - design.os.reserved.0 / PAGE;
    let [base, huge, freed] =
        counts(&outcome, ["os.resident_bytes.4k", "os.resident_bytes.2m", "os.pages_freed"]);
    [base / PAGE, huge / PAGE, freed, used]
}

#[test]
fn a_shared_huge_page_that_was_split_is_freed_when_the_other_process_ends_first() {
    assert_eq!(split_shared(0), [0, 0, 512, 0]);
}

#[test]
fn a_shared_huge_page_that_was_split_is_freed_when_the_splitter_ends_first() {
    assert_eq!(split_shared(1), [0, 0, 512, 0]);
}
