//! Frames as policies see and move them on the simulated machine.

mod kernel;
mod measured;

use crate::support::probe::*;
use crate::support::*;
use terrace_model::{Bytes, Frame, PageSize, TierId};
use terrace_policy::*;
use terrace_sim::Fidelity;
use terrace_sim::design::{Aging, Design, FreeLists, MemoryParameters, PagePolicy};

const TIER: TierId = TierId(0);

/// One tier with room for so many pages, page tables included.
fn machine(pages: u64) -> Design {
    machine_with(pages, &[])
}

fn machine_with(pages: u64, more: &[(&str, &str)]) -> Design {
    let sets = [&[("os.reserved", "0 B"), ("core.count", "1")], more].concat();
    let mut design = design("native-4k", "skylake-6140", &sets);
    design.tiers.truncate(1);
    design.tiers[0].capacity = Bytes(pages * PAGE);
    design
}

fn page(number: u64) -> PageId {
    PageId::new(0, (DATA >> 12) + number)
}

/// Stores to pages `0..pages`, then goes on with page 0 for about two milliseconds.
fn program(pages: u64) -> Program {
    let mut program = Program::new();
    program.map(DATA, 64 * MIB);
    for at in 0..pages {
        program.write(DATA + at * PAGE);
    }
    for _ in 0..2000 {
        program.access(DATA, 8, terrace_trace::AccessKind::Read, 0, 4600);
    }
    program
}

fn frame_of(memory: &mut dyn MemorySystem, number: u64) -> Frame {
    memory.page(page(number)).unwrap().frame.unwrap()
}

/// Gives an order at 400 us, looks at 1.5 ms.
fn order_and_look<T: Send + 'static>(
    program: &Program,
    design: &Design,
    give: impl Fn(&mut dyn MemorySystem) + Send + 'static,
    look: impl Fn(&mut dyn MemorySystem) -> T + Send + 'static,
) -> (Vec<Signal>, T) {
    let (seen, log) = shared((Vec::new(), None));
    let mut step = 0;
    probe(program, design, Fidelity::Full, (TIER, SignalSet::NONE), move |now, signals, memory| {
        let others = signals.iter().filter(|signal| !matches!(signal, Signal::Tick));
        log.lock().unwrap().0.extend(others.copied());
        let times = [0, 400_000, 1_500_000];
        if step < 3 && now.0 >= times[step] {
            match step {
                1 => give(memory),
                2 => log.lock().unwrap().1 = Some(look(memory)),
                _ => {}
            }
            step += 1;
        }
        times.get(step).map_or(NextTick::Never, |at| NextTick::At(Moment(*at)))
    });
    let mut seen = seen.lock().unwrap();
    (std::mem::take(&mut seen.0), seen.1.take().unwrap())
}

#[test]
fn a_page_goes_to_the_frame_that_was_chosen_and_an_exchange_brings_back_what_lay_there() {
    let (signals, frames) = order_and_look(
        &program(4),
        &machine(512),
        |memory| {
            let [a, b] = [frame_of(memory, 1), frame_of(memory, 2)];
            let physical = memory.physical().unwrap();
            assert_eq!(physical.state(a), FrameState::Movable(page(1)));
            assert_eq!(physical.state(Frame(300)), FrameState::Free { zeroed: false });
            let moves = [
                Relocate { from: a, to: Frame(300), exchange: false },
                Relocate { from: b, to: Frame(300), exchange: false },
                Relocate { from: b, to: Frame(300), exchange: true },
                Relocate { from: Frame(400), to: Frame(401), exchange: true },
                // The root of the page table.
                Relocate { from: b, to: Frame(0), exchange: true },
            ];
            physical.relocate(&moves, MoveOptions::default());
        },
        |memory| (0..4).map(|at| frame_of(memory, at).0).collect::<Vec<_>>(),
    );
    // Frame 0 is the table's root, 1 the first page, 2 to 4 the tables above it.
    use Outcome::{Done, Gone, NoSpace, Unmovable};
    assert_eq!(outcomes(&signals), [Done, NoSpace, Done, Gone, Unmovable]);
    // Page 1 went to 300, then page 2 did, and page 1 came to where page 2 had been.
    assert_eq!(frames, [1, 6, 300, 7]);
}

