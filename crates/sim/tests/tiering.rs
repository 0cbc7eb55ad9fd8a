//! Policies on the simulated machine: what they see, what their orders do and cost, and that nothing is lost.

mod machine_support;

use machine_support::probe::*;
use machine_support::*;
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::sync::Arc;
use terrace_model::{AddressRange, Bytes, Frame, PageSize, TierId, Time};
use terrace_policy::*;
use terrace_sim::design::{Design, KernelThreads, PagePolicy};
use terrace_sim::{Fidelity, Options};
use terrace_trace::{Event, EventSource};

const FAST: TierId = TierId(0);
const SLOW: TierId = TierId(1);

/// Two tiers, 4 KiB pages, room for `fast` and `slow` pages beside page tables.
fn machine(fast: u64, slow: u64) -> Design {
    let sets = [("os.reserved", "0 B"), ("core.count", "2"), ("os.zero_stores", "non-temporal")];
    let mut design = design("native-4k", "haswell-2650v3", &sets);
    design.tiers[0].capacity = Bytes(fast * PAGE);
    design.tiers[1].capacity = Bytes(slow * PAGE);
    design
}

fn page(number: u64) -> PageId {
    PageId::new(0, (DATA >> 12) + number)
}

/// Touches pages `0..pages` in turn, for about `rounds` times 1 us.
fn looping(pages: u64, rounds: u64, write: bool) -> Program {
    let mut program = Program::new();
    program.map(DATA, 64 * PAGE);
    for round in 0..rounds {
        let addr = DATA + round % pages * PAGE + round % 64 * 64;
        let kind = if write { terrace_trace::AccessKind::Write } else { terrace_trace::AccessKind::Read };
        program.access(addr, 8, kind, 0, 4600);
    }
    program
}

/// What scans of page 0 show over time, every 20 us.
fn bits_seen(clear: Clear, write: bool) -> Vec<(bool, bool)> {
    let (seen, log) = shared(Vec::new());
    let design = machine(100, 100);
    probe(
        &looping(1, 200, write),
        &design,
        Fidelity::Full,
        (FAST, SignalSet::NONE),
        move |now, _, memory| {
            let mut hand = ScanHand::default();
            memory.scan(Scope::All, &mut hand, clear, &mut |view| {
                log.lock().unwrap().push((view.accessed, view.dirty));
                Step::Clear
            });
            every(now, 20_000)
        },
    );
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() >= 5, "{seen:?}");
    seen
}

#[test]
fn a_translation_in_a_tlb_hides_accesses_until_it_is_dropped() {
    let seen = bits_seen(Clear::ACCESSED, false);
    assert_eq!(seen[0], (true, false));
    assert!(seen[1..].iter().all(|bits| *bits == (false, false)), "{seen:?}");
    let seen = bits_seen(Clear::ACCESSED.flushed(true), false);
    assert!(seen.iter().all(|bits| *bits == (true, false)), "{seen:?}");
    // The same for stores: a TLB entry that knows the page dirty does not set the bit again.
    let seen = bits_seen(Clear::BOTH, true);
    assert_eq!(seen[0], (true, true));
    assert!(seen[1..].iter().all(|bits| *bits == (false, false)), "{seen:?}");
    let seen = bits_seen(Clear::BOTH.flushed(true), true);
    assert!(seen.iter().all(|bits| *bits == (true, true)), "{seen:?}");
}

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
fn hint_faults_come_once_and_store_hints_let_loads_pass() {
    for (how, write, faults) in [
        (Watch::Hint, false, 1),
        (Watch::Hint, true, 1),
        (Watch::HintStore, false, 0),
        (Watch::HintStore, true, 1),
    ] {
        let design = machine(100, 100);
        let (_, signals) = order(&looping(1, 300, write), &design, FAST, 100_000, move |memory| {
            memory.watch(&[page(0)], how);
        });
        assert_eq!(signals.len(), faults, "{how:?} {write}: {signals:?}");
        if let [Signal::HintFault { page: faulted, write: stored, latency, .. }] = signals[..] {
            assert_eq!((faulted, stored), (page(0), write));
            assert!(latency < Time::from_nanos(10_000), "{latency:?}");
        }
    }
}

