//! Orders: what moves, exchanges, splits and collapses do and cost.

use super::*;

#[test]
fn a_move_costs_its_five_steps_and_the_program_goes_on_in_the_new_place() {
    let design = machine(100, 100);
    let costs = &design.os.costs;
    let (outcome, signals) = order(&looping(4, 1000, false), &design, SLOW, 100_000, |memory| {
        let moves = [0, 1].map(|number| Move { page: page(number), to: FAST });
        memory.migrate(&moves, MoveOptions::default());
    });
    let Signal::Done { outcome: how, cost, subject, .. } = signals[0] else { panic!("{signals:?}") };
    assert_eq!((how, subject), (terrace_policy::Outcome::Done, Subject::Page(page(0))));
    assert_eq!((cost.copied, cost.shootdowns), (PAGE, 1));
    // One core runs the process, so one is interrupted.
    let steps = costs.allocate + costs.unmap + costs.map + costs.free;
    let shootdown = costs.shootdown + costs.shootdown_per_core + costs.interrupt;
    let copy = cost.time - steps - shootdown;
    // 64 lines by ten buffers: at least seven round trips.
    assert!(copy > Time::from_nanos(700) && copy < Time::from_nanos(5000), "{copy:?}");
    assert_eq!(counts(&outcome, ["vmstat.pgpromote_success", "vmstat.pgdemote_policy"]), [2, 0]);
    assert_eq!(counts(&outcome, ["tier.local.pages", "policy.copied_bytes"])[1], 2 * PAGE);
    // The copy is traffic of both tiers, but for lines that it found in a cache.
    let copied = counts(&outcome, ["tier.remote.bytes_by.copy", "tier.local.bytes_by.copy"]);
    assert!(copied[0] > 0 && copied[0] <= 2 * PAGE, "{copied:?}");
    assert_eq!(copied[1], 2 * PAGE);
}

#[test]
fn pages_that_moved_before_the_region_are_there_and_not_counted() {
    let moved = |begins_after: bool| {
        let mut program = Program::new();
        program.map(DATA, 2 * PAGE).write(DATA);
        let wait = |program: &mut Program| {
            for _ in 0..20_000 {
                program.access(DATA + PAGE, 8, terrace_trace::AccessKind::Read, 0, 100);
            }
        };
        if begins_after {
            wait(&mut program);
        }
        program.mark(terrace_trace::MarkKind::RegionBegin);
        wait(&mut program);
        let on = |now: Moment, _: &[Signal], memory: &mut dyn MemorySystem| {
            if now.0 < 20_000 {
                return NextTick::At(Moment(20_000));
            }
            memory.migrate(&[Move { page: page(0), to: FAST }], MoveOptions::default());
            NextTick::Never
        };
        let outcome = probe_region(&program, &machine(100, 100), (SLOW, SignalSet::NONE), on);
        let names = ["vmstat.pgpromote_success", "policy.copied_bytes", "os.resident_bytes.4k"];
        let is_said =
            outcome.notes.iter().any(|note| note.contains("1 moved before the region of interest and 0"));
        (counts(&outcome, names), count(&outcome, "tier.local.pages"), is_said)
    };
    let (during, frames, is_said) = moved(false);
    assert_eq!((during, is_said), ([1, PAGE, 2 * PAGE], false));
    let (before, frames_before, is_said) = moved(true);
    assert_eq!((before, is_said), ([0, 0, 2 * PAGE], true));
    assert_eq!(frames, frames_before, "where pages lie is a state");
}

#[test]
fn caches_with_virtual_names_give_a_page_back_before_it_moves() {
    for scheme in ["vivt", "enigma"] {
        let design = with_scheme(machine(100, 100), scheme);
        let mut program = Program::new();
        program.map(DATA, 2 * PAGE);
        let lines = || (0..64).map(|line| DATA + 64 * line);
        lines().for_each(|at| _ = program.write(at));
        for _ in 0..20_000 {
            program.access(DATA + PAGE, 8, terrace_trace::AccessKind::Read, 0, 100);
        }
        lines().for_each(|at| _ = program.read(at));
        let (outcome, signals) = order(&program, &design, SLOW, 50_000, |memory| {
            memory.migrate(&[Move { page: page(0), to: FAST }], MoveOptions::default());
        });
        assert_eq!(outcomes(&signals), [terrace_policy::Outcome::Done], "{scheme}");
        // Each line is written where the page was, copied from there, and comes from where the page is.
        let names = ["tier.remote.bytes_by.writeback", "tier.remote.bytes_by.copy"];
        assert_eq!(counts(&outcome, names), [PAGE; 2], "{scheme}");
        let fetched = counts(&outcome, ["tier.local.bytes_by.demand", "tier.local.bytes_by.prefetch"]);
        assert_eq!(fetched.iter().sum::<u64>(), PAGE, "{scheme}: {fetched:?}");
    }
}