/// A process stores to pages `0..pages` and forks another. Both then read page 0 for about two milliseconds.
fn forked(pages: u64) -> Program {
    let mut program = program(pages);
    // What follows an event of the global order is after all that the process did before it.
    program.map(DATA + 128 * MIB, PAGE);
    program.on(1).spawn(1, 0, Some(0));
    for stream in [0, 1] {
        program.on(stream);
        for _ in 0..2000 {
            program.access(DATA, 8, terrace_trace::AccessKind::Read, 0, 4600);
        }
    }
    program
}

#[test]
fn what_processes_share_moves_for_all_of_them() {
    let both = |memory: &mut dyn MemorySystem, at: u64| {
        [0, 1].map(|space| memory.page(PageId::new(space, page(at).vpn)).unwrap().frame.unwrap().0)
    };
    let (seen, log) = shared((Vec::new(), Vec::new()));
    let mut step = 0;
    let outcome = probe(
        &forked(4),
        &machine_with(512, &[("core.count", "2")]),
        Fidelity::Full,
        (TIER, SignalSet::NONE),
        move |now, signals, memory| {
            let others = signals.iter().filter(|signal| !matches!(signal, Signal::Tick));
            log.lock().unwrap().0.extend(others.copied());
            // The child is there after a good two milliseconds.
            let times = [0, 2_600_000, 3_600_000];
            if step < 3 && now.0 >= times[step] {
                if step == 1 {
                    let frames = [1, 2].map(|at| both(memory, at));
                    assert!(frames.iter().all(|[parent, child]| parent == child), "{frames:?}");
                    let [one, other] = frames.map(|[frame, _]| Frame(frame));
                    let physical = memory.physical().unwrap();
                    assert_eq!(physical.state(one), FrameState::Movable(page(1)));
                    let moves = [
                        Relocate { from: one, to: Frame(300), exchange: false },
                        // With one that is shared as well.
                        Relocate { from: other, to: Frame(300), exchange: true },
                    ];
                    physical.relocate(
                        &moves,
                        MoveOptions { in_flight: std::num::NonZeroU32::new(1), ..MoveOptions::default() },
                    );
                    log.lock().unwrap().1.push([one.0; 2]);
                    log.lock().unwrap().1.push([other.0; 2]);
                } else if step == 2 {
                    let frames = [1, 2].map(|at| both(memory, at));
                    log.lock().unwrap().1.extend(frames);
                }
                step += 1;
            }
            times.get(step).map_or(NextTick::Never, |at| NextTick::At(Moment(*at)))
        },
    );
    let (signals, frames) = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(outcomes(&signals), [Outcome::Done; 2]);
    let [_, other, one_now, other_now] = frames[..] else { panic!("{frames:?}") };
    assert_eq!((one_now, other_now), (other, [300; 2]), "for parent and child");
    // One page moved, then two changed places; a mapping more does not make it more.
    assert_eq!(counts(&outcome, ["policy.relocated", "policy.copied_bytes"]), [3, 3 * PAGE]);
}

/// The thesis, section 4.3.5: of areas that share frames one is coalesced, and its synonyms are skipped.
#[test]
fn ranger_coalesces_what_processes_share_once() {
    let mut program = Program::new();
    // The first place is this one's, with the page tables' frames in it.
    program.map(DATA - 64 * MIB, 128 * PAGE);
    program.map(DATA, 64 * PAGE);
    // So that neighbours do not lie side by side.
    for at in 0..64 {
        program.write(DATA + at * 37 % 64 * PAGE);
    }
    program.map(DATA + 128 * MIB, PAGE);
    program.on(1).spawn(1, 0, Some(0));
    for stream in [0, 1] {
        program.on(stream);
        for _ in 0..4000 {
            program.access(DATA, 8, terrace_trace::AccessKind::Read, 0, 4600);
        }
    }
    let run = |coalesce: &str| {
        let sets = [
            ("core.count", "2"),
            ("os.policy.name", "ranger"),
            ("os.policy.coalesce", coalesce),
            ("os.policy.thp", "false"),
            ("os.policy.smallest_area", "8 KiB"),
            ("os.policy.period", "500 us"),
            ("os.policy.sample_period", "500 us"),
        ];
        let options = terrace_sim::Options { whole: true, ..Default::default() };
        run_with(&machine_with(2048, &sets), &mut program.source(), options).unwrap()
    };
    let names = [
        "policy.own.contiguous_regions",
        "policy.own.skipped_synonyms",
        "policy.own.moved",
        "policy.own.exchanged",
    ];
    let [scattered, synonyms, moved, _] = counts(&run("false"), names);
    assert_eq!((scattered, synonyms, moved), (2 * 64, 0, 0));
    let [regions, synonyms, moved, exchanged] = counts(&run("true"), names);
    assert_eq!((regions, synonyms), (2, 1), "one run for each process, of the same frames");
    assert!(
        moved + exchanged <= 64,
        "{moved} pages moved and {exchanged} changed places: they are not pulled to and fro"
    );
}

