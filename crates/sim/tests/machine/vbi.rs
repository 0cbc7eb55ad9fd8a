//! The Virtual Block Interface on the whole machine: hand-worked examples of each of its mechanisms.

use crate::support::*;
use terrace_model::{AddressRange, Bytes};
use terrace_sim::design::{Design, Library};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::{AccessKind, BatchBuilder, Event, Header, MapKind, Protection, StreamId, VecSource};

/// A design of the interface on one core, with keys of the scheme on top, without a cache of upper levels.
fn vbi(name: &str, own: &[(&str, &str)]) -> Design {
    let mut sets = vec![("core.count".to_owned(), "1".to_owned())];
    sets.extend(own.iter().map(|(key, value)| (format!("translation.scheme.{key}"), value.to_string())));
    let sets: Vec<(&str, &str)> = sets.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut design = design(name, "vbi-table1", &sets);
    design.translation.page_walk_cache.entries = 0;
    design
}

/// A design with so much memory, in one tier.
fn with_memory(mut design: Design, bytes: u64) -> Design {
    design.tiers.truncate(1);
    design.tiers[0].capacity = Bytes(bytes);
    design.os.reserved = Bytes(0);
    design
}

fn demand_bytes(outcome: &Outcome) -> u64 {
    outcome.stats.integer("tier.dram.bytes_by.demand")
}

/// One access to every line of a range, in order.
fn sweep(program: &mut Program, start: u64, bytes: u64, write: bool) {
    for line in 0..bytes / 64 {
        match write {
            true => program.write(start + 64 * line),
            false => program.read(start + 64 * line),
        };
    }
}

#[test]
fn what_was_never_written_reads_as_zero_without_memory_or_walks() {
    let mut program = Program::new();
    program.map(DATA, 64 * KIB);
    sweep(&mut program, DATA, 64 * KIB, false);
    let outcome = program.run(&vbi("vbi-2", &[]), Fidelity::Full);
    let names = ["vbi.zero_lines", "walk.count", "os.faults", "vbi.given_at_miss", "vbi.given_at_writeback"];
    assert_eq!(counts(&outcome, names), [1024, 0, 0, 0, 0]);
    assert_eq!((demand_bytes(&outcome), count(&outcome, "cache.llc.miss")), (0, 1024 + 1));
    // Without delay each region gets memory at its first miss, zeroed by the controller.
    let outcome = program.run(&vbi("vbi-1", &[]), Fidelity::Full);
    assert_eq!(counts(&outcome, names), [0, 16, 16, 16, 0], "and its second line walks");
    assert_eq!(
        (demand_bytes(&outcome), outcome.stats.integer("tier.dram.bytes_by.zero")),
        (64 * KIB, 64 * KIB)
    );
}

#[test]
fn blocks_that_die_in_the_caches_never_get_memory() {
    let mut program = Program::new();
    for round in 0..8 {
        program.map(DATA + round * MIB, 64 * KIB);
        sweep(&mut program, DATA + round * MIB, 64 * KIB, true);
        program.unmap(DATA + round * MIB, 64 * KIB);
    }
    let outcome = program.run(&vbi("vbi-2", &[]), Fidelity::Full);
    let names = ["vbi.given_at_writeback", "os.faults", "vbi.blocks_disabled", "vbi.blocks"];
    assert_eq!(counts(&outcome, names), [0, 0, 8, 0]);
    assert_eq!((demand_bytes(&outcome), outcome.stats.integer("tier.dram.bytes_by.writeback")), (0, 0));
}

#[test]
fn memory_is_given_when_a_dirty_line_leaves_the_last_level() {
    let mut program = Program::new();
    program.map(DATA, 64 * MIB);
    sweep(&mut program, DATA, 64 * MIB, true);
    let outcome = program.run_whole(&vbi("vbi-2", &[]), Fidelity::Full);
    let [given, faults, zero, written] =
        counts(&outcome, ["vbi.given_at_writeback", "os.faults", "vbi.zero_lines", "cache.llc.writeback"]);
    assert_eq!(given, faults);
    assert_eq!(zero, MIB, "every line was new");
    // What the caches cannot hold has left them: 64 MiB but 8 MiB and a little.
    let held = (8 * MIB + 256 * KIB + 32 * KIB) / 64;
    assert!((MIB - held..=MIB).contains(&written), "{written}");
    assert!((written / 64..=16 * 1024).contains(&given), "{given} of 16384 regions");
    assert_eq!(outcome.stats.integer("tier.dram.bytes_by.writeback"), written * 64);
    assert_eq!(outcome.stats.integer("tier.dram.bytes_by.zero"), given * 4096);
    // The controller that notes which lines are zero writes none.
    let noting = program.run_whole(&vbi("vbi-2", &[("notes_zeros", "true")]), Fidelity::Full);
    assert_eq!(outcome.stats.integer("vbi.given_at_writeback"), count(&noting, "vbi.given_at_writeback"));
    assert_eq!(noting.stats.integer("tier.dram.bytes_by.zero"), 0);
    assert!(noting.cycles < outcome.cycles);
}

