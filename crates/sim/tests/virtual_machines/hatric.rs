//! Translation coherence by hardware: the transactions of HATRIC by hand, and what each of its choices changes.

use crate::support::*;
use proptest::prelude::*;
use terrace_model::{Bytes, Cycles, Frequency, PageSize};
use terrace_sim::design::{
    Associativity, Design, DirectorySize, DirectoryUpdates, FillNotices, FreedTables, Granularity,
    HatricParameters, Library, LocalStores, PagePolicy, Ranges, SetNumbers, Tracking, WalkCacheSets,
    WalkerStores,
};
use terrace_sim::{Fidelity, Outcome};

/// Cores of 1 GHz, so that a cycle is a nanosecond; 3,000 pages of fast memory; TLBs as in [`small`].
fn machine(cores: u32, coherence: &str, hatric: HatricParameters) -> Design {
    let mut design = small();
    design.core.count = cores;
    design.core.frequency = Frequency(1e9);
    design.os.reserved = Bytes(0);
    design.tiers[0].capacity = Bytes(3000 * PAGE);
    design.translation.coherence = coherence.to_owned();
    design.translation.hatric = Some(hatric);
    design
}

fn hatric() -> HatricParameters {
    HatricParameters::default()
}

/// A page by its number.
fn page(number: u64) -> u64 {
    DATA + number * PAGE
}

/// Threads of one process on so many cores, and `pages` pages that may be touched.
fn threads(cores: u32, pages: u64) -> Program {
    let mut program = Program::new();
    program.map(DATA, pages * PAGE).map(DATA + GIB, 256 * PAGE);
    for core in 1..cores {
        program.on(core).spawn(0, core, None);
    }
    wait(&mut program, cores);
    program
}

/// A core reads pages of the program, and the others wait for that.
fn reads(program: &mut Program, cores: u32, core: u32, pages: &[u64]) {
    program.on(core);
    pages.iter().for_each(|number| _ = program.read(page(*number)));
    wait(program, cores);
}

fn writes(program: &mut Program, cores: u32, core: u32, pages: &[u64]) {
    program.on(core);
    pages.iter().for_each(|number| _ = program.write(page(*number)));
    wait(program, cores);
}

fn unmaps(program: &mut Program, cores: u32, core: u32, number: u64) {
    program.on(core).unmap(page(number), PAGE);
    wait(program, cores);
}

fn own(outcome: &Outcome, name: &str) -> u64 {
    count(outcome, &format!("translation_coherence.{name}"))
}

/// What a program counts beyond another.
fn more(after: &Outcome, before: &Outcome, name: &str) -> u64 {
    own(after, name) - own(before, name)
}

/// Figure 2.9: CPU 1 and CPU 3 share a line of a page table, CPU 0 reads it, CPU 1 unmaps one of its pages.
#[test]
fn the_transactions_of_figure_2_9() {
    let design = machine(4, "hatric", hatric());
    let mut program = threads(4, 64);
    // CPU 1 brings two pages in and uses both; CPU 3 caches both translations.
    writes(&mut program, 4, 1, &[0, 1, 0]);
    reads(&mut program, 4, 3, &[0, 1]);
    let shared = program.run(&design, Fidelity::Full);
    // CPU 0 misses its TLB: a read request to the directory, whose entry has the mark already. Nobody loses anything.
    reads(&mut program, 4, 0, &[0]);
    let read = program.run(&design, Fidelity::Full);
    for name in ["messages.invalidations", "messages.demotions", "messages.fill_notices", "dropped.matched"] {
        assert_eq!(more(&read, &shared, name), 0, "{name}");
    }
    // A second walk that finds the line in the private caches sends no request, so a notice gives the directory the sets.
    let mut again = program;
    reads(&mut again, 4, 0, &[1]);
    let read = again.run(&design, Fidelity::Full);
    assert_eq!(more(&read, &shared, "messages.fill_notices"), 1);
    // CPU 1 unmaps the first: the upgrade reaches CPU 0 and CPU 3. Each loses the line in its L1, and both translations in
    // level 1 and level 2 of its TLBs, though one page alone was unmapped; CPU 1 loses its own by a probe of its own.
    unmaps(&mut again, 4, 1, 0);
    let unmapped = again.run(&design, Fidelity::Full);
    assert_eq!(more(&unmapped, &read, "messages.invalidations"), 2);
    assert_eq!(more(&unmapped, &read, "messages.acknowledgements"), 2);
    assert_eq!(more(&unmapped, &read, "messages.demotions"), 0);
    assert_eq!(more(&unmapped, &read, "probes.local"), 1);
    assert_eq!(more(&unmapped, &read, "dropped.matched"), 3 * 2 * 2);
    assert_eq!(more(&unmapped, &read, "dropped.aliases"), 0);
    let lines = |outcome: &Outcome| count(outcome, "coherence.invalidations");
    assert_eq!(lines(&unmapped) - lines(&read), 2);
    // No interrupt.
    assert_eq!(counts(&unmapped, ["os.shootdowns.count", "os.shootdowns.targets"]), [1, 0]);
    // The other page of the line is walked to again by all who use it.
    let walks = |outcome: &Outcome| count(outcome, "walk.count");
    for core in [0, 1, 3] {
        reads(&mut again, 4, core, &[1]);
    }
    assert_eq!(walks(&again.run(&design, Fidelity::Full)) - walks(&unmapped), 3);
}

