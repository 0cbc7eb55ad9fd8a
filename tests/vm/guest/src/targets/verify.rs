//! Every page holds a pattern over all its bytes; threads check each page before they write it anew.
//!
//! What was last written is known outside of the pages, so that a page which fell back to older contents shows as well as
//! a broken one.

use crate::memory::{Layout, PAGE, reserve, unmap};
use crate::process::range_text;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use std::io;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const WORDS: usize = PAGE as usize / 8;
/// What `mremap` and `munmap` take at a time: a huge page.
const CHUNK: u64 = crate::memory::HUGE;
const CHUNK_PAGES: usize = (CHUNK / PAGE) as usize;

/// What happens to the memory besides being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Nothing
    Plain,
    /// Children check their copies
    Fork,
    /// Chunks change their addresses
    Mremap,
    /// Chunks are given back and begin anew elsewhere
    Munmap,
}

#[derive(Args)]
pub struct Verify {
    #[command(flatten)]
    layout: Layout,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    #[arg(long, value_enum, default_value_t = Mode::Plain)]
    mode: Mode,
    /// Milliseconds in which each thread rests after 2 MiB. Time in which all rest costs the emulation nothing.
    #[arg(long, default_value_t = 0)]
    rest_ms: u64,
    /// End by itself; else with SIGTERM
    #[arg(long)]
    seconds: Option<u64>,
}

/// What all threads share.
struct Shared {
    mode: Mode,
    rest: Duration,
    layout: Layout,
    /// What each page was last filled with; 0: it was never filled since it was mapped.
    versions: Vec<AtomicU32>,
    /// Held for reading while a page is written, for writing while a child is made: it sees no half-written page.
    fork: RwLock<()>,
    deadline: Option<Instant>,
}

impl Verify {
    pub fn run(&self) -> Result<()> {
        let bytes = self.layout.bytes();
        let threads = self.threads;
        ensure!(bytes.is_multiple_of(CHUNK * threads as u64), "--mib must be a multiple of 2 MiB per thread");
        super::count_signals(libc::SIGTERM);
        // Chunks that move do so between twice as many places as they need.
        let places = if matches!(self.mode, Mode::Mremap | Mode::Munmap) { 2 } else { 1 };
        let arena = reserve(bytes * places, self.layout.alignment())?;
        self.layout.map_at(arena, bytes)?;
        let shared = Shared {
            mode: self.mode,
            rest: Duration::from_millis(self.rest_ms),
            layout: self.layout,
            versions: (0..bytes / PAGE).map(|_| AtomicU32::new(0)).collect(),
            fork: RwLock::new(()),
            deadline: super::deadline(self.seconds),
        };
        let chunks: Vec<u64> = (arena..arena + bytes).step_by(CHUNK as usize).collect();
        self.layout.on_its_node(|| {
            for (chunk, start) in chunks.iter().enumerate() {
                for page in 0..CHUNK_PAGES {
                    rewrite(&shared, chunk * CHUNK_PAGES + page, start + page as u64 * PAGE, 1);
                }
            }
        })?;
        println!(
            "pid={} memory={} ready=1",
            std::process::id(),
            range_text(&(arena..arena + bytes * places))
        );
        let share = chunks.len() / threads;
        let spare: Vec<u64> = (arena + bytes..arena + bytes * places).step_by(CHUNK as usize).collect();
        let stalls = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let own = thread * share..(thread + 1) * share;
                    let spare = spare.get(own.clone()).unwrap_or_default().to_vec();
                    let chunks = chunks[own.clone()].to_vec();
                    let worker = Worker { shared: &shared, first: own.start * CHUNK_PAGES, chunks, spare };
                    scope.spawn(|| worker.run())
                })
                .collect();
            if self.mode == Mode::Fork {
                fork_often(&shared, &chunks)?;
            }
            let mut stalls = Stalls::default();
            for worker in workers {
                stalls.add(&worker.join().expect("a difference is returned, not thrown")?);
            }
            anyhow::Ok(stalls)
        });
        let stalls = stalls?;
        println!(
            "operations={} p50_us={} p999_us={} max_us={}",
            stalls.count(),
            stalls.within(0.5),
            stalls.within(0.999),
            stalls.longest
        );
        Ok(())
    }
}

impl Shared {
    fn ends(&self) -> bool {
        super::passed(self.deadline) || super::ended()
    }
}

/// How long operations took, in microseconds: to one below a millisecond, to a hundred above. Its memory does not grow, for
/// what grows would have to be placed as well.
struct Stalls {
    counts: Vec<u32>,
    longest: u64,
}

/// Microseconds that are counted one by one.
const EXACT: u64 = 1000;
/// Microseconds that are counted together beyond that.
const COARSE: u64 = 100;
/// Ten seconds; what is longer counts as that.
const LONGEST: u64 = 10_000_000;

impl Default for Stalls {
    fn default() -> Stalls {
        Stalls { counts: vec![0; (EXACT + LONGEST / COARSE + 1) as usize], longest: 0 }
    }
}

impl Stalls {
    fn note(&mut self, took: Duration) {
        let micros = took.as_micros() as u64;
        let at = if micros < EXACT { micros } else { EXACT + micros.min(LONGEST) / COARSE };
        self.counts[at as usize] += 1;
        self.longest = self.longest.max(micros);
    }

    fn add(&mut self, other: &Stalls) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.longest = self.longest.max(other.longest);
    }

    fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// The time within which this share of the operations was done.
    fn within(&self, share: f64) -> u64 {
        let mut left = (self.count() as f64 * share) as u64;
        let at = self.counts.iter().position(|count| {
            let reached = left < u64::from(*count);
            left = left.saturating_sub(u64::from(*count));
            reached
        });
        let at = at.unwrap_or_default() as u64;
        if at < EXACT { at } else { (at - EXACT) * COARSE }
    }
}