#[test]
fn counted_pages_fault_once_per_tlb_miss() {
    let (counted, log) = shared(0);
    let design = machine(100, 100);
    let mut rounds = 0;
    let outcome = probe(
        &looping(1, 1000, false),
        &design,
        Fidelity::Full,
        (FAST, SignalSet::NONE),
        move |now, _, memory| {
            // Flushing the page's translation makes one TLB miss per round.
            let mut hand = ScanHand::default();
            memory.counts(&mut |count| *log.lock().unwrap() += count.accesses);
            match rounds {
                0 => {}
                1 => memory.watch(&[page(0)], Watch::Count),
                _ => {
                    let clear = Clear::ACCESSED.flushed(true);
                    memory.scan(Scope::All, &mut hand, clear, &mut |_| Step::Clear);
                }
            }
            rounds += 1;
            if rounds == 12 { NextTick::Never } else { every(now, 20_000) }
        },
    );
    // One by the watch's own shootdown and one by each of the nine flushes whose misses were read.
    assert_eq!(*counted.lock().unwrap(), 10);
    // The last flush's miss came after the last reading.
    assert_eq!(count(&outcome, "policy.count_faults"), 11);
}

#[test]
fn exact_sampling_tells_every_line_that_was_read_from_memory() {
    let (told, log) = shared(0u64);
    let design = machine(100, 100);
    let outcome = probe(
        &looping(40, 2000, false),
        &design,
        Fidelity::Full,
        (FAST, SignalSet::NONE),
        move |now, signals, memory| {
            if now == Moment::START {
                memory.sample_accesses(1);
            }
            for signal in signals {
                if let Signal::Access { count, write: false, .. } = signal {
                    *log.lock().unwrap() += u64::from(*count);
                }
            }
            every(now, 50_000)
        },
    );
    let read = count(&outcome, "tier.local.bytes_by.demand") / 64;
    assert!(read > 300);
    let told = *told.lock().unwrap();
    // What came after the last tick was not told any more.
    assert!(told <= read && told + 60 >= read, "{told} of {read}");
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

#[test]
fn low_water_is_told_once_per_fall() {
    let design = machine(40, 100);
    let (told, log) = shared(Vec::new());
    probe(
        &looping(60, 2000, false),
        &design,
        Fidelity::Full,
        (FAST, SignalSet::of(&[SignalKind::Allocated])),
        move |now, signals, memory| {
            if now == Moment::START {
                memory.wake_below(FAST, Bytes(16 * PAGE));
            }
            for signal in signals {
                match signal {
                    Signal::LowWater { tier, free } => log.lock().unwrap().push((*tier, free.0 / PAGE)),
                    Signal::Allocated { size, .. } => assert_eq!(*size, PageSize::Base),
                    _ => {}
                }
            }
            NextTick::Never
        },
    );
    assert_eq!(*told.lock().unwrap(), [(FAST, 15)]);
}

/// A policy that does everything at random, wrong things included.
fn chaos(seed: u64) -> impl FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send {
    let mut random = terrace_policy::Random::new(seed);
    let mut answered = std::collections::BTreeMap::<Ticket, u64>::new();
    move |now, signals, memory| {
        for signal in signals {
            if let Signal::Done { ticket, cost, .. } = signal {
                let left = answered.get_mut(ticket).expect("an answer to an order that was given");
                assert!(*left > 0, "{ticket:?} was answered too often");
                *left -= 1;
                assert!(cost.copied % PAGE == 0);
            }
        }
        for tier in &memory.topology().tiers {
            assert!(tier.used <= tier.capacity);
        }
        let mut pages = Vec::new();
        let mut hand = ScanHand { next: PageId::new(0, random.below(1 << 34)) };
        let clear = Clear { accessed: true, dirty: true, flush: random.below(2) == 0 };
        memory.scan(Scope::All, &mut hand, clear, &mut |view| {
            pages.push(view.page);
            if random.below(2) == 0 { Step::Clear } else { Step::Keep }
        });
        if pages.is_empty() {
            return every(now, 2000);
        }
        let one = |random: &mut terrace_policy::Random| {
            let page = pages[random.below(pages.len() as u64) as usize];
            if random.below(20) == 0 { page.plus(random.below(600)) } else { page }
        };
        let count = random.below(12);
        let how = MoveOptions {
            huge: if random.below(2) == 0 { HugePages::Whole } else { HugePages::SplitFirst },
            threads: random.below(6) as u16,
            in_flight: NonZeroU32::new(random.below(9) as u32),
            copy: CopyBy::Bytes,
        };
        let tier = |random: &mut terrace_policy::Random| TierId(random.below(3) as u8);
        let ticket = match random.below(9) {
            0 | 1 => {
                let moves: Vec<Move> =
                    (0..count).map(|_| Move { page: one(&mut random), to: tier(&mut random) }).collect();
                memory.migrate(&moves, how)
            }
            2 => {
                let pairs: Vec<Exchange> =
                    (0..count).map(|_| Exchange { one: one(&mut random), other: one(&mut random) }).collect();
                memory.exchange(&pairs, how)
            }
            3 => {
                let sizes = [PageSize::Base, PageSize::Huge, PageSize::Giant];
                let resizes: Vec<Resize> = (0..count)
                    .map(|_| {
                        let to = sizes[random.below(3) as usize];
                        Resize { page: one(&mut random).aligned(to), to }
                    })
                    .collect();
                memory.resize(&resizes)
            }
            4 => {
                let dropped: Vec<PageId> = (0..count.min(2)).map(|_| one(&mut random)).collect();
                answered.insert(memory.drop_zeros(&dropped), dropped.len() as u64);
                return every(now, 1000 + random.below(30_000));
            }
            5..=7 => {
                let Some(physical) = memory.physical() else { panic!("frames are shown") };
                let (first, frames) = physical.tier_frames(TierId(random.below(2) as u8));
                let block =
                    |random: &mut terrace_policy::Random| Frame(first.0 + random.below(frames / 512) * 512);
                match random.below(3) {
                    0 => physical.isolate(block(&mut random), PageSize::Huge, random.below(2) == 0),
                    1 => {
                        let blocks: Vec<Frame> = (0..count).map(|_| block(&mut random)).collect();
                        answered.insert(physical.zero(&blocks, PageSize::Huge), count);
                    }
                    _ => {
                        let frame = |random: &mut terrace_policy::Random| match random.below(3) {
                            0 => block(random),
                            _ => Frame(first.0 + random.below(frames)),
                        };
                        let moves: Vec<Relocate> = (0..count)
                            .map(|_| Relocate {
                                from: frame(&mut random),
                                to: frame(&mut random),
                                exchange: random.below(2) == 0,
                            })
                            .collect();
                        answered.insert(physical.relocate(&moves, how), count);
                    }
                }
                return every(now, 1000 + random.below(30_000));
            }
            _ => {
                let hows = [Watch::Off, Watch::Hint, Watch::HintStore, Watch::Count];
                let watched: Vec<PageId> = (0..count).map(|_| one(&mut random)).collect();
                memory.watch(&watched, hows[random.below(4) as usize]);
                memory.counts(&mut |_| {});
                return every(now, 1000 + random.below(30_000));
            }
        };
        answered.insert(ticket, count);
        every(now, 1000 + random.below(30_000))
    }
}

/// Threads and processes that map, touch, unmap, move and fork memory while a policy is at work on it.
fn churn(seed: u64) -> Program {
    let mut random = Random(seed);
    let mut program = Program::new();
    let base = |area: u64| DATA + area * 8 * MIB;
    for area in 0..4 {
        program.map(base(area), 6 * MIB);
    }
    program.on(1).spawn(0, 1, None);
    let mut processes = 1;
    for step in 0..60 {
        for stream in 0..2 {
            program.on(stream);
            for _ in 0..150 {
                let addr = base(random.below(4)) + random.below(6 * MIB / 64) * 64;
                let write = random.below(3) == 0;
                let kind =
                    if write { terrace_trace::AccessKind::Write } else { terrace_trace::AccessKind::Read };
                program.access(addr, 8, kind, 0, 100 + random.below(3000));
            }
        }
        program.on(0);
        let area = base(random.below(4));
        let part = (area + random.below(1500) * PAGE, (1 + random.below(800)) * PAGE);
        match random.below(6) {
            0 => _ = program.unmap(part.0, part.1).map(part.0, part.1),
            1 => _ = program.remap((area, 2 * MIB), (area + 4 * MIB, 2 * MIB)).map(area, 2 * MIB),
            2 => {
                let range = AddressRange::new(part.0, part.1);
                program.event(Event::Advise { range, advice: terrace_trace::Advice::DontNeed });
            }
            3 => _ = program.kernel(part.0, part.1, terrace_trace::KernelAccess::Write),
            4 if processes < 4 => {
                let child = 1 + processes;
                program.on(child).spawn(processes, 0, Some(0));
                for page in 0..40 {
                    program.write(area + page * PAGE);
                }
                if step % 2 == 0 {
                    program.exit(true);
                }
                processes += 1;
            }
            _ => {}
        }
    }
    program
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Frames are counted anew while the policy works (in builds with debug assertions, as these are).
    #[test]
    fn nothing_is_lost_or_doubled_whatever_a_policy_orders(
        seed: u64,
        huge: bool,
        shared_cores: bool,
        level in 0usize..3,
    ) {
        let fidelity = [Fidelity::Full, Fidelity::Translation, Fidelity::Pages][level];
        let pages = if huge { PagePolicy::Thp } else { PagePolicy::Base };
        let mut design = with_pages(machine(3000, 60_000), pages);
        if shared_cores {
            design.os.kernel_threads = KernelThreads::MachineCores;
        }
        let run = || {
            probe(&churn(seed), &design, fidelity, (FAST, SignalSet::of(SignalKind::ALL)), chaos(seed))
        };
        let outcome = run();
        prop_assert!(count(&outcome, "policy.calls") > 10);
        // Whatever the policy does, the program makes the accesses that it makes.
        prop_assert_eq!(outcome.accesses, churn(seed).run_whole(&design, fidelity).accesses);
        prop_assert_eq!(outcome, run());
    }
}

/// Every policy there is, with short periods, at every fidelity that offers what it needs.
#[test]
fn every_policy_runs_and_runs_the_same_again() {
    let spec = "kv,keys=20e3,requests=60e3,value=256 B";
    for entry in terrace_policy::all() {
        let sets =
            [("os.reserved", "0 B"), ("os.zero_stores", "non-temporal"), ("os.policy.name", entry.name())];
        let mut design = design("first-touch", "xeon-5218-dcpmm", &sets);
        design.tiers[0].capacity = Bytes::mib(3);
        let chosen = design.os.policy.as_mut().unwrap_or_else(|| panic!("{}", entry.name()));
        for (key, value) in &mut chosen.parameters {
            let short =
                ["period", "interval", "scan", "scan_period", "aggregation", "quantum", "adapt_period"];
            if short.contains(&key.as_str()) {
                *value = toml::Value::String("1 ms".to_owned());
            }
            if key == "sampling" || key == "delay" {
                *value = toml::Value::String("100 us".to_owned());
            }
        }
        let needs = entry.needs(&chosen.parameters).unwrap();
        let mut profile = None;
        if needs.first_pass {
            let mut plain = design.clone();
            plain.os.policy = None;
            let options = Options { count_accesses: true, ..Options::default() };
            let first = run_with(&plain, &mut workload(spec), options).unwrap();
            profile = first.profile.map(Arc::new);
            assert!(profile.as_ref().unwrap().pages.len() > 100);
        }
        for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
            let run = || {
                let profile = profile.clone();
                run_with(&design, &mut workload(spec), Options { fidelity, profile, ..Options::default() })
            };
            match run() {
                Ok(outcome) => assert_eq!(outcome, run().unwrap(), "{}", entry.name()),
                Err(error) => {
                    let error = error.to_string();
                    assert!(fidelity != Fidelity::Full, "{error}");
                    assert!(error.contains("does not start: it needs"), "{error}");
                }
            }
        }
    }
}