/// A core whose translations had to go for others is still a sharer: it gets the message of the store, and leaves the
/// sharers then. With eager updates it has left before, and gets no message.
#[test]
fn sharers_are_demoted_lazily_or_at_once() {
    let run = |directory_updates| {
        let design = machine(2, "hatric", HatricParameters { directory_updates, ..hatric() });
        let mut program = threads(2, 64);
        writes(&mut program, 2, 0, &[0]);
        reads(&mut program, 2, 1, &[0]);
        // 80 pages elsewhere push it out of TLBs of 16 entries: in a second round, since each fault of the first stores to
        // the line of its neighbours, and drops their translations.
        program.on(1);
        (0..160).for_each(|number| _ = program.read(DATA + GIB + number % 80 * PAGE));
        wait(&mut program, 2);
        let before = program.run(&design, Fidelity::Translation);
        unmaps(&mut program, 2, 0, 0);
        let after = program.run(&design, Fidelity::Translation);
        let message = ["messages.invalidations", "messages.acknowledgements", "messages.demotions"];
        (message.map(|name| more(&after, &before, name)), own(&after, "messages.eager_updates"))
    };
    let (lazy, updates) = run(DirectoryUpdates::Lazy);
    assert_eq!((lazy, updates), ([1, 1, 1], 0));
    let (eager, updates) = run(DirectoryUpdates::Eager);
    assert_eq!(eager, [0, 0, 0]);
    assert!(updates > 0);
}

/// The pages 0 and 256 have entries 2 KiB apart, and stand in the same sets.
#[test]
fn short_co_tags_take_others_with_them() {
    let aliases = |co_tag_bytes, granularity, other: u64| {
        let design = machine(1, "hatric", HatricParameters { co_tag_bytes, granularity, ..hatric() });
        let mut program = threads(1, 512);
        writes(&mut program, 1, 0, &[0, other, 0]);
        unmaps(&mut program, 1, 0, 0);
        own(&program.run(&design, Fidelity::Translation), "dropped.aliases")
    };
    assert_eq!(
        aliases(1, Granularity::Line, 256),
        2,
        "in level 1 and level 2; at the fault of 256 no set of its line is known yet"
    );
    for bytes in [2, 3, 8] {
        assert_eq!(aliases(bytes, Granularity::Line, 256), 0);
    }
    // A line's co-tag ignores which of its entries is meant; eight probes do not.
    assert_eq!(aliases(1, Granularity::Line, 260), 2);
    assert_eq!(aliases(1, Granularity::EightEntries, 260), 0);
    assert_eq!(aliases(1, Granularity::EightEntries, 256), 2);
}

