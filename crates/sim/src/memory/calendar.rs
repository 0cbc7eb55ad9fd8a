//! When a resource is booked, for arrivals that come before others which have booked it.

/// A calendar remembers what is booked in each stretch of this length: 134 ns, as a shift of femtoseconds.
const STRETCH: u32 = 27;
/// Stretches that a calendar remembers: 69 µs of the latest.
const STRETCHES: usize = 512;
/// How many stretches a late arrival looks for idle time in: for about a microsecond.
const SEARCHED: u64 = 8;

/// How much of each stretch of time is booked, for the latest [`STRETCHES`]: a ring by the number of the stretch.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    stretches: Box<[Stretch; STRETCHES]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    /// The lower half of the stretch's number.
    number: u32,
    booked: u32,
}

impl Default for Calendar {
    fn default() -> Calendar {
        Calendar { stretches: Box::new([Stretch::default(); STRETCHES]) }
    }
}

impl Calendar {
    /// The stretch of a number; none where the ring has gone on to a later one.
    #[inline]
    fn at(&mut self, number: u64) -> Option<&mut Stretch> {
        let stretch = &mut self.stretches[number as usize % STRETCHES];
        let later = (number as u32).wrapping_sub(stretch.number);
        if later != 0 {
            if later > u32::MAX / 2 {
                return None;
            }
            *stretch = Stretch { number: number as u32, booked: 0 };
        }
        Some(stretch)
    }

    /// The time from `begin` to `end` is taken.
    #[inline]
    pub(super) fn book(&mut self, begin: u64, end: u64) {
        let mut begin = begin.max(end.saturating_sub((STRETCHES as u64) << STRETCH));
        while begin < end {
            let number = begin >> STRETCH;
            let until = ((number + 1) << STRETCH).min(end);
            self.take(number, until - begin);
            begin = until;
        }
    }

    /// Books idle time from `arrival` until `latest`, which is later, if there is enough of it soon; how long the service
    /// waits for that.
    pub(super) fn fit(&mut self, arrival: u64, latest: u64, service: u64) -> Option<u64> {
        let first = arrival >> STRETCH;
        let mut found = 0;
        for number in first..first + SEARCHED {
            let begin = number << STRETCH;
            if begin >= latest {
                return None;
            }
            let idle = self.idle(number, arrival, latest);
            if found + idle < service {
                found += idle;
                continue;
            }
            for before in first..number {
                let all = self.idle(before, arrival, latest);
                self.take(before, all);
            }
            self.take(number, service - found);
            return Some((begin + service - found).saturating_sub(arrival + service));
        }
        None
    }

    /// The idle time of a stretch between two times. Where in the stretch it lies is not known: it is as late as can be.
    fn idle(&mut self, number: u64, from: u64, until: u64) -> u64 {
        let begin = number << STRETCH;
        let end = (begin + (1 << STRETCH)).min(until);
        let Some(stretch) = self.at(number) else { return 0 };
        (end - begin).saturating_sub(u64::from(stretch.booked)).min(end - begin.max(from))
    }

    #[inline]
    fn take(&mut self, number: u64, span: u64) {
        if let Some(stretch) = self.at(number) {
            stretch.booked += span as u32;
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
        // Of the first two stretches 100 ns are left, behind 168.
        calendar.book(0, 168 * NS);
        let latest = 2 << STRETCH;
        assert_eq!(calendar.fit(10 * NS, latest, 101 * NS), None);
        let begin = 1 << STRETCH;
        assert_eq!(calendar.fit(10 * NS, latest, 90 * NS), Some(begin - 10 * NS));
        assert_eq!(calendar.fit(10 * NS, latest, 20 * NS), None);
    }

    #[test]
    fn what_the_ring_has_forgotten_is_not_idle() {
        let mut calendar = Calendar::default();
        let late = (STRETCHES as u64) << STRETCH;
        calendar.book(late, late + NS);
        assert_eq!(calendar.fit(0, late, NS), Some(1 << STRETCH), "the first stretch is gone");
        assert_eq!(calendar.fit(1 << STRETCH, late, NS), Some(0));
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
                if let Some(wait) = calendar.fit(arrival * NS, latest * NS, service * NS) {
                    given += service;
                    prop_assert!(wait <= SEARCHED << STRETCH);
                }
            }
            prop_assert!(given <= latest, "{given} of {latest}");
        }
    }
}
