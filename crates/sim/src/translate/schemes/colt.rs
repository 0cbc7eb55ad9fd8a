//! Coalesced TLBs: an entry covers the run of pages around the one walked, inside an aligned group.
//!
//! **What it does.** A walk fetches a cache line with the page-table entries of eight neighbours. Those next to the
//! page walked that lie in the neighbouring frames with the same attributes become one TLB entry. The set is taken from
//! the group's number, so that all pages of a group look in the same set.
//!
//! **Source.** Pham, Vaidyanathan, Jaleel, Bhattacharjee, "CoLT: Coalesced Large-Reach TLBs", MICRO 2012: its
//! set-associative variant (CoLT-SA), with groups up to the eight entries of a line; by descriptions of the paper it found groups
//! of four the better balance for that variant (`pages = 4`). Not here: CoLT-FA, which keeps longer runs in the
//! fully associative TLB of huge pages, and CoLT-All, which is both.
//!
//! **Left open, and chosen here.** *Accessed bits*: x86 caches no translation whose accessed bit is clear, and a hit sets
//! none, so an entry covers only pages whose bit is set already; the page walked has its own set by the walk. *Dirty
//! bits*: all pages of an entry agree. The first store through a clean entry visits the page table as ever; the line is
//! at hand then, and the entry becomes the run of pages that agree with the one stored to. *Invalidation*: an entry that
//! overlaps is dropped whole. *Two runs of one group* are two entries of its set. *Groups of 16* stand for a walker that
//! fetches a pair of lines; the second delays nothing. *2 MiB pages* coalesce by the same rule where asked for. A hit
//! in level 2 fills level 1 with what the level-2 entry covers.

use crate::os::{Leaf, PageTable, Pte};
use crate::translate::{
    Associativity, Request, SchemeKeys, Setup, Stop, TlbCounters, TlbEntry, TlbHit, TranslationParameters,
    Translation, Walker, base_pages,
};
use serde::{Deserialize, Serialize};
use terrace_model::{AddressRange, LINE_BYTES, PageSize, Stats, Time, Unit};

/// Parameters of coalesced TLBs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoalescedParameters {
    /// Pages of an aligned group that one entry may cover: 2, 4, 8 or 16. Eight page-table entries share a cache line;
    /// for 16 the walker fetches the line beside it too.
    pub pages: u32,
    /// Levels whose entries coalesce.
    pub levels: CoalescedLevels,
    /// Page sizes whose entries coalesce.
    pub sizes: Vec<PageSize>,
}

impl Default for CoalescedParameters {
    fn default() -> CoalescedParameters {
        CoalescedParameters { pages: 8, levels: CoalescedLevels::Both, sizes: vec![PageSize::Base] }
    }
}

impl SchemeKeys for CoalescedParameters {
    fn validate(&self) -> Result<(), (&'static str, String)> {
        if !matches!(self.pages, 2 | 4 | 8 | 16) {
            return Err(("pages", format!("{} is not 2, 4, 8 or 16", self.pages)));
        }
        if self.sizes.is_empty() {
            return Err(("sizes", "names no page size".to_owned()));
        }
        if self.sizes.contains(&PageSize::Giant) {
            return Err(("sizes", "only 4k and 2m pages coalesce".to_owned()));
        }
        Ok(())
    }
}

/// Levels of TLB that coalesce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CoalescedLevels {
    /// Level 1 and level 2.
    #[default]
    Both,
    /// Level 1 only.
    L1,
    /// Level 2 only.
    L2,
}


/// Pages of one size in a row, in frames in a row, with the same attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// Number of the first page, at its size.
    pub first: u64,
    /// How many.
    pub pages: u64,
    /// Base frame of the first byte.
    pub frame: u64,
    /// Whether stores may go ahead without visiting the page table.
    pub dirty: bool,
}

