//! Translation coherence: what a change of a page table costs whom, and that nobody goes on with what was.

mod giant_pages;
mod histories;

use crate::support::probe::{every, in_guest, on_host, probe};
use crate::support::*;
use proptest::prelude::*;
use std::num::{NonZeroU16, NonZeroU32};
use terrace_model::{AddressRange, Bytes, Frequency, PageSize, TierId};
use terrace_policy::{
    Clear, CopyBy, Exchange, HugePages, MemorySystem, Moment, Move, MoveOptions, NextTick, PageId, Resize,
    ScanHand, Scope, Signal, SignalKind, SignalSet, Step, Watch,
};
use terrace_sim::design::{
    Design, DirectorySize, DirectoryUpdates, FillNotices, FreedTables, Granularity, GuestChanges,
    GuestTierParameters, HatricParameters, HostParameters, LocalStores, NestedParameters, PagePolicy,
    PageWalkCacheParameters, Ranges, SetNumbers, Synonyms, Tracking, VmParameters, WalkCacheDimensions,
    WalkCacheSets, WalkCacheTags, WalkerStores,
};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::{AccessKind, Advice, Event, KernelAccess, MarkKind, Protection};

/// The costs of Linux's shootdowns in these designs, in nanoseconds: to send one, for each further core, the interrupt
/// that a core receives, and to drop a translation of one's own.
const SEND: u64 = 1000;
const PER_CORE: u64 = 100;
const INTERRUPT: u64 = 280;
const FLUSH: u64 = 140;

/// Cores of 1 GHz, so that a cycle is a nanosecond; 3,000 pages of fast memory.
fn machine(cores: u32, scheme: &str, coherence: &str) -> Design {
    let mut design = with_scheme(small(), scheme);
    design.core.count = cores;
    design.core.frequency = Frequency(1e9);
    design.os.reserved = Bytes(0);
    design.tiers[0].capacity = Bytes(3000 * PAGE);
    design.translation.coherence = coherence.to_owned();
    design
}

/// Threads on so many cores touch `pages` pages of one process; then the first makes a change, and all go on.
fn threads(cores: u32, pages: u64, change: impl Fn(&mut Program)) -> Program {
    let mut program = Program::new();
    program.map(DATA, 64 * PAGE).map(DATA + GIB, PAGE);
    for core in 0..cores {
        program.on(core);
        if core > 0 {
            program.spawn(0, core, None);
        }
        for page in 0..pages {
            program.write(DATA + page * PAGE);
        }
        program.write(DATA + GIB).mark(MarkKind::Barrier);
    }
    change(program.on(0));
    program
}

fn unmap(pages: u64) -> impl Fn(&mut Program) {
    move |program| _ = program.unmap(DATA, pages * PAGE)
}

fn shootdowns(outcome: &Outcome, cause: &str) -> [u64; 3] {
    ["count", "targets", "time"].map(|what| count(outcome, &format!("os.shootdowns.{cause}.{what}")))
}

#[test]
fn an_unmap_costs_by_the_cores_that_run_the_process() {
    for (cores, pages, flushes) in [(1, 1, 1), (2, 1, 1), (8, 1, 1), (8, 33, 33), (8, 34, 1)] {
        let others = u64::from(cores) - 1;
        let waits = FLUSH * flushes + if others > 0 { SEND + PER_CORE * others } else { 0 };
        let program = threads(cores, pages, unmap(pages));
        let run = |coherence: &str| program.run(&machine(cores, "radix", coherence), Fidelity::Translation);
        let (software, ideal) = (run("software"), run("ideal"));
        let what = format!("{pages} pages on {cores} cores");
        assert_eq!(shootdowns(&software, "munmap"), [1, others, waits], "{what}");
        assert_eq!(shootdowns(&ideal, "munmap"), [1, others, 0], "{what}");
        // What one waits and the others are held up for is the kernel's time, and nothing else is.
        let cycles = |outcome: &Outcome| count(outcome, "core.cycles.os");
        assert_eq!(cycles(&software) - cycles(&ideal), waits + INTERRUPT * others, "{what}");
    }
}

