//! One resource by next free time.

use super::calendar::Calendar;

/// A resource that serves one request at a time, in femtoseconds.
///
/// For arrivals in order this is exactly a first-come first-served server. An arrival earlier than its predecessor
/// first uses idle time that the server has from then until the latest arrival; when there is none it waits for the
/// backlog that the latest found. Either way its service is booked, so the long-run rate is exact, and its wait counts
/// from its own arrival, so no clock is dragged forward.
#[derive(Clone, Debug, Default)]
pub struct Server {
    free: u64,
    latest: u64,
    calendar: Calendar,
}

impl Server {
    /// Books `service` for a request of time `arrival`; the time it waits before its service starts.
    #[inline]
    pub fn reserve(&mut self, arrival: u64, service: u64) -> u64 {
        if arrival >= self.latest {
            self.latest = arrival;
            self.occupy(arrival, service) - arrival
        } else {
            let backlog = self.free.saturating_sub(self.latest);
            if let Some(wait) = self.calendar.fit(0, arrival, self.latest, service) {
                return wait.min(backlog);
            }
            self.occupy(self.latest, service);
            backlog
        }
    }

    /// When a request of time `arrival` would start.
    #[inline]
    pub(super) fn start(&self, arrival: u64) -> u64 {
        self.free.max(arrival)
    }

    /// Holds back what would start between `from` and `until`, and before that what comes in order.
    #[inline]
    pub(super) fn hold(&mut self, from: u64, until: u64) {
        if until > self.free {
            self.calendar.book(0, self.free.max(from), until);
            self.free = until;
        }
    }

    /// Keeps the server busy for `span` from the first moment it is free, `arrival` or later: from when.
    #[inline]
    pub(super) fn occupy(&mut self, arrival: u64, span: u64) -> u64 {
        let start = self.start(arrival);
        self.free = start + span;
        self.calendar.book(0, start, self.free);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One request far ahead leaves the time before it to the others: they wait for nothing, however many they are.
    #[test]
    fn one_far_ahead_makes_no_backlog() {
        let (ahead, step) = (50_000_000_000, 100_000_000);
        let mut server = Server::default();
        assert_eq!(server.reserve(ahead, 10), 0);
        for arrival in (0..ahead).step_by(step) {
            assert_eq!(server.reserve(arrival, step as u64 / 4 * 3), 0, "{arrival}");
        }
        // Twice what the time allows waits.
        let waits: Vec<u64> =
            (0..ahead).step_by(step).map(|arrival| server.reserve(arrival, step as u64)).collect();
        assert!(waits.iter().sum::<u64>() > 0);
    }

    #[test]
    fn a_late_arrival_uses_idle_time_and_else_waits_for_the_backlog() {
        let mut server = Server::default();
        assert_eq!(server.reserve(100, 10), 0);
        // 95 ran behind: the server was idle then.
        assert_eq!(server.reserve(85, 10), 0);
        // Only 5 of lateness: cannot have fitted before 100, so it queues behind the first.
        assert_eq!(server.reserve(95, 10), 10);
        assert_eq!(server.reserve(100, 10), 20);
    }

    proptest! {
        #[test]
        fn in_order_it_is_a_plain_queue(gaps in prop::collection::vec((0u64..30, 1u64..20), 1..200)) {
            let mut server = Server::default();
            let (mut now, mut free) = (0, 0);
            for (gap, service) in gaps {
                now += gap;
                let start = now.max(free);
                prop_assert_eq!(now + server.reserve(now, service), start);
                free = start + service;
            }
        }

        #[test]
        fn out_of_order_it_never_serves_more_than_time_allows(
            steps in prop::collection::vec((0u64..30, 0u64..100), 1..300)
        ) {
            let mut server = Server::default();
            let (mut now, mut served, mut last) = (0u64, 0, 0);
            for (gap, late) in steps {
                now += gap;
                let arrival = now.saturating_sub(late);
                let done = arrival + server.reserve(arrival, 10) + 10;
                prop_assert!(done >= arrival + 10);
                served += 10;
                last = last.max(done);
            }
            // All work fits between zero and the last completion, give or take the lateness.
            prop_assert!(served <= last + 100);
        }
    }
}
