//! Writes down the program's data structures in the table of all programs of a run.
//!
//! A program frees far more small objects than large ones, so that a free first looks at a count of this process alone.

use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU32};
use terrace_placement::LEAST;
use terrace_placement::structures::{Structure, Structures, namespace};

static TABLE: OnceLock<Structures> = OnceLock::new();
/// This process's number, once known; 0 where it is not that of the table's namespace, and nothing is written down.
static OWN: AtomicU32 = AtomicU32::new(0);
/// How many structures that are written down fall on a place.
static HELD: [AtomicU16; 4096] = [const { AtomicU16::new(0) }; 4096];

fn held(pointer: usize) -> &'static AtomicU16 {
    &HELD[(pointer >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52]
}

fn own_number(table: &Structures) -> u32 {
    if table.is_of(namespace()) { std::process::id() } else { 0 }
}

/// Writes down structures in this table from now on.
pub fn begin(file: &File) {
    let Some(table) = Structures::open(file) else { return };
    let own = own_number(&table);
    if own == 0 || TABLE.set(table).is_err() {
        return;
    }
    OWN.store(own, Relaxed);
    table.begin(own);
    // SAFETY: what is called makes only system calls and counts.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// A forked child has what its parent has.
extern "C" fn in_child() {
    let Some(table) = TABLE.get() else { return };
    let parent = OWN.load(Relaxed);
    let own = own_number(table);
    OWN.store(own, Relaxed);
    if parent != 0 && own != 0 && HELD.iter().any(|held| held.load(Relaxed) > 0) {
        table.forked(parent, own);
    }
}

/// A structure is there.
pub fn allocated(pointer: usize, bytes: usize) {
    if bytes < LEAST {
        return;
    }
    let (Some(table), pid) = (TABLE.get(), OWN.load(Relaxed)) else { return };
    if pid != 0 && table.insert(&Structure { pid, start: pointer as u64, bytes: bytes as u64 }) {
        held(pointer).fetch_add(1, Relaxed);
    }
}

/// A structure is about to be freed, or to be moved. Returns its size if it was written down.
pub fn freeing(pointer: usize) -> Option<usize> {
    let held = held(pointer);
    if held.load(Relaxed) == 0 {
        return None;
    }
    let bytes = TABLE.get()?.remove(OWN.load(Relaxed), pointer as u64)?;
    held.fetch_sub(1, Relaxed);
    Some(bytes as usize)
}
