//! The fuzz targets' entry functions on mutated valid inputs and on noise: seeded and bounded, for every test run.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use terrace_sim::design::Library;
use terrace_sim::fuzz;

/// Iterations per target.
const ITERATIONS: usize = 4000;

/// Words that tell readers something.
const WORDS: [&str; 16] = [
    "=",
    "[",
    "]",
    "[[tier]]",
    "\"",
    "\n",
    "-1",
    "0",
    "18446744073709551615",
    "1e308",
    "nan",
    "GiB",
    "extends",
    "..",
    "#",
    "\u{0}",
];

fn below(random: &mut Xoshiro256PlusPlus, limit: usize) -> usize {
    (random.next_u64() % limit.max(1) as u64) as usize
}

fn mutate(random: &mut Xoshiro256PlusPlus, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let at = below(random, input.len());
    let length = below(random, 24).min(input.len() - at);
    match below(random, 8) {
        0 if at < input.len() => input[at] ^= 1 << below(random, 8),
        1 if at < input.len() => input[at] = random.next_u64() as u8,
        2 => drop(input.drain(at..at + length)),
        3 => {
            let copy = input[at..at + length].to_vec();
            input.splice(at..at, copy);
        }
        4 => input.truncate(at),
        5 => {
            let other = &seeds[below(random, seeds.len())];
            let from = below(random, other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            let word = WORDS[below(random, WORDS.len())];
            input.splice(at..at + length.min(3), word.bytes());
        }
    }
}

fn fuzz_target(entry: fn(&[u8]), seeds: &[Vec<u8>], iterations: usize) {
    seeds.iter().for_each(|seed| entry(seed));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seeds.len() as u64);
    for iteration in 0..iterations {
        let mut input = seeds[iteration % seeds.len()].clone();
        for _ in 0..=below(&mut random, 5) {
            mutate(&mut random, &mut input, seeds);
        }
        entry(&input);
    }
}

fn texts(names: impl IntoIterator<Item = String>) -> Vec<Vec<u8>> {
    names.into_iter().map(|name| Library::embedded().show(&name).unwrap().into_bytes()).collect()
}

#[test]
fn machines_and_designs() {
    let library = Library::embedded();
    let listed = library.machine_names().into_iter().chain(library.design_names());
    let mut seeds = texts(listed.map(|listed| listed.name));
    seeds.push(b"extends = \"zen4-cxl\"\n[os.policy]\nname = \"ambix\"\nperiod = \"1 s\"\n".to_vec());
    fuzz_target(fuzz::design, &seeds, ITERATIONS);
}

#[test]
fn settings() {
    let seeds = [
        "core.count=4",
        "tier.dram.capacity=8 GiB",
        "os.placement={ kind = \"bind\", tier = \"dram\" }",
        "translation.l2.array.0.ways=full",
        "os.policy.name=ambix",
        "os.placement.weights=[3, 1]",
    ];
    fuzz_target(fuzz::setting, &seeds.map(|seed| seed.as_bytes().to_vec()), ITERATIONS);
}

#[test]
fn claims() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../claims");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let toml = paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let seeds: Vec<_> = toml.map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty());
    fuzz_target(fuzz::claims_file, &seeds, 500);
}

#[test]
fn saved_memories() {
    let number = |number: u64| number.to_le_bytes()[..5].to_vec();
    let raw =
        |numbers: &[u64]| [b"TERRMEM1".to_vec(), numbers.iter().flat_map(|n| number(*n)).collect()].concat();
    // 1024 frames in two pageblocks: all free, and all cached but the first.
    let memories = [raw(&[1024, 10, 0, 0, 0, 1, 10, 0, 0, 0]), raw(&[1024, 10, 0, 0, 1, 0, 1, 1, 1023])];
    let seeds: Vec<_> = memories.iter().map(|raw| zstd::encode_all(&raw[..], 3).unwrap()).collect();
    fuzz_target(fuzz::snapshot, &seeds, ITERATIONS);
    // Behind the compression, which holds most damage back.
    fuzz_target(|raw| fuzz::snapshot(&zstd::encode_all(raw, 1).unwrap()), &memories, ITERATIONS);
}
