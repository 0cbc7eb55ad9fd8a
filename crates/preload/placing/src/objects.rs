//! The objects that were placed: a table of fixed size, by address, without locks.
//!
//! A free is looked up here, so that nearly every look-up must end at once: most find a slot that was never used.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Each placed object can split two areas of memory, of which a process has 65530 (`vm.max_map_count`).
const MOST: usize = 8192;
const SLOTS: usize = 4 * MOST;
/// Slots that are looked at for one address.
const REACH: usize = 64;

/// Never used.
const EMPTY: usize = 0;
/// The slot's object is gone, or about to come.
const GONE: usize = 1;

/// An object that was placed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placed {
    /// Where it is.
    pub pointer: usize,
    /// The object's size in bytes.
    pub bytes: usize,
    /// The row of the table.
    pub row: usize,
    /// Pages that it took of what the row grants.
    pub granted: u64,
}

struct Slot {
    pointer: AtomicUsize,
    bytes: AtomicUsize,
    row: AtomicUsize,
    granted: AtomicU64,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        pointer: AtomicUsize::new(EMPTY),
        bytes: AtomicUsize::new(0),
        row: AtomicUsize::new(0),
        granted: AtomicU64::new(0),
    }
}; SLOTS];
static USED: AtomicUsize = AtomicUsize::new(0);

fn slots(pointer: usize) -> impl Iterator<Item = &'static Slot> {
    // Fibonacci hashing of what differs between allocations.
    let hash = (pointer >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..REACH).map(move |step| &TABLE[(hash + step) % SLOTS])
}

/// Keeps an object in mind; returns whether there was room. Only the thread that has just allocated it knows of it.
pub fn insert(object: Placed) -> bool {
    let pointer = object.pointer;
    if USED.fetch_add(1, Relaxed) >= MOST {
        USED.fetch_sub(1, Relaxed);
        return false;
    }
    for slot in slots(pointer) {
        let free = slot.pointer.load(Relaxed);
        // Claimed by an odd address that no object has, until all is written.
        if free <= GONE && slot.pointer.compare_exchange(free, pointer | GONE, AcqRel, Relaxed).is_ok() {
            slot.bytes.store(object.bytes, Relaxed);
            slot.row.store(object.row, Relaxed);
            slot.granted.store(object.granted, Relaxed);
            slot.pointer.store(pointer, Release);
            return true;
        }
    }
    USED.fetch_sub(1, Relaxed);
    false
}

/// Forgets an object and returns it, if it was placed. Only the thread that frees it asks.
pub fn remove(pointer: usize) -> Option<Placed> {
    for slot in slots(pointer) {
        let held = slot.pointer.load(Acquire);
        if held == pointer {
            let object = Placed {
                pointer,
                bytes: slot.bytes.load(Relaxed),
                row: slot.row.load(Relaxed),
                granted: slot.granted.load(Relaxed),
            };
            slot.pointer.store(GONE, Release);
            USED.fetch_sub(1, Relaxed);
            return Some(object);
        }
        if held == EMPTY {
            return None;
        }
    }
    None
}

/// Shows those that are there. What is written meanwhile may be seen half: its address is what counts.
pub fn each(visit: &mut dyn FnMut(&Placed)) {
    for slot in &TABLE {
        let pointer = slot.pointer.load(Acquire);
        if pointer > GONE && pointer & GONE == 0 {
            let object = Placed {
                pointer,
                bytes: slot.bytes.load(Relaxed),
                row: slot.row.load(Relaxed),
                granted: slot.granted.load(Relaxed),
            };
            if slot.pointer.load(Acquire) == pointer {
                visit(&object);
            }
        }
    }
}
