//! The simulator's own short cut to page-table entries, by regions of 2 MiB.
//!
//! Nothing here is part of the simulated machine. Schemes without TLBs translate through it, walks find their leaf by
//! it, and looking ahead finds the entries that coming accesses will need.

use crate::os::{Leaf, PageTable, Pte};
use terrace_model::{Frame, PageSize, SpaceId, VirtAddr};

const REGION_SHIFT: u32 = 21;
/// Enough for 16 GiB.
const SLOTS: usize = 8192;
/// The generation that no key has.
const NEVER: u64 = u64::MAX;
const GENERATIONS: u64 = 1 << 13;

/// What maps a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// A table of base pages, whose entries change without notice: its number, and that of the table above it.
    Table(u32, u32),
    /// One page that is as large as the region or larger.
    Page {
        /// Frame of the region's first byte.
        frame: Frame,
        /// The page's size.
        size: PageSize,
        /// A load changes nothing in the page table.
        readable: bool,
        /// Nor does a store.
        writable: bool,
    },
}

/// A base page that is mapped, alone or as a part of a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasePage {
    /// The page's frame.
    pub frame: Frame,
    /// The size of the page that it belongs to.
    pub size: PageSize,
    /// A load changes nothing in the page table.
    pub readable: bool,
    /// Nor does a store.
    pub writable: bool,
}

impl BasePage {
    /// Whether an access of this kind changes nothing in the page table.
    #[inline(always)]
    pub fn allows(&self, write: bool) -> bool {
        if write { self.writable } else { self.readable }
    }
}

/// Direct mapped: what maps the regions used lately. Must be flushed when a process is cleared, and when a page larger
/// than a base page goes, changes its frame, or loses a bit of its entry.
#[derive(Clone, Debug)]
pub struct RegionCache {
    /// Region, address space and generation, beside what maps the region.
    slots: Box<[(u64, Region)]>,
    /// Slots of earlier generations are empty: flushing is frequent and must be cheap.
    generation: u64,
}

impl RegionCache {
    /// Empty.
    pub fn new() -> RegionCache {
        RegionCache { slots: vec![(NEVER, Region::Table(0, 0)); SLOTS].into(), generation: 0 }
    }

    /// Bits 0..36 region, 36..51 address space, 51..64 generation.
    #[inline(always)]
    fn key(&self, space: SpaceId, addr: VirtAddr) -> (usize, u64) {
        let region = addr.0 >> REGION_SHIFT & ((1 << 36) - 1);
        (region as usize % SLOTS, region | u64::from(space.0) << 36 | self.generation << 51)
    }

    /// What maps the region of `addr`, if that is known.
    #[inline(always)]
    pub fn get(&self, space: SpaceId, addr: VirtAddr) -> Option<Region> {
        let (slot, key) = self.key(space, addr);
        let (known, region) = self.slots[slot];
        (known == key).then_some(region)
    }

    /// Keeps what a walk found.
    pub fn put(&mut self, space: SpaceId, addr: VirtAddr, leaf: &Leaf, pte: Pte) {
        let (slot, key) = self.key(space, addr);
        let region = match leaf.size {
            PageSize::Base => Region::Table(leaf.table(1), leaf.table(2)),
            size => Region::Page {
                frame: pte.frame().plus(addr.page_offset(size) >> REGION_SHIFT << (REGION_SHIFT - 12)),
                size,
                readable: pte.is_readable_at_once(),
                writable: pte.is_writable_at_once(),
            },
        };
        self.slots[slot] = (key, region);
    }

    /// The leaf that maps `addr`, if any; of a base page only the two lowest tables may be known.
    #[inline(always)]
    pub fn leaf(&mut self, table: &PageTable, space: SpaceId, addr: VirtAddr) -> Option<Leaf> {
        if let Some(Region::Table(index, above)) = self.get(space, addr)
            && let Some(pte) = table.base_entry(index, addr)
        {
            debug_assert_eq!(table.find(addr).map(|leaf| leaf.pte), Some(pte), "a table of another region");
            return Some(Leaf::of_base_page(pte, index, above));
        }
        self.leaf_from_root(table, space, addr)
    }

