//! Spans of time, as policies write them.

use terrace_model::Time;

/// A span of whole seconds.
pub(crate) const fn seconds(n: u64) -> Time {
    Time::from_nanos(n * 1_000_000_000)
}

/// A span of whole milliseconds.
#[cfg(test)]
pub(crate) const fn millis(n: u64) -> Time {
    Time::from_nanos(n * 1_000_000)
}
