//! The TLBs of one core: level 1 per page size, level 2 in arrays that sizes may share.
//!
//! A hit in level 2 fills level 1; a walk fills both; evicting from level 1 leaves level 2 unchanged. The levels are
//! neither inclusive nor exclusive. All arrays of a level are probed at once: that is one lookup, and its miss counts
//! under the size that the walk (or level 2) finds.

use super::tlb::{Tlb, TlbEntry, key, split_key};
use crate::design::TranslationParameters;
use terrace_model::{AddressRange, PageSize};

/// Counters of one core's TLBs, or of all cores' together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlbCounters {
    /// Level-1 hits by page size.
    pub l1_hits: [u64; 3],
    /// Level-1 misses by the page size found afterwards.
    pub l1_misses: [u64; 3],
    /// Level-2 hits.
    pub l2_hits: u64,
    /// Level-2 misses: walks.
    pub l2_misses: u64,
}

/// A translation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbHit {
    /// The page's entry.
    pub entry: TlbEntry,
    /// Its size.
    pub size: PageSize,
}

/// The page used last: most accesses go there again, and using the most recent entry again changes nothing.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// All ones above the page offset.
    mask: u64,
    /// Address of the page; an impossible one when there is none.
    page: u64,
    space: u32,
    hit: TlbHit,
}

const NO_PAGE: u64 = u64::MAX;

/// All TLBs of a core.
#[derive(Clone, Debug)]
pub struct Tlbs {
    l1: [Tlb; 3],
    l2: Vec<Tlb>,
    /// For each page size the level-2 array that holds it, if any.
    l2_of_size: [Option<u8>; 3],
    last: Last,
    /// What happened so far.
    pub counters: TlbCounters,
}

impl Tlbs {
    /// Empty TLBs.
    ///
    /// # Errors
    /// A geometry that cannot be built, or a size in two level-2 arrays.
    pub fn new(parameters: &TranslationParameters) -> Result<Tlbs, String> {
        let mut l1 = [Tlb::Absent, Tlb::Absent, Tlb::Absent];
        for (size, tlb) in &parameters.l1d {
            l1[size.index()] =
                Tlb::new(tlb.entries, tlb.ways).map_err(|e| format!("translation.l1d.{size}: {e}"))?;
        }
        let mut l2 = Vec::new();
        let mut l2_of_size = [None; 3];
        for array in &parameters.l2.array {
            for size in &array.sizes {
                if l2_of_size[size.index()].replace(l2.len() as u8).is_some() {
                    return Err(format!("translation.l2.array: page size {size} appears in two arrays"));
                }
            }
            l2.push(Tlb::new(array.entries, array.ways).map_err(|e| format!("translation.l2.array: {e}"))?);
        }
        let nowhere = TlbHit { entry: TlbEntry(0), size: PageSize::Base };
        let last = Last { mask: 0, page: NO_PAGE, space: 0, hit: nowhere };
        Ok(Tlbs { l1, l2, l2_of_size, last, counters: TlbCounters::default() })
    }

    /// Looks level 1 up. A miss is not counted yet, since its page size is unknown.
    #[inline(always)]
    pub fn lookup_l1(&mut self, space: u32, addr: u64) -> Option<TlbHit> {
        if addr & self.last.mask == self.last.page && self.last.space == space {
            self.counters.l1_hits[self.last.hit.size.index()] += 1;
            return Some(self.last.hit);
        }
        for size in PageSize::ALL {
            let tlb = &mut self.l1[size.index()];
            if !tlb.is_empty()
                && let Some(entry) = tlb.touch(key(space, addr >> size.shift(), size))
            {
                self.counters.l1_hits[size.index()] += 1;
                let hit = TlbHit { entry, size };
                self.remember(space, addr, hit);
                return Some(hit);
            }
        }
        None
    }

    /// Looks level 2 up after a miss in level 1. A hit counts, and fills level 1; a miss must be followed by
    /// [`Tlbs::fill_after_walk`].
    #[inline]
    pub fn lookup_l2(&mut self, space: u32, addr: u64) -> Option<TlbHit> {
        for size in PageSize::ALL {
            let Some(array) = self.l2_of_size[size.index()] else { continue };
            let tlb = &mut self.l2[array as usize];
            if !tlb.is_empty()
                && let Some(entry) = tlb.touch(key(space, addr >> size.shift(), size))
            {
                self.counters.l1_misses[size.index()] += 1;
                self.counters.l2_hits += 1;
                let hit = TlbHit { entry, size };
                self.insert_l1(space, addr, hit);
                return Some(hit);
            }
        }
        None
    }

    /// Counts the misses of both levels and fills both with what the walk found.
    #[inline]
    pub fn fill_after_walk(&mut self, space: u32, addr: u64, hit: TlbHit) {
        self.counters.l1_misses[hit.size.index()] += 1;
        self.counters.l2_misses += 1;
        if let Some(array) = self.l2_of_size[hit.size.index()] {
            self.l2[array as usize].insert(key(space, addr >> hit.size.shift(), hit.size), hit.entry);
        }
        self.insert_l1(space, addr, hit);
    }

    #[inline]
    fn insert_l1(&mut self, space: u32, addr: u64, hit: TlbHit) {
        self.l1[hit.size.index()].insert(key(space, addr >> hit.size.shift(), hit.size), hit.entry);
        if matches!(self.l1[hit.size.index()], Tlb::Absent) {
            // Nothing holds the page: the next access to it must miss.
            self.last.page = NO_PAGE;
            self.last.mask = 0;
        } else {
            self.remember(space, addr, hit);
        }
    }

    #[inline(always)]
    fn remember(&mut self, space: u32, addr: u64, hit: TlbHit) {
        let mask = !(hit.size.bytes() - 1);
        self.last = Last { mask, page: addr & mask, space, hit };
    }

    /// Replaces a page's entry wherever it is held (its dirty bit was set).
    pub fn update(&mut self, space: u32, addr: u64, hit: TlbHit) {
        let key = key(space, addr >> hit.size.shift(), hit.size);
        self.l1[hit.size.index()].update(key, hit.entry);
        if let Some(array) = self.l2_of_size[hit.size.index()] {
            self.l2[array as usize].update(key, hit.entry);
        }
        if addr & self.last.mask == self.last.page && self.last.space == space {
            self.last.hit = hit;
        }
    }

    fn forget_last(&mut self) {
        self.last.page = NO_PAGE;
        self.last.mask = 0;
    }

    /// Drops every page of `space` that overlaps `range`.
    pub fn invalidate(&mut self, space: u32, range: AddressRange) {
        self.forget_last();
        let pages = range.bytes >> 12;
        let arrays = self.l1.iter_mut().chain(self.l2.iter_mut());
        if pages <= 32 {
            for tlb in arrays {
                for size in PageSize::ALL {
                    let cover = range.page_cover(size);
                    for page in 0..cover.bytes >> size.shift() {
                        tlb.remove(key(space, (cover.start.0 >> size.shift()) + page, size));
                    }
                }
            }
        } else {
            for tlb in arrays {
                tlb.retain(|k| {
                    let (owner, page, size) = split_key(k);
                    let page = AddressRange::new(page << size.shift(), size.bytes());
                    owner != space || !page.overlaps(&range)
                });
            }
        }
    }

    /// Drops every page of `space`.
    pub fn flush_space(&mut self, space: u32) {
        self.forget_last();
        for tlb in self.l1.iter_mut().chain(self.l2.iter_mut()) {
            tlb.retain(|k| split_key(k).0 != space);
        }
    }
}
