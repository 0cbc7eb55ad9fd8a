//! Points in time, as policies see them.

use std::fmt;
use terrace_model::Time;

/// A point in time: nanoseconds since the policy was started.
///
/// Not [`Time`], whose femtoseconds end after five hours: a policy on a live service runs for months. Spans are `Time`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// The start.
    pub const START: Moment = Moment(0);

    /// The moment `span` later, rounded down to a nanosecond.
    pub const fn plus(self, span: Time) -> Moment {
        Moment(self.0.saturating_add(span.0 / 1_000_000))
    }

    /// The span from `earlier` to this moment; zero where `earlier` is later, at most [`Time::MAX`].
    pub const fn since(self, earlier: Moment) -> Time {
        Time(self.0.saturating_sub(earlier.0).saturating_mul(1_000_000))
    }

    /// Seconds since `earlier`.
    pub fn seconds_since(self, earlier: Moment) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e9
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0 as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_no_problem() {
        let month = Moment(30 * 86_400 * 1_000_000_000);
        let seconds = |n: u64| Time::from_nanos(n * 1_000_000_000);
        assert_eq!(month.plus(seconds(2)).since(month), seconds(2));
        assert_eq!(Moment::START.since(month), Time::ZERO);
        assert_eq!(month.since(Moment::START), Time::MAX);
        assert_eq!(month.seconds_since(Moment::START), 2_592_000.0);
    }
}