    /// The leaf that maps `addr`, looked up from the root; the cache of regions then knows what maps the region.
    #[inline(never)]
    pub fn leaf_from_root(&mut self, table: &PageTable, space: SpaceId, addr: VirtAddr) -> Option<Leaf> {
        let leaf = table.find(addr)?;
        self.put(space, addr, &leaf, leaf.pte);
        Some(leaf)
    }

    /// Forgets everything.
    pub fn flush(&mut self) {
        self.generation += 1;
        // The last generation would make a key that looks empty.
        if self.generation == GENERATIONS - 1 {
            self.slots.fill((NEVER, Region::Table(0, 0)));
            self.generation = 0;
        }
    }

    /// The base page that holds `addr`, if the region is known and the page is there.
    #[inline(always)]
    pub fn find(&self, table: &PageTable, space: SpaceId, addr: VirtAddr) -> Option<BasePage> {
        match self.get(space, addr)? {
            Region::Table(index, _) => {
                let pte = table.base_entry(index, addr)?;
                Some(BasePage {
                    frame: pte.frame(),
                    size: PageSize::Base,
                    readable: pte.is_readable_at_once(),
                    writable: pte.is_writable_at_once(),
                })
            }
            Region::Page { frame, size, readable, writable } => {
                let within = (addr.0 & ((1 << REGION_SHIFT) - 1)) >> 12;
                Some(BasePage { frame: frame.plus(within), size, readable, writable })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::Changes;
    use terrace_model::Frame;

    fn table() -> (PageTable, RegionCache) {
        let mut next = 100;
        let mut frames = || {
            next += 1;
            Some(Frame(next))
        };
        let mut changes = Changes::default();
        let mut table = PageTable::new(4, Frame(1));
        table
            .map(
                VirtAddr(0x5000),
                PageSize::Base,
                Pte::new(Frame(7)).accessed(),
                &mut changes.door(SpaceId(0)),
                &mut frames,
            )
            .unwrap();
        table
            .map(
                VirtAddr(1 << 30),
                PageSize::Giant,
                Pte::new(Frame(1 << 18)).dirtied(),
                &mut changes.door(SpaceId(0)),
                &mut frames,
            )
            .unwrap();
        let mut cache = RegionCache::new();
        for addr in [0x5000, (1 << 30) + (3 << 21)] {
            let leaf = table.find(VirtAddr(addr)).unwrap();
            cache.put(SpaceId(0), VirtAddr(addr), &leaf, leaf.pte);
        }
        (table, cache)
    }

    fn page(frame: Frame, size: PageSize, readable: bool, writable: bool) -> Option<BasePage> {
        Some(BasePage { frame, size, readable, writable })
    }

    #[test]
    fn base_pages_are_looked_up_anew_each_time() {
        let (mut table, cache) = table();
        assert_eq!(
            cache.find(&table, SpaceId(0), VirtAddr(0x5123)),
            page(Frame(7), PageSize::Base, true, false)
        );
        assert_eq!(cache.find(&table, SpaceId(0), VirtAddr(0x6000)), None, "not mapped");
        assert_eq!(cache.find(&table, SpaceId(1), VirtAddr(0x5123)), None, "another process");
        let leaf = table.find(VirtAddr(0x5000)).unwrap();
        table.set_bits(&leaf, VirtAddr(0x5000), leaf.pte.dirtied());
        assert_eq!(
            cache.find(&table, SpaceId(0), VirtAddr(0x5123)),
            page(Frame(7), PageSize::Base, true, true)
        );
        table.unmap(VirtAddr(0x5000), &mut Changes::default().door(SpaceId(0)));
        assert_eq!(cache.find(&table, SpaceId(0), VirtAddr(0x5123)), None);
    }

    #[test]
    fn a_part_of_a_larger_page_has_the_part_s_frame() {
        let (table, mut cache) = table();
        let addr = (1 << 30) + (3 << 21) + 0x1fff;
        let frame = (1 << 18) + 3 * 512 + 1;
        assert_eq!(
            cache.find(&table, SpaceId(0), VirtAddr(addr)),
            page(Frame(frame), PageSize::Giant, true, true)
        );
        assert_eq!(cache.find(&table, SpaceId(0), VirtAddr(addr + (1 << 21))), None, "another region");
        for _ in 0..2 * GENERATIONS {
            cache.flush();
            assert_eq!(cache.find(&table, SpaceId(0), VirtAddr(addr)), None);
        }
    }
}
