//! What a policy costs the simulation: the speed of runs with each policy over that of the same run without one.
//!
//! `cargo run --release -p terrace-sim --example policy_speed -- [--rounds N] [POLICY…]`. Half of each input's memory fits
//! the fast tier. Periods are a sixteenth of the policies' own, as at the largest scale; a policy whose run does more work
//! (moves, faults) is slower for that. In every round the pair is run back to back.

use std::sync::Arc;
use terrace_model::{Bytes, Time};
use terrace_sim::design::{Design, Library};
use terrace_sim::{Options, simulate};

const INPUTS: [(&str, u64); 3] =
    [("gups,bytes=64 MiB,updates=1e6", 32), ("kv,keys=100e3,requests=400e3", 28), ("bfs,scale=16", 16)];

fn now() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn design(policy: Option<&str>, fast: u64) -> Design {
    let library = Library::embedded();
    let mut sets = vec![("os.reserved".to_owned(), "0 B".to_owned())];
    sets.push(("tier.dram.capacity".to_owned(), format!("{fast} MiB")));
    sets.extend(policy.map(|policy| ("os.policy.name".to_owned(), policy.to_owned())));
    let resolved = library.design("first-touch", Some("xeon-5218-dcpmm"), &sets);
    let mut design = resolved.unwrap_or_else(|error| panic!("{error}")).design;
    if let Some(policy) = &mut design.os.policy {
        for (key, value) in &mut policy.parameters {
            let time = value.as_str().and_then(|text| text.parse::<Time>().ok());
            let is_period = ["period", "interval", "scan", "quantum", "sampling", "aggregation", "delay"];
            if let Some(time) = time.filter(|_| is_period.iter().any(|word| key.contains(word))) {
                *value = toml::Value::String(Time(time.0 / 16).to_string());
            }
        }
        design.tiers[0].capacity = Bytes::mib(fast);
    }
    design
}

/// Accesses per second of host time, and those simulated.
fn speed(design: &Design, spec: &str) -> f64 {
    let workload = terrace_workload::open(spec).unwrap_or_else(|error| panic!("{error}"));
    let first_pass = design.os.policy.as_ref().is_some_and(|policy| policy.needs_first_pass());
    let mut options = Options::default();
    if first_pass {
        let plain = Design {
            os: terrace_sim::design::OsParameters { policy: None, ..design.os.clone() },
            ..design.clone()
        };
        let first = Options { count_accesses: true, ..Options::default() };
        let outcome =
            simulate(&plain, &mut workload.source(), first).unwrap_or_else(|error| panic!("{error}"));
        options.profile = outcome.profile.map(Arc::new);
    }
    let begin = now();
    simulate(design, &mut workload.source(), options).unwrap_or_else(|error| panic!("{error}"));
    workload.accesses() as f64 / (now() - begin)
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut rounds = 3;
    if arguments.first().is_some_and(|first| first == "--rounds") {
        rounds = arguments.get(1).and_then(|count| count.parse().ok()).expect("--rounds N");
        arguments.drain(..2);
    }
    if arguments.is_empty() {
        arguments = terrace_policy::all().iter().map(|entry| entry.name().to_owned()).collect();
    }
    print!("{:16}", "policy");
    INPUTS.iter().for_each(|(spec, _)| print!(" {:>8}", spec.split(',').next().unwrap_or(spec)));
    println!(" {:>8}", "geomean");
    for policy in &arguments {
        let mut product = 1.0f64;
        print!("{policy:16}");
        for (spec, fast) in INPUTS {
            let (plain, with) = (design(None, fast), design(Some(policy), fast));
            // The best of the rounds on either side.
            let (mut without_best, mut with_best) = (0.0f64, 0.0f64);
            for _ in 0..rounds {
                without_best = without_best.max(speed(&plain, spec));
                with_best = with_best.max(speed(&with, spec));
            }
            let ratio = with_best / without_best;
            product *= ratio;
            print!(" {ratio:>8.2}");
        }
        println!(" {:>8.2}", product.powf(1.0 / INPUTS.len() as f64));
    }
}
