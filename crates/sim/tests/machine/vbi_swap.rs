//! The Virtual Block Interface with less memory than its programs use: regions whose contents go to a backing store and
//! come back.

use crate::support::*;
use terrace_model::Bytes;
use terrace_sim::design::{Aging, Design, PagePolicy};
use terrace_sim::{Options, Outcome, SimError};
use terrace_trace::{Advice, Event, MapKind};

/// A design on one core with so much memory and so large a store.
fn small(name: &str, memory: u64, own: &[(&str, &str)]) -> Design {
    let mut sets = vec![("core.count".to_owned(), "1".to_owned())];
    sets.extend(own.iter().map(|(key, value)| (format!("translation.scheme.{key}"), value.to_string())));
    let sets: Vec<(&str, &str)> = sets.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut design = design(name, "vbi-table1", &sets);
    design.tiers.truncate(1);
    design.tiers[0].capacity = Bytes(memory);
    design.os.reserved = Bytes(0);
    design
}

/// Small caches, so that little input fills them and memory too.
fn with_small_caches(mut design: Design) -> Design {
    design.cache.l2.capacity = Bytes(64 * KIB);
    design.cache.llc.capacity = Bytes(256 * KIB);
    design
}

fn whole(program: &Program, design: &Design) -> Result<Outcome, SimError> {
    run_with(design, &mut program.source(), Options { whole: true, ..Options::default() })
}

/// A store to each line of a range.
fn write_all(program: &mut Program, start: u64, bytes: u64) {
    (0..bytes / 64).for_each(|line| _ = program.write(start + 64 * line));
}

const SWAP: [&str; 2] = ["vbi.swapped_out", "vbi.swapped_in"];

#[test]
fn more_data_than_memory_goes_to_the_store_and_comes_back() {
    let mut program = Program::new();
    program.map(DATA, 10 * MIB);
    write_all(&mut program, DATA, 10 * MIB);
    for page in 0..10 * MIB / PAGE {
        program.chase(DATA + page * PAGE);
    }
    for name in ["vbi-1", "vbi-2", "vbi-full"] {
        let small = |memory: u64, own| with_small_caches(small(name, memory, own));
        assert!(whole(&program, &small(4 * MIB, &[])).is_err(), "{name}");
        let outcome = whole(&program, &small(4 * MIB, &[("swap", "16 MiB")])).unwrap();
        let [out, back] = counts(&outcome, SWAP);
        // Whatever is not in 4 MiB of memory, or in caches alone, is there once all was written, and all is read again.
        assert!((6 * 256 - 80..).contains(&out), "{name}: {out}");
        assert!((1000..=out).contains(&back), "{name}: {back} of {out}");
        assert!(out - back <= 10 * 256, "{name}: it holds no more than there is");
        // What was written is never answered with zeros: each line was new once.
        let zeros = count(&outcome, "vbi.zero_lines");
        assert_eq!(zeros, if name == "vbi-1" { 0 } else { 10 * MIB / 64 }, "{name}");
        // Contents are read where they lie and written where they go, besides nothing that is copied.
        assert_eq!(outcome.stats.integer("tier.dram.bytes_by.copy"), (out + back) * 4096, "{name}");
        // Where memory is enough, nothing is swapped.
        let enough = whole(&program, &small(32 * MIB, &[("swap", "16 MiB")])).unwrap();
        assert_eq!(counts(&enough, SWAP), [0, 0], "{name}");
        let without = whole(&program, &small(32 * MIB, &[])).unwrap();
        assert_eq!(enough.cycles, without.cycles, "{name}");
    }
}

#[test]
fn a_read_waits_for_the_store() {
    let mut program = Program::new();
    program.map(DATA, 24 * MIB);
    for page in 0..24 * MIB / PAGE {
        program.read(DATA + page * PAGE);
    }
    program.chase(DATA + 64).chase(DATA + 128);
    let run = |time: &str| {
        let own = [("swap", "64 MiB"), ("swap_read", time)];
        whole(&program, &small("vbi-1", 16 * MIB, &own)).unwrap()
    };
    let (fast, slow) = (run("0 ns"), run("1 ms"));
    assert_eq!(
        counts(&slow, SWAP)[1],
        1,
        "the first region came back for its second line, and its third is in memory"
    );
    let cycle = fast.seconds_simulated / fast.cycles as f64;
    let more = (slow.cycles - fast.cycles) as f64 * cycle;
    assert!((more - 1e-3).abs() < 1e-6, "{more}");
}

#[test]
fn regions_that_are_read_stay_longer() {
    // One block is read again and again while others come.
    let mut program = Program::new();
    program.map(DATA, 2 * MIB).map(DATA + GIB, 64 * MIB);
    let mut random = Random(5);
    for page in 0..64 * MIB / PAGE {
        program.read(DATA + GIB + page * PAGE);
        for _ in 0..4 {
            program.read(DATA + random.below(2 * MIB / 64) * 64);
        }
    }
    // Small caches, so that memory is read.
    let design = with_small_caches(small("vbi-1", 16 * MIB, &[("swap", "64 MiB")]));
    let [out, back] = counts(&whole(&program, &design).unwrap(), SWAP);
    assert!(out > 45 * 256 && back < out / 20, "{back} of {out}");
}