#[test]
fn by_entries_the_neighbours_stay() {
    let walks = |granularity| {
        let design = machine(2, "hatric", HatricParameters { granularity, ..hatric() });
        let mut program = threads(2, 64);
        writes(&mut program, 2, 0, &[0, 1]);
        reads(&mut program, 2, 1, &[0, 1]);
        unmaps(&mut program, 2, 0, 0);
        let before = program.run(&design, Fidelity::Full);
        reads(&mut program, 2, 1, &[1]);
        // And a message is sent of the next store, although the line was stored to before.
        unmaps(&mut program, 2, 0, 1);
        let after = program.run(&design, Fidelity::Full);
        (
            count(&after, "walk.count") - count(&before, "walk.count"),
            more(&after, &before, "messages.invalidations"),
        )
    };
    assert_eq!(walks(Granularity::Line), (1, 1));
    assert_eq!(walks(Granularity::EightEntries), (1, 1));
    assert_eq!(walks(Granularity::Entry), (0, 1));
}

#[test]
fn a_core_probes_its_own_structures_or_drops_page_by_page() {
    let waits = |local_stores, probe_latency| {
        let hatric = HatricParameters { local_stores, probe_latency: Cycles(probe_latency), ..hatric() };
        let design = machine(1, "hatric", hatric);
        let mut program = threads(1, 64);
        writes(&mut program, 1, 0, &[0, 1]);
        program.on(0).unmap(page(0), 2 * PAGE);
        count(&program.run(&design, Fidelity::Translation), "os.shootdowns.munmap.time")
    };
    assert_eq!(waits(LocalStores::Probe, 1.0), 2, "two sets of each array, one after the other");
    assert_eq!(waits(LocalStores::Probe, 5.0), 10);
    assert_eq!(waits(LocalStores::Software, 1.0), 2 * 140);
}

#[test]
fn set_numbers_say_where_to_look() {
    let sets = |fill_notices, set_numbers| {
        let hatric = HatricParameters { fill_notices, set_numbers, ..hatric() };
        let mut design = machine(2, "hatric", hatric);
        // 128 sets in level 2.
        design.translation.l2.array[0].entries = 256;
        design.translation.l2.array[0].ways = Associativity::Ways(2);
        let mut program = threads(2, 64);
        writes(&mut program, 2, 0, &[0]);
        reads(&mut program, 2, 1, &[0]);
        let before = program.run(&design, Fidelity::Full);
        unmaps(&mut program, 2, 0, 0);
        let after = program.run(&design, Fidelity::Full);
        (more(&after, &before, "probes.sets.l2_tlb"), own(&after, "messages.fill_notices"))
    };
    // On both cores.
    let (searched, _) = sets(FillNotices::Message, SetNumbers::Whole);
    assert_eq!(searched, 2);
    assert_eq!(sets(FillNotices::Message, SetNumbers::SixBits).0, 2 * 2);
    let (searched, notices) = sets(FillNotices::SearchAll, SetNumbers::Whole);
    assert_eq!(searched, 2 * 128);
    // The faulting core's own store brought the line before its walk: that has to be reported once in any case.
    assert_eq!(notices, 1);
}

#[test]
fn the_page_walk_cache_is_searched_where_the_entry_leads() {
    let run = |walk_cache_sets, tracking| {
        let hatric = HatricParameters { walk_cache_sets, tracking, ..hatric() };
        let mut design = machine(2, "hatric", hatric);
        design.translation.page_walk_cache.entries = 64;
        design.translation.page_walk_cache.ways = Associativity::Ways(1);
        let mut program = threads(2, 64);
        writes(&mut program, 2, 0, &[0]);
        reads(&mut program, 2, 1, &[0]);
        let before = program.run(&design, Fidelity::Translation);
        unmaps(&mut program, 2, 0, 0);
        let after = program.run(&design, Fidelity::Translation);
        ["page_walk_cache", "l1_tlb"].map(|name| more(&after, &before, &format!("probes.sets.{name}")))
    };
    let [derived, tlbs] = run(WalkCacheSets::Derived, Tracking::Shared);
    // Eight entries of a line at any of four levels; three arrays of level 1.
    assert_eq!([derived, tlbs], [2 * 32, 2 * 3]);
    assert_eq!(run(WalkCacheSets::SearchAll, Tracking::Shared), [2 * 64, 2 * 3]);
    // A directory that knows that the line's translations are in TLBs alone asks nothing else.
    assert_eq!(run(WalkCacheSets::Derived, Tracking::Fine), [0, 2 * 3]);
}

