//! The classical page-replacement algorithms, each choosing who makes room in the fast tier.
//!
//! **Idea.** Every period the pages of the slow tier that were touched are wanted in the fast tier. While it is full,
//! an algorithm names for each the page that goes in its stead. All else is equal, so two runs differ by the algorithm
//! only. Each algorithm is one file, with its own idea, source and what was left open.
//!
//! **Source.** Textbook algorithms as M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3, describes them, and some of their
//! successors; each algorithm names its own.
//!
//! **Left open by the source.** *They are described for memory and disk*: here a page that is replaced goes to the slow
//! tier. *When pages move*: at each period, at most `limit`, in the order of their addresses from where the last period
//! stopped; the textbooks replace at each fault.
//!
//! **When to use it.** To see what a cleverer choice of the victim is worth, all else equal; `optimal` is the
//! yardstick, `random` the floor. For a policy to run in production take one that also chooses whom to promote.

use crate::registry::AlgorithmEntry;
use crate::support::{Lru, Promoter};
use crate::{
    Capability, CapabilitySet, Clear, MemorySystem, Moment, Needs, NextTick, PageId, PageRange, PageView,
    Parameters, Policy, Published, Refusal, Report, ScanHand, Scope, Setup, Signal, SignalKind, Step,
};
use std::fmt;
use terrace_model::parameters::{ChoiceInfo, Kind, ParameterValue, expected_choice};
use terrace_model::{Bytes, TierId, Time};

#[path = "replacement/least_used.rs"]
mod least_used;

/// The algorithms, one file each.
pub mod algorithms {
    include!(concat!(env!("OUT_DIR"), "/replacement_algorithms.rs"));
}

/// What an algorithm is built with.
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmSetup<'a> {
    /// The policy's own.
    pub setup: Setup<'a>,
    /// The tier whose pages it chooses from.
    pub fast: TierId,
}

/// Builds an algorithm.
pub type Builder = fn(AlgorithmSetup<'_>) -> Result<Box<dyn Replace>, Refusal>;

/// How a page came to where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A fault brought it in.
    Allocated,
    /// The policy moved it.
    Moved,
}

/// Chooses who makes room in the fast tier.
pub trait Replace: Send + fmt::Debug {
    /// What it needs besides accessed bits: dirty bits, every access.
    fn capabilities(&self) -> CapabilitySet {
        CapabilitySet::NONE
    }

    /// Whether it needs a first pass over the same input.
    fn first_pass(&self) -> bool {
        false
    }

    /// A page has come to `tier`.
    fn arrived(&mut self, _page: PageId, _tier: TierId, _how: Arrival) {}

    /// `count` accesses reached memory, the page at the time being in `view`. Only for algorithms that need every access.
    fn accessed(&mut self, _count: u32, _view: Option<&PageView>) {}

    /// Pages are no longer mapped.
    fn forget(&mut self, _range: PageRange) {}

    /// Puts the pages that are wanted in the fast tier in the order of their worth, and drops those that are worth nothing.
    fn order_wanted(&self, _wanted: &mut Vec<PageView>) {}

    /// Whether `victim` is to make room for `wanted`.
    fn makes_room(&self, _victim: &PageView, _wanted: &PageView) -> bool {
        true
    }

    /// Pages of the fast tier, the first to go first; about `count` for the clocks, all of them otherwise. The bits of the
    /// period are read, and cleared, even where nobody has to go.
    fn victims(&mut self, count: usize, memory: &mut dyn MemorySystem) -> Vec<PageView>;
}

/// Shows all pages of the fast tier to `rank`, clears their bits, and returns those that are not in flight with their ranks.
fn ranked(
    fast: TierId,
    clear: Clear,
    memory: &mut dyn MemorySystem,
    mut rank: impl FnMut(&PageView) -> u64,
) -> Vec<(u64, PageView)> {
    let mut pages: Vec<(u64, PageView)> = Vec::new();
    memory.scan(Scope::Tier(fast), &mut ScanHand::default(), clear.flushed(true), &mut |view| {
        let rank = rank(view);
        if !view.in_flight {
            pages.push((rank, *view));
        }
        Step::Clear
    });
    pages
}

/// The pages by rank, the lowest first; of equal rank that with the lowest `second`, then by address.
fn by_rank(mut pages: Vec<(u64, PageView)>, second: impl Fn(PageId) -> u64) -> Vec<PageView> {
    pages.sort_by_key(|(rank, view)| (*rank, second(view.page), view.page));
    pages.into_iter().map(|(_, view)| view).collect()
}

/// The pages of the fast tier that were used longest ago by `order`, the oldest first.
fn longest_ago(order: &Lru, fast: TierId, count: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
    let oldest = order.oldest().filter_map(|page| memory.page(page).filter(|view| view.page == page));
    // Twice as many as have to go, since a victim has to have the size of the page that it makes room for.
    oldest.filter(|view| view.tier == fast && !view.in_flight).take(2 * count).collect()
}

/// The algorithm that chooses the page to go: one of the files in `algorithms/`, by its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Algorithm(usize);