#[test]
fn a_huge_page_changes_places_with_a_mixture() {
    let mut design = with_pages(machine(2048), PagePolicy::Thp);
    design.os.memory = MemoryParameters { free_lists: FreeLists::LowestFirst, ..MemoryParameters::default() };
    let mut program = Program::new();
    program.map(DATA, 2 * MIB);
    // Too small for a huge page.
    program.map(DATA + 4 * MIB, 100 * PAGE);
    program.write(DATA);
    for at in 0..3 {
        program.write(DATA + 4 * MIB + at * PAGE);
    }
    for _ in 0..4000 {
        program.access(DATA, 8, terrace_trace::AccessKind::Read, 0, 4600);
    }
    let small = |memory: &mut dyn MemorySystem| {
        (0..3).map(|at| memory.page(page(1024 + at)).unwrap().frame.unwrap().0).collect::<Vec<_>>()
    };
    let (seen, log) = shared(Vec::new());
    let mut step = 0;
    probe(&program, &design, Fidelity::Full, (TIER, SignalSet::NONE), move |now, signals, memory| {
        if step == 1 && now.0 >= 1_000_000 {
            let huge = memory.page(page(0)).unwrap();
            let base = small(memory);
            assert_eq!((huge.size, huge.frame.unwrap().0 % 512, base[0] / 512), (PageSize::Huge, 0, 0));
            log.lock().unwrap().push((huge.frame.unwrap().0, base));
            // The small ones lie beside the page tables; make them neighbours of nothing that cannot move.
            let physical = memory.physical().unwrap();
            let moves: Vec<Relocate> = log.lock().unwrap()[0]
                .1
                .iter()
                .enumerate()
                .map(|(at, from)| Relocate {
                    from: Frame(*from),
                    to: Frame(1536 + 7 * at as u64),
                    exchange: false,
                })
                .collect();
            physical.relocate(&moves, MoveOptions::default());
            let from = Frame(log.lock().unwrap()[0].0);
            physical.relocate(&[Relocate { from, to: Frame(0), exchange: true }], MoveOptions::default());
        }
        if step == 2 && now.0 >= 2_000_000 {
            let from = memory.page(page(0)).unwrap().frame.unwrap();
            let physical = memory.physical().unwrap();
            physical.relocate(&[Relocate { from, to: Frame(1536), exchange: true }], MoveOptions::default());
        }
        if step == 3 && now.0 >= 3_500_000 {
            let huge = memory.page(page(0)).unwrap();
            assert_eq!(huge.size, PageSize::Huge);
            let base = small(memory);
            log.lock().unwrap().push((huge.frame.unwrap().0, base));
            step += 1;
        }
        for (at, due) in [0, 1_000_000, 2_000_000].iter().enumerate() {
            if step == at && now.0 >= *due {
                step += 1;
            }
        }
        let others: Vec<_> = signals.iter().filter(|signal| !matches!(signal, Signal::Tick)).collect();
        let failed = |signal: &&&Signal| matches!(signal, Signal::Done { outcome: Outcome::Unmovable, .. });
        // Only the block with the page tables refuses.
        assert!(others.iter().filter(failed).count() <= 1);
        [0, 1_000_000, 2_000_000, 3_500_000].get(step).map_or(NextTick::Never, |at| NextTick::At(Moment(*at)))
    });
    let seen = seen.lock().unwrap();
    let (was, _) = seen[0];
    assert_eq!(seen[1], (1536, vec![was, was + 7, was + 14]));
}
