//! Where a policy, its orders and their copies run: on processors of their own or on the program's.

use crate::support::probe::*;
use crate::support::*;
use std::num::NonZeroU32;
use terrace_model::{Bytes, TierId, Time};
use terrace_policy::*;
use terrace_sim::Fidelity;
use terrace_sim::design::{Design, KernelThreads};
use terrace_trace::AccessKind;

const SLOW: TierId = TierId(1);
const PAGES: u64 = 64;

fn machine(cores: u32, threads: KernelThreads) -> Design {
    let mut design = design("native-4k", "haswell-2650v3", &[("os.reserved", "0 B")]);
    design.core.count = cores;
    design.tiers[0].capacity = Bytes(1000 * PAGE);
    design.tiers[1].capacity = Bytes(1000 * PAGE);
    design.os.kernel_threads = threads;
    design
}

/// Threads that touch pages of their own and then read the first of them for about a millisecond.
fn threads(count: u32) -> Program {
    let mut program = Program::new();
    program.map(DATA, u64::from(count) * PAGES * PAGE);
    for thread in 1..count {
        program.on(thread).spawn(0, thread, None);
    }
    for thread in 0..count {
        program.on(thread);
        for round in 0..1000 {
            let page = if round < PAGES { round } else { 0 };
            let addr = DATA + (u64::from(thread) * PAGES + page) * PAGE + round % 64 * 64;
            program.access(addr, 8, AccessKind::Read, 0, 4600);
        }
    }
    program
}

/// Looks at all pages every 20 us.
fn scanned(program: &Program, design: &Design, fidelity: Fidelity) -> terrace_sim::Outcome {
    probe(program, design, fidelity, (SLOW, SignalSet::NONE), move |now, _, memory| {
        memory.scan(Scope::All, &mut ScanHand::default(), Clear::ACCESSED, &mut |_| Step::Keep);
        every(now, 20_000)
    })
}

/// Moves up what the first thread no longer reads, all at once.
fn moved(program: &Program, design: &Design, copy_threads: u16) -> terrace_sim::Outcome {
    let (outcome, signals) = order(program, design, SLOW, 200_000, move |memory| {
        let page = |number| PageId::new(0, (DATA >> 12) + number);
        let moves: Vec<Move> = (1..PAGES).map(|at| Move { page: page(at), to: TierId(0) }).collect();
        let in_flight = NonZeroU32::new(PAGES as u32);
        memory.migrate(&moves, MoveOptions { threads: copy_threads, in_flight, ..MoveOptions::default() });
    });
    assert!(outcomes(&signals).iter().all(|outcome| *outcome == Outcome::Done));
    assert_eq!(count(&outcome, "vmstat.pgpromote_success"), PAGES - 1);
    outcome
}

#[test]
fn scans_take_the_time_of_a_program_that_uses_all_cores() {
    for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
        let run = |threads_of| scanned(&threads(1), &machine(1, threads_of), fidelity);
        let [beside, shared] = [KernelThreads::ExtraCores, KernelThreads::MachineCores].map(run);
        assert_eq!(count(&beside, "policy.preempted"), 0);
        let [preempted, worked] = counts(&shared, ["policy.preempted", "policy.time"]);
        assert!(worked > 0 && preempted == worked, "{fidelity:?}: {preempted} of {worked} ns");
        // The policy's work is time of the kernel, nothing else, and makes the run longer.
        let cycle = Time::from_nanos_f64(shared.seconds_simulated * 1e9 / shared.cycles as f64);
        let in_kernel = [&shared, &beside].map(|run| count(run, "core.cycles.os"));
        let longer = cycle.times(in_kernel[0] - in_kernel[1]);
        assert!(
            longer.0.abs_diff(Time::from_nanos(preempted).0) <= 2 * cycle.0,
            "{longer:?}, {preempted} ns"
        );
        assert!(shared.cycles > beside.cycles);
    }
}

