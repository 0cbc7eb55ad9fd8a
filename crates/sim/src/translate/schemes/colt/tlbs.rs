//! The TLBs: arrays whose entries cover runs, and both levels of one core.

use super::run::PageRun;
use super::{CoalescedLevels, CoalescedParameters};
use crate::coherence::NOTHING;
use crate::os::{Leaf, PageTable, Pte};
use crate::translate::{
    Associativity, ProbeSets, Probed, Request, Resolution, Structure, Target, TlbCounters, TlbHit, TlbSet,
    TlbSets, TranslationParameters,
};
use terrace_model::{AddressRange, PageNumber, PageSize, PhysAddr, SpaceId, VirtAddr};

#[derive(Clone, Copy, Debug)]
struct Entry {
    space: SpaceId,
    size: PageSize,
    run: PageRun,
    /// Pages of the group that were used since the entry was put in, the page walked included.
    used: u16,
    /// Address of the page-table entry that was walked. Those of the run's other pages lie in its line.
    source: PhysAddr,
}

impl Entry {
    #[inline(always)]
    fn covers(&self, space: SpaceId, size: PageSize, page: PageNumber) -> bool {
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
    fn set(&mut self, page: PageNumber, group: u64) -> Option<&mut Vec<Entry>> {
        let sets = self.sets.len() as u64;
        if sets == 0 { None } else { self.sets.get_mut((page.0 / group % sets) as usize) }
    }

    /// The entry that covers a page, now the most recent of its set.
    #[inline]
    fn touch(&mut self, space: SpaceId, size: PageSize, page: PageNumber, group: u64) -> Option<&mut Entry> {
        let set = self.set(page, group)?;
        let at = set.iter().position(|entry| entry.covers(space, size, page))?;
        set[..=at].rotate_right(1);
        set.first_mut()
    }

    /// The entry that covers a page, as recent as it is.
    fn find(&mut self, space: SpaceId, size: PageSize, page: PageNumber, group: u64) -> Option<&mut Entry> {
        self.set(page, group)?.iter_mut().find(|entry| entry.covers(space, size, page))
    }

    fn insert(&mut self, entry: Entry, group: u64) {
        let ways = self.ways;
        let Some(set) = self.set(entry.run.first, group) else { return };
        set.retain(|old| old.space != entry.space || old.size != entry.size || !old.run.overlaps(&entry.run));
        set.insert(0, entry);
        set.truncate(ways);
    }

    /// Puts `run` in the place of the entry that covers `page`, if there is one.
    fn replace(&mut self, space: SpaceId, size: PageSize, page: PageNumber, run: PageRun, group: u64) {
        let Some(set) = self.set(page, group) else { return };
        let Some(at) = set.iter().position(|entry| entry.covers(space, size, page)) else { return };
        set[at].run = run;
        let mut position = 0;
        set.retain(|entry| {
            position += 1;
            let other = entry.space != space || entry.size != size || !entry.run.overlaps(&run);
            other || position - 1 == at
        });
    }

    /// Drops the entries that were made from what a message means.
    fn probe(
        &mut self,
        structure: Structure,
        sets: &ProbeSets,
        target: PhysAddr,
        resolution: Resolution,
    ) -> Probed {
        let mut probed = Probed::default();
        for set in sets.of(self.sets.len()) {
            probed.longest += 1;
            probed.compared += self.ways as u64;
            self.sets[set].retain(|entry| {
                if !resolution.matches(entry.source, target) {
                    return true;
                }
                if resolution.is_exact(entry.source, target) {
                    probed.dropped += 1;
                } else {
                    probed.aliases += 1;
                }
                false
            });
        }
        probed.sets[structure as usize] = probed.longest;
        probed
    }

    fn invalidate(&mut self, space: SpaceId, range: &AddressRange) {
        for set in &mut self.sets {
            set.retain(|entry| entry.space != space || !entry.run.range(entry.size).overlaps(range));
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
    /// Address of the page-table entry that the next fill is made from, where hardware keeps translations coherent.
    source: PhysAddr,
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
            source: NOTHING,
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
    pub fn lookup_l1(&mut self, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        PageSize::ALL.into_iter().find_map(|size| self.lookup_l1_of(size, space, addr))
    }

    #[inline]
    fn lookup_l1_of(&mut self, size: PageSize, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        let (at, page) = (size.index(), addr.page_number(size));
        let group = self.l1_group[at];
        let entry = self.l1[at].touch(space, size, page, group)?;
        let bit = 1 << (page.0 % group);
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
                entry.used |= 1 << (page.0 % group);
            }
        }
        Some(run.hit(page, size))
    }

    /// Looks level 2 up after a miss in level 1. A hit fills level 1; a miss must be followed by
    /// [`CoalescedTlbs::fill_after_walk`].
    #[inline]
    pub fn lookup_l2(&mut self, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        PageSize::ALL.into_iter().find_map(|size| self.lookup_l2_of(size, space, addr))
    }

    fn lookup_l2_of(&mut self, size: PageSize, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        let (at, page) = (size.index(), addr.page_number(size));
        let array = self.l2_of_size[at]?;
        let group = self.l2_group[at];
        let entry = self.l2[array as usize].touch(space, size, page, group)?;
        let bit = 1 << (page.0 % group);
        self.coalesced.avoided += u64::from(entry.used & bit == 0);
        entry.used |= bit;
        let (run, used) = (entry.run, entry.used);
        self.source = entry.source;
        self.counters.l1_misses[at] += 1;
        self.counters.l2_hits += 1;
        self.coalesced.l2_hits += u64::from(run.pages > 1);
        self.fill_l1(space, size, page, run, used);
        Some(run.hit(page, size))
    }

    fn fill_l1(&mut self, space: SpaceId, size: PageSize, page: PageNumber, run: PageRun, used: u16) {
        let group = self.l1_group[size.index()];
        let used = if group == 1 { 1 } else { used | 1 << (page.0 % group) };
        let run = run.within(page, group, size);
        let source = self.source;
        self.l1[size.index()].insert(Entry { space, size, run, used, source }, group);
    }

    /// Counts the misses of both levels and fills both with the run that the walk found around `addr`.
    pub fn fill_after_walk(
        &mut self,
        space: SpaceId,
        addr: VirtAddr,
        size: PageSize,
        run: PageRun,
    ) -> TlbHit {
        let (at, page) = (size.index(), addr.page_number(size));
        self.counters.l1_misses[at] += 1;
        self.counters.l2_misses += 1;
        self.coalesced.fills += 1;
        self.coalesced.pages += run.pages;
        if let Some(array) = self.l2_of_size[at] {
            let group = self.l2_group[at];
            let (run, source) = (run.within(page, group, size), self.source);
            let entry = Entry { space, size, run, used: 1 << (page.0 % group), source };
            self.l2[array as usize].insert(entry, group);
        }
        self.fill_l1(space, size, page, run, 0);
        run.hit(page, size)
    }

    /// The page of `addr` changed its dirty bit: wherever it is held, its entry becomes `run`.
    pub fn replace(&mut self, space: SpaceId, addr: VirtAddr, size: PageSize, run: PageRun) {
        let (at, page) = (size.index(), addr.page_number(size));
        let group = self.l1_group[at];
        self.l1[at].replace(space, size, page, run.within(page, group, size), group);
        if let Some(array) = self.l2_of_size[at] {
            let group = self.l2_group[at];
            self.l2[array as usize].replace(space, size, page, run.within(page, group, size), group);
        }
    }

    /// Drops every entry of `space` that covers one of the pages in `range`.
    pub fn drop_pages(&mut self, space: SpaceId, range: &AddressRange) {
        self.l1.iter_mut().chain(&mut self.l2).for_each(|array| array.invalidate(space, range));
    }
}

impl TlbSet for CoalescedTlbs {
    fn update(&mut self, table: &PageTable, request: &Request, leaf: &Leaf, pte: Pte, hit: TlbHit) {
        let Request { space, addr, .. } = *request;
        if hit.size != leaf.size {
            return self.replace(space, addr, hit.size, PageRun::alone(addr, hit));
        }
        let group = self.group(leaf.size);
        let mut run = PageRun::around(table, leaf, pte, addr, group);
        if !run.dirty {
            // As plain TLBs do: the store that led here has been let through.
            run = PageRun::alone(addr, hit);
        }
        self.replace(space, addr, leaf.size, run);
    }

