//! All measurements of a machine, in order.

use crate::analysis::{
    FaultCosts, Overlap, Tlbs, held, hypervisor_pages, overlap, prefetched, split_faults, tlbs,
};
use crate::bandwidth::{self, Kind, Memory, thread_counts};
use crate::budget::Budget;
use crate::chase::Chase;
use crate::clock::{Stretch, is_disturbed};
use crate::compression::{self, Compression};
use crate::faults;
use crate::frequency::frequency;
use crate::moves::{self, Moves};
use crate::nodes::{Node, Pinned, allowed_processors, nodes};
use crate::prefetch::{self, Stride};
use crate::processor::Processor;
use crate::region::{HUGE, Pages, Region, check_base_page};
use crate::shootdown;
use crate::spread::Spread;
use crate::translation::{self, Point, Walks};
use terrace_model::PageSize;

/// Why a machine was not measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The base pages of this machine are not those that are measured.
    #[error("{0}")]
    BasePages(std::io::Error),
    /// The system gave no memory.
    #[error(
        "calibration of {what}: cannot map {bytes} bytes: {source}; free memory, or raise the limit (ulimit -v)"
    )]
    Memory {
        /// The measurement.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// Bandwidth of so many threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// What they do.
    pub kind: Kind,
    /// How many.
    pub threads: usize,
    /// Bytes per second of all together.
    pub rate: Spread,
}

/// What was measured of the memory of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMemory {
    /// The node.
    pub node: Node,
    /// Nanoseconds of a load, on huge pages.
    pub latency: Spread,
    /// All kinds, by one thread and by one on each processor that measures.
    pub rates: Vec<Rate>,
}

/// What was found. Times are in nanoseconds, rates in bytes per second.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What the kernel says of the processor.
    pub processor: Processor,
    /// Bytes that bandwidths were measured over.
    pub bandwidth_bytes: usize,
    /// The share of a processor that the measurement had while it measured the clock; below 1 others ran as well.
    pub processor_share: f64,
    /// Cycles per second while one core is busy, where the processor is for x86-64 or arm64.
    pub frequency: Option<Spread>,
    /// First store to a base page.
    pub base_fault: Spread,
    /// First store to a huge page whose frame the caches hold; none where the system gives no huge pages.
    pub huge_fault_held: Option<Spread>,
    /// First store to a huge page whose frame they do not hold.
    pub huge_fault: Option<Spread>,
    /// A load from each data cache, nearest first, on huge pages.
    pub cache_latency: Vec<Spread>,
    /// A load from ever more bytes: from those that the latency of the last level was measured over until most loads
    /// miss it.
    pub last_level: Vec<(u64, Spread)>,
    /// Reads and writes of each data cache.
    pub cache_rates: Vec<Vec<Rate>>,
    /// A load from memory while one core has as many under way as it can.
    pub memory_interval: Spread,
    /// Extra time of a load on many base pages over one on few.
    pub base_translation: Vec<Point>,
    /// Extra time of a load on pages of 2 MiB, or why it was not measured.
    pub huge_translation: Result<Vec<Point>, String>,
    /// Lines in pieces of 4 KiB of huge pages; none where this machine is no guest or gets no huge pages.
    pub pieces: Option<Point>,
    /// Several chains over more base pages than TLBs hold.
    pub walks: Vec<Walks>,
    /// Loads in order.
    pub strides: Vec<Stride>,
    /// Each node's memory: the first is that of the processors that measure.
    pub memory: Vec<NodeMemory>,
    /// Nodes that were not measured, and why.
    pub skipped: Vec<(i32, String)>,
    /// Copies by all numbers of threads, each in its own node's memory.
    pub copies: Vec<Rate>,
    /// A pair of mprotect calls on one page, alone.
    pub protect_alone: Spread,
    /// A pair of mprotect calls beside threads on all other processors; none on a single processor.
    pub protect_beside: Option<Spread>,
    /// Moves to the second node, or why there are none.
    pub moves: Result<Vec<Moves>, String>,
    /// Compressed memory, or why it was not measured.
    pub compression: Result<Compression, String>,
}

