//! Nested paging: two-dimensional walks counted by the formula and by hand.

use crate::support::*;
use terrace_model::PageSize;
use terrace_sim::design::{Design, Library, NestedParameters};
use terrace_sim::{Fidelity, Options};

/// [`small`], in a virtual machine whose host maps pages of this size, with neither nested TLB nor page-walk cache.
fn nested(guest: PageSize, host: PageSize) -> Design {
    let mut design = with_pages(small(), only(guest));
    let mut tlb = design.translation.page_walk_cache.clone();
    tlb.entries = 0;
    design.translation.nested =
        Some(NestedParameters { host: Some(host), tlb, ..NestedParameters::default() });
    design
}

#[test]
fn without_walk_caches_references_follow_the_formula() {
    for levels in [4, 5] {
        for guest in PageSize::ALL {
            for host in PageSize::ALL {
                for fidelity in [Fidelity::Full, Fidelity::Translation] {
                    // Zeroing pages of 1 GiB in full takes seconds and shows nothing more.
                    if guest == PageSize::Giant && fidelity == Fidelity::Full {
                        continue;
                    }
                    let mut design = nested(guest, host);
                    design.translation.levels = levels;
                    let outcome = sweep(guest, 5).run(&design, fidelity);
                    let [g, h] = [guest, host].map(|size| u64::from(levels) - size.index() as u64);
                    let all = (g + 1) * (h + 1) - 1;
                    assert_eq!(
                        walk_references(&outcome),
                        [5, 5 * all, 5 * (all - g)],
                        "{guest} on {host}, {levels} levels, {fidelity:?}"
                    );
                }
            }
        }
    }
    // The three that publications state for equal sizes.
    for (size, all) in PageSize::ALL.into_iter().zip([24, 15, 8]) {
        let outcome = sweep(size, 1).run(&nested(size, size), Fidelity::Translation);
        assert_eq!(count(&outcome, "walk.memory_refs"), all);
    }
}

#[test]
fn a_nested_tlb_answers_for_pages_it_knows() {
    // The host's page of 1 GiB that holds the guest's tables and its first data is the same: the root's translation
    // misses, the other four addresses of the walk hit.
    let mut design = nested(PageSize::Base, PageSize::Giant);
    design.translation.nested.as_mut().unwrap().tlb.entries = 4;
    let outcome = sweep(PageSize::Base, 1).run(&design, Fidelity::Translation);
    assert_eq!(walk_references(&outcome), [1, 4 + 2, 2]);
    assert_eq!(counts(&outcome, ["walk.nested_tlb.hit", "walk.nested_tlb.miss"]), [4, 1]);
    // Later walks find it there.
    let outcome = sweep(PageSize::Base, 3).run(&design, Fidelity::Translation);
    assert_eq!(walk_references(&outcome), [3, 3 * 4 + 2, 2]);
}

#[test]
fn the_page_walk_cache_holds_entries_of_both_tables() {
    let mut design = nested(PageSize::Base, PageSize::Base);
    design.translation.page_walk_cache.entries = 32;
    let outcome = sweep(PageSize::Base, 2).run(&design, Fidelity::Translation);
    // First walk: 4 + 4 for the root's address, then 1 + 1 each for three more entries, whose tables and data lie in the
    // same 2 MiB of the host, and 1 for the data. Second: the leaf, with 1 for its address, and 1 for the data.
    let same_region = 4 + 1 + 3 * (1 + 1) + 1 + (1 + 1) + 1;
    let [walks, all, host] = walk_references(&outcome);
    assert_eq!(walks, 2);
    assert_eq!(all - host, 4 + 1, "the guest's own entries");
    assert!(
        (same_region..same_region + 3).contains(&all),
        "{all}: data may lie in another 2 MiB than tables"
    );
}

#[test]
fn a_tlb_entry_covers_no_more_than_a_page_of_the_host() {
    // Twelve reads across one page of 2 MiB, each in another 4 KiB.
    let mut program = Program::new();
    program.map(DATA, 2 * MIB);
    for page in 0..12 {
        program.chase(DATA + page * 17 * PAGE);
    }
    let misses = |host| {
        let outcome = program.run(&nested(PageSize::Huge, host), Fidelity::Translation);
        counts(&outcome, ["tlb.l1d.4k.miss", "tlb.l1d.2m.miss", "walk.count", "os.faults_by_size.2m"])
    };
    assert_eq!(misses(PageSize::Base), [12, 0, 12, 1]);
    assert_eq!(misses(PageSize::Huge), [0, 1, 1, 1]);
    assert_eq!(misses(PageSize::Giant), [0, 1, 1, 1]);
}

