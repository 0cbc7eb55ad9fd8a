//! When a resource is booked, for arrivals that come before others which have booked it.

use crate::array::prefetch;

/// A calendar remembers what is booked in each stretch of this length: 134 ns, as a shift of femtoseconds.
const STRETCH: u32 = 27;
/// Stretches that a calendar remembers: 69 µs of the latest.
const STRETCHES: usize = 512;
/// How many stretches a late arrival looks for idle time in: for about a microsecond.
const SEARCHED: u64 = 8;

/// How much of each stretch of time is booked of several resources, for the latest [`STRETCHES`]: a ring by the number of
/// the stretch. Resources that work side by side lie side by side, as what comes next is about the same time.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    /// For each stretch: the lower half of its number, and the booked time of each resource.
    stretches: Box<[u32]>,
    resources: usize,
}

impl Default for Calendar {
    fn default() -> Calendar {
        Calendar::of(1)
    }
}

impl Calendar {
    /// The empty calendar of so many resources.
    pub(super) fn of(resources: usize) -> Calendar {
        Calendar { stretches: vec![0; STRETCHES * (1 + resources)].into(), resources }
    }

    /// What is booked of a resource in the stretch of a number; none where the ring has gone on to a later one.
    #[inline(always)]
    fn at(&mut self, resource: usize, number: u64) -> Option<&mut u32> {
        let begin = number as usize % STRETCHES * (1 + self.resources);
        let later = (number as u32).wrapping_sub(self.stretches[begin]);
        if later != 0 {
            if later > u32::MAX / 2 {
                return None;
            }
            self.turn(begin, number as u32);
        }
        Some(&mut self.stretches[begin + 1 + resource])
    }

    /// The ring goes on to the stretch of a number: nothing is booked in it. The next stretch is fetched into the host's
    /// caches, where the ring does not stay.
    #[inline(never)]
    fn turn(&mut self, begin: usize, number: u32) {
        let next = begin + 1 + self.resources;
        self.stretches[begin] = number;
        self.stretches[begin + 1..next].fill(0);
        let following = if next == self.stretches.len() { 0 } else { next };
        prefetch(&self.stretches, following);
        prefetch(&self.stretches, following + self.resources);
    }

    /// The time from `begin` to `end` of a resource is taken.
    #[inline]
    pub(super) fn book(&mut self, resource: usize, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let number = begin >> STRETCH;
        if (end - 1) >> STRETCH == number {
            return self.take(resource, number, end - begin);
        }
        self.book_stretches(resource, begin, end);
    }

    fn book_stretches(&mut self, resource: usize, begin: u64, end: u64) {
        let mut begin = begin.max(end.saturating_sub((STRETCHES as u64) << STRETCH));
        while begin < end {
            let number = begin >> STRETCH;
            let until = ((number + 1) << STRETCH).min(end);
            self.take(resource, number, until - begin);
            begin = until;
        }
    }

    /// Books idle time of a resource from `arrival` until `latest`, which is later, if there is enough of it soon; how long
    /// the service waits for that.
    pub(super) fn fit(&mut self, resource: usize, arrival: u64, latest: u64, service: u64) -> Option<u64> {
        let first = arrival >> STRETCH;
        let mut found = 0;
        for number in first..first + SEARCHED {
            let begin = number << STRETCH;
            if begin >= latest {
                return None;
            }
            let idle = self.idle(resource, number, arrival, latest);
            if found + idle < service {
                found += idle;
                continue;
            }
            for before in first..number {
                let all = self.idle(resource, before, arrival, latest);
                self.take(resource, before, all);
            }
            self.take(resource, number, service - found);
            return Some((begin + service - found).saturating_sub(arrival + service));
        }
        None
    }

    /// The idle time of a stretch between two times. Where in the stretch it lies is not known: it is as late as can be.
    fn idle(&mut self, resource: usize, number: u64, from: u64, until: u64) -> u64 {
        let begin = number << STRETCH;
        let end = (begin + (1 << STRETCH)).min(until);
        let Some(booked) = self.at(resource, number) else { return 0 };
        (end - begin).saturating_sub(u64::from(*booked)).min(end - begin.max(from))
    }

    #[inline]
    fn take(&mut self, resource: usize, number: u64, span: u64) {
        if let Some(booked) = self.at(resource, number) {
            *booked += span as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NS: u64 = 1_000_000;

    #[test]
    fn what_is_booked_is_not_idle() {
        let mut calendar = Calendar::default();
        // The first two stretches have 100 ns left, behind 168.
        calendar.book(0, 0, 168 * NS);
        let latest = 2 << STRETCH;
        assert_eq!(calendar.fit(0, 10 * NS, latest, 101 * NS), None);
        let begin = 1 << STRETCH;
        assert_eq!(calendar.fit(0, 10 * NS, latest, 90 * NS), Some(begin - 10 * NS));
        assert_eq!(calendar.fit(0, 10 * NS, latest, 20 * NS), None);
    }

    #[test]
    fn what_the_ring_has_forgotten_is_not_idle() {
        let mut calendar = Calendar::default();
        let late = (STRETCHES as u64) << STRETCH;
        calendar.book(0, late, late + NS);
        assert_eq!(calendar.fit(0, 0, late, NS), Some(1 << STRETCH), "the first stretch is gone");
        assert_eq!(calendar.fit(0, 1 << STRETCH, late, NS), Some(0));
    }

    #[test]
    fn each_resource_has_its_own_time() {
        let mut calendar = Calendar::of(2);
        calendar.book(1, 0, 1 << STRETCH);
        assert_eq!(calendar.fit(0, 0, 1 << STRETCH, NS), Some(0));
        assert_eq!(calendar.fit(1, 0, 1 << STRETCH, NS), None);
    }

    proptest! {
        /// No stretch is given twice, whatever comes in whatever order.
        #[test]
        fn no_time_is_given_twice(
            services in prop::collection::vec((0u64..2000, 1u64..300), 1..300),
            latest in 100u64..2000,
        ) {
            let (mut calendar, mut given) = (Calendar::default(), 0);
            for (arrival, service) in services {
                let arrival = arrival % latest;
                if let Some(wait) = calendar.fit(0, arrival * NS, latest * NS, service * NS) {
                    given += service;
                    prop_assert!(wait <= SEARCHED << STRETCH);
                }
            }
            prop_assert!(given <= latest, "{given} of {latest}");
        }
    }
}
