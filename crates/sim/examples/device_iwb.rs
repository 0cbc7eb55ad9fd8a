//! Prints the IWB table that the DCPMM machine's devices predict beside the published one.

#[path = "../tests/memory_support/iwb.rs"]
mod iwb;

use iwb::{CALIBRATION, Processor, READ_ONLY_32, SHARES, THREADS, WRITE_ONLY_32, throughput};

fn main() {
    let processor = Processor::default();
    println!("calibrated rows: million accesses/s, ours / published");
    for (write, share, published) in CALIBRATION {
        print!("{} {share:>3} %", if write { "write-only" } else { "read-only " });
        for (threads, published) in THREADS.into_iter().zip(published) {
            let ours = throughput(&processor, threads, share, write, 400_000);
            print!("  {threads:>2}t {ours:6.1}/{published:6.1}");
        }
        println!();
    }
    for (write, published) in [(false, READ_ONLY_32), (true, WRITE_ONLY_32)] {
        println!(
            "\n{} at 32 threads: DRAM %, ours, published, error",
            if write { "write-only" } else { "read-only" }
        );
        let mut errors = Vec::new();
        for (share, published) in SHARES.into_iter().zip(published) {
            let ours = throughput(&processor, 32, share, write, 400_000);
            let error = ours / published - 1.0;
            if share != 0 && share != 100 {
                errors.push(error.abs());
            }
            println!("{share:>3}  {ours:6.1}  {published:6.1}  {:+5.1} %", error * 100.0);
        }
        println!(
            "mean error of the mixed rows: {:.1} %",
            errors.iter().sum::<f64>() / errors.len() as f64 * 100.0
        );
    }
}
