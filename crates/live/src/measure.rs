//! How fast a node's memory is, measured: for machines whose firmware does not state it.
//!
//! Threads on the node's nearest processors read a buffer that lies there. It is larger than most caches, on huge pages
//! where they are to be had, so that neither caches nor page walks are measured. Other work on the machine slows the
//! figures; they are the machine's as it is now.

use crate::facts::{Facts, Node, TierMap};
use crate::kernel::Kernel;
use std::hint::black_box;
use std::io;
use std::time::Instant;
use terrace_model::{Bytes, BytesPerSec, Time};

/// The buffer: larger than the caches of most processors.
const BUFFER: Bytes = Bytes::mib(256);
/// Loads in the chain whose latency is taken: a quarter second at 120 ns.
const CHAIN: usize = 2 << 20;
/// Times that the buffer is read for its bandwidth.
const PASSES: usize = 4;
/// A cache line, in words.
const LINE: usize = 8;
/// Pages that are asked where they lie.
const ASKED: usize = 64;
/// `MPOL_PREFERRED`: without room the memory comes from elsewhere, where the strict policy would have processes killed.
const PREFERRED: libc::c_int = 1;

/// What was measured of a node's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Latency of a read that depends on the one before.
    pub latency: Time,
    /// Bandwidth of reads in order by all threads together.
    pub bandwidth: BytesPerSec,
    /// How many threads read.
    pub threads: usize,
}

/// What was measured of a node, or why nothing could be.
pub type Measurement = (u32, Result<Measured, String>);

/// Measures each node that has memory, one after the other.
pub fn measure_all(kernel: &dyn Kernel, nodes: &[Node]) -> Vec<Measurement> {
    let with_memory = nodes.iter().filter(|node| node.has_memory());
    with_memory.map(|node| (node.id, measure(kernel, nodes, node.id))).collect()
}

impl Facts {
    /// Measures the bandwidth of each node's memory and takes it for the tiers' bandwidth of reads and writes. What the
    /// nodes are distinguished by stays. Returns a line for each node: what was found, or why nothing could be.
    pub fn measure(&mut self, kernel: &dyn Kernel) -> Vec<String> {
        self.take(&measure_all(kernel, &self.nodes))
    }

    fn take(&mut self, found: &[Measurement]) -> Vec<String> {
        let mut lines = Vec::new();
        for (id, measured) in found {
            let Some(node) = self.nodes.iter_mut().find(|node| node.id == *id) else { continue };
            lines.push(match measured {
                Ok(Measured { bandwidth, threads, .. }) => {
                    (node.speed.read_bandwidth, node.speed.write_bandwidth) =
                        (Some(*bandwidth), Some(*bandwidth));
                    format!("node {id} was measured to read {bandwidth} with {threads} threads")
                }
                Err(reason) => {
                    format!("node {id} keeps the bandwidth that was reported or assumed: {reason}")
                }
            });
        }
        self.tiers = TierMap::of(&self.nodes, &self.kernel_tiers, &self.swap);
        lines
    }
}

/// Measures one node from its nearest processors, in about a second.
///
/// # Errors
/// There is no room, or the memory came from another node.
pub fn measure(kernel: &dyn Kernel, nodes: &[Node], node: u32) -> Result<Measured, String> {
    let of = nodes.iter().find(|one| one.id == node).ok_or_else(|| format!("there is no node {node}"))?;
    if of.free.0 < BUFFER.0 * 2 {
        return Err(format!(
            "node {node} has less than {} free, which a measurement takes",
            Bytes(BUFFER.0 * 2)
        ));
    }
    let near = nodes.iter().filter(|one| !one.cpus.is_empty());
    let near = near.min_by_key(|one| of.distances.get(&one.id).copied().unwrap_or(u32::MAX));
    let processors = near.map(|near| near.cpus.clone()).unwrap_or_default();
    // A thread of its own, so that the caller's stays where it may run.
    std::thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            run_on(&processors);
            let mut buffer =
                Buffer::on((nodes.len() > 1).then_some(node)).map_err(|error| error.to_string())?;
            let latency = latency(buffer.words());
            if nodes.len() > 1 {
                buffer.check(kernel, node)?;
            }
            let threads = processors.len().clamp(1, 16);
            Ok(Measured { latency, bandwidth: bandwidth(buffer.words(), threads, &processors), threads })
        });
        measuring.join().map_err(|_| "the measurement failed".to_owned())?
    })
}

/// Keeps this thread on these processors; where it may not, it runs where it does.
fn run_on(processors: &[u32]) {
    // SAFETY: a set of processors is an array of bits, of which all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for processor in processors.iter().filter(|one| **one < libc::CPU_SETSIZE as u32) {
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_SET(*processor as usize, &mut set) };
    }
    // SAFETY: the set is as large as said; 0 is this thread.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}

/// Memory on one node.
struct Buffer(*mut libc::c_void);

