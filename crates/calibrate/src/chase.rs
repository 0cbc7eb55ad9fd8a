//! Dependent loads around cycles: latencies, and how many misses a core keeps in flight.

use crate::clock::OwnTime;
use crate::region::{BASE, Region};
use std::hint::black_box;
use terrace_model::Random;

/// Bytes between two places of a cycle.
pub const LINE: usize = 64;

/// Marks along a cycle, at which chains begin: any number of chains divides them.
const MARKS: usize = 96;

/// One cycle over places of a region. Several chains go around it at the same pace, so that each finds the places that it
/// loads as cold as a single one would.
#[derive(Debug)]
pub struct Chase<'a> {
    region: &'a Region,
    marks: Vec<usize>,
}

impl<'a> Chase<'a> {
    /// In random order over every line of the first `bytes` of a region.
    pub fn over_lines(region: &'a Region, bytes: usize) -> Chase<'a> {
        Chase::over(region, (0..bytes / LINE).map(|line| line * LINE).collect())
    }

    /// In random order over one line in each of the first `pages` pieces of 4 KiB. Lines differ, so that sets of caches do.
    pub fn over_pages(region: &'a Region, pages: usize) -> Chase<'a> {
        Chase::over(region, (0..pages).map(|page| page * BASE + page % 64 * LINE).collect())
    }

    /// In order: every `stride`th line of the first `bytes`, then those beside them, until all were visited.
    pub fn in_order(region: &'a Region, bytes: usize, stride: usize) -> Chase<'a> {
        let lines = bytes / LINE;
        let places = (0..stride).flat_map(|first| (first..lines).step_by(stride).map(|line| line * LINE));
        Chase::through(region, &places.collect::<Vec<usize>>())
    }

    fn over(region: &'a Region, mut places: Vec<usize>) -> Chase<'a> {
        shuffle(&mut places);
        Chase::through(region, &places)
    }

    fn through(region: &'a Region, places: &[usize]) -> Chase<'a> {
        for (at, place) in places.iter().enumerate() {
            let next = places[(at + 1) % places.len()];
            // SAFETY: Places are multiples of 64 inside the region, which nothing else refers to.
            unsafe { region.start().add(*place).cast::<usize>().write(next) };
        }
        let marks = (0..MARKS).map(|mark| places[mark * places.len() / MARKS]).collect();
        Chase { region, marks }
    }

    /// Nanoseconds per load of one chain, in each of `rounds` repetitions of so many steps.
    pub fn run(&self, steps: usize, rounds: usize) -> Vec<f64> {
        self.run_chains(1, steps, rounds)
    }

    /// Nanoseconds per load where several chains go on at once, each by so many steps.
    pub fn run_chains(&self, chains: usize, steps: usize, rounds: usize) -> Vec<f64> {
        let start = self.region.start().cast_const();
        let mut at: Vec<usize> = self.marks.iter().step_by(MARKS / chains).copied().collect();
        let mut times = Vec::new();
        for round in 0..=rounds {
            let begin = OwnTime::now();
            match at.as_mut_slice() {
                [only] => {
                    for _ in 0..steps {
                        // SAFETY: Each place of a cycle holds another place of it.
                        *only = unsafe { start.add(*only).cast::<usize>().read() };
                    }
                }
                many => {
                    for _ in 0..steps {
                        for place in &mut *many {
                            // SAFETY: As above.
                            *place = unsafe { start.add(*place).cast::<usize>().read() };
                        }
                    }
                }
            }
            black_box(&at);
            // The first round warms the caches.
            if round > 0 {
                times.push(begin.nanos() / (steps * at.len()) as f64);
            }
        }
        times
    }
}

/// Brings places into an order that is always the same, and that no prefetcher guesses.
pub fn shuffle(places: &mut [usize]) {
    let mut random = Random::new(1);
    for at in (1..places.len()).rev() {
        places.swap(at, random.below(at as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Pages;

    fn visited(chase: &Chase, count: usize) -> Vec<usize> {
        let mut at = chase.marks[0];
        (0..count)
            .map(|_| {
                let line = at / LINE;
                // SAFETY: A place of the cycle.
                at = unsafe { chase.region.start().add(at).cast::<usize>().read() };
                line
            })
            .collect()
    }

    #[test]
    fn a_cycle_visits_its_places_once() {
        let region = Region::map(1 << 20, Pages::Base).unwrap();
        let chase = Chase::over_lines(&region, 192 * LINE);
        let lines = visited(&chase, 193);
        assert_eq!(lines[0], lines[192]);
        assert_eq!(lines[..192].iter().collect::<std::collections::HashSet<_>>().len(), 192);
        assert_eq!(chase.marks[48] / LINE, lines[96], "half-way");
        assert_eq!(chase.run_chains(12, 200, 3).len(), 3);
        assert_eq!(Chase::over_pages(&region, 100).run(200, 3).len(), 3);
    }

    #[test]
    fn lines_in_order_are_all_visited() {
        let region = Region::map(1 << 20, Pages::Base).unwrap();
        let chase = Chase::in_order(&region, 10 * LINE, 4);
        assert_eq!(visited(&chase, 11), [0, 4, 8, 1, 5, 9, 2, 6, 3, 7, 0]);
    }
}