#[test]
fn a_block_is_found_by_as_many_references_as_its_table_has_levels() {
    let rows = [
        (4 * KIB, 0),
        (128 * KIB, 1),
        (4 * MIB, 1),
        (128 * MIB, 2),
        (4 * GIB, 3),
        (128 * GIB, 3),
        (4096 * GIB, 4),
        (128 * 1024 * GIB / 2, 4),
    ];
    for (bytes, levels) in rows {
        let mut program = Program::new();
        program.map(PAGE, bytes);
        // Memory is given; a second line of the region walks; a third one finds the TLB.
        program.chase(PAGE).chase(PAGE + 64).chase(PAGE + 128);
        let outcome = program.run(&vbi("vbi-1", &[]), Fidelity::Full);
        let names = ["vbi.vit_cache.miss", "vbi.vit_cache.hit", "tlb.l1d.4k.miss", "tlb.l1d.4k.hit"];
        assert_eq!(counts(&outcome, names), [1, 2, 1, 1], "{bytes}");
        assert_eq!(
            count(&outcome, "walk.memory_refs"),
            1 + levels,
            "{bytes}: the block's entry, then its table"
        );
    }
}

#[test]
fn the_cache_of_the_tables_of_blocks_can_be_left_out() {
    let mut program = Program::new();
    program.map(DATA, 4 * KIB).chase(DATA).chase(DATA + 64).chase(DATA + 128);
    let outcome = program.run(&vbi("vbi-1", &[("vit_cache", "0")]), Fidelity::Full);
    assert_eq!(counts(&outcome, ["vbi.vit_cache.miss", "vbi.vit_cache.hit"]), [3, 0]);
}

#[test]
fn entries_of_a_process_are_cached_by_index() {
    // Blocks 0 and 64 lie in one place of the direct-mapped cache, block 1 elsewhere.
    let mut program = Program::new();
    for block in 0..65 {
        program.map(DATA + block * MIB, 4 * KIB).read(DATA + block * MIB);
    }
    for _ in 0..10 {
        program.read(DATA).read(DATA + 64 * MIB).read(DATA + MIB);
    }
    let outcome = program.run(&vbi("vbi-2", &[]), Fidelity::Full);
    assert_eq!(counts(&outcome, ["vbi.cvt_cache.miss", "vbi.cvt_cache.hit"]), [65 + 20, 10]);
}

#[test]
fn an_access_without_right_is_reported_and_the_run_goes_on() {
    let mut program = Program::new();
    program.event(Event::Map {
        range: AddressRange::new(DATA, 8 * KIB),
        kind: MapKind::Anonymous,
        protection: Protection { read: true, write: false, execute: false },
        name: String::new(),
    });
    program.read(DATA).write(DATA + 8).read(DATA + 16);
    let protection = Protection { read: true, write: true, execute: false };
    program.event(Event::Protect { range: AddressRange::new(DATA, 4 * KIB), protection });
    program.write(DATA).write(DATA + 4 * KIB).read(DATA + MIB);
    let outcome = program.run(&vbi("vbi-2", &[]), Fidelity::Full);
    assert_eq!(
        (outcome.accesses, count(&outcome, "vbi.without_right"), count(&outcome, "vbi.strays")),
        (6, 2, 1)
    );
    let notes = [
        "accesses that had no right to their block, and were made: 2, first a store at 0x200000000008 of process 0",
        "pages that were accessed and that nothing had mapped: 1, first a load at 0x200000100000 of process 0",
    ];
    notes
        .iter()
        .for_each(|note| assert!(outcome.notes.iter().any(|text| text == note), "{:?}", outcome.notes));
}

