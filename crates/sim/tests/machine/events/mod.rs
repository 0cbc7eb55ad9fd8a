//! Events that change address spaces, and input that is odd: counted by hand.

mod processes;

use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_model::AddressRange;
use terrace_sim::design::{Design, PagePolicy};
use terrace_sim::{Fidelity, Options, Outcome, SimError};
use terrace_trace::{
    AccessKind, Advice, Batch, Event, Header, KernelAccess, MapKind, MarkKind, Protection, StreamId,
    VecSource,
};

const ALL: [Fidelity; 3] = [Fidelity::Full, Fidelity::Translation, Fidelity::Pages];

fn cores(mut design: Design, count: u32) -> Design {
    design.core.count = count;
    design
}

fn resident(outcome: &Outcome) -> u64 {
    let of = ["4k", "2m", "1g"].map(|size| count(outcome, &format!("os.resident_bytes.{size}")));
    of.iter().sum::<u64>() / PAGE
}

/// A point in the global order: what other streams do after it waits for it.
fn barrier(program: &mut Program) {
    program.event(Event::Free { object: u64::MAX });
}

#[test]
fn an_access_nobody_mapped_maps_its_page() {
    let mut program = Program::new();
    program.read(DATA).write(DATA + 8).read(DATA + 5 * PAGE);
    for fidelity in ALL {
        let outcome = program.run(&small(), fidelity);
        assert_eq!(counts(&outcome, ["os.unmapped_accesses", "os.faults"]), [2, 2]);
        assert!(outcome.notes.iter().any(|note| note.starts_with("2 accesses to addresses that no event")));
    }
}

#[test]
fn a_stream_that_begins_in_the_middle_runs() {
    let mut program = Program::without_spawn();
    program.read(DATA).read(DATA + PAGE);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!((outcome.accesses, count(&outcome, "os.faults")), (2, 2));
    // A second stream without a beginning shares its memory.
    program.on(1).read(DATA).read(DATA + PAGE);
    let outcome = program.run(&cores(small(), 2), Fidelity::Full);
    assert_eq!((outcome.accesses, count(&outcome, "os.faults")), (4, 2));
}

#[test]
fn an_empty_input_is_an_empty_outcome() {
    for fidelity in ALL {
        let outcome = run(&small(), &mut VecSource::default(), fidelity);
        assert_eq!((outcome.accesses, outcome.instructions, outcome.cycles), (0, 0, 0));
        assert_eq!(counts(&outcome, ["os.faults", "core.cores_used", "core.cycles.base"]), [0, 0, 0]);
    }
    let mut program = Program::new();
    program.map(DATA, PAGE).event(Event::Compute { instructions: 1000 }).exit(true);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!((outcome.accesses, outcome.instructions), (0, 1000));
}

#[test]
fn malformed_batches_are_refused_with_their_stream() {
    let mut broken = Batch { stream: StreamId(3), ..Batch::default() };
    broken.push(DATA, 0, AccessKind::Read, 0, 1);
    let mut missing = Batch { stream: StreamId(4), ..Batch::default() };
    missing.push(DATA, 8, AccessKind::Read, 0, 1);
    missing.kind.clear();
    let mut beyond = Batch { stream: StreamId(5), ..Batch::default() };
    beyond.push_event(0, Event::Wait { nanos: 1 });
    beyond.events[0].before = 7;
    let mut unordered = Batch { stream: StreamId(6), ..Batch::default() };
    unordered.push_event(0, Event::Exit { process_ends: true });
    for (batch, text) in
        [(broken, "zero bytes"), (missing, "differ in length"), (beyond, "beyond"), (unordered, "sequence")]
    {
        let stream = batch.stream.0;
        let mut source = VecSource::new(Header::default(), [batch]);
        let error = run_with(&small(), &mut source, Options::default()).unwrap_err();
        assert!(matches!(error, SimError::Source(_)), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(&format!("stream {stream}")) && message.contains(text), "{message}");
    }
    let far = Batch { stream: StreamId(u32::MAX), ..Batch::default() };
    let error = run_with(&small(), &mut VecSource::new(Header::default(), [far]), Options::default());
    assert!(error.unwrap_err().to_string().contains("a number below 1048576"));
}

#[test]
fn a_program_may_not_run_for_longer_than_time_can_count() {
    let computing = |design: &Design, hours, fidelity| {
        let instructions = (60.0 / design.core.instruction_time().as_secs()) as u64;
        let mut program = Program::new();
        program.map(DATA, PAGE);
        for _ in 0..60 * hours {
            program.event(Event::Compute { instructions });
        }
        program.exit(true);
        run_with(design, &mut program.source(), Options { fidelity, ..Options::default() })
    };
    let sets = [("os.policy.name", "idle"), ("os.policy.scan", "1000 s")];
    let managed = design("first-touch", "skylake-6140", &sets);
    for design in [small(), managed] {
        for fidelity in ALL {
            let four = computing(&design, 4, fidelity).expect("four hours can be counted");
            assert_eq!(four.seconds_simulated.round(), 14400.0);
            let error = computing(&design, 5, fidelity).unwrap_err();
            assert!(error.to_string().contains("goes beyond 4.5 hours"), "{error}");
        }
    }
}