#[test]
fn a_store_that_is_full_ends_the_run_and_what_is_freed_makes_room() {
    let mut program = Program::new();
    program.map(DATA, 10 * MIB);
    write_all(&mut program, DATA, 10 * MIB);
    let small = |name: &str, own| with_small_caches(small(name, 4 * MIB, own));
    // At a miss of the last level, and when a dirty line leaves it.
    for name in ["vbi-1", "vbi-2", "vbi-full"] {
        let error = whole(&program, &small(name, &[("swap", "1 MiB")])).unwrap_err().to_string();
        assert!(
            error.contains("out of memory") && error.contains("backing store of 1 MiB"),
            "{name}: {error}"
        );
        assert!(error.contains("raise translation.scheme.swap"), "{name}: {error}");
    }
    // Eight times as much as memory and the store hold, one after the other.
    for drops in [false, true] {
        let mut program = Program::new();
        for round in 0..8 {
            let start = DATA + if drops { 0 } else { round * GIB };
            program.map(start, 6 * MIB);
            write_all(&mut program, start, 6 * MIB);
            match drops {
                false => _ = program.unmap(start, 6 * MIB),
                true => {
                    let range = terrace_model::AddressRange::new(start, 6 * MIB);
                    program.event(Event::Advise { range, advice: Advice::DontNeed });
                }
            }
            // What was dropped is zero again.
            program.map(start, 6 * MIB).read(start).read(start + 5 * MIB);
        }
        let outcome = whole(&program, &small("vbi-1", &[("swap", "3 MiB")])).unwrap();
        assert!(count(&outcome, "vbi.swapped_out") > 8 * 400, "{drops}");
    }
}

#[test]
fn programs_that_fork_and_free_never_lose_the_account() {
    for (seed, name) in [(1, "vbi-1"), (2, "vbi-2"), (3, "vbi-full"), (4, "vbi-2"), (5, "vbi-full")] {
        let mut random = Random(seed);
        let mut program = Program::new();
        program.map(DATA, 12 * MIB);
        for step in 0..6000 {
            let stream = if step > 2000 { random.below(2) as u32 } else { 0 };
            if step == 2000 {
                program.on(1).spawn(1, 0, Some(0));
            }
            program.on(stream);
            let page = DATA + random.below(12 * MIB / PAGE) * PAGE;
            match random.below(40) {
                0 => _ = program.unmap(page, 8 * PAGE).map(page, 8 * PAGE),
                1..=20 => _ = program.write(page + random.below(64) * 64),
                _ => _ = program.read(page + random.below(64) * 64),
            }
        }
        let design = with_small_caches(small(name, 10 * MIB, &[("swap", "64 MiB")]));
        let outcome = whole(&program, &design).unwrap_or_else(|error| panic!("{name}, {seed}: {error}"));
        let [out, back] = counts(&outcome, SWAP);
        assert!(back <= 2 * out, "{name}, {seed}: a clone has what its source has: {back} of {out}");
    }
}

/// Three processes: areas, allocations and files, forks, frees, and areas that processes share.
fn mixture(seed: u64) -> Program {
    let mut random = Random(seed);
    let mut program = Program::new();
    const FILE: u64 = DATA + GIB;
    const SHARED: u64 = DATA + 2 * GIB;
    let areas = [(DATA, 5 * MIB), (FILE, MIB), (SHARED, MIB)];
    program.map(DATA, 5 * MIB).map_kind(FILE, MIB, MapKind::PrivateFile);
    program.map_kind(SHARED, MIB, MapKind::SharedAnonymous);
    program.on(1).spawn(1, 0, None);
    program.map(DATA, 5 * MIB).map_kind(FILE, MIB, MapKind::PrivateFile);
    for step in 0..9000 {
        if step == 3000 {
            program.on(2).spawn(2, 0, Some(0));
        }
        let stream = random.below(if step > 3000 { 3 } else { 2 }) as u32;
        program.on(stream);
        let (start, bytes) = areas[[0, 0, 0, 0, 1, 2][random.below(6) as usize]];
        let (start, bytes) = if stream == 1 && start == SHARED { areas[0] } else { (start, bytes) };
        let page = start + random.below(bytes / PAGE) * PAGE;
        match random.below(60) {
            0 if start == DATA => {
                let pages = 1 + random.below(64);
                let page = page.min(DATA + 5 * MIB - pages * PAGE);
                program.unmap(page, pages * PAGE).map(page, pages * PAGE);
            }
            1..=40 => _ = program.write(page + random.below(64) * 64),
            _ => _ = program.read(page + random.below(64) * 64),
        }
    }
    program
}

#[test]
fn contents_go_and_come_back_on_any_memory_and_between_any_programs() {
    let aged = Aging::PageCache { reads: 2.0, dropped: 0.0, kernel: 0.0022, fmfi: None, seed: 3 };
    for (seed, name) in [(1, "vbi-1"), (2, "vbi-2"), (3, "vbi-full"), (4, "vbi-full")] {
        let program = mixture(seed);
        for (pages, aging, vms) in [
            (PagePolicy::Base, None, "0"),
            (PagePolicy::Base, Some(&aged), "2"),
            (PagePolicy::Huge, None, "2"),
            (PagePolicy::Huge, Some(&aged), "0"),
        ] {
            let of = format!("{name}, {pages:?}, {aging:?}, {vms} virtual machines");
            let mut design = with_small_caches(small(name, 8 * MIB, &[("swap", "64 MiB"), ("vms", vms)]));
            design.os.pages = pages;
            if let Some(aging) = aging {
                design.os.memory.aging = aging.clone();
            }
            let outcome = whole(&program, &design).unwrap_or_else(|error| panic!("{of}: {error}"));
            let [out, back] = counts(&outcome, SWAP);
            assert!(out > 100 && back > 0, "{of}: {back} of {out}");
            if name == "vbi-full" {
                let again = whole(&program, &design).unwrap();
                assert_eq!(
                    (again.cycles, counts(&again, SWAP)),
                    (outcome.cycles, [out, back]),
                    "{of}: again"
                );
            }
            assert!(back <= 2 * out, "{of}: a clone has what its source has: {back} of {out}");
        }
    }
}
