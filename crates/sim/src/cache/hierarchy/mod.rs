//! Three levels of write-back, write-allocate caches: private L1 and L2 per core, a shared last level (LLC), and the
//! directory that keeps the private ones coherent (MESI).
//!
//! L2 is neither inclusive nor exclusive of L1. The LLC is inclusive where the design says so. Dirty victims go to the
//! next level, which allocates them. State changes at once; what takes time is carried in the completion times, so a
//! line is "there" from the moment its miss was sent, and a second access to it waits for the first one's data.

mod clients;
mod coherence;
mod last_level;
mod outside;
mod prefetch;
mod private;
mod translations;
mod zeroing;

use super::directory::AnyDirectory;
use super::level::{Level, LevelCounters};
use super::parameters::{CacheHierarchyParameters, CacheParameters};
use super::prefetcher::StridePrefetcher;
use super::registers::MissRegisters;
use super::seen::Seen;
use super::sharers::MAX_CORES;
use crate::array::PackedSets;
use crate::core::CoreParameters;
use crate::memory::Initiator;
use private::{Arrival, Arrivals, NOTHING_RECENT, Private, Recent};
use terrace_model::{CacheLine, CoreId, LINE_BYTES, Stats, Time, Unit};
use translations::Translations;
pub use translations::{Message, Reason};

/// What lies below the private caches: translation where the scheme puts it there, and the memory devices.
pub trait Below {
    /// A line missed the L2 at `now`: when may the last level's answer be used? Schemes that translate here answer
    /// later than `now`.
    fn translated(&self, now: Time) -> Time;
    /// Reads a line; the answer is when its data reaches the last level.
    fn fill(&mut self, line: CacheLine, at: Time, by: Initiator) -> Time;
    /// Writes a dirty line that left the last level; the answer is when the device has taken it. The miss that pushed
    /// it out is not done before: that is how a full write queue slows the cores down.
    fn evict(&mut self, line: CacheLine, now: Time) -> Time;
}

/// How an access was served, for the core's accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// When the data is there (for a store: when the line is owned).
    pub done: Time,
    /// Begin of the look-ups in caches, which last until `cache_end`; before it the access waited for a free miss register.
    pub cache_start: Time,
    /// Begin of the wait for memory, which lasts until `done`.
    pub cache_end: Time,
}

/// Counters of all levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// All L1 caches together.
    pub l1: LevelCounters,
    /// All L2 caches together.
    pub l2: LevelCounters,
    /// The last level.
    pub llc: LevelCounters,
    /// Lines that another core's private cache supplied.
    pub cache_to_cache: u64,
    /// Private copies invalidated because another core wrote.
    pub invalidations: u64,
    /// Private copies lost because the directory or an inclusive last level gave up their entry.
    pub back_invalidations: u64,
    /// Lines the prefetcher asked for.
    pub prefetches: u64,
    /// Lines that the zeroing of new pages put in.
    pub zero_fills: u64,
    /// Lines that stores from beyond the caches read from memory.
    pub outside_fills: u64,
}

impl CacheCounters {
    /// Adds hits, misses and writebacks of each level to the statistics of a run.
    pub fn count_levels_into(&self, stats: &mut Stats) {
        for (name, level) in [("l1", self.l1), ("l2", self.l2), ("llc", self.llc)] {
            stats.count(format!("cache.{name}.hit"), level.hits, Unit::Count);
            stats.count(format!("cache.{name}.miss"), level.misses, Unit::Count);
            stats.count(format!("cache.{name}.writeback"), level.writebacks, Unit::Count);
        }
    }
}

/// The caches of a machine.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// One for each core; its hardware threads share them.
    private: Vec<Private>,
    /// Bits of a hardware thread's number that tell it from the others of its core.
    thread_bits: u32,
    /// Misses of each hardware thread; none where a core's registers alone limit them.
    thread_misses: Vec<MissRegisters>,
    llc: Level,
    llc_misses: MissRegisters,
    directory: AnyDirectory,
    /// Where the directory knows of translations too.
    translations: Option<Box<Translations>>,
    /// The only core that has run so far, until a second one does.
    only_core: Option<CoreId>,
    /// What may be in any of them.
    seen: Seen,
    inclusive: bool,
    l1_latency: Time,
    l2_latency: Time,
    llc_latency: Time,
    cache_to_cache_latency: Time,
    /// What happened so far.
    pub counters: CacheCounters,
}