/// A thread with the chunks that it alone writes.
struct Worker<'a> {
    shared: &'a Shared,
    /// Number of its first page.
    first: usize,
    chunks: Vec<u64>,
    spare: Vec<u64>,
}

impl Worker<'_> {
    /// Returns how long the page operations took.
    fn run(mut self) -> Result<Stalls> {
        let mut stalls = Stalls::default();
        while !self.shared.ends() {
            for chunk in 0..self.chunks.len() {
                self.write_anew(chunk, &mut stalls)?;
                self.churn(chunk)?;
                std::thread::sleep(self.shared.rest);
            }
        }
        Ok(stalls)
    }

    fn write_anew(&self, chunk: usize, stalls: &mut Stalls) -> Result<()> {
        for page in 0..CHUNK_PAGES {
            let number = self.first + chunk * CHUNK_PAGES + page;
            let address = self.chunks[chunk] + page as u64 * PAGE;
            let _guard = self.shared.fork.read().expect("no thread panics with the lock");
            let version = self.shared.versions[number].load(Relaxed);
            let started = Instant::now();
            let wrong = difference(number, address, version);
            rewrite(self.shared, number, address, version.wrapping_add(1).max(1));
            stalls.note(started.elapsed());
            if let Some(word) = wrong {
                println!("CORRUPT page={number} address={address:x} version={version} word={word}");
                anyhow::bail!("page {number} differs");
            }
        }
        Ok(())
    }

    fn churn(&mut self, chunk: usize) -> Result<()> {
        if !matches!(self.shared.mode, Mode::Mremap | Mode::Munmap) {
            return Ok(());
        }
        let old = self.chunks[chunk];
        let new = self.spare.remove(0);
        if self.shared.mode == Mode::Mremap {
            // Without a hole in between, in which another thread's allocator could settle.
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
            // SAFETY: both ranges are this thread's own places; nothing refers into them.
            let at = unsafe {
                libc::mremap(old as *mut _, CHUNK as usize, CHUNK as usize, flags, new as *mut libc::c_void)
            };
            ensure!(at as u64 == new, "mremap: {}", io::Error::last_os_error());
        }
        unmap(old, CHUNK)?;
        if self.shared.mode == Mode::Munmap {
            self.shared.layout.map_at(new, CHUNK)?;
            for page in 0..CHUNK_PAGES {
                self.shared.versions[self.first + chunk * CHUNK_PAGES + page].store(0, Relaxed);
            }
        }
        self.chunks[chunk] = new;
        self.spare.push(old);
        Ok(())
    }
}

/// Children that check every page of their copy and end; the writers go on meanwhile.
fn fork_often(shared: &Shared, chunks: &[u64]) -> Result<()> {
    while !shared.ends() {
        let guard = shared.fork.write().expect("no thread panics with the lock");
        // SAFETY: the child allocates nothing, takes no lock and ends by `_exit`.
        let child = unsafe { libc::fork() };
        ensure!(child >= 0, "fork: {}", io::Error::last_os_error());
        if child == 0 {
            let wrong = chunks.iter().enumerate().any(|(chunk, start)| {
                (0..CHUNK_PAGES).any(|page| {
                    let number = chunk * CHUNK_PAGES + page;
                    let version = shared.versions[number].load(Relaxed);
                    difference(number, start + page as u64 * PAGE, version).is_some()
                })
            });
            // SAFETY: ends the child at once, without running anything of the parent's.
            unsafe { libc::_exit(wrong.into()) };
        }
        // What is shared must not be written while the child checks it.
        let guard = Some(guard).filter(|_| shared.layout.shared);
        let mut status = 0;
        // SAFETY: our own child, waited for once.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        drop(guard);
        if waited != child || status != 0 {
            println!("CORRUPT in a child, status={status}");
            anyhow::bail!("a child found a difference");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A word of a page's pattern: no two pages, versions or words share one.
fn pattern(number: usize, version: u32, word: usize) -> u64 {
    let seed = ((number as u64) << 32 | u64::from(version)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if version == 0 { 0 } else { seed ^ (word as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9) }
}

/// The first word of a page that is not as it was written.
fn difference(number: usize, address: u64, version: u32) -> Option<usize> {
    let words = address as *const u64;
    // SAFETY: the caller owns this page, which is mapped and holds `WORDS` words.
    (0..WORDS).find(|word| unsafe { words.add(*word).read_volatile() } != pattern(number, version, *word))
}

fn rewrite(shared: &Shared, number: usize, address: u64, version: u32) {
    let words = address as *mut u64;
    for word in 0..WORDS {
        // SAFETY: as in `difference`; no other thread writes this page.
        unsafe { words.add(word).write_volatile(pattern(number, version, word)) };
    }
    shared.versions[number].store(version, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_bit_in_any_word_shows_and_so_does_an_older_version() {
        let mut page = vec![0_u64; WORDS];
        let fill = |page: &mut [u64], version| {
            page.iter_mut().enumerate().for_each(|(word, value)| *value = pattern(7, version, word));
        };
        for word in [0, 1, WORDS - 1] {
            fill(&mut page, 3);
            assert_eq!(difference(7, page.as_ptr() as u64, 3), None);
            page[word] ^= 1 << 40;
            assert_eq!(difference(7, page.as_ptr() as u64, 3), Some(word));
        }
        fill(&mut page, 2);
        assert_eq!(difference(7, page.as_ptr() as u64, 3), Some(0));
        fill(&mut page, 3);
        assert_eq!(difference(8, page.as_ptr() as u64, 3), Some(0));
    }
}
