//! Host time per simulated transfer, for each device preset: sequential and random reads, and half writes.

use std::hint::black_box;
use std::time::Instant;
use terrace_model::Time;
use terrace_sim::memory::{Device, DeviceLine, DeviceParameters, Initiator, preset_names, preset_table};

fn main() {
    const TRANSFERS: u64 = 10_000_000;
    println!(
        "{:<16} {:>12} {:>12} {:>12}  ns of host time per transfer",
        "preset", "sequential", "random", "half writes"
    );
    for name in preset_names() {
        let parameters: DeviceParameters =
            toml::from_str(preset_table(name).expect("listed")).expect("presets are valid");
        let mut row = Vec::new();
        for (random, writes) in [(false, false), (true, false), (true, true)] {
            let mut device = Device::new(&parameters).expect("presets are valid");
            let mut state = 1u64;
            let started = Instant::now();
            for index in 0..TRANSFERS {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let line = if random { state >> 36 } else { index };
                let now = Time::from_nanos(index * 20);
                if writes && state >> 63 == 1 {
                    black_box(device.write(DeviceLine(line), now, Initiator::Writeback));
                } else {
                    black_box(device.read(DeviceLine(line), now, Initiator::Demand));
                }
            }
            row.push(started.elapsed().as_secs_f64() * 1e9 / TRANSFERS as f64);
        }
        println!("{name:<16} {:>12.1} {:>12.1} {:>12.1}", row[0], row[1], row[2]);
    }
}
