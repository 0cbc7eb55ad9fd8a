//! Part-of-memory TLB: a third level of TLB that lies in memory, and whose lines the data caches hold.
//!
//! **What it does.** What misses the level-2 TLB reads one line of a large set-associative table in memory: a set is a
//! line of four entries of 16 bytes. The line comes through the data caches as any other, so a set that was used lately
//! costs a cache hit. Small and large pages have a part each; a predictor says which to read first. Only what misses both
//! parts walks the page table, and the walk's translation is put into its set. In a virtual machine the entries hold
//! whole translations, so a hit saves the two-dimensional walk.
//!
//! **Source.** Ryoo, Gulur, Song, John, "Rethinking TLB Designs in Virtualized Environments: A Very Large Part-of-Memory
//! TLB", ISCA 2017: 16 MiB in all, four ways, a predictor of the size with 512 entries of one bit, set numbers from the
//! virtual page number and the virtual machine's number. The figures agree with descriptions of the paper and with
//! Virtuoso's model of it, and are not checked against its text.
//!
//! **Left open, and chosen here.** *Where it lies*: beyond all tiers, on the first tier's device; the paper has die-stacked
//! memory of its own. *Parts*: half for 4 KiB pages, half for larger ones, which share it. *Processes*: their number is
//! folded into the set as the machine's is. *Replacement*: the least recently used of the four. *The bypass predictor* of
//! the paper, which skips data caches, is not simulated: every set goes through the caches from the L1 on. *Changes of the
//! page table* drop the entries they concern, without traffic. *Dirty bits* are kept in the entries as in a TLB's.

use super::plain::{look_up, walk_and_fill};
use crate::translate::{KernelState, Request, SchemeKeys, Setup, Stop, TlbHit, Tlbs, Translation, Walker};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use terrace_model::parameters::Parameters;
use terrace_model::{
    AddressRange, Bytes, LINE_BYTES, PageNumber, PageSize, PhysAddr, SpaceId, Stats, Time, Unit, VirtAddr,
};

/// Bytes of an entry, so that a line holds four.
const ENTRY_BYTES: u64 = 16;
/// Entries of a set, which is one line.
const WAYS: usize = (LINE_BYTES / ENTRY_BYTES) as usize;

/// Parameters of a TLB in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct PomTlbParameters {
    /// Memory that it takes, half of it for 4 KiB pages and half for larger ones: a power of two.
    #[parameter(default = "16 MiB", range = "8 KiB"..="1 GiB", source = "Ryoo 2017")]
    pub capacity: Bytes,
    /// Entries of the predictor of the page's size, of one bit each; 0 for none, which reads the part for 4 KiB pages first.
    #[parameter(default = 512, range = 0..=1_048_576, source = "Ryoo 2017")]
    pub predictor: u32,
}

impl SchemeKeys for PomTlbParameters {
    fn validate(&self) -> Result<(), (&'static str, String)> {
        if !self.capacity.0.is_power_of_two() {
            return Err(("capacity", format!("{} is no power of two", self.capacity)));
        }
        Ok(())
    }

    fn scale(&mut self, scale: u32) {
        let least = Bytes::kib(8).0;
        self.capacity = Bytes((self.capacity.0 / u64::from(scale)).next_power_of_two().max(least));
    }
}

/// An entry: a page of a process, and what a TLB says of it.
#[derive(Clone, Copy, Debug)]
struct PomEntry {
    space: SpaceId,
    /// The page's number at its size.
    page: PageNumber,
    hit: TlbHit,
}

/// The table in memory, shared by all cores.
#[derive(Debug)]
pub struct PomTable {
    /// First physical address.
    begin: PhysAddr,
    /// Sets of each of the two parts.
    sets: u64,
    /// The sets in use, most recently used entry first.
    lines: HashMap<u64, Vec<PomEntry>>,
}

impl PomTable {
    fn new(begin: PhysAddr, capacity: Bytes) -> PomTable {
        PomTable { begin, sets: capacity.0 / 2 / LINE_BYTES, lines: HashMap::new() }
    }

    /// The set of a page, counted over both parts.
    fn set(&self, space: SpaceId, page: PageNumber, size: PageSize) -> u64 {
        let part = u64::from(size != PageSize::Base) * self.sets;
        part + ((page.0 ^ u64::from(space.0).wrapping_mul(0x9E37_79B9)) & (self.sets - 1))
    }

    /// Where a set's line lies.
    fn address(&self, set: u64) -> PhysAddr {
        self.begin + set * LINE_BYTES
    }

