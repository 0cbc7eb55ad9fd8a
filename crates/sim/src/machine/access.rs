//! One access: translation, caches, memory, and the core's accounting.
//!
//! Order: core, then the level-1 TLB, L1, L2, last level with directory, memory. Where translation stands in that order
//! is the scheme's choice.

use super::build::{Core, Machine, Shared};
use super::intermediate::{Intermediate, Name};
use super::regions::{BasePage, Region};
use super::tiers::TieredMemory;
use crate::cache::{Below, Served};
use crate::core::Timeline;
use crate::memory::Initiator;
use crate::os::{Fault, Leaf, Os, OsError, Pte};
use crate::translate::{TlbEntry, TlbHit};
use terrace_model::{AddressRange, LINE_BYTES, PageSize, Time};

/// Everything.
pub(super) const FULL: u8 = 0;
/// TLBs, page-walk cache and walks; no data caches.
pub(super) const TRANSLATION: u8 = 1;
/// Residency and unfiltered traffic.
pub(super) const PAGES: u8 = 2;

/// x86-64 page tables behind TLBs.
pub(super) const RADIX: u8 = 0;
/// The same, free of charge.
pub(super) const PERFECT: u8 = 1;
/// Translation beside the last level.
pub(super) const VIVT: u8 = 2;
/// Page tables behind TLBs, and hardware that profits from contiguity.
pub(super) const CONTIGUOUS: u8 = 3;

/// Why an access was not made.
#[derive(Debug)]
pub(super) enum Stop {
    /// Its page is between unmap and map, or its fault waits for a block: the thread waits, then makes the access again.
    Held,
    /// The simulated kernel failed.
    Failed(OsError),
}

/// A walk that ended at a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub leaf: Leaf,
    /// The leaf's entry with the bits that the walk set.
    pub pte: Pte,
    /// When the TLBs had answered, after faults.
    pub looked_up: Time,
    /// When it began: a walker may have had to become free first.
    pub begin: Time,
    pub done: Time,
}

impl From<OsError> for Stop {
    fn from(error: OsError) -> Stop {
        Stop::Failed(error)
    }
}

impl Below for TieredMemory {
    #[inline(always)]
    fn translated(&self, now: Time) -> Time {
        now
    }
    #[inline(always)]
    fn fill(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        self.read(line, now, by)
    }
    #[inline(always)]
    fn evict(&mut self, line: u64, now: Time) -> Time {
        self.write(line, now, Initiator::Writeback)
    }
}

/// Memory under virtually tagged caches: lines carry virtual names down to here.
struct NamedMemory<'a> {
    memory: &'a mut TieredMemory,
    os: &'a Os,
    names: &'a Intermediate,
    /// When the translation that runs beside the last level's lookup is done.
    translated: Time,
}

impl NamedMemory<'_> {
    fn physical(&self, line: u64) -> Option<u64> {
        match self.names.resolve(line) {
            Name::Physical(line) => Some(line),
            Name::Virtual { space, addr } => {
                let leaf = self.os.table(space).find(addr)?;
                Some(physical_line(leaf.pte.frame().0, addr, leaf.size))
            }
        }
    }
}

impl Below for NamedMemory<'_> {
    fn translated(&self, now: Time) -> Time {
        now.max(self.translated)
    }
    fn fill(&mut self, line: u64, now: Time, by: Initiator) -> Time {
        // A prefetched line of a page that is not there reads nothing.
        match self.physical(line) {
            Some(physical) => self.memory.read(physical, now.max(self.translated), by),
            None => now,
        }
    }
    fn evict(&mut self, line: u64, now: Time) -> Time {
        match self.physical(line) {
            Some(physical) => self.memory.write(physical, now, Initiator::Writeback),
            None => now,
        }
    }
}

/// The physical line of an address in the page of `size` that begins in base frame `frame`.
#[inline(always)]
pub(super) fn physical_line(frame: u64, addr: u64, size: PageSize) -> u64 {
    ((frame << 12) + (addr & (size.bytes() - 1))) / LINE_BYTES
}

impl Shared {
    /// Reads or writes a physical line through a core's caches.
    #[inline(always)]
    fn access_physical(&mut self, core: usize, line: u64, write: bool, now: Time, by: Initiator) -> Served {
        self.caches.access(core, line, write, now, by, &mut self.memory)
    }

