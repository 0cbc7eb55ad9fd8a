//! Time that a thread had a processor for: another program that takes its turn meanwhile is not counted.

use std::time::{Duration, Instant};

/// A point in the thread's own time.
#[derive(Clone, Copy, Debug)]
pub struct OwnTime(f64);

impl OwnTime {
    /// Now.
    pub fn now() -> OwnTime {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: A timespec to write to. The clock is there on every Linux.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        OwnTime(time.tv_sec as f64 * 1e9 + time.tv_nsec as f64)
    }

    /// Nanoseconds since then.
    pub fn nanos(self) -> f64 {
        OwnTime::now().0 - self.0
    }
}

/// A measurement under way.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    begin: Instant,
    own: OwnTime,
}

impl Stretch {
    /// Begins a measurement now.
    pub fn begin() -> Stretch {
        Stretch { begin: Instant::now(), own: OwnTime::now() }
    }

    /// Time since it began.
    pub fn elapsed(self) -> Duration {
        self.begin.elapsed()
    }

    /// The share of a processor that the thread had since then; below 1 others ran as well.
    pub fn processor_share(self) -> f64 {
        self.own.nanos() / (self.elapsed().as_secs_f64() * 1e9).max(1.0)
    }
}

/// Whether other programs took so much of the processors that what was measured with this share cannot be trusted.
pub fn is_disturbed(processor_share: f64) -> bool {
    processor_share < 0.9
}