#[test]
fn idle_cores_come_first() {
    // Four threads on seven cores: room for the policy, the order and the second thread of its copy.
    let run = |cores, threads_of, copy| moved(&threads(4), &machine(cores, threads_of), copy);
    let beside = run(7, KernelThreads::ExtraCores, 2);
    assert_eq!(run(7, KernelThreads::MachineCores, 2), beside);
    // One core short, a thread of the program makes way for one of the copy's.
    let mut last = 0;
    for cores in [6, 5, 4] {
        let outcome = run(cores, KernelThreads::MachineCores, 2);
        let preempted = count(&outcome, "policy.preempted");
        // The policy itself moves without looking.
        assert!(
            preempted > last || cores == 4 && preempted == last,
            "{cores} cores: {preempted} ns after {last}"
        );
        last = preempted;
    }
}

#[test]
fn all_of_a_move_is_done_in_the_programs_time_on_one_core() {
    let design = machine(1, KernelThreads::MachineCores);
    let shared = moved(&threads(1), &design, 4);
    let [preempted, migration, interrupts] =
        counts(&shared, ["policy.preempted", "policy.migration_time", "policy.interrupts"]);
    // What an order cost counts the interrupts that it sent, which the program's core has paid already.
    let own = migration - interrupts * design.os.costs.interrupt.as_nanos() as u64;
    // Each page's share is rounded.
    assert!(preempted.abs_diff(own) <= PAGES, "{preempted} of {own} ns");
    // A copy has no more threads than the machine has cores.
    assert_eq!(moved(&threads(1), &design, 1), shared);
}

#[test]
fn a_busy_machine_pays_for_copy_threads() {
    // With cores to spare, threads that share a copy cost the program nothing.
    let run = |threads_of, copy| count(&moved(&threads(4), &machine(4, threads_of), copy), "core.cycles.os");
    let [beside, shared] = [KernelThreads::ExtraCores, KernelThreads::MachineCores]
        .map(|threads_of| [1, 4].map(|copy| run(threads_of, copy)));
    assert_eq!(beside[0], beside[1]);
    assert!(shared[0] > beside[0] && shared[1] > shared[0], "{shared:?}");
}

/// A policy on a processor of its own clears bits of entries that no cache holds. However long it takes over them, memory
/// serves the program as before.
#[test]
fn memory_does_not_wait_for_what_a_policy_does_later() {
    const USED: u64 = 8192;
    const IDLE: u64 = 8192;
    let mut program = Program::new();
    program.map(DATA, (IDLE + USED) * PAGE);
    (0..IDLE + USED).for_each(|page| _ = program.write(DATA + page * PAGE));
    // 32 MiB, so that the entries of the idle pages leave the caches.
    let lines = |pages: std::ops::Range<u64>| {
        pages.flat_map(|page| (0..64).map(move |line| (IDLE + page) * PAGE + line * 64))
    };
    lines(0..USED).for_each(|at| _ = program.read(DATA + at));
    program.event(terrace_trace::Event::Compute { instructions: 40_000_000 });
    lines(0..USED).for_each(|at| _ = program.read(DATA + at));
    let run = |nanoseconds: u64| {
        let mut design = machine(1, KernelThreads::ExtraCores);
        design.tiers[1].capacity = Bytes(2 * (IDLE + USED) * PAGE);
        design.os.costs.scan_entry = Time::from_nanos(nanoseconds);
        let mut scanned = false;
        let outcome =
            probe(&program, &design, Fidelity::Full, (SLOW, SignalSet::NONE), move |now, _, memory| {
                let when = Moment(24_000_000);
                if now < when {
                    return NextTick::At(when);
                }
                for page in (0..IDLE).step_by(8).filter(|_| !scanned) {
                    let one = [PageId::new(0, (DATA >> 12) + page)];
                    memory.scan(Scope::Pages(&one), &mut ScanHand::default(), Clear::ACCESSED, &mut |_| {
                        Step::Clear
                    });
                }
                scanned = true;
                NextTick::Never
            });
        (outcome.cycles, counts(&outcome, ["cache.outside_fills", "policy.time"]))
    };
    let (quick, slow) = (run(20), run(20_000));
    assert_eq!(slow.0, quick.0, "{quick:?}, {slow:?}");
    assert!(slow.1[0] > 500 && slow.1[1] > 20_000_000, "{slow:?}");
}
