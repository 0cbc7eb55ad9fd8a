//! Simulation speed: million accesses per second of one core, per workload and fidelity.
//!
//! `cargo run --release -p terrace-sim --example speed [MACHINE] [WORKLOAD[,k=v…]…]`. Generating the input is part of
//! the measured time, as it is for a user; `none` is generation alone. Time is processor time of this thread, so that
//! a busy machine changes the figures little.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use terrace_sim::design::Library;
use terrace_sim::{Fidelity, Options, simulate};
use terrace_trace::{Batch, EventSource, Header, SourceError};

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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let machine = arguments.next().unwrap_or_else(|| "skylake-6140".to_owned());
    let mut workloads: Vec<String> = arguments.collect();
    if workloads.is_empty() {
        workloads = ["gups", "bfs", "kv", "stencil"].map(str::to_owned).into();
    }
    let library = Library::embedded();
    let design = library.design("native-4k", Some(&machine), &[]).expect("embedded designs load").design;
    println!(
        "{:24} {:>12} {:>8} {:>8} {:>12} {:>8}",
        "workload", "accesses", "none", "full", "translation", "pages"
    );
    let mut products = [1.0f64; 3];
    for spec in &workloads {
        let workload = terrace_workload::open(spec).unwrap_or_else(|error| panic!("{error}"));
        let mut source = Prepared::new(workload.source());
        let mut accesses = 0;
        let begin = now();
        while let Some(batch) = source.next_batch().expect("workloads do not fail") {
            accesses += batch.len() as u64;
        }
        let rate = |begin: f64| accesses as f64 / (now() - begin) / 1e6;
        let none = rate(begin);
        let mut rates = [0.0; 3];
        for (at, fidelity) in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages].into_iter().enumerate()
        {
            let mut source = Prepared::new(workload.source());
            let begin = now();
            let options = Options { fidelity, ..Options::default() };
            simulate(&design, &mut source, options).unwrap_or_else(|error| panic!("{error}"));
            rates[at] = rate(begin);
            products[at] *= rates[at];
        }
        println!(
            "{spec:24} {accesses:>12} {none:>8.1} {:>8.1} {:>12.1} {:>8.1}",
            rates[0], rates[1], rates[2]
        );
    }
    let mean = |at: usize| products[at].powf(1.0 / workloads.len() as f64);
    println!(
        "{:24} {:>12} {:>8} {:>8.1} {:>12.1} {:>8.1}",
        "geometric mean",
        "",
        "",
        mean(0),
        mean(1),
        mean(2)
    );
}
