//! Keeps drops and changes of the address space apart.
//!
//! Any number of threads may change the address space at once; a drop waits until none does, and while one is under way
//! (at most 2 MiB, some tens of microseconds) they wait. Threads that want to change something never wait for each other, so
//! a signal handler that maps memory while its own thread does so gets through.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// A drop is under way; below it the number of changes under way.
const DROPPING: u32 = 1 << 31;
/// How long a thread sleeps before it looks whether anyone is left to wake it.
static POLL_PERIOD: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Polls after which a process that is not the one the dropping thread belongs to goes on: that thread stayed in its parent.
const MOST_POLLS: u32 = 50;
/// How often, and how long apart, a drop tries to begin.
const TRIES: u32 = 100;
static APART: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };

static STATE: AtomicU32 = AtomicU32::new(0);
/// The process whose thread drops.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// A change of the address space under way.
pub struct Change(bool);

impl Change {
    /// Waits until no drop is under way.
    pub fn begin() -> Change {
        let mut polls = 0;
        loop {
            let state = STATE.load(Ordering::Relaxed);
            if state & DROPPING == 0 {
                if STATE.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Change(true);
                }
                continue;
            }
            // SAFETY: the word is a static; the call only compares and sleeps.
            unsafe {
                let (word, how) = (STATE.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
                libc::syscall(libc::SYS_futex, word, how, state, &raw const POLL_PERIOD);
            }
            polls += 1;
            // A child made by a bare `clone` has a copy of the word and nobody who would ever change it.
            // SAFETY: a number comes back.
            if polls >= MOST_POLLS && unsafe { libc::getpid() } != OWNER.load(Ordering::Relaxed) {
                return Change(false);
            }
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if self.0 {
            // A child that was made in the middle of a change, by a signal handler, has begun anew from 0.
            let less = |state: u32| (state & !DROPPING > 0).then(|| state - 1);
            let _ = STATE.fetch_update(Ordering::Release, Ordering::Relaxed, less);
        }
    }
}

/// A drop under way.
pub struct Dropping(());

impl Dropping {
    /// Waits a moment for changes that are under way; none where they take longer.
    pub fn begin() -> Option<Dropping> {
        for _ in 0..TRIES {
            if STATE.compare_exchange(0, DROPPING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(Dropping(()));
            }
            // SAFETY: the span is a constant; what would be left of it is not asked for.
            unsafe { libc::nanosleep(&raw const APART, std::ptr::null_mut()) };
        }
        None
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        STATE.store(0, Ordering::Release);
        // SAFETY: the word is a static; the call wakes whoever sleeps on it.
        unsafe {
            let (word, how) = (STATE.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
            libc::syscall(libc::SYS_futex, word, how, i32::MAX);
        }
    }
}

/// This process has one thread, and from now on drops are its own: whatever was under way stayed in its parent.
pub fn begin_anew() {
    STATE.store(0, Ordering::Relaxed);
    // SAFETY: a number comes back.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}
