//! Latencies of requests that an input marks.

use crate::support::{DATA, PAGE, Program, design, run, small, workload};
use terrace_sim::design::Design;
use terrace_sim::{Fidelity, Outcome};
use terrace_trace::MarkKind::{RegionBegin, RequestBegin, RequestEnd};

fn value(outcome: &Outcome, name: &str) -> f64 {
    let stat = outcome.stats.get(&format!("requests.{name}"));
    stat.unwrap_or_else(|| panic!("no requests.{name}")).value.as_f64()
}

/// Nanoseconds that a program takes, all of its loads included.
fn nanoseconds(outcome: &Outcome) -> f64 {
    outcome.seconds_simulated * 1e9
}

#[test]
fn a_request_takes_as_long_as_what_it_does() {
    let load = |marked: bool| {
        let mut program = Program::new();
        program.map(DATA, 2 * PAGE).write(DATA).mark(RegionBegin);
        if marked {
            program.mark(RequestBegin).read(DATA + 256).mark(RequestEnd);
        } else {
            program.read(DATA + 256);
        }
        program.run(&small(), Fidelity::Full)
    };
    let (marked, plain) = (load(true), load(false));
    assert_eq!(marked.cycles, plain.cycles, "marks cost nothing");
    assert_eq!(value(&marked, "count"), 1.0);
    // Dispatch before the region may still be draining the store, so the whole may be longer, never shorter.
    let (latency, whole) = (value(&marked, "latency.max"), nanoseconds(&plain));
    assert!(latency > 10.0 && latency <= whole + 1.0, "{latency} of {whole}");
    assert!(plain.stats.get("requests.count").is_none());
}

#[test]
fn faults_lie_in_the_tail() {
    let mut program = Program::new();
    program.map(DATA, 1 << 20).write(DATA).mark(RegionBegin);
    for i in 0..200 {
        // One in a hundred touches a page for the first time.
        let at = if i % 100 == 50 { DATA + PAGE * (1 + i / 100) } else { DATA + 64 * (i % 4) };
        program.mark(RequestBegin).read(at).mark(RequestEnd);
    }
    let outcome = program.run(&small(), Fidelity::Full);
    let fault =
        outcome.stats.integer("os.fault_cycles") as f64 / outcome.cycles as f64 * nanoseconds(&outcome) / 2.0;
    assert_eq!(value(&outcome, "count"), 200.0);
    assert!(value(&outcome, "latency.p50") < fault / 2.0);
    assert!(
        value(&outcome, "latency.p999") >= fault * 0.99,
        "{fault}: {:?}",
        value(&outcome, "latency.p999")
    );
}

#[test]
fn requests_before_the_region_and_ends_without_a_beginning_do_not_count() {
    let mut program = Program::new();
    program.map(DATA, PAGE).mark(RequestBegin).write(DATA).mark(RequestEnd);
    program.mark(RequestBegin).mark(RegionBegin).read(DATA).mark(RequestEnd);
    program.mark(RequestBegin).read(DATA).mark(RequestEnd).mark(RequestEnd).mark(RequestBegin);
    let outcome = program.run(&small(), Fidelity::Full);
    assert_eq!(value(&outcome, "count"), 1.0);
}

#[test]
fn services_are_timed_without_what_lies_between_requests() {
    const REQUESTS: u64 = 600;
    let machine = design("native-4k", "vbi-table1", &[]);
    let sizes = [
        ("service", "bytes=8MiB"),
        ("kv", "keys=20e3"),
        ("slab", "keys=20e3"),
        ("lsm", "bytes=8MiB"),
        ("tpcc", "bytes=8MiB"),
        ("search", "bytes=8MiB"),
    ];
    for (name, size) in sizes {
        let of = |more: &str| {
            let spec = format!("{name},{size},requests={REQUESTS},{more}");
            run(&machine, &mut *workload(&spec), Fidelity::Full)
        };
        let (busy, quick, slow) =
            (of("timed=yes,think=0"), of("timed=yes,think=5e3"), of("timed=yes,think=100e3"));
        assert_eq!(value(&busy, "count"), REQUESTS as f64, "{name}");
        assert!(nanoseconds(&slow) > nanoseconds(&quick), "{name}");
        // How long a thread thinks does not matter, as long as the last request's loads are done by then.
        let [quick, slow] = [quick, slow].map(|outcome| value(&outcome, "latency.mean"));
        assert!((slow / quick - 1.0).abs() < 0.1, "{name}: {quick} and {slow} ns");
        // A thread that never thinks does nothing but its requests, of which neighbours may overlap.
        let all = value(&busy, "latency.mean") * REQUESTS as f64;
        assert!(all > 0.9 * nanoseconds(&busy), "{name}: {all} of {}", nanoseconds(&busy));
        let plain = of("timed=no,think=0");
        assert_eq!(
            (plain.cycles, plain.accesses),
            (busy.cycles, busy.accesses),
            "{name}: marks cost nothing"
        );
    }
}

