//! Simulated time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A point in, or a span of, simulated time, in femtoseconds.
///
/// Femtoseconds because core clocks rarely divide a nanosecond: at 2.3 GHz a cycle is 434,783 fs, wrong by less
/// than one part in a million, where picoseconds would be wrong by one in two thousand. A `u64` holds 5.1 hours.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The span in cycles of this length, rounded.
    #[inline]
    pub const fn in_cycles(self, cycle: Time) -> u64 {
        (self.0 + cycle.0 / 2) / cycle.0
    }

    /// The start of the simulation, and the empty span.
    pub const ZERO: Time = Time(0);
    /// Later than everything.
    pub const MAX: Time = Time(u64::MAX);

    /// A span of whole nanoseconds.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos.saturating_mul(1_000_000))
    }

    /// A span of `nanos` nanoseconds, rounded to the nearest femtosecond. Negative and NaN become zero.
    #[inline]
    pub fn from_nanos_f64(nanos: f64) -> Time {
        Time((nanos * 1e6).round() as u64)
    }

    /// In nanoseconds.
    #[inline]
    pub fn as_nanos(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In seconds.
    #[inline]
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e15
    }

    /// `self - other`, or zero where `other` is later.
    #[inline]
    pub const fn saturating_sub(self, other: Time) -> Time {
        Time(self.0.saturating_sub(other.0))
    }

    /// `self` taken `times` times.
    #[inline]
    pub const fn times(self, times: u64) -> Time {
        Time(self.0 * times)
    }
}

impl Add for Time {
    type Output = Time;
    #[inline]
    fn add(self, other: Time) -> Time {
        Time(self.0 + other.0)
    }
}

impl Sub for Time {
    type Output = Time;
    #[inline]
    fn sub(self, other: Time) -> Time {
        Time(self.0 - other.0)
    }
}

impl AddAssign for Time {
    #[inline]
    fn add_assign(&mut self, other: Time) {
        self.0 += other.0;
    }
}

impl SubAssign for Time {
    #[inline]
    fn sub_assign(&mut self, other: Time) {
        self.0 -= other.0;
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.as_nanos())
    }
}
