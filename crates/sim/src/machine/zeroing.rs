//! What a page fault costs: the kernel's path, and the zeroing of the new page.
//!
//! The kernel zeroes a page with stores of whole lines, 4 KiB at a time (`clear_page` of Linux), so nothing is read and
//! the zeros lie in caches afterwards. A base page stays in the L1 and L2 of the core that took the fault. Of a larger
//! page the part that was accessed is zeroed last (Linux, commit c79b57e462b5) and stays there too; the rest lies in the
//! last level, as far as that can hold it, and goes to memory beyond. Lines that still lie in caches from an earlier use
//! of the frame are zeroed at the rate of base pages. What has to leave the caches goes through the devices, and the core
//! waits where they take it more slowly than it is written. With `os.zero_stores = "non-temporal"` all of a page goes past
//! the caches.
//!
//! Left open: sources give rates of whole pages. That the rates of cached and other lines add up, line by line, is
//! ours; it meets what was measured for both extremes on the machine that `machines/zen5-turin.toml` describes.

use super::behind::Behind;
use super::build::Shared;
use super::site::{FULL, Own, Site};
use crate::coherence::Cause;
use crate::design::{Design, ZeroStores};
use crate::memory::Initiator;
use crate::os::Fault;
use crate::translate::{KernelState, Translation};
use terrace_model::{BytesPerSec, LINE_BYTES, PageSize, Time};

/// Lines of a base page.
const BASE_LINES: u64 = 4096 / LINE_BYTES;

/// How fast a core zeroes new pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zeroing {
    /// Time per line of a base page, and of a larger one where caches hold the line.
    near: Time,
    /// Time per other line of larger pages.
    far: Time,
    /// Whether zeros stay in caches.
    stores: ZeroStores,
}

impl Zeroing {
    pub fn new(design: &Design) -> Zeroing {
        let per_line = |rate: BytesPerSec| Time((LINE_BYTES as f64 * 1e15 / rate.0.max(1.0)).round() as u64);
        Zeroing {
            near: per_line(design.os.zero_bandwidth),
            far: per_line(design.os.huge_zero_bandwidth),
            stores: design.os.zero_stores,
        }
    }

    /// Time per line of a page whose lines no cache holds, away from where it is accessed.
    fn pace(&self, size: PageSize) -> Time {
        if size == PageSize::Base { self.near } else { self.far }
    }

    /// Time of a page whose lines no cache holds.
    fn page(&self, size: PageSize) -> Time {
        self.near.times(BASE_LINES) + self.far.times(size.bytes() / LINE_BYTES - BASE_LINES)
    }
}

/// The progress of a core that zeroes a page.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// When it will have written what it has come to.
    now: Time,
    /// When the devices have taken what had to leave the caches so far.
    taken: Time,
}

impl<const F: u8> Site<'_, F> {
    /// The time and traffic of a page fault, on the core that took it.
    pub(super) fn charge_fault<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        space: u32,
        addr: u64,
        fault: &Fault,
        cause: Cause,
    ) {
        let (core, shared) = (&mut *self.core, &mut *self.shared);
        core.pipeline.drain();
        let begin = core.pipeline.now;
        let from = begin + shared.timing.fault;
        let filled = if fault.zeroed {
            Progress { now: from, taken: from }
        } else if F != FULL {
            let now = from + shared.timing.zeroing.page(fault.size);
            Progress { now, taken: now }
        } else if fault.copied_from.is_some() {
            shared.copy_page(fault, from)
        } else if shared.timing.zeroing.stores == ZeroStores::NonTemporal {
            let (pace, lines) = (shared.timing.zeroing.pace(fault.size), fault.size.bytes() / LINE_BYTES);
            let taken = shared.memory.zero(fault.frame.addr().line().0, lines, from, pace);
            Progress { now: from + pace.times(lines), taken }
        } else {
            shared.zero_page(own, self.id, space, addr, fault, from)
        };
        core.pipeline.kernel(filled.now - begin);
        self.complete(own, cause);
        let (core, shared) = (&mut *self.core, &mut *self.shared);
        let took = core.pipeline.now - core.fault_began(space, addr).unwrap_or(begin);
        shared.fault_time += took;
        core.stalled_fault = None;
        shared.fault_latency[fault.size.index()].record(took.as_nanos() as u64);
        if let Some(parts) = &mut shared.observers.parts {
            parts.faulted(space, addr, took);
        }
        // Nobody writes faster than memory takes it. The way there is not waited for: writes follow each other.
        let handed_over = filled.taken.saturating_sub(shared.memory.round_trip(fault.frame.addr().line().0));
        core.pipeline.wait_for_memory(handed_over.saturating_sub(core.pipeline.now));
    }
}