/// A core that stores waits for a transfer between caches where others hold translations of the line, and for the sets that
/// are searched: as long for one other core as for seven.
#[test]
fn hardware_costs_the_same_for_any_number_of_cores() {
    for (cores, pages, sets) in [(1, 1, 1), (2, 1, 1), (8, 1, 1), (8, 8, 4), (8, 33, 4), (8, 34, 4)] {
        let design = machine(cores, "radix", "hatric");
        let trip = design.cache.cache_to_cache.0 as u64;
        let waits = if cores > 1 { trip + sets } else { sets };
        let program = threads(cores, pages, unmap(pages));
        let what = format!("{pages} pages on {cores} cores");
        let run = |coherence: &str| program.run(&machine(cores, "radix", coherence), Fidelity::Translation);
        let (hatric, ideal) = (run("hatric"), run("ideal"));
        assert_eq!(shootdowns(&hatric, "munmap"), [1, 0, waits], "{what}");
        let cycles = |outcome: &Outcome| count(outcome, "core.cycles.os");
        assert_eq!(cycles(&hatric) - cycles(&ideal), waits, "{what}");
        let all = count(&hatric, "translation_coherence.messages.invalidations");
        let before = threads(cores, pages, |_| ()).run(&design, Fidelity::Translation);
        let before = count(&before, "translation_coherence.messages.invalidations");
        let lines = pages.div_ceil(8);
        assert_eq!(all - before, u64::from(cores - 1) * lines, "{what}");
        // UNITD++ searches all entries: four sets of level 2.
        let all_sets = if cores > 1 { trip + 4 } else { 4 };
        assert_eq!(shootdowns(&run("unitd"), "munmap"), [1, 0, all_sets], "{what}");
    }
}

#[test]
fn each_change_of_the_program_has_its_cause() {
    let range = |page: u64, pages: u64| AddressRange::new(DATA + page * PAGE, pages * PAGE);
    let protect = |protection| Event::Protect { range: range(1, 2), protection };
    let nothing = [0, 0, 0];
    let two = [1, 1, 2 * FLUSH + SEND + PER_CORE];
    let of = |cause: &str, change: &dyn Fn(&mut Program)| {
        let program = threads(2, 4, change);
        shootdowns(&program.run(&machine(2, "radix", "software"), Fidelity::Full), cause)
    };
    assert_eq!(of("munmap", &unmap(2)), two);
    assert_eq!(of("mremap", &|p| _ = p.remap((DATA, 2 * PAGE), (DATA + 2 * GIB, 2 * PAGE))), two);
    let dont_need = Event::Advise { range: range(0, 2), advice: Advice::DontNeed };
    assert_eq!(of("madvise", &|p| _ = p.event(dont_need.clone())), two);
    assert_eq!(of("mprotect", &|p| _ = p.event(protect(Protection::READ))), two);
    // New rights of a page need no notification.
    let gains =
        |p: &mut Program| _ = p.event(protect(Protection { execute: true, ..Protection::READ_WRITE }));
    assert_eq!(of("mprotect", &gains), nothing);
    // What was never touched is in no page table.
    assert_eq!(of("munmap", &|p| _ = p.unmap(DATA + 32 * PAGE, 8 * PAGE)), nothing);
    // A fork takes the right to write from five pages: each core drops all it has of the process. The store after it
    // moves one page.
    let fork = |p: &mut Program| {
        p.on(2).spawn(1, 0, Some(0)).mark(MarkKind::Barrier);
        p.on(0).write(DATA);
    };
    let mut design = machine(3, "radix", "software");
    let outcome = threads(2, 4, fork).run(&design, Fidelity::Full);
    assert_eq!(shootdowns(&outcome, "fork"), [1, 1, FLUSH + SEND + PER_CORE]);
    assert_eq!(shootdowns(&outcome, "copy_on_write"), [1, 1, FLUSH + SEND + PER_CORE]);
    assert_eq!(shootdowns(&outcome, "fault"), nothing);
    // Page by page the parent's entry and the child's; for the first of these three tables lead there, for that 1 GiB away
    // two of its own. Then the entry of the page that was copied.
    assert_eq!(count(&outcome, "os.page_table_stores"), 5 + (5 + 3 + 2) + 1);
    design.translation.coherence = "hope".to_owned();
    let error = run_with(&design, &mut Program::new().source(), Options::default()).unwrap_err().to_string();
    assert!(error.contains(
        "translation.coherence: there is no scheme \"hope\"; there are software, software-virtual, ideal, hatric, unitd"
    ));
}