impl PageRun {
    /// The run around the page of `addr` in its aligned group of `pages`. `pte` is the entry that `leaf` was found in, as
    /// the walk left it.
    pub fn around(table: &PageTable, leaf: &Leaf, pte: Pte, addr: u64, pages: u64) -> PageRun {
        let size = leaf.size;
        let page = addr >> size.shift();
        let alone = PageRun { first: page, pages: 1, frame: pte.frame().0, dirty: pte.is_writable_in_tlb() };
        if pages == 1 || !pte.is_plain() {
            return alone;
        }
        let number = leaf.table(size.index() as u32 + 1);
        let agrees = |other: u64| {
            let frame = alone.frame.wrapping_add(other.wrapping_sub(page).wrapping_mul(size.base_pages()));
            table.leaf_in(number, other << size.shift(), size).is_some_and(|entry| {
                entry.is_plain()
                    && entry.is_accessed()
                    && entry.is_dirty() == pte.is_dirty()
                    && entry.frame().0 == frame
            })
        };
        let group = page & !(pages - 1);
        let (mut first, mut end) = (page, page + 1);
        while first > group && agrees(first - 1) {
            first -= 1;
        }
        while end < group + pages && agrees(end) {
            end += 1;
        }
        let frame = alone.frame - (page - first) * size.base_pages();
        PageRun { first, pages: end - first, frame, dirty: alone.dirty }
    }

    /// The page of `addr` by itself.
    fn alone(addr: u64, hit: TlbHit) -> PageRun {
        let first = addr >> hit.size.shift();
        PageRun { first, pages: 1, frame: hit.entry.frame(), dirty: hit.entry.is_dirty() }
    }

    #[inline(always)]
    fn holds(&self, page: u64) -> bool {
        page.wrapping_sub(self.first) < self.pages
    }

    fn overlaps(&self, first: u64, end: u64) -> bool {
        self.first < end && first < self.first + self.pages
    }

    /// What of the run lies in the aligned group of `pages` around `page`.
    fn within(&self, page: u64, pages: u64, size: PageSize) -> PageRun {
        let group = page & !(pages - 1);
        let first = self.first.max(group);
        let end = (self.first + self.pages).min(group + pages);
        let frame = self.frame + (first - self.first) * size.base_pages();
        PageRun { first, pages: end - first, frame, ..*self }
    }

    fn hit(&self, page: u64, size: PageSize) -> TlbHit {
        let frame = self.frame + (page - self.first) * size.base_pages();
        TlbHit { entry: TlbEntry::new(frame, self.dirty), size }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    space: u32,
    size: PageSize,
    run: PageRun,
    /// Pages of the group that were used since the entry was put in, the page walked included.
    used: u16,
}

impl Entry {
    #[inline(always)]
    fn covers(&self, space: u32, size: PageSize, page: u64) -> bool {
        self.run.holds(page) && self.size == size && self.space == space
    }
}

/// One array, most recent first in each set. No page is covered twice.
#[derive(Clone, Debug, Default)]
struct Array {
    sets: Vec<Vec<Entry>>,
    ways: usize,
}

impl Array {
    fn new(entries: u32, ways: Associativity) -> Result<Array, String> {
        let ways = match ways {
            Associativity::Ways(ways) => ways,
            Associativity::Full(_) => entries.max(1),
        };
        if ways == 0 || !entries.is_multiple_of(ways) {
            return Err(format!("{entries} entries in {ways} ways: the ways must divide the entries"));
        }
        let sets = (entries / ways) as usize;
        Ok(Array { sets: vec![Vec::with_capacity(ways as usize + 1); sets], ways: ways as usize })
    }

    #[inline(always)]
    fn set(&mut self, page: u64, group: u64) -> Option<&mut Vec<Entry>> {
        let sets = self.sets.len() as u64;
        if sets == 0 { None } else { self.sets.get_mut((page / group % sets) as usize) }
    }

    /// The entry that covers a page, now the most recent of its set.
    #[inline]
    fn touch(&mut self, space: u32, size: PageSize, page: u64, group: u64) -> Option<&mut Entry> {
        let set = self.set(page, group)?;
        let at = set.iter().position(|entry| entry.covers(space, size, page))?;
        set[..=at].rotate_right(1);
        set.first_mut()
    }

    /// The entry that covers a page, as recent as it is.
    fn find(&mut self, space: u32, size: PageSize, page: u64, group: u64) -> Option<&mut Entry> {
        self.set(page, group)?.iter_mut().find(|entry| entry.covers(space, size, page))
    }