impl Buffer {
    fn on(node: Option<u32>) -> io::Result<Buffer> {
        let length = BUFFER.0 as usize;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping anywhere, of which nothing is known to others.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let buffer = Buffer(start);
        // SAFETY: advice about our own mapping; without huge pages it is refused, and the figures hold page walks.
        unsafe { libc::madvise(start, length, libc::MADV_HUGEPAGE) };
        if let Some(node) = node {
            let mut mask = [0u64; 16];
            *mask.get_mut(node as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? |=
                1 << (node % 64);
            // SAFETY: our own mapping, and a mask of as many bits as said.
            let result = unsafe {
                libc::syscall(libc::SYS_mbind, start, length, PREFERRED, mask.as_ptr(), mask.len() * 64, 0)
            };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(buffer)
    }

    fn words(&mut self) -> &mut [u64] {
        // SAFETY: the mapping is this long, writable, zeroed by the kernel, aligned to a page, and borrowed from `self`.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), BUFFER.0 as usize / 8) }
    }

    /// Refuses memory that came from elsewhere.
    fn check(&self, kernel: &dyn Kernel, node: u32) -> Result<(), String> {
        let step = BUFFER.0 / ASKED as u64;
        let pages: Vec<u64> = (0..ASKED as u64).map(|at| self.0 as u64 + at * step).collect();
        let mut status = [-1; ASKED];
        kernel
            .open(std::process::id())
            .and_then(|own| kernel.move_pages(&own, &pages, None, &mut status))
            .map_err(|error| format!("the kernel does not say where the memory lies: {error}"))?;
        match status.iter().all(|on| *on == node as i32) {
            true => Ok(()),
            false => Err(format!("node {node} had no room, the memory came from another node")),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `on` made this mapping, and the slices of it are borrowed from `self`.
        unsafe { libc::munmap(self.0, BUFFER.0 as usize) };
    }
}

/// Follows a chain that visits every line once in a random order, so that no prefetcher guesses it.
fn latency(words: &mut [u64]) -> Time {
    let lines = words.len() / LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    // Sattolo's shuffle makes a single cycle. Any generator without short periods will do.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..lines).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, ((u128::from(state) * at as u128) >> 64) as usize);
    }
    for (at, next) in order.iter().enumerate() {
        words[at * LINE] = u64::from(*next);
    }
    drop(order);
    let mut at = 0;
    let started = Instant::now();
    for _ in 0..CHAIN {
        at = words[at * LINE] as usize;
    }
    let elapsed = started.elapsed();
    black_box(at);
    Time::from_nanos_f64(elapsed.as_nanos() as f64 / CHAIN as f64)
}

fn bandwidth(words: &[u64], threads: usize, processors: &[u32]) -> BytesPerSec {
    let share = words.len().div_ceil(threads);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for part in words.chunks(share) {
            scope.spawn(move || {
                run_on(processors);
                for _ in 0..PASSES {
                    black_box(black_box(part).iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
                }
            });
        }
    });
    BytesPerSec((BUFFER.0 as usize * PASSES) as f64 / started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::nodes;
    use crate::kernel::Linux;

    #[test]
    fn the_chain_visits_every_line_once() {
        let mut words = vec![0u64; 1000 * LINE];
        latency(&mut words);
        let (mut at, mut steps) = (0, 0);
        loop {
            at = words[at * LINE] as usize;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, 1000);
    }

    #[test]
    fn figures_of_this_machine_are_of_memory() {
        let nodes = nodes::discover(&Linux);
        let Some(node) = nodes.iter().find(|node| node.free > Bytes::gib(1)) else { return };
        let measured = measure(&Linux, &nodes, node.id).unwrap();
        assert!((1.0..10_000.0).contains(&measured.latency.as_nanos()), "{measured:?}");
        assert!(measured.bandwidth.0 > 1e7, "{measured:?}");
        assert!(measure(&Linux, &nodes, 1 << 20).is_err());
    }

    #[test]
    fn what_was_measured_takes_the_place_of_what_was_stated() {
        let mut facts = Facts::discover(&Linux);
        let with_memory: Vec<u32> =
            facts.nodes.iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
        let Some((first, others)) = with_memory.split_first() else { return };
        let bandwidth = BytesPerSec(12e9);
        let measured = Measured { latency: Time::from_nanos(90), bandwidth, threads: 2 };
        let mut found: Vec<_> = with_memory.iter().map(|node| (*node, Ok(measured))).collect();
        let lines = facts.take(&found);
        assert_eq!(lines.len(), 1 + others.len());
        assert!(lines[0].starts_with(&format!("node {first} was measured to read")), "{lines:?}");
        for (tier, nodes) in facts.tiers.topology.tiers.iter().zip(&facts.tiers.nodes) {
            let expected = 12e9 * nodes.len() as f64;
            assert!(nodes.is_empty() || tier.read_bandwidth == BytesPerSec(expected), "{tier:?}");
        }
        found[0].1 = Err("it is full".to_owned());
        assert!(
            facts.take(&found)[0].contains("keeps the bandwidth that was reported or assumed: it is full")
        );
    }
}
