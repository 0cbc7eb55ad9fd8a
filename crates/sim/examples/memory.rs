//! Memory of a simulation per resident 4 KiB page, by the difference between two footprints of `gups`.
//!
//! `cargo run --release -p terrace-sim --example memory [DESIGN] [LEVEL]`. Each footprint runs in a process of its own,
//! whose highest resident size the kernel knows; everything that does not grow with the footprint cancels out.

use std::process::Command;
use terrace_sim::design::Library;
use terrace_sim::{Fidelity, Options, simulate};

/// Footprints in GiB.
const SMALL: u64 = 2;
const LARGE: u64 = 10;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let design = arguments.first().map_or("native-4k", String::as_str);
    let level = arguments.get(1).map_or("full", String::as_str);
    if let Some(footprint) = arguments.get(2) {
        return run(design, level, footprint);
    }
    let peak = |gib: u64| -> u64 {
        let this = std::env::current_exe().expect("the program's own path is known");
        let output =
            Command::new(this).args([design, level, &gib.to_string()]).output().expect("it starts again");
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    };
    let (small, large) = (peak(SMALL), peak(LARGE));
    let pages = (LARGE - SMALL) << 18;
    println!(
        "design {design}, {level}: {} MiB at {SMALL} GiB, {} MiB at {LARGE} GiB",
        small >> 10,
        large >> 10
    );
    println!("{:.1} bytes per resident 4 KiB page", (large - small) as f64 * 1024.0 / pages as f64);
}

/// Simulates one footprint and prints the highest resident size in KiB.
fn run(design: &str, level: &str, gib: &str) {
    let fidelity = [Fidelity::Full, Fidelity::Translation, Fidelity::Pages]
        .into_iter()
        .find(|fidelity| fidelity.name() == level)
        .unwrap_or_else(|| panic!("{level}: full, translation or pages"));
    let library = Library::embedded();
    let design = library.design(design, Some("skylake-6140"), &[]).expect("embedded designs load").design;
    let spec = format!("gups,bytes={gib} GiB,updates=1e6");
    let workload = terrace_workload::open(&spec).unwrap_or_else(|error| panic!("{error}"));
    let options = Options { fidelity, ..Options::default() };
    simulate(&design, &mut *workload.source(), options).unwrap_or_else(|error| panic!("{error}"));
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells a process its status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a resident size");
    println!("{}", peak.trim().trim_end_matches("kB").trim());
}