/// A core that ran a process and runs another one now is not interrupted. It has lost what it held when it comes back.
#[test]
fn a_core_that_left_the_process_is_not_interrupted_and_drops_what_it_held() {
    let run = |leaves: bool, unmaps: bool, coherence: &str| {
        let mut program = Program::new();
        program.map(DATA, 64 * PAGE).on(1).spawn(0, 1, None);
        (0..8).for_each(|page| _ = program.write(DATA + page * PAGE));
        program.mark(MarkKind::Barrier);
        if leaves {
            // The fourth stream runs on the second of two cores, as the second does.
            program.on(3).spawn(1, 0, None).event(Event::Compute { instructions: 4_000_000 });
        }
        program.on(0).event(Event::Compute { instructions: 400_000 });
        if unmaps {
            program.unmap(DATA, 8 * PAGE).map(DATA, 8 * PAGE);
        }
        program.mark(MarkKind::Barrier).on(1);
        (0..8).for_each(|page| _ = program.read(DATA + page * PAGE));
        let outcome = program.run(&machine(2, "radix", coherence), Fidelity::Translation);
        (shootdowns(&outcome, "munmap"), count(&outcome, "os.faults"))
    };
    for coherence in ["software", "software-virtual"] {
        assert_eq!(run(true, false, coherence), ([0, 0, 0], 8));
        assert_eq!(
            run(true, true, coherence),
            ([1, 0, 8 * FLUSH], 16),
            "{coherence}: it runs another process"
        );
        let waits = 8 * FLUSH + SEND + PER_CORE;
        assert_eq!(run(false, true, coherence), ([1, 1, waits], 16), "{coherence}: it waits");
    }
}

#[test]
fn entries_are_stored_through_the_caches() {
    // Sixteen pages fill two lines of the page table; a core that unmaps them has both from its walks.
    let alone = |change: &dyn Fn(&mut Program)| {
        threads(1, 16, change).run(&machine(1, "radix", "software"), Fidelity::Full)
    };
    let (before, after) = (alone(&|_| ()), alone(&unmap(16)));
    assert_eq!(counts(&after, ["os.page_table_stores", "os.page_table_stores_by_threads"]), [2, 0]);
    let l1 = |outcome: &Outcome| count(outcome, "cache.l1.hit") + count(outcome, "cache.l1.miss");
    assert_eq!(l1(&after) - l1(&before), 2);
    assert_eq!(count(&after, "cache.llc.miss"), count(&before, "cache.llc.miss"), "they are on the chip");
    // A second core holds them too: each store takes the line from it.
    let two = |change: &dyn Fn(&mut Program)| {
        threads(2, 16, change).run(&machine(2, "radix", "software"), Fidelity::Full)
    };
    let invalidations = |outcome: &Outcome| count(outcome, "coherence.invalidations");
    assert_eq!(invalidations(&two(&unmap(16))) - invalidations(&two(&|_| ())), 2);
}

#[test]
fn ideal_coherence_takes_what_is_stale_and_nothing_else() {
    // More pages than Linux drops one by one: of the software the other translations fall victim.
    let change = |program: &mut Program| _ = program.unmap(DATA + 4 * PAGE, 40 * PAGE).read(DATA + GIB);
    let misses = |coherence: &str| {
        let outcome = threads(1, 48, change).run(&machine(1, "radix", coherence), Fidelity::Translation);
        count(&outcome, "walk.count")
    };
    assert_eq!(misses("software"), misses("ideal") + 1);
}

#[test]
fn with_hardware_no_policy_of_a_native_machine_interrupts_a_core() {
    let policies = [
        ("nimble", &[("period", "200 us")][..]),
        ("ambix", &[("period", "200 us"), ("delay", "20 us")]),
        ("tpp", &[("scan_period", "200 us"), ("scan_size", "4 MiB")]),
        ("ranger", &[("period", "200 us")]),
        ("numa-balancing", &[("scan_period", "200 us"), ("scan_size", "4 MiB")]),
    ];
    for (name, parameters) in policies {
        let run = |coherence: &str| {
            let sets =
                [("tier.0.capacity", "8 MiB"), ("tier.1.capacity", "128 MiB"), ("os.reserved", "0 MiB")];
            let mut sets: Vec<(String, String)> =
                sets.map(|(key, value)| (key.into(), value.into())).to_vec();
            sets.push(("os.policy.name".into(), name.into()));
            let own = parameters.iter().map(|(key, value)| (format!("os.policy.{key}"), (*value).to_owned()));
            sets.extend(own);
            let sets: Vec<(&str, &str)> = sets.iter().map(|(key, value)| (&**key, &**value)).collect();
            let design = design(coherence, "haswell-32", &sets);
            run(&design, &mut *workload("kv,keys=3e4,requests=1e4,threads=4"), Fidelity::Full)
        };
        let [software, hardware] = ["hatric-sw", "hatric"].map(run);
        for outcome in [&software, &hardware] {
            assert!(count(outcome, "policy.shootdowns") > 0, "{name} changes entries that cores hold");
        }
        assert!(count(&software, "policy.interrupts") > 0, "{name}");
        assert_eq!(count(&hardware, "policy.interrupts"), 0, "{name}");
    }
}
