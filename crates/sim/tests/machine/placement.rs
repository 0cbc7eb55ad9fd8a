//! Which tier and which page size a page gets, to the page.

use crate::support::*;
use terrace_model::{AddressRange, Bytes, PageSize};
use terrace_sim::design::{Design, PagePolicy, Placement};
use terrace_sim::{Fidelity, Options, Outcome, SimError};
use terrace_trace::{Advice, Event, MapKind, MarkKind};

/// Two tiers of so many pages, nothing reserved.
fn tiers(first: u64, second: u64) -> Design {
    let mut design = small();
    design.os.reserved = Bytes(0);
    design.tiers[0].capacity = Bytes(first * PAGE);
    design.tiers[1].capacity = Bytes(second * PAGE);
    design
}

/// Touches `pages` consecutive pages of `size`.
fn touch(pages: u64, size: PageSize) -> Program {
    let mut program = Program::new();
    program.map(DATA, pages * size.bytes());
    for page in 0..pages {
        program.write(DATA + page * size.bytes());
    }
    program
}

/// Page-table pages of a space whose data lies in `tables` tables of leaves of 4 KiB pages, all in one 1 GiB.
fn tables(tables: u64) -> u64 {
    3 + tables
}

fn pages(outcome: &Outcome) -> [u64; 2] {
    counts(outcome, ["tier.dram.pages", "tier.pcm.pages"])
}

const ALL: [Fidelity; 3] = [Fidelity::Full, Fidelity::Translation, Fidelity::Pages];

#[test]
fn first_touch_fills_the_first_tier_and_spills() {
    let design = tiers(600, 10_000);
    for fidelity in ALL {
        let outcome = touch(1000, PageSize::Base).run(&design, fidelity);
        // Two leaf tables for 1000 pages; each table came from the first tier while that had room.
        assert_eq!(count(&outcome, "os.page_table_pages"), tables(2));
        assert_eq!(pages(&outcome), [600, 1000 + tables(2) - 600]);
        assert_eq!(count(&outcome, "os.faults"), 1000);
    }
}

#[test]
fn what_the_system_reserves_is_not_for_programs() {
    let mut design = tiers(1000, 10_000);
    design.os.reserved = Bytes(700 * PAGE);
    let outcome = touch(400, PageSize::Base).run(&design, Fidelity::Pages);
    assert_eq!(pages(&outcome), [1000, 400 + tables(1) - 300]);
}

#[test]
fn interleaving_alternates_and_weights_are_exact() {
    for (placement, share) in [
        (Placement::Interleave, [600, 600]),
        (Placement::WeightedInterleave { weights: vec![3, 1] }, [900, 300]),
        (Placement::WeightedInterleave { weights: vec![1, 5] }, [200, 1000]),
        (Placement::WeightedInterleave { weights: vec![0, 1] }, [0, 1200]),
        (Placement::Ratio { first: 30, group: 100 }, [360, 840]),
        (Placement::Ratio { first: 0, group: 100 }, [0, 1200]),
        (Placement::Ratio { first: 7, group: 7 }, [1200, 0]),
    ] {
        let design = with_placement(tiers(5000, 5000), placement);
        for fidelity in ALL {
            let outcome = touch(1200, PageSize::Base).run(&design, fidelity);
            let expected = [share[0] + tables(3), share[1]];
            assert_eq!(pages(&outcome), expected, "{:?} at {fidelity:?}", design.os.placement);
        }
        // Rounds are even: every twelfth of the pages has the same share.
        let part = touch(300, PageSize::Base).run(&design, Fidelity::Pages);
        assert_eq!(pages(&part), [share[0] / 4 + tables(1), share[1] / 4], "{:?}", design.os.placement);
    }
}

#[test]
fn large_pages_take_turns_by_their_own_size() {
    let mut design = with_placement(tiers(20_000, 20_000), Placement::Interleave);
    design.os.pages = PagePolicy::Huge;
    let outcome = touch(7, PageSize::Huge).run(&design, Fidelity::Full);
    assert_eq!(pages(&outcome), [4 * 512 + 3, 3 * 512]);
}

#[test]
fn unfiltered_traffic_follows_the_pages() {
    let design = with_placement(tiers(5000, 5000), Placement::WeightedInterleave { weights: vec![3, 1] });
    let outcome = touch(1200, PageSize::Base).run(&design, Fidelity::Pages);
    let names = ["tier.dram.unfiltered_writes", "tier.pcm.unfiltered_writes", "tier.pcm.unfiltered_reads"];
    assert_eq!(counts(&outcome, names), [900, 300, 0]);
}

fn bind(tier: &str) -> Placement {
    Placement::Bind { tier: tier.to_owned() }
}

