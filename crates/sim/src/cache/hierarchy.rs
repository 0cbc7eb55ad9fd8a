//! Three levels of write-back, write-allocate caches: private L1 and L2 per core, a shared last level (LLC), and the
//! directory that keeps the private ones coherent (MESI).
//!
//! L2 is neither inclusive nor exclusive of L1. The LLC is inclusive where the design says so. Dirty victims go to the
//! next level, which allocates them. State changes at once; what takes time is carried in the completion times, so a
//! line is "there" from the moment its miss was sent, and a second access to it waits for the first one's data.
//!
//! While only one core has ever run, nobody else can hold a line and the directory is not consulted.

use super::directory::{DIRECTORY_MAX_CORES, Directory, Sharers};
use super::level::{Home, Level, LevelCounters, Slot};
use super::outstanding::Outstanding;
use super::parameters::CacheHierarchyParameters;
use super::prefetcher::StridePrefetcher;
use crate::memory::Initiator;
use terrace_model::Time;

/// What lies below the private caches: translation where the scheme puts it there, and the memory devices.
pub trait Below {
    /// A line missed the L2 at `now`: when may the last level's answer be used? Schemes that translate here answer
    /// later than `now`.
    fn translated(&self, now: Time) -> Time;
    /// Reads a line; the answer is when its data reaches the last level.
    fn fill(&mut self, line: u64, now: Time, by: Initiator) -> Time;
    /// Writes a dirty line that left the last level; the answer is when the device has taken it. The miss that pushed
    /// it out is not done before: that is how a full write queue slows the cores down.
    fn evict(&mut self, line: u64, now: Time) -> Time;
}

/// How an access was served, for the core's accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// When the data is there (for a store: when the line is owned).
    pub done: Time,
    /// From here to `cache_end` caches were looked up; before it the access waited for a free miss register.
    pub cache_start: Time,
    /// From here to `done` memory was waited for.
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
}

/// A line that was the most recent of its L1 set: until another takes its place, using it again changes nothing, and
/// the level need not be looked up.
#[derive(Clone, Copy, Debug)]
struct Recent {
    line: u64,
    /// When its data arrives.
    ready: Time,
    /// It is dirty and writable, so that a store changes nothing either.
    owned: bool,
}

const NO_LINE: u64 = u64::MAX;
const NOTHING_RECENT: Recent = Recent { line: NO_LINE, ready: Time::ZERO, owned: false };

#[derive(Clone, Debug)]
struct Private {
    /// One per L1 set; a single, unused one where a set is not given by a line's lowest bits.
    recent: Box<[Recent]>,
    l1: Level,
    l2: Level,
    /// When each L1 slot's data arrives.
    l1_ready: Vec<Time>,
    /// When each L2 slot's data arrives; only prefetches are that early, so empty without a prefetcher.
    l2_ready: Vec<Time>,
    l1_misses: Outstanding,
    l2_misses: Outstanding,
    prefetcher: Option<StridePrefetcher>,
}

impl Private {
    #[inline(always)]
    fn recent_index(&self, line: u64) -> usize {
        line as usize & (self.recent.len() - 1)
    }

    #[inline(always)]
    fn remember(&mut self, recent: Recent) {
        if self.recent.len() > 1 {
            let index = self.recent_index(recent.line);
            self.recent[index] = recent;
        }
    }

    /// The line's state changed other than by the core's own accesses.
    fn forget(&mut self, line: u64) {
        let index = self.recent_index(line);
        self.recent[index] = NOTHING_RECENT;
    }
}

/// The caches of a machine.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    private: Vec<Private>,
    llc: Level,
    llc_misses: Outstanding,
    directory: Option<Directory>,
    /// The only core that has run so far, until a second one does.
    only_core: Option<usize>,
    inclusive: bool,
    l1_latency: Time,
    l2_latency: Time,
    llc_latency: Time,
    cache_to_cache_latency: Time,
    /// What happened so far.
    pub counters: CacheCounters,
}