impl Shared {
    /// A page gets the content of the one it was copied from, at the rate of zeroing, past the caches.
    fn copy_page(&mut self, fault: &Fault, from: Time) -> Progress {
        let Some(source) = fault.copied_from else { return Progress { now: from, taken: from } };
        let pace = self.timing.zeroing.pace(fault.size);
        let lines = fault.size.bytes() / LINE_BYTES;
        let taken = (0..lines).fold(from, |taken, line| {
            let at = from + pace.times(line);
            self.memory.read(source.addr().line().0 + line, at, Initiator::Copy);
            taken.max(self.memory.write(fault.frame.addr().line().0 + line, at, Initiator::Copy))
        });
        Progress { now: from + pace.times(lines), taken }
    }

    /// A new page is zeroed: the base page that holds `addr` last.
    fn zero_page<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        core: usize,
        space: u32,
        addr: u64,
        fault: &Fault,
        from: Time,
    ) -> Progress {
        let page = addr & !(fault.size.bytes() - 1);
        let lines = fault.size.bytes() / LINE_BYTES;
        let accessed = (addr - page) / 4096 * BASE_LINES;
        let mut progress = Progress { now: from, taken: from };
        // What the last level cannot hold has left it by the end, so it goes past the caches at once.
        let beyond = (lines - BASE_LINES).saturating_sub(self.caches.llc_lines());
        let first = fault.frame.addr().line().0;
        let far = self.timing.zeroing.far;
        for (begin, end) in [(0, beyond.min(accessed)), (accessed + BASE_LINES, beyond + BASE_LINES)] {
            if begin < end {
                let taken = self.memory.zero(first + begin, end - begin, progress.now, far);
                progress.now += far.times(end - begin);
                progress.taken = progress.taken.max(taken);
            }
        }
        for at in beyond..lines - BASE_LINES {
            let line = if at < accessed { at } else { at + BASE_LINES };
            self.zero_line(own, None, space, page, first + line, line, &mut progress);
        }
        for line in accessed..accessed + BASE_LINES {
            self.zero_line(own, Some(core), space, page, first + line, line, &mut progress);
        }
        progress
    }

    /// Zeroes the `at`th line of a page, which lies at `physical`: into the L1 of `near`, else into the last level.
    fn zero_line<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        near: Option<usize>,
        space: u32,
        page: u64,
        physical: u64,
        at: u64,
        progress: &mut Progress,
    ) {
        let now = progress.now;
        let (held, taken) = if let Some(line) = own.kernel.virtual_line(space, page + at * LINE_BYTES) {
            let translated = Time::ZERO;
            let mut below =
                Behind { kernel: &*own.kernel, os: &self.os, memory: &mut self.memory, translated };
            match near {
                Some(core) => self.caches.zero_in_l1(core, line, now, &mut below),
                None => self.caches.zero_in_llc(line, now, &mut below),
            }
        } else {
            match near {
                Some(core) => self.caches.zero_in_l1(core, physical, now, &mut self.memory),
                None => self.caches.zero_in_llc(physical, now, &mut self.memory),
            }
        };
        let Zeroing { near: pace, far, .. } = self.timing.zeroing;
        progress.now += if held || near.is_some() { pace } else { far };
        progress.taken = progress.taken.max(taken);
    }
}
