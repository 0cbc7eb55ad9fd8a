//! Translation coherence: what a change of a page table costs whom, and that nobody goes on with what was.

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

/// Who stores waits for a transfer between caches where others hold translations of the line, and for the sets that are
/// searched: as long for one other core as for seven.
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
    // Nobody has to be notified of new rights of a page.
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

/// Threads and processes that map, touch, protect, move, unmap and fork. What changed is touched by all threads next.
fn churn(seed: u64) -> Program {
    let mut random = Random(seed);
    let mut program = Program::new();
    let base = |area: u64| DATA + area * 8 * MIB;
    for area in 0..3 {
        program.map(base(area), 6 * MIB);
    }
    for thread in 1..3 {
        program.on(thread).spawn(0, thread, None);
    }
    let mut processes = 1;
    for _ in 0..40 {
        let area = base(random.below(3));
        let (start, pages) = (area + random.below(1400) * PAGE, 1 + random.below(100));
        let touch = |program: &mut Program, random: &mut Random| {
            for thread in 0..3 {
                program.on(thread);
                for _ in 0..60 {
                    let addr = start + random.below(pages) * PAGE + random.below(64) * 64;
                    let kind = if random.below(3) == 0 { AccessKind::Write } else { AccessKind::Read };
                    program.access(addr, 8, kind, 0, 100 + random.below(2000));
                }
                program.mark(MarkKind::Barrier);
            }
        };
        touch(&mut program, &mut random);
        program.on(random.below(3) as u32);
        let (bytes, range) = (pages * PAGE, AddressRange::new(start, pages * PAGE));
        match random.below(7) {
            0 => _ = program.unmap(start, bytes).map(start, bytes),
            1 => _ = program.remap((area, 2 * MIB), (area + 4 * MIB, 2 * MIB)).map(area, 2 * MIB),
            2 => _ = program.event(Event::Advise { range, advice: Advice::DontNeed }),
            3 => {
                let protection = if random.below(2) == 0 { Protection::READ } else { Protection::READ_WRITE };
                program.event(Event::Protect { range, protection });
            }
            4 => _ = program.kernel(start, bytes, KernelAccess::Write),
            _ if processes < 4 => {
                let child = 2 + processes;
                program.on(child).spawn(processes, 0, Some(0));
                (0..pages.min(40)).for_each(|page| _ = program.write(start + page * PAGE));
                match random.below(3) {
                    0 => _ = program.exit(true),
                    1 => {
                        program.event(Event::Exec { name: String::new() }).map(base(0), 8 * MIB);
                        (0..1000).for_each(|_| {
                            let kind =
                                if random.below(3) == 0 { AccessKind::Write } else { AccessKind::Read };
                            let addr = base(0) + random.below(300) * PAGE;
                            program.access(addr, 8, kind, 0, 100 + random.below(2000));
                        });
                    }
                    _ => {}
                }
                processes += 1;
            }
            _ => {}
        }
        program.mark(MarkKind::Barrier);
        touch(&mut program, &mut random);
    }
    program
}

/// Moves, exchanges, splits, joins and watches pages at random.
fn meddler(seed: u64) -> impl FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send {
    let mut random = Random(seed);
    move |now, _, memory| {
        let mut pages = Vec::new();
        let mut hand = ScanHand { next: PageId::new(0, random.below(1 << 34)) };
        let clear = Clear { accessed: true, dirty: true, flush: true };
        memory.scan(Scope::All, &mut hand, clear, &mut |view| {
            pages.push(view.page);
            if random.below(2) == 0 { Step::Clear } else { Step::Keep }
        });
        if pages.is_empty() {
            return every(now, 2000);
        }
        let one = |random: &mut Random| pages[random.below(pages.len() as u64) as usize];
        // Where there is no hypervisor, or the policy is the hypervisor's own, mappings are not exchanged.
        let copy = match NonZeroU16::new(random.below(2048) as u16) {
            Some(pairs) if pairs.get() <= 512 => CopyBy::Mapping(pairs),
            _ => CopyBy::Bytes,
        };
        let how = MoveOptions {
            huge: if random.below(2) == 0 { HugePages::Whole } else { HugePages::SplitFirst },
            threads: 1,
            in_flight: NonZeroU32::new(random.below(9) as u32),
            copy,
            empties_lists: true,
        };
        let some: Vec<PageId> = (0..random.below(12)).map(|_| one(&mut random)).collect();
        match random.below(4) {
            0 => {
                let to = TierId(random.below(2) as u8);
                memory.migrate(&some.iter().map(|page| Move { page: *page, to }).collect::<Vec<_>>(), how);
            }
            1 => {
                let pair = |page: &PageId| Exchange { one: *page, other: one(&mut random) };
                memory.exchange(&some.iter().map(pair).collect::<Vec<_>>(), how);
            }
            2 => {
                let to = if random.below(2) == 0 { PageSize::Base } else { PageSize::Huge };
                let resize = |page: &PageId| Resize { page: page.aligned(to), to };
                memory.resize_by(&some.iter().map(resize).collect::<Vec<_>>(), copy);
            }
            _ => {
                let hows = [Watch::Off, Watch::Hint, Watch::HintStore, Watch::Count];
                memory.watch(&some, hows[random.below(4) as usize]);
            }
        }
        every(now, 1000 + random.below(20_000))
    }
}