    /// The same under virtually tagged caches, for a line with only a physical address.
    fn access_physical_named(&mut self, core: usize, line: u64, write: bool, now: Time) -> Served {
        let mut below = NamedMemory {
            memory: &mut self.memory,
            os: &self.os,
            names: &self.intermediate,
            translated: Time::ZERO,
        };
        self.caches.access(core, Intermediate::physical(line), write, now, Initiator::Walk, &mut below)
    }

    /// A page-table entry, fetched by a walker.
    #[inline]
    pub(super) fn fetch_entry<const F: u8, const S: u8>(
        &mut self,
        core: usize,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Time {
        if F != FULL {
            // Without data caches every entry is taken to come from the last level.
            return now + self.timing.llc;
        }
        let line = addr / LINE_BYTES;
        if S == VIVT {
            self.access_physical_named(core, line, write, now).done
        } else {
            self.access_physical(core, line, write, now, Initiator::Walk).done
        }
    }

    /// The time and traffic of a page fault, on the core that took it.
    fn charge_fault<const F: u8>(&mut self, core: &mut Core, space: u32, addr: u64, fault: &Fault) {
        core.pipeline.drain();
        let lines = fault.size.bytes() / LINE_BYTES;
        let begin = core.pipeline.now;
        // The cost of a fault covers zeroing a base page, which stays in the cache; larger pages stream to memory.
        let beyond_base = lines - PageSize::Base.bytes() / LINE_BYTES;
        let zeroing = if fault.zeroed { Time::ZERO } else { self.timing.zero_line.times(beyond_base) };
        core.pipeline.kernel(self.timing.fault + zeroing);
        let took = core.pipeline.now - core.fault_began(space, addr).unwrap_or(begin);
        self.fault_time += took;
        core.stalled_fault = None;
        self.fault_latency[fault.size.index()].record(took.as_nanos() as u64);
        if let Some(parts) = &mut self.parts {
            parts.faulted(space, addr, took);
        }
        if F == FULL && !fault.zeroed {
            let pace = if fault.size == PageSize::Base {
                Time(self.timing.fault.0 / lines)
            } else {
                self.timing.zero_line
            };
            let taken = match fault.copied_from {
                Some(source) => (0..lines).fold(begin, |taken, line| {
                    let at = taken.max(begin + pace.times(line));
                    self.memory.read(source.addr().line() + line, at, Initiator::Copy);
                    self.memory.write(fault.frame.addr().line() + line, at, Initiator::Copy)
                }),
                None => self.memory.zero(fault.frame, fault.size.bytes(), begin, pace),
            };
            // Nobody writes faster than memory takes it.
            core.pipeline.wait_for_memory(taken.saturating_sub(core.pipeline.now));
        }
    }

    /// The leaf that maps `addr`, if any; of a base page only the two lowest tables may be known.
    #[inline(always)]
    pub(super) fn find_leaf(&mut self, space: u32, addr: u64) -> Option<Leaf> {
        let table = self.os.table(space);
        if let Some(Region::Table(index, above)) = self.regions.get(space, addr)
            && let Some(pte) = table.base_entry(index, addr)
        {
            debug_assert_eq!(table.find(addr).map(|leaf| leaf.pte), Some(pte), "a table of another region");
            return Some(Leaf::of_base_page(pte, index, above));
        }
        self.find_leaf_from_root(space, addr)
    }

    /// The same by all tables; what maps the region is known afterwards.
    #[inline(never)]
    pub(super) fn find_leaf_from_root(&mut self, space: u32, addr: u64) -> Option<Leaf> {
        let leaf = self.os.table(space).find(addr)?;
        self.regions.put(space, addr, &leaf, leaf.pte);
        Some(leaf)
    }

    /// The leaf that maps `addr` for an access of this kind, after whatever faults that takes.
    #[inline]
    fn resolve<const F: u8>(
        &mut self,
        core: &mut Core,
        space: u32,
        addr: u64,
        write: bool,
    ) -> Result<(Leaf, bool), Stop> {
        let mut faulted = false;
        loop {
            match self.find_leaf(space, addr) {
                Some(leaf) if !leaf.pte.stops(write) => return Ok((leaf, faulted)),
                Some(leaf) if leaf.pte.is_held() => {
                    self.stopped_at = Some((space, addr >> 12));
                    return Err(Stop::Held);
                }
                Some(leaf) if write && leaf.pte.is_copy_on_write() => {
                    self.os.now = core.pipeline.now;
                    if let Some(fault) = self.os.break_sharing(space, addr, &leaf)? {
                        let page = AddressRange::new(addr & !(leaf.size.bytes() - 1), leaf.size.bytes());
                        self.regions.flush();
                        self.forget(space, page);
                        self.dropped_pages.push((space, page));
                        if leaf.size != PageSize::Base {
                            // The caller replaces the entry of a base page; of a larger one parts may be remembered,
                            // or it was split.
                            core.tlbs.invalidate(space, page);
                        } else {
                            core.tlbs.contiguity.drop_changed(space, page);
                        }
                        self.charge_fault::<F>(core, space, addr, &fault);
                    }
                    faulted = true;
                }
                Some(leaf) => {
                    if self.take_trap(core, space, addr, &leaf, write) {
                        return Ok((leaf, true));
                    }
                    faulted = true;
                }
                None => {
                    self.os.now = core.pipeline.now;
                    let fault = match &mut self.tiering {
                        Some(tiering) => {
                            let now = core.pipeline.now;
                            let Some(fault) = tiering.fault(&mut self.os, space, addr, write, now)? else {
                                core.fault_stalls(space, addr);
                                self.stopped_at = Some((space, addr >> 12));
                                return Err(Stop::Held);
                            };
                            fault
                        }
                        None => self.os.fault(space, addr, &[])?,
                    };
                    self.charge_fault::<F>(core, space, addr, &fault);
                    faulted = true;
                }
            }
        }
    }

    /// A walk met a page that a policy watches. Answers whether the access goes on although the page stays trapped.
    #[inline(never)]
    fn take_trap(&mut self, core: &mut Core, space: u32, addr: u64, leaf: &Leaf, write: bool) -> bool {
        let Some(tiering) = &mut self.tiering else { return true };
        core.pipeline.drain();
        let trap = tiering.trap(&mut self.os, space, addr, leaf, write, core.pipeline.now);
        core.pipeline.kernel(trap.cost);
        if leaf.size != PageSize::Base {
            self.regions.flush();
        }
        trap.goes_on
    }

    /// An access of the program read memory, while somebody wants to know.
    #[inline(never)]
    pub(super) fn reached_memory(&mut self, core: &mut Core, space: u32, addr: u64, write: bool) {
        if let Some(profile) = &mut self.profile {
            profile.count(space, addr, write);
        }
        if let Some(placement) = &mut self.placement {
            let leaf = self.os.table(space).find(addr);
            placement.count(space, addr, leaf.map(|leaf| self.os.tier_of(leaf.pte.frame())));
        }
        if let Some(tiering) = &mut self.tiering {
            let cost = tiering.reached_memory(space, addr, write);
            if cost > Time::ZERO {
                core.pipeline.kernel(cost);
            }
        }
    }

    /// Translation from the simulator's own tables, for schemes and fidelities without TLBs.
    #[inline(always)]
    pub(super) fn translate_for_free<const F: u8>(
        &mut self,
        core: &mut Core,
        space: u32,
        addr: u64,
        write: bool,
    ) -> Result<BasePage, Stop> {
        match self.regions.find(self.os.table(space), space, addr) {
            Some(page) if page.allows(write) => Ok(page),
            _ => self.translate_for_free_slowly::<F>(core, space, addr, write),
        }
    }

    #[inline(never)]
    fn translate_for_free_slowly<const F: u8>(
        &mut self,
        core: &mut Core,
        space: u32,
        addr: u64,
        write: bool,
    ) -> Result<BasePage, Stop> {
        let (leaf, _) = self.resolve::<F>(core, space, addr, write)?;
        let pte = self.os.mark(space, addr, &leaf, write);
        self.regions.put(space, addr, &leaf, pte);
        let within = (addr & (leaf.size.bytes() - 1)) >> 12;
        Ok(BasePage {
            frame: pte.frame().0 + within,
            size: leaf.size,
            readable: pte.is_readable_at_once(),
            writable: pte.is_writable_at_once(),
        })
    }
}

impl Core {
    /// A fault waits, if it does not do so already.
    fn fault_stalls(&mut self, space: u32, addr: u64) {
        if self.fault_began(space, addr).is_none() {
            self.stalled_fault = Some((space, addr, self.pipeline.now));
        }
    }

