//! One sample of huge pages on its way through the stages: split, observed, poisoned, over.

use super::{Parameters, estimated_rate};
use crate::{Clear, MemorySystem, PageCount, PageId, PageRange, Random, ScanHand, Scope, Step, Watch};
use std::collections::{BTreeMap, BTreeSet};
use terrace_model::{PageSize, TierId};

/// What is known of one sampled huge page.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sampled {
    /// Base pages whose accessed bit was set; all of them without the prefilter.
    accessed: u64,
    /// Counts of the poisoned ones; none of those of which the world knows nothing.
    counts: BTreeMap<PageId, Option<u64>>,
}

impl Sampled {
    fn known(&self) -> impl Iterator<Item = u64> {
        self.counts.values().flatten().copied()
    }

    /// Pages were poisoned, and nothing is known of any.
    fn is_unknown(&self) -> bool {
        !self.counts.is_empty() && self.known().next().is_none()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Split, and the accessed bits cleared.
    Observed,
    Poisoned,
    Over,
}

/// One sample.
#[derive(Clone, Debug)]
pub(super) struct Round {
    stage: Stage,
    sampled: BTreeMap<PageId, Sampled>,
    share: f64,
}

impl Round {
    /// Chooses `share` of the huge pages of `tier`, at least one, and at most `most`; returns as well how many that share
    /// is. None where there is no huge page, or nothing is wanted or possible.
    pub fn choose(
        tier: TierId,
        share: f64,
        most: usize,
        busy: &BTreeSet<PageId>,
        random: &mut Random,
        memory: &mut dyn MemorySystem,
    ) -> (Option<Round>, usize) {
        let mut huge = Vec::new();
        memory.scan(Scope::Tier(tier), &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
            if view.size == PageSize::Huge && !view.in_flight && !busy.contains(&view.page) {
                huge.push(view.page);
            }
            Step::Keep
        });
        let wanted = (share * huge.len() as f64).ceil() as usize;
        let all = huge.len();
        let chosen = random.choose(&mut huge, wanted.min(most));
        if chosen == 0 {
            return (None, wanted);
        }
        let sampled = huge[..chosen].iter().map(|page| (*page, Sampled::default())).collect();
        (Some(Round { stage: Stage::Observed, sampled, share: chosen as f64 / all as f64 }), wanted)
    }

    /// The share of all huge pages that this sample is.
    pub fn share(&self) -> f64 {
        self.share
    }

    pub fn pages(&self) -> impl Iterator<Item = PageId> + '_ {
        self.sampled.keys().copied()
    }

    /// A page could not be split: it tells nothing.
    pub fn leave_out(&mut self, page: PageId) {
        self.sampled.remove(&page);
    }

    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Adds what was counted on a base page, if it is one of the sample's.
    pub fn count(&mut self, count: &PageCount) {
        if let Some(sampled) = self.sampled.get_mut(&count.page.aligned(PageSize::Huge))
            && let Some(sum) = sampled.counts.get_mut(&count.page)
        {
            // A lower bound of nothing says nothing.
            let is_unknown = count.saturated && count.accesses == 0;
            *sum = if is_unknown { None } else { sum.map(|sum| sum + count.accesses) };
        }
    }

    /// An interval is over: on to the next stage.
    pub fn advance(&mut self, parameters: &Parameters, random: &mut Random, memory: &mut dyn MemorySystem) {
        self.stage = match self.stage {
            Stage::Observed => {
                for (page, sampled) in &mut self.sampled {
                    let mut candidates = base_pages(*page, parameters.prefilter, memory);
                    sampled.accessed = candidates.len() as u64;
                    let count = random.choose(&mut candidates, parameters.poisoned as usize);
                    memory.watch(&candidates[..count], Watch::Count);
                    sampled.counts = candidates[..count].iter().map(|page| (*page, Some(0))).collect();
                }
                // Pages that were unmapped, or are not split yet, tell nothing.
                self.sampled.retain(|page, _| memory.page(*page).is_some_and(|v| v.size == PageSize::Base));
                Stage::Poisoned
            }
            Stage::Poisoned | Stage::Over => {
                for sampled in self.sampled.values() {
                    let poisoned: Vec<PageId> = sampled.counts.keys().copied().collect();
                    memory.watch(&poisoned, Watch::Off);
                }
                Stage::Over
            }
        };
    }

    /// Pages poisoned, and accesses counted on them.
    pub fn totals(&self) -> (u64, u64) {
        let known = || self.sampled.values().flat_map(Sampled::known);
        (known().count() as u64, known().sum())
    }

    /// The estimate for each huge page of which anything is known.
    pub fn rates(&self, seconds: f64) -> Vec<(PageId, f64)> {
        let rate = |sampled: &Sampled| {
            let counts: Vec<u64> = sampled.known().collect();
            estimated_rate(&counts, sampled.accessed, seconds)
        };
        let known = self.sampled.iter().filter(|(_, sampled)| !sampled.is_unknown());
        known.map(|(page, sampled)| (*page, rate(sampled))).collect()
    }
}

/// Clears the accessed bits below a page that was just split, and what translations were cached since.
pub(super) fn clear_accessed(page: PageId, memory: &mut dyn MemorySystem) {
    let range = Scope::Range(PageRange::of(page, PageSize::Huge));
    let clear = Clear::ACCESSED.flushed_where_offered(memory);
    memory.scan(range, &mut ScanHand::default(), clear, &mut |_| Step::Clear);
}

/// The base pages of a split huge page; with `accessed_only`, those in use.
fn base_pages(page: PageId, accessed_only: bool, memory: &mut dyn MemorySystem) -> Vec<PageId> {
    let mut pages = Vec::new();
    let range = Scope::Range(PageRange::of(page, PageSize::Huge));
    memory.scan(range, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
        if view.size == PageSize::Base && (view.accessed || !accessed_only) {
            pages.push(view.page);
        }
        Step::Keep
    });
    pages
}
