//! The TLBs of one core: level 1 per page size, level 2 in arrays that sizes may share.
//!
//! A hit in level 2 fills level 1; a walk fills both; evicting from level 1 leaves level 2 unchanged. The levels are
//! neither inclusive nor exclusive. All arrays of a level are probed at once: that is one lookup, and its miss counts
//! under the size that the walk (or level 2) finds.

use super::co_tags::CoTags;
use super::parameters::TranslationParameters;
use super::tlb::{Tlb, TlbEntry, key, split_key};
use crate::coherence::{NOTHING, Probed, Resolution, Structure, Target, TlbSets};
use terrace_model::{AddressRange, Frame, PageSize, PhysAddr, SpaceId, VirtAddr};

/// Counters of one core's TLBs, or of all cores' together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlbCounters {
    /// Level-1 hits by page size.
    pub l1_hits: [u64; 3],
    /// Level-1 misses by the page size found afterwards.
    pub l1_misses: [u64; 3],
    /// Level-2 hits.
    pub l2_hits: u64,
    /// Level-2 misses: walks, where the scheme has nothing else that answers them.
    pub l2_misses: u64,
}

impl TlbCounters {
    /// Adds another core's.
    pub fn add(&mut self, other: &TlbCounters) {
        for size in 0..3 {
            self.l1_hits[size] += other.l1_hits[size];
            self.l1_misses[size] += other.l1_misses[size];
        }
        self.l2_hits += other.l2_hits;
        self.l2_misses += other.l2_misses;
    }
}

/// A translation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbHit {
    /// The page's entry.
    pub entry: TlbEntry,
    /// The page's size.
    pub size: PageSize,
}

impl TlbHit {
    /// Where `addr`, an address in the page, lies.
    #[inline(always)]
    pub fn place_of(&self, addr: VirtAddr) -> PhysAddr {
        self.entry.frame().addr() + addr.page_offset(self.size)
    }

    /// The base frame that holds `addr`, an address in the page.
    #[inline(always)]
    pub fn frame_of(&self, addr: VirtAddr) -> Frame {
        self.place_of(addr).frame()
    }
}

/// A base page's translation by a level-1 entry, and where that was: while it still is there, the arrays need not be
/// searched, and while it is the most recent of its set, using it again changes nothing.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// Which base page; [`NO_PAGE`] when unused.
    page: BasePage,
    /// Key of the entry that maps it.
    key: u64,
    /// The entry's set, counted over all level-1 arrays.
    set: u32,
    /// The entry's place in its array.
    slot: u32,
    hit: TlbHit,
}

const NO_KEY: u64 = u64::MAX;
const RECENT: usize = 64;

const NOTHING_RECENT: Recent = Recent {
    page: NO_PAGE,
    key: NO_KEY,
    set: 0,
    slot: 0,
    hit: TlbHit { entry: TlbEntry(0), size: PageSize::Base },
};

/// A base page with its address space, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BasePage(u64);

const NO_PAGE: BasePage = BasePage(u64::MAX);

impl BasePage {
    #[inline(always)]
    fn of(space: SpaceId, addr: VirtAddr) -> BasePage {
        // Addresses have 57 bits at most, so 45 remain; 19 bits distinguish the spaces of one run.
        BasePage(addr.vpn() ^ u64::from(space.0) << 45)
    }
}

/// Where a base page's translation is remembered. Any pages must spread: power-of-two strides are frequent.
#[inline(always)]
fn recent_index(addr: VirtAddr) -> usize {
    (addr.vpn().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - RECENT.ilog2())) as usize
}

/// All TLBs of a core.
#[derive(Clone, Debug)]
pub struct Tlbs {
    l1: [Tlb; 3],
    l2: Vec<Tlb>,
    /// For each page size the level-2 array that holds it, if any.
    l2_of_size: [Option<u8>; 3],
    /// Whether a page of the size was ever put in: the others need not be looked for.
    seen: [bool; 3],
    /// Direct mapped by base page; see [`recent_index`].
    recent: Box<[Recent; RECENT]>,
    /// Key of the most recently used entry of every level-1 set, [`NO_KEY`] when unknown.
    most_recent: Box<[u64]>,
    /// Where the sets of each level-1 array begin in `most_recent`.
    first_set: [usize; 3],
    /// Where hardware keeps translations coherent.
    co_tags: Option<Box<TlbCoTags>>,
    /// What happened so far.
    pub counters: TlbCounters,
}

