//! How much may be advised: a program that touches a byte in each huge page takes up to 512 times the memory that it would
//! have.
//!
//! So no mapping is advised that is larger than half of the memory that is available. Larger ones wait for the helper,
//! which joins only what is dense.

use crate::{log, quietly};
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_arena::system::{self, File};

/// Bytes that are advised until memory is looked at again.
const AT_ONCE: usize = 1 << 30;

/// What is left of them.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Whether so many bytes may be advised.
pub fn take(bytes: usize) -> bool {
    if LEFT.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok() {
        return true;
    }
    let half = quietly(available) / 2;
    if bytes > half {
        log::REFUSED.fetch_add(bytes as u64, Relaxed);
        return false;
    }
    LEFT.store((half - bytes).min(AT_ONCE), Relaxed);
    true
}

/// Bytes that can be had without pressing others out, of the machine or of the control group that is the root here.
fn available() -> usize {
    let mut text = [0u8; 512];
    let machine = read(c"/proc/meminfo", &mut text);
    let machine = system::line_of(machine, "MemAvailable:").unwrap_or(0) as usize;
    let group = number(c"/sys/fs/cgroup/memory.max").zip(number(c"/sys/fs/cgroup/memory.current"));
    group.map_or(machine, |(most, now)| machine.min(most.saturating_sub(now)))
}

fn read<'a>(path: &CStr, into: &'a mut [u8]) -> &'a [u8] {
    let count = File::open(path).map_or(0, |file| file.read_at(into, 0));
    &into[..count]
}

/// The number that a file consists of; none where it says `max` or is not there.
fn number(path: &CStr) -> Option<usize> {
    let mut text = [0u8; 32];
    str::from_utf8(read(path, &mut text)).ok()?.trim().parse().ok()
}