impl Measured {
    /// The parts of a page fault, where they can be told apart.
    pub fn faults(&self) -> Option<FaultCosts> {
        let (held, cold) = (self.huge_fault_held?, self.huge_fault?);
        split_faults(self.base_fault.median, held.median, cold.median)
    }

    /// Whether other programs took so much of the processors that the values cannot be trusted.
    pub fn is_disturbed(&self) -> bool {
        is_disturbed(self.processor_share)
    }

    /// A load from the memory of the processors that measured.
    pub fn memory_latency(&self) -> Spread {
        self.memory.first().map_or(Spread::of(Vec::new()), |memory| memory.latency)
    }

    /// Bytes that the last level holds, and more that it does not, by what [`held`] says.
    pub fn held_by_last_level(&self) -> Option<(u64, u64)> {
        let own = self.cache_latency.last()?.median;
        let curve: Vec<(u64, f64)> =
            self.last_level.iter().map(|(bytes, time)| (*bytes, time.median)).collect();
        let memory = self.memory_latency().median;
        // A last level that holds most of what memory was measured over does not show where it ends.
        held(&curve, (own + memory) / 2.0).filter(|_| memory > 2.0 * own)
    }

    /// Lines that one core has under way at most: the latency of one over the time per line.
    pub fn lines_in_flight(&self) -> Spread {
        self.memory_latency().over(self.memory_interval)
    }

    /// The TLBs of 4 KiB pages.
    pub fn base_tlbs(&self) -> Tlbs {
        tlbs(&quiet(&self.base_translation))
    }

    /// The TLBs of 2 MiB pages.
    pub fn huge_tlbs(&self) -> Tlbs {
        self.huge_translation.as_ref().map_or(Tlbs::default(), |points| tlbs(&quiet(points)))
    }

    /// Size of the pages by which a hypervisor maps this machine's memory, where the times tell.
    pub fn hypervisor_pages(&self) -> Option<PageSize> {
        let pieces = self.pieces.filter(|point| point.pages == translation::PIECES as u64)?;
        let base = self.base_translation.iter().find(|point| point.pages == pieces.pages)?;
        hypervisor_pages(base.quiet, pieces.quiet)
    }

    /// How many page walks one core has under way at once.
    pub fn walk_overlap(&self) -> Option<Overlap> {
        let quiet = self.walks.iter().map(|one| (one.chains, one.quiet.0, one.quiet.1));
        overlap(&quiet.collect::<Vec<_>>())
    }

    /// Up to how many lines apart loads in order come sooner than others.
    pub fn prefetched(&self) -> Option<usize> {
        let times: Vec<(usize, f64)> =
            self.strides.iter().map(|stride| (stride.lines, stride.time.median)).collect();
        prefetched(&times, self.memory_latency().median)
    }
}

fn quiet(points: &[Point]) -> Vec<(u64, f64)> {
    points.iter().map(|point| (point.pages, point.quiet)).collect()
}

