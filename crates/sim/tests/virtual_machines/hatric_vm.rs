//! HATRIC and UNITD++ in virtual machines: what a change of the hypervisor's page table drops, and what it costs whom.

use crate::support::probe::on_host;
use crate::support::*;
use terrace_model::{Bytes, Frequency, PageSize, TierId};
use terrace_policy::{MemorySystem, Moment, Move, MoveOptions, NextTick, PageId, Signal, SignalSet};
use terrace_sim::design::{
    Associativity, Design, Granularity, GuestChanges, GuestTierParameters, HatricParameters, HostParameters,
    NestedParameters, PageWalkCacheParameters, Placement, VmParameters, WalkCacheSets, WalkCacheTags,
};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::{AccessKind, Event};

/// The costs of Linux's shootdowns in these designs, in nanoseconds, and that of a VM exit at 1 GHz.
const SEND: u64 = 1000;
const PER_CORE: u64 = 100;
const FLUSH: u64 = 140;
const EXIT: u64 = 1300;

/// When the hypervisor moves pages: all threads compute then.
const WHEN: u64 = 5_000_000;
/// The guest's second tier, which its programs' pages lie in, begins at this page of the guest's memory.
const FIRST: u64 = GIB / PAGE;

/// Cores of 1 GHz, so that a cycle is a nanosecond, on which a guest with pages of 4 KiB runs: its tables lie in its first
/// tier, its pages in its second. The machine has two tiers as well.
fn machine(cores: u32, coherence: &str, hatric: HatricParameters) -> Design {
    let mut design = small();
    design.core.count = cores;
    design.core.frequency = Frequency(1e9);
    design.os.reserved = Bytes(0);
    design.tiers[0].capacity = Bytes::mib(64);
    let mut slow = design.tiers[0].clone();
    slow.name = "slow".to_owned();
    design.tiers.push(slow);
    let tier =
        |name: &str| GuestTierParameters { name: name.to_owned(), capacity: Bytes::mib(16), host_tier: None };
    design.vm = Some(VmParameters { tiers: vec![tier("tables"), tier("pages")], ..VmParameters::default() });
    design.os.page_table_tier = Some("tables".to_owned());
    design.os.placement = Placement::Bind { tier: "pages".to_owned() };
    design.host = Some(HostParameters { pages: only(PageSize::Base), ..HostParameters::default() });
    design.translation.page_walk_cache.entries = 16;
    let tlb = PageWalkCacheParameters { entries: 32, ..design.translation.page_walk_cache.clone() };
    design.translation.nested = Some(NestedParameters { tlb, ..NestedParameters::default() });
    design.translation.coherence = coherence.to_owned();
    design.translation.hatric = Some(hatric);
    design
}

fn hatric() -> HatricParameters {
    HatricParameters::default()
}

fn page(number: u64) -> u64 {
    DATA + number * PAGE
}

/// One thread on each core: the first writes `pages` pages, each reads them twice, and all compute while the hypervisor
/// works. Then each does what `then` says.
fn threads(cores: u32, pages: u64, then: impl Fn(&mut Program)) -> Program {
    let mut program = Program::new();
    program.map(DATA, 64 * PAGE);
    (1..cores).for_each(|core| _ = program.on(core).spawn(0, core, None));
    program.on(0);
    (0..pages).for_each(|number| _ = program.write(page(number)));
    wait(&mut program, cores);
    for core in 0..cores {
        program.on(core);
        (0..2 * pages).for_each(|number| _ = program.read(page(number % pages)));
    }
    wait(&mut program, cores);
    (0..cores).for_each(|core| _ = program.on(core).event(Event::Compute { instructions: 40_000_000 }));
    wait(&mut program, cores);
    (0..cores).for_each(|core| then(program.on(core)));
    program
}