#[test]
fn a_wrong_access_is_reported_by_the_call_site_of_its_data_and_its_instruction() {
    let mut program = Program::new();
    program.map(DATA, MIB);
    program.event(Event::Site { site: 3, name: "make_grid+0x2a".to_owned() });
    program.event(Event::Alloc { object: 1, site: 3, range: AddressRange::new(DATA, MIB) });
    program.write(DATA).write(DATA + MIB - 8);
    // Beyond its end, where nothing is mapped: once for each page.
    program.read(DATA + MIB + 16).write(DATA + MIB + 24).read(DATA - 64);
    let protection = Protection { read: true, write: false, execute: false };
    program.event(Event::Protect { range: AddressRange::new(DATA, MIB), protection });
    program.read(DATA).write(DATA + 64);
    let notes = |outcome: &Outcome| -> Vec<String> {
        let reports = |text: &&String| text.contains("no right") || text.contains("nothing had");
        outcome.notes.iter().filter(reports).cloned().collect()
    };
    let outcome = program.run(&vbi("vbi-2", &[]), Fidelity::Full);
    assert_eq!(outcome.accesses, 7, "the run goes on");
    let expected = [
        "accesses that had no right to their block, and were made: 1, first a store at 0x200000000040 of process 0, in what \
         make_grid+0x2a allocated",
        "pages that were accessed and that nothing had mapped: 2, first a load at 0x200000100010 of process 0, 16 bytes after the \
         end of what make_grid+0x2a allocated",
    ];
    assert_eq!(notes(&outcome), expected);
    // Where the input has instructions, each of them is a call site.
    let mut builder = BatchBuilder::new(StreamId(0));
    builder.event(
        1,
        Event::Map {
            range: AddressRange::new(DATA, 4 * KIB),
            kind: MapKind::Anonymous,
            protection,
            name: String::new(),
        },
    );
    [DATA, DATA, DATA + 8].iter().for_each(|addr| builder.access(*addr, 8, AccessKind::Write, 0, 1));
    let mut batch = builder.take(0);
    batch.pc = vec![0x40_1000, 0x40_1000, 0x40_1008];
    let mut source = VecSource::new(Header::default(), vec![batch]);
    let outcome = run_with(&vbi("vbi-2", &[]), &mut source, Options::default()).unwrap();
    let expected = "accesses that had no right to their block, and were made: 2, first a store at 0x200000000000 of process 0 by the \
                    instruction at 0x401000; 1, first a store at 0x200000000008 of process 0 by the instruction at 0x401008";
    assert_eq!(notes(&outcome), [expected]);
}

#[test]
fn a_fork_writes_back_what_its_clones_share() {
    let mut program = Program::new();
    program.map(DATA, 128 * KIB).write(DATA);
    // The child reads what the parent wrote, and both store.
    program.on(1).spawn(1, 0, Some(0)).read(DATA).write(DATA + 64);
    program.on(0).write(DATA);
    // Everything leaves the caches.
    program.map(DATA + GIB, 32 * MIB);
    sweep(&mut program, DATA + GIB, 32 * MIB, false);
    let outcome = program.run_whole(&vbi("vbi-2", &[]), Fidelity::Full);
    let names = ["vbi.clones", "vbi.given_at_writeback", "vbi.copied_at_writeback"];
    assert_eq!(counts(&outcome, names), [1, 1, 1], "one copies, the other keeps what it had");
    assert_eq!(outcome.stats.integer("tier.dram.bytes_by.copy"), 2 * 4096, "read and written");
}

#[test]
fn a_block_in_one_run_has_one_entry() {
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    for round in 0..3 {
        for page in 0..1024 {
            program.chase(DATA + PAGE * page + 64 * round);
        }
    }
    let early = [("delayed", "false")];
    let outcome = program.run_whole(&vbi("vbi-full", &early), Fidelity::Full);
    let names =
        ["walk.memory_refs", "tlb.l1d.2m.miss", "tlb.l1d.4k.miss", "vbi.given_at_miss", "vbi.switches"];
    assert_eq!(counts(&outcome, names), [1, 1, 0, 1024, 0], "the block's entry alone");
    assert_eq!(count(&outcome, "vbi.reserved_unused"), 0, "all of it is used");
    let outcome = program.run_whole(&vbi("vbi-1", &[]), Fidelity::Full);
    assert_eq!(counts(&outcome, names)[1..4], [0, 2048, 1024]);
}