#[test]
fn stores_and_data_are_those_of_the_machine_without_a_host() {
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    for page in 0..600 {
        program.read(DATA + page * PAGE).write(DATA + page * PAGE).read(DATA + (page * 7 % 600) * PAGE);
    }
    for guest in [PageSize::Base, PageSize::Huge] {
        let alone = program.run(&with_pages(small(), only(guest)), Fidelity::Full);
        let hosted = program.run(&nested(guest, PageSize::Base), Fidelity::Full);
        let same = ["core.instructions", "os.faults", "walk.dirty_updates"];
        assert_eq!(counts(&alone, same), counts(&hosted, same), "{guest}");
        assert!(count(&hosted, "walk.cycles") > count(&alone, "walk.cycles"));
        assert!(alone.stats.get("walk.host_refs").is_none(), "absent without nesting");
    }
}

#[test]
fn what_nesting_does_not_go_with_is_refused() {
    let refused = |name: &str| {
        let set = [("translation.nested".to_owned(), "{ host = \"2m\" }".to_owned())];
        Library::embedded().design(name, None, &set).unwrap_err().to_string()
    };
    for name in ["vivt", "perfect-tlb"] {
        let refusal = format!("the translation scheme \"{name}\" cannot go with nested page tables");
        assert!(refused(name).contains(&refusal), "{}", refused(name));
    }
    let set = [("translation.nested.host".to_owned(), "2m".to_owned())];
    let design = Library::embedded().design("native-4k", None, &set).unwrap().design;
    let tlb = design.translation.nested.unwrap().tlb;
    assert_eq!((tlb.entries, tlb.latency.0), (16, 1.0), "the default");
}

/// In builds with debug assertions every translation is compared with the page table's.
#[test]
fn schemes_that_walk_run_in_a_virtual_machine() {
    for (pages, host) in [("4k", "4k"), ("thp", "4k"), ("thp", "2m"), ("4k", "1g")] {
        let sets = [("translation.nested.host", host), ("os.pages", pages)];
        let run = |name: &str| {
            let options = Options { whole: true, ..Options::default() };
            let mut source = workload("gups,bytes=12 MiB,updates=2e4");
            run_with(&design(name, "vbi-table1", &sets), &mut *source, options).unwrap()
        };
        let plain = run("native-4k");
        for scheme in ["colt", "rmm", "direct-segment", "spot", "pom-tlb"] {
            let own = run(scheme);
            assert_eq!(own.accesses, plain.accesses);
            assert!(count(&own, "walk.nested_tlb.miss") > 0, "{scheme}, {pages} on {host}");
            if pages == "4k" {
                // Splintered pages are alone in the sets of coalesced TLBs, eight of them in each.
                assert!(
                    count(&own, "walk.count") <= count(&plain, "walk.count"),
                    "{scheme}, {pages} on {host}"
                );
            }
        }
    }
}

/// The point of a TLB in memory: its entries hold whole translations, so a hit saves a walk in two dimensions.
#[test]
fn a_tlb_in_memory_saves_walks_in_two_dimensions() {
    let sets = [("translation.nested.host", "4k")];
    let references = |name: &str| {
        let design = design(name, "vbi-table1", &sets);
        let outcome = run(&design, &mut *workload("gups,bytes=32 MiB,updates=5e4"), Fidelity::Translation);
        (count(&outcome, "walk.memory_refs"), outcome)
    };
    let ((plain, _), (own, outcome)) = (references("native-4k"), references("pom-tlb"));
    assert!(own < plain, "{own} references instead of {plain}");
    let [hits, misses, walks] = counts(&outcome, ["tlb.pom.hit", "tlb.pom.miss", "walk.count"]);
    assert_eq!(hits + misses, count(&outcome, "tlb.l2.miss"), "every miss of level 2 asks it");
    assert_eq!(misses, walks);
    assert!(hits > 25_000 && misses == 0, "the entries of all 8,192 pages fit: {hits} hits, {misses} misses");
}
