//! What a page fault costs: the kernel's path, and the zeroing of the new page.
//!
//! The kernel zeroes a page with stores of whole lines, 4 KiB at a time (`clear_page` of Linux), so nothing is read and
//! the zeros lie in caches afterwards. A base page stays in the L1 and L2 of the core that took the fault. Of a larger
//! page the part that was accessed is zeroed last (Linux, commit c79b57e462b5) and stays there too; the rest lies in the
//! last level, as far as that can hold it, and goes to memory beyond. Lines that still lie in caches from an earlier use
//! of the frame are zeroed at the rate of base pages. What has to leave the caches goes through the devices, and the core
//! waits where they take it more slowly than it is written. With `os.zero_stores = "non-temporal"` all of a page goes past
//! the caches. With `"controller"` nobody zeroes: the memory controller notes that the page's lines are zero and answers
//! reads of them by itself until they are written; that is ours, the control for designs that delay the allocation of
//! memory.
//!
//! Left open: sources give rates of whole pages. That the rates of cached and other lines add up, line by line, is
//! ours; it meets what was measured for both extremes on the machine that `machines/zen5-turin.toml` describes.

use super::behind::Behind;
use super::parts::Shared;
use super::site::{FULL, Own, Site};
use super::timing::{BASE_LINES, Zeroing};
use crate::coherence::Cause;
use crate::memory::{Initiator, MemoryRequest};
use crate::os::Fault;
use crate::os::ZeroStores;
use crate::outcome::Stage;
use crate::translate::{KernelState, Stop, Translation};
use terrace_model::{CoreId, Frame, LINE_BYTES, Line, PageSize, SpaceId, Time, VirtAddr};

/// The progress of a core that zeroes a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// When it will have written what it has come to.
    pub now: Time,
    /// When the devices have taken what had to leave the caches so far.
    taken: Time,
}

/// Where the lines of a block lie in the machine: runs of equal length, of a native machine one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// First line of each run.
    runs: &'a [Line],
    /// Lines of a run, as a power of two.
    shift: u32,
}

impl Place<'_> {
    /// Lines one after the other.
    fn whole(first: &[Line; 1]) -> Place<'_> {
        Place { runs: first, shift: u64::BITS - 1 }
    }

    /// The machine's line of the block's `at`th.
    #[inline(always)]
    fn line(&self, at: u64) -> Line {
        self.runs[(at >> self.shift) as usize] + (at & ((1 << self.shift) - 1))
    }

    /// The runs in which the block's lines from `begin` to `end` lie: first line and length of each.
    fn pieces(self, begin: u64, end: u64) -> impl Iterator<Item = (Line, u64)> {
        let mut at = begin;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let next = end.min(((at >> self.shift) + 1) << self.shift);
                let piece = (self.line(at), next - at);
                at = next;
                piece
            })
        })
    }
}

/// The lines of a block in the frames that the programs' operating system sees: where they lie in the machine.
#[derive(Debug)]
pub(super) struct Lines {
    runs: Vec<Line>,
    shift: u32,
}

impl Lines {
    fn place(&self) -> Place<'_> {
        Place { runs: &self.runs, shift: self.shift }
    }
}