#[test]
fn what_no_program_can_do_is_refused_before_it_is_simulated() {
    let kernel_half = 0xffff_ffff_ffff_f000;
    let far = AddressRange::new(1 << 47, PAGE);
    let protection = Protection::READ_WRITE;
    for (event, text) in [
        (None, "access 1: 8 bytes at address 0xfffffffffffff000"),
        (
            Some(Event::Map { range: far, kind: MapKind::Heap, protection, name: String::new() }),
            "Map of 4096 bytes",
        ),
        (
            Some(Event::Kernel { range: AddressRange::new(DATA, 1 << 40), kind: KernelAccess::Write }),
            "Kernel of",
        ),
        (Some(Event::Compute { instructions: u64::MAX }), "Compute of 18446744073709551615"),
    ] {
        for fidelity in ALL {
            let mut program = Program::new();
            program.read(DATA);
            match &event {
                None => program.read(kernel_half),
                Some(event) => program.event(event.clone()),
            };
            let options = Options { fidelity, ..Options::default() };
            let error = run_with(&small(), &mut program.source(), options).unwrap_err().to_string();
            assert!(error.contains("stream 0") && error.contains(text), "{error}");
        }
    }
}

#[test]
fn a_long_copy_by_the_kernel_ends_when_the_run_is_stopped() {
    let lines = (1 << 31) / 64 - 64;
    let mut program = Program::new();
    program.kernel(DATA, lines * 64, KernelAccess::Read);
    // The copy takes seconds: the run is asked to stop as soon as it has begun.
    let stop = Arc::new(AtomicBool::new(false));
    let asks = Arc::clone(&stop);
    let asking = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        asks.store(true, Ordering::Relaxed);
    });
    let options = Options { stop: Some(stop), ..Options::default() };
    let outcome = run_with(&small(), &mut program.source(), options).unwrap();
    asking.join().unwrap();
    assert!(outcome.stopped && count(&outcome, "os.kernel_lines") < lines, "{}", outcome.stopped);
}

#[test]
fn what_the_kernel_executes_for_a_copy_is_no_instruction_of_the_program() {
    let run = |bytes: u64, fidelity: Fidelity| {
        let mut program = Program::new();
        program.map(DATA, 16 * PAGE);
        for page in 0..8 {
            program.write(DATA + page * PAGE);
        }
        program.event(Event::Compute { instructions: 1000 });
        program.kernel(DATA, bytes, KernelAccess::Read);
        program.run(&small(), fidelity)
    };
    for fidelity in ALL {
        let (without, with) = (run(0, fidelity), run(8 * PAGE, fidelity));
        assert_eq!(with.instructions, without.instructions, "{fidelity:?}");
        assert_eq!(count(&with, "core.instructions"), with.instructions, "{fidelity:?}");
        // 8 pages of 64 lines, two instructions each. Where only pages are simulated, a copy takes no time.
        let dispatched = if fidelity == Fidelity::Pages { 0.0 } else { 1024.0 * small().core.base_cpi };
        let more = |name: &str| count(&with, name) as f64 - count(&without, name) as f64;
        assert!(
            (more("core.cycles.os") - dispatched).abs() < 3.0,
            "{fidelity:?}: {}",
            more("core.cycles.os")
        );
        assert!(more("core.cycles.base").abs() < 6.0, "{fidelity:?}: {}", more("core.cycles.base"));
    }
}

#[test]
fn a_copy_touches_the_same_lines_and_pages_at_every_fidelity() {
    // From the last line of a page, over two whole ones, to the second line of the fourth: 1 + 64 + 64 + 2.
    let mut program = Program::new();
    program.kernel(DATA + PAGE - 1, 1 + 2 * PAGE + 65, KernelAccess::Write);
    for fidelity in ALL {
        let outcome = program.run(&small(), fidelity);
        assert_eq!(counts(&outcome, ["os.kernel_lines", "os.faults"]), [131, 4], "{fidelity:?}");
    }
}