/// Runs it while the hypervisor moves pages of the guest's memory to its other tier.
fn run_moving(program: &Program, design: &Design, fidelity: Fidelity, moved: &[u64]) -> Outcome {
    let moved = moved.to_vec();
    let mut given = false;
    let on = move |now: Moment, _: &[Signal], memory: &mut dyn MemorySystem| {
        if now.0 < WHEN {
            return NextTick::At(Moment(WHEN));
        }
        if !std::mem::replace(&mut given, true) {
            let to = TierId(1);
            let orders: Vec<Move> = moved.iter().map(|vpn| Move { page: PageId::new(0, *vpn), to }).collect();
            memory.migrate(&orders, MoveOptions::default());
        }
        NextTick::Never
    };
    let options = Options { fidelity, ..on_host(SignalSet::NONE, on) };
    run_with(design, &mut program.source(), options).unwrap()
}

fn own(outcome: &Outcome, name: &str) -> u64 {
    count(outcome, &format!("translation_coherence.{name}"))
}

/// What a move adds to a count.
fn more(program: &Program, design: &Design, moved: &[u64], name: &str) -> u64 {
    let runs = [&[][..], moved].map(|moved| run_moving(program, design, Fidelity::Translation, moved));
    count(&runs[1], name) - count(&runs[0], name)
}

#[test]
fn one_migration_of_the_hypervisor_by_hand() {
    for (cores, pages) in [(1, 1), (4, 1), (8, 1), (16, 8)] {
        let program = threads(cores, pages, |_| ());
        let run = |coherence: &str| {
            run_moving(&program, &machine(cores, coherence, hatric()), Fidelity::Translation, &[FIRST])
        };
        let shootdowns = |outcome: &Outcome| {
            ["count", "targets", "time"]
                .map(|what| count(outcome, &format!("host.shootdowns.migration.{what}")))
        };
        let what = format!("{pages} pages on {cores} cores");
        let n = u64::from(cores);
        let trip = machine(cores, "hatric", hatric()).cache.cache_to_cache.0 as u64;
        // A thread of the hypervisor's interrupts all virtual CPUs and waits until they have left the guest.
        let (software, ideal) = (run("software"), run("ideal"));
        assert_eq!(shootdowns(&software), [1, n, SEND + PER_CORE * n + EXIT], "{what}");
        assert_eq!(shootdowns(&ideal), [1, n, 0], "{what}");
        assert_eq!(count(&software, "host.vm_exits.interrupt"), n);
        let cycles = |outcome: &Outcome| count(outcome, "core.cycles.os");
        assert_eq!(cycles(&software) - cycles(&ideal), n * EXIT, "{what}: each virtual CPU lost an exit");
        // A store whose request reaches all cores side by side; each searches the sets of the line's translations.
        let hardware = run("hatric");
        let sets = if pages == 1 { 1 } else { 4 };
        assert_eq!(shootdowns(&hardware), [1, 0, trip + sets], "{what}");
        assert_eq!(count(&hardware, "host.vm_exits.interrupt"), 0);
        assert_eq!(cycles(&hardware), cycles(&ideal), "{what}: no virtual CPU lost anything");
        // UNITD++ searches all four sets of level 2, and nested TLBs and page-walk caches take a remote flush.
        let unitd = run("unitd");
        assert_eq!(shootdowns(&unitd), [1, n, trip + 4 + SEND + PER_CORE * n + EXIT], "{what}");
        assert_eq!(cycles(&unitd) - cycles(&ideal), n * EXIT, "{what}");
    }
}

/// The bound is a bound: with coherence for nothing, a core with misses in flight does not notice that a page moves which
/// nobody uses any more.
#[test]
fn a_move_for_nothing_leaves_what_is_in_flight() {
    let mut program = Program::new();
    program.map(DATA, 64 * PAGE);
    program.on(1).spawn(0, 1, None);
    program.on(0);
    (0..48).for_each(|number| _ = program.write(page(number)));
    // Nothing but instructions until the pages are about to move.
    (0..2).for_each(|core| _ = program.on(core).event(Event::Compute { instructions: 160_000 * 120 }));
    for round in 0..30_000 {
        for core in 0..2 {
            program.on(core).access(page(round % 32), 8, AccessKind::Read, 0, 120);
        }
    }
    let time = |coherence: &str, moved: &[u64]| {
        run_moving(&program, &machine(2, coherence, hatric()), Fidelity::Translation, moved).cycles
    };
    let moved: Vec<u64> = (0..8).map(|number| FIRST + 40 + number).collect();
    assert_eq!(time("ideal", &moved), time("ideal", &[]));
    assert!(time("software", &moved) > time("software", &[]));
}