#[test]
fn what_is_set_aside_for_one_block_serves_others_when_memory_is_short() {
    // Two blocks of 4 MiB in 7 MiB: the second one gets smaller pieces, and in the end what the first does not use.
    let mut program = Program::new();
    program.map(DATA, 4 * MIB).map(DATA + GIB, 4 * MIB);
    program.read(DATA);
    for page in 0..1024 {
        program.read(DATA + GIB + PAGE * page);
    }
    let design = with_memory(vbi("vbi-full", &[("delayed", "false")]), 7 * MIB);
    let outcome = program.run_whole(&design, Fidelity::Full);
    assert_eq!(counts(&outcome, ["vbi.given_at_miss", "vbi.switches"]), [1025, 0]);
    assert!(count(&outcome, "vbi.reserved_stolen") > 200, "{}", count(&outcome, "vbi.reserved_stolen"));
    // Once the second block is gone, the first has its own again.
    program.unmap(DATA + GIB, 4 * MIB);
    for page in 0..1024 {
        program.chase(DATA + PAGE * page).chase(DATA + PAGE * page + 64);
    }
    let outcome = program.run_whole(&design, Fidelity::Full);
    assert_eq!(counts(&outcome, ["vbi.given_at_miss", "vbi.switches"]), [1024 + 1024, 0]);
}

#[test]
fn a_block_that_needs_what_another_took_switches_to_a_table() {
    let mut program = Program::new();
    program.map(DATA, 4 * MIB).map(DATA + GIB, 4 * MIB);
    program.read(DATA);
    for page in 0..900 {
        program.read(DATA + GIB + PAGE * page);
    }
    // The end of the first block went to the second: its last page lies elsewhere.
    program.chase(DATA + 64).chase(DATA + 1023 * PAGE).chase(DATA + 1023 * PAGE + 64).chase(DATA + 128);
    let design = with_memory(vbi("vbi-full", &[("delayed", "false")]), 7 * MIB);
    let outcome = program.run_whole(&design, Fidelity::Full);
    assert_eq!(counts(&outcome, ["vbi.given_at_miss", "vbi.switches"]), [902, 1]);
    assert!(count(&outcome, "vbi.reserved_stolen") > 100);
    // Two pages of it have memory, under two nodes of the table: a line of each is written, and the block's own entry. What
    // said that it lies in one run was in that entry.
    let lines = ["vbi.switch_reads", "vbi.switch_writes"];
    assert_eq!(counts(&outcome, lines), [0, 3]);
    let [waits, behind, free] = ["waits", "behind", "free"].map(|switching| {
        let design = with_memory(vbi("vbi-full", &[("delayed", "false"), ("switching", switching)]), 7 * MIB);
        program.run_whole(&design, Fidelity::Full)
    });
    assert_eq!(waits.cycles, outcome.cycles, "it waits by default");
    assert_eq!((counts(&behind, lines), counts(&free, lines)), ([0, 3], [0, 0]));
    assert!(behind.cycles >= free.cycles);
}

#[test]
fn a_block_in_pieces_that_needs_what_another_took_has_its_entries_read() {
    // The second block lies in pieces of 128 KiB, as the first has most of memory set aside.
    let mut program = Program::new();
    program.map(DATA, 4 * MIB).map(DATA + GIB, 4 * MIB).map(DATA + 2 * GIB, 8 * MIB);
    program.read(DATA);
    for piece in 0..20 {
        program.read(DATA + GIB + piece * 128 * KIB);
    }
    // The third takes all that the first does not use, and some of what the second does not. Then that needs what it has
    // lost.
    for page in 0..1500 {
        program.read(DATA + 2 * GIB + PAGE * page);
    }
    for piece in 0..20 {
        program
            .chase(DATA + GIB + piece * 128 * KIB + 31 * PAGE)
            .chase(DATA + GIB + piece * 128 * KIB + 31 * PAGE + 64);
    }
    let design = with_memory(vbi("vbi-full", &[("delayed", "false")]), 7 * MIB);
    let outcome = program.run_whole(&design, Fidelity::Full);
    let [switches, reads, writes] =
        counts(&outcome, ["vbi.switches", "vbi.switch_reads", "vbi.switch_writes"]);
    assert_eq!((switches, reads), (1, 3), "twenty entries in three lines");
    // Each page has a line of the table: the first ones of the pieces, and the last ones as far as they have been needed.
    assert!((20 + 1 + 1..=20 + 20 + 1).contains(&writes), "{writes}");
}