#[test]
fn an_order_that_the_input_lost_is_given_up_and_counted() {
    let mut batch = Batch { stream: StreamId(0), after: 40, ..Batch::default() };
    batch.push(DATA, 8, AccessKind::Read, 0, 1);
    let outcome = run(&small(), &mut VecSource::new(Header::default(), [batch]), Fidelity::Full);
    assert_eq!((outcome.accesses, count(&outcome, "input.order_violations")), (1, 1));
    assert!(outcome.notes.iter().any(|note| note.contains("missing in the input")));
}

#[test]
fn addresses_at_the_ends_of_the_address_space_are_addresses() {
    let mut program = Program::new();
    program.read(0).read(0x7fff_ffff_fff8).write(0x1000);
    for scheme in ["radix", "perfect-tlb", "vivt"] {
        let outcome = program.run(&with_scheme(small(), scheme), Fidelity::Full);
        assert_eq!((outcome.accesses, count(&outcome, "os.faults")), (3, 3), "{scheme:?}");
    }
}

#[test]
fn memory_unmapped_and_touched_again_is_new_memory() {
    let mut program = Program::new();
    program.map(DATA, 4 * PAGE);
    for page in 0..4 {
        program.write(DATA + page * PAGE);
    }
    program.unmap(DATA + PAGE, 2 * PAGE);
    for page in 0..4 {
        program.read(DATA + page * PAGE);
    }
    for fidelity in ALL {
        let outcome = program.run(&small(), fidelity);
        let names = ["os.faults", "os.pages_freed", "os.unmapped_accesses", "os.shootdowns.count"];
        assert_eq!(counts(&outcome, names), [6, 2, 2, 1]);
        assert_eq!(resident(&outcome), 4);
    }
    // Four walks, the two pages that went again; all four fit into the TLB.
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(counts(&outcome, ["tlb.l1d.4k.hit", "tlb.l2.hit", "walk.count"]), [2, 0, 6]);
    // Mapping over it has the same effect, and nothing is unmapped then.
    let mut program = Program::new();
    program.map(DATA, 2 * PAGE).write(DATA).write(DATA + PAGE).map(DATA, PAGE).write(DATA).write(DATA + PAGE);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults", "os.pages_freed", "os.unmapped_accesses"]), [3, 1, 0]);
}

#[test]
fn unmapping_what_is_not_there_does_nothing() {
    let mut program = Program::new();
    program.map(DATA, PAGE).write(DATA).unmap(DATA + GIB, GIB).unmap(DATA + PAGE, 0).read(DATA);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.pages_freed", "os.shootdowns.count", "walk.count"]), [0, 0, 1]);
}

#[test]
fn advice_to_drop_pages_drops_them() {
    let mut program = Program::new();
    program.map(DATA, 4 * PAGE).write(DATA).write(DATA + PAGE).write(DATA + 2 * PAGE);
    let range = AddressRange::new(DATA, 2 * PAGE);
    program.event(Event::Advise { range, advice: Advice::DontNeed });
    program.event(Event::Advise { range, advice: Advice::Cold });
    program.read(DATA).read(DATA + 2 * PAGE);
    for fidelity in ALL {
        let outcome = program.run(&small(), fidelity);
        let names = ["os.faults", "os.pages_freed", "os.unmapped_accesses"];
        assert_eq!(counts(&outcome, names), [4, 2, 0]);
        assert_eq!(resident(&outcome), 2);
    }
}

#[test]
fn a_moved_mapping_keeps_its_pages() {
    let (from, to) = (DATA, DATA + 3 * GIB + 5 * PAGE);
    let mut program = Program::new();
    program.map(from, 4 * PAGE);
    for page in 0..4 {
        program.write(from + page * PAGE);
    }
    // Moves and grows.
    program.remap((from, 4 * PAGE), (to, 6 * PAGE));
    for page in 0..6 {
        program.read(to + page * PAGE);
    }
    for fidelity in ALL {
        let outcome = program.run(&small(), fidelity);
        let names = ["os.faults", "os.pages_freed", "os.unmapped_accesses"];
        assert_eq!(counts(&outcome, names), [6, 0, 0], "{fidelity:?}");
        assert_eq!(resident(&outcome), 6);
    }
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(count(&outcome, "walk.count"), 10, "no translation of the old place serves the new one");
    // Dirty bits move along: a store through the entry that a read brought in needs no update.
    program.write(to + 3 * PAGE);
    assert_eq!(count(&program.run(&small(), Fidelity::Full), "walk.dirty_updates"), 0);
    // The old place is gone.
    program.read(from);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.unmapped_accesses", "os.faults"]), [1, 7]);
}

