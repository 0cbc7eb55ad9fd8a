//! The shared mappings that the program has made through this library's functions. Others are never touched.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Mappings that are remembered; later ones are not looked at.
pub const MOST: usize = 256;
/// Tries for the lock, each a turn for other threads. It is held for a few hundred instructions, so whoever still fails has
/// interrupted its own thread's holding it.
const TRIES: u32 = 100_000;

struct Areas {
    count: usize,
    all: [(u64, u64); MOST],
}

struct Shared(UnsafeCell<Areas>);
// SAFETY: it is reached only through `with`, which lets one thread in at a time.
unsafe impl Sync for Shared {}

static AREAS: Shared = Shared(UnsafeCell::new(Areas { count: 0, all: [(0, 0); MOST] }));
static LOCKED: AtomicBool = AtomicBool::new(false);
/// Mappings have changed unnoticed: nothing is dropped in this process any more.
static LOST: AtomicBool = AtomicBool::new(false);

/// For the thread that forks: no other is in the middle of a change when the memory is copied.
pub fn lock() -> bool {
    for _ in 0..TRIES {
        if !LOCKED.swap(true, Ordering::Acquire) {
            return true;
        }
        // SAFETY: no arguments.
        unsafe { libc::sched_yield() };
    }
    LOST.store(true, Ordering::Relaxed);
    false
}

/// Ends what [`lock`] began.
pub fn unlock() {
    LOCKED.store(false, Ordering::Release);
}

fn with<R>(work: impl FnOnce(&mut Areas) -> R) -> Option<R> {
    if !lock() {
        return None;
    }
    // SAFETY: the lock is held, and `work` cannot keep the reference.
    let result = work(unsafe { &mut *AREAS.0.get() });
    unlock();
    Some(result)
}

impl Areas {
    fn add(&mut self, start: u64, end: u64) {
        if start < end && self.count < MOST {
            self.all[self.count] = (start, end);
            self.count += 1;
        }
    }

    fn remove(&mut self, range: &Range<u64>) {
        let mut at = 0;
        while at < self.count {
            let (start, end) = self.all[at];
            if end <= range.start || range.end <= start {
                at += 1;
                continue;
            }
            self.count -= 1;
            self.all[at] = self.all[self.count];
            // What is left on either side does not touch the range, so meeting it again ends.
            self.add(start, range.start.min(end));
            self.add(range.end.max(start), end);
        }
    }
}

/// A shared mapping was made.
pub fn add(range: Range<u64>) {
    with(|areas| {
        areas.remove(&range);
        areas.add(range.start, range.end);
    });
}

/// What was mapped there is going to be something else.
pub fn remove(range: Range<u64>) {
    with(|areas| areas.remove(&range));
}

/// Removes the one that begins at an address.
pub fn remove_at(start: u64) {
    with(|areas| {
        if let Some(at) = areas.all[..areas.count].iter().position(|area| area.0 == start) {
            areas.count -= 1;
            areas.all[at] = areas.all[areas.count];
        }
    });
}

/// Whether all of a range is in one of them.
pub fn contain(range: &Range<u64>) -> bool {
    let inside = |area: &(u64, u64)| area.0 <= range.start && range.end <= area.1;
    with(|areas| areas.all[..areas.count].iter().any(inside)).unwrap_or(false)
}

/// All of them; nothing where mappings may have changed unnoticed.
pub fn all(into: &mut [(u64, u64); MOST]) -> usize {
    let count = with(|areas| {
        into[..areas.count].copy_from_slice(&areas.all[..areas.count]);
        areas.count
    });
    count.filter(|_| !is_lost()).unwrap_or(0)
}

/// Ends dropping in this process.
pub fn lose() {
    LOST.store(true, Ordering::Relaxed);
}

/// Whether that is so.
pub fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}
