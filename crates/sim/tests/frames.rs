//! Frames as policies see and move them on the simulated machine.

mod machine_support;

use machine_support::probe::*;
use machine_support::*;
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
        let news = signals.iter().filter(|signal| !matches!(signal, Signal::Tick));
        log.lock().unwrap().0.extend(news.copied());
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
            let news = signals.iter().filter(|signal| !matches!(signal, Signal::Tick));
            log.lock().unwrap().0.extend(news.copied());
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
        let news: Vec<_> = signals.iter().filter(|signal| !matches!(signal, Signal::Tick)).collect();
        let failed = |signal: &&&Signal| matches!(signal, Signal::Done { outcome: Outcome::Unmovable, .. });
        // Only the block with the page tables refuses.
        assert!(news.iter().filter(failed).count() <= 1);
        [0, 1_000_000, 2_000_000, 3_500_000].get(step).map_or(NextTick::Never, |at| NextTick::At(Moment(*at)))
    });
    let seen = seen.lock().unwrap();
    let (was, _) = seen[0];
    assert_eq!(seen[1], (1536, vec![was, was + 7, was + 14]));
}

#[test]
fn a_block_zeroed_ahead_makes_its_fault_short() {
    let latency = |ahead: bool| {
        let design = with_pages(machine(2048), PagePolicy::Thp);
        let mut program = Program::new();
        program.map(DATA, 4 * MIB);
        program.map(DATA + 8 * MIB, PAGE).write(DATA + 8 * MIB);
        program.access(DATA + 8 * MIB, 8, terrace_trace::AccessKind::Read, 0, 60_000_000);
        program.write(DATA);
        let mut done = false;
        let outcome =
            probe(&program, &design, Fidelity::Full, (TIER, SignalSet::NONE), move |_, _, memory| {
                if ahead && !done {
                    done = true;
                    let blocks: Vec<Frame> = (1..4).map(|at| Frame(at * 512)).collect();
                    memory.physical().unwrap().zero(&blocks, PageSize::Huge);
                }
                NextTick::Never
            });
        let stat = outcome.stats.get("os.fault_latency.2m").unwrap();
        match &stat.value {
            terrace_model::Value::Histogram(histogram) => {
                assert_eq!(histogram.count, 1);
                histogram.max
            }
            other => panic!("{other:?}"),
        }
    };
    // 2.5 GB/s zero 2 MiB in 839 us; a fault takes 0.7 us.
    assert_eq!((latency(false) / 1000, latency(true)), (839, 700));
}

#[test]
fn pages_of_zeros_are_given_back() {
    let design = with_pages(machine(2048), PagePolicy::Thp);
    let mut program = Program::new();
    program.map(DATA, 2 * MIB);
    for at in 0..32 {
        program.write(DATA + at * 3 * PAGE);
    }
    for at in 0..2000 {
        program.access(DATA + at % 32 * 3 * PAGE, 8, terrace_trace::AccessKind::Read, 0, 4600);
    }
    let (signals, zeros) = order_and_look(
        &program,
        &design,
        |memory| assert_eq!(memory.zero_pages(page(600)), None, "nothing is mapped there"),
        |memory| {
            let zeros = memory.zero_pages(page(5)).unwrap();
            memory.drop_zeros(&[page(0)]);
            (zeros, memory.topology().tiers[0].used.0 / PAGE)
        },
    );
    assert_eq!(outcomes(&signals), [Outcome::Done]);
    // The root, two tables below it, and the page.
    assert_eq!(zeros, (480, 512 + 3));
    let outcome =
        probe(&program, &design, Fidelity::Full, (TIER, SignalSet::NONE), |now, signals, memory| {
            if now.0 >= 1_500_000 && signals.contains(&Signal::Tick) {
                memory.drop_zeros(&[page(0)]);
            }
            if now.0 < 1_500_000 { NextTick::At(Moment(1_500_000)) } else { NextTick::Never }
        });
    let names = ["os.resident_bytes.2m", "os.resident_bytes.4k", "policy.zeros_dropped", "os.faults"];
    assert_eq!(counts(&outcome, names), [0, 32 * PAGE, 480, 1]);
}