impl<const F: u8> Site<'_, F> {
    /// The time and traffic of a page fault, on the core that took it.
    pub(super) fn charge_fault<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        space: SpaceId,
        addr: VirtAddr,
        fault: &Fault,
        cause: Cause,
    ) -> Result<(), Stop> {
        self.core.pipeline.drain();
        let begin = self.core.pipeline.now;
        let mut lines = None;
        if self.shared.hypervisor.is_some() {
            lines = self.back_fault(own, fault)?;
        }
        let from = self.core.pipeline.now + self.shared.timing.fault;
        let filled = self.fill_page(own, space, addr, fault, lines.as_ref(), from);
        self.core.pipeline.kernel(filled.now - self.core.pipeline.now);
        self.complete(own, cause);
        let (core, shared) = (&mut *self.core, &mut *self.shared);
        let took = core.pipeline.now - core.fault_began(space, addr).unwrap_or(begin);
        shared.fault_time += took;
        core.stalled_fault = None;
        shared.fault_latency[fault.size.index()].record(took.as_nanos() as u64);
        if let Some(parts) = &mut shared.observers.parts {
            parts.faulted(space, addr, took);
        }
        if let Some(steps) = &mut shared.observers.steps {
            steps.add(Stage::Kernel, "page fault", begin, core.pipeline.now);
        }
        // Writes go no faster than memory takes them. The way there is not waited for: writes follow each other.
        let first = lines.map_or(fault.frame.line(), |[to, _]| to.runs[0]);
        let handed_over = filled.taken.saturating_sub(shared.memory.round_trip(first));
        core.pipeline.wait_for_memory(handed_over.saturating_sub(core.pipeline.now));
        Ok(())
    }

    /// The guest's kernel fills a new page: the hypervisor finds memory for it, and where that lies is found out, as is the
    /// place of what is copied.
    #[inline(never)]
    fn back_fault<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        fault: &Fault,
    ) -> Result<Option<[Lines; 2]>, Stop> {
        if fault.zeroed {
            return Ok(None);
        }
        let source = fault.copied_from.unwrap_or(fault.frame);
        for frame in [fault.frame, source] {
            self.back_block(own, frame, fault.size)?;
        }
        let lines = self.shared.hypervisor.as_ref().map(|hypervisor| {
            [fault.frame, source].map(|frame| {
                let (runs, shift) = hypervisor.runs(frame, fault.size);
                Lines { runs, shift }
            })
        });
        Ok(lines)
    }

    /// The content of a new page, written from `from` on. `lines`: where the page and what it is copied from lie, if not
    /// where the fault says.
    pub(super) fn fill_page<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        space: SpaceId,
        addr: VirtAddr,
        fault: &Fault,
        lines: Option<&[Lines; 2]>,
        from: Time,
    ) -> Progress {
        let shared = &mut *self.shared;
        if fault.zeroed {
            return Progress { now: from, taken: from };
        }
        let by_controller =
            shared.timing.zeroing.stores == ZeroStores::Controller && fault.copied_from.is_none();
        if F != FULL {
            let span = if by_controller { Time::ZERO } else { shared.timing.zeroing.page(fault.size) };
            return Progress { now: from + span, taken: from + span };
        }
        let first = |frame: Frame| [frame.line()];
        let (own_place, own_source) = (first(fault.frame), first(fault.copied_from.unwrap_or(fault.frame)));
        let (place, source) = match lines {
            Some([place, source]) => (place.place(), source.place()),
            None => (Place::whole(&own_place), Place::whole(&own_source)),
        };
        if fault.copied_from.is_some() {
            return shared.copy_page(source, place, fault.size, from);
        }
        let (pace, count) = (shared.timing.zeroing.pace(fault.size), fault.size.bytes() / LINE_BYTES);
        if by_controller {
            place.pieces(0, count).for_each(|(first, lines)| shared.note_zeros(first, lines));
            return Progress { now: from, taken: from };
        }
        if shared.timing.zeroing.stores == ZeroStores::NonTemporal {
            let mut progress = Progress { now: from, taken: from };
            for (first, lines) in place.pieces(0, count) {
                progress.taken = progress.taken.max(shared.memory.zero(first, lines, progress.now, pace));
                progress.now += pace.times(lines);
            }
            return progress;
        }
        let kernel = T::VIRTUAL_CACHES.then_some(&mut *own.kernel as &mut dyn KernelState);
        shared.zero_page(kernel, self.id, space, addr, fault.size, place, from)
    }
}

