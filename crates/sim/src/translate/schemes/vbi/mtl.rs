//! The hardware of the memory translation layer: the cache of the tables of blocks, TLBs, and the cache of upper levels of
//! multi-level tables. There is one for all cores, in the memory controller.

use crate::array::FullyAssociative;
use crate::cache::MissRegisters;
use crate::translate::tlb::{Tlb, TlbEntry};
use crate::translate::{PageWalkCache, TlbCounters, TranslationParameters};
use std::ops::Range;
use terrace_model::{CacheLine, PageSize, Time};

/// The key of a translation: a name of 4 KiB of lines, or a block or piece that lies in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covered {
    /// 4 KiB of names.
    Region(u64),
    /// A piece of a block; of a block that lies in one run there is one.
    Run(u32, u64),
}

impl Covered {
    fn key(self) -> u64 {
        match self {
            Covered::Region(name) => name,
            Covered::Run(block, piece) => 1 << 46 | u64::from(block) << 22 | piece & ((1 << 22) - 1),
        }
    }

    /// TLBs of large pages hold what lies in one run.
    fn kind(self) -> usize {
        match self {
            Covered::Region(_) => PageSize::Base.index(),
            Covered::Run(..) => PageSize::Huge.index(),
        }
    }
}

/// All of it.
#[derive(Debug)]
pub struct Mtl {
    l1: [Tlb; 2],
    l2: Vec<Tlb>,
    l2_of: [Option<usize>; 2],
    pub tables: PageWalkCache,
    pub walkers: MissRegisters,
    blocks: Option<FullyAssociative>,
    pub block_hits: u64,
    pub block_misses: u64,
    pub counters: TlbCounters,
    pub l2_latency: Time,
    pub table_latency: Time,
}

impl Mtl {
    pub fn new(parameters: &TranslationParameters, block_entries: u32, cycle: Time) -> Result<Mtl, String> {
        let l1 = |size: PageSize| match parameters.l1d.get(&size) {
            Some(tlb) => Tlb::new(tlb.entries, tlb.ways).map_err(|e| format!("translation.l1d.{size}: {e}")),
            None => Ok(Tlb::Absent),
        };
        let mut l2 = Vec::new();
        let mut l2_of = [None; 2];
        for array in &parameters.l2.array {
            for size in array.sizes.iter().filter(|size| size.index() < 2) {
                l2_of[size.index()] = Some(l2.len());
            }
            l2.push(Tlb::new(array.entries, array.ways).map_err(|e| format!("translation.l2.array: {e}"))?);
        }
        Ok(Mtl {
            l1: [l1(PageSize::Base)?, l1(PageSize::Huge)?],
            l2,
            l2_of,
            tables: PageWalkCache::new(&parameters.page_walk_cache)?,
            walkers: MissRegisters::new(parameters.walkers),
            blocks: (block_entries > 0).then(|| FullyAssociative::new(block_entries)),
            block_hits: 0,
            block_misses: 0,
            counters: TlbCounters::default(),
            l2_latency: parameters.l2.latency.at(cycle),
            table_latency: parameters.page_walk_cache.latency.at(cycle),
        })
    }

    /// Whether the entry of a block is in the cache of the tables of blocks; it is from then on.
    pub fn knows_block(&mut self, block: u32) -> bool {
        let known = self.blocks.as_mut().is_some_and(|blocks| blocks.touch(u64::from(block)).is_some());
        if known {
            self.block_hits += 1;
        } else {
            self.block_misses += 1;
            if let Some(blocks) = &mut self.blocks {
                blocks.insert(u64::from(block), 0);
            }
        }
        known
    }

    /// Translations that were asked of it.
    pub fn translations(&self) -> u64 {
        self.block_hits + self.block_misses
    }

    /// When the TLBs have answered, if they know it. A miss is counted, and must be followed by [`Mtl::fill`].
    pub fn look_up(&mut self, covered: Covered, now: Time) -> Option<Time> {
        let (key, kind) = (covered.key(), covered.kind());
        if self.l1[kind].touch(key).is_some() {
            self.counters.l1_hits[kind] += 1;
            return Some(now);
        }
        self.counters.l1_misses[kind] += 1;
        if let Some(array) = self.l2_of[kind]
            && self.l2[array].touch(key).is_some()
        {
            self.counters.l2_hits += 1;
            self.l1[kind].insert(key, TlbEntry(0));
            return Some(now + self.l2_latency);
        }
        self.counters.l2_misses += 1;
        None
    }

    /// A walk found a translation.
    pub fn fill(&mut self, covered: Covered) {
        let (key, kind) = (covered.key(), covered.kind());
        self.l1[kind].insert(key, TlbEntry(0));
        if let Some(array) = self.l2_of[kind] {
            self.l2[array].insert(key, TlbEntry(0));
        }
    }

    /// Drops the regions in a range of names.
    pub fn forget(&mut self, names: &Range<CacheLine>) {
        let regions = names.start.0 >> 6..names.end.0.div_ceil(64);
        let arrays = self.l1.iter_mut().chain(&mut self.l2);
        if regions.end - regions.start <= 32 {
            arrays.for_each(|tlb| regions.clone().for_each(|region| tlb.remove(region)));
        } else {
            arrays.for_each(|tlb| tlb.retain(|key| key >> 46 != 0 || !regions.contains(&key)));
        }
    }

    /// Drops all of a block that is there as runs.
    pub fn forget_runs(&mut self, block: u32) {
        for tlb in self.l1.iter_mut().chain(&mut self.l2) {
            tlb.retain(|key| key >> 46 == 0 || (key >> 22 & ((1 << 24) - 1)) as u32 != block);
        }
        if let Some(blocks) = &mut self.blocks {
            blocks.remove(u64::from(block));
        }
    }
}