    /// When a fault that has waited began.
    fn fault_began(&self, space: u32, addr: u64) -> Option<Time> {
        let (_, _, began) = self.stalled_fault.filter(|(of, at, _)| (*of, *at) == (space, addr))?;
        Some(began)
    }

    /// Translates through TLBs and page walks. Answers the page and when its address is known.
    #[inline(always)]
    fn translate<const F: u8, const S: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Result<(TlbHit, Time), Stop> {
        if S == CONTIGUOUS {
            return self.translate_contiguous::<F>(id, shared, space, addr, write, now);
        }
        if let Some(hit) = self.tlbs.lookup_l1(space, addr) {
            if !write || hit.entry.is_dirty() {
                return Ok((hit, now));
            }
            return self.set_dirty::<F, S>(id, shared, space, addr, now);
        }
        self.translate_beyond_l1::<F, S>(id, shared, space, addr, write, now)
    }

    #[inline(never)]
    fn translate_beyond_l1<const F: u8, const S: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Result<(TlbHit, Time), Stop> {
        let looked_up = now + shared.timing.l2_tlb;
        if let Some(hit) = self.tlbs.lookup_l2(space, addr) {
            if write && !hit.entry.is_dirty() {
                return self.set_dirty::<F, S>(id, shared, space, addr, looked_up);
            }
            return Ok((hit, looked_up));
        }
        let Walk { leaf, pte, done, .. } = self.walk::<F, S>(id, shared, space, addr, write, looked_up)?;
        let hit = TlbHit { entry: TlbEntry::new(pte.frame().0, pte.is_writable_in_tlb()), size: leaf.size };
        let hit = self.whole_translation(addr, hit);
        self.tlbs.fill_after_walk(space, addr, hit);
        Ok((hit, done))
    }

