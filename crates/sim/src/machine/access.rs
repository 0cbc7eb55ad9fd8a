//! One access: translation, caches, memory, and the core's accounting.
//!
//! Order: core, then the level-1 TLB, L1, L2, last level with directory, memory. Where translation stands in that order
//! is the scheme's choice.

use super::behind::Behind;
use super::manager::placer;
use super::site::{FULL, Own, PAGES, Site};
use crate::cache::Served;
use crate::core::Timeline;
use crate::memory::Initiator;
use crate::translate::{KernelState, LastLevel, Request, Stop, Translation};
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_model::{AddressRange, CacheLine, LINE_BYTES, PageSize, SpaceId, Time, VirtAddr};

/// Lines of a base page.
const PAGE_LINES: u64 = PageSize::Base.bytes() / LINE_BYTES;

#[inline(always)]
pub(super) fn timeline(start: Time, translated: Time, served: Served) -> Timeline {
    Timeline {
        start,
        translated,
        cache_start: served.cache_start,
        cache_end: served.cache_end,
        done: served.done,
    }
}

impl<const F: u8> Site<'_, F> {
    /// One line of an access, from its issue at `request.now`.
    #[inline(always)]
    pub(super) fn access_line<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
        by: Initiator,
    ) -> Result<Timeline, Stop> {
        if T::VIRTUAL_CACHES
            && let Some(line) = own.kernel.virtual_line(request.space, request.addr, &self.shared.os)
        {
            return self.access_virtual_line(own, line, request, by);
        }
        let (hit, translated) = own.scheme.translate(own.kernel, self, request)?;
        debug_assert!(self.agrees(request, &hit), "{request:x?}: stale translation");
        // A fault moved the core's clock: the access begins again after it. (Without one the clock may be ahead of the
        // second line of an access, whose first had to wait for a miss register.)
        let start = request.now.max(self.core.pipeline.now).min(translated);
        if F != FULL {
            return Ok(Timeline {
                start,
                translated,
                cache_start: translated,
                cache_end: translated,
                done: translated,
            });
        }
        let line = hit.place_of(request.addr).line().in_caches();
        let before = self.counters_if_watched();
        let served =
            self.shared.caches.access(self.id, line, request.write, translated, by, &mut self.shared.memory);
        self.note_served(before, served);
        self.wait_for_register(translated, served);
        Ok(timeline(start, translated, served))
    }

    /// An access was ready at a time, and no miss register was free until it was looked up beyond L1. Dispatch stands still
    /// meanwhile: what lies behind a miss that cannot be sent is mostly misses too, and requests must not reach shared
    /// devices far ahead of the other cores' clocks.
    #[inline(always)]
    pub(super) fn wait_for_register(&mut self, ready: Time, served: Served) {
        if served.cache_start > ready {
            self.core.pipeline.wait_for_register(served.cache_start - ready, served.cache_start);
        }
    }

    /// An access under virtually tagged caches: L1 and L2 need no translation; beyond them it runs beside the last level's
    /// lookup, or after it. Where permissions are in the TLB, the last level's answer waits for it.
    fn access_virtual_line<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        line: CacheLine,
        request: &Request,
        by: Initiator,
    ) -> Result<Timeline, Stop> {
        let Request { space, addr, write, .. } = *request;
        if own.kernel.has_dirty_names() {
            self.flush_dirty_names(own);
        }
        let now = own.scheme.check(own.kernel, self, request);
        // Rights travel with a line. Where the kernel's tables take one away, the line has it no longer.
        let managed = self.manager.is_some();
        let is_stopped = T::KERNEL_TABLES && self.shared.os.stops(space, addr, write, managed);
        let start = now.max(self.core.pipeline.now);
        if !is_stopped
            && let Some((cache_end, done)) = self.shared.caches.access_recent(self.id, line, write, start)
        {
            self.note_served(self.counters_if_watched(), Served { cache_start: start, cache_end, done });
            return Ok(Timeline { start, translated: start, cache_start: start, cache_end, done });
        }
        let mut translated = now;
        let hidden = now + self.shared.timing.llc;
        let beyond = match T::LAST_LEVEL {
            LastLevel::After => is_stopped || !self.shared.caches.is_cached(self.id, line),
            _ => is_stopped || !self.shared.caches.is_private(self.id, line),
        };
        if beyond {
            let at = if T::LAST_LEVEL == LastLevel::After { hidden } else { now + self.shared.timing.l2 };
            let hit;
            (hit, translated) = own.scheme.translate(own.kernel, self, &request.at(at))?;
            debug_assert!(!T::KERNEL_TABLES || self.agrees(request, &hit), "{request:x?}: stale translation");
        }
        // A fault moved the core's clock.
        let now = now.max(self.core.pipeline.now);
        let before = self.counters_if_watched();
        let shared = &mut *self.shared;
        let misses = shared.caches.counters.llc.misses;
        let hits_wait = T::LAST_LEVEL == LastLevel::Waits;
        let (os, memory, placer) = (&mut shared.os, &mut shared.memory, placer(&mut self.manager));
        let mut below = Behind { kernel: own.kernel, os, memory, placer, translated, hits_wait };
        let served = shared.caches.access(self.id, line, write, now, by, &mut below);
        self.note_served(before, served);
        if let Some(error) = own.kernel.failed() {
            return Err(Stop::Failed(error));
        }
        let waited_for = hits_wait || self.shared.caches.counters.llc.misses != misses;
        self.wait_for_register(now, served);
        // What translation adds beyond the last level's own lookup is its share of the wait.
        let hidden = now + self.shared.timing.llc;
        let late = if waited_for && translated > hidden { translated } else { now };
        Ok(Timeline {
            start: now,
            translated: late,
            cache_start: late.max(served.cache_start),
            cache_end: late.max(served.cache_end),
            done: late.max(served.done),
        })
    }

    #[inline(never)]
    fn flush_dirty_names<T: Translation>(&mut self, own: &mut Own<'_, T>) {
        let names = own.kernel.take_dirty_names();
        let (now, shared) = (self.core.pipeline.now, &mut *self.shared);
        let (os, memory, placer) = (&mut shared.os, &mut shared.memory, placer(&mut self.manager));
        let kernel: &mut dyn KernelState = own.kernel;
        let mut below = Behind { kernel, os, memory, placer, translated: Time::ZERO, hits_wait: false };
        names.into_iter().for_each(|names| shared.caches.flush_range(names, now, &mut below));
    }

    /// An access that may lie on several lines: it is done when the last of them is.
    #[inline(never)]
    pub(super) fn access_lines<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
        size: u8,
    ) -> Result<Timeline, Stop> {
        let mut whole = self.access_line(own, request, Initiator::Demand)?;
        let last = request.addr.0.wrapping_add(u64::from(size.max(1)) - 1) / LINE_BYTES;
        for line in request.addr.0 / LINE_BYTES + 1..=last {
            let part = Request { addr: VirtAddr(line * LINE_BYTES), ..*request };
            let part = self.access_line(own, &part, Initiator::Demand)?;
            if part.done > whole.done {
                whole = part;
            }
        }
        Ok(whole)
    }

    /// Bytes that a system call copies: the kernel touches every line of the buffer from the `done`th on, on this core,
    /// and counts them there: it may have to stop at a page on the move. Where `stop` is set it ends early, as the run
    /// does.
    pub(crate) fn kernel_access<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        space: SpaceId,
        range: AddressRange,
        write: bool,
        done: &mut u64,
        stop: Option<&AtomicBool>,
    ) -> Result<(), Stop> {
        if range.bytes == 0 {
            return Ok(());
        }
        own.scheme.set_instruction(None);
        let first = range.start.0 / LINE_BYTES;
        let end = range.start.0.saturating_add(range.bytes - 1) / LINE_BYTES + 1;
        while first + *done < end {
            let line = first + *done;
            if line.is_multiple_of(PAGE_LINES) && stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Ok(());
            }
            let mut request =
                Request { space, addr: VirtAddr(line * LINE_BYTES), write, now: self.core.pipeline.now };
            if F == PAGES {
                self.base_page(own, &request)?;
                // The other lines of the page find what the first has found.
                let lines = (PAGE_LINES - line % PAGE_LINES).min(end - line);
                self.shared.kernel_lines += lines;
                *done += lines;
                continue;
            }
            // A copy loop moves a line in about two instructions.
            self.core.pipeline.dispatch_kernel(2);
            request.now = self.core.pipeline.now;
            let timeline = self.access_line(own, &request, Initiator::Kernel)?;
            self.core.pipeline.access(write, timeline);
            self.shared.kernel_lines += 1;
            *done += 1;
        }
        Ok(())
    }

    /// An access of the program read memory, while somebody wants to know.
    #[inline(never)]
    pub(super) fn reached_memory(&mut self, space: SpaceId, addr: VirtAddr, write: bool) {
        self.shared.observers.reached_memory(&self.shared.os, space, addr, write);
        if let Some(manager) = &mut self.manager {
            let cost = manager.reached_memory(space, addr, write);
            if cost > Time::ZERO {
                self.core.pipeline.kernel(cost);
            }
        }
        if self.host_manager.is_some() {
            let cost = self.reached_memory_of_host(space, addr, write);
            self.core.pipeline.kernel(cost);
        }
    }
}
