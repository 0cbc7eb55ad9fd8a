//! The search for the smallest fastest tier.

use crate::bench::Trial;
use std::collections::BTreeMap;

/// More fast memory is not slower where the slowdown differs by less.
const SAME_SLOWDOWN: f64 = 0.001;

/// The search for one policy. Shares are counted in steps.
pub(super) struct Search {
    pub policy: String,
    /// Steps that were tried and are too few, with the slowdown at each.
    pub too_slow: BTreeMap<usize, f64>,
    /// Fewest steps known to be enough, and the run that shows it.
    pub enough: Option<(usize, Trial)>,
    /// Why it cannot run.
    pub refused: Option<String>,
}

impl Search {
    pub fn of(policy: &str) -> Search {
        Search { policy: policy.to_owned(), too_slow: BTreeMap::new(), enough: None, refused: None }
    }

    /// The next number of steps to try; `steps` is all of the memory. Halves the steps in question, which takes it that more
    /// are never slower. Where that is seen to be wrong and nothing is enough, all others are tried, from the most on; below
    /// the first that is enough the search halves again.
    pub fn next(&self, steps: usize) -> Option<usize> {
        if self.refused.is_some() {
            return None;
        }
        let too_few = self.too_few().map_or(0, |(at, _)| at);
        match &self.enough {
            Some((at, _)) => (*at > too_few + 1).then(|| (too_few + at) / 2),
            None if too_few < steps => Some((too_few + steps).div_ceil(2)),
            None if self.slower_with_more().is_some() => {
                (1..steps).rev().find(|at| !self.too_slow.contains_key(at))
            }
            None => None,
        }
    }

    pub fn learn(&mut self, at: usize, outcome: Result<Trial, String>, tolerated: f64) {
        match outcome {
            Err(reason) => self.refused = Some(reason),
            Ok(trial) if trial.slowdown() <= tolerated => self.enough = Some((at, trial)),
            Ok(trial) => drop(self.too_slow.insert(at, trial.slowdown())),
        }
    }

    /// The most steps below what is enough that were tried, and the slowdown there.
    pub fn too_few(&self) -> Option<(usize, f64)> {
        let enough = self.enough.as_ref().map_or(usize::MAX, |(at, _)| *at);
        self.too_slow.range(..enough).next_back().map(|(at, slowdown)| (*at, *slowdown))
    }

    /// Two numbers of steps of which the second, with more fast memory, is slower, each with its slowdown.
    pub fn slower_with_more(&self) -> Option<[(usize, f64); 2]> {
        let enough = self.enough.iter().map(|(at, trial)| (*at, trial.slowdown()));
        let tried: BTreeMap<usize, f64> =
            self.too_slow.iter().map(|(at, slowdown)| (*at, *slowdown)).chain(enough).collect();
        let pairs = tried.iter().zip(tried.iter().skip(1));
        let slower = pairs.filter(|(less, more)| *more.1 > less.1 + SAME_SLOWDOWN);
        slower.map(|(less, more)| [(*less.0, *less.1), (*more.0, *more.1)]).next()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::trial;
    use super::*;

    fn tries(slowdowns: &[f64]) -> (Vec<usize>, Search) {
        let mut search = Search::of("a policy");
        let mut tried = Vec::new();
        while let Some(at) = search.next(slowdowns.len()) {
            tried.push(at);
            search.too_slow.insert(at, slowdowns[at - 1]);
        }
        (tried, search)
    }

    #[test]
    fn where_more_is_slower_all_steps_are_tried() {
        let (tried, search) = tries(&[0.3, 0.2, 0.15, 0.12, 0.11, 0.1, 0.09, 0.08]);
        assert_eq!((tried, search.slower_with_more()), (vec![4, 6, 7, 8], None));
        assert_eq!(search.too_few(), Some((8, 0.08)));
        let (tried, search) = tries(&[0.3, 0.2, 0.1, 0.047, 0.045, 0.28, 0.28, 0.28]);
        assert_eq!(tried, [4, 6, 7, 8, 5, 3, 2, 1]);
        assert_eq!(search.slower_with_more(), Some([(5, 0.045), (6, 0.28)]));
    }

    #[test]
    fn below_the_first_that_is_enough_the_search_goes_on() {
        let slowdowns = [0.121, 0.121, 0.112, 0.078, 0.077, 0.012, 0.3, 0.3, 0.3, 0.3];
        let mut search = Search::of("a policy");
        let mut tried = Vec::new();
        while let Some(at) = search.next(slowdowns.len()) {
            tried.push(at);
            match slowdowns[at - 1] {
                slowdown if slowdown <= 0.05 => search.enough = Some((at, trial(slowdown))),
                slowdown => drop(search.too_slow.insert(at, slowdown)),
            }
        }
        assert_eq!(tried, [5, 8, 9, 10, 7, 6]);
        assert_eq!(search.too_few(), Some((5, 0.077)));
    }

    #[test]
    fn noise_is_no_reason_to_try_all() {
        assert_eq!(tries(&[0.2, 0.1, 0.1, 0.051, 0.051, 0.0512, 0.051, 0.0515]).0, [4, 6, 7, 8]);
    }
}