    /// A page walk, after whatever faults its access takes. `looked_up`: when the TLBs had answered that it needs one.
    #[inline(always)]
    pub(super) fn walk<const F: u8, const S: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        looked_up: Time,
    ) -> Result<Walk, Stop> {
        let (leaf, faulted) = shared.resolve::<F>(self, space, addr, write)?;
        // The instruction begins again after a fault, and walks then.
        let looked_up = if faulted { self.pipeline.now + shared.timing.l2_tlb } else { looked_up };
        let begin = self.walkers.start(looked_up);
        let pte = shared.os.mark(space, addr, &leaf, write);
        let bits_set = pte != leaf.pte;
        let leaf_level = leaf.size.index() as u32 + 1;
        let levels = shared.os.table(space).levels();
        let start = self.page_walk_cache.start_level(space, addr, leaf_level, levels);
        // Where the walk reads tables that the short cut to the leaf passed by, it is gone from the root.
        let leaf = if leaf.knows(start) { leaf } else { shared.os.table(space).find(addr).unwrap_or(leaf) };
        let mut at = begin + shared.timing.page_walk_cache;
        for level in (leaf_level..=start).rev() {
            let entry = shared.os.table(space).entry_address(&leaf, addr, level);
            if self.nested.is_some() {
                at = self.walk_host::<F, S>(id, shared, entry.0, at);
            }
            // A walker that sets an accessed or dirty bit writes the leaf's line.
            let sets_bits = level == leaf_level && bits_set;
            at = shared.fetch_entry::<F, S>(id, entry.0, sets_bits, at);
            shared.walks.memory_refs += 1;
        }
        self.page_walk_cache.fill(space, addr, leaf_level + 1, start);
        if self.nested.is_some() {
            let data = physical_line(pte.frame().0, addr, leaf.size) * LINE_BYTES;
            at = self.walk_host::<F, S>(id, shared, data, at);
        }
        self.walkers.occupy(at);
        shared.walks.count += 1;
        shared.walks.time += at - begin;
        if let Some(parts) = &mut shared.parts {
            parts.walked(space, addr, at - begin);
        }
        if let Some(tiering) = &mut shared.tiering {
            tiering.walked(space, addr, leaf.size);
        }
        Ok(Walk { leaf, pte, looked_up, begin, done: at })
    }