#[test]
fn a_block_that_an_access_promotes_is_charged_from_then_on() {
    // The heap grows from 4 KiB, where the block's own entry is all, to 64 KiB. No event comes after the access beyond.
    let mut program = Program::new();
    program.map_kind(DATA, 4 * KIB, MapKind::Heap).write(DATA);
    program.map_kind(DATA + 4 * KIB, 60 * KIB, MapKind::Heap);
    program.chase(DATA + 32 * KIB).chase(DATA);
    let outcome = program.run_whole(&vbi("vbi-1", &[]), Fidelity::Full);
    let names = ["vbi.promotions", "vbi.switch_reads", "vbi.switch_writes"];
    assert_eq!(counts(&outcome, names), [1, 0, 2], "the line of the one page, and the block's own entry");
}

#[test]
fn a_block_that_moves_to_a_larger_size_takes_over_what_its_table_said() {
    // 33 allocations of one call site: their block is promoted for the second one, to 4 MiB, and for the last one, to 128
    // MiB.
    let mut program = Program::new();
    program.map_kind(DATA, 64 * MIB, MapKind::Heap);
    for object in 0..33 {
        let range = AddressRange::new(DATA + object * MIB, 128 * KIB);
        program.event(Event::Alloc { object, site: 1, range });
        program.chase(DATA + object * MIB).chase(DATA);
    }
    let run = |switching: &str| {
        let own = [("blocks", "site"), ("switching", switching)];
        program.run_whole(&vbi("vbi-1", &own), Fidelity::Full)
    };
    let outcome = run("waits");
    // Each has a page with memory then but the new one. Their entries lie 256 apart, in a line each. For 128 MiB those of
    // the upper level are written too, 16 entries in 2 lines, and the block's own entry each time.
    let names = ["vbi.promotions", "vbi.switches", "vbi.switch_reads", "vbi.switch_writes"];
    assert_eq!(counts(&outcome, names), [2, 0, 1 + 32, (1 + 1) + (32 + 2 + 1)]);
}

#[test]
fn memory_that_runs_out_ends_the_run_with_an_error() {
    let mut program = Program::new();
    program.map(DATA, 64 * MIB);
    sweep(&mut program, DATA, 64 * MIB, true);
    for (name, own) in [("vbi-1", &[][..]), ("vbi-2", &[]), ("vbi-full", &[])] {
        let design = with_memory(vbi(name, own), 16 * MIB);
        let error = run_with(&design, &mut program.source(), Options::default()).unwrap_err();
        assert!(error.to_string().contains("out of memory"), "{name}: {error}");
    }
}

#[test]
fn headroom_is_for_write_backs() {
    let mut program = Program::new();
    program.map(DATA, 12 * MIB);
    sweep(&mut program, DATA, 12 * MIB, true);
    let mut design = with_memory(vbi("vbi-1", &[]), 16 * MIB);
    assert!(run_with(&design, &mut program.source(), Options::default()).is_ok());
    design = with_memory(vbi("vbi-1", &[("headroom", "8 MiB")]), 16 * MIB);
    assert!(run_with(&design, &mut program.source(), Options::default()).is_err());
    design = with_memory(vbi("vbi-2", &[("headroom", "8 MiB")]), 16 * MIB);
    assert!(run_with(&design, &mut program.source(), Options::default()).is_ok());
}