#[test]
fn walkers_that_set_bits_store_as_anybody_does() {
    let walks = |walker_stores| {
        let design = machine(2, "hatric", HatricParameters { walker_stores, ..hatric() });
        let mut program = threads(2, 64);
        reads(&mut program, 2, 0, &[0]);
        reads(&mut program, 2, 1, &[0]);
        // The first store sets the dirty bit.
        writes(&mut program, 2, 0, &[0]);
        let before = program.run(&design, Fidelity::Full);
        reads(&mut program, 2, 1, &[0]);
        unmaps(&mut program, 2, 0, 0);
        let after = program.run(&design, Fidelity::Full);
        (
            count(&after, "walk.count") - count(&before, "walk.count"),
            more(&after, &before, "messages.invalidations"),
        )
    };
    assert_eq!(walks(WalkerStores::Invalidate), (1, 1));
    assert_eq!(walks(WalkerStores::Ignore), (0, 1), "and messages of the unmap are sent all the same");
}

#[test]
fn a_process_that_ends_clears_its_entries_or_is_flushed() {
    let messages = |freed_tables| {
        let design = machine(2, "hatric", HatricParameters { freed_tables, ..hatric() });
        let mut program = threads(2, 64);
        writes(&mut program, 2, 0, &[0]);
        reads(&mut program, 2, 1, &[0]);
        program.on(1).exit(false);
        program.on(0).exit(true);
        let outcome = program.run_whole(&design, Fidelity::Full);
        (own(&outcome, "messages.invalidations"), own(&outcome, "dropped.matched"))
    };
    let (messages_of_stores, dropped) = messages(FreedTables::Stores);
    assert_eq!((messages_of_stores, dropped), (1, 2 + 2));
    assert_eq!(messages(FreedTables::Flush), (0, 0));
}

/// A line of translations keeps its entry when it leaves the caches, so entries pile up until some have to go.
#[test]
fn directory_entries_that_go_take_translations_along() {
    let run = |directory_size| {
        let mut design = machine(2, "hatric", HatricParameters { directory_size, ..hatric() });
        design.cache.l1.capacity = Bytes(4 * KIB);
        design.cache.l2.capacity = Bytes(8 * KIB);
        design.translation.l2.array[0].entries = 2048;
        let mut program = threads(2, 8192);
        program.on(0);
        // One page of each line of the table: two cores with 192 lines each have a directory of 768.
        (0..1000).for_each(|line| _ = program.read(page(8 * line)));
        program.run(&design, Fidelity::Full)
    };
    let bounded = run(DirectorySize::Bounded);
    assert!(own(&bounded, "messages.back_invalidations") > 100);
    assert_eq!(own(&bounded, "messages.acknowledgements"), own(&bounded, "messages.back_invalidations"));
    assert_eq!(own(&run(DirectorySize::Boundless), "messages.back_invalidations"), 0);
}

/// When a huge page is split an entry above the leaves changes: software drops the page-walk caches of UNITD++.
#[test]
fn unitd_leaves_page_walk_caches_to_software() {
    let run = |coherence: &str| {
        let mut design = machine(2, coherence, hatric());
        design.os.pages = PagePolicy::Thp;
        design.translation.page_walk_cache.entries = 16;
        let mut program = Program::new();
        program.map(DATA, 4 * MIB);
        program.on(1).spawn(0, 1, None);
        wait(&mut program, 2);
        writes(&mut program, 2, 0, &[0]);
        reads(&mut program, 2, 1, &[0]);
        unmaps(&mut program, 2, 0, 3);
        reads(&mut program, 2, 1, &[1]);
        let outcome = program.run(&design, Fidelity::Full);
        assert_eq!(count(&outcome, &format!("os.faults_by_size.{}", PageSize::Huge)), 1);
        (count(&outcome, "os.shootdowns.munmap.targets"), own(&outcome, "probes.sets.page_walk_cache") > 0)
    };
    assert_eq!(run("hatric"), (0, true));
    assert_eq!(run("unitd"), (1, false));
}