    /// The entry of a page, which is the most recently used of its set from then on.
    fn touch(&mut self, space: SpaceId, addr: VirtAddr, size: PageSize) -> Option<TlbHit> {
        let page = addr.page_number(size);
        let set = self.set(space, page, size);
        let line = self.lines.get_mut(&set)?;
        let at = line.iter().position(|e| e.space == space && e.page == page && e.hit.size == size)?;
        line[..=at].rotate_right(1);
        Some(line[0].hit)
    }

    /// Puts what a walk found into its set. Returns the set.
    fn insert(&mut self, space: SpaceId, addr: VirtAddr, hit: TlbHit) -> u64 {
        let page = addr.page_number(hit.size);
        let set = self.set(space, page, hit.size);
        let line = self.lines.entry(set).or_default();
        line.retain(|e| e.space != space || e.page != page || e.hit.size != hit.size);
        line.insert(0, PomEntry { space, page, hit });
        line.truncate(WAYS);
        set
    }
}

impl KernelState for PomTable {
    fn forget(&mut self, space: SpaceId, range: AddressRange) {
        self.lines.retain(|_, line| {
            line.retain(|e| {
                let first = VirtAddr::of_page(e.page, e.hit.size);
                e.space != space || !AddressRange::of_page(first, e.hit.size).overlaps(&range)
            });
            !line.is_empty()
        });
    }
}

/// Plain TLBs of one core, and its predictor of page sizes.
#[derive(Debug)]
pub struct PomTlb {
    tlbs: Tlbs,
    /// Whether the page that an entry stood for last was larger than 4 KiB.
    large: Vec<bool>,
    hits: u64,
    misses: u64,
    mispredictions: u64,
}

impl PomTlb {
    /// The predictor's entry for an address: its 2 MiB region, which holds pages of one size mostly.
    fn slot(&self, addr: VirtAddr) -> Option<usize> {
        (!self.large.is_empty()).then(|| addr.page_number(PageSize::Huge).0 as usize % self.large.len())
    }
}