impl Hierarchy {
    /// Empty caches for `cores` cores whose clock cycle lasts `cycle`.
    ///
    /// # Errors
    /// A geometry that cannot be built, or more than 64 cores.
    pub fn new(parameters: &CacheHierarchyParameters, cores: u32, cycle: Time) -> Result<Hierarchy, String> {
        if cores > DIRECTORY_MAX_CORES {
            return Err(format!("{cores} cores: the directory can name {DIRECTORY_MAX_CORES} at most"));
        }
        let level = |name: &str, p| Level::new(p).map_err(|e| format!("cache.{name}: {e}"));
        let (l1, l2) = (level("l1", &parameters.l1)?, level("l2", &parameters.l2)?);
        let prefetcher = &parameters.prefetcher;
        let recent = l1.sets_by_lowest_bits().unwrap_or(1);
        let private = Private {
            recent: vec![NOTHING_RECENT; recent].into(),
            l1_ready: vec![Time::ZERO; l1.slots()],
            l2_ready: if prefetcher.enabled { vec![Time::ZERO; l2.slots()] } else { Vec::new() },
            l1_misses: Outstanding::new(parameters.l1.outstanding),
            l2_misses: Outstanding::new(parameters.l2.outstanding),
            prefetcher: prefetcher.enabled.then(|| StridePrefetcher::new(prefetcher)),
            l1,
            l2,
        };
        Ok(Hierarchy {
            private: vec![private; cores as usize],
            llc: level("llc", &parameters.llc)?,
            llc_misses: Outstanding::new(parameters.llc.outstanding),
            directory: None,
            only_core: None,
            inclusive: parameters.inclusive,
            l1_latency: parameters.l1.latency.at(cycle),
            l2_latency: parameters.l2.latency.at(cycle),
            llc_latency: parameters.llc.latency.at(cycle),
            cache_to_cache_latency: parameters.cache_to_cache.at(cycle),
            counters: CacheCounters::default(),
        })
    }

    /// Tells the hierarchy that `core` runs now. The first core is free; with the second, coherence begins.
    pub fn activate(&mut self, core: usize) {
        match self.only_core {
            None if self.directory.is_none() => self.only_core = Some(core),
            Some(first) if first != core => {
                let lines: usize = self.private.iter().map(|p| p.l1.lines() + p.l2.lines()).sum();
                let mut directory = Directory::new(lines);
                let sole = Sharers { mask: 1 << first, exclusive: true };
                let first = &self.private[first];
                for line in first.l2.resident().chain(first.l1.resident()) {
                    // Twice the room of all private lines: nothing of one core's share can be pushed out by itself.
                    directory.record(line, sole);
                }
                self.directory = Some(directory);
                self.only_core = None;
            }
            _ => {}
        }
    }

    /// One access to the line that its L1 set was asked for last: when the lookup ends, and when the data is there.
    /// `None` if it is another line, or a store that still has to change the line's state; then nothing happened.
    #[inline(always)]
    pub fn access_recent(&mut self, core: usize, line: u64, write: bool, now: Time) -> Option<(Time, Time)> {
        let private = &self.private[core];
        let recent = &private.recent[private.recent_index(line)];
        if recent.line != line || (write && !recent.owned) {
            return None;
        }
        self.counters.l1.hits += 1;
        let hit = now + self.l1_latency;
        Some((hit, hit.max(recent.ready)))
    }

