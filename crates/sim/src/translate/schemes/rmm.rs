//! Range TLB: a few entries with base, limit and offset, beside the level-2 TLB.
//!
//! **What it does.** A look-up that misses the level-1 TLB asks the level-2 TLB and the range TLB at once. A page inside
//! a range needs no walk: its entry of the level-1 TLB is made from the range. What misses both walks the page table;
//! where the page lies in a range of the range table, that is walked in the background and its entry put in.
//!
//! **Source.** Karakostas et al., "Redundant Memory Mappings for Fast Access to Large Memories", ISCA 2015: a range TLB
//! of 32 entries, fully associative, and a range table per process, kept by the kernel as a B-tree with four ranges to a
//! node. The figures agree with what others say of the paper (the MMU models of Virtuoso among them), and are not checked
//! against its text; four ranges to a node follow from 32 bytes each.
//!
//! **Left open, and chosen here.** The paper allocates ranges eagerly; here ranges are whatever runs the page table has,
//! as long as [`RangeParameters::least`] or longer, so that they can come from any
//! allocator or policy. *Bits*: a range answers only accesses that change nothing in the page table. The first touch of
//! a page and its first store go by a page walk, which sets the accessed and the dirty bit; this stands for hardware that
//! keeps the two bits of each page beside the range. *Recency*: a range counts as used when level 2 missed. *Time*: the
//! range TLB is as fast as level 2; a range can be used when its background walk is over, one last-level access per node
//! of the tree, which small tables find there. A node is two lines. *Sizes*: level 1 is filled with the page as it is
//! mapped; level 2 is not. *Invalidation*: a range that overlaps is dropped whole, and the table keeps what remains on
//! either side. *Coherence by hardware*: what a store to a page-table entry does to ranges is
//! `translation.hatric.ranges`; entries of level 1 that ranges filled go with them.

mod tags;

use super::plain::{look_up, walk_and_fill};
use crate::coherence::{DirectoryUpdates, HatricParameters, Ranges};
use crate::translate::{
    KernelState, RangeStore, RangeTables, RangesFound, Request, Run, SchemeKeys, Setup, Stop, TlbHit, Tlbs,
    Translation, Walker,
};
use serde::{Deserialize, Serialize};
use tags::Tags;
use terrace_model::parameters::Parameters;
use terrace_model::{AddressRange, Bytes, Frame, PageSize, SpaceId, Stats, Time, Unit, VirtAddr};

/// Lines of a node of the range table.
const LINES_PER_NODE: u64 = 2;

/// Parameters of the range TLB and the range table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct RangeParameters {
    /// Entries of the fully associative range TLB.
    #[parameter(default = 32, range = 1..=1_048_576)]
    pub entries: u32,
    /// Shortest run of pages that the kernel keeps in the range table.
    #[parameter(default = "32 KiB", range = "8 KiB"..="8 TiB")]
    pub least: Bytes,
}

impl SchemeKeys for RangeParameters {}

/// A range in the TLB.
#[derive(Clone, Copy, Debug)]
struct Entry {
    space: SpaceId,
    run: Run,
    ready: Time,
    /// Where its page-table entries lie, where it keeps that.
    tags: Option<Tags>,
}

/// The range TLB of one core, most recent first.
#[derive(Clone, Debug)]
pub struct RangeTlb {
    entries: Vec<Entry>,
    capacity: usize,
    /// Level-2 misses that a range answered.
    pub hits: u64,
    /// Level-2 misses that walked.
    pub misses: u64,
    /// Walks of the range table.
    pub walks: u64,
    /// Lines of its nodes that those read.
    pub memory_refs: u64,
}

impl RangeTlb {
    /// Empty, with room for `entries`.
    pub fn new(entries: u32) -> RangeTlb {
        RangeTlb {
            entries: Vec::with_capacity(entries as usize + 1),
            capacity: entries as usize,
            hits: 0,
            misses: 0,
            walks: 0,
            memory_refs: 0,
        }
    }

    /// The base frame of an address by a range that is there at `now`; that is then the most recent.
    pub fn lookup(&mut self, space: SpaceId, addr: VirtAddr, now: Time) -> Option<Frame> {
        let at = self.entries.iter().position(|entry| entry.covers(space, addr) && entry.ready <= now)?;
        self.entries[..=at].rotate_right(1);
        Some(self.entries[0].run.place_of(addr).frame())
    }

    /// Whether a range with this address is there or under way.
    pub fn holds(&self, space: SpaceId, addr: VirtAddr) -> bool {
        self.entries.iter().any(|entry| entry.covers(space, addr))
    }

    /// A range was read from the range table and is there from `ready` on. What it overlaps is shorter, and goes.
    pub fn insert(&mut self, space: SpaceId, run: Run, ready: Time) {
        self.insert_tagged(space, run, ready, None);
    }

    fn insert_tagged(&mut self, space: SpaceId, run: Run, ready: Time, tags: Option<Tags>) {
        self.invalidate(space, run.range());
        self.entries.insert(0, Entry { space, run, ready, tags });
        self.entries.truncate(self.capacity);
    }

    /// Drops every range of `space` with one of the pages in `range`.
    pub fn invalidate(&mut self, space: SpaceId, range: AddressRange) {
        self.entries.retain(|entry| entry.space != space || !entry.run.overlaps(&range));
    }
}