/// A run of a service with as many requests, each with five thousand instructions of its own.
fn two_thousand(machine: &Design, name: &str, size: &str, more: &str) -> Outcome {
    let spec = format!("{name},{size},requests=2000,think=5e3,{more}");
    run(machine, &mut *workload(&spec), Fidelity::Full)
}

#[test]
fn whole_requests_begin_with_what_the_server_computes_for_them() {
    let machine = design("native-4k", "vbi-table1", &[]);
    for (name, size) in [("service", "bytes=8MiB"), ("kv", "keys=20e3"), ("slab", "keys=20e3")] {
        let of = |more: &str| two_thousand(&machine, name, size, more);
        let (accesses, whole) = (of("timed=yes"), of("timed=whole"));
        assert_eq!(value(&whole, "count"), 2000.0, "{name}");
        assert_eq!(whole.cycles, accesses.cycles, "{name}: marks cost nothing");
        // Four instructions a cycle, at most.
        let think = value(&whole, "latency.mean") - value(&accesses, "latency.mean");
        let least = 1250.0 * nanoseconds(&whole) / whole.cycles as f64;
        assert!(think > least, "{name}: {think} ns for {least}");
        // One request after the other fills all of the time.
        let all = value(&whole, "latency.mean") * 2000.0;
        assert!(all > 0.95 * nanoseconds(&whole), "{name}: {all} of {}", nanoseconds(&whole));
    }
}

#[test]
fn clients_wait_for_each_other() {
    let machine = design("native-4k", "vbi-table1", &[]);
    for (name, size) in [("service", "bytes=8MiB"), ("kv", "keys=20e3"), ("slab", "keys=20e3")] {
        let of = |more: &str| two_thousand(&machine, name, size, more);
        let (alone, queue) = (of("timed=whole"), of("clients=100"));
        assert_eq!(alone.cycles, queue.cycles, "{name}: marks cost nothing");
        assert_eq!(value(&queue, "count"), 1900.0, "{name}: the first of each client fill the queue");
        // A hundred requests of one thread take a hundred times as long as one, but for neighbours that overlap and the
        // first, which find empty caches.
        let times = value(&queue, "latency.mean") / value(&alone, "latency.mean");
        assert!((times / 100.0 - 1.0).abs() < 0.06, "{name}: {times}");
        // What one request takes more evens out among a hundred.
        let spread = |outcome: &Outcome| value(outcome, "latency.p99") / value(outcome, "latency.mean");
        assert!(spread(&queue) < spread(&alone), "{name}: {} and {}", spread(&queue), spread(&alone));
    }
}

#[test]
fn requests_of_a_warm_up_are_made_and_not_counted() {
    let machine = design("native-4k", "vbi-table1", &[]);
    for name in ["service", "lsm", "tpcc", "search"] {
        let of = |more: &str| {
            let spec = format!("{name},bytes=8MiB,threads=2,requests=600,think=5e3,timed=yes,{more}");
            run(&machine, &mut *workload(&spec), Fidelity::Full)
        };
        let (all, half) = (of("warmup=0"), of("warmup=300"));
        assert_eq!((value(&all, "count"), value(&half, "count")), (600.0, 300.0), "{name}");
        let share = half.accesses as f64 / all.accesses as f64;
        assert!((share - 0.5).abs() < 0.05, "{name}: {share} of the accesses");
        // One of the threads has nothing to do before the run.
        assert_eq!(value(&of("warmup=1"), "count"), 599.0, "{name}");
    }
}