/// Measures this machine. `progress` is called with the name of the measurement that comes next.
///
/// # Errors
/// The system gives no memory, or has base pages other than 4 KiB.
pub fn measure(budget: Budget, progress: &mut dyn FnMut(&str)) -> Result<Measured, Error> {
    check_base_page().map_err(Error::BasePages)?;
    let Budget { bytes, rounds, steps } = budget;
    let memory = |what, bytes| move |source| Error::Memory { what, bytes, source };
    let processor = Processor::here();
    let mut allowed = allowed_processors().unwrap_or_default();
    let mut nodes = nodes(&allowed);
    if nodes.len() < 2 {
        // A kernel without nodes has this memory all the same.
        nodes.resize(1, Node::default());
        nodes[0].processors.clone_from(&allowed);
    }
    // The processors of the first node come first, and no more than a quota of processor time is for.
    let home = nodes[0].processors.clone();
    allowed.sort_by_key(|one| !home.contains(one));
    allowed.truncate(processor.count.max(1));
    let home = &allowed[..home.len().clamp(1, allowed.len().max(1)).min(allowed.len())];
    let _pinned = (nodes.len() > 1).then(|| Pinned::to(home));

    progress("clock");
    let stretch = Stretch::begin();
    let frequency = frequency(rounds, steps);
    let processor_share = stretch.processor_share();

    progress("page faults");
    let base_bytes = bytes / 8;
    let what = "page faults";
    let base_fault =
        faults::first_store(base_bytes, Pages::Base, rounds).map_err(memory(what, base_bytes))?;
    let (mut huge_fault_held, mut huge_fault) = (None, None);
    if faults::gets_huge_pages() {
        huge_fault_held = Some(repeated_huge_faults(rounds).map_err(memory(what, HUGE))?);
        huge_fault = Some(faults::first_store(bytes, Pages::Huge, rounds).map_err(memory(what, bytes))?);
    }

    progress("cache latencies");
    let region = Region::map(bytes / 2, Pages::Huge).map_err(memory("latencies", bytes / 2))?;
    region.touch(4096);
    let latency = |bytes| Spread::of(Chase::over_lines(&region, bytes).run(steps, rounds));
    let sizes: Vec<usize> =
        (0..processor.caches.len()).map(|at| footprint(&processor, at, 1).min(bytes / 2)).collect();
    let cache_latency: Vec<Spread> = sizes.iter().map(|size| latency(*size)).collect();
    let mut last_level = Vec::new();
    if let (Some(own), Some(time)) = (sizes.last(), cache_latency.last()) {
        last_level.push((*own as u64, *time));
        for size in beyond(*own, bytes / 2).skip(1) {
            let farther = latency(size);
            last_level.push((size as u64, farther));
            if farther.median > 3.0 * time.median {
                break;
            }
        }
    }

    progress("misses in flight");
    let chase = Chase::over_lines(&region, bytes / 2);
    let intervals =
        [4, 8, 12, 16, 24, 32].map(|chains| Spread::of(chase.run_chains(chains, steps / chains, rounds)));
    let shortest = intervals.into_iter().min_by(|one, next| one.median.total_cmp(&next.median));
    let memory_interval = shortest.unwrap_or(Spread::of(Vec::new()));

    progress("translation");
    let small = Region::map(bytes / 8, Pages::Base).map_err(memory("translation", bytes / 8))?;
    small.touch(4096);
    let base_translation = translation::base_curve(&small, &region, budget);
    let walks = translation::walks(&small, &region, budget);
    drop(small);
    let huge_translation = translation::huge_curve((bytes / HUGE * 16).min(8192), budget);
    let pieces = match processor.guest && huge_fault.is_some() {
        true => Some(translation::pieces(&region, budget).map_err(memory("translation", HUGE))?),
        false => None,
    };

    progress("prefetching");
    let strides = prefetch::strides(&region, budget);
    drop(region);

    progress("cache bandwidths");
    let cache_rates = cache_rates(&processor, &allowed, rounds).map_err(memory("cache bandwidths", bytes))?;

    let mut measured = Measured {
        processor,
        bandwidth_bytes: bytes / 2,
        processor_share,
        frequency,
        base_fault,
        huge_fault_held,
        huge_fault,
        cache_latency,
        last_level,
        cache_rates,
        memory_interval,
        base_translation,
        huge_translation,
        pieces,
        walks,
        strides,
        memory: Vec::new(),
        skipped: Vec::new(),
        copies: Vec::new(),
        protect_alone: Spread::of(Vec::new()),
        protect_beside: None,
        moves: Err("this machine has one memory node, and pages move between two".to_owned()),
        compression: Err(String::new()),
    };
    let is_single = nodes.len() < 2;
    for node in nodes {
        match is_single {
            true => progress("memory"),
            false => progress(&format!("memory of node {}", node.id)),
        }
        let id = node.id;
        match node_memory(node, !is_single, home, budget) {
            Ok(found) => measured.memory.push(found),
            Err(error) if measured.memory.is_empty() => return Err(memory("memory", bytes / 2)(error)),
            Err(error) => measured.skipped.push((id, error.to_string())),
        }
    }
    progress("copies");
    for threads in thread_counts(allowed.len()) {
        let of = Memory { each: bytes / 2 / threads, node: None, passes: 1 };
        let rate = bandwidth::measure(Kind::Copy, &allowed[..threads.min(allowed.len())], of, rounds)
            .map_err(memory("copies", bytes / 2))?;
        measured.copies.push(Rate { kind: Kind::Copy, threads, rate });
    }

    progress("shootdowns");
    let protect = |others: &[usize]| shootdown::protect(others, rounds).map_err(memory("shootdowns", 4096));
    measured.protect_alone = protect(&[])?;
    if allowed.len() > 1 {
        let _first = Pinned::to(&allowed[..1]);
        measured.protect_beside = Some(protect(&allowed[1..])?);
    }

    progress("moves between nodes");
    if let [first, second, ..] = &measured.memory[..] {
        measured.moves = moves::measure(first.node.id, second.node.id, rounds)
            .map_err(|error| format!("move_pages: {error}"));
    }
    progress("compression");
    let pages = (bytes >> 22).clamp(1, 256);
    measured.compression = compression::measure(pages, rounds).map_err(|error| error.to_string());
    Ok(measured)
}