/// The machine in a virtual machine with a tier in each of its own.
fn in_vm(mut design: Design, host: PagePolicy) -> Design {
    let tiers = [("near", 1500 * PAGE), ("far", 40 * MIB)].into_iter().zip(&design.tiers);
    let tier =
        |((name, bytes), of): ((&str, u64), &terrace_sim::design::TierParameters)| GuestTierParameters {
            name: name.to_owned(),
            capacity: Bytes(bytes),
            host_tier: Some(of.name.clone()),
        };
    design.vm = Some(VmParameters { tiers: tiers.map(tier).collect(), ..VmParameters::default() });
    design.os.page_table_tier = None;
    design.host = Some(HostParameters { pages: host, ..HostParameters::default() });
    design
}

const SCHEMES: [&str; 10] =
    ["radix", "perfect-tlb", "vivt", "colt", "rmm", "direct-segment", "spot", "pom-tlb", "vbi", "enigma"];

/// Hardware of every kind.
fn hatric() -> impl Strategy<Value = HatricParameters> {
    let choices = (
        prop_oneof![Just(1u32), Just(2), Just(3), Just(8)],
        prop_oneof![Just(Granularity::Line), Just(Granularity::EightEntries), Just(Granularity::Entry)],
        any::<[bool; 9]>(),
    );
    choices.prop_map(|(co_tag_bytes, granularity, bits)| HatricParameters {
        co_tag_bytes,
        granularity,
        local_stores: if bits[0] { LocalStores::Probe } else { LocalStores::Software },
        fill_notices: if bits[1] { FillNotices::Message } else { FillNotices::SearchAll },
        set_numbers: if bits[2] { SetNumbers::Whole } else { SetNumbers::SixBits },
        synonyms: if bits[3] { Synonyms::SearchAll } else { Synonyms::ListAll },
        walk_cache_sets: if bits[4] { WalkCacheSets::Derived } else { WalkCacheSets::SearchAll },
        guest_changes: if bits[1] ^ bits[5] { GuestChanges::Software } else { GuestChanges::Free },
        freed_tables: if bits[5] { FreedTables::Stores } else { FreedTables::Flush },
        walker_stores: if bits[6] { WalkerStores::Invalidate } else { WalkerStores::Ignore },
        directory_updates: if bits[7] { DirectoryUpdates::Lazy } else { DirectoryUpdates::Eager },
        tracking: if bits[8] { Tracking::Shared } else { Tracking::Fine },
        directory_size: if bits[0] ^ bits[8] { DirectorySize::Bounded } else { DirectorySize::Boundless },
        ..HatricParameters::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// In builds with debug assertions, as these are, an access that is translated to another frame than the page table's
    /// ends the run.
    #[test]
    fn nobody_goes_on_with_what_was(
        seed: u64,
        scheme in 0..SCHEMES.len() + 3,
        coherence in 0..5usize,
        hatric in hatric(),
        nested: bool,
        huge: bool,
        full: bool,
        virtual_machine: bool,
        host_huge: bool,
        two_vms: bool,
    ) {
        // Range TLBs more often: what hardware does to them has options of its own.
        let scheme = SCHEMES.get(scheme).copied().unwrap_or("rmm");
        let coherence = ["software", "software-virtual", "ideal", "hatric", "unitd"][coherence];
        let hardware = coherence == "hatric" || coherence == "unitd";
        let (mut hatric, mut scheme) = (hatric, scheme);
        if hardware && scheme == "colt" {
            // One co-tag speaks of all pages that an entry covers.
            let HatricParameters { granularity, set_numbers, directory_updates, .. } = HatricParameters::default();
            hatric = HatricParameters { granularity, set_numbers, directory_updates, ..hatric };
        } else if hardware && scheme == "rmm" {
            let ranges = [Ranges::SearchAll, Ranges::RangeCover, Ranges::Split][seed as usize % 3];
            hatric = HatricParameters { ranges, directory_updates: DirectoryUpdates::Lazy, ..hatric };
        } else if hardware {
            scheme = "radix";
        }
        let mut design = machine(3, scheme, coherence);
        design.translation.hatric = Some(hatric);
        design.os.pages = if huge { PagePolicy::Thp } else { PagePolicy::Base };
        let virtual_caches = ["vivt", "vbi", "enigma"].contains(&scheme);
        let walks = !virtual_caches && scheme != "perfect-tlb";
        if scheme == "vbi" {
            let own = &mut design.translation.scheme.own;
            own.insert("delayed".to_owned(), nested.into());
            own.insert("reservation".to_owned(), if full { "early" } else { "none" }.into());
        }
        let in_machine = virtual_machine && ["radix", "pom-tlb"].contains(&scheme);
        if in_machine {
            design = in_vm(design, if host_huge { PagePolicy::Thp } else { PagePolicy::Base });
            if two_vms && let Some(vm) = &mut design.vm {
                vm.count = Some(2);
            }
            let cache = &mut design.translation.page_walk_cache;
            cache.entries = 16;
            let tlb = PageWalkCacheParameters { entries: 8, ..cache.clone() };
            let walk_cache = if nested { WalkCacheTags::GuestVirtual } else { WalkCacheTags::GuestPhysical };
            let walk_cache_dimensions =
                if seed % 2 == 0 { WalkCacheDimensions::Both } else { WalkCacheDimensions::Guest };
            design.translation.nested =
                Some(NestedParameters { tlb, walk_cache, walk_cache_dimensions, ..NestedParameters::default() });
        } else if nested && walks {
            let tlb = PageWalkCacheParameters { entries: 8, ..design.translation.page_walk_cache.clone() };
            design.translation.nested = Some(NestedParameters { host: Some(PageSize::Huge), tlb, ..NestedParameters::default() });
        }
        // Virtual caches translate beyond the L2, so they need it.
        let fidelity = if full || virtual_caches { Fidelity::Full } else { Fidelity::Translation };
        let program = churn(seed);
        let alone = program.run_whole(&design, fidelity);
        prop_assert!(count(&alone, "os.shootdowns.count") > 3);
        if virtual_caches {
            return Ok(());
        }
        let signals = SignalSet::of(SignalKind::ALL);
        // A policy of a guest manages one virtual machine.
        let two_vms = in_machine && two_vms;
        if !two_vms {
            let managed = probe(&program, &design, fidelity, (TierId(0), signals), meddler(seed));
            prop_assert!(count(&managed, "policy.calls") > 10);
            prop_assert_eq!(managed.accesses, alone.accesses);
        }
        if in_machine {
            // Alone in the hypervisor, and on both sides at once.
            for both in [false, true].into_iter().filter(|both| !(*both && two_vms)) {
                let mut options = Options { fidelity, ..on_host(signals, meddler(seed ^ 1)) };
                if both {
                    options = in_guest(options, signals, meddler(seed));
                }
                let outcome = run_with(&design, &mut program.source(), options).unwrap();
                prop_assert!(count(&outcome, "host.policy.calls") > 10);
                prop_assert_eq!(outcome.accesses, alone.accesses);
            }
        }
    }
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
                [("tier.0.capacity", "16 MiB"), ("tier.1.capacity", "256 MiB"), ("os.reserved", "0 MiB")];
            let mut sets: Vec<(String, String)> =
                sets.map(|(key, value)| (key.into(), value.into())).to_vec();
            sets.push(("os.policy.name".into(), name.into()));
            let own = parameters.iter().map(|(key, value)| (format!("os.policy.{key}"), (*value).to_owned()));
            sets.extend(own);
            let sets: Vec<(&str, &str)> = sets.iter().map(|(key, value)| (&**key, &**value)).collect();
            let design = design(coherence, "haswell-32", &sets);
            run(&design, &mut *workload("kv,keys=6e4,requests=1e4,threads=4"), Fidelity::Full)
        };
        let [software, hardware] = ["hatric-sw", "hatric"].map(run);
        for outcome in [&software, &hardware] {
            assert!(count(outcome, "policy.shootdowns") > 0, "{name} changes entries that cores hold");
        }
        assert!(count(&software, "policy.interrupts") > 0, "{name}");
        assert_eq!(count(&hardware, "policy.interrupts"), 0, "{name}");
    }
}