    fn insert(&mut self, entry: Entry, group: u64) {
        let ways = self.ways;
        let Some(set) = self.set(entry.run.first, group) else { return };
        let end = entry.run.first + entry.run.pages;
        set.retain(|old| {
            old.space != entry.space || old.size != entry.size || !old.run.overlaps(entry.run.first, end)
        });
        set.insert(0, entry);
        set.truncate(ways);
    }

    /// Puts `run` in the place of the entry that covers `page`, if there is one.
    fn replace(&mut self, space: u32, size: PageSize, page: u64, run: PageRun, group: u64) {
        let Some(set) = self.set(page, group) else { return };
        let Some(at) = set.iter().position(|entry| entry.covers(space, size, page)) else { return };
        set[at].run = run;
        let end = run.first + run.pages;
        let mut position = 0;
        set.retain(|entry| {
            position += 1;
            let other = entry.space != space || entry.size != size || !entry.run.overlaps(run.first, end);
            other || position - 1 == at
        });
    }

    fn invalidate(&mut self, space: u32, first: u64, end: u64) {
        for set in &mut self.sets {
            set.retain(|entry| {
                let pages = entry.size.base_pages();
                let from = entry.run.first * pages;
                entry.space != space || from >= end || from + entry.run.pages * pages <= first
            });
        }
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoalescedCounters {
    /// Level-1 hits on entries of several pages.
    pub l1_hits: u64,
    /// Level-2 hits on entries of several pages.
    pub l2_hits: u64,
    /// Walks that put an entry in.
    pub fills: u64,
    /// Pages that those entries covered.
    pub pages: u64,
    /// First uses, since its entry was put in, of a page that was not the one walked.
    pub avoided: u64,
}

/// Both levels of one core. As [`crate::translate::Tlbs`] in everything but that entries cover runs.
#[derive(Clone, Debug)]
pub struct CoalescedTlbs {
    l1: [Array; 3],
    l2: Vec<Array>,
    l2_of_size: [Option<u8>; 3],
    /// Pages of a group, by page size.
    l1_group: [u64; 3],
    l2_group: [u64; 3],
    /// Hits and misses as of any TLB.
    pub counters: TlbCounters,
    /// What is particular to coalescing.
    pub coalesced: CoalescedCounters,
}

impl CoalescedTlbs {
    /// Empty TLBs.
    ///
    /// # Errors
    /// A geometry that cannot be built.
    pub fn new(
        translation: &TranslationParameters,
        own: &CoalescedParameters,
    ) -> Result<CoalescedTlbs, String> {
        let mut l1 = [Array::default(), Array::default(), Array::default()];
        for (size, tlb) in &translation.l1d {
            l1[size.index()] =
                Array::new(tlb.entries, tlb.ways).map_err(|e| format!("translation.l1d.{size}: {e}"))?;
        }
        let mut l2 = Vec::new();
        let mut l2_of_size = [None; 3];
        for array in &translation.l2.array {
            for size in &array.sizes {
                l2_of_size[size.index()] = Some(l2.len() as u8);
            }
            l2.push(Array::new(array.entries, array.ways).map_err(|e| format!("translation.l2.array: {e}"))?);
        }
        let group = |coalesces: bool| {
            PageSize::ALL
                .map(|size| if coalesces && own.sizes.contains(&size) { u64::from(own.pages) } else { 1 })
        };
        Ok(CoalescedTlbs {
            l1,
            l2,
            l2_of_size,
            l1_group: group(own.levels != CoalescedLevels::L2),
            l2_group: group(own.levels != CoalescedLevels::L1),
            counters: TlbCounters::default(),
            coalesced: CoalescedCounters::default(),
        })
    }

    /// Pages of a group of this size: how far a walk should look.
    pub fn group(&self, size: PageSize) -> u64 {
        self.l1_group[size.index()].max(self.l2_group[size.index()])
    }

    /// Looks level 1 up. A miss is not counted yet.
    #[inline]
    pub fn lookup_l1(&mut self, space: u32, addr: u64) -> Option<TlbHit> {
        PageSize::ALL.into_iter().find_map(|size| self.lookup_l1_of(size, space, addr))
    }

    #[inline]
    fn lookup_l1_of(&mut self, size: PageSize, space: u32, addr: u64) -> Option<TlbHit> {
        let (at, page) = (size.index(), addr >> size.shift());
        let group = self.l1_group[at];
        let entry = self.l1[at].touch(space, size, page, group)?;
        let bit = 1 << (page % group);
        let new = entry.used & bit == 0;
        entry.used |= bit;
        let run = entry.run;
        self.counters.l1_hits[at] += 1;
        self.coalesced.l1_hits += u64::from(run.pages > 1);
        if new {
            self.coalesced.avoided += 1;
            let group = self.l2_group[at];
            if let Some(array) = self.l2_of_size[at]
                && let Some(entry) = self.l2[array as usize].find(space, size, page, group)
            {
                entry.used |= 1 << (page % group);
            }
        }
        Some(run.hit(page, size))
    }

    /// Looks level 2 up after a miss in level 1. A hit fills level 1; a miss must be followed by
    /// [`CoalescedTlbs::fill_after_walk`].
    #[inline]
    pub fn lookup_l2(&mut self, space: u32, addr: u64) -> Option<TlbHit> {
        PageSize::ALL.into_iter().find_map(|size| self.lookup_l2_of(size, space, addr))
    }

    fn lookup_l2_of(&mut self, size: PageSize, space: u32, addr: u64) -> Option<TlbHit> {
        let (at, page) = (size.index(), addr >> size.shift());
        let array = self.l2_of_size[at]?;
        let group = self.l2_group[at];
        let entry = self.l2[array as usize].touch(space, size, page, group)?;
        let bit = 1 << (page % group);
        self.coalesced.avoided += u64::from(entry.used & bit == 0);
        entry.used |= bit;
        let (run, used) = (entry.run, entry.used);
        self.counters.l1_misses[at] += 1;
        self.counters.l2_hits += 1;
        self.coalesced.l2_hits += u64::from(run.pages > 1);
        self.fill_l1(space, size, page, run, used);
        Some(run.hit(page, size))
    }

    fn fill_l1(&mut self, space: u32, size: PageSize, page: u64, run: PageRun, used: u16) {
        let group = self.l1_group[size.index()];
        let used = if group == 1 { 1 } else { used | 1 << (page % group) };
        let run = run.within(page, group, size);
        self.l1[size.index()].insert(Entry { space, size, run, used }, group);
    }

    /// Counts the misses of both levels and fills both with the run that the walk found around `addr`.
    pub fn fill_after_walk(&mut self, space: u32, addr: u64, size: PageSize, run: PageRun) -> TlbHit {
        let (at, page) = (size.index(), addr >> size.shift());
        self.counters.l1_misses[at] += 1;
        self.counters.l2_misses += 1;
        self.coalesced.fills += 1;
        self.coalesced.pages += run.pages;
        if let Some(array) = self.l2_of_size[at] {
            let group = self.l2_group[at];
            let entry = Entry { space, size, run: run.within(page, group, size), used: 1 << (page % group) };
            self.l2[array as usize].insert(entry, group);
        }
        self.fill_l1(space, size, page, run, 0);
        run.hit(page, size)
    }

    /// The page of `addr` changed its dirty bit: wherever it is held, its entry becomes `run`.
    pub fn update(&mut self, space: u32, addr: u64, size: PageSize, run: PageRun) {
        let (at, page) = (size.index(), addr >> size.shift());
        let group = self.l1_group[at];
        self.l1[at].replace(space, size, page, run.within(page, group, size), group);
        if let Some(array) = self.l2_of_size[at] {
            let group = self.l2_group[at];
            self.l2[array as usize].replace(space, size, page, run.within(page, group, size), group);
        }
    }

    /// Drops every entry of `space` that covers one of the base pages `first..end`.
    pub fn invalidate(&mut self, space: u32, first: u64, end: u64) {
        self.l1.iter_mut().chain(&mut self.l2).for_each(|array| array.invalidate(space, first, end));
    }
}

/// Coalesced TLBs as a scheme.
#[derive(Debug)]
pub struct Colt {
    tlbs: CoalescedTlbs,
}

impl Translation for Colt {
    const NAME: &'static str = "colt";
    const STATISTICS: &'static [(&'static str, &'static str)] = &[
        ("tlb.coalesced.l1.hit", "hits of level 1 on entries of several pages, among those of `tlb.l1d`"),
        ("tlb.coalesced.l2.hit", "hits of level 2 on entries of several pages, among those of `tlb.l2`"),
        ("tlb.coalesced.fills", "walks that put an entry in"),
        ("tlb.coalesced.covered", "pages that those entries covered"),
        ("walk.avoided", "first uses of a page since its entry was put in by another's walk"),
    ];
    type Keys = CoalescedParameters;
    type Kernel = ();

    fn new(setup: &Setup<'_, CoalescedParameters>) -> Result<Colt, String> {
        Ok(Colt { tlbs: CoalescedTlbs::new(setup.translation, setup.own)? })
    }

    fn kernel(_setup: &Setup<'_, CoalescedParameters>) {}

    #[inline(never)]
    fn translate<W: Walker>(
        &mut self,
        kernel: &mut (),
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        let Request { space, addr, write, now } = *request;
        let looked_up = now + walker.l2_tlb_latency();
        let found = match self.tlbs.lookup_l1(space, addr) {
            Some(hit) => Some((hit, now)),
            None => self.tlbs.lookup_l2(space, addr).map(|hit| (hit, looked_up)),
        };
        if let Some((hit, at)) = found {
            if write && !hit.entry.is_dirty() {
                return walker.set_dirty(self, kernel, &request.at(at));
            }
            return Ok((hit, at));
        }
        let walk = walker.walk(self, kernel, request, looked_up)?;
        let whole = walker.splinter(addr, walk.hit());
        if whole.size != walk.leaf.size {
            // No more than a page of the host: its neighbours have entries of their own.
            return Ok((self.tlbs.fill_after_walk(space, addr, whole.size, PageRun::alone(addr, whole)), walk.done));
        }
        let group = self.tlbs.group(walk.leaf.size);
        let run = PageRun::around(walker.table(space), &walk.leaf, walk.pte, addr, group);
        let hit = self.tlbs.fill_after_walk(space, addr, walk.leaf.size, run);
        if group * 8 > LINE_BYTES && walk.pte.is_plain() {
            // The other line of the pair.
            let level = walk.leaf.size.index() as u32 + 1;
            let entry = walker.table(space).entry_address(&walk.leaf, addr, level).0 ^ LINE_BYTES;
            walker.fetch(self, kernel, entry, false, walk.done);
            walker.count_references(1);
        }
        Ok((hit, walk.done))
    }

    fn update(&mut self, table: &PageTable, request: &Request, leaf: &Leaf, pte: Pte, hit: TlbHit) {
        let Request { space, addr, .. } = *request;
        if hit.size != leaf.size {
            return self.tlbs.update(space, addr, hit.size, PageRun::alone(addr, hit));
        }
        let group = self.tlbs.group(leaf.size);
        let mut run = PageRun::around(table, leaf, pte, addr, group);
        if !run.dirty {
            // As plain TLBs do: the store that led here has been let through.
            run = PageRun::alone(addr, hit);
        }
        self.tlbs.update(space, addr, leaf.size, run);
    }

    fn invalidate(&mut self, space: u32, range: AddressRange) {
        let (first, end) = base_pages(range);
        self.tlbs.invalidate(space, first, end);
    }

    fn flush_space(&mut self, space: u32) {
        self.invalidate(space, AddressRange::new(0, u64::MAX));
    }

    fn tlb_counters(&self) -> TlbCounters {
        self.tlbs.counters
    }

    fn count_into(cores: &[Colt], _kernel: &(), _cycle: Time, stats: &mut Stats) {
        let sum = |of: fn(&CoalescedCounters) -> u64| cores.iter().map(|core| of(&core.tlbs.coalesced)).sum::<u64>();
        stats.count("tlb.coalesced.l1.hit", sum(|own| own.l1_hits), Unit::Count);
        stats.count("tlb.coalesced.l2.hit", sum(|own| own.l2_hits), Unit::Count);
        stats.count("tlb.coalesced.fills", sum(|own| own.fills), Unit::Count);
        stats.count("tlb.coalesced.covered", sum(|own| own.pages), Unit::Count);
        stats.count("walk.avoided", sum(|own| own.avoided), Unit::Count);
    }
}
