//! Nested paging: the program runs in a virtual machine, whose physical addresses the host's page table translates again.
//!
//! Every guest-physical address that a walk meets (of each guest page-table entry, and of the data at the end) is itself
//! translated by a walk of the host's table, so that a walk of g guest and h host levels takes (g + 1)(h + 1) - 1
//! references. Two caches shorten it, as in AMD's nested paging (Bhargava et al., Accelerating Two-Dimensional Page Walks
//! for Virtualized Systems, ASPLOS 2008): a nested TLB holds translations of guest-physical pages, and the page-walk cache
//! holds the host's intermediate entries beside the guest's. TLBs hold the whole translation, in the smaller of the
//! guest's and the host's page.
//!
//! Left open by the source and chosen here: the host maps every guest-physical page at the same place in memory, with one
//! page size, and its tables are filled beforehand, one array of entries per level beyond all tiers, on the first tier's
//! device; the page-walk cache knows a guest table by its guest-physical address, so that a hit still needs that address
//! translated; setting a dirty bit after the walk is one reference, as without nesting.

use super::page_walk_cache::PageWalkCache;
use super::parameters::NestedParameters;
use super::tlb::{Tlb, TlbEntry, key};
use super::tlbs::TlbHit;
use std::iter::Rev;
use std::ops::Range;
use terrace_model::PageSize;

/// The address space of the host's table in the page-walk cache. Programs' spaces are counted from 0.
const HOST: u32 = (1 << 15) - 1;

/// Nested paging as one core sees it.
#[derive(Clone, Debug)]
pub struct Nested {
    host: PageSize,
    levels: u32,
    /// Where the host's entries of each level begin, leaf level first.
    tables: Vec<u64>,
    tlb: Tlb,
    /// Guest-physical addresses that the nested TLB knew.
    pub hits: u64,
    /// Those it did not know.
    pub misses: u64,
    /// Entries of the host's table that walks fetched.
    pub references: u64,
}

/// Bytes of the host's table for `memory` bytes.
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

impl Nested {
    /// The host's table for `memory` bytes of guest-physical addresses lies from `begin` on.
    ///
    /// # Errors
    /// Ways that do not divide the entries.
    pub fn new(
        parameters: &NestedParameters,
        levels: u32,
        memory: u64,
        begin: u64,
    ) -> Result<Nested, String> {
        let tlb = Tlb::new(parameters.tlb.entries, parameters.tlb.ways);
        let mut next = begin;
        let tables = (1..=levels).map(|level| {
            let at = next;
            next += level_bytes(memory, level);
            at
        });
        Ok(Nested {
            host: parameters.host,
            levels,
            tables: tables.collect(),
            tlb: tlb.map_err(|e| format!("translation.nested.tlb: {e}"))?,
            hits: 0,
            misses: 0,
            references: 0,
        })
    }

    /// The levels of the host's table, highest first, whose entries translating `addr` fetches: none where the nested TLB
    /// knows the page. Both caches know it afterwards.
    pub fn levels_to_fetch(&mut self, addr: u64, cache: &mut PageWalkCache) -> Rev<Range<u32>> {
        let page = key(0, addr >> self.host.shift(), self.host);
        let leaf = self.host.index() as u32 + 1;
        if self.tlb.touch(page).is_some() {
            self.hits += 1;
            return (0..0).rev();
        }
        self.misses += 1;
        self.tlb.insert(page, TlbEntry(0));
        let start = cache.start_level(HOST, addr, leaf, self.levels);
        cache.fill(HOST, addr, leaf + 1, start);
        self.references += u64::from(start + 1 - leaf);
        (leaf..start + 1).rev()
    }

    /// Where the host's entry of `level` for `addr` lies.
    pub fn entry_address(&self, addr: u64, level: u32) -> u64 {
        self.tables[level as usize - 1] + (addr >> shift(level)) * 8
    }

    /// What of a guest's page one entry of a TLB covers: no more than a page of the host.
    pub fn splinter(&self, addr: u64, hit: TlbHit) -> TlbHit {
        if hit.size <= self.host {
            return hit;
        }
        let within = (addr & (hit.size.bytes() - 1)) >> self.host.shift() << (self.host.shift() - 12);
        TlbHit { entry: TlbEntry::new(hit.entry.frame() + within, hit.entry.is_dirty()), size: self.host }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::parameters::{Associativity, FullKeyword, PageWalkCacheParameters};
    use std::collections::HashSet;
    use terrace_model::Cycles;

    #[test]
    fn entries_of_the_host_lie_beyond_its_memory_each_at_its_own_place() {
        let cache = PageWalkCacheParameters {
            entries: 0,
            ways: Associativity::Full(FullKeyword::Full),
            latency: Cycles(1.0),
        };
        let memory = 5 << 30;
        for host in PageSize::ALL {
            let parameters = NestedParameters { host, tlb: cache.clone() };
            let mut nested = Nested::new(&parameters, 4, memory, memory).unwrap();
            let mut walks = PageWalkCache::new(&cache).unwrap();
            let mut seen = HashSet::new();
            for page in 0..memory >> host.shift() {
                let addr = page << host.shift();
                for level in nested.levels_to_fetch(addr, &mut walks) {
                    let entry = nested.entry_address(addr, level);
                    assert!((memory..memory + host_table_bytes(memory, 4)).contains(&entry));
                    let first_of_entry = addr % (1 << shift(level)) == 0;
                    assert_eq!(seen.insert(entry), first_of_entry, "{host} page at {addr:#x}, level {level}");
                }
            }
            assert_eq!(nested.references, (memory >> host.shift()) * (4 - host.index() as u64));
        }
    }
}