#[test]
fn what_the_kernel_moves_by_itself_drains_no_lists() {
    let design = machine(100, 100);
    let time = |empties_lists| {
        let (outcome, signals) = order(&looping(4, 1000, false), &design, SLOW, 100_000, move |memory| {
            let how = MoveOptions { empties_lists, ..MoveOptions::default() };
            memory.migrate(&[Move { page: page(0), to: FAST }], how);
        });
        assert_eq!(outcomes(&signals), [terrace_policy::Outcome::Done]);
        count(&outcome, "policy.migration_time")
    };
    // The copies differ by where the refresh of memory falls.
    let (by_call, by_itself) = (time(true), time(false));
    let drains = design.os.costs.order.as_nanos() as u64;
    assert!(by_call.abs_diff(by_itself + drains) < 1000, "{by_call} ns, {by_itself} ns without {drains} ns");
}

#[test]
fn who_touches_a_page_on_the_move_waits_for_it() {
    let mut design = with_pages(machine(2048, 2048), PagePolicy::Huge);
    design.os.reserved = Bytes(0);
    let mut program = Program::new();
    program.map(DATA, 2 * MIB);
    for at in 0..200_000 {
        program.access(DATA + at * 64 % (2 * MIB), 8, terrace_trace::AccessKind::Read, 0, 10);
    }
    let (outcome, signals) = order(&program, &design, SLOW, 100_000, |memory| {
        memory.migrate(&[Move { page: page(0), to: FAST }], MoveOptions::default());
    });
    assert_eq!(outcomes(&signals), [terrace_policy::Outcome::Done]);
    assert_eq!(counts(&outcome, ["policy.waits", "vmstat.thp_migration_success"]), [1, 1]);
    // 2 MiB at a few GB/s.
    let waited = count(&outcome, "policy.wait_time");
    assert!((100_000..2_000_000).contains(&waited), "{waited}");
    assert!(count(&outcome, "core.cycles.os") > waited * 2);
}

#[test]
fn an_exchange_needs_no_room_and_a_move_does() {
    // 10 frames hold the page tables' root and lower levels and six pages.
    let design = machine(10, 100);
    let (outcome, signals) = order(&looping(20, 1000, true), &design, FAST, 200_000, |memory| {
        let (mut fast, mut slow) = (Vec::new(), Vec::new());
        memory.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
            if view.tier == FAST {
                fast.push(view.page)
            } else {
                slow.push(view.page)
            }
            Step::Keep
        });
        assert!(fast.len() >= 4 && slow.len() >= 8, "{} {}", fast.len(), slow.len());
        assert_eq!(memory.topology().free_pages(FAST), 0);
        memory.migrate(&[Move { page: slow[0], to: FAST }], MoveOptions::default());
        let pairs: Vec<Exchange> = (0..4).map(|at| Exchange { one: fast[at], other: slow[at + 1] }).collect();
        let how = MoveOptions { threads: 4, in_flight: None, ..MoveOptions::default() };
        memory.exchange(&pairs, how);
    });
    use terrace_policy::Outcome::{Done, NoSpace};
    let mut how = outcomes(&signals);
    how.sort_by_key(|outcome| *outcome as u8);
    assert_eq!(how, [Done, Done, Done, Done, NoSpace]);
    assert_eq!(counts(&outcome, ["policy.exchanges", "vmstat.pgmigrate_fail"]), [4, 1]);
    assert_eq!(counts(&outcome, ["vmstat.pgpromote_success", "vmstat.pgdemote_policy"]), [4, 4]);
}

#[test]
fn huge_pages_split_and_collapse_in_place_and_elsewhere() {
    let design = with_pages(machine(2048, 4096), PagePolicy::Huge);
    let mut whole = Program::new();
    whole.map(DATA, 2 * MIB);
    for _ in 0..5000 {
        whole.access(DATA, 8, terrace_trace::AccessKind::Write, 0, 4600);
    }
    let (outcome, signals) = order(&whole, &design, SLOW, 1_000_000, |memory| {
        memory.resize(&[
            Resize { page: page(0), to: PageSize::Base },
            Resize { page: page(0), to: PageSize::Huge },
        ]);
    });
    use terrace_policy::Outcome::{Done, Gone};
    assert_eq!(outcomes(&signals), [Done, Done]);
    let names = ["vmstat.thp_split_page", "vmstat.thp_collapse_alloc", "policy.copied_bytes"];
    assert_eq!(counts(&outcome, names), [1, 1, 0], "it lay in place, so nothing was copied");

    // Sixteen of its base pages are mapped: they are copied, the rest is zeroed.
    let mut front = Program::new();
    front.map(DATA, 2 * MIB);
    for round in 0..5000u64 {
        front.access(DATA + round % 16 * PAGE, 8, terrace_trace::AccessKind::Write, 0, 4600);
    }
    let (outcome, signals) = order(&front, &machine(2048, 4096), SLOW, 200_000, |memory| {
        memory.resize(&[Resize { page: page(0), to: PageSize::Huge }]);
        memory.resize(&[Resize { page: page(1), to: PageSize::Huge }]);
    });
    let mut how = outcomes(&signals);
    how.sort_by_key(|outcome| *outcome as u8);
    assert_eq!(how, [Done, Gone]);
    assert_eq!(counts(&outcome, names), [0, 1, 16 * PAGE]);
    assert_eq!(count(&outcome, "tier.remote.bytes_by.zero"), 16 * PAGE + 496 * PAGE);
}

