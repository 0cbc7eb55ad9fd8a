//! The fuzz target's entry function on changed files of sweeps and on noise, for every test run.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use terrace_study::fuzz;

const SEEDS: [&str; 2] = [
    "designs = [\"native-4k\", \"ambix\"]\nmachines = [\"zen4-cxl\"]\nworkloads = [\"gups,bytes=1MiB\"]\n\n[set]\n\
     \"translation.l2.latency\" = [\"9 cycles\", \"18 cycles\"]\n\"ambix:os.policy.period\" = \"1 s\"\n",
    "designs = [\"native-2m\"]\nfidelity = \"pages\"\nscale = 2\ntime_scale = 10\nwhole = true\n[[workload]]\nname = \"kv\"\n\
     set = { requests = [1000, 2e3], skew = 0.9, seed = 1 }\n",
];

#[test]
fn a_file_of_a_sweep() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(24);
    for round in 0..400 {
        let mut bytes = SEEDS[round % SEEDS.len()].as_bytes().to_vec();
        for _ in 0..=random.next_u64() % 4 {
            let at = random.next_u64() as usize % bytes.len();
            match random.next_u64() % 4 {
                0 => bytes[at] = random.next_u64() as u8,
                1 => drop(bytes.drain(at..(at + 1 + random.next_u64() as usize % 8).min(bytes.len()))),
                2 => bytes.truncate(at + 1),
                _ => bytes.extend_from_within(at..),
            }
            if bytes.is_empty() {
                break;
            }
        }
        fuzz::sweep(&bytes);
    }
    for length in 0..64 {
        let noise: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        fuzz::sweep(&noise);
    }
}
