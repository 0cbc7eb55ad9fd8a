//! TLBs, the page-walk cache and walks, counted by hand and against a naive model.

mod model;

use crate::support::*;
use terrace_model::PageSize;
use terrace_sim::design::{Associativity, Design, FullKeyword, PagePolicy};
use terrace_sim::{Fidelity, Outcome};
use terrace_trace::{AccessKind, MapKind};

const SIZES: [(PageSize, u64); 3] = [(PageSize::Base, 24), (PageSize::Huge, 12), (PageSize::Giant, 6)];

/// Reads one address in each of `pages` consecutive pages of `size`.
fn sweep(size: PageSize, pages: u64) -> Program {
    let mut program = Program::new();
    program.map(DATA, pages * size.bytes());
    for page in 0..pages {
        program.read(DATA + page * size.bytes() + 64 * (page % 64));
    }
    program
}

/// Reads pages of `size` by number.
fn reads(size: PageSize, pages: &[u64]) -> Program {
    let mut program = Program::new();
    program.map(DATA, (pages.iter().max().unwrap() + 1) * size.bytes());
    for page in pages {
        program.read(DATA + page * size.bytes());
    }
    program
}

/// Hits and misses of level 1 for `size`, then of level 2.
fn tlb_counts(outcome: &Outcome, size: PageSize) -> [u64; 4] {
    let l1 = ["hit", "miss"].map(|what| count(outcome, &format!("tlb.l1d.{size}.{what}")));
    [l1[0], l1[1], count(outcome, "tlb.l2.hit"), count(outcome, "tlb.l2.miss")]
}

#[test]
fn a_walk_reads_an_entry_per_level() {
    for levels in [4, 5] {
        for (size, pages) in SIZES {
            for fidelity in [Fidelity::Full, Fidelity::Translation] {
                let mut design = with_pages(small(), only(size));
                design.translation.levels = levels;
                let outcome = sweep(size, pages).run(&design, fidelity);
                let refs = u64::from(levels) - size.index() as u64;
                assert_eq!(
                    counts(&outcome, ["walk.count", "walk.memory_refs"]),
                    [pages, pages * refs],
                    "{size} pages, {levels} levels, {fidelity:?}"
                );
                assert_eq!(count(&outcome, &format!("os.faults_by_size.{size}")), pages);
            }
        }
    }
}

#[test]
fn a_page_walk_cache_leaves_the_leaf_inside_a_known_table() {
    let mut design = small();
    design.translation.page_walk_cache.entries = 32;
    // 4 KiB: the first walk reads 4 entries, the first of the second 2 MiB reads 2, every other one reads 1.
    let outcome = sweep(PageSize::Base, 1024).run(&design, Fidelity::Translation);
    let names = ["walk.memory_refs", "walk.page_walk_cache.hit", "walk.page_walk_cache.miss"];
    assert_eq!(counts(&outcome, names), [4 + 511 + 2 + 511, 1023, 1]);

    // 2 MiB: 3 at first, 2 at the first of the second 1 GiB, else 1.
    let design = with_pages(design, PagePolicy::Huge);
    let outcome = sweep(PageSize::Huge, 600).run(&design, Fidelity::Translation);
    assert_eq!(counts(&outcome, names), [3 + 511 + 2 + 87, 599, 1]);

    // 1 GiB: 2 at first, then 1 as long as the 512 GiB last.
    let design = with_pages(design, PagePolicy::Giant);
    let outcome = sweep(PageSize::Giant, 9).run(&design, Fidelity::Translation);
    assert_eq!(counts(&outcome, names), [2 + 8, 8, 1]);
}

#[test]
fn the_levels_of_a_walk_begin_below_the_nearest_cached_entry() {
    let mut design = small();
    design.translation.page_walk_cache.entries = 32;
    for (distance, refs) in [(PAGE, 1), (2 * MIB, 2), (GIB, 3), (512 * GIB, 4)] {
        let mut program = Program::new();
        program.read(DATA).read(DATA + distance);
        let outcome = program.run(&design, Fidelity::Translation);
        assert_eq!(count(&outcome, "walk.memory_refs"), 4 + refs, "{distance:#x} apart");
    }
    design.translation.levels = 5;
    let mut program = Program::new();
    program.read(DATA).read(DATA + 512 * GIB).read(DATA + 512 * GIB + PAGE);
    let outcome = program.run(&design, Fidelity::Translation);
    assert_eq!(count(&outcome, "walk.memory_refs"), 5 + 4 + 1);
}

