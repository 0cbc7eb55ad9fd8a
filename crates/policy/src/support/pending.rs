//! Orders that are not done yet.

use crate::{Cost, Outcome, Signal, Subject, Ticket};
use std::collections::BTreeMap;

/// Counts what is outstanding of each order, and what became of the rest.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    open: BTreeMap<Ticket, usize>,
    /// Pages, pairs and frames that were done.
    pub done: u64,
    /// Pages, pairs and frames that failed.
    pub failed: u64,
    /// What all of them cost.
    pub cost: Cost,
}

impl Pending {
    /// An order of so many pages, pairs or frames was given.
    pub fn ordered(&mut self, ticket: Ticket, count: usize) {
        if count > 0 {
            self.open.insert(ticket, count);
        }
    }

    /// Whether nothing is outstanding.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many pages, pairs or frames are outstanding.
    pub fn outstanding(&self) -> usize {
        self.open.values().sum()
    }

    /// Takes a signal; returns what is done with it, if it is about an order of ours.
    pub fn handle(&mut self, signal: &Signal) -> Option<(Ticket, Subject, Outcome)> {
        let Signal::Done { ticket, subject, outcome, cost } = *signal else { return None };
        let left = self.open.get_mut(&ticket)?;
        *left -= 1;
        if *left == 0 {
            self.open.remove(&ticket);
        }
        self.cost += cost;
        match outcome {
            Outcome::Done => self.done += 1,
            _ => self.failed += 1,
        }
        Some((ticket, subject, outcome))
    }
}