impl Translation for PomTlb {
    const NAME: &'static str = "pom-tlb";
    const RUNS_IN_VM: bool = true;
    const DESIGN: Option<&'static str> = Some(
        "summary = \"4 KiB pages, a level-3 TLB of 16 MiB in memory whose lines are cached: part-of-memory TLB\"\n\
         extends = \"native-4k\"\n\n[translation.scheme]\nkind = \"pom-tlb\"\n",
    );
    const STATISTICS: &'static [(&'static str, &'static str)] = &[
        ("tlb.pom.hit", "misses of level 2 that the TLB in memory answered"),
        ("tlb.pom.miss", "misses of level 2 that walked"),
        ("tlb.pom.size_mispredictions", "hits that the second part of the table answered"),
    ];
    type Keys = PomTlbParameters;
    type Kernel = PomTable;
    type Tlbs = Tlbs;

    fn new(setup: &Setup<'_, PomTlbParameters>) -> Result<PomTlb, String> {
        let large = vec![false; setup.own.predictor as usize];
        Ok(PomTlb { tlbs: Tlbs::new(setup.translation)?, large, hits: 0, misses: 0, mispredictions: 0 })
    }

    fn kernel(setup: &Setup<'_, PomTlbParameters>) -> Result<PomTable, String> {
        Ok(PomTable::new(setup.memory, setup.own.capacity))
    }

    #[inline(always)]
    fn tlbs(&self) -> &Tlbs {
        &self.tlbs
    }

    #[inline(always)]
    fn tlbs_mut(&mut self) -> &mut Tlbs {
        &mut self.tlbs
    }

    fn memory_bytes(keys: &PomTlbParameters) -> u64 {
        keys.capacity.0
    }

    #[inline(never)]
    fn translate<W: Walker>(
        &mut self,
        table: &mut PomTable,
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        if let Some(found) = look_up(self, table, walker, request)? {
            return Ok(found);
        }
        let Request { space, addr, write, now } = *request;
        let slot = self.slot(addr);
        let predicts_large = slot.is_some_and(|slot| self.large[slot]);
        let mut at = now + walker.l2_tlb_latency();
        for (try_number, large) in [predicts_large, !predicts_large].into_iter().enumerate() {
            let sizes: &[PageSize] =
                if large { &[PageSize::Huge, PageSize::Giant] } else { &[PageSize::Base] };
            for &size in sizes {
                // Both large sizes of an address have a line of their own.
                let line = table.address(table.set(space, addr.page_number(size), size));
                at = walker.fetch::<PomTlb>(table, line, false, at);
                walker.count_references(1);
                let Some(hit) = table.touch(space, addr, size) else { continue };
                self.hits += 1;
                self.mispredictions += try_number as u64;
                if let Some(slot) = slot {
                    self.large[slot] = large;
                }
                self.tlbs.fill_after_walk(space, addr, hit);
                if write && !hit.entry.is_dirty() {
                    return walker.set_dirty(self, table, &request.at(at));
                }
                return Ok((hit, at));
            }
        }
        self.misses += 1;
        let (hit, walk) = walk_and_fill(self, table, walker, request, at)?;
        if let Some(slot) = self.slot(addr) {
            self.large[slot] = hit.size != PageSize::Base;
        }
        if walk.pte.is_readable_at_once() {
            // The walker writes the set's line; nobody waits for that. What a policy watches is walked for each time.
            let set = table.insert(space, addr, hit);
            let line = table.address(set);
            walker.fetch::<PomTlb>(table, line, true, walk.done);
        }
        Ok((hit, walk.done))
    }

    fn count_into(cores: &[PomTlb], _table: &PomTable, _cycle: Time, stats: &mut Stats) {
        let sum = |of: fn(&PomTlb) -> u64| cores.iter().map(of).sum::<u64>();
        stats.count("tlb.pom.hit", sum(|core| core.hits), Unit::Count);
        stats.count("tlb.pom.miss", sum(|core| core.misses), Unit::Count);
        stats.count("tlb.pom.size_mispredictions", sum(|core| core.mispredictions), Unit::Count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::TlbEntry;
    use terrace_model::Frame;

    fn hit(frame: Frame, size: PageSize) -> TlbHit {
        TlbHit { entry: TlbEntry::new(frame, false), size }
    }

    #[test]
    fn a_set_is_a_line_of_four_entries() {
        // 8 KiB: 64 sets in each part.
        let mut table = PomTable::new(PhysAddr(1 << 40), Bytes::kib(8));
        let page = |n: u64| VirtAddr::of_vpn(3 + 64 * n);
        for n in 0..4 {
            table.insert(SpaceId(0), page(n), hit(Frame(100 + n), PageSize::Base));
        }
        assert_eq!(table.touch(SpaceId(0), page(0), PageSize::Base), Some(hit(Frame(100), PageSize::Base)));
        table.insert(SpaceId(0), page(4), hit(Frame(104), PageSize::Base));
        assert_eq!(table.touch(SpaceId(0), page(1), PageSize::Base), None, "the least recently used went");
        assert_eq!(table.touch(SpaceId(0), page(0), PageSize::Base), Some(hit(Frame(100), PageSize::Base)));
        let set = table.set(SpaceId(0), PageNumber(3), PageSize::Base);
        assert_eq!((set, table.address(set)), (3, PhysAddr((1 << 40) + 3 * 64)));
        assert_eq!(
            table.set(SpaceId(0), PageNumber(3), PageSize::Huge),
            64 + 3,
            "large pages have their own part"
        );
        assert_ne!(table.set(SpaceId(1), PageNumber(3), PageSize::Base), set, "another process");
    }

    #[test]
    fn what_changes_is_forgotten_whole() {
        let mut table = PomTable::new(PhysAddr(0), Bytes::mib(1));
        table.insert(SpaceId(0), VirtAddr(0x5000), hit(Frame(1), PageSize::Base));
        table.insert(SpaceId(1), VirtAddr(0x5000), hit(Frame(2), PageSize::Base));
        table.insert(SpaceId(0), VirtAddr(2 << 20), hit(Frame(512), PageSize::Huge));
        table.forget(SpaceId(0), AddressRange::new((2 << 20) + 0x3000, 4096));
        assert_eq!(table.touch(SpaceId(0), VirtAddr(2 << 20), PageSize::Huge), None, "a part of it changed");
        table.forget(SpaceId(0), AddressRange::ALL);
        assert_eq!(table.touch(SpaceId(0), VirtAddr(0x5000), PageSize::Base), None);
        assert_eq!(
            table.touch(SpaceId(1), VirtAddr(0x5000), PageSize::Base),
            Some(hit(Frame(2), PageSize::Base)),
            "another process"
        );
    }

    #[test]
    fn keys_are_checked_and_scaled() {
        let mut keys = PomTlbParameters::default();
        keys.validate().unwrap();
        keys.scale(16);
        assert_eq!(keys.capacity, Bytes::mib(1));
        keys.capacity = Bytes::kib(12);
        assert_eq!(keys.validate().unwrap_err().0, "capacity");
    }
}