/// Bytes that each of `threads` threads uses to measure a cache: half of its share, yet no more than four times the cache
/// before, as neighbours take their part of a last level, and no less than twice that where there is room.
fn footprint(processor: &Processor, at: usize, threads: usize) -> usize {
    let cache = processor.caches[at];
    let share = cache.bytes as usize / threads.min(cache.sharers).max(1);
    match at.checked_sub(1).map(|before| processor.caches[before].bytes as usize) {
        None => share / 2,
        Some(before) => (share / 2).min(4 * before).max((2 * before).min(share)),
    }
    .max(4096)
}

/// Two sizes to a doubling, up to `most`.
fn beyond(from: usize, most: usize) -> impl Iterator<Item = usize> {
    let doublings = std::iter::successors(Some(from), |size| Some(2 * size));
    doublings.flat_map(|size| [size, size / 2 * 3]).take_while(move |size| *size <= most)
}

/// Reads, writes, both and lines at random of each cache, by one thread and by all.
fn cache_rates(
    processor: &Processor,
    processors: &[usize],
    rounds: usize,
) -> std::io::Result<Vec<Vec<Rate>>> {
    /// Bytes of each repetition of a thread: some milliseconds.
    const BYTES: usize = 64 << 20;
    let mut levels = Vec::new();
    for at in 0..processor.caches.len() {
        let mut rates = Vec::new();
        for kind in [Kind::Read, Kind::Write, Kind::Mixed, Kind::Random] {
            for threads in one_and_all(processors.len()) {
                let each = footprint(processor, at, threads);
                let passes = if rounds > 1 { (BYTES / each).max(1) } else { 1 };
                let of = Memory { each, node: None, passes };
                let rate = bandwidth::measure(kind, &processors[..threads], of, rounds)?;
                rates.push(Rate { kind, threads, rate });
            }
        }
        levels.push(rates);
    }
    Ok(levels)
}

fn one_and_all(processors: usize) -> Vec<usize> {
    if processors < 2 { vec![processors] } else { vec![1, processors] }
}