#[test]
fn allocations_are_gathered_as_the_design_says() {
    let alloc = |program: &mut Program, object: u64, site: u32, start: u64, bytes: u64| {
        program.event(Event::Alloc { object, site, range: AddressRange::new(start, bytes) });
        program.write(start).read(start + bytes - 8);
    };
    let mut program = Program::new();
    program.map_kind(DATA, 64 * MIB, MapKind::Heap);
    program.write(DATA);
    alloc(&mut program, 1, 7, DATA + MIB, 200 * KIB);
    alloc(&mut program, 2, 7, DATA + 2 * MIB, 200 * KIB);
    alloc(&mut program, 3, 8, DATA + 3 * MIB, 200 * KIB);
    alloc(&mut program, 4, 9, DATA + 4 * MIB, 5 * MIB);
    alloc(&mut program, 5, 9, DATA + 40 * MIB, 16 * KIB);
    let blocks = |own: &[(&str, &str)]| {
        let outcome = program.run_whole(&vbi("vbi-2", own), Fidelity::Full);
        counts(&outcome, ["vbi.blocks", "vbi.blocks_disabled"])
    };
    assert_eq!(blocks(&[]), [5, 0], "the heap, and each large allocation");
    assert_eq!(blocks(&[("blocks", "site")]), [4, 0], "those of one call site lie in one block");
    assert_eq!(blocks(&[("blocks", "pool")]), [3, 0], "200 KiB and 5 MiB have two classes");
    assert_eq!(blocks(&[("blocks", "area")]), [1, 0]);
    assert_eq!(blocks(&[("least", "16 KiB")]), [6, 0]);
    // A site whose block is full moves to a larger one. What is freed is gone.
    let mut program = Program::new();
    program.map_kind(DATA, 64 * MIB, MapKind::Heap);
    for object in 0..40 {
        alloc(&mut program, object, 1, DATA + object * MIB, 128 * KIB);
    }
    for object in 0..40 {
        program.event(Event::Free { object });
    }
    let outcome = program.run_whole(&vbi("vbi-2", &[("blocks", "site")]), Fidelity::Full);
    assert_eq!(counts(&outcome, ["vbi.promotions", "vbi.blocks", "vbi.blocks_disabled"]), [2, 0, 1]);
}

#[test]
fn what_a_controller_takes_is_a_parameter() {
    let mut program = Program::new();
    program.map(DATA, 64 * MIB);
    let mut random = Random(7);
    for _ in 0..20_000 {
        program.chase(DATA + random.below(MIB) * 64);
    }
    let run = |own: &[(&str, &str)]| program.run(&vbi("vbi-1", own), Fidelity::Full);
    let plain = run(&[]);
    assert!(run(&[("latency", "60 cycles")]).cycles > plain.cycles);
    let from_memory = run(&[("walks_through_llc", "false")]);
    let walked = |outcome: &Outcome| outcome.stats.integer("tier.dram.bytes_by.walk");
    assert!(walked(&from_memory) > 2 * walked(&plain), "{} {}", walked(&from_memory), walked(&plain));
    assert!(from_memory.cycles > plain.cycles);
}

#[test]
fn the_control_answers_zeros_without_blocks() {
    let mut program = Program::new();
    program.map(DATA, 64 * KIB);
    sweep(&mut program, DATA, 64 * KIB, false);
    let run = |name: &str| program.run(&design(name, "vbi-table1", &[("core.count", "1")]), Fidelity::Full);
    let zeros = run("native-zero-line");
    assert_eq!(counts(&zeros, ["os.faults", "memory.zero_line_reads", "cache.zero_fills"]), [16, 1024, 0]);
    assert_eq!((demand_bytes(&zeros), zeros.stats.integer("tier.dram.bytes_by.zero")), (0, 0));
    assert!(zeros.cycles < run("native-4k").cycles);
}

#[test]
fn virtual_machines_have_blocks_of_their_own_and_no_second_dimension() {
    let mut program = Program::new();
    let mut random = Random(7);
    for process in 0..3 {
        program.on(process);
        if process > 0 {
            program.spawn(process, 0, None);
        }
        program.map(DATA, 16 * MIB);
        for _ in 0..4000 {
            program.chase(DATA + random.below(MIB / 4) * 64);
        }
    }
    let run = |vms: &str| program.run(&vbi("vbi-1", &[("vms", vms)]), Fidelity::Full);
    let host = run("0");
    assert_eq!(count(&host, "vbi.vms"), 0);
    for (vms, used) in [("1", 1), ("2", 2), ("31", 3)] {
        let guests = run(vms);
        assert_eq!(count(&guests, "vbi.vms"), used);
        // One translation, as on the host.
        assert_eq!(guests.cycles, host.cycles);
        assert_eq!(count(&guests, "walk.memory_refs"), count(&host, "walk.memory_refs"));
    }
}

#[test]
fn a_virtual_machine_beyond_the_name_and_a_hypervisor_are_refused() {
    let refused = |key: &str, value: &str| {
        let sets = [(key.to_owned(), value.to_owned())];
        Library::embedded().design("vbi-full", Some("vbi-table1"), &sets).unwrap_err().to_string()
    };
    let error = refused("translation.scheme.vms", "32");
    assert!(error.contains("translation.scheme.vms") && error.contains("31"), "{error}");
    let error = refused("vm.memory", "1 GiB");
    assert!(error.contains("leave [vm] out and set translation.scheme.vms"), "{error}");
}