#[test]
fn unitd_searches_every_translation() {
    let searched = |coherence: &str| {
        let mut program = threads(2, 64);
        writes(&mut program, 2, 0, &[0]);
        reads(&mut program, 2, 1, &[0]);
        let design = machine(2, coherence, HatricParameters { co_tag_bytes: 1, ..hatric() });
        let before = program.run(&design, Fidelity::Full);
        unmaps(&mut program, 2, 0, 0);
        let after = program.run(&design, Fidelity::Full);
        more(&after, &before, "probes.compared")
    };
    // Each core searches a set of two of level 1's base pages, one of two for each larger size, and a set of four of level
    // 2.
    assert_eq!(searched("hatric"), 2 * (2 + 2 + 2 + 4));
    assert_eq!(searched("unitd"), 2 * (4 + 2 + 2 + 16));
}

#[test]
fn energy_is_counts_times_the_table() {
    let table = [
        ("translation.energy.l1_lookup", "1 pJ"),
        ("translation.energy.l2_lookup", "10 pJ"),
        ("translation.energy.walk_cache_lookup", "0 pJ"),
        ("translation.energy.fill", "100 pJ"),
        ("translation.energy.walk_reference", "0 pJ"),
        ("translation.energy.co_tag_byte", "1 nJ"),
        ("translation.energy.co_tag_fill_byte", "2 nJ"),
        ("translation.energy.message", "7 nJ"),
        ("translation.energy.directory_byte", "3 nJ"),
        ("translation.energy.interrupt", "1 uJ"),
    ];
    let with_table = design("native-4k", "vbi-table1", &table).translation.energy;
    let run = |coherence: &str| {
        let mut design = machine(2, coherence, hatric());
        design.translation.energy = with_table.clone();
        let mut program = threads(2, 64);
        writes(&mut program, 2, 0, &[0]);
        reads(&mut program, 2, 1, &[0, 0, 0]);
        unmaps(&mut program, 2, 0, 0);
        program.run(&design, Fidelity::Full)
    };
    let joules = |outcome: &Outcome, name: &str| outcome.stats.number(&format!("energy.translation.{name}"));
    let with = |coherence: &str, keys: HatricParameters| {
        let mut design = machine(2, coherence, keys);
        design.translation.energy = with_table.clone();
        let mut program = threads(2, 64);
        writes(&mut program, 2, 0, &[0]);
        program.run(&design, Fidelity::Full)
    };
    let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-15, "{one} {other}");
    let outcome = run("hatric");
    // Four accesses, two of which miss level 1 and level 2, walk and fill.
    near(joules(&outcome, "lookups"), 4.0 * 1e-12 + 2.0 * 10e-12);
    near(joules(&outcome, "fills"), 2.0 * 100e-12 + 2.0 * 2.0 * 2e-9);
    near(joules(&outcome, "probes"), own(&outcome, "probes.compared") as f64 * 2.0 * 1e-9);
    let messages =
        ["invalidations", "back_invalidations", "acknowledgements", "fill_notices", "eager_updates"];
    let messages: u64 = messages.iter().map(|name| own(&outcome, &format!("messages.{name}"))).sum();
    near(joules(&outcome, "messages"), messages as f64 * 7e-9);
    near(joules(&outcome, "interrupts"), 0.0);
    // One walk, without a page-walk cache, notifies the directory of one entry. The access is to the line's entry of 6 bytes
    // and to two more with set numbers; with sets of six bits to one more; with fine tracking to a byte for each structure.
    let six_bits = HatricParameters { set_numbers: SetNumbers::SixBits, ..hatric() };
    let fine = HatricParameters { tracking: Tracking::Fine, ..hatric() };
    let fill = 3e-9;
    near(joules(&with("hatric", hatric()), "directory"), fill * 18.0);
    near(joules(&with("hatric", six_bits), "directory"), fill * 12.0);
    near(joules(&with("hatric", fine), "directory"), fill * 20.0);
    near(joules(&with("software", hatric()), "directory"), 0.0);
    near(joules(&run("software"), "interrupts"), 1e-6);
    near(joules(&run("ideal"), "interrupts"), 0.0);
    let parts = ["lookups", "walks", "fills", "probes", "messages", "directory", "interrupts"];
    near(joules(&outcome, "total"), parts.iter().map(|part| joules(&outcome, part)).sum());
}

