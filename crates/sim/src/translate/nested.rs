//! Nested paging: the program runs in a virtual machine, whose physical addresses the host's page table translates again.
//!
//! Every guest-physical address that a walk meets (of each guest page-table entry, and of the data at the end) is itself
//! translated by a walk of the host's table, so that a walk of g guest and h host levels takes (g + 1)(h + 1) - 1
//! references. Two caches shorten it, as in AMD's nested paging (Bhargava et al., Accelerating Two-Dimensional Page Walks
//! for Virtualized Systems, ASPLOS 2008): a nested TLB holds translations of guest-physical pages, and the page-walk cache
//! holds the host's intermediate entries beside the guest's. TLBs hold the whole translation, in the smaller of the
//! guest's and the host's page.
//!
//! The host's table is the hypervisor's, in frames of the machine (`machine/nested.rs` walks it), or a constant one without
//! a hypervisor: [`Constant`].
//!
//! Nested paging is no scheme: it composes with those whose TLBs and walks come before the caches. The checks of its keys
//! (`translation.nested`), its scaling and its statistics are here.
//!
//! Left open by the source and chosen here: the page-walk cache knows a guest table by its guest-physical address, so that
//! a hit still needs that address translated, or by its address in the machine, as Intel's does
//! ([`WalkCacheTags`]); setting a dirty bit after the walk is one reference to each table whose bit was clear. A nested TLB
//! holds pages of all sizes in one array.

use super::co_tags::CoTags;
use super::page_walk_cache::PageWalkCache;
use super::parameters::{NestedParameters, WalkCacheDimensions, WalkCacheTags};
use super::tlb::{Tlb, TlbEntry, key, split_key};
use super::tlbs::TlbHit;
use crate::coherence::{ProbeSets, Probed, Resolution, Structure};
use std::iter::Rev;
use std::ops::Range;
use terrace_model::{AddressRange, GuestPhysAddr, PageSize, PhysAddr, SpaceId, Stats, Unit, VirtAddr};

/// The address space of the host's table in the page-walk cache. Programs' spaces are counted from 0.
pub(crate) const HOST: SpaceId = SpaceId((1 << 15) - 1);

/// Nested paging as one core sees it.
#[derive(Clone, Debug)]
pub struct Nested {
    /// The host's table where no hypervisor keeps one.
    pub constant: Option<Constant>,
    tlb: Tlb,
    /// Where hardware keeps translations coherent.
    co_tags: Option<Box<CoTags>>,
    /// Sizes of pages that the nested TLB was ever given.
    seen: [bool; 3],
    /// What the page-walk cache holds of the guest's tables.
    pub walk_cache: WalkCacheTags,
    /// Whether it holds entries of the host's.
    pub caches_host: bool,
    /// Guest-physical addresses that the nested TLB knew.
    pub hits: u64,
    /// Guest-physical addresses that the nested TLB did not know.
    pub misses: u64,
    /// Entries of the host's table that walks fetched.
    pub references: u64,
}

/// A host's table that maps every guest-physical page to the same place in memory, with one page size. It is filled
/// beforehand: one array of entries per level beyond all tiers, on the first tier's device. For a first look and for speed:
/// nothing is allocated, and nothing ever faults or changes.
#[derive(Clone, Debug)]
pub struct Constant {
    host: PageSize,
    levels: u32,
    /// Where the entries of each level begin, leaf level first.
    tables: Vec<PhysAddr>,
}

/// Bytes of the constant table for `memory` bytes.
pub fn host_table_bytes(memory: u64, levels: u32) -> u64 {
    (1..=levels).map(|level| level_bytes(memory, level)).sum()
}

fn level_bytes(memory: u64, level: u32) -> u64 {
    (memory.div_ceil(1 << shift(level)) * 8).next_multiple_of(4096)
}

/// What an entry of a level covers, as a power of two.
fn shift(level: u32) -> u32 {
    12 + 9 * (level - 1)
}