#[test]
fn a_page_walk_cache_of_two_entries_by_hand() {
    let mut design = small();
    design.translation.page_walk_cache.entries = 2;
    // No TLB at all: every access walks.
    design.translation.l1d.clear();
    design.translation.l2.array.clear();
    let (a, b, c) = (DATA, DATA + 2 * MIB, DATA + 3 * GIB);
    let mut program = Program::new();
    for (addr, refs) in [
        (a, 4), // Puts in levels 4, 3, 2; two stay: 3 and 2 of a.
        (a, 1), // Uses 2 of a.
        (b, 2), // Not 2 of b, but 3, which b shares with a. Puts in 2 of b for 2 of a, the least recent.
        (a, 2), // 2 of a is gone; 3 is there. Out goes 2 of b.
        (c, 4), // Nothing of c. Puts in 4, 3, 2 of c; the last two stay.
        (a, 4), // Nothing of a, and level 4, which all share, is gone as well.
    ] {
        let before = program.run(&design, Fidelity::Translation);
        program.read(addr);
        let after = program.run(&design, Fidelity::Translation);
        let [before, after] = [before, after].map(|outcome| count(&outcome, "walk.memory_refs"));
        assert_eq!(after - before, refs, "{addr:#x}");
    }
    let outcome = program.run(&design, Fidelity::Translation);
    assert_eq!(counts(&outcome, ["walk.page_walk_cache.hit", "walk.page_walk_cache.miss"]), [3, 3]);
}

#[test]
fn a_set_is_the_page_number_modulo_the_sets() {
    // 3 sets of 2: pages 0, 3, 6 share set 0; page 1 is in set 1.
    let mut design = small();
    design.translation.l1d.insert(PageSize::Base, tlb(6, 2));
    let outcome = reads(PageSize::Base, &[0, 1, 3, 6, 1, 3, 6, 0, 1]).run(&design, Fidelity::Translation);
    // Walks: 0, 1, 3, 6 (pushes 0 out of level 1). Then 1, 3, 6 hit, 0 comes from level 2, 1 hits.
    assert_eq!(tlb_counts(&outcome, PageSize::Base), [4, 5, 1, 4]);
    // The same pages in 2 sets: 0 and 6 even, 1 and 3 odd, all fit.
    let outcome = reads(PageSize::Base, &[0, 1, 3, 6, 1, 3, 6, 0, 1]).run(&small(), Fidelity::Translation);
    assert_eq!(tlb_counts(&outcome, PageSize::Base), [5, 4, 0, 4]);
}

#[test]
fn a_level_2_hit_fills_level_1_and_a_walk_fills_both() {
    for size in [PageSize::Base, PageSize::Huge] {
        let mut design = with_pages(small(), only(size));
        design.translation.l1d.insert(size, full_tlb(2));
        // 0, 1, 2 walk and 2 pushes 0 out of level 1; 0 comes from level 2 and pushes 1 out; 0 and 2 hit; 1 comes from
        // level 2.
        let outcome = reads(size, &[0, 1, 2, 0, 0, 2, 1]).run(&design, Fidelity::Translation);
        assert_eq!(tlb_counts(&outcome, size), [2, 5, 2, 3], "{size}");
    }
}

#[test]
fn a_page_size_without_a_level_2_array_always_walks() {
    let design = with_pages(small(), PagePolicy::Giant);
    let outcome = reads(PageSize::Giant, &[0, 1, 2, 0, 0, 2, 1]).run(&design, Fidelity::Translation);
    assert_eq!(tlb_counts(&outcome, PageSize::Giant), [2, 5, 0, 5]);
    assert_eq!(count(&outcome, "walk.memory_refs"), 10);
}