#[test]
fn in_memory_mode_the_first_tier_is_a_cache_of_the_last() {
    let past_caches = ("os.zero_stores", "non-temporal");
    let sets = [
        ("os.policy.name", "memory-mode"),
        ("tier.dram.capacity", "16 MiB"),
        ("os.reserved", "0 B"),
        past_caches,
    ];
    let cached = design("first-touch", "xeon-5218-dcpmm", &sets);
    let slow = design("all-slow", "xeon-5218-dcpmm", &[past_caches]);
    let spec = "gups,bytes=8 MiB,updates=2e5";
    let run = |design: &Design, spec: &str| run(design, &mut workload(spec), Fidelity::Full);
    let (fits, all_slow) = (run(&cached, spec), run(&slow, spec));
    assert_eq!(count(&fits, "tier.dram.pages"), 16 * MIB / PAGE, "no page lies there");
    let [hits, misses] = counts(&fits, ["cache.memory.hit", "cache.memory.miss"]);
    // Initialisation brought everything in.
    assert!(hits > 100_000 && misses == 0, "{hits} hits, {misses} misses");
    assert_eq!(counts(&fits, ["tier.dcpmm.reads", "tier.dcpmm.writes"]), [0, 0]);
    assert!(fits.cycles < all_slow.cycles);
    // Four times as large as the cache: three reads in four miss, and lines that are written back after their slot was
    // taken.
    let exceeds = run(&cached, "gups,bytes=64 MiB,updates=2e5");
    let [hits, misses] = counts(&exceeds, ["cache.memory.hit", "cache.memory.miss"]);
    let share = misses as f64 / (hits + misses) as f64;
    assert!((0.6..0.9).contains(&share), "{share}");
    assert!(count(&exceeds, "tier.dcpmm.writes") > 0);
}