#[test]
fn a_collapse_unmaps_once_for_all_its_parts() {
    let took = |unmap: Time| {
        let mut design = with_pages(machine(2048, 4096), PagePolicy::Huge);
        design.os.costs.unmap = unmap;
        let mut program = Program::new();
        program.map(DATA, 2 * MIB);
        for _ in 0..5000 {
            program.access(DATA, 8, terrace_trace::AccessKind::Write, 0, 4600);
        }
        let (_, signals) = order(&program, &design, SLOW, 1_000_000, |memory| {
            memory.resize(&[
                Resize { page: page(0), to: PageSize::Base },
                Resize { page: page(0), to: PageSize::Huge },
            ]);
        });
        assert_eq!(outcomes(&signals), [terrace_policy::Outcome::Done; 2]);
        let Some(Signal::Done { cost, .. }) = signals.last() else { panic!("{signals:?}") };
        assert_eq!((cost.copied, cost.shootdowns), (0, 1), "all 512 lay in place");
        cost.time
    };
    let micro = Time::from_nanos(1000);
    assert_eq!(took(micro.times(2)) - took(micro), micro);
}

#[test]
fn a_page_that_goes_while_it_moves_is_gone_and_a_shared_one_does_not_move() {
    let design = with_pages(machine(2048, 4096), PagePolicy::Huge);
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    program.write(DATA).write(DATA + 2 * MIB);
    program.access(DATA + 2 * MIB, 8, terrace_trace::AccessKind::Read, 0, 700_000);
    program.unmap(DATA, 2 * MIB);
    for _ in 0..2000 {
        program.access(DATA + 2 * MIB, 8, terrace_trace::AccessKind::Read, 0, 4600);
    }
    // Two faults on huge pages take 1.7 ms, the call 0.1 ms, the copy half a millisecond.
    let (_, signals) = order(&program, &design, SLOW, 1_720_000, |memory| {
        memory.migrate(&[Move { page: page(0), to: FAST }], MoveOptions::default());
    });
    assert_eq!(outcomes(&signals), [terrace_policy::Outcome::Gone]);

    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    program.write(DATA);
    program.on(1).spawn(1, 0, Some(0));
    program.read(DATA);
    for _ in 0..500 {
        program.on(0).access(DATA, 8, terrace_trace::AccessKind::Read, 0, 4600);
        program.on(1).access(DATA, 8, terrace_trace::AccessKind::Read, 0, 4600);
    }
    let (_, signals) = order(&program, &design, SLOW, 300_000, |memory| {
        memory.migrate(&[Move { page: page(0), to: FAST }], MoveOptions::default());
    });
    assert_eq!(outcomes(&signals), [terrace_policy::Outcome::Unmovable]);
}

#[test]
fn a_huge_page_that_is_split_first_arrives_in_base_pages() {
    let design = with_pages(machine(2048, 4096), PagePolicy::Huge);
    let (outcome, signals) = order(&looping(1, 8000, false), &design, SLOW, 100_000, |memory| {
        let how = MoveOptions { huge: HugePages::SplitFirst, ..MoveOptions::default() };
        memory.migrate(&[Move { page: page(0), to: FAST }], how);
    });
    assert_eq!(outcomes(&signals), [terrace_policy::Outcome::Done]);
    let names = ["vmstat.thp_split_page", "vmstat.thp_migration_success", "vmstat.pgpromote_success"];
    assert_eq!(counts(&outcome, names), [1, 0, 512]);
    let Signal::Done { cost, .. } = signals[0] else { panic!() };
    assert_eq!((cost.copied, cost.shootdowns), (2 * MIB, 512));
}

#[test]
fn huge_pages_that_are_split_first_change_places_as_base_pages() {
    let design = with_pages(machine(2048, 2048), PagePolicy::Huge);
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    // Each of the two huge pages is there within the first milliseconds, and in use for ten.
    for at in 0..10_000 {
        program.access(DATA + at % 2 * (2 * MIB), 8, terrace_trace::AccessKind::Read, 0, 4600);
    }
    let exchanged = |huge: HugePages| {
        let (outcome, signals) = order(&program, &design, FAST, 5_000_000, move |memory| {
            let how = MoveOptions { huge, threads: 4, in_flight: None, ..MoveOptions::default() };
            memory.exchange(&[Exchange { one: page(0), other: page(512) }], how);
        });
        assert_eq!(outcomes(&signals), [terrace_policy::Outcome::Done]);
        let Signal::Done { cost, .. } = signals[0] else { panic!() };
        assert_eq!(cost.copied, 4 * MIB);
        counts(&outcome, ["policy.exchanges", "vmstat.thp_split_page", "os.resident_bytes.2m"])
    };
    assert_eq!(exchanged(HugePages::Whole), [1, 0, 4 * MIB]);
    assert_eq!(exchanged(HugePages::SplitFirst), [512, 2, 0]);
}