impl Hierarchy {
    /// Empty caches for the machine's hardware threads, `core.threads` of which (a power of two) make a core, whose clock
    /// cycle lasts `cycle`.
    ///
    /// # Errors
    /// A geometry that cannot be built, or more than [`MAX_CORES`] hardware threads.
    pub fn new(
        parameters: &CacheHierarchyParameters,
        core: &CoreParameters,
        cycle: Time,
    ) -> Result<Hierarchy, String> {
        let (cores, threads) = (core.count, core.threads);
        if cores > MAX_CORES {
            return Err(format!("{cores} cores: the directory can name {MAX_CORES} at most"));
        }
        let level = |name: &str, p| Level::new(p).map_err(|e| format!("cache.{name}: {e}"));
        let (l1, l2) = (level("l1", &parameters.l1)?, level("l2", &parameters.l2)?);
        let prefetcher = &parameters.prefetcher;
        let recent = l1.sets_by_lowest_bits().unwrap_or(1);
        let private = Private {
            recent: vec![NOTHING_RECENT; recent].into(),
            l1_arrivals: vec![Arrival::PAST; l1.slots()],
            l2_arrivals: Arrivals::of(if prefetcher.enabled { l2.slots() } else { 0 }),
            l1_misses: MissRegisters::new(parameters.l1.outstanding),
            l2_misses: MissRegisters::new(parameters.l2.outstanding),
            prefetcher: prefetcher.enabled.then(|| StridePrefetcher::new(prefetcher)),
            l1,
            l2,
        };
        Ok(Hierarchy {
            private: vec![private; cores.div_ceil(threads) as usize],
            thread_bits: threads.trailing_zeros(),
            thread_misses: match core.outstanding {
                Some(outstanding) => vec![MissRegisters::new(outstanding); cores as usize],
                None => Vec::new(),
            },
            llc: level("llc", &parameters.llc)?,
            llc_misses: MissRegisters::new(parameters.llc.outstanding),
            directory: AnyDirectory::None,
            translations: None,
            only_core: None,
            seen: Seen::new(),
            inclusive: parameters.inclusive,
            l1_latency: parameters.l1.latency.at(cycle),
            l2_latency: parameters.l2.latency.at(cycle),
            llc_latency: parameters.llc.latency.at(cycle),
            cache_to_cache_latency: parameters.cache_to_cache.at(cycle),
            counters: CacheCounters::default(),
        })
    }

    /// What the tables of such caches take of the host's memory, in bytes, with the directory that the second core brings.
    pub fn host_bytes(parameters: &CacheHierarchyParameters, core: &CoreParameters) -> u64 {
        let sets = |level: &CacheParameters| level.capacity.0 / (LINE_BYTES * u64::from(level.ways).max(1));
        let bytes = |level: &CacheParameters| PackedSets::host_bytes(sets(level), level.ways);
        let lines = |level: &CacheParameters| level.capacity.0 / LINE_BYTES;
        let (l1, l2) = (&parameters.l1, &parameters.l2);
        let arrivals = lines(l1) + if parameters.prefetcher.enabled { lines(l2) } else { 0 };
        let private = bytes(l1) + bytes(l2) + arrivals * size_of::<Arrival>() as u64;
        let caches = u64::from(core.count.div_ceil(core.threads.max(1)));
        let directory = match caches {
            0 | 1 => 0,
            _ => AnyDirectory::host_bytes(caches, caches.saturating_mul(lines(l1) + lines(l2))),
        };
        private.saturating_mul(caches).saturating_add(bytes(&parameters.llc)).saturating_add(directory)
    }

    /// The number of a hardware thread's private caches.
    #[inline(always)]
    fn caches_of(&self, thread: CoreId) -> CoreId {
        CoreId(thread.0 >> self.thread_bits)
    }

    /// One access to the line that its L1 set was asked for last: when the lookup ends, and when the data is there.
    /// `None` if it is another line, or a store that still has to change the line's state; then nothing happened.
    #[inline(always)]
    pub fn access_recent(
        &mut self,
        core: CoreId,
        line: CacheLine,
        write: bool,
        now: Time,
    ) -> Option<(Time, Time)> {
        let core = self.caches_of(core);
        let private = &mut self.private[core.index()];
        let index = private.recent_index(line);
        let recent = &mut private.recent[index];
        if recent.line != line || (write && !recent.owned) {
            return None;
        }
        self.counters.l1.hits += 1;
        let hit = now + self.l1_latency;
        Some((hit, hit.max(recent.arrival.for_access(now))))
    }

    /// One access to a line by a core, issued at `now`.
    #[inline(always)]
    pub fn access<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        write: bool,
        now: Time,
        by: Initiator,
        below: &mut B,
    ) -> Served {
        if let Some((hit, done)) = self.access_recent(core, line, write, now) {
            return Served { done, cache_start: now, cache_end: hit };
        }
        self.access_not_recent(core, line, write, now, by, below)
    }

    /// An access to a line that [`Hierarchy::access_recent`] did not find.
    #[inline(always)]
    pub fn access_not_recent<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        write: bool,
        now: Time,
        by: Initiator,
        below: &mut B,
    ) -> Served {
        let (thread, core) = (core, self.caches_of(core));
        let private = &mut self.private[core.index()];
        let home = private.l1.home(line);
        let Some(held) = private.l1.touch(home) else {
            return self.miss_l1(thread, line, home, write, now, by, below);
        };
        if write && !held.writable {
            return self.own(core, line, held.slot, now, below);
        }
        let arrival = private.l1_arrival(held.slot, now);
        let owned = write || (held.dirty && held.writable);
        if write && !held.dirty {
            private.l1.set_dirty(held.slot);
        }
        private.remember(Recent { line, arrival, owned });
        self.counters.l1.hits += 1;
        let hit = now + self.l1_latency;
        Served { done: hit.max(arrival.ready), cache_start: now, cache_end: hit }
    }

    /// When L1, L2 and the last level answer, from an access's begin.
    pub fn latencies(&self) -> [Time; 3] {
        [self.l1_latency, self.l2_latency, self.llc_latency]
    }

    /// Lines that the last level can hold.
    pub fn llc_lines(&self) -> u64 {
        self.llc.lines() as u64
    }
}
