//! Exchanges: pairs change places both or not at all.

use super::World;
use super::moving::{Answer, Once};
use crate::space::Found;
use std::collections::VecDeque;
use terrace_model::TierId;
use terrace_policy::{Exchange, MoveOptions, Outcome};

/// Pairs that are under way at once in an exchange, at most: so much room is needed for a moment.
const PAIRS: usize = 64;

impl World {
    /// Swaps pairs, a few at a time: the one whose destination has more room goes first, then the other takes its
    /// place; where it cannot, the first goes back.
    pub(super) fn exchange_pages(&mut self, pairs: &[Exchange], how: MoveOptions) -> Vec<Answer> {
        let mut answers = vec![(Outcome::Gone, 0); pairs.len()];
        let mut ordered = Once::default();
        let mut left: VecDeque<(usize, Found, Found)> = VecDeque::new();
        for (at, pair) in pairs.iter().enumerate() {
            let (Some(one), Some(other)) = (self.found(pair.one), self.found(pair.other)) else { continue };
            answers[at].0 = if one.size != other.size {
                Outcome::Gone
            } else if one.tier == other.tier {
                Outcome::Done
            } else if !ordered.take(one.page) || !ordered.take(other.page) {
                // One of the pages is on its way already.
                Outcome::Busy
            } else {
                left.push_back((at, one, other));
                Outcome::NoSpace
            };
        }
        let mut most = PAIRS;
        while !left.is_empty() {
            let some: Vec<(usize, Found, Found)> = left.drain(..left.len().min(most)).collect();
            let mut results = self.exchange_some(&some, how, false);
            if some.len() == 1 && results[0].0 == Outcome::NoSpace {
                // What is known of the room may be wrong, and the kernel gives of its reserve.
                results = self.exchange_some(&some, how, true);
            }
            let full = results.iter().any(|(outcome, _)| *outcome == Outcome::NoSpace);
            for (pair, (outcome, copied)) in some.into_iter().zip(results).rev() {
                let answer = &mut answers[pair.0];
                *answer = (outcome, answer.1 + copied);
                // Not even room for these on either side: again, as many as that allows at a time.
                if outcome == Outcome::NoSpace && most > 1 {
                    left.push_front(pair);
                }
            }
            if full {
                most = (most / 4).max(1);
            }
        }
        answers
    }

    /// Exchanges pairs of pages. The page that goes to the roomier side moves first, or with `turned` the other.
    fn exchange_some(
        &mut self,
        pairs: &[(usize, Found, Found)],
        how: MoveOptions,
        turned: bool,
    ) -> Vec<Answer> {
        // A tier at its limit exceeds it not even for a moment where the other has room.
        let room = |tier: TierId| (self.topology.free_pages(tier), self.physical_free(tier));
        let ordered = |(_, one, other): &(usize, Found, Found)| {
            if (room(other.tier) >= room(one.tier)) != turned { (*one, *other) } else { (*other, *one) }
        };
        let pairs: Vec<(Found, Found)> = pairs.iter().map(ordered).collect();
        let there: Vec<(Found, TierId)> = pairs.iter().map(|(first, second)| (*first, second.tier)).collect();
        let mut answers = self.transfer(&there, how);
        let gone: Vec<usize> = (0..pairs.len()).filter(|at| answers[*at].0 == Outcome::Done).collect();
        let back: Vec<(Found, TierId)> = gone.iter().map(|at| (pairs[*at].1, pairs[*at].0.tier)).collect();
        for (at, (outcome, copied)) in gone.into_iter().zip(self.transfer(&back, how)) {
            answers[at] = (outcome, answers[at].1 + copied);
        }
        let mut undo = Vec::new();
        for ((first, second), (outcome, copied)) in pairs.iter().zip(&answers) {
            if *outcome == Outcome::Done {
                self.counters.exchanged += 1;
            } else if *copied > 0 {
                undo.extend(self.parts_in(*first, second.tier).into_iter().map(|part| (part, first.tier)));
                undo.extend(self.parts_in(*second, first.tier).into_iter().map(|part| (part, second.tier)));
            }
        }
        // Either both change or none. What cannot even go back lies where it is; the next look shows it.
        self.transfer(&undo, how);
        answers
    }

    /// The parts of a page that lie in a tier: all, none, or some of the base pages that it was split into.
    fn parts_in(&self, whole: Found, tier: TierId) -> Vec<Found> {
        let pages = (0..whole.size.base_pages()).filter_map(|at| self.found(whole.page.plus(at)));
        let mut parts: Vec<Found> = pages.filter(|part| part.tier == tier).collect();
        parts.dedup_by_key(|part| part.page);
        parts
    }
}