/// Threads that think between requests: what they load is under way no longer than the reorder buffer holds it, with a
/// policy or without.
#[test]
fn a_policy_that_never_acts_costs_nothing() {
    let spec = "service,bytes=16MiB,traffic=0,zipf=0.99,chain=4,think=2e5,requests=4e3";
    let run = |name: &str, threads: u32, sets: &[(&str, &str)]| {
        let design = design(name, "e5-2699v3", sets).scaled(16).unwrap();
        run_with(&design, &mut workload(&format!("{spec},threads={threads}")), Options::default()).unwrap()
    };
    let [without, with] = [run("all-fast", 4, &[]), run("idle", 4, &[("os.policy.scan", "1000 s")])];
    let ratio = with.seconds_simulated / without.seconds_simulated;
    assert!((ratio - 1.0).abs() < 0.002, "{ratio}");
    // A request's loads depend on each other, so their latencies show; four threads that mostly think do not disturb each other.
    let [alone, together] = [run("all-fast", 1, &[]), without].map(|run| count(&run, "core.cycles.memory"));
    let ratio = together as f64 / alone as f64;
    assert!(alone > 4000 * 200 && (0.9..1.1).contains(&ratio), "{alone} and {together} cycles");
}

#[test]
fn what_cannot_run_says_why() {
    let refused = |design: &Design, fidelity| {
        let mut source = workload("gups,bytes=8 MiB,updates=1e3");
        run_with(design, &mut source, Options { fidelity, ..Options::default() }).unwrap_err().to_string()
    };
    let thermostat = design("thermostat", "xeon-5218-dcpmm", &[]);
    let error = refused(&thermostat, Fidelity::Pages);
    assert!(
        error.contains("counted-faults") && error.contains("use --fidelity translation or full"),
        "{error}"
    );
    let error = refused(&with_scheme(thermostat, "vivt"), Fidelity::Full);
    assert!(error.contains("vivt"), "{error}");
    let error = refused(&design("oracle", "xeon-5218-dcpmm", &[]), Fidelity::Full);
    assert!(error.contains("it needs a first pass"), "{error}");
}

#[test]
fn an_input_that_ends_in_the_middle_of_orders_ends_well() {
    let design = machine(2000, 4000);
    let mut source = endless("gups,bytes=8 MiB,updates=2e4");
    let policy: Box<dyn Policy> = Box::new(Probe { signals: SignalSet::NONE, first: SLOW, on: chaos(3) });
    let options = Options { policy: Some(Box::new(move |_| Ok(policy))), whole: true, ..Options::default() };
    let source: &mut dyn EventSource = &mut source;
    let outcome = run_with(&design, source, options).unwrap();
    let pages = counts(&outcome, ["tier.local.pages", "tier.remote.pages", "os.page_table_pages"]);
    let resident: u64 =
        ["4k", "2m", "1g"].iter().map(|size| count(&outcome, &format!("os.resident_bytes.{size}"))).sum();
    // Blocks of moves under way are taken but hold no page yet.
    assert!(pages[0] + pages[1] - pages[2] >= resident / PAGE);
}
