//! The fuzz targets' entry functions on mutated valid inputs and on noise: seeded and bounded, for every test run.
//!
//! Without coverage feedback it reaches less than `cargo fuzz` does (see `fuzz/`). To make up for it, half of the
//! mutated traces get correct checksums again, and the `chunk` target starts behind checksums and compression.

mod common;

use common::seeds::{TARGETS, seeds};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_trace::fuzz;

/// Iterations per target.
const ITERATIONS: u64 = 8_000;
/// No input of a few kilobytes may make the reader hold more: one section of events at its limit, the events of one
/// batch at theirs, and little else.
const MEMORY_LIMIT: usize = 224 << 20;

/// Counts the bytes in use, so that a claim in the input that is believed too early is seen.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let now = IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise is this call's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise is this call's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is this call's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is this call's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The counters are the whole process's, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `entry` and returns the memory it took at most.
fn memory_of(entry: fn(&[u8]), input: &[u8]) -> usize {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    entry(input);
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}

fn fuzz_target(name: &str) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let entry = TARGETS.iter().find(|(target, _)| *target == name).expect("a target").1;
    let seeds = seeds(name);
    seeds.iter().for_each(|seed| entry(seed));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(name.bytes().map(u64::from).sum());
    for iteration in 0..ITERATIONS {
        let mut input = seeds[iteration as usize % seeds.len()].clone();
        if iteration % 16 == 15 {
            // Noise, behind a start that passes for the format or not.
            let kept = below(&mut random, 64);
            input.truncate(kept);
            input.extend((0..below(&mut random, 600)).map(|_| random.next_u64() as u8));
        } else {
            for _ in 0..=below(&mut random, 5) {
                mutate(&mut random, &mut input, &seeds);
            }
        }
        if name == "reader" && iteration % 2 == 0 {
            correct_checksums(&mut input);
        }
        let memory = memory_of(entry, &input);
        assert!(memory <= MEMORY_LIMIT, "{name}, iteration {iteration}: {memory} bytes in use");
    }
}

fn below(random: &mut Xoshiro256PlusPlus, limit: usize) -> usize {
    (random.next_u64() % limit.max(1) as u64) as usize
}

/// Changes one thing.
fn mutate(random: &mut Xoshiro256PlusPlus, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    const TELLING: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX, 0x0100_0000];
    // Heads and tails are where the claims stand.
    let near_an_end = random.next_u64().is_multiple_of(2);
    let window = if near_an_end { input.len().min(130) } else { input.len() };
    let place = below(random, window);
    let at =
        if near_an_end && random.next_u64().is_multiple_of(2) { input.len() - window + place } else { place };
    let length = below(random, 24).min(input.len() - at);
    match random.next_u64() % 8 {
        0 if at < input.len() => input[at] ^= 1 << below(random, 8),
        1 if at < input.len() => input[at] = random.next_u64() as u8,
        2 => {
            let value = TELLING[below(random, TELLING.len())].to_le_bytes();
            let width = [1, 2, 4, 8][below(random, 4)].min(input.len() - at);
            input[at..at + width].copy_from_slice(&value[..width]);
        }
        3 => drop(input.drain(at..at + length)),
        4 => {
            let copy = input[at..at + length].to_vec();
            input.splice(at..at, copy);
        }
        5 => input.truncate(at),
        6 => {
            let noise: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
            input.splice(at..at, noise);
        }
        _ => {
            let other = &seeds[below(random, seeds.len())];
            let from = below(random, other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}

/// Makes the checksums of header, chunks and index right for whatever lies where they say.
fn correct_checksums(input: &mut [u8]) {
    let word = |input: &[u8], at: usize| {
        input.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
            as usize
    };
    let header_end = word(input, 12).saturating_add(20);
    if header_end > input.len() {
        return;
    }
    let checksum = crc32fast::hash(&input[20..header_end]);
    input[16..20].copy_from_slice(&checksum.to_le_bytes());
    let mut at = header_end;
    while input.len() - at >= 80 && input[at..].starts_with(b"TCHK") {
        let sections: usize = (0..6).map(|section| word(input, at + 56 + 4 * section)).sum();
        let end = at.saturating_add(80).saturating_add(sections);
        if end > input.len() {
            break;
        }
        let checksum = crc32fast::hash(&input[at + 8..end]);
        input[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
        at = end;
    }
    if let Some(footer) = input.len().checked_sub(32).filter(|&footer| footer >= at) {
        let checksum = crc32fast::hash(&input[at..footer]);
        input[footer + 24..footer + 28].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[test]
fn reader() {
    fuzz_target("reader");
}

#[test]
fn chunk() {
    fuzz_target("chunk");
}

#[test]
fn lackey() {
    fuzz_target("lackey");
}

#[test]
fn champsim() {
    fuzz_target("champsim");
}

#[test]
fn text() {
    fuzz_target("text");
}

#[test]
fn drmemtrace() {
    fuzz_target("drmemtrace");
}

#[test]
fn archive() {
    fuzz_target("archive");
}

#[test]
fn oracle_general() {
    fuzz_target("oracle_general");
}

#[test]
fn csv() {
    fuzz_target("csv");
}

#[test]
fn damon() {
    fuzz_target("damon");
}

#[test]
fn perf() {
    fuzz_target("perf");
}

#[test]
fn corrected_checksums_are_those_of_the_writer() {
    for seed in seeds("reader") {
        let mut corrected = seed.clone();
        corrected[17] ^= 1;
        let footer = corrected.len() - 32;
        corrected[footer + 25] ^= 1;
        correct_checksums(&mut corrected);
        assert!(corrected == seed);
    }
}

/// A chunk of one batch with `events` events of three bytes, as [`fuzz::chunk`] takes it.
fn waits(events: u32) -> Vec<u8> {
    let mut batches = vec![0, 0, 0];
    let mut left = events;
    while left >= 0x80 {
        batches.push(left as u8 | 0x80);
        left >>= 7;
    }
    batches.extend([left as u8, 0]);
    let numbers = [0, 1, events, 0, batches.len() as u32, 0, 3 * events, 0, 0, 0];
    let mut input: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
    input.extend(batches);
    input.extend([0, 14, 0].repeat(events as usize));
    input
}

#[test]
fn what_compresses_well_cannot_claim_much_memory() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // As many events as a batch may have, and more.
    for events in [1 << 20, 21 << 20] {
        let input = waits(events);
        let memory = memory_of(fuzz::chunk, &input);
        assert!(memory <= MEMORY_LIMIT, "{events} events: {memory} bytes in use");
    }
    // An index that is said to be long before compression, in a small file.
    let mut small = seeds("reader").swap_remove(0);
    let length = small.len() - 12;
    small[length..length + 4].copy_from_slice(&(1u32 << 28).to_le_bytes());
    let memory = memory_of(fuzz::reader, &small);
    assert!(memory <= 64 << 20, "{memory} bytes in use");
}
