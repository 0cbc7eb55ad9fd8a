//! Bandwidth of memory by the number of threads: reads, writes, copies.

use crate::region::{Pages, Region};
use crate::spread::Spread;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// What each thread does with its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads all of it.
    Read,
    /// Writes all of it.
    Write,
    /// Copies its first half to its second.
    Copy,
}

/// Bytes per second that `threads` threads touch together; a copy counts its reads and its writes.
pub fn measure(kind: Kind, threads: usize, bytes_each: usize, rounds: usize) -> std::io::Result<Spread> {
    let regions: std::io::Result<Vec<Region>> =
        (0..threads).map(|_| Region::map(bytes_each, Pages::Huge)).collect();
    let regions = regions?;
    regions.iter().for_each(|region| region.touch(64));
    let barrier = Barrier::new(threads + 1);
    let mut rates = Vec::new();
    std::thread::scope(|scope| {
        for region in &regions {
            let barrier = &barrier;
            scope.spawn(move || {
                // SAFETY: Each thread has a region of its own, of whole words, for as long as the scope lasts.
                let words = unsafe {
                    std::slice::from_raw_parts_mut(region.start().cast::<u64>(), region.bytes() / 8)
                };
                for round in 0..rounds {
                    barrier.wait();
                    match kind {
                        Kind::Read => {
                            black_box(words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
                        }
                        Kind::Write => words.fill(round as u64),
                        Kind::Copy => {
                            let half = words.len() / 2;
                            let (from, to) = words.split_at_mut(half);
                            to[..half].copy_from_slice(from);
                        }
                    }
                    black_box(&mut *words);
                    barrier.wait();
                }
            });
        }
        for _ in 0..rounds {
            barrier.wait();
            let begin = Instant::now();
            barrier.wait();
            rates.push((threads * bytes_each) as f64 / begin.elapsed().as_secs_f64());
        }
    });
    Ok(Spread::of(rates))
}
