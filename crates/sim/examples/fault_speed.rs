//! Host time of a simulated page fault, and host memory of a fully mapped simulated memory.
//!
//! `cargo run --release -p terrace-sim --example fault_speed [GIB]`

use std::time::Instant;
use terrace_sim::FaultBench;
use terrace_sim::design::Library;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gib: u64 = std::env::args().nth(1).map_or(Ok(256), |text| text.parse())?;
    for design in ["native-4k", "native-thp"] {
        let design = Library::embedded().design(design, None, &[])?.design;
        let before = resident()?;
        let mut bench = FaultBench::new(&design.os, design.translation.levels, gib << 30)?;
        let begin = Instant::now();
        let faults = bench.touch_all()?;
        let nanos = begin.elapsed().as_secs_f64() * 1e9 / faults as f64;
        let held = resident()? - before;
        let per_frame = held as f64 / ((gib << 18) as f64);
        println!(
            "{}: {gib} GiB in {faults} faults of {nanos:.0} ns; {:.2} GiB of host memory, {per_frame:.1} bytes per frame",
            design.name,
            held as f64 / (1u64 << 30) as f64
        );
    }
    Ok(())
}

/// Resident memory of this process in bytes.
fn resident() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split_whitespace().nth(1).unwrap_or_default().parse()?;
    Ok(pages * 4096)
}