/// Latency and bandwidths of a node's memory, from the given processors.
fn node_memory(
    node: Node,
    is_bound: bool,
    processors: &[usize],
    budget: Budget,
) -> std::io::Result<NodeMemory> {
    let mut bytes = budget.bytes / 2;
    if is_bound {
        // What is free may lie in pieces.
        bytes = bytes.min(node.free as usize / 2 / HUGE * HUGE);
        if bytes < budget.bytes / 16 {
            return Err(std::io::Error::other(format!("{} MiB are free, too few", node.free >> 20)));
        }
    }
    let bound = is_bound.then_some(node.id);
    let region = match bound {
        Some(id) => Region::map_on(id, bytes, Pages::Huge)?,
        None => Region::map(bytes, Pages::Huge)?,
    };
    let latency = Spread::of(Chase::over_lines(&region, bytes).run(budget.steps, budget.rounds));
    if is_bound && !region.is_on(node.id)? {
        return Err(std::io::Error::other("it has no room, the memory came from another node"));
    }
    drop(region);
    let mut rates = Vec::new();
    for kind in Kind::MEMORY {
        for threads in one_and_all(processors.len()) {
            let of = Memory { each: bytes / threads.max(1), node: bound, passes: 1 };
            let rate = bandwidth::measure(kind, &processors[..threads], of, budget.rounds)?;
            rates.push(Rate { kind, threads: threads.max(1), rate });
        }
    }
    Ok(NodeMemory { node, latency, rates })
}

/// One huge page mapped, stored to and unmapped again and again: the kernel hands out the frame that it got back last.
fn repeated_huge_faults(rounds: usize) -> std::io::Result<Spread> {
    let mut medians = Vec::new();
    for _ in 0..rounds {
        medians.push(faults::first_store(HUGE, Pages::Huge, 15)?.median);
    }
    Ok(Spread::of(medians))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::Cache;

    #[test]
    fn a_tiny_calibration_measures_everything() {
        let before = allowed_processors().unwrap();
        let mut reported = Vec::new();
        let measured = measure(Budget::TINY, &mut |what| reported.push(what.to_owned())).unwrap();
        assert_eq!(allowed_processors().unwrap(), before, "the caller may run where it could");
        assert_eq!(reported.len(), 12 + measured.memory.len() + measured.skipped.len() - 1, "{reported:?}");
        assert!(measured.base_fault.median > 0.0 && measured.memory_latency().median > 0.0);
        assert!(measured.lines_in_flight().median > 0.0);
        assert_eq!(measured.cache_latency.len(), measured.processor.caches.len());
        assert_eq!(measured.last_level.is_empty(), measured.processor.caches.is_empty());
        assert_eq!(measured.cache_rates.len(), measured.processor.caches.len());
        assert_eq!(measured.protect_beside.is_some(), measured.processor.count > 1);
        assert_eq!(measured.base_translation[0].pages, 16);
        assert_eq!(measured.walks.len(), 5);
        let rates = measured.memory.iter().flat_map(|node| &node.rates);
        let rates = rates.chain(measured.cache_rates.iter().flatten()).chain(&measured.copies);
        assert!(rates.clone().all(|one| one.threads > 0 && one.rate.median > 0.0));
        assert!(Kind::MEMORY.iter().all(|kind| rates.clone().any(|one| one.kind == *kind)));
        assert_eq!(measured.moves.is_ok(), measured.memory.len() > 1, "{:?}", measured.moves);
        assert!(measured.compression.is_ok(), "{:?}", measured.compression);
    }

    #[test]
    fn sizes_grow_by_halves() {
        assert_eq!(beyond(8, 32).collect::<Vec<_>>(), [8, 12, 16, 24, 32]);
        assert_eq!(beyond(8, 31).collect::<Vec<_>>(), [8, 12, 16, 24]);
    }

    #[test]
    fn a_footprint_lies_in_its_cache_and_outside_the_one_before() {
        let cache = |bytes, sharers| Cache { bytes, ways: 8, sharers };
        let caches = vec![cache(32 << 10, 1), cache(1 << 20, 1), cache(32 << 20, 8)];
        let processor = Processor { count: 8, caches, ..Processor::default() };
        assert_eq!([0, 1, 2].map(|at| footprint(&processor, at, 1)), [16 << 10, 128 << 10, 4 << 20]);
        assert_eq!(footprint(&processor, 2, 8), 2 << 20);
        assert_eq!(footprint(&processor, 0, 8), 16 << 10, "private");
    }
}