#[test]
fn levels_are_neither_inclusive_nor_exclusive() {
    let mut design = small();
    design.translation.l1d.insert(PageSize::Base, full_tlb(4));
    design.translation.l2.array = vec![array(&[PageSize::Base], 2, 2)];
    // Level 2 keeps 1 and 2; 0 is still in level 1.
    let outcome = reads(PageSize::Base, &[0, 1, 2, 0]).run(&design, Fidelity::Translation);
    assert_eq!(tlb_counts(&outcome, PageSize::Base), [1, 3, 0, 3]);
}

#[test]
fn a_level_1_hit_leaves_the_recency_of_level_2_alone() {
    let mut design = small();
    design.translation.l1d.insert(PageSize::Base, full_tlb(2));
    design.translation.l2.array = vec![array(&[PageSize::Base], 2, 2)];
    // Level 2 holds 0, 1 when 0 hits in level 1; 2 then pushes 0 out of level 2 and 1 out of level 1. 1 comes from
    // level 2 (and pushes 0 out of level 1), 0 must walk.
    let outcome = reads(PageSize::Base, &[0, 1, 0, 2, 1, 0]).run(&design, Fidelity::Translation);
    assert_eq!(tlb_counts(&outcome, PageSize::Base), [1, 5, 1, 4]);
}

#[test]
fn page_sizes_share_a_level_2_array_or_not() {
    let mut program = Program::new();
    // One 2 MiB page, and a mapping too small for one.
    program.map(DATA, 2 * MIB).map(DATA + GIB, 64 * KIB);
    let (huge, base) = (DATA, |page: u64| DATA + GIB + page * PAGE);
    program.read(huge).read(base(0)).read(base(1)).read(huge);
    let mut design = with_pages(small(), PagePolicy::Thp);
    design.translation.l1d.clear();
    design.translation.l2.array = vec![array(&[PageSize::Base, PageSize::Huge], 2, 2)];
    let shared = program.run(&design, Fidelity::Translation);
    assert_eq!(counts(&shared, ["tlb.l2.hit", "tlb.l2.miss"]), [0, 4]);
    design.translation.l2.array = vec![array(&[PageSize::Base], 2, 2), array(&[PageSize::Huge], 2, 2)];
    let split = program.run(&design, Fidelity::Translation);
    assert_eq!(counts(&split, ["tlb.l2.hit", "tlb.l2.miss"]), [1, 3]);
    assert_eq!(counts(&split, ["tlb.l1d.2m.miss", "tlb.l1d.4k.miss", "tlb.l1d.2m.hit"]), [2, 2, 0]);
    // The huge page's walks read 3 entries.
    assert_eq!(counts(&shared, ["walk.memory_refs"]), [3 + 4 + 4 + 3]);
}

#[test]
fn the_first_store_through_a_clean_entry_visits_the_page_table_once() {
    let mut program = Program::new();
    program.map(DATA, 8 * PAGE);
    // Read first: clean. Two stores: one update. A page first touched by a store needs none.
    program.read(DATA).write(DATA).write(DATA + 8).write(DATA + PAGE).write(DATA + PAGE);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(counts(&outcome, ["walk.dirty_updates", "walk.count", "walk.memory_refs"]), [1, 2, 8]);
    assert_eq!(tlb_counts(&outcome, PageSize::Base), [3, 2, 0, 2]);
}

#[test]
fn an_access_across_a_page_border_is_two_lookups() {
    let mut program = Program::new();
    program.map(DATA, 2 * PAGE).access(DATA + PAGE - 4, 8, AccessKind::Read, 0, 1);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(outcome.accesses, 1);
    assert_eq!(tlb_counts(&outcome, PageSize::Base), [0, 2, 0, 2]);
    assert_eq!(count(&outcome, "os.faults"), 2);
}

#[test]
fn invalidation_takes_the_pages_that_went_and_no_others() {
    let mut program = Program::new();
    program.map(DATA, 4 * PAGE);
    program.read(DATA).read(DATA + PAGE).read(DATA + 2 * PAGE);
    program.unmap(DATA + PAGE, PAGE);
    program.read(DATA).read(DATA + 2 * PAGE);
    let outcome = program.run(&small(), Fidelity::Translation);
    assert_eq!(tlb_counts(&outcome, PageSize::Base), [2, 3, 0, 3]);
    assert_eq!(count(&outcome, "os.shootdowns.count"), 1);
}