#[test]
fn ranges_lose_all_or_the_range_or_the_pages_stored_to() {
    let run = |coherence: &str, ranges: Ranges| {
        let mut design = machine(2, coherence, HatricParameters { ranges, ..hatric() });
        design.translation.scheme.kind = "rmm".to_owned();
        let pages: Vec<u64> = (0..256).collect();
        let program = || {
            let mut program = threads(2, 256);
            writes(&mut program, 2, 0, &pages);
            (0..2).for_each(|_| reads(&mut program, 2, 0, &pages));
            program
        };
        let before = program().run(&design, Fidelity::Full);
        let mut changed = program();
        unmaps(&mut changed, 2, 1, 100);
        reads(&mut changed, 2, 0, &pages[..96]);
        let after = changed.run(&design, Fidelity::Full);
        let walks = after.stats.integer("walk.count") - before.stats.integer("walk.count");
        let [messages, dropped, cut] =
            ["messages", "dropped", "cut"].map(|name| more(&after, &before, &format!("ranges.{name}")));
        assert_eq!(messages, 1, "one line is stored to, and there is one other core");
        (dropped, cut, walks)
    };
    for coherence in ["hatric", "unitd"] {
        let [all, cover, split] =
            [Ranges::SearchAll, Ranges::RangeCover, Ranges::Split].map(|how| run(coherence, how));
        assert!(all.0 >= 1 && all.1 == 0, "{all:?}");
        assert_eq!((cover.0, cover.1), (1, 0), "the range of the page goes");
        assert_eq!((split.0, split.1), (0, 1), "it is cut at the page's line");
        // What the range covered before the page is walked to again, unless the part stays.
        assert!(cover.2 > 0 && all.2 > 0 && split.2 == 0, "{all:?} {cover:?} {split:?}");
    }
}

#[test]
fn hardware_needs_translations_that_walks_made() {
    let load = |sets: &[(&str, &str)]| {
        let sets: Vec<_> = sets.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Library::embedded().design("pom-tlb", None, &sets).unwrap_err().to_string()
    };
    let error = load(&[("translation.coherence", "hatric")]);
    assert!(error.contains("translation.coherence") && error.contains("pom-tlb"), "{error}");
    let error = load(&[
        ("translation.scheme.kind", "rmm"),
        ("translation.coherence", "unitd"),
        ("translation.hatric.directory_updates", "eager"),
    ]);
    assert!(error.contains("translation.hatric.directory_updates") && error.contains("\"lazy\""), "{error}");
    let error = load(&[("translation.hatric.co_tag_bytes", "4")]);
    assert!(error.contains("co_tag_bytes") && error.contains("1, 2, 3 or 8"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Every message is answered, whatever the hardware, and equal runs count equally.
    #[test]
    fn messages_are_conserved(seed: u64, eager: bool, unitd: bool, bytes in prop_oneof![Just(1u32), Just(2)]) {
        let directory_updates = if eager { DirectoryUpdates::Eager } else { DirectoryUpdates::Lazy };
        let parameters = HatricParameters { co_tag_bytes: bytes, directory_updates, ..hatric() };
        let mut design = machine(3, if unitd { "unitd" } else { "hatric" }, parameters);
        design.cache.l1.capacity = Bytes(4 * KIB);
        design.cache.l2.capacity = Bytes(8 * KIB);
        let mut random = Random(seed);
        let mut program = threads(3, 1024);
        for _ in 0..60 {
            let core = random.below(3) as u32;
            let pages: Vec<u64> = (0..20).map(|_| random.below(1024)).collect();
            if random.below(2) == 0 {
                reads(&mut program, 3, core, &pages);
            } else {
                writes(&mut program, 3, core, &pages);
            }
            let gone = random.below(1024);
            program.on(core).unmap(page(gone), PAGE).map(page(gone), PAGE);
            wait(&mut program, 3);
        }
        let outcome = program.run(&design, Fidelity::Full);
        let sent = own(&outcome, "messages.invalidations") + own(&outcome, "messages.back_invalidations");
        prop_assert!(own(&outcome, "messages.invalidations") > 0);
        prop_assert_eq!(sent, own(&outcome, "messages.acknowledgements"));
        let again = program.run(&design, Fidelity::Full);
        prop_assert_eq!(format!("{:?}", outcome.stats), format!("{:?}", again.stats));
    }
}
