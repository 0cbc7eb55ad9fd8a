//! Promotion one page at a time, with a victim that makes room where there is none.

use super::Pending;
use crate::{MemorySystem, Move, MoveOptions, Outcome, PageId, Report, Signal, Subject};
use std::collections::BTreeMap;
use terrace_model::TierId;

/// Moves pages up; where a victim is given it goes down first, and the page follows when it has arrived.
#[derive(Clone, Debug)]
pub struct Promoter {
    fast: TierId,
    slow: TierId,
    options: MoveOptions,
    pending: Pending,
    /// Pages that wait for a victim to arrive.
    following: BTreeMap<PageId, PageId>,
    /// Base pages promoted and demoted.
    pub moved: [u64; 2],
}

impl Promoter {
    /// Between these two tiers.
    pub fn new(fast: TierId, slow: TierId) -> Promoter {
        let options = MoveOptions::default();
        Promoter {
            fast,
            slow,
            options,
            pending: Pending::default(),
            following: BTreeMap::new(),
            moved: [0; 2],
        }
    }

    /// Between these two tiers, as the kernel moves pages in a fault or in reclaim.
    pub fn in_kernel(fast: TierId, slow: TierId) -> Promoter {
        let options = MoveOptions { empties_lists: false, ..MoveOptions::default() };
        Promoter { options, ..Promoter::new(fast, slow) }
    }

    /// Orders that failed.
    pub fn failed(&self) -> u64 {
        self.pending.failed
    }

    /// Adds what moved and what failed to a policy's report.
    pub fn report(&self, report: &mut Report) {
        report.pages("promoted", self.moved[0]);
        report.pages("demoted", self.moved[1]);
        report.count("failed", self.failed());
    }

    /// Orders that are not done.
    pub fn outstanding(&self) -> usize {
        self.pending.outstanding()
    }

    /// Promotes a page into free memory.
    pub fn promote(&mut self, page: PageId, memory: &mut dyn MemorySystem) {
        let ticket = memory.migrate(&[Move { page, to: self.fast }], self.options);
        self.pending.ordered(ticket, 1);
    }

    /// Demotes `victim`.
    pub fn demote(&mut self, victim: PageId, memory: &mut dyn MemorySystem) {
        self.demote_in_turn(&[victim], memory);
    }

    /// Demotes `victims`, one after the other.
    pub fn demote_in_turn(&mut self, victims: &[PageId], memory: &mut dyn MemorySystem) {
        let moves: Vec<Move> = victims.iter().map(|victim| Move { page: *victim, to: self.slow }).collect();
        let ticket = memory.migrate(&moves, self.options);
        self.pending.ordered(ticket, moves.len());
    }

    /// Demotes `victim` and then promotes `page` into its place. If the victim cannot go, the page stays, too.
    pub fn replace(&mut self, victim: PageId, page: PageId, memory: &mut dyn MemorySystem) {
        self.following.insert(victim, page);
        self.demote(victim, memory);
    }

    /// Takes a signal. Returns a page that has arrived, and where.
    pub fn handle(&mut self, signal: &Signal, memory: &mut dyn MemorySystem) -> Option<(PageId, TierId)> {
        let (_, subject, outcome) = self.pending.handle(signal)?;
        let Subject::Page(page) = subject else { return None };
        let next = self.following.remove(&page);
        if outcome != Outcome::Done {
            return None;
        }
        if let Some(next) = next {
            self.promote(next, memory);
        }
        let view = memory.page(page)?;
        self.moved[usize::from(view.tier != self.fast)] += view.base_pages();
        Some((page, view.tier))
    }
}