    /// Nested paging: translates a guest-physical address that a walk met.
    #[inline(never)]
    fn walk_host<const F: u8, const S: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        addr: u64,
        mut at: Time,
    ) -> Time {
        let Some(nested) = &mut self.nested else { return at };
        at += shared.timing.nested_tlb;
        let levels = nested.levels_to_fetch(addr, &mut self.page_walk_cache);
        if levels.len() > 0 {
            at += shared.timing.page_walk_cache;
        }
        for level in levels {
            at = shared.fetch_entry::<F, S>(id, nested.entry_address(addr, level), false, at);
            shared.walks.memory_refs += 1;
        }
        at
    }

    /// What a TLB holds of a translation: under nested paging no more than a page of the host.
    #[inline(always)]
    fn whole_translation(&self, addr: u64, hit: TlbHit) -> TlbHit {
        match &self.nested {
            None => hit,
            Some(nested) => nested.splinter(addr, hit),
        }
    }

    /// The first store through a TLB entry whose dirty bit is not set: the hardware sets it in the page table, or
    /// faults where the page is shared since a fork.
    #[inline(never)]
    pub(super) fn set_dirty<const F: u8, const S: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        now: Time,
    ) -> Result<(TlbHit, Time), Stop> {
        let (leaf, faulted) = shared.resolve::<F>(self, space, addr, true)?;
        let pte = shared.os.mark(space, addr, &leaf, true);
        let hit = TlbHit { entry: TlbEntry::new(pte.frame().0, true), size: leaf.size };
        let hit = self.whole_translation(addr, hit);
        if S == CONTIGUOUS {
            self.update_contiguous(shared, space, addr, &leaf, pte, hit);
        } else {
            self.tlbs.update(space, addr, hit);
        }
        let begin = if faulted { self.pipeline.now } else { now };
        if pte == leaf.pte {
            return Ok((hit, begin));
        }
        shared.walks.dirty_updates += 1;
        let entry = shared.os.table(space).entry_address(&leaf, addr, leaf.size.index() as u32 + 1);
        let done = shared.fetch_entry::<F, S>(id, entry.0, true, begin);
        Ok((hit, done))
    }

    /// One line of an access, from its issue at `now`.
    #[inline(always)]
    pub(super) fn access_line<const F: u8, const S: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
        by: Initiator,
    ) -> Result<Timeline, Stop> {
        if S == VIVT {
            return self.access_named_line::<F>(id, shared, space, addr, write, now, by);
        }
        let (line, translated) = if S == PERFECT {
            let page = shared.translate_for_free::<F>(self, space, addr, write)?;
            self.tlbs.counters.l1_hits[page.size.index()] += 1;
            (physical_line(page.frame, addr, PageSize::Base), now.max(self.pipeline.now))
        } else {
            let (hit, translated) = self.translate::<F, S>(id, shared, space, addr, write, now)?;
            (physical_line(hit.entry.frame(), addr, hit.size), translated)
        };
        // A fault moved the core's clock: the access begins again after it. (Without one the clock may be ahead of the
        // second line of an access, whose first had to wait for a miss register.)
        let start = now.max(self.pipeline.now).min(translated);
        if F != FULL {
            return Ok(Timeline {
                start,
                translated,
                cache_start: translated,
                cache_end: translated,
                done: translated,
            });
        }
        let served = shared.access_physical(id, line, write, translated, by);
        self.wait_for_register(served.cache_start.saturating_sub(translated));
        Ok(timeline(start, translated, served))
    }

    /// No miss register was free for so long. Dispatch stands still meanwhile: what lies behind a miss that cannot be
    /// sent is mostly misses too, and requests must not reach shared devices far ahead of the other cores' clocks.
    #[inline(always)]
    pub(super) fn wait_for_register(&mut self, span: Time) {
        if span > Time::ZERO {
            self.pipeline.wait_for_memory(span);
        }
    }

    /// The same under virtually tagged caches: L1 and L2 need no translation; beyond them it runs beside the last
    /// level's lookup, whose answer waits for it (permissions are in the TLB).
    fn access_named_line<const F: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
        by: Initiator,
    ) -> Result<Timeline, Stop> {
        let line = shared.intermediate.line(space, addr);
        let mut translated = now;
        // Permissions travel with a line; fork takes the right to write away.
        let shared_page = write && shared.os.is_copy_on_write(space, addr);
        if shared_page || !shared.caches.is_private(id, line) {
            (_, translated) =
                self.translate::<F, VIVT>(id, shared, space, addr, write, now + shared.timing.l2)?;
        }
        // A fault moved the core's clock.
        let now = now.max(self.pipeline.now);
        let mut below = NamedMemory {
            memory: &mut shared.memory,
            os: &shared.os,
            names: &shared.intermediate,
            translated,
        };
        let served = shared.caches.access(id, line, write, now, by, &mut below);
        self.wait_for_register(served.cache_start.saturating_sub(now));
        // What translation adds beyond the last level's own lookup is its share of the wait.
        let hidden = now + shared.timing.llc;
        let late = if translated > hidden { translated } else { now };
        Ok(Timeline {
            start: now,
            translated: late,
            cache_start: late.max(served.cache_start),
            cache_end: late.max(served.cache_end),
            done: late.max(served.done),
        })
    }

    /// An access that may lie on several lines: it is done when the last of them is.
    #[inline(never)]
    pub(super) fn access_lines<const F: u8, const S: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        size: u8,
        write: bool,
        now: Time,
    ) -> Result<Timeline, Stop> {
        let mut whole = self.access_line::<F, S>(id, shared, space, addr, write, now, Initiator::Demand)?;
        let last = addr.wrapping_add(u64::from(size.max(1)) - 1) / LINE_BYTES;
        for line in addr / LINE_BYTES + 1..=last {
            let part = self.access_line::<F, S>(
                id,
                shared,
                space,
                line * LINE_BYTES,
                write,
                now,
                Initiator::Demand,
            )?;
            if part.done > whole.done {
                whole = part;
            }
        }
        Ok(whole)
    }

    /// Bytes that a system call copies: the kernel touches every line of the buffer from the `done`th on, on this core,
    /// and counts them there: it may have to stop at a page on the move.
    pub fn kernel_access<const F: u8, const S: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        bytes: u64,
        write: bool,
        done: &mut u64,
    ) -> Result<(), Stop> {
        if bytes == 0 {
            return Ok(());
        }
        self.tlbs.contiguity.set_instruction(None);
        let last = addr.saturating_add(bytes - 1) / LINE_BYTES;
        for line in addr / LINE_BYTES + *done..=last {
            let addr = line * LINE_BYTES;
            if F == PAGES {
                shared.translate_for_free::<F>(self, space, addr, write)?;
                shared.kernel_lines += 1;
                *done += 1;
                continue;
            }
            // A copy loop moves a line in about two instructions.
            self.pipeline.dispatch(2);
            let now = self.pipeline.now;
            let timeline =
                self.access_line::<F, S>(id, shared, space, addr, write, now, Initiator::Kernel)?;
            self.pipeline.access(write, timeline);
            shared.kernel_lines += 1;
            *done += 1;
        }
        Ok(())
    }
}