/// The co-tags of all arrays.
#[derive(Clone, Debug)]
struct TlbCoTags {
    /// The page-table entry that the next fill is made from.
    source: PhysAddr,
    l1: [CoTags; 3],
    l2: Vec<CoTags>,
    /// Co-tags of entries that had to go, where somebody wants to know.
    evicted: Option<Vec<PhysAddr>>,
}

/// What an entry takes of the host's memory, in bytes: key, frame, tag and its place in the order. About twice that where
/// every way is looked up.
const HOST_BYTES: u64 = 32;

impl Tlbs {
    /// About what the TLBs of a core take of the host's memory, in bytes.
    pub fn host_bytes(parameters: &TranslationParameters) -> u64 {
        let l1 = parameters.l1d.values().map(|tlb| u64::from(tlb.entries));
        let l2 = parameters.l2.array.iter().map(|array| u64::from(array.entries));
        l1.chain(l2).sum::<u64>() * HOST_BYTES
    }

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
        let first_set = [0, l1[0].sets(), l1[0].sets() + l1[1].sets()];
        let sets = first_set[2] + l1[2].sets();
        Ok(Tlbs {
            l1,
            l2,
            l2_of_size,
            seen: [false; 3],
            recent: Box::new([NOTHING_RECENT; RECENT]),
            most_recent: vec![NO_KEY; sets].into(),
            first_set,
            co_tags: None,
            counters: TlbCounters::default(),
        })
    }

    /// The translation of a page used lately, if it is known where in level 1 it is; `None` says nothing. Uses it, but
    /// counts nothing: whoever goes on with it calls [`Tlbs::count_hit`].
    #[inline(always)]
    pub fn recent(&mut self, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        let Recent { page, key, set, slot, hit } = self.recent[recent_index(addr)];
        if page != BasePage::of(space, addr) {
            return None;
        }
        if self.most_recent[set as usize] != key {
            if !self.l1[hit.size.index()].touch_slot(key, slot) {
                return None;
            }
            self.most_recent[set as usize] = key;
        }
        Some(hit)
    }

    /// A level-1 hit that [`Tlbs::recent`] answered.
    #[inline(always)]
    pub fn count_hit(&mut self, hit: TlbHit) {
        self.counters.l1_hits[hit.size.index()] += 1;
    }

    /// Looks level 1 up. A miss is not counted yet, since its page size is unknown.
    #[inline(always)]
    pub fn lookup_l1(&mut self, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        if let Some(hit) = self.recent(space, addr) {
            self.count_hit(hit);
            return Some(hit);
        }
        self.lookup_l1_of(PageSize::Base, space, addr)
            .or_else(|| self.lookup_l1_of(PageSize::Huge, space, addr))
            .or_else(|| self.lookup_l1_of(PageSize::Giant, space, addr))
    }

    #[inline(always)]
    fn lookup_l1_of(&mut self, size: PageSize, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        if !self.seen[size.index()] {
            return None;
        }
        let key = key(space, addr.page_number(size), size);
        let (entry, slot) = self.l1[size.index()].touch(key)?;
        self.counters.l1_hits[size.index()] += 1;
        let hit = TlbHit { entry, size };
        self.remember(space, addr, key, slot, hit);
        Some(hit)
    }

    /// Looks level 2 up after a miss in level 1. A hit counts, and fills level 1; a miss must be followed by
    /// [`Tlbs::fill_after_walk`].
    #[inline]
    pub fn lookup_l2(&mut self, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        self.lookup_l2_of(PageSize::Base, space, addr)
            .or_else(|| self.lookup_l2_of(PageSize::Huge, space, addr))
            .or_else(|| self.lookup_l2_of(PageSize::Giant, space, addr))
    }

    #[inline(always)]
    fn lookup_l2_of(&mut self, size: PageSize, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
        if !self.seen[size.index()] {
            return None;
        }
        let array = self.l2_of_size[size.index()]?;
        let key = key(space, addr.page_number(size), size);
        let (entry, _) = self.l2[array as usize].touch(key)?;
        if let Some(own) = &mut self.co_tags
            && let Some(place) = self.l2[array as usize].place(key)
        {
            own.source = own.l2[array as usize].get(place);
        }
        self.counters.l1_misses[size.index()] += 1;
        self.counters.l2_hits += 1;
        let hit = TlbHit { entry, size };
        self.insert_l1(space, addr, key, hit);
        Some(hit)
    }

    /// Counts the misses of both levels and fills both with what the walk found, or whatever else answered.
    #[inline]
    pub fn fill_after_walk(&mut self, space: SpaceId, addr: VirtAddr, hit: TlbHit) {
        let size = hit.size.index();
        self.counters.l1_misses[size] += 1;
        self.counters.l2_misses += 1;
        self.seen[size] = true;
        let key = key(space, addr.page_number(hit.size), hit.size);
        if let Some(array) = self.l2_of_size[size] {
            self.l2[array as usize].insert(key, hit.entry);
            if let Some(own) = &mut self.co_tags {
                own.tag(&self.l2[array as usize], Structure::L2, array as usize, key);
            }
        }
        self.insert_l1(space, addr, key, hit);
    }

    /// Counts the misses of both levels and fills level 1 with what something beside level 2 knew.
    pub fn fill_l1(&mut self, space: SpaceId, addr: VirtAddr, hit: TlbHit) {
        let size = hit.size.index();
        self.counters.l1_misses[size] += 1;
        self.counters.l2_misses += 1;
        self.seen[size] = true;
        self.insert_l1(space, addr, key(space, addr.page_number(hit.size), hit.size), hit);
    }

    #[inline(always)]
    fn insert_l1(&mut self, space: SpaceId, addr: VirtAddr, key: u64, hit: TlbHit) {
        let slot = self.l1[hit.size.index()].insert(key, hit.entry);
        if let Some(own) = &mut self.co_tags {
            own.tag(&self.l1[hit.size.index()], Structure::L1, hit.size.index(), key);
        }
        self.remember(space, addr, key, slot, hit);
    }

    /// The entry of a page became the most recent of its level-1 set.
    #[inline(always)]
    fn remember(&mut self, space: SpaceId, addr: VirtAddr, key: u64, slot: u32, hit: TlbHit) {
        let size = hit.size.index();
        if matches!(self.l1[size], Tlb::Absent) {
            return;
        }
        let set = self.first_set[size] + self.l1[size].set_number(key);
        self.most_recent[set] = key;
        self.recent[recent_index(addr)] =
            Recent { page: BasePage::of(space, addr), key, set: set as u32, slot, hit };
    }

    /// Replaces a page's entry wherever it is held (its dirty bit was set).
    pub fn update(&mut self, space: SpaceId, addr: VirtAddr, hit: TlbHit) {
        let key = key(space, addr.page_number(hit.size), hit.size);
        self.l1[hit.size.index()].update(key, hit.entry);
        if let Some(array) = self.l2_of_size[hit.size.index()] {
            self.l2[array as usize].update(key, hit.entry);
        }
        if hit.size == PageSize::Base {
            self.recent[recent_index(addr)] = NOTHING_RECENT;
        } else {
            // Any part of the page may be there.
            self.forget_recent();
        }
    }

    /// Keeps co-tags beside all entries from now on. `notify_evicted`: [`Tlbs::take_evicted`] is asked.
    pub fn keep_co_tags(&mut self, notify_evicted: bool) {
        self.co_tags = Some(Box::new(TlbCoTags {
            source: NOTHING,
            l1: std::array::from_fn(|at| CoTags::beside(&self.l1[at])),
            l2: self.l2.iter().map(CoTags::beside).collect(),
            evicted: notify_evicted.then(Vec::new),
        }));
    }

    /// The next fill is made from the page-table entry at this address.
    pub fn set_source(&mut self, entry: PhysAddr) {
        if let Some(own) = &mut self.co_tags {
            own.source = entry;
        }
    }

    /// Co-tags of entries that had to go since this was asked last.
    pub fn take_evicted(&mut self) -> Vec<PhysAddr> {
        let evicted = self.co_tags.as_mut().and_then(|own| own.evicted.as_mut());
        evicted.map(std::mem::take).unwrap_or_default()
    }

    /// Where level 1 and level 2 look for a page.
    pub fn tlb_sets(&self, space: SpaceId, addr: VirtAddr, size: PageSize) -> TlbSets {
        let page = addr.page_number(size);
        let key = key(space, page, size);
        let l2 = self.l2_of_size[size.index()].map_or(0, |array| self.l2[array as usize].set_number(key));
        TlbSets { sets: [self.l1[size.index()].set_number(key) as u16, l2 as u16], page: page.0 as u16 }
    }

    /// Drops the translations whose co-tags match.
    pub fn probe(&mut self, target: &Target, resolution: Resolution) -> Probed {
        let Some(own) = &mut self.co_tags else { return Probed::default() };
        let mut probed = Probed::default();
        for (array, tags) in self.l1.iter_mut().zip(&mut own.l1) {
            probed.add(&tags.probe(array, Structure::L1, &target.l1, target.address, resolution));
        }
        for (array, tags) in self.l2.iter_mut().zip(&mut own.l2) {
            probed.add(&tags.probe(array, Structure::L2, &target.l2, target.address, resolution));
        }
        if probed.found() {
            self.forget_recent();
        }
        probed
    }

    /// Whether a translation's co-tag matches, in any set, and how many co-tags were compared for that.
    pub fn holds(&self, address: PhysAddr, resolution: Resolution) -> (bool, u64) {
        let Some(own) = &self.co_tags else { return (false, 0) };
        let arrays = self.l1.iter().zip(&own.l1).chain(self.l2.iter().zip(&own.l2));
        arrays.fold((false, 0), |(held, compared), (array, tags)| {
            let (here, more) = tags.holds(array, address, resolution);
            (held || here, compared + more)
        })
    }

    fn forget_recent(&mut self) {
        self.recent.fill(NOTHING_RECENT);
    }

    /// Drops every page of `space` that overlaps `range`.
    pub fn invalidate(&mut self, space: SpaceId, range: AddressRange) {
        self.forget_recent();
        let pages = range.bytes >> 12;
        let arrays = self.l1.iter_mut().chain(self.l2.iter_mut());
        if pages <= 32 {
            for tlb in arrays {
                for size in PageSize::ALL {
                    let cover = range.page_cover(size);
                    for page in 0..cover.bytes >> size.shift() {
                        tlb.remove(key(space, cover.start.page_number(size) + page, size));
                    }
                }
            }
        } else {
            for tlb in arrays {
                tlb.retain(|k| {
                    let (owner, page, size) = split_key(k);
                    let page = AddressRange::of_page(VirtAddr::of_page(page, size), size);
                    owner != space || !page.overlaps(&range)
                });
            }
        }
    }

    /// Drops every page of `space`.
    pub fn flush_space(&mut self, space: SpaceId) {
        self.forget_recent();
        for tlb in self.l1.iter_mut().chain(self.l2.iter_mut()) {
            tlb.retain(|k| split_key(k).0 != space);
        }
    }
}

impl TlbCoTags {
    /// An entry was put into an array.
    #[inline(never)]
    fn tag(&mut self, array: &Tlb, structure: Structure, number: usize, key: u64) {
        let Some(place) = array.place(key) else { return };
        let tags = if structure == Structure::L1 { &mut self.l1[number] } else { &mut self.l2[number] };
        let old = tags.set(place, self.source);
        if let Some(evicted) = &mut self.evicted {
            evicted.extend(old);
        }
    }
}
