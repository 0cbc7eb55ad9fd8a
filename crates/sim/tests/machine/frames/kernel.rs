//! The kernel's side of frames: zeroed blocks, pages of zeros, the page cache, pageblocks.

use super::*;

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

/// A run while three free blocks of 2 MiB of four are filled with zeros, once so many pages are in use; or none.
fn while_zeroing(program: &Program, used: Option<u64>) -> terrace_sim::Outcome {
    let mut done = used.is_none();
    probe(program, &machine(2048), Fidelity::Full, (TIER, SignalSet::NONE), move |now, _, memory| {
        if !done && memory.topology().tiers[0].used.0 < used.unwrap_or_default() * PAGE {
            return every(now, 10_000);
        }
        if !std::mem::replace(&mut done, true) {
            let blocks: Vec<Frame> = (1..4).map(|at| Frame(at * 512)).collect();
            memory.physical().unwrap().zero(&blocks, PageSize::Huge);
        }
        NextTick::Never
    })
}

#[test]
fn a_fault_takes_back_a_block_that_is_being_zeroed() {
    let mut program = Program::new();
    let pages = 2048 - 3 - 4;
    program.map(DATA, pages * PAGE);
    (0..pages).for_each(|page| _ = program.write(DATA + page * PAGE));
    let outcome = while_zeroing(&program, Some(470));
    assert_eq!(count(&outcome, "os.resident_bytes.4k"), pages * PAGE);
    // One was taken back while all three were being filled.
    assert!(count(&outcome, "policy.zeroed_bytes") <= 4 * MIB, "{}", count(&outcome, "policy.zeroed_bytes"));
}

#[test]
fn a_block_that_is_being_zeroed_holds_nothing() {
    let mut program = Program::new();
    program.map(DATA, PAGE).write(DATA);
    program.event(terrace_trace::Event::Compute { instructions: 40_000_000 }).read(DATA);
    let [zeroing, usual] = [Some(0), None].map(|used| while_zeroing(&program, used));
    assert_eq!(count(&zeroing, "policy.zeroed_bytes"), 6 * MIB);
    let mean = |outcome: &terrace_sim::Outcome| outcome.stats.number("tier.dram.mean_pages");
    assert!(mean(&usual) > 1.0 && (mean(&zeroing) - mean(&usual)).abs() < 0.01, "{}", mean(&zeroing));
    assert_eq!(count(&zeroing, "tier.dram.peak_pages"), count(&usual, "tier.dram.peak_pages"));
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
