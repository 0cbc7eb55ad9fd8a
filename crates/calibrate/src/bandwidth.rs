//! Bandwidth of caches and memory by the number of threads: reads, writes, both at once, lines in random order, copies.

use crate::clock::OwnTime;
use crate::nodes::pin;
use crate::region::{Pages, Region};
use crate::spread::Spread;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;
use terrace_model::random::hash;

/// What each thread does with its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads all of it.
    Read,
    /// Writes all of it. What is read before it is written is not counted.
    Write,
    /// Adds one half to the other: two lines are read for each that is written.
    Mixed,
    /// Increments all of it: each line is read and written.
    Update,
    /// Reads lines in random order, which do not depend on one another.
    Random,
    /// Copies its first half to its second.
    Copy,
}

impl Kind {
    /// The kinds that measure memory; copies are apart.
    pub const MEMORY: [Kind; 5] = [Kind::Read, Kind::Write, Kind::Mixed, Kind::Update, Kind::Random];

    /// As the preset names it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Read => "reads",
            Kind::Write => "writes",
            Kind::Mixed => "two reads to a write",
            Kind::Update => "a read to a write",
            Kind::Random => "reads of lines in random order",
            Kind::Copy => "copies (reads and writes)",
        }
    }
}

/// Which memory is used, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes of each thread.
    pub each: usize,
    /// The node that it lies on; that of the thread's processor otherwise.
    pub node: Option<i32>,
    /// Times that it is gone through in each repetition.
    pub passes: usize,
}

/// Bytes per second that threads on `processors` move together, each on one of them and in its own time. A single thread
/// runs where the caller does.
pub fn measure(kind: Kind, processors: &[usize], memory: Memory, rounds: usize) -> std::io::Result<Spread> {
    let map = || match memory.node {
        Some(node) => Region::map_on(node, memory.each, Pages::Huge),
        None => Region::map(memory.each, Pages::Huge),
    };
    if processors.len() < 2 {
        let region = map()?;
        region.touch(64);
        // The first round warms the caches.
        let rates = (0..=rounds).map(|round| rate(kind, &region, memory.passes, round));
        return Ok(Spread::of(rates.skip(1).collect()));
    }
    let regions = processors.iter().map(|_| map()).collect::<std::io::Result<Vec<Region>>>()?;
    let barrier = Barrier::new(processors.len());
    let together = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (region, processor) in regions.iter().zip(processors) {
            let barrier = &barrier;
            threads.push(scope.spawn(move || {
                let is_alone = pin(&[*processor]).is_ok();
                region.touch(64);
                let mut rates = Vec::new();
                for round in 0..=rounds {
                    barrier.wait();
                    let begin = Instant::now();
                    let own = OwnTime::now();
                    let rate = rate(kind, region, memory.passes, round);
                    // Threads that may not be told apart by processors may have shared one.
                    let share = if is_alone { 1.0 } else { own.nanos() / begin.elapsed().as_nanos() as f64 };
                    rates.push(rate * share.min(1.0));
                }
                rates
            }));
        }
        let each = threads.into_iter().filter_map(|thread| thread.join().ok());
        each.reduce(|one, other| one.iter().zip(other).map(|(one, other)| one + other).collect())
    });
    Ok(Spread::of(together.unwrap_or_default().into_iter().skip(1).collect()))
}

/// Bytes per second of the thread's own time.
fn rate(kind: Kind, region: &Region, passes: usize, round: usize) -> f64 {
    let begin = OwnTime::now();
    let bytes = work(kind, region, passes, round);
    bytes as f64 / begin.nanos().max(1.0) * 1e9
}

/// Goes through a thread's memory; returns the bytes that were read and written.
fn work(kind: Kind, region: &Region, passes: usize, round: usize) -> usize {
    // SAFETY: A thread has its region alone, of whole words, which lives as long as the borrow.
    let words = unsafe { std::slice::from_raw_parts_mut(region.start().cast::<u64>(), region.bytes() / 8) };
    let mut bytes = 0;
    for pass in 0..passes {
        bytes += pass_over(kind, words, (round * passes + pass) as u64);
        black_box(&mut *words);
    }
    bytes
}

fn pass_over(kind: Kind, words: &mut [u64], pass: u64) -> usize {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: The processor has these instructions.
        return unsafe { wide_pass_over(kind, words, pass) };
    }
    plain_pass_over(kind, words, pass)
}

/// With loads and stores of 32 bytes, without which a level-1 cache is never busy.
///
/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn wide_pass_over(kind: Kind, words: &mut [u64], pass: u64) -> usize {
    plain_pass_over(kind, words, pass)
}

#[inline(always)]
fn plain_pass_over(kind: Kind, words: &mut [u64], pass: u64) -> usize {
    const LINE: usize = 8;
    let half = words.len() / 2;
    match kind {
        Kind::Read => {
            black_box(words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
            words.len() * 8
        }
        Kind::Write => {
            words.fill(pass);
            words.len() * 8
        }
        Kind::Mixed => {
            let (into, from) = words.split_at_mut(half);
            into.iter_mut().zip(from).for_each(|(into, from)| *into = into.wrapping_add(*from));
            half * 8 * 3
        }
        Kind::Update => {
            words.iter_mut().for_each(|word| *word = word.wrapping_add(1));
            words.len() * 8 * 2
        }
        Kind::Random => {
            let lines = words.len() / LINE;
            // A quarter of them: they take several times as long as those in order.
            let read = (lines / 4).max(1) as u64;
            let mut sum = 0u64;
            for at in 0..read {
                let line = ((u128::from(hash(pass, at)) * lines as u128) >> 64) as usize;
                sum = sum.wrapping_add(words[line * LINE]);
            }
            black_box(sum);
            read as usize * LINE * 8
        }
        Kind::Copy => {
            let (from, to) = words.split_at_mut(half);
            to[..half].copy_from_slice(from);
            half * 8 * 2
        }
    }
}

/// Numbers of threads: powers of two, and all.
pub fn thread_counts(processors: usize) -> Vec<usize> {
    let most = processors.max(1);
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|count| *count < most).collect();
    counts.push(most);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_counts_what_it_moves() {
        let mut words = vec![1u64; 1 << 12];
        let mut bytes = |kind| plain_pass_over(kind, &mut words, 3);
        assert_eq!(bytes(Kind::Read), 32 << 10);
        assert_eq!(bytes(Kind::Random), 8 << 10, "a quarter of the lines");
        assert_eq!(bytes(Kind::Update), 64 << 10);
        assert_eq!(bytes(Kind::Mixed), 48 << 10);
        assert_eq!(words[0], 4, "2 and 2 of the other half");
        assert_eq!(plain_pass_over(Kind::Copy, &mut words, 3), 32 << 10);
        assert_eq!(words[1 << 11], 4);
        assert_eq!(plain_pass_over(Kind::Write, &mut words, 7), 32 << 10);
        assert!(words.iter().all(|word| *word == 7));
    }

    #[test]
    fn one_thread_and_two_are_measured() {
        let memory = Memory { each: 1 << 20, node: None, passes: 1 };
        let processors = crate::nodes::allowed_processors().unwrap();
        for threads in [1, processors.len()] {
            let rate = measure(Kind::Read, &processors[..threads], memory, 2).unwrap();
            assert!(rate.median > 0.0 && rate.count == 2, "{rate:?}");
        }
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(0), [1]);
        assert_eq!(thread_counts(128).len(), 8);
    }
}
