//! Policies on the simulated machine: what they see, what their orders do and cost, and that nothing is lost.

mod histories;
mod orders;
mod signals;

use crate::support::probe::*;
use crate::support::*;
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

/// Lines that leave the caches while their slots in DRAM hold them: as many reads as without a cache.
#[test]
fn in_memory_mode_no_tag_is_read_for_what_is_written_back() {
    let small = [("cache.llc.capacity", "2816 KiB"), ("os.zero_stores", "non-temporal")];
    let sets = [
        ("os.policy.name", "memory-mode"),
        ("tier.dram.capacity", "16 MiB"),
        ("os.reserved", "0 B"),
        small[0],
        small[1],
    ];
    let run = |name: &str, sets: &[(&str, &str)]| {
        let design = design(name, "xeon-5218-dcpmm", sets);
        run(&design, &mut workload("gups,bytes=8 MiB,updates=2e5"), Fidelity::Full)
    };
    let [cached, alone] = [run("first-touch", &sets), run("first-touch", &small)];
    let [written, reads] = counts(&cached, ["tier.dram.writes", "tier.dram.reads"]);
    assert!(written > 50_000, "{written} lines");
    assert_eq!(count(&cached, "cache.memory.miss"), 0);
    let without = count(&alone, "tier.dram.reads");
    assert!(reads.abs_diff(without) < written / 100, "{reads} reads, {without} without a cache");
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
    // A request's loads depend on each other, so their latencies show; four threads that mostly think do not disturb each
    // other.
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