    fn invalidate(&mut self, space: SpaceId, range: AddressRange) {
        self.drop_pages(space, &range.page_cover(PageSize::Base));
    }

    fn flush_space(&mut self, space: SpaceId) {
        TlbSet::invalidate(self, space, AddressRange::new(0, u64::MAX));
    }

    fn counters(&self) -> TlbCounters {
        self.counters
    }

    fn set_source(&mut self, entry: PhysAddr) {
        self.source = entry;
    }

    fn tlb_sets(&self, _space: SpaceId, addr: VirtAddr, size: PageSize) -> TlbSets {
        let (at, page) = (size.index(), addr.page_number(size));
        let set = |array: &Array, group: u64| (page.0 / group % (array.sets.len() as u64).max(1)) as u16;
        let l2 = self.l2_of_size[at].map_or(0, |array| set(&self.l2[array as usize], self.l2_group[at]));
        TlbSets { sets: [set(&self.l1[at], self.l1_group[at]), l2], page: page.0 as u16 }
    }

    fn probe(&mut self, target: &Target, resolution: Resolution) -> Probed {
        let mut probed = Probed::default();
        for array in &mut self.l1 {
            probed.add(&array.probe(Structure::L1, &target.l1, target.address, resolution));
        }
        for array in &mut self.l2 {
            probed.add(&array.probe(Structure::L2, &target.l2, target.address, resolution));
        }
        probed
    }
}