impl NestedParameters {
    /// Whether they can be built under the scheme `scheme`, which looks into TLBs and walks before the caches if
    /// `walks_first`; `is_virtual` with a hypervisor.
    ///
    /// # Errors
    /// The end of the key's name below `translation.nested`, and what is wrong with its value.
    pub(crate) fn validate(
        &self,
        scheme: &str,
        walks_first: bool,
        is_virtual: bool,
    ) -> Result<(), (&'static str, String)> {
        if !walks_first {
            let why = "it has no TLBs and page walks before the caches";
            return Err(("", super::cannot_go_with(scheme, "nested page tables", why)));
        }
        if let Some(problem) = self.tlb.ways.problem_of(self.tlb.entries) {
            return Err((".tlb.ways", problem));
        }
        if self.host.is_none() && !is_virtual {
            let problem = "needs the host's page size (translation.nested.host), or a virtual machine ([vm])";
            return Err(("", problem.to_owned()));
        }
        Ok(())
    }

    /// Divides the reach of the nested TLB.
    pub(crate) fn scale(&mut self, scale: u32) {
        self.tlb.entries = self.tlb.ways.scaled(self.tlb.entries, scale);
    }
}

impl Nested {
    /// Adds what the nested paging of all cores did to the statistics of a run: nothing where no core has any.
    pub(crate) fn count_into<'a>(cores: impl Iterator<Item = &'a Nested>, stats: &mut Stats) {
        let add = |sums: Option<[u64; 3]>, nested: &Nested| {
            let own = [nested.references, nested.hits, nested.misses];
            Some(sums.map_or(own, |sums| std::array::from_fn(|at| sums[at] + own[at])))
        };
        let Some([references, hits, misses]) = cores.fold(None, add) else { return };
        stats.count("walk.host_refs", references, Unit::Count);
        stats.count("walk.nested_tlb.hit", hits, Unit::Count);
        stats.count("walk.nested_tlb.miss", misses, Unit::Count);
    }

    /// A constant table for `memory` bytes of guest-physical addresses lies from `begin` on.
    ///
    /// # Errors
    /// Ways that do not divide the entries.
    pub fn new(
        parameters: &NestedParameters,
        levels: u32,
        memory: u64,
        begin: PhysAddr,
    ) -> Result<Nested, String> {
        let tlb = Tlb::new(parameters.tlb.entries, parameters.tlb.ways);
        let mut next = begin;
        let tables = (1..=levels).map(|level| {
            let at = next;
            next += level_bytes(memory, level);
            at
        });
        let constant = parameters.host.map(|host| Constant { host, levels, tables: tables.collect() });
        Ok(Nested {
            constant,
            tlb: tlb.map_err(|e| format!("translation.nested.tlb: {e}"))?,
            co_tags: None,
            seen: [false; 3],
            walk_cache: parameters.walk_cache,
            caches_host: parameters.walk_cache_dimensions == WalkCacheDimensions::Both,
            hits: 0,
            misses: 0,
            references: 0,
        })
    }

    /// The levels of the constant table, highest first, whose entries translating `addr` fetches: none where the nested TLB
    /// knows the page, or the table is the hypervisor's. Both caches know it afterwards.
    pub fn levels_to_fetch(&mut self, addr: GuestPhysAddr, cache: &mut PageWalkCache) -> Rev<Range<u32>> {
        let Some(Constant { host, levels, .. }) = self.constant else { return (0..0).rev() };
        let page = key(SpaceId(0), addr.page_number(host), host);
        let leaf = host.index() as u32 + 1;
        if self.tlb.touch(page).is_some() {
            self.hits += 1;
            return (0..0).rev();
        }
        self.misses += 1;
        self.tlb.insert(page, TlbEntry(0));
        let mut start = levels;
        if self.caches_host {
            start = cache.start_level(HOST, addr.in_host_space(), leaf, levels);
            cache.fill(HOST, addr.in_host_space(), leaf + 1, start);
        }
        self.references += u64::from(start + 1 - leaf);
        (leaf..start + 1).rev()
    }

    /// The page that holds `addr`, if the nested TLB knows it.
    pub fn look_up(&mut self, addr: GuestPhysAddr) -> Option<TlbHit> {
        for size in PageSize::ALL {
            if self.seen[size.index()]
                && let Some((entry, _)) = self.tlb.touch(key(SpaceId(0), addr.page_number(size), size))
            {
                self.hits += 1;
                return Some(TlbHit { entry, size });
            }
        }
        self.misses += 1;
        None
    }

    /// The nested TLB knows a page from now on, as a walk of the hypervisor's table found it.
    pub fn insert(&mut self, addr: GuestPhysAddr, hit: TlbHit) {
        self.seen[hit.size.index()] = true;
        self.tlb.insert(key(SpaceId(0), addr.page_number(hit.size), hit.size), hit.entry);
    }

    /// Keeps co-tags beside all entries from now on.
    pub fn keep_co_tags(&mut self) {
        self.co_tags = Some(Box::new(CoTags::beside(&self.tlb)));
    }

    /// The page of `addr` was put in as the page-table entry at `entry` says. Returns the co-tag of what had to go for it.
    pub fn tag(&mut self, addr: GuestPhysAddr, size: PageSize, entry: PhysAddr) -> Option<PhysAddr> {
        let place = self.tlb.place(key(SpaceId(0), addr.page_number(size), size))?;
        self.co_tags.as_mut()?.set(place, entry)
    }

    /// Drops the pages whose co-tags match. The sets follow from the address, since the entry's place in its table is the
    /// lowest part of the page's number; `searches_all` where that is not to be used. `entries`: how many entries from
    /// `address` on are meant.
    pub fn probe(
        &mut self,
        address: PhysAddr,
        entries: u64,
        searches_all: bool,
        resolution: Resolution,
    ) -> Probed {
        let Some(own) = &mut self.co_tags else { return Probed::default() };
        let sets = match searches_all {
            true => ProbeSets::All,
            false => ProbeSets::of_entries(address, entries, self.tlb.sets(), 512, std::iter::once),
        };
        own.probe(&mut self.tlb, Structure::NestedTlb, &sets, address, resolution)
    }

    /// Whether a page's co-tag matches, and how many were compared for that.
    pub fn holds(&self, address: PhysAddr, resolution: Resolution) -> (bool, u64) {
        self.co_tags.as_ref().map_or((false, 0), |own| own.holds(&self.tlb, address, resolution))
    }

    /// The dirty bit of a page that the nested TLB may know was set.
    pub fn update(&mut self, addr: GuestPhysAddr, hit: TlbHit) {
        self.tlb.update(key(SpaceId(0), addr.page_number(hit.size), hit.size), hit.entry);
    }

    /// Drops the nested TLB's pages that overlap guest-physical addresses, a range of the hypervisor's space.
    pub fn invalidate(&mut self, range: AddressRange) {
        self.tlb.retain(|key| {
            let (_, page, size) = split_key(key);
            !AddressRange::of_page(VirtAddr::of_page(page, size), size).overlaps(&range)
        });
    }

    /// Drops all that the nested TLB knows.
    pub fn flush(&mut self) {
        self.tlb.retain(|_| false);
    }
}