#[test]
fn the_page_cache_is_movable_and_gives_way() {
    let mut design = machine(4096);
    design.os.memory.aging =
        Aging::PageCache { reads: 1.0, dropped: 0.25, kernel: 0.01, fmfi: None, seed: 1 };
    let (signals, (cached, free)) = order_and_look(
        &program(4),
        &design,
        |memory| {
            let physical = memory.physical().unwrap();
            let cached =
                (0..4096).map(Frame).filter(|frame| physical.state(*frame) == FrameState::MovableOther);
            let free = (0..4096)
                .map(Frame)
                .filter(|frame| matches!(physical.state(*frame), FrameState::Free { .. }));
            let moves: Vec<Relocate> =
                cached.zip(free).take(20).map(|(from, to)| Relocate { from, to, exchange: false }).collect();
            physical.relocate(&moves, MoveOptions { in_flight: None, ..MoveOptions::default() });
        },
        |memory| {
            let physical = memory.physical().unwrap();
            let mut cached = 0;
            let mut free = 0;
            for frame in 0..4096 {
                match physical.state(Frame(frame)) {
                    FrameState::MovableOther => cached += 1,
                    FrameState::Free { .. } => free += 1,
                    _ => {}
                }
            }
            let mut counted = 0;
            physical.regions(TIER, PageSize::Huge, &mut |region| counted += region.free);
            assert_eq!(counted, free);
            (cached, free)
        },
    );
    assert_eq!(outcomes(&signals), [Outcome::Done; 20]);
    assert!((2900..3100).contains(&cached) && (950..1100).contains(&free), "{cached} {free}");
}

#[test]
fn policies_see_the_mobility_of_pageblocks_and_the_watermarks() {
    let mut design = machine(4096);
    let aging = Aging::PageCache { reads: 1.0, dropped: 0.25, kernel: 0.01, fmfi: None, seed: 1 };
    design.os.memory = MemoryParameters {
        max_order: 9,
        grouping: true,
        min_free: 0.05,
        aging,
        ..MemoryParameters::default()
    };
    let (_, (watermarks, regions)) = order_and_look(
        &program(4),
        &design,
        |_| {},
        |memory| {
            let physical = memory.physical().unwrap();
            let mut regions = Vec::new();
            physical.regions(TIER, PageSize::Huge, &mut |region| regions.push(region));
            (physical.watermarks(TIER), regions)
        },
    );
    // A twentieth, and a quarter of that, and as much again, of 16 MiB.
    let frames = |share: f64| Bytes(((4096.0 * share) as u64) * PAGE);
    assert_eq!(
        watermarks,
        Watermarks { low: frames(0.0625), high: Bytes(frames(0.0625).0 + frames(0.0125).0) }
    );
    // The kernel's frames, one for a hundred pages, and the page tables lie in one pageblock.
    let apart: Vec<&FrameRegion> = regions.iter().filter(|region| !region.for_movable).collect();
    assert_eq!((regions.len(), apart.len()), (8, 1));
    assert!(regions.iter().all(|region| region.for_movable == (region.unmovable == 0)), "{regions:?}");
}

/// Run time in seconds, bytes copied, and bytes that copies moved to and from memory. Half of the memory holds pages of a file,
/// and where `copies`, one thread moves them to and fro for as long as the program runs.
fn beside_copies(workload_spec: &str, copies: bool) -> (f64, u64, u64) {
    let sets = [
        ("os.reserved", "0 B"),
        ("core.count", "4"),
        ("device.local.channels", "1"),
        ("os.zero_stores", "non-temporal"),
        ("os.zero_bandwidth", "1000 GB/s"),
    ];
    let mut design = design("native-4k", "broadwell-2650v4", &sets);
    design.tiers.truncate(1);
    design.tiers[0].capacity = Bytes(96 * MIB);
    let aging = Aging::PageCache { reads: 1.0, dropped: 0.5, kernel: 0.0, fmfi: None, seed: 1 };
    design.os.memory = MemoryParameters { max_order: 10, aging, ..MemoryParameters::default() };
    let mut places: Vec<(Frame, Frame)> = Vec::new();
    let mut pending = 0;
    let on = move |_: Moment, signals: &[Signal], memory: &mut dyn MemorySystem| {
        pending -= outcomes(signals).len();
        if copies && pending == 0 {
            let physical = memory.physical().unwrap();
            if places.is_empty() {
                // The highest frames: faults begin at the lowest.
                let (first, frames) = physical.tier_frames(TIER);
                let upper: Vec<Frame> = (first.0 + frames / 2..first.0 + frames).map(Frame).collect();
                let held = |frame: &&Frame| physical.state(**frame) == FrameState::MovableOther;
                let free = |frame: &&Frame| matches!(physical.state(**frame), FrameState::Free { .. });
                places = upper.iter().filter(held).copied().zip(upper.iter().filter(free).copied()).collect();
                places.truncate(512);
            }
            let moves: Vec<Relocate> =
                places.iter().map(|(from, to)| Relocate { from: *from, to: *to, exchange: false }).collect();
            places.iter_mut().for_each(|(from, to)| std::mem::swap(from, to));
            pending = moves.len();
            physical.relocate(&moves, MoveOptions { in_flight: None, ..MoveOptions::default() });
        }
        NextTick::Unchanged
    };
    let policy: Box<dyn Policy> = Box::new(Probe { signals: SignalSet::NONE, first: TIER, on });
    let options = terrace_sim::Options { policy: Some(Box::new(move |_| Ok(policy))), ..Default::default() };
    let outcome = run_with(&design, &mut *workload(workload_spec), options).unwrap();
    let [copied, moved] = counts(&outcome, ["policy.copied_bytes", "tier.dram.bytes_by.copy"]);
    (outcome.seconds_simulated, copied, moved)
}

