//! The gate between drops of page-table entries and changes of the address space: in no drop is a change under way, and each
//! sees all that the others did before it. ThreadSanitizer runs this, too (`scripts/sanitize thread`).
//!
//! The gate is a part of the library `terrace-dropper`, whose own test binary would have its `mmap` replaced.

#[path = "../../preload/dropper/src/gate.rs"]
#[allow(dead_code)]
mod gate;

use gate::{Change, Dropping};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads that change something.
const CHANGERS: usize = 3;
const CHANGES: u64 = 3000;
const DROPS: u64 = 300;

/// What nothing but the gate protects: a changer has a word of its own, and a drop has all of them.
struct Words([UnsafeCell<u64>; CHANGERS]);

// SAFETY: a changer touches its word while it holds a `Change`, and nobody touches the others' but in a `Dropping`.
unsafe impl Sync for Words {}

static WORDS: Words = Words([const { UnsafeCell::new(0) }; CHANGERS]);
/// How many drops there were: written in drops, read in changes.
struct Drops(UnsafeCell<u64>);

// SAFETY: as for `Words`.
unsafe impl Sync for Drops {}

static COUNT: Drops = Drops(UnsafeCell::new(0));

/// Set when a thread ends, also by a panic: then all end.
struct Ends<'a>(&'a AtomicBool);

impl Ends<'_> {
    fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_change_is_under_way_in_a_drop() {
    gate::begin_anew();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for own in 0..CHANGERS {
            let ends = Ends(&is_over);
            scope.spawn(move || {
                let (mut change, mut seen) = (0, 0);
                while (change < CHANGES || seen < DROPS) && !ends.is_over() {
                    change += 1;
                    let under_way = Change::begin();
                    // SAFETY: the word is this thread's, and in a change no drop is under way.
                    let (word, drops) = unsafe { (&mut *WORDS.0[own].get(), *COUNT.0.get()) };
                    *word += 1;
                    assert_eq!(*word, 2 * change - 1, "a drop came in between");
                    std::thread::yield_now();
                    *word += 1;
                    assert!(drops >= seen, "drops are seen in their order");
                    seen = drops;
                    drop(under_way);
                    std::thread::yield_now();
                }
            });
        }
        let ends = Ends(&is_over);
        scope.spawn(move || {
            while !ends.is_over() {
                let Some(_under_way) = Dropping::begin() else { continue };
                // SAFETY: in a drop no change is under way.
                unsafe {
                    let before = WORDS.0.each_ref().map(|word| *word.get());
                    assert!(before.iter().all(|word| word % 2 == 0), "a change is under way: {before:?}");
                    std::thread::yield_now();
                    assert_eq!(WORDS.0.each_ref().map(|word| *word.get()), before, "a change has begun");
                    *COUNT.0.get() += 1;
                }
            }
        });
    });
    // SAFETY: the threads have ended.
    assert!(unsafe { *COUNT.0.get() } >= DROPS);
}