    /// One access to a line by a core, issued at `now`.
    #[inline(always)]
    pub fn access<B: Below>(
        &mut self,
        core: usize,
        line: u64,
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

    /// The same for a line that [`Hierarchy::access_recent`] did not find.
    #[inline(always)]
    pub fn access_not_recent<B: Below>(
        &mut self,
        core: usize,
        line: u64,
        write: bool,
        now: Time,
        by: Initiator,
        below: &mut B,
    ) -> Served {
        let private = &mut self.private[core];
        let home = private.l1.home(line);
        let Some(held) = private.l1.touch(home) else {
            return self.miss_l1(core, line, home, write, now, by, below);
        };
        if write && !held.writable {
            return self.own(core, line, held.slot, now, below);
        }
        let ready = private.l1_ready[private.l1.slot_index(held.slot)];
        let owned = write || (held.dirty && held.writable);
        if write && !held.dirty {
            private.l1.set_dirty(held.slot);
        }
        private.remember(Recent { line, ready, owned });
        self.counters.l1.hits += 1;
        let hit = now + self.l1_latency;
        Served { done: hit.max(ready), cache_start: now, cache_end: hit }
    }

    /// A store to a shared line in L1: owns it by asking the directory, at the last level's distance.
    #[inline(never)]
    fn own<B: Below>(&mut self, core: usize, line: u64, slot: Slot, now: Time, below: &mut B) -> Served {
        self.counters.l1.hits += 1;
        self.invalidate_others(core, line, now, below);
        let private = &mut self.private[core];
        private.l1.set_writable(slot);
        private.l1.set_dirty(slot);
        if let Some(held) = private.l2.peek(private.l2.home(line)) {
            private.l2.set_writable(held.slot);
        }
        let ready = private.l1_ready[private.l1.slot_index(slot)];
        private.remember(Recent { line, ready, owned: true });
        let done = ready.max(now + self.llc_latency);
        Served { done, cache_start: now, cache_end: done }
    }

    /// Brings a line into L1, where it belongs at `home`.
    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    fn miss_l1<B: Below>(
        &mut self,
        core: usize,
        line: u64,
        home: Home,
        write: bool,
        now: Time,
        by: Initiator,
        below: &mut B,
    ) -> Served {
        self.counters.l1.misses += 1;
        let start = self.private[core].l1_misses.start(now);
        let (mut served, writable) = self.fetch(core, line, write, start, by, below);
        let private = &mut self.private[core];
        private.l1_misses.occupy(served.done);
        let (slot, evicted) = private.l1.insert(home, write, writable);
        let index = private.l1.slot_index(slot);
        private.l1_ready[index] = served.done;
        if private.l1.hit_after_insert_changes_nothing() {
            private.remember(Recent { line, ready: served.done, owned: write && writable });
        } else {
            private.forget(line);
        }
        if let Some(evicted) = evicted {
            let taken = self.leave_l1(core, evicted.line, evicted.dirty, start, below);
            served.done = served.done.max(taken);
        }
        // Last, so that what it pushes out of L2 cannot be taken for a line that nobody holds.
        self.prefetch(core, line, start, below);
        served
    }

    /// Gets a line from L2 or further down. Also answers whether the core owns it afterwards.
    #[inline(always)]
    fn fetch<B: Below>(
        &mut self,
        core: usize,
        line: u64,
        write: bool,
        start: Time,
        by: Initiator,
        below: &mut B,
    ) -> (Served, bool) {
        let private = &mut self.private[core];
        let home = private.l2.home(line);
        if let Some(held) = private.l2.touch(home) {
            self.counters.l2.hits += 1;
            let mut done = start + self.l2_latency;
            if !private.l2_ready.is_empty() {
                done = done.max(private.l2_ready[private.l2.slot_index(held.slot)]);
            }
            let mut writable = held.writable;
            if write && !writable {
                self.invalidate_others(core, line, start, below);
                self.private[core].l2.set_writable(held.slot);
                writable = true;
                done = done.max(start + self.llc_latency);
            }
            return (Served { done, cache_start: start, cache_end: done }, writable);
        }
        self.counters.l2.misses += 1;
        let start = private.l2_misses.start(start);
        let usable = below.translated(start);
        let (mut served, writable) = self.fetch_from_llc(core, line, write, start, by, below);
        served.done = served.done.max(usable);
        let private = &mut self.private[core];
        private.l2_misses.occupy(served.done);
        let taken = self.install_l2(core, home, writable, Time::ZERO, start, below);
        served.done = served.done.max(taken);
        (served, writable)
    }

    /// Gets a line from another core, the last level or memory. The line is not in `core`'s caches.
    #[inline(always)]
    fn fetch_from_llc<B: Below>(
        &mut self,
        core: usize,
        line: u64,
        write: bool,
        start: Time,
        by: Initiator,
        below: &mut B,
    ) -> (Served, bool) {
        let mut writable = true;
        if self.directory.is_some() {
            let supplied;
            (supplied, writable) = self.consult_directory(core, line, write, start, below);
            if supplied {
                // The owner's copy counts as the last level's hit: the lookup found the data on chip.
                self.counters.llc.hits += 1;
                let done = start + self.cache_to_cache_latency;
                return (Served { done, cache_start: start, cache_end: done }, writable);
            }
        }
        let looked_up = start + self.llc_latency;
        let home = self.llc.home(line);
        if self.llc.touch(home).is_some() {
            self.counters.llc.hits += 1;
            return (Served { done: looked_up, cache_start: start, cache_end: looked_up }, writable);
        }
        self.counters.llc.misses += 1;
        let sent = self.llc_misses.start(looked_up);
        let done = below.fill(line, sent, by).max(self.install_llc(home, false, sent, below));
        self.llc_misses.occupy(done);
        (Served { done, cache_start: start, cache_end: looked_up }, writable)
    }

    /// Asks the directory who holds `line` and makes room for `core`. Returns whether another core supplied the data,
    /// and whether `core` owns the line now.
    #[inline(never)]
    fn consult_directory<B: Below>(
        &mut self,
        core: usize,
        line: u64,
        write: bool,
        now: Time,
        below: &mut B,
    ) -> (bool, bool) {
        let directory = self.directory.as_ref().expect("called with a directory");
        let held = directory.sharers(line);
        let others = held.mask & !(1 << core);
        let mut supplied = false;
        if others != 0 {
            if write {
                supplied = held.exclusive;
                self.invalidate_others(core, line, now, below);
            } else if held.exclusive {
                supplied = true;
                let owner = others.trailing_zeros() as usize;
                self.downgrade(owner, line, now, below);
            }
        }
        if supplied {
            self.counters.cache_to_cache += 1;
        }
        let sharers = if write || others == 0 {
            Sharers { mask: 1 << core, exclusive: true }
        } else {
            Sharers { mask: others | 1 << core, exclusive: false }
        };
        let evicted = self.directory.as_mut().and_then(|d| d.record(line, sharers));
        if let Some((old_line, old)) = evicted {
            self.back_invalidate(old_line, old.mask, now, below);
        }
        (supplied, sharers.exclusive)
    }

    /// The owner keeps a shared copy; what it had modified goes to the last level.
    fn downgrade<B: Below>(&mut self, owner: usize, line: u64, now: Time, below: &mut B) {
        let private = &mut self.private[owner];
        private.forget(line);
        let mut dirty = false;
        for level in [&mut private.l1, &mut private.l2] {
            if let Some(held) = level.peek(level.home(line)) {
                dirty |= held.dirty;
                level.set_shared(held.slot);
            }
        }
        if dirty {
            self.counters.l2.writebacks += 1;
            self.write_to_llc(line, now, below);
        }
    }

    /// Takes `line` from every core but `core`. Modified data passes to `core`'s copy through the last level.
    fn invalidate_others<B: Below>(&mut self, core: usize, line: u64, now: Time, below: &mut B) {
        let Some(directory) = self.directory.as_mut() else { return };
        let held = directory.sharers(line);
        let evicted = directory.record(line, Sharers { mask: 1 << core, exclusive: true });
        let mut others = held.mask & !(1 << core);
        let mut dirty = false;
        while others != 0 {
            let other = others.trailing_zeros() as usize;
            others &= others - 1;
            self.counters.invalidations += 1;
            dirty |= self.drop_private(other, line);
        }
        if dirty {
            self.counters.l2.writebacks += 1;
            self.write_to_llc(line, now, below);
        }
        if let Some((old_line, old)) = evicted {
            self.back_invalidate(old_line, old.mask, now, below);
        }
    }

    /// Removes a line from all private caches named by `mask`: its directory entry or last-level line is gone.
    fn back_invalidate<B: Below>(&mut self, line: u64, mut mask: u64, now: Time, below: &mut B) {
        let mut dirty = false;
        while mask != 0 {
            let core = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            self.counters.back_invalidations += 1;
            dirty |= self.drop_private(core, line);
        }
        if dirty {
            self.counters.l2.writebacks += 1;
            self.write_to_llc(line, now, below);
        }
    }

    fn drop_private(&mut self, core: usize, line: u64) -> bool {
        let private = &mut self.private[core];
        private.forget(line);
        let l1 = private.l1.invalidate(private.l1.home(line)) == Some(true);
        let l2 = private.l2.invalidate(private.l2.home(line)) == Some(true);
        l1 | l2
    }

    /// A line left `core`'s L1.
    #[inline(always)]
    fn leave_l1<B: Below>(&mut self, core: usize, line: u64, dirty: bool, now: Time, below: &mut B) -> Time {
        if dirty {
            self.counters.l1.writebacks += 1;
            let private = &mut self.private[core];
            let home = private.l2.home(line);
            if let Some(held) = private.l2.touch(home) {
                private.l2.set_dirty(held.slot);
            } else {
                let (slot, evicted) = private.l2.insert(home, true, true);
                if !private.l2_ready.is_empty() {
                    let index = private.l2.slot_index(slot);
                    private.l2_ready[index] = Time::ZERO;
                }
                if let Some(evicted) = evicted {
                    return self.leave_l2(core, evicted.line, evicted.dirty, now, below);
                }
            }
        } else if let Some(directory) = &mut self.directory
            && !self.private[core].l2.holds(line)
        {
            directory.remove(line, core as u32);
        }
        Time::ZERO
    }

    /// Puts a clean line into `core`'s L2.
    #[inline(always)]
    fn install_l2<B: Below>(
        &mut self,
        core: usize,
        home: Home,
        writable: bool,
        ready: Time,
        now: Time,
        below: &mut B,
    ) -> Time {
        let private = &mut self.private[core];
        // A back-invalidation on the way down cannot have brought the line back in.
        let (slot, evicted) = private.l2.insert(home, false, writable);
        if !private.l2_ready.is_empty() {
            let index = private.l2.slot_index(slot);
            private.l2_ready[index] = ready;
        }
        match evicted {
            Some(evicted) => self.leave_l2(core, evicted.line, evicted.dirty, now, below),
            None => Time::ZERO,
        }
    }

    /// A line left `core`'s L2.
    #[inline(always)]
    fn leave_l2<B: Below>(&mut self, core: usize, line: u64, dirty: bool, now: Time, below: &mut B) -> Time {
        let mut taken = Time::ZERO;
        if dirty {
            self.counters.l2.writebacks += 1;
            taken = self.write_to_llc(line, now, below);
        }
        if let Some(directory) = &mut self.directory
            && !self.private[core].l1.holds(line)
        {
            directory.remove(line, core as u32);
        }
        taken
    }

    /// A dirty line arrives at the last level from above.
    #[inline(always)]
    fn write_to_llc<B: Below>(&mut self, line: u64, now: Time, below: &mut B) -> Time {
        let home = self.llc.home(line);
        if let Some(held) = self.llc.touch(home) {
            self.llc.set_dirty(held.slot);
            Time::ZERO
        } else {
            self.install_llc(home, true, now, below)
        }
    }

    #[inline(always)]
    fn install_llc<B: Below>(&mut self, home: Home, dirty: bool, now: Time, below: &mut B) -> Time {
        let (_, evicted) = self.llc.insert(home, dirty, true);
        let Some(evicted) = evicted else { return Time::ZERO };
        let mut dirty = evicted.dirty;
        if self.inclusive {
            dirty |= self.evict_from_private(evicted.line);
        }
        if dirty {
            self.counters.llc.writebacks += 1;
            return below.evict(evicted.line, now);
        }
        Time::ZERO
    }

    /// One bit per core whose private caches may hold a line.
    fn holders(&self, line: u64) -> u64 {
        match (&self.directory, self.only_core) {
            (Some(directory), _) => directory.sharers(line).mask,
            (None, Some(core)) => 1 << core,
            (None, None) => 0,
        }
    }

    /// The inclusive last level gave up a line: it leaves the private caches too. Returns whether one had modified it.
    fn evict_from_private(&mut self, line: u64) -> bool {
        let mut mask = self.holders(line);
        let mut dirty = false;
        while mask != 0 {
            let core = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let private = &mut self.private[core];
            private.forget(line);
            let l1 = private.l1.invalidate(private.l1.home(line));
            let l2 = private.l2.invalidate(private.l2.home(line));
            if l1.is_some() || l2.is_some() {
                self.counters.back_invalidations += 1;
            }
            dirty |= l1 == Some(true) || l2 == Some(true);
            if let Some(directory) = &mut self.directory {
                directory.remove(line, core as u32);
            }
        }
        dirty
    }

    /// Trains the prefetcher with an access that reached L2 and fetches what it predicts into L2.
    #[inline(always)]
    fn prefetch<B: Below>(&mut self, core: usize, line: u64, now: Time, below: &mut B) {
        if self.private[core].prefetcher.is_some() {
            self.prefetch_predicted(core, line, now, below);
        }
    }

    #[inline(never)]
    fn prefetch_predicted<B: Below>(&mut self, core: usize, line: u64, now: Time, below: &mut B) {
        let Some(prefetcher) = self.private[core].prefetcher.as_mut() else { return };
        let predicted = prefetcher.train(line);
        for line in predicted {
            let private = &self.private[core];
            if private.l2.holds(line) || private.l1.holds(line) {
                continue;
            }
            self.counters.prefetches += 1;
            // A prefetch neither counts as a lookup nor takes a demand miss's register.
            let mut writable = true;
            let mut supplied = false;
            if self.directory.is_some() {
                (supplied, writable) = self.consult_directory(core, line, false, now, below);
            }
            let looked_up = now + self.llc_latency;
            let ready = if supplied {
                now + self.cache_to_cache_latency
            } else if self.llc.touch(self.llc.home(line)).is_some() {
                looked_up
            } else {
                let done = below.fill(line, looked_up, Initiator::Prefetch);
                self.install_llc(self.llc.home(line), false, now, below);
                done
            };
            let home = self.private[core].l2.home(line);
            self.install_l2(core, home, writable, ready, now, below);
        }
    }

    /// Whether a core's private caches hold a line.
    #[inline]
    pub fn is_private(&self, core: usize, line: u64) -> bool {
        self.private[core].l1.holds(line) || self.private[core].l2.holds(line)
    }

    /// Removes a line from all caches without writing it back: its memory was freed or replaced, or a copy of its page
    /// took it from there. Returns whether any held it.
    pub fn discard(&mut self, line: u64) -> bool {
        let mut held = self.llc.invalidate(self.llc.home(line)).is_some();
        let mut sharers = self.holders(line);
        while sharers != 0 {
            let core = sharers.trailing_zeros() as usize;
            sharers &= sharers - 1;
            held |= self.is_private(core, line);
            self.drop_private(core, line);
            if let Some(directory) = &mut self.directory {
                directory.remove(line, core as u32);
            }
        }
        held
    }

    /// A core writes zeros over a whole line and keeps it in its L1, modified. Nothing is read, since no old byte stays.
    /// Returns whether a cache held the line before, and when the device has taken what had to leave for it.
    pub fn zero_in_l1<B: Below>(&mut self, core: usize, line: u64, now: Time, below: &mut B) -> (bool, Time) {
        let held = self.discard(line);
        self.counters.zero_fills += 1;
        let mut taken = Time::ZERO;
        if self.inclusive {
            taken = self.install_llc(self.llc.home(line), false, now, below);
        }
        let sole = Sharers { mask: 1 << core, exclusive: true };
        if let Some((old_line, old)) = self.directory.as_mut().and_then(|d| d.record(line, sole)) {
            self.back_invalidate(old_line, old.mask, now, below);
        }
        let private = &mut self.private[core];
        let (slot, evicted) = private.l1.insert(private.l1.home(line), true, true);
        let index = private.l1.slot_index(slot);
        private.l1_ready[index] = now;
        private.forget(line);
        if let Some(evicted) = evicted {
            taken = taken.max(self.leave_l1(core, evicted.line, evicted.dirty, now, below));
        }
        (held, taken)
    }

    /// The same for a line that lies in the last level alone afterwards.
    pub fn zero_in_llc<B: Below>(&mut self, line: u64, now: Time, below: &mut B) -> (bool, Time) {
        let held = self.discard(line);
        self.counters.zero_fills += 1;
        (held, self.install_llc(self.llc.home(line), true, now, below))
    }

    /// Lines that the last level can hold.
    pub fn llc_lines(&self) -> u64 {
        self.llc.lines() as u64
    }

    /// Asks the host's memory for the last level's set of a line, ahead of its use.
    #[inline(always)]
    pub fn host_prefetch_llc(&self, line: u64) {
        self.llc.prefetch_set(self.llc.home(line));
    }

    /// Asks the host's memory for what an access to `line` will probably need, ahead of its time.
    #[inline(always)]
    pub fn host_prefetch(&self, core: usize, line: u64) {
        self.host_prefetch_llc(line);
        // The sets of the private caches are near enough.
        let l2 = &self.private[core].l2;
        if let Some(victim) = l2.likely_dirty_victim(l2.home(line)) {
            self.host_prefetch_llc(victim);
        }
    }
}
