//! The page-walk cache: intermediate page-table entries of all levels in one array, true LRU.
//!
//! A walk looks for the lowest intermediate entry first (which leaves one reference), then for higher ones. Only the
//! entry found counts as used; every intermediate entry that a walk fetches is put in.

use super::co_tags::CoTags;
use super::parameters::PageWalkCacheParameters;
use super::tlb::{Tlb, TlbEntry};
use crate::coherence::{ProbeSets, Probed, Resolution, Structure};
use terrace_model::{PhysAddr, SpaceId, VirtAddr};

/// Intermediate entries by level and virtual-address prefix.
#[derive(Clone, Debug)]
pub struct PageWalkCache {
    entries: Tlb,
    /// Where hardware keeps translations coherent.
    co_tags: Option<Box<CoTags>>,
    /// Lookups that found an entry at some level.
    pub hits: u64,
    /// Lookups that found none, so that the walk began at the root.
    pub misses: u64,
}

/// The key of the entry at `level` (1 is the leaf level; intermediate levels are 2 and up) that covers `addr`.
#[inline(always)]
fn key(space: SpaceId, addr: VirtAddr, level: u32) -> u64 {
    // Prefix and level together are unique; the level goes below the prefix so that sets spread by it as well.
    ((addr.0 >> (12 + 9 * (level - 1))) << 3 | u64::from(level)) | u64::from(space.0) << 49
}

impl PageWalkCache {
    /// An empty cache.
    ///
    /// # Errors
    /// Ways that do not divide the entries.
    pub fn new(parameters: &PageWalkCacheParameters) -> Result<PageWalkCache, String> {
        let entries =
            Tlb::new(parameters.entries, parameters.ways).map_err(|e| format!("page_walk_cache: {e}"))?;
        Ok(PageWalkCache { entries, co_tags: None, hits: 0, misses: 0 })
    }

    /// The level of the entry to fetch first for a walk that ends at `leaf` level in a table of `levels` levels:
    /// `levels` (the root) where nothing is cached, `leaf` where the entry above the leaf is.
    #[inline]
    pub fn start_level(&mut self, space: SpaceId, addr: VirtAddr, leaf: u32, levels: u32) -> u32 {
        if matches!(self.entries, Tlb::Absent) {
            return levels;
        }
        for level in leaf + 1..=levels {
            if self.entries.touch(key(space, addr, level)).is_some() {
                self.hits += 1;
                return level - 1;
            }
        }
        self.misses += 1;
        levels
    }

    /// Keeps the intermediate entries of levels `above_leaf..=start` that a walk fetched.
    #[inline]
    pub fn fill(&mut self, space: SpaceId, addr: VirtAddr, above_leaf: u32, start: u32) {
        for level in (above_leaf..=start).rev() {
            self.entries.insert(key(space, addr, level), TlbEntry(0));
        }
    }

    /// Keeps co-tags beside all entries from now on.
    pub fn keep_co_tags(&mut self) {
        self.co_tags = Some(Box::new(CoTags::beside(&self.entries)));
    }

    /// Whether it has entries with co-tags.
    pub fn has_co_tags(&self) -> bool {
        self.co_tags.is_some() && !matches!(self.entries, Tlb::Absent)
    }

    /// The entry of `level` that a fill put in was made from the page-table entry at `entry`. Returns the co-tag of what had
    /// to go for it.
    pub fn tag(&mut self, space: SpaceId, addr: VirtAddr, level: u32, entry: PhysAddr) -> Option<PhysAddr> {
        let (own, place) = (self.co_tags.as_mut()?, self.entries.place(key(space, addr, level))?);
        own.set(place, entry)
    }

    /// The entry of `level` that a fill put in says nothing that a message could be about: it has no co-tag. Returns the
    /// co-tag of what had to go for it.
    pub fn untag(&mut self, space: SpaceId, addr: VirtAddr, level: u32) -> Option<PhysAddr> {
        let (own, place) = (self.co_tags.as_mut()?, self.entries.place(key(space, addr, level))?);
        own.clear(place)
    }

    /// Drops the entries whose co-tags match. The sets follow from the address, since the entry's place in its table is the
    /// lowest part of what it is looked up by; `searches_all` where that is not so. `entries`: how many entries from
    /// `address` on are meant.
    pub fn probe(
        &mut self,
        address: PhysAddr,
        entries: u64,
        searches_all: bool,
        resolution: Resolution,
    ) -> Probed {
        let Some(own) = &mut self.co_tags else { return Probed::default() };
        let levels = |index: u64| (2..=5).map(move |level| index << 3 | level);
        let sets = match searches_all {
            true => ProbeSets::All,
            false => ProbeSets::of_entries(address, entries, self.entries.sets(), 512 << 3, levels),
        };
        own.probe(&mut self.entries, Structure::WalkCache, &sets, address, resolution)
    }

    /// Whether an entry's co-tag matches, and how many were compared for that.
    pub fn holds(&self, address: PhysAddr, resolution: Resolution) -> (bool, u64) {
        self.co_tags.as_ref().map_or((false, 0), |own| own.holds(&self.entries, address, resolution))
    }

    /// Drops all but the entries that `keep` wants, which is given their spaces and first addresses.
    pub fn retain(&mut self, keep: impl Fn(SpaceId, VirtAddr) -> bool) {
        self.entries.retain(|key| {
            let (level, prefix) = ((key & 7) as u32, (key & ((1 << 49) - 1)) >> 3);
            keep(SpaceId((key >> 49) as u32), VirtAddr(prefix << (12 + 9 * (level - 1))))
        });
    }

    /// Drops everything.
    pub fn flush(&mut self) {
        self.entries.retain(|_| false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::parameters::{Associativity, FullKeyword};
    use terrace_model::Cycles;

    fn cache(entries: u32) -> PageWalkCache {
        PageWalkCache::new(&PageWalkCacheParameters {
            entries,
            ways: Associativity::Full(FullKeyword::Full),
            latency: Cycles(1.0),
        })
        .unwrap()
    }

    #[test]
    fn a_second_walk_starts_below_what_the_first_left() {
        let mut cache = cache(32);
        let addr = 0x7f00_1234_5000;
        assert_eq!(cache.start_level(SpaceId(0), VirtAddr(addr), 1, 4), 4);
        cache.fill(SpaceId(0), VirtAddr(addr), 2, 4);
        assert_eq!(
            cache.start_level(SpaceId(0), VirtAddr(addr + 4096), 1, 4),
            1,
            "same 2 MiB: only the leaf"
        );
        assert_eq!(
            cache.start_level(SpaceId(0), VirtAddr(addr + (2 << 20)), 1, 4),
            2,
            "same 1 GiB: two references"
        );
        assert_eq!(cache.start_level(SpaceId(0), VirtAddr(addr + (2 << 30)), 1, 4), 3, "same 512 GiB: three");
        assert_eq!(cache.start_level(SpaceId(1), VirtAddr(addr), 1, 4), 4, "another address space: all four");
        assert_eq!((cache.hits, cache.misses), (3, 2));
    }

    #[test]
    fn without_entries_every_walk_starts_at_the_root() {
        let mut cache = cache(0);
        cache.fill(SpaceId(0), VirtAddr(0x1000), 2, 4);
        assert_eq!(cache.start_level(SpaceId(0), VirtAddr(0x1000), 1, 4), 4);
    }
}
