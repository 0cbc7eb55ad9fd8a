//! Cores as agents in the order of their clocks: who is next, and who after that.

use terrace_model::{CoreId, Time};

/// The cores that may have something to run, as a binary heap by clock and number.
///
/// Clocks only go forward, and many things move them: the core itself, interrupts, kernel threads. So an entry's time is a
/// lower bound, put right when the entry comes to the top. A core that has nothing to run is dropped there, too, and has
/// to be added again when it may have something.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    heap: Vec<(Time, CoreId)>,
    /// Whether each core is in the heap.
    listed: Vec<bool>,
}

impl Agenda {
    /// No core of `cores` has anything to run.
    pub fn new(cores: usize) -> Agenda {
        Agenda { heap: Vec::with_capacity(cores), listed: vec![false; cores] }
    }

    /// A core may have something to run.
    pub fn add(&mut self, core: CoreId) {
        if !std::mem::replace(&mut self.listed[core.index()], true) {
            // The lowest bound there is.
            self.heap.push((Time::ZERO, core));
            self.rise(self.heap.len() - 1);
        }
    }

    /// The core whose clock is least, of several the one with the lowest number, with its clock; and the least clock of the
    /// others. `clock` says what the time of a core is, and nothing where it has nothing to run.
    #[inline]
    pub fn next(&mut self, clock: impl Fn(CoreId) -> Option<Time>) -> Option<(Time, CoreId, Option<Time>)> {
        let (now, core) = self.settle(&clock, |_| 0)?;
        // The second lies right below the first.
        let second = self.settle(&clock, |heap| match (heap.get(1), heap.get(2)) {
            (Some(one), Some(two)) if two < one => 2,
            _ => 1,
        });
        Some((now, core, second.map(|(time, _)| time)))
    }

    /// Puts the entry at the place that `at` says right, until the one there is.
    #[inline]
    fn settle(
        &mut self,
        clock: &impl Fn(CoreId) -> Option<Time>,
        at: impl Fn(&[(Time, CoreId)]) -> usize,
    ) -> Option<(Time, CoreId)> {
        loop {
            let at = at(&self.heap);
            let &(bound, core) = self.heap.get(at)?;
            match clock(core) {
                Some(now) if now == bound => return Some((now, core)),
                Some(now) => {
                    debug_assert!(now > bound, "the clock of core {core} went back");
                    self.heap[at].0 = now;
                    self.sink(at);
                }
                None => {
                    self.listed[core.index()] = false;
                    self.heap.swap_remove(at);
                    self.sink(at);
                    self.rise(at);
                }
            }
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && at < self.heap.len() {
            let above = (at - 1) / 2;
            if self.heap[above] <= self.heap[at] {
                break;
            }
            self.heap.swap(above, at);
            at = above;
        }
    }

    #[inline]
    fn sink(&mut self, mut at: usize) {
        loop {
            let below = 2 * at + 1;
            let Some(&one) = self.heap.get(below) else { return };
            let lesser = match self.heap.get(below + 1) {
                Some(&two) if two < one => below + 1,
                _ => below,
            };
            if self.heap[at] <= self.heap[lesser] {
                return;
            }
            self.heap.swap(at, lesser);
            at = lesser;
        }
    }
}

/// The next core, found by looking at every core: the slow reference.
#[cfg(any(test, debug_assertions))]
pub(super) fn next_by_scan(
    cores: usize,
    clock: impl Fn(CoreId) -> Option<Time>,
) -> Option<(Time, CoreId, Option<Time>)> {
    let mut by_time: Vec<_> = CoreId::first(cores).filter_map(|core| Some((clock(core)?, core))).collect();
    by_time.sort_unstable();
    let &(now, core) = by_time.first()?;
    Some((now, core, by_time.get(1).map(|(time, _)| *time)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_equal_clocks_the_lowest_number_is_first() {
        let mut agenda = Agenda::new(4);
        [3, 1, 2].map(CoreId).into_iter().for_each(|core| agenda.add(core));
        let clocks = [0, 7, 7, 5].map(Time);
        let clock = |of: &[Time; 4], core: CoreId| Some(of[core.index()]);
        assert_eq!(agenda.next(|core| clock(&clocks, core)), Some((Time(5), CoreId(3), Some(Time(7)))));
        let clocks = [0, 7, 7, 7].map(Time);
        assert_eq!(agenda.next(|core| clock(&clocks, core)), Some((Time(7), CoreId(1), Some(Time(7)))));
        assert_eq!(
            agenda.next(|core| (core == CoreId(2)).then_some(Time(9))),
            Some((Time(9), CoreId(2), None))
        );
        assert_eq!(agenda.next(|core| (core == CoreId(0)).then_some(Time(9))), None, "nobody added it");
    }

    proptest! {
        /// Clocks go forward for many reasons, with many ties; cores get and lose work.
        #[test]
        fn agrees_with_a_scan(
            cores in prop_oneof![Just(1usize), Just(2), Just(4), Just(64), Just(256)],
            steps in prop::collection::vec((0usize..256, 0u64..4, 0u8..10), 1..300),
        ) {
            let mut agenda = Agenda::new(cores);
            let mut clocks: Vec<(Time, bool)> = vec![(Time::ZERO, false); cores];
            for (core, span, action) in steps {
                let core = CoreId::at(core % cores);
                match action {
                    // The next core runs.
                    0..=4 => {
                        let clock = |core: CoreId| clocks[core.index()].1.then_some(clocks[core.index()].0);
                        let next = agenda.next(clock);
                        prop_assert_eq!(next, next_by_scan(cores, clock));
                        if let Some((_, core, _)) = next {
                            clocks[core.index()].0 += Time(span);
                        }
                    }
                    // Another's clock is moved.
                    5 | 6 => clocks[core.index()].0 += Time(span),
                    7 => clocks[core.index()].1 = false,
                    _ => {
                        clocks[core.index()].1 = true;
                        agenda.add(core);
                    }
                }
            }
        }
    }
}