#[test]
fn copies_take_bandwidth_from_a_program_that_wants_it_and_from_no_other() {
    // Within the caches, and at the bandwidth of one channel.
    for (spec, slower) in [
        ("gups,bytes=64KiB,updates=4e6,threads=4", 0.999..1.001),
        ("stream,bytes=24MiB,iterations=6,threads=4", 1.1..2.0),
    ] {
        let (alone, nothing, no_traffic) = beside_copies(spec, false);
        let (beside, copied, moved) = beside_copies(spec, true);
        assert_eq!((nothing, no_traffic), (0, 0), "{spec}");
        assert!(moved > 4 * MIB && moved >= 2 * copied, "{spec}: {copied}, {moved}");
        assert!(slower.contains(&(beside / alone)), "{spec}: {alone} s alone, {beside} s beside copies");
    }
}

/// Forty pages one by one downwards, in as many regions, and sixty upwards, in one; then about two milliseconds.
fn scattered() -> Program {
    let mut program = Program::new();
    program.map(DATA, 64 * MIB);
    for at in (0..40).rev().chain(100..160) {
        program.write(DATA + at * PAGE);
    }
    for _ in 0..2000 {
        program.access(DATA, 8, terrace_trace::AccessKind::Read, 0, 4600);
    }
    program
}

#[test]
fn contiguity_is_sampled_whatever_the_design() {
    let figures = ["contiguous_regions_mean", "coverage_32", "coverage_32_mean", "coverage_128_mean"];
    let of = |outcome: &terrace_sim::Outcome, prefix: &str| {
        figures.map(|name| outcome.stats.number(&format!("{prefix}.{name}")))
    };
    let mut design = machine(4000);
    let period = terrace_model::Time::from_nanos(300_000);
    assert!(
        scattered().run(&design, Fidelity::Pages).stats.get("os.coverage_32").is_none(),
        "none asked for"
    );
    design.os.sample_contiguity = Some(period);
    for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
        let outcome = scattered().run(&design, fidelity);
        assert_eq!(count(&outcome, "os.contiguous_regions"), 41, "{fidelity:?}");
        assert_eq!(of(&outcome, "os"), [41.0, 0.91, 0.91, 1.0], "{fidelity:?}");
        let samples = (outcome.seconds_simulated / period.as_secs()) as u64;
        let taken = count(&outcome, "os.contiguity_samples");
        // Where only pages are simulated, all of this program is one batch, which passes at once.
        assert_eq!(taken, if fidelity == Fidelity::Pages { 1 } else { samples }, "{fidelity:?}");
        let over_time = &outcome.contiguity;
        assert!(over_time.len() as u64 <= taken && over_time.len() as u64 >= taken.min(32), "{over_time:?}");
        assert!(over_time.is_sorted_by(|one, next| one.seconds < next.seconds), "{over_time:?}");
        assert!(over_time.iter().all(|point| (point.regions, point.coverage_32) == (41, 0.91)));
    }
    // A policy that samples by itself finds the same.
    let sets = [
        ("os.policy.name", "ranger"),
        ("os.policy.coalesce", "false"),
        ("os.policy.thp", "false"),
        ("os.policy.sample_period", "300 us"),
        ("os.sample_contiguity", "300 us"),
    ];
    let outcome = scattered().run(&machine_with(4000, &sets), Fidelity::Full);
    assert_eq!(of(&outcome, "os"), of(&outcome, "policy.own"));
    let by_policy = scattered().run(&machine_with(4000, &sets[..4]), Fidelity::Full);
    assert_eq!(by_policy.contiguity.len(), outcome.contiguity.len());
    assert_eq!(count(&outcome, "os.contiguous_regions"), 41);
}

#[test]
fn samples_are_taken_while_a_program_only_computes() {
    let mut design = machine(8000);
    design.os.zero_bandwidth = terrace_model::BytesPerSec(1e12); // Faults are one step of the program, unsampled.
    design.os.sample_contiguity = Some(terrace_model::Time::from_nanos(1_000_000));
    let mut source = workload("growth,bytes=8MiB,at_once=1,chunked=0,compute=1e8,accesses=0");
    let options = terrace_sim::Options { whole: true, fidelity: Fidelity::Pages, ..Default::default() };
    let outcome = run_with(&design, &mut *source, options).unwrap();
    let (samples, spans) =
        (count(&outcome, "os.contiguity_samples"), (outcome.seconds_simulated * 1e3) as u64);
    assert!(spans > 5 && samples + 1 >= spans, "{samples} in {spans} ms");
}
