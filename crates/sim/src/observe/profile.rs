//! Counts and order of the accesses that reach memory, by page: the first pass of policies in two passes.

use std::collections::HashMap;
use std::sync::Arc;
use terrace_policy::{AccessOrder, Heat, PageId, Profile};

/// Most steps that are kept of all pages together, 32 MiB. Beyond that, steps of the order become twice as long.
const MOST_STEPS: usize = 8 << 20;

/// Accesses by base page.
#[derive(Clone, Debug)]
pub struct ProfileCounter {
    pages: HashMap<PageId, Uses>,
    accesses: u64,
    /// A step of the order has 2^`shift` accesses.
    shift: u32,
    steps: usize,
    most_steps: usize,
}

#[derive(Clone, Debug, Default)]
struct Uses {
    heat: Heat,
    steps: Vec<u32>,
}

impl Default for ProfileCounter {
    fn default() -> ProfileCounter {
        ProfileCounter::with_most_steps(MOST_STEPS)
    }
}

impl ProfileCounter {
    fn with_most_steps(most_steps: usize) -> ProfileCounter {
        ProfileCounter { pages: HashMap::new(), accesses: 0, shift: 0, steps: 0, most_steps }
    }

    /// One access reached memory.
    pub fn count(&mut self, space: u32, addr: u64, write: bool) {
        let uses = self.pages.entry(PageId::new(space, addr >> 12)).or_default();
        *(if write { &mut uses.heat.writes } else { &mut uses.heat.reads }) += 1;
        let step = (self.accesses >> self.shift) as u32;
        self.accesses += 1;
        if uses.steps.last() != Some(&step) {
            uses.steps.push(step);
            self.steps += 1;
            if self.steps > self.most_steps {
                self.coarsen();
            }
        }
    }

    #[cold]
    fn coarsen(&mut self) {
        while self.steps > self.most_steps / 2 && self.shift < 32 {
            self.shift += 1;
            self.steps = 0;
            for uses in self.pages.values_mut() {
                uses.steps.iter_mut().for_each(|step| *step >>= 1);
                uses.steps.dedup();
                self.steps += uses.steps.len();
            }
        }
        // As many pages as that: each has a step at least.
        self.most_steps = self.most_steps.max(2 * self.steps);
    }

    /// What was counted, in page order.
    pub fn finish(self) -> Profile {
        Profile {
            pages: self.pages.iter().map(|(page, uses)| (*page, uses.heat)).collect(),
            order: Arc::new(AccessOrder {
                shift: self.shift,
                steps: self.pages.into_iter().map(|(page, uses)| (page, uses.steps)).collect(),
            }),
            ..Profile::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_coarsens_instead_of_growing() {
        let count = |most| {
            let mut counter = ProfileCounter::with_most_steps(most);
            for at in 0..1000u64 {
                counter.count(0, (at % 10) << 12, at % 2 == 0);
            }
            counter.finish()
        };
        let (exact, coarse) = (count(1000), count(100));
        assert_eq!(exact.pages, coarse.pages);
        assert_eq!(exact.pages[&PageId::new(0, 3)], Heat { reads: 100, writes: 0 });
        let expected = AccessOrder::of((0..1000).map(|at| PageId::new(0, at % 10)));
        assert_eq!(*exact.order, expected);
        assert!(coarse.order.shift >= 4);
        assert!(coarse.order.steps.values().map(Vec::len).sum::<usize>() <= 100);
        let step = 1 << coarse.order.shift;
        for (page, at) in [(3, 0), (3, 100), (9, 300)] {
            let page = PageId::new(0, page);
            let [exact, coarse] = [&exact, &coarse].map(|profile| profile.order.next_use(page, at));
            assert!(exact.unwrap().abs_diff(coarse.unwrap()) <= step, "{exact:?} {coarse:?}");
        }
        // More pages than steps: one each.
        let mut counter = ProfileCounter::with_most_steps(8);
        (0..64).for_each(|at| counter.count(0, at << 12, false));
        assert_eq!(counter.finish().order.steps.len(), 64);
    }
}
