//! Coalesced TLBs: an entry covers the run of pages around the one walked, inside an aligned group.
//!
//! **What it does.** A walk fetches a cache line with the page-table entries of eight neighbours. Those next to the
//! page walked that lie in the neighbouring frames with the same attributes become one TLB entry. The set is taken from
//! the group's number, so that all pages of a group look in the same set.
//!
//! **Source.** Pham, Vaidyanathan, Jaleel, Bhattacharjee, "CoLT: Coalesced Large-Reach TLBs", MICRO 2012: its
//! set-associative variant (CoLT-SA), with groups up to the eight entries of a line; by descriptions of the paper it found
//! groups of four the better balance for that variant (`pages = 4`). Not here: CoLT-FA, which keeps longer runs in the
//! fully associative TLB of huge pages, and CoLT-All, which is both.
//!
//! **Left open, and chosen here.** *Accessed bits*: x86 caches no translation whose accessed bit is clear, and a hit sets
//! none, so an entry covers only pages whose bit is set already; the page walked has its own set by the walk. *Dirty
//! bits*: all pages of an entry agree. The first store through a clean entry visits the page table as ever; the line is
//! at hand then, and the entry becomes the run of pages that agree with the one stored to. *Invalidation*: an entry that
//! overlaps is dropped whole. *Two runs of one group* are two entries of its set. *Groups of 16* stand for a walker that
//! fetches a pair of lines; the second delays nothing. *2 MiB pages* coalesce by the same rule where asked for. A hit
//! in level 2 fills level 1 with what the level-2 entry covers.

mod run;
mod tlbs;

pub use run::PageRun;
pub use tlbs::{CoalescedCounters, CoalescedTlbs};

use crate::coherence::{DirectoryUpdates, Granularity, HatricParameters, SetNumbers};
use crate::translate::{Request, SchemeKeys, Setup, Stop, TlbHit, Translation, Walker};
use serde::{Deserialize, Serialize};
use terrace_model::parameters::{Choice, Parameters};
use terrace_model::{LINE_BYTES, PageSize, PhysAddr, Stats, Time, Unit};

/// Parameters of coalesced TLBs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct CoalescedParameters {
    /// Pages of an aligned group that one entry may cover: 2, 4, 8 or 16. Eight page-table entries share a cache line;
    /// for 16 the walker fetches the line beside it too.
    #[parameter(default = 8, range = 2..=16)]
    pub pages: u32,
    /// Levels whose entries coalesce.
    #[parameter(default = CoalescedLevels::Both)]
    pub levels: CoalescedLevels,
    /// Page sizes whose entries coalesce.
    #[parameter(default = vec![PageSize::Base])]
    pub sizes: Vec<PageSize>,
}

impl SchemeKeys for CoalescedParameters {
    fn validate(&self) -> Result<(), (&'static str, String)> {
        if !matches!(self.pages, 2 | 4 | 8 | 16) {
            return Err(("pages", format!("{} is not 2, 4, 8 or 16", self.pages)));
        }
        if self.sizes.is_empty() {
            return Err(("sizes", "names no page size".to_owned()));
        }
        if self.sizes.contains(&PageSize::Giant) {
            return Err(("sizes", "only 4k and 2m pages coalesce".to_owned()));
        }
        Ok(())
    }
}

/// Levels of TLB that coalesce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "lowercase")]
pub enum CoalescedLevels {
    /// Level 1 and level 2.
    #[default]
    Both,
    /// Level 1 only.
    L1,
    /// Level 2 only.
    L2,
}

/// Coalesced TLBs as a scheme.
#[derive(Debug)]
pub struct Colt {
    tlbs: CoalescedTlbs,
}