impl Shared {
    /// The controller takes a page for zero. Lines of its last use leave the caches.
    fn note_zeros(&mut self, first: Line, lines: u64) {
        self.caches.discard_range(first.in_caches()..(first + lines).in_caches());
        self.memory.note_zeros(first, lines);
    }

    /// A page gets the content of the one it was copied from, at the rate of zeroing, past the caches.
    fn copy_page(&mut self, source: Place<'_>, to: Place<'_>, size: PageSize, from: Time) -> Progress {
        let pace = self.timing.zeroing.pace(size);
        let lines = size.bytes() / LINE_BYTES;
        let taken = (0..lines).fold(from, |taken, line| {
            let at = from + pace.times(line);
            let copy = MemoryRequest::of_cpu(source.line(line), at, Initiator::Copy);
            self.memory.read(copy);
            taken.max(self.memory.write(copy.for_line(to.line(line))))
        });
        Progress { now: from + pace.times(lines), taken }
    }

    /// A new page is zeroed: the base page that holds `addr` last. `kernel`: where caches are virtually tagged.
    fn zero_page(
        &mut self,
        mut kernel: Option<&mut dyn KernelState>,
        core: CoreId,
        space: SpaceId,
        addr: VirtAddr,
        size: PageSize,
        place: Place<'_>,
        from: Time,
    ) -> Progress {
        let page = addr.align_down(size);
        let lines = size.bytes() / LINE_BYTES;
        let accessed = (addr - page) / 4096 * BASE_LINES;
        let mut progress = Progress { now: from, taken: from };
        // What the last level cannot hold has left it by the end, so it goes past the caches at once.
        let beyond = (lines - BASE_LINES).saturating_sub(self.caches.llc_lines());
        let far = self.timing.zeroing.far;
        for (begin, end) in [(0, beyond.min(accessed)), (accessed + BASE_LINES, beyond + BASE_LINES)] {
            for (first, lines) in place.pieces(begin, end) {
                let taken = self.memory.zero(first, lines, progress.now, far);
                progress.now += far.times(lines);
                progress.taken = progress.taken.max(taken);
            }
        }
        for at in beyond..lines - BASE_LINES {
            let line = if at < accessed { at } else { at + BASE_LINES };
            self.zero_line(kernel.as_deref_mut(), None, space, page, place.line(line), line, &mut progress);
        }
        for line in accessed..accessed + BASE_LINES {
            self.zero_line(
                kernel.as_deref_mut(),
                Some(core),
                space,
                page,
                place.line(line),
                line,
                &mut progress,
            );
        }
        progress
    }

    /// Zeroes the `at`th line of a page, which lies at `physical`: into the L1 of `near`, else into the last level.
    fn zero_line(
        &mut self,
        kernel: Option<&mut (dyn KernelState + 'static)>,
        near: Option<CoreId>,
        space: SpaceId,
        page: VirtAddr,
        physical: Line,
        at: u64,
        progress: &mut Progress,
    ) {
        let now = progress.now;
        let named = kernel.and_then(|kernel| {
            let line = kernel.virtual_line(space, page + at * LINE_BYTES, &self.os)?;
            Some((kernel, line))
        });
        let (held, taken) = if let Some((kernel, line)) = named {
            let (os, memory) = (&mut self.os, &mut self.memory);
            let mut below =
                Behind { kernel, os, memory, placer: None, translated: Time::ZERO, hits_wait: false };
            match near {
                Some(core) => self.caches.zero_in_l1(core, line, now, &mut below),
                None => self.caches.zero_in_llc(line, now, &mut below),
            }
        } else {
            match near {
                Some(core) => self.caches.zero_in_l1(core, physical.in_caches(), now, &mut self.memory),
                None => self.caches.zero_in_llc(physical.in_caches(), now, &mut self.memory),
            }
        };
        let Zeroing { near: pace, far, .. } = self.timing.zeroing;
        progress.now += if held || near.is_some() { pace } else { far };
        progress.taken = progress.taken.max(taken);
    }
}
