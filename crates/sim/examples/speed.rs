//! Simulation speed: million accesses per second of one core, per workload and fidelity.
//!
//! `cargo run --release -p terrace-sim --example speed [--only LEVEL] [--rounds N] [--against DESIGN] [--ahead] [MACHINE]
//! [WORKLOAD[,k=v…]|FILE.trace…]`.
//! With `--against` each round also runs that design, at full fidelity, and its speed stands beside that of `native-4k`.
//! Generating or decoding the input is part of the measured time; `none` is that alone. With `--ahead` another thread does
//! it, as in `terrace sim`, and only the time of the thread that simulates is measured. Time is processor time of this
//! thread, so that a busy machine changes the figures little; of several rounds the best counts.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use terrace_sim::design::Library;
use terrace_sim::{Fidelity, Options, simulate};
use terrace_trace::{Batch, EventSource, Header, ReadAhead, SourceError, TraceReader};

/// A source whose first batch, and with it the workload's preparation (building a graph), is done beforehand.
struct Prepared {
    first: Option<Arc<Batch>>,
    rest: Box<dyn EventSource>,
}

impl Prepared {
    fn new(mut rest: Box<dyn EventSource>) -> Prepared {
        Prepared { first: rest.next_batch().expect("workloads do not fail"), rest }
    }
}

impl EventSource for Prepared {
    fn header(&self) -> &Header {
        self.rest.header()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        match self.first.take() {
            Some(batch) => Ok(Some(batch)),
            None => self.rest.next_batch(),
        }
    }
}

/// Processor time of this thread, in seconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A workload's events, or those of a recording.
fn open(spec: &str) -> Prepared {
    if spec.ends_with(".trace") {
        return Prepared::new(Box::new(TraceReader::open(spec).unwrap_or_else(|error| panic!("{error}"))));
    }
    Prepared::new(terrace_workload::open(spec).unwrap_or_else(|error| panic!("{error}")).source())
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut levels = vec![Fidelity::Full, Fidelity::Translation, Fidelity::Pages];
    if arguments.first().is_some_and(|first| first == "--only") {
        let name = arguments.get(1).expect("--only LEVEL").clone();
        levels.retain(|level| level.name() == name);
        arguments.drain(..2);
    }
    let mut rounds = 1;
    if arguments.first().is_some_and(|first| first == "--rounds") {
        rounds = arguments.get(1).and_then(|count| count.parse().ok()).expect("--rounds N");
        arguments.drain(..2);
    }
    let mut against = None;
    if arguments.first().is_some_and(|first| first == "--against") {
        against = Some(arguments.get(1).expect("--against DESIGN").clone());
        arguments.drain(..2);
        levels = vec![Fidelity::Full];
    }
    let ahead = arguments.first().is_some_and(|first| first == "--ahead");
    let mut arguments = arguments.into_iter().skip(usize::from(ahead));
    let machine = arguments.next().unwrap_or_else(|| "skylake-6140".to_owned());
    let mut workloads: Vec<String> = arguments.collect();
    if workloads.is_empty() {
        workloads = ["gups", "bfs", "kv", "stencil"].map(str::to_owned).into();
    }
    let library = Library::embedded();
    let names = std::iter::once("native-4k".to_owned()).chain(against);
    let designs: Vec<_> = names
        .map(|name| {
            library.design(&name, Some(&machine), &[]).unwrap_or_else(|error| panic!("{error}")).design
        })
        .collect();
    print!("{:24} {:>12} {:>12}", "input", "accesses", "none");
    levels.iter().for_each(|level| print!(" {:>12}", level.name()));
    designs[1..].iter().for_each(|design| print!(" {:>12}", design.name));
    println!();
    let runs: Vec<_> =
        levels.iter().flat_map(|level| designs.iter().map(move |design| (*level, design))).collect();
    let mut products = vec![1.0f64; runs.len()];
    for spec in &workloads {
        let mut source = open(spec);
        let mut accesses = 0;
        let begin = now();
        while let Some(batch) = source.next_batch().unwrap_or_else(|error| panic!("{error}")) {
            accesses += batch.len() as u64;
        }
        let rate = |begin: f64| accesses as f64 / (now() - begin) / 1e6;
        let name = spec.rsplit('/').next().unwrap_or(spec);
        print!("{name:24} {accesses:>12} {:>12.1}", rate(begin));
        let mut best = vec![0.0f64; runs.len()];
        for _ in 0..rounds {
            for (&(fidelity, design), best) in runs.iter().zip(&mut best) {
                let mut source: Box<dyn EventSource> = Box::new(open(spec));
                if ahead {
                    source = Box::new(ReadAhead::start(source).expect("a thread can be started"));
                }
                let begin = now();
                let options = Options { fidelity, ..Options::default() };
                simulate(design, &mut source, options).unwrap_or_else(|error| panic!("{error}"));
                *best = best.max(rate(begin));
            }
        }
        for (best, product) in best.iter().zip(&mut products) {
            *product *= best;
            print!(" {best:>12.1}");
        }
        println!();
    }
    print!("{:24} {:>12} {:>12}", "geometric mean", "", "");
    products.iter().for_each(|product| print!(" {:>12.1}", product.powf(1.0 / workloads.len() as f64)));
    println!();
}
