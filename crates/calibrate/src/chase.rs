//! Dependent loads around random cycles: latencies, and how many misses a core keeps in flight.

use crate::clock::OwnTime;
use crate::region::{BASE, Region};
use crate::spread::Spread;
use std::hint::black_box;
use terrace_model::Random;

/// Bytes between two places of a cycle.
pub const LINE: usize = 64;

/// Random cycles over places of a region.
#[derive(Debug)]
pub struct Chase<'a> {
    region: &'a Region,
    starts: Vec<usize>,
}

impl<'a> Chase<'a> {
    /// `chains` separate cycles over every line of the first `bytes` of a region.
    pub fn over_lines(region: &'a Region, bytes: usize, chains: usize) -> Chase<'a> {
        Chase::over(region, (0..bytes / LINE).map(|line| line * LINE).collect(), chains)
    }

    /// `chains` separate cycles over one line in each of the first `pages` pieces of 4 KiB. Lines differ, so that sets of
    /// caches do.
    pub fn over_pages(region: &'a Region, pages: usize, chains: usize) -> Chase<'a> {
        Chase::over(region, (0..pages).map(|page| page * BASE + page % 64 * LINE).collect(), chains)
    }

    /// One cycle in order: every `stride`th line of the first `bytes`, then those beside them, until all were visited.
    pub fn in_order(region: &'a Region, bytes: usize, stride: usize) -> Chase<'a> {
        let lines = bytes / LINE;
        let places = (0..stride).flat_map(|first| (first..lines).step_by(stride).map(|line| line * LINE));
        Chase::through(region, &places.collect::<Vec<usize>>(), 1)
    }

    fn over(region: &'a Region, mut places: Vec<usize>, chains: usize) -> Chase<'a> {
        let mut random = Random::new(1);
        for at in (1..places.len()).rev() {
            places.swap(at, random.below(at as u64 + 1) as usize);
        }
        Chase::through(region, &places, chains)
    }

    fn through(region: &'a Region, places: &[usize], chains: usize) -> Chase<'a> {
        let each = (places.len() / chains).max(1);
        let mut starts = Vec::new();
        for cycle in places.chunks_exact(each).take(chains) {
            starts.push(cycle[0]);
            for (at, place) in cycle.iter().enumerate() {
                let next = cycle[(at + 1) % cycle.len()];
                // SAFETY: Places are multiples of 64 inside the region, which nothing else refers to.
                unsafe { region.start().add(*place).cast::<usize>().write(next) };
            }
        }
        Chase { region, starts }
    }

    /// Nanoseconds per load where all chains go on at once, over `steps` steps of each; `rounds` repetitions.
    pub fn run(&self, steps: usize, rounds: usize) -> Spread {
        let start = self.region.start().cast_const();
        let mut at = self.starts.clone();
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
        Spread::of(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Pages;

    #[test]
    fn each_cycle_visits_its_places_once() {
        let region = Region::map(1 << 20, Pages::Base).unwrap();
        for chains in [1, 3] {
            let chase = Chase::over_lines(&region, 96 * LINE, chains);
            let mut seen = std::collections::HashSet::new();
            for start in &chase.starts {
                let mut at = *start;
                loop {
                    assert!(seen.insert(at), "{at} twice");
                    // SAFETY: A place of the cycle.
                    at = unsafe { region.start().add(at).cast::<usize>().read() };
                    if at == *start {
                        break;
                    }
                }
            }
            assert_eq!((seen.len(), chase.starts.len()), (96, chains));
        }
        assert_eq!(Chase::over_pages(&region, 100, 1).run(200, 3).count, 3);
    }

    #[test]
    fn lines_in_order_are_all_visited() {
        let region = Region::map(1 << 20, Pages::Base).unwrap();
        let chase = Chase::in_order(&region, 10 * LINE, 4);
        let (mut at, mut lines) = (chase.starts[0], Vec::new());
        for _ in 0..10 {
            lines.push(at / LINE);
            // SAFETY: A place of the cycle.
            at = unsafe { region.start().add(at).cast::<usize>().read() };
        }
        assert_eq!(lines, [0, 4, 8, 1, 5, 9, 2, 6, 3, 7]);
        assert_eq!(at, chase.starts[0]);
    }
}