#[inline(always)]
pub(super) fn timeline(start: Time, translated: Time, served: Served) -> Timeline {
    Timeline {
        start,
        translated,
        cache_start: served.cache_start,
        cache_end: served.cache_end,
        done: served.done,
    }
}

impl Machine {
    /// Tells every core's translation hardware that pages of a range are gone.
    pub fn shoot_down(&mut self, space: u32, range: AddressRange) {
        for core in &mut self.cores {
            core.tlbs.invalidate(space, range);
            core.page_walk_cache.flush();
        }
        self.shared.regions.flush();
        self.shared.forget(space, range);
    }

    /// Tells all cores but `core` of the pages whose sharing it broke.
    pub fn drop_pages(&mut self, core: usize) {
        for (space, page) in self.shared.dropped_pages.drain(..) {
            for (other, hardware) in self.cores.iter_mut().enumerate() {
                if other != core {
                    hardware.tlbs.invalidate(space, page);
                }
            }
        }
    }

    /// Tells every core's translation hardware that a process changed as a whole (fork, exec, exit).
    pub fn shoot_down_space(&mut self, space: u32) {
        for core in &mut self.cores {
            core.tlbs.flush_space(space);
            core.page_walk_cache.flush();
        }
        self.shared.regions.flush();
        self.shared.forget(space, AddressRange::new(0, u64::MAX));
    }

    /// Drops the virtually named lines of a range from the caches, where names are virtual: the addresses may be
    /// backed by other memory next. Dirty lines of freed memory need no writeback.
    pub fn discard_lines(&mut self, space: u32, range: AddressRange) {
        for (page, size, _) in self.shared.os.table(space).pages_in(range) {
            for line in 0..size.bytes() / LINE_BYTES {
                let line = self.shared.intermediate.line(space, page + line * LINE_BYTES);
                self.shared.caches.discard(line);
            }
        }
    }
}