impl Entry {
    #[inline(always)]
    fn covers(&self, space: SpaceId, addr: VirtAddr) -> bool {
        self.space == space && self.run.holds(addr)
    }
}

impl KernelState for RangeTables {
    fn forget(&mut self, space: SpaceId, range: AddressRange) {
        RangeTables::forget(self, space, range);
    }
}

/// Plain TLBs and the range TLB of one core.
#[derive(Debug)]
pub struct Rmm {
    tlbs: Tlbs,
    ranges: RangeTlb,
    /// What stores to page tables do, where hardware keeps translations coherent.
    follows: Option<Ranges>,
}

impl Translation for Rmm {
    const NAME: &'static str = "rmm";
    const CO_TAGS: bool = true;
    const RANGES: bool = true;
    const STATISTICS: &'static [(&'static str, &'static str)] = &[
        ("tlb.range.hit", "misses of level 2 that a range answered"),
        ("tlb.range.miss", "misses of level 2 that walked"),
        ("walk.avoided", "misses of level 2 without a walk"),
        ("walk.range.count", "walks of the range table, in the background"),
        ("walk.range.memory_refs", "lines of its nodes that they read"),
        ("os.ranges.pages", "pages in ranges, at the end"),
    ];
    type Keys = RangeParameters;
    type Kernel = RangeTables;
    type Tlbs = Tlbs;

    fn new(setup: &Setup<'_, RangeParameters>) -> Result<Rmm, String> {
        Ok(Rmm {
            tlbs: Tlbs::new(setup.translation)?,
            ranges: RangeTlb::new(setup.own.entries),
            follows: None,
        })
    }

    fn kernel(setup: &Setup<'_, RangeParameters>) -> Result<RangeTables, String> {
        Ok(RangeTables::new(setup.own.least))
    }

    #[inline(always)]
    fn tlbs(&self) -> &Tlbs {
        &self.tlbs
    }

    #[inline(always)]
    fn tlbs_mut(&mut self) -> &mut Tlbs {
        &mut self.tlbs
    }

    #[inline(never)]
    fn translate<W: Walker>(
        &mut self,
        tables: &mut RangeTables,
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        let Request { space, addr, now, .. } = *request;
        if let Some(found) = look_up(self, tables, walker, request)? {
            return Ok(found);
        }
        let looked_up = now + walker.l2_tlb_latency();
        if let Some(frame) = self.ranges.lookup(space, addr, looked_up)
            && let Some(hit) = walker.confirm(request, frame)
        {
            self.ranges.hits += 1;
            let hit = walker.splinter(addr, hit);
            if self.follows.is_some() {
                self.tlbs.set_source(self.ranges.source_of(addr));
            }
            self.tlbs.fill_l1(space, addr, hit);
            return Ok((hit, looked_up));
        }
        let (hit, walk) = walk_and_fill(self, tables, walker, request, looked_up)?;
        tables.learn(space, addr, walker.table(space));
        self.ranges.misses += 1;
        if let Some(run) = tables.range(space, addr)
            && !self.ranges.holds(space, addr)
        {
            let depth = tables.depth(space);
            self.ranges.walks += 1;
            self.ranges.memory_refs += depth * LINES_PER_NODE;
            let ready = walk.done + walker.llc_latency().times(depth);
            match self.follows {
                Some(Ranges::RangeCover | Ranges::Split) => {
                    let (run, tags) = Tags::within_a_table(run, &walk.leaf, addr, walker.table(space));
                    self.ranges.insert_tagged(space, run, ready, Some(tags));
                }
                Some(Ranges::SearchAll) | None => {
                    self.ranges.insert(space, run, ready);
                }
            }
        }
        Ok((hit, walk.done))
    }

    /// An entry of level 1 that leaves does not say to the directory from which range it was made.
    fn check_co_tags(
        _own: &RangeParameters,
        hatric: &HatricParameters,
    ) -> Result<(), (&'static str, String)> {
        if hatric.directory_updates == DirectoryUpdates::Lazy {
            return Ok(());
        }
        let problem = "with the scheme \"rmm\" directory_updates is \"lazy\"";
        Err(("translation.hatric.directory_updates", problem.to_owned()))
    }

    fn follow_stores(&mut self, ranges: Ranges) {
        self.follows = Some(ranges);
    }

    fn probe_ranges(&mut self, store: &RangeStore) -> RangesFound {
        let Some(how) = self.follows else { return RangesFound::default() };
        let mut found = self.ranges.probe(store, how);
        found.in_tlbs = tags::probe_level_1(&mut self.tlbs, store, how);
        found
    }

    fn drop_changed(&mut self, space: SpaceId, page: AddressRange) {
        self.ranges.invalidate(space, page.page_cover(PageSize::Base));
    }

    fn count_into(cores: &[Rmm], tables: &RangeTables, _cycle: Time, stats: &mut Stats) {
        let sum = |of: fn(&RangeTlb) -> u64| cores.iter().map(|core| of(&core.ranges)).sum::<u64>();
        stats.count("tlb.range.hit", sum(|own| own.hits), Unit::Count);
        stats.count("tlb.range.miss", sum(|own| own.misses), Unit::Count);
        stats.count("walk.avoided", sum(|own| own.hits), Unit::Count);
        stats.count("walk.range.count", sum(|own| own.walks), Unit::Count);
        stats.count("walk.range.memory_refs", sum(|own| own.memory_refs), Unit::Count);
        stats.level("os.ranges.pages", tables.covered(), Unit::Pages);
    }
}