/// The line of the hypervisor's table that holds the entry of a page that moves has those of seven others.
#[test]
fn a_migration_drops_the_translations_of_its_line() {
    let program = threads(2, 8, |_| ());
    let dropped = |granularity| {
        let design = machine(2, "hatric", HatricParameters { granularity, ..hatric() });
        ["matched", "aliases"].map(|what| {
            more(&program, &design, &[FIRST + 3], &format!("translation_coherence.dropped.{what}"))
        })
    };
    // On each core: the four of eight pages that level 1 holds, eight of level 2, eight of the nested TLB.
    assert_eq!(dropped(Granularity::Line), [2 * (4 + 8 + 8), 0]);
    assert_eq!(dropped(Granularity::EightEntries), [2 * (4 + 8 + 8), 0]);
    // The fourth page alone, which has left level 1.
    assert_eq!(dropped(Granularity::Entry), [2 * (1 + 1), 0]);
}

#[test]
fn what_a_migration_makes_walks_of() {
    let program = threads(2, 16, |program| (0..16).for_each(|number| _ = program.read(page(number))));
    let walks = |coherence: &str, granularity| {
        let design = machine(2, coherence, HatricParameters { granularity, ..hatric() });
        ["walk.count", "walk.memory_refs"].map(|name| more(&program, &design, &[FIRST + 3], name) / 2)
    };
    // A walk to a page whose tables are known reads the guest's entry and the hypervisor's.
    assert_eq!(walks("ideal", Granularity::Line), [1, 2]);
    assert_eq!(walks("hatric", Granularity::Entry), [1, 2]);
    assert_eq!(walks("hatric", Granularity::Line), [8, 8 * 2]);
    // After a remote flush all pages are walked to, the first from both roots: four entries of the hypervisor's for the
    // guest's root, one each for its three other tables, three for the page, which lies 1 GiB away, and four of the guest's.
    let first = 4 + 3 + 3 + 4;
    assert_eq!(walks("software", Granularity::Line), [16, first + 15 * 2]);
    // UNITD++ flushes nested TLBs and page-walk caches, and leaves the other translations of TLBs.
    assert_eq!(walks("unitd", Granularity::Line), [8, first + 7 * 2]);
}

/// The guest's four tables lie in the first pages of its memory, whose entries share a line.
#[test]
fn a_page_of_the_guests_tables_moves() {
    let program = threads(2, 8, |program| _ = program.read(page(8)));
    let dropped = |walk_cache| {
        let mut design = machine(2, "hatric", hatric());
        design.translation.nested.as_mut().unwrap().walk_cache = walk_cache;
        more(&program, &design, &[0], "translation_coherence.dropped.matched")
    };
    // Four pages of the nested TLB. A page-walk cache that holds where tables lie loses what led to three of them too.
    assert_eq!(dropped(WalkCacheTags::GuestPhysical), 2 * 4);
    assert_eq!(dropped(WalkCacheTags::GuestVirtual), 2 * (4 + 3));
}

#[test]
fn the_nested_tlb_is_searched_where_the_entry_leads() {
    let program = threads(2, 8, |_| ());
    let searched = |walk_cache_sets, granularity| {
        let mut design = machine(2, "hatric", HatricParameters { walk_cache_sets, granularity, ..hatric() });
        design.translation.nested.as_mut().unwrap().tlb.ways = Associativity::Ways(2);
        more(&program, &design, &[FIRST], "translation_coherence.probes.sets.nested_tlb")
    };
    // By entries, both cores stay sharers for the neighbours, and get messages of both stores of a move.
    assert_eq!(searched(WalkCacheSets::Derived, Granularity::Entry), 2 * 2);
    assert_eq!(searched(WalkCacheSets::Derived, Granularity::Line), 2 * 8, "eight entries, eight of 16 sets");
    assert_eq!(searched(WalkCacheSets::SearchAll, Granularity::Line), 2 * 16);
}