#[test]
fn a_bound_program_lives_in_its_tier_alone() {
    let design = with_placement(tiers(2000, 2000), bind("pcm"));
    let outcome = touch(1000, PageSize::Base).run(&design, Fidelity::Full);
    assert_eq!(pages(&outcome), [tables(2), 1000], "page tables stay in the first tier");
    // The zeroing of the data goes to the tier; page walks read the other one.
    assert_eq!(count(&outcome, "tier.pcm.bytes_by.zero"), 1000 * PAGE);
    assert_eq!(count(&outcome, "tier.dram.bytes_by.zero"), 0);
    assert_eq!(count(&outcome, "tier.dram.bytes_by.demand"), 0);
    assert!(count(&outcome, "tier.dram.bytes_by.walk") > 0);

    let mut design = design;
    design.os.page_table_tier = Some("pcm".to_owned());
    let outcome = touch(1000, PageSize::Base).run(&design, Fidelity::Full);
    assert_eq!(pages(&outcome), [0, 1000 + tables(2)]);
    assert_eq!(counts(&outcome, ["tier.dram.reads", "tier.dram.writes"]), [0, 0]);
}

#[test]
fn a_full_bound_tier_ends_the_run_with_a_clear_message() {
    for fidelity in ALL {
        let design = with_placement(tiers(2000, 512), bind("pcm"));
        let error = run_with(
            &design,
            &mut touch(1000, PageSize::Base).source(),
            terrace_sim::Options { fidelity, ..Default::default() },
        )
        .unwrap_err();
        assert!(matches!(error, SimError::Os(_)), "{error:?}");
        let message = error.to_string();
        for part in
            ["out of memory: 2 MiB are resident", "pcm is full", "tier.<name>.capacity", "os.placement"]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[test]
fn less_than_a_mebibyte_that_is_resident_is_not_said_to_be_none() {
    let design = with_placement(tiers(2000, 128), bind("pcm"));
    let error = run_with(&design, &mut touch(1000, PageSize::Base).source(), Default::default()).unwrap_err();
    assert!(error.to_string().contains("out of memory: 512 KiB are resident and pcm is full"), "{error}");
}

#[test]
fn a_full_machine_ends_the_run_with_a_clear_message() {
    let design = tiers(256, 256);
    let error = run_with(&design, &mut touch(1000, PageSize::Base).source(), Default::default()).unwrap_err();
    assert!(matches!(error, SimError::Os(_)), "{error:?}");
    assert!(error.to_string().contains("every tier is full"), "{error}");
    // What fits, fits: all but the tables.
    let outcome = touch(512 - tables(1), PageSize::Base).run(&design, Fidelity::Full);
    assert_eq!(pages(&outcome), [256, 256]);
}

#[test]
fn a_preferred_tier_comes_first_and_the_others_after_it() {
    let design = with_placement(tiers(2000, 300), Placement::Preferred { tier: "pcm".to_owned() });
    let outcome = touch(500, PageSize::Base).run(&design, Fidelity::Full);
    assert_eq!(pages(&outcome), [200 + tables(1), 300]);
}

#[test]
fn forced_large_pages_hold_every_address() {
    for (size, tables) in [(PageSize::Huge, 3), (PageSize::Giant, 2)] {
        let mut design = with_pages(small(), only(size));
        design.os.reserved = Bytes(0);
        let mut program = Program::new();
        // Three areas of a page each, the first two in the same large page.
        for addr in [DATA, DATA + 64 * KIB, DATA + size.bytes()] {
            program.map(addr, PAGE).write(addr).write(addr + 8);
        }
        let outcome = program.run(&design, Fidelity::Full);
        assert_eq!(count(&outcome, "os.faults"), 2);
        assert_eq!(count(&outcome, &format!("os.faults_by_size.{size}")), 2);
        assert_eq!(count(&outcome, &format!("os.resident_bytes.{size}")), 2 * size.bytes());
        assert_eq!(pages(&outcome)[0], 2 * size.base_pages() + tables);
    }
}

#[test]
fn transparent_huge_pages_need_a_whole_aligned_piece_of_one_anonymous_mapping() {
    let thp = |start: u64, bytes: u64, kind: MapKind| {
        let mut program = Program::new();
        program.map_kind(start, bytes, kind).write(start + bytes / 2);
        let outcome = program.run(&with_pages(small(), PagePolicy::Thp), Fidelity::Full);
        assert_eq!(count(&outcome, "os.huge_fallbacks"), 0);
        counts(&outcome, ["os.faults_by_size.4k", "os.faults_by_size.2m"])
    };
    assert_eq!(thp(DATA, 2 * MIB, MapKind::Anonymous), [0, 1]);
    assert_eq!(thp(DATA, 6 * MIB, MapKind::Heap), [0, 1]);
    assert_eq!(thp(DATA, 2 * MIB - PAGE, MapKind::Anonymous), [1, 0], "too short");
    assert_eq!(thp(DATA + PAGE, 2 * MIB, MapKind::Anonymous), [1, 0], "not aligned");
    assert_eq!(thp(DATA + PAGE, 6 * MIB, MapKind::Anonymous), [0, 1], "its middle is");
    assert_eq!(thp(DATA, 2 * MIB, MapKind::PrivateFile), [1, 0], "a file");
}

#[test]
fn advice_and_hugetlb_are_followed() {
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    program.event(Event::Advise { range: AddressRange::new(DATA, 2 * MIB), advice: Advice::NoHugePage });
    program.write(DATA).write(DATA + 2 * MIB);
    let outcome = program.run(&with_pages(small(), PagePolicy::Thp), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults_by_size.4k", "os.faults_by_size.2m"]), [1, 1]);

    let mut program = Program::new();
    program.map_kind(DATA, 2 * MIB, MapKind::HugeTlb).write(DATA + MIB);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults_by_size.4k", "os.faults_by_size.2m"]), [0, 1]);
}

#[test]
fn transparent_huge_pages_fall_back_where_no_aligned_block_is_free() {
    // 3 MiB: one aligned block of 2 MiB, and a rest.
    let mut design = with_pages(tiers(768, 100), PagePolicy::Thp);
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    for page in 0..20 {
        program.write(DATA + page * PAGE).write(DATA + 2 * MIB + page * PAGE);
    }
    for fidelity in ALL {
        let outcome = program.run(&design, fidelity);
        let names = ["os.faults_by_size.2m", "os.faults_by_size.4k", "os.huge_fallbacks", "os.huge_occupied"];
        // Once a base page lies there, there is no place for a larger one, whatever memory has.
        assert_eq!(counts(&outcome, names), [1, 20, 1, 19]);
        let noted = |what: &str| outcome.notes.iter().any(|note| note.contains(what));
        assert!(
            noted("1 pages came smaller than the design wants, for want of")
                && noted("19 pages came smaller")
        );
    }
    // A second tier with room takes the huge page before the first one breaks it.
    design.tiers[1].capacity = Bytes(4 * MIB);
    let outcome = program.run(&design, Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults_by_size.2m", "os.huge_fallbacks"]), [2, 0]);
    assert_eq!(pages(&outcome)[1], 512);
}

/// A region of interest has the pages that came before it began.
#[test]
fn notes_on_page_sizes_are_of_the_whole_run() {
    // 3 MiB: one aligned block of 2 MiB, and a rest.
    let design = with_pages(tiers(768, 100), PagePolicy::Thp);
    let run = |whole: bool| {
        let mut program = Program::new();
        program.map(DATA, 4 * MIB).write(DATA).write(DATA + 2 * MIB);
        program.mark(MarkKind::RegionBegin).write(DATA);
        let options = Options { whole, ..Options::default() };
        run_with(&design, &mut program.source(), options).unwrap()
    };
    let note = "1 pages came smaller than the design wants, for want of an aligned free block";
    let (region, whole) = (run(false), run(true));
    assert_eq!([&region, &whole].map(|outcome| count(outcome, "os.huge_fallbacks")), [0, 1]);
    assert!(region.notes.contains(&format!("{note}; counted over the whole run")), "{:?}", region.notes);
    assert!(whole.notes.iter().any(|said| said.starts_with(note)), "{:?}", whole.notes);
}

#[test]
fn mappings_that_hold_no_aligned_huge_page_are_no_want_of_memory() {
    let mut program = Program::new();
    // Half of each of two places of 2 MiB.
    program.map(DATA + MIB, 2 * MIB);
    for page in 0..512 {
        program.write(DATA + MIB + page * PAGE);
    }
    let design = with_pages(small(), PagePolicy::Thp);
    for fidelity in ALL {
        let outcome = program.run(&design, fidelity);
        let names = ["os.faults_by_size.4k", "os.huge_fallbacks", "os.huge_occupied", "os.huge_unfit"];
        assert_eq!(counts(&outcome, names), [512, 0, 0, 512]);
        let noted = |what: &str| outcome.notes.iter().any(|note| note.contains(what));
        assert!(noted(
            "512 pages came smaller than the design wants, since the larger one would reach beyond"
        ));
    }
    // The program wants none.
    let mut program = Program::new();
    program.map(DATA, 64 * PAGE);
    program.event(Event::Advise { range: AddressRange::new(DATA, 64 * PAGE), advice: Advice::NoHugePage });
    let outcome = program.write(DATA).run(&design, Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults_by_size.4k", "os.huge_unfit"]), [1, 0]);
    // Nor does the design.
    let mut program = Program::new();
    let outcome = program.map(DATA, 64 * PAGE).write(DATA).run(&small(), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults_by_size.4k", "os.huge_unfit"]), [1, 0]);
}

#[test]
fn a_hole_in_a_huge_page_splits_it() {
    let mut program = Program::new();
    program.map(DATA, 2 * MIB).write(DATA).unmap(DATA + 4 * PAGE, 2 * PAGE);
    program.write(DATA).write(DATA + 8 * PAGE);
    let outcome = program.run(&with_pages(small(), PagePolicy::Thp), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.splits", "os.pages_freed", "os.faults"]), [1, 2, 1]);
    assert_eq!(counts(&outcome, ["os.resident_bytes.2m", "os.resident_bytes.4k"]), [0, 510 * PAGE]);
    // Stale large entries would hit.
    assert_eq!(counts(&outcome, ["tlb.l1d.2m.miss", "tlb.l1d.2m.hit", "tlb.l1d.4k.miss"]), [1, 0, 2]);
}