#[test]
fn a_mapping_that_shrinks_in_place_frees_its_end() {
    let mut program = Program::new();
    program.map(DATA, 4 * PAGE);
    for page in 0..4 {
        program.write(DATA + page * PAGE);
    }
    program.remap((DATA, 4 * PAGE), (DATA, PAGE)).read(DATA).read(DATA + PAGE);
    let outcome = program.run(&small(), Fidelity::Full);
    let names = ["os.faults", "os.pages_freed", "os.unmapped_accesses"];
    assert_eq!(counts(&outcome, names), [5, 3, 1]);
    // And grows in place: nothing moves, nothing walks again.
    let mut program = Program::new();
    program
        .map(DATA, PAGE)
        .write(DATA)
        .remap((DATA, PAGE), (DATA, 3 * PAGE))
        .read(DATA)
        .read(DATA + 2 * PAGE);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults", "os.unmapped_accesses", "walk.count"]), [2, 0, 2]);
}

#[test]
fn huge_pages_move_where_they_fit_and_come_anew_where_not() {
    for (to, faults) in [(DATA + 8 * MIB, 1), (DATA + 8 * MIB + PAGE, 2)] {
        let mut program = Program::new();
        program.map(DATA, 2 * MIB).write(DATA).remap((DATA, 2 * MIB), (to, 2 * MIB)).read(to).read(to + 8);
        let outcome = program.run(&with_pages(small(), PagePolicy::Thp), Fidelity::Full);
        assert_eq!(counts(&outcome, ["os.faults", "os.unmapped_accesses"]), [faults, 0], "{to:#x}");
    }
}

#[test]
fn other_cores_lose_translations_of_memory_that_went() {
    let mut program = Program::new();
    program.map(DATA, 2 * PAGE).write(DATA);
    program.on(1).spawn(0, 1, None).read(DATA);
    barrier(&mut program);
    program.on(0).unmap(DATA, PAGE);
    program.on(1).read(DATA);
    let outcome = program.run(&cores(small(), 2), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.unmapped_accesses", "os.faults", "walk.count"]), [1, 2, 3]);
}

#[test]
fn events_without_effect_have_none() {
    let plain = {
        let mut program = Program::new();
        program.map(DATA, 2 * PAGE).write(DATA).read(DATA + PAGE);
        program.run(&small(), Fidelity::Full)
    };
    let mut program = Program::new();
    program.map(DATA, 2 * PAGE);
    let range = AddressRange::new(DATA, 64);
    program.event(Event::Site { site: 0, name: "main".to_owned() });
    program.event(Event::Alloc { object: 1, site: 0, range }).write(DATA);
    program.event(Event::Realloc { object: 1, range }).event(Event::Free { object: 1 });
    let everything = AddressRange::new(DATA, PAGE);
    program.event(Event::Protect { range: everything, protection: Protection::READ_WRITE });
    program.mark(MarkKind::Phase);
    program.read(DATA + PAGE);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(outcome, plain);
}

#[test]
fn waiting_and_gaps_are_reported() {
    let mut program = Program::new();
    program.event(Event::Wait { nanos: 5_000 }).read(DATA).event(Event::Wait { nanos: 7 });
    program.event(Event::Mark { kind: MarkKind::Gap, name: String::new(), value: 123 });
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(counts(&outcome, ["input.waited_nanoseconds", "input.accesses_left_out"]), [5_007, 123]);
    assert!(outcome.notes.iter().any(|note| note.starts_with("Ignored 5007 ns")));
    assert!(outcome.notes.iter().any(|note| note.starts_with("123 accesses were left out")));
}

#[test]
fn many_more_processes_may_run_one_after_the_other_than_at_a_time() {
    // Each begins when the one before has ended, touches the page that all of them have, and ends.
    let processes = 40_000;
    let (mut sequence, mut batches) = (0, Vec::new());
    for process in 0..processes {
        let mut batch = Batch { stream: StreamId(process), after: sequence, ..Batch::default() };
        let mut event = |batch: &mut Batch, event: Event| {
            sequence += 1;
            batch.push_event(sequence, event);
        };
        let (thread, agent) = (0, terrace_trace::Agent::Cpu);
        let name = String::new();
        event(&mut batch, Event::Spawn { process, thread, agent, forked_from: None, os_id: process, name });
        let range = AddressRange::new(DATA, PAGE);
        let (kind, protection) = (MapKind::Anonymous, Protection::READ_WRITE);
        event(&mut batch, Event::Map { range, kind, protection, name: String::new() });
        batch.push(DATA, 8, AccessKind::Write, 0, 1);
        event(&mut batch, Event::Exit { process_ends: true });
        batches.push(batch);
    }
    let outcome = run(&small(), &mut VecSource::new(Header::default(), batches), Fidelity::Pages);
    // No process sees a page of another: each has its own fault.
    assert_eq!(counts(&outcome, ["os.faults", "os.page_table_pages"]), [u64::from(processes), 0]);
    assert_eq!((outcome.accesses, resident(&outcome)), (u64::from(processes), 0));
}
