//! Prints how fast each workload's event stream is made: `cargo run --release -p terrace-workload --example emit_rate
//! [SPEC…]`. Without a specification every workload runs with its defaults.

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let specs = if given.is_empty() {
        terrace_workload::all().iter().map(|info| info.name.to_owned()).collect()
    } else {
        given
    };
    println!("{:<44} {:>10} {:>8} {:>10} {:>8}", "workload", "accesses", "prepare", "emit M/s", "expected");
    for spec in specs {
        let workload = terrace_workload::open(&spec)?;
        let mut source = workload.source();
        let begin = Instant::now();
        // The first batch builds input data where there is any.
        let mut accesses = source.next_batch()?.map_or(0, |batch| batch.len());
        let prepared = Instant::now();
        while let Some(batch) = source.next_batch()? {
            accesses += batch.len();
        }
        let seconds = prepared.elapsed().as_secs_f64();
        println!(
            "{spec:<44} {:>9.1}M {:>7.2}s {:>10.1} {:>7.3}",
            accesses as f64 / 1e6,
            (prepared - begin).as_secs_f64(),
            accesses as f64 / seconds / 1e6,
            workload.accesses() as f64 / accesses as f64,
        );
    }
    Ok(())
}
