//! Time that a thread had a processor for: another program that takes its turn meanwhile is not counted.

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