/// Co-tags are those of the hypervisor's entries, so that changes of the guest's are left to software.
#[test]
fn a_guests_own_changes_take_interrupts_or_nothing() {
    let mut program = threads(4, 1, |_| ());
    program.on(0).unmap(page(0), PAGE);
    let shootdowns = |guest_changes, coherence: &str| {
        let design = machine(4, coherence, HatricParameters { guest_changes, ..hatric() });
        let outcome = run_moving(&program, &design, Fidelity::Full, &[]);
        ["count", "targets", "time"].map(|what| count(&outcome, &format!("os.shootdowns.munmap.{what}")))
    };
    for coherence in ["hatric", "unitd"] {
        let software = shootdowns(GuestChanges::Software, coherence);
        assert_eq!(software, [1, 3, FLUSH + SEND + 3 * PER_CORE], "{coherence}");
        assert_eq!(shootdowns(GuestChanges::Free, coherence), [1, 3, 0], "{coherence}");
    }
}

/// Every message is answered, also where page tables lie in two systems and directory entries have to go.
#[test]
fn messages_are_conserved_in_a_virtual_machine() {
    for coherence in ["hatric", "unitd"] {
        let mut design = machine(3, coherence, hatric());
        design.cache.l1.capacity = Bytes(4 * KIB);
        design.cache.l2.capacity = Bytes(8 * KIB);
        let program = threads(3, 64, |program| (0..64).for_each(|number| _ = program.write(page(number))));
        let moved: Vec<u64> = (0..40).map(|number| FIRST + number).collect();
        let outcome = run_moving(&program, &design, Fidelity::Full, &moved);
        let sent = own(&outcome, "messages.invalidations") + own(&outcome, "messages.back_invalidations");
        assert!(own(&outcome, "messages.invalidations") > 0);
        assert_eq!(sent, own(&outcome, "messages.acknowledgements"), "{coherence}");
    }
}

/// The designs at a small scale: eight threads update a table that is twice as large as the die-stacked memory.
#[test]
fn the_designs_page_between_two_memories() {
    let run = |name: &str, stacked: &str| {
        let sets = [
            ("os.reserved", "0 MiB"),
            ("tier.0.capacity", stacked),
            ("tier.1.capacity", "256 MiB"),
            ("vm.memory", "128 MiB"),
        ];
        let mut all = sets.to_vec();
        if !name.ends_with("hbm") {
            all.push(("host.policy.free_pool", "256 KiB"));
        }
        let mut source = workload("gups,bytes=16MiB,updates=1e4,threads=8");
        let options = Options { fidelity: Fidelity::Translation, ..Options::default() };
        run_with(&design(name, "haswell-32", &all), &mut *source, options).unwrap()
    };
    let moves = |outcome: &Outcome| count(outcome, "host.shootdowns.migration.count");
    let exits = |outcome: &Outcome| count(outcome, "host.vm_exits.interrupt");
    for (name, interrupts) in [
        ("virtual-hatric-sw", true),
        ("virtual-hatric", false),
        ("virtual-hatric-unitd", true),
        ("virtual-hatric-ideal", false),
    ] {
        let outcome = run(name, "8 MiB");
        assert!(moves(&outcome) > 1000, "{name}: {} moves", moves(&outcome));
        assert_eq!(exits(&outcome) > 0, interrupts, "{name}: {} exits", exits(&outcome));
    }
    let (none, all) = (run("virtual-hatric-no-hbm", "8 MiB"), run("virtual-hatric-inf-hbm", "128 MiB"));
    assert_eq!((moves(&none), moves(&all)), (0, 0));
    // By hand. The guest uses its memory from address 0 on: 4096 pages of the program and 11 of its page tables, a root,
    // two below it and eight of leaves for 16 MiB that begin at a boundary of 2 MiB. The hypervisor maps those 4107 by a
    // root, two tables below it, and nine of leaves, each for 512 pages.
    let guest: u64 = 4096 + (1 + 2 + 8);
    assert_eq!(count(&none, "tier.dram.pages"), guest);
    let tables = 1 + 2 + guest.div_ceil(512);
    assert_eq!((tables, count(&none, "tier.stacked.pages")), (12, 12));
    assert_eq!(count(&all, "tier.dram.pages"), 0);
}
