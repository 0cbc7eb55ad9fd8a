//! Faults that wait until memory is compacted for them: `defrag` of transparent huge pages.

use crate::support::*;
use terrace_model::{Bytes, Histogram, Value};
use terrace_sim::Fidelity;
use terrace_sim::design::{Aging, Design, FreeLists, MemoryParameters};
use terrace_trace::MarkKind;

/// 64 MiB, half of them pages of a file that was read at random: every block of 2 MiB has some.
fn fragmented(defrag: &str, kernel: f64, cores: &str) -> Design {
    let sets = [
        ("os.reserved", "0 B"),
        ("core.count", cores),
        ("os.policy.promote", "false"),
        ("os.policy.defrag", defrag),
    ];
    let mut design = design("thp", "skylake-6140", &sets);
    design.tiers.truncate(1);
    design.tiers[0].capacity = Bytes(64 * MIB);
    let aging = Aging::PageCache { reads: 1.0, dropped: 0.5, kernel, fmfi: None, seed: 1 };
    design.os.memory = MemoryParameters {
        max_order: 10,
        free_lists: FreeLists::LastFreedFirst,
        // Without it the kernel's frames lie everywhere.
        grouping: kernel < 0.1,
        aging,
        ..MemoryParameters::default()
    };
    design
}

/// Six requests, each of which touches 2 MiB of its own for the first time.
fn requests() -> Program {
    let mut program = Program::new();
    program.map(DATA, 12 * MIB);
    for at in 0..6 {
        program.mark(MarkKind::RequestBegin).read(DATA + at * 2 * MIB).mark(MarkKind::RequestEnd);
    }
    program
}

fn histogram(outcome: &terrace_sim::Outcome, name: &str) -> Histogram {
    match &outcome.stats.get(name).unwrap_or_else(|| panic!("no {name}")).value {
        Value::Histogram(histogram) => histogram.clone(),
        other => panic!("{other:?}"),
    }
}

const NAMES: [&str; 4] =
    ["policy.stalls", "os.resident_bytes.2m", "policy.own.compact_success", "policy.own.compact_daemon"];

#[test]
fn the_faulting_thread_pays_for_its_huge_page() {
    for fidelity in [Fidelity::Full, Fidelity::Pages] {
        let run = |defrag: &str| requests().run_whole(&fragmented(defrag, 0.002, "1"), fidelity);
        let (never, always) = (run("never"), run("always"));
        assert_eq!(counts(&never, NAMES), [0, 0, 0, 0]);
        assert_eq!(counts(&always, NAMES), [6, 12 * MIB, 6, 0]);
        let stalled = count(&always, "policy.stall_time");
        assert!(stalled > 3_000_000, "each copies a good part of 2 MiB: {stalled} ns");
        assert_eq!((count(&always, "policy.waits"), count(&always, "policy.wait_time")), (0, 0));
        assert!(count(&always, "policy.copied_bytes") > 2 * MIB);
        // The wait is part of the fault, of the time of the kernel and of the run.
        let faults = histogram(&always, "os.fault_latency.2m");
        assert!(faults.count == 6 && faults.sum >= stalled, "{faults:?}");
        let longer = (always.seconds_simulated - never.seconds_simulated) * 1e9;
        assert!(longer >= stalled as f64 * 0.999, "{longer} for {stalled}");
        if fidelity == Fidelity::Full {
            assert!(count(&always, "tier.dram.bytes_by.copy") > 2 * MIB);
            let slowest = |outcome| count(outcome, "requests.latency.max");
            assert!(slowest(&always) > 100 * slowest(&never), "{} {}", slowest(&always), slowest(&never));
        }
    }
}

#[test]
fn a_daemon_compacts_after_a_fault_and_nobody_waits() {
    let mut program = Program::new();
    program.map(DATA, 12 * MIB);
    for at in 0..6 {
        // Each is followed by some 10 ms of computing.
        program.read(DATA + at * 2 * MIB);
        for _ in 0..1000 {
            program.access(DATA, 8, terrace_trace::AccessKind::Read, 0, 46_000);
        }
    }
    let outcome = program.run_whole(&fragmented("defer", 0.002, "1"), Fidelity::Full);
    // Every second fault finds what the daemon has freed after the one before.
    assert_eq!(counts(&outcome, NAMES), [0, 6 * MIB, 0, 3]);
    assert_eq!(count(&outcome, "policy.stall_time"), 0);
}

#[test]
fn without_a_block_to_be_had_faults_wait_ever_less_often() {
    let mut program = Program::new();
    program.map(DATA, 24 * MIB);
    for at in 0..12 {
        program.read(DATA + at * 2 * MIB);
    }
    // The kernel has a frame in nearly every block.
    let outcome = program.run_whole(&fragmented("always", 0.2, "1"), Fidelity::Full);
    let names = ["policy.stalls", "policy.own.compact_fail", "policy.own.compact_deferred"];
    let [stalls, failed, deferred] = counts(&outcome, names);
    assert_eq!((stalls, count(&outcome, "os.resident_bytes.4k")), (12, 12 * PAGE));
    assert_eq!((failed, deferred), (3, 9), "the faults 1, 3 and 7 try");
}

#[test]
fn threads_that_fault_in_one_range_wait_for_one_compaction() {
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    program.on(1).spawn(0, 1, Some(0));
    for thread in [0, 1] {
        program.on(thread);
        for at in 0..2 {
            program.write(DATA + at * 2 * MIB + u64::from(thread) * PAGE);
        }
    }
    let outcome = program.run_whole(&fragmented("always", 0.002, "2"), Fidelity::Full);
    let [stalls, huge, succeeded, _] = counts(&outcome, NAMES);
    assert_eq!((huge, succeeded), (4 * MIB, 2));
    assert!((3..=4).contains(&stalls), "{stalls}");
}