impl Translation for Colt {
    const NAME: &'static str = "colt";
    const CO_TAGS: bool = true;
    const STATISTICS: &'static [(&'static str, &'static str)] = &[
        ("tlb.coalesced.l1.hit", "hits of level 1 on entries of several pages, among those of `tlb.l1d`"),
        ("tlb.coalesced.l2.hit", "hits of level 2 on entries of several pages, among those of `tlb.l2`"),
        ("tlb.coalesced.fills", "walks that put an entry in"),
        ("tlb.coalesced.covered", "pages that those entries covered"),
        ("walk.avoided", "first uses of a page since its entry was put in by another's walk"),
    ];
    type Keys = CoalescedParameters;
    type Kernel = ();
    type Tlbs = CoalescedTlbs;

    fn new(setup: &Setup<'_, CoalescedParameters>) -> Result<Colt, String> {
        Ok(Colt { tlbs: CoalescedTlbs::new(setup.translation, setup.own)? })
    }

    fn kernel(_setup: &Setup<'_, CoalescedParameters>) -> Result<(), String> {
        Ok(())
    }

    #[inline(always)]
    fn tlbs(&self) -> &CoalescedTlbs {
        &self.tlbs
    }

    #[inline(always)]
    fn tlbs_mut(&mut self) -> &mut CoalescedTlbs {
        &mut self.tlbs
    }

    #[inline(never)]
    fn translate<W: Walker>(
        &mut self,
        kernel: &mut (),
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        let Request { space, addr, write, now } = *request;
        let looked_up = now + walker.l2_tlb_latency();
        let found = match self.tlbs.lookup_l1(space, addr) {
            Some(hit) => Some((hit, now)),
            None => self.tlbs.lookup_l2(space, addr).map(|hit| (hit, looked_up)),
        };
        if let Some((hit, at)) = found {
            if write && !hit.entry.is_dirty() {
                return walker.set_dirty(self, kernel, &request.at(at));
            }
            return Ok((hit, at));
        }
        let walk = walker.walk(self, kernel, request, looked_up)?;
        let whole = walker.splinter(addr, walk.hit());
        if whole.size != walk.leaf.size {
            // No more than a page of the host: its neighbours have entries of their own.
            return Ok((
                self.tlbs.fill_after_walk(space, addr, whole.size, PageRun::alone(addr, whole)),
                walk.done,
            ));
        }
        let group = self.tlbs.group(walk.leaf.size);
        let run = PageRun::around(walker.table(space), &walk.leaf, walk.pte, addr, group);
        let hit = self.tlbs.fill_after_walk(space, addr, walk.leaf.size, run);
        if group * 8 > LINE_BYTES && walk.pte.is_plain() {
            // The other line of the pair.
            let level = walk.leaf.size.index() as u32 + 1;
            let entry = walker.table(space).entry_address(&walk.leaf, addr, level);
            walker.fetch::<Colt>(kernel, PhysAddr(entry.0 ^ LINE_BYTES), false, walk.done);
            walker.count_references(1);
        }
        Ok((hit, walk.done))
    }

    /// One co-tag speaks of all pages that an entry covers, as long as their page-table entries lie in one line.
    fn check_co_tags(
        own: &CoalescedParameters,
        hatric: &HatricParameters,
    ) -> Result<(), (&'static str, String)> {
        if own.pages > 8 {
            let pages = own.pages;
            return Err((
                "translation.scheme.pages",
                format!(
                    "{pages} page-table entries lie in two lines, of which a co-tag names one; hardware coherence needs 8 or \
                     less"
                ),
            ));
        }
        let whole_lines = hatric.granularity == Granularity::Line
            && hatric.set_numbers == SetNumbers::Whole
            && hatric.directory_updates == DirectoryUpdates::Lazy;
        if whole_lines {
            return Ok(());
        }
        let problem = "with the scheme \"colt\" granularity is \"line\", set_numbers \"whole\" and directory_updates \"lazy\"";
        Err(("translation.hatric", problem.to_owned()))
    }

    fn count_into(cores: &[Colt], _kernel: &(), _cycle: Time, stats: &mut Stats) {
        let sum = |of: fn(&CoalescedCounters) -> u64| {
            cores.iter().map(|core| of(&core.tlbs.coalesced)).sum::<u64>()
        };
        stats.count("tlb.coalesced.l1.hit", sum(|own| own.l1_hits), Unit::Count);
        stats.count("tlb.coalesced.l2.hit", sum(|own| own.l2_hits), Unit::Count);
        stats.count("tlb.coalesced.fills", sum(|own| own.fills), Unit::Count);
        stats.count("tlb.coalesced.covered", sum(|own| own.pages), Unit::Count);
        stats.count("walk.avoided", sum(|own| own.avoided), Unit::Count);
    }
}
