//! A policy that has to keep a slowdown keeps it.

use crate::support::*;
use terrace_sim::Options;

/// A run under a design at a sixteenth; slow memory is as `slow` says.
fn scaled_run(name: &str, spec: &str, slow: &[(&str, &str)], sets: &[(&str, &str)]) -> terrace_sim::Outcome {
    let sets = [sets, slow, &[("os.pages", "thp")]].concat();
    let design = design(name, "e5-2699v3", &sets).scaled(16).unwrap();
    run_with(&design, &mut workload(spec), Options::default()).unwrap()
}

/// Slow memory is emulated by the faults of poisoned pages alone, as in the source.
const EMULATED: [(&str, &str); 1] = [("tier.slow.link.latency", "0 ns")];

/// Slow memory is emulated by the faults of poisoned pages alone, as in the source.
#[test]
fn a_policy_that_is_given_a_slowdown_keeps_it() {
    let spec = "service,bytes=32MiB,values=varied,value=320 B,think=24e3,requests=200e3";
    let run = |name: &str, sets: &[(&str, &str)]| scaled_run(name, spec, &EMULATED, sets);
    let fast = run("all-fast", &[]);
    for target in [0.01, 0.03, 0.1] {
        let target_text = target.to_string();
        let sets = [("os.policy.slowdown", target_text.as_str()), ("os.policy.interval", "1 s")];
        let slowed = run("thermostat", &sets);
        let slowdown = slowed.seconds_simulated / fast.seconds_simulated - 1.0;
        assert!(slowdown <= target + 0.005, "{target}: {slowdown}");
        // The policy found something to make slow: more than a twentieth of what is resident.
        let pages = ["tier.slow.mean_pages", "tier.dram.mean_pages"].map(|name| slowed.stats.number(name));
        assert!(pages[0] > pages[1] / 20.0, "{target}: {pages:?}");
    }
}

/// The other five applications of the source, 16 MiB each. What their scan interval of 30 s is divided by, so that a
/// period holds as many accesses to a page, and again by 16 with the machine. Eight threads share the budget.
#[test]
#[ignore = "weekly"]
fn a_slowdown_is_kept_on_every_kind_of_service() {
    for (interval, spec) in [
        (
            "650 ms",
            "service,bytes=16MiB,traffic=0,zipf=0.99,value=1KiB,chain=4,threads=8,think=2e5,requests=75e3",
        ),
        ("650 ms", "lsm,bytes=16MiB,threads=8,think=1.7e6,requests=10e3"),
        ("850 ms", "tpcc,bytes=16MiB,threads=8,think=4e6,requests=5.5e3"),
        ("3.4 s", "search,bytes=16MiB,threads=8,think=7e8,requests=120"),
        ("650 ms", "analytics,bytes=4MiB,threads=8,iterations=2,think=5e5"),
    ] {
        let run = |name: &str, sets: &[(&str, &str)]| scaled_run(name, spec, &EMULATED, sets);
        let [fast, slowed] = [run("all-fast", &[]), run("thermostat", &[("os.policy.interval", interval)])];
        let slowdown = slowed.seconds_simulated / fast.seconds_simulated - 1.0;
        assert!(slowdown <= 0.035, "{spec}: {slowdown}");
        assert!(count(&slowed, "policy.own.rounds") > 2, "{spec}");
    }
}

/// Slow memory that is slow by itself and counts that cost nothing, as of hardware: several lines are read for each access
/// that is counted. A prefetcher would hide so much of it that at one target nothing had to return.
#[test]
fn a_slowdown_is_kept_on_memory_that_is_slow_or_the_run_says_that_it_was_not() {
    let spec = "service,bytes=256MiB,values=varied,value=320 B,think=24e3,requests=800e3";
    let run = |design: &str, latency, sets: &[(&str, &str)]| {
        let slow = [
            ("tier.slow.link.latency", latency),
            ("os.costs.count_fault", "0 ns"),
            ("cache.prefetcher.enabled", "false"),
        ];
        scaled_run(design, spec, &slow, sets)
    };
    let fast = run("all-fast", "0 ns", &[]);
    for (target, latency, interval) in
        [(0.01, "400 ns", "4 s"), (0.03, "600 ns", "2 s"), (0.03, "1 us", "2 s")]
    {
        let sets = [
            ("os.policy.slowdown", &*target.to_string()),
            ("os.policy.slow_latency", latency),
            ("os.policy.interval", interval),
        ];
        let slowed = run("thermostat", latency, &sets);
        let slowdown = slowed.seconds_simulated / fast.seconds_simulated - 1.0;
        let says_not = slowed.notes.iter().any(|note| note.contains("was not kept"));
        assert!(slowdown <= target + 0.005 || says_not, "{target} at {latency}: {slowdown}");
        assert!(slowdown <= target + 0.005 || latency == "1 us", "{target} at {latency}: {slowdown}");
        // Slow pages were found, and some of them too many.
        let [demoted, returned] = counts(&slowed, ["policy.own.demoted", "policy.own.returned"]);
        assert!(demoted > 30 && returned > 0, "{target} at {latency}: {demoted} down, {returned} up");
    }
}