impl ParameterValue for Algorithm {
    const KIND: Kind = Kind::Choice;

    fn read(text: &str) -> Result<Algorithm, String> {
        let names: Vec<&str> = algorithms::ALL.iter().map(|entry| entry.name).collect();
        let found = names.iter().position(|name| *name == text).map(Algorithm);
        found.ok_or_else(|| expected_choice(text, &names))
    }

    fn text(&self) -> String {
        algorithms::ALL[self.0].name.to_owned()
    }

    fn choices() -> Vec<ChoiceInfo> {
        let choice =
            |entry: &AlgorithmEntry| ChoiceInfo { name: entry.name.to_owned(), help: entry.summary() };
        algorithms::ALL.iter().map(choice).collect()
    }
}

/// Parameters of the classical algorithms.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// How the page that makes room is chosen.
    #[parameter(default = "clock")]
    pub algorithm: Algorithm,
    /// Time between two rounds of replacement.
    #[parameter(default = "1 s", range = "1 ns"..="5 h", source = "ours", scaled)]
    pub period: Time,
    /// Most memory that is promoted per period.
    #[parameter(default = "64 MiB", range = "0 B"..="1024 TiB", source = "ours", scaled)]
    pub limit: Bytes,
}

/// The policy.
#[derive(Debug)]
pub struct Replacement {
    algorithm: Box<dyn Replace>,
    period: Time,
    limit: Bytes,
    fast: TierId,
    slow: TierId,
    /// Where the search for wanted pages goes on in the slow tier.
    hand: ScanHand,
    promoter: Promoter,
    started: bool,
}

impl Published for Replacement {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Replacement, Refusal> {
        let Parameters { algorithm, period, limit } = parameters;
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(Replacement {
            algorithm: algorithms::BUILDERS[algorithm.0](AlgorithmSetup { setup, fast })?,
            period,
            limit,
            fast,
            slow,
            hand: ScanHand::default(),
            promoter: Promoter::new(fast, slow),
            started: false,
        })
    }
}

impl Policy for Replacement {
    fn needs(&self) -> Needs {
        let capabilities =
            CapabilitySet::of(&[Capability::AccessedBits, Capability::FlushOnClear, Capability::Migration]);
        let capabilities = self.algorithm.capabilities().iter().fold(capabilities, CapabilitySet::with);
        Needs { capabilities, first_pass: self.algorithm.first_pass(), ..Needs::default() }
            .and_signals(&[SignalKind::Allocated, SignalKind::Unmapped])
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        let counts_accesses = self.algorithm.capabilities().contains(Capability::ExactAccesses);
        if !std::mem::replace(&mut self.started, true) && counts_accesses {
            memory.sample_accesses(1);
        }
        let mut tick = false;
        for signal in signals {
            if let Some((page, tier)) = self.promoter.handle(signal, memory) {
                self.algorithm.arrived(page, tier, Arrival::Moved);
            }
            match *signal {
                Signal::Tick => tick = true,
                Signal::Allocated { page, tier, .. } => {
                    self.algorithm.arrived(page, tier, Arrival::Allocated)
                }
                Signal::Access { page, count, .. } => {
                    let view = memory.page(page);
                    self.algorithm.accessed(count, view.as_ref().filter(|view| view.tier == self.fast));
                }
                Signal::Unmapped { range } => self.algorithm.forget(range),
                _ => {}
            }
        }
        if !tick {
            return NextTick::Unchanged;
        }
        if self.promoter.outstanding() == 0 {
            self.round(memory);
        }
        NextTick::At(now.plus(self.period))
    }

    fn report(&self, report: &mut Report) {
        self.promoter.report(report);
    }
}

impl Replacement {
    /// Promotes what was touched, and lets the algorithm name who makes room.
    fn round(&mut self, memory: &mut dyn MemorySystem) {
        let mut left = self.limit.0 >> 12;
        let mut wanted: Vec<PageView> = Vec::new();
        let clear = Clear::ACCESSED.flushed(true);
        memory.scan(Scope::Tier(self.slow), &mut self.hand, clear, &mut |view| {
            if view.accessed && !view.in_flight && view.base_pages() <= left {
                left -= view.base_pages();
                wanted.push(*view);
            }
            Step::Clear
        });
        self.algorithm.order_wanted(&mut wanted);
        let mut free = memory.topology().free_pages(self.fast);
        wanted.retain(|view| {
            let fits = view.base_pages() <= free;
            if fits {
                free -= view.base_pages();
                self.promoter.promote(view.page, memory);
            }
            !fits
        });
        let victims = self.algorithm.victims(wanted.len(), memory);
        // Pages of equal size replace each other.
        let mut victims: Vec<PageView> = victims.into_iter().rev().collect();
        for view in wanted {
            let Some(at) = victims.iter().rposition(|victim| victim.size == view.size) else { continue };
            let victim = victims.remove(at);
            if self.algorithm.makes_room(&victim, &view) {
                self.promoter.replace(victim.page, view.page, memory);
            }
        }
    }
}

#[cfg(test)]
#[path = "replacement/tests.rs"]
mod tests;