impl Constant {
    /// Where the entry of `level` for `addr` lies.
    pub fn entry_address(&self, addr: GuestPhysAddr, level: u32) -> PhysAddr {
        self.tables[level as usize - 1] + (addr.0 >> shift(level)) * 8
    }

    /// The part of a guest page that one TLB entry covers: no more than a page of the host.
    pub fn splinter(&self, addr: VirtAddr, hit: TlbHit) -> TlbHit {
        if hit.size <= self.host {
            return hit;
        }
        let within = addr.page_offset(hit.size) >> self.host.shift() << (self.host.shift() - 12);
        TlbHit { entry: TlbEntry::new(hit.entry.frame().plus(within), hit.entry.is_dirty()), size: self.host }
    }
}

/// What a TLB holds of an address that a page of the guest and a page of the host lead to: the smaller of the two pages.
/// `guest` holds a frame of the guest, the other two one of the machine. A store goes ahead at once where neither table has
/// a bit to set.
pub fn compose(addr: VirtAddr, guest: TlbHit, in_guest: GuestPhysAddr, host: TlbHit) -> TlbHit {
    let size = guest.size.min(host.size);
    let dirty = guest.entry.is_dirty() && host.entry.is_dirty();
    // Where the page of the smaller size that holds the address begins in the machine.
    let within = in_guest.page_offset(host.size) >> size.shift() << size.shift();
    debug_assert_eq!(addr.page_offset(size), in_guest.page_offset(size), "pages are aligned in every space");
    TlbHit { entry: TlbEntry::new(host.entry.frame().plus(within >> 12), dirty), size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::parameters::{Associativity, FullKeyword, PageWalkCacheParameters};
    use std::collections::HashSet;
    use terrace_model::{Cycles, Frame};

    #[test]
    fn entries_of_the_host_lie_beyond_its_memory_each_at_its_own_place() {
        let cache = PageWalkCacheParameters {
            entries: 0,
            ways: Associativity::Full(FullKeyword::Full),
            latency: Cycles(1.0),
        };
        let memory = 5 << 30;
        for host in PageSize::ALL {
            let parameters = NestedParameters {
                host: Some(host),
                tlb: cache.clone(),
                walk_cache: WalkCacheTags::default(),
                walk_cache_dimensions: WalkCacheDimensions::default(),
            };
            let mut nested = Nested::new(&parameters, 4, memory, PhysAddr(memory)).unwrap();
            let mut walks = PageWalkCache::new(&cache).unwrap();
            let mut seen = HashSet::new();
            for page in 0..memory >> host.shift() {
                let addr = GuestPhysAddr(page << host.shift());
                for level in nested.levels_to_fetch(addr, &mut walks) {
                    let entry = nested.constant.as_ref().unwrap().entry_address(addr, level).0;
                    assert!((memory..memory + host_table_bytes(memory, 4)).contains(&entry));
                    let first_of_entry = addr.0.is_multiple_of(1 << shift(level));
                    assert_eq!(seen.insert(entry), first_of_entry, "{host} page at {addr:#x}, level {level}");
                }
            }
            assert_eq!(nested.references, (memory >> host.shift()) * (4 - host.index() as u64));
        }
    }

    #[test]
    fn a_tlb_holds_the_smaller_of_two_pages() {
        let hit = |frame, size, dirty| TlbHit { entry: TlbEntry::new(Frame(frame), dirty), size };
        // The guest's page of 2 MiB begins at its frame 0x400, its sixth base page lies in the host's frame 0x77.
        let (addr, in_guest) = (VirtAddr(0x7f00_0020_5123), GuestPhysAddr(0x40_5123));
        let guest = hit(0x400, PageSize::Huge, true);
        assert_eq!(
            compose(addr, guest, in_guest, hit(0x77, PageSize::Base, true)),
            hit(0x77, PageSize::Base, true)
        );
        // In a host's page of 1 GiB at frame 0x8_0000 the guest's page begins 0x400 frames on.
        let giant = hit(0x8_0000, PageSize::Giant, false);
        assert_eq!(compose(addr, guest, in_guest, giant), hit(0x8_0400, PageSize::Huge, false));
        let base = hit(0x405, PageSize::Base, true);
        assert_eq!(compose(addr, base, in_guest, giant), hit(0x8_0405, PageSize::Base, false));
    }
}
