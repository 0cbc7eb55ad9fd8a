//! The page walker of a core, and the faults that its walks meet.

use super::behind::{Behind, write_out};
use super::manager::placer;
use super::nested::{data_of, in_guest};
use super::parts::Core;
use super::site::{FULL, Own, Site};
use super::system::{StoppedAt, System};
use crate::coherence::Cause;
use crate::host::BasePage;
use crate::memory::{Initiator, MemoryRequest};
use crate::os::{Leaf, PageTable};
use crate::outcome::Stage;
use crate::translate::{KernelState, Request, Stop, TlbEntry, TlbHit, Translation, Walk, Walker};
use terrace_model::{Frame, PageId, PageSize, PhysAddr, SpaceId, Time, VirtAddr};

/// Frames that a fault takes at most: for its page, and tables down to it.
const FAULT_FRAMES: u64 = 5;
/// Entries of page tables by their level.
const LEVELS: [&str; 6] = ["page table", "level 1", "level 2", "level 3", "level 4", "level 5"];
/// Entries of a guest's page tables by their level.
const GUEST_LEVELS: [&str; 6] = [
    "guest's table",
    "guest, level 1",
    "guest, level 2",
    "guest, level 3",
    "guest, level 4",
    "guest, level 5",
];
impl<const F: u8> Site<'_, F> {
    /// The leaf that maps an access's page for its kind, after whatever faults that takes; whether there were any.
    #[inline(always)]
    fn resolve<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
    ) -> Result<(Leaf, bool), Stop> {
        // Apart, because what a function returns in memory is written in parts and read as a whole, which holds the host up.
        match self.find_leaf(request.space, request.addr) {
            Some(leaf) if !leaf.pte.stops(request.write) => Ok((leaf, false)),
            _ => self.resolve_by_faults(own, request),
        }
    }

    #[inline(never)]
    fn resolve_by_faults<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
    ) -> Result<(Leaf, bool), Stop> {
        let Request { space, addr, write, .. } = *request;
        let mut faulted = false;
        loop {
            match self.find_leaf(space, addr) {
                Some(leaf) if !leaf.pte.stops(write) => return Ok((leaf, faulted)),
                Some(leaf) if leaf.pte.is_held() => {
                    return Err(self.stop(space, addr));
                }
                Some(leaf) if write && leaf.pte.is_copy_on_write() => {
                    self.break_sharing(own, request, &leaf)?;
                    faulted = true;
                }
                Some(leaf) => {
                    if self.take_trap(own, request, &leaf) {
                        return Ok((leaf, true));
                    }
                    faulted = true;
                }
                None => {
                    let now = self.core.pipeline.now;
                    if T::VIRTUAL_CACHES {
                        own.kernel.before_taking(FAULT_FRAMES, &mut self.shared.os);
                        write_out(own.kernel, &mut self.shared.memory, now);
                    }
                    let os = &mut self.shared.os;
                    os.now = now;
                    let fault = match &mut self.manager {
                        Some(manager) => {
                            let Some(fault) = manager.fault(os, space, addr, write, now)? else {
                                self.core.fault_stalls(space, addr);
                                return Err(self.stop(space, addr));
                            };
                            fault
                        }
                        None => os.fault(space, addr, &[])?,
                    };
                    self.charge_fault(own, space, addr, &fault, Cause::Fault)?;
                    faulted = true;
                }
            }
        }
    }

    /// The thread waits for a page that is on the move, or whose fault waits.
    fn stop(&mut self, space: SpaceId, addr: VirtAddr) -> Stop {
        self.shared.stopped_at = Some(StoppedAt { system: System::Programs, page: PageId::of(space, addr) });
        Stop::Held
    }

    /// A store to a page that is shared since a fork.
    #[inline(never)]
    fn break_sharing<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
        leaf: &Leaf,
    ) -> Result<(), Stop> {
        let Request { space, addr, .. } = *request;
        self.shared.os.now = self.core.pipeline.now;
        match self.shared.os.break_sharing(space, addr, leaf)? {
            Some(fault) => self.charge_fault(own, space, addr, &fault, Cause::CopyOnWrite),
            None => {
                self.complete(own, Cause::CopyOnWrite);
                Ok(())
            }
        }
    }

    /// A walk met a page that a policy watches. Returns whether the access goes on although the page stays trapped.
    #[inline(never)]
    fn take_trap<T: Translation>(&mut self, own: &mut Own<'_, T>, request: &Request, leaf: &Leaf) -> bool {
        let Request { space, addr, write, .. } = *request;
        let Some(manager) = &mut self.manager else { return true };
        self.core.pipeline.drain();
        let trap = manager.trap(&mut self.shared.os, space, addr, leaf, write, self.core.pipeline.now);
        self.core.pipeline.kernel(trap.cost);
        self.complete(own, Cause::Watch);
        trap.goes_on
    }

    /// The leaf that maps `addr`, if any.
    #[inline(always)]
    fn find_leaf(&mut self, space: SpaceId, addr: VirtAddr) -> Option<Leaf> {
        self.shared.regions.leaf(self.shared.os.table(space), space, addr)
    }

    /// Translation from the simulator's own tables, for schemes and fidelities without TLBs.
    #[inline(always)]
    pub(super) fn base_page<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
    ) -> Result<BasePage, Stop> {
        let Request { space, addr, write, .. } = *request;
        // A controller that gives and takes memory by itself may have replaced tables, and completes nothing.
        if T::VIRTUAL_CACHES && self.shared.os.changes.reshaped {
            self.shared.regions.flush();
        }
        let page = match self.shared.regions.find(self.shared.os.table(space), space, addr) {
            Some(page) if page.allows(write) => page,
            _ => self.base_page_by_walk(own, request)?,
        };
        match self.shared.hypervisor {
            None => Ok(page),
            Some(_) => Ok(self.in_machine(own, request, page)?.0),
        }
    }

    #[inline(never)]
    fn base_page_by_walk<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
    ) -> Result<BasePage, Stop> {
        let Request { space, addr, write, .. } = *request;
        let (leaf, _) = self.resolve(own, request)?;
        let pte = self.shared.os.mark(space, addr, &leaf, write);
        self.shared.regions.put(space, addr, &leaf, pte);
        Ok(BasePage {
            frame: leaf.frame_of(addr),
            size: leaf.size,
            readable: pte.is_readable_at_once(),
            writable: pte.is_writable_at_once(),
        })
    }

    /// A page-table entry, fetched by a walker.
    #[inline]
    pub(super) fn fetch_entry<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        entry: PhysAddr,
        write: bool,
        now: Time,
    ) -> Time {
        match self.shared.observers.steps {
            None => self.fetch_line::<T>(kernel, entry, write, now),
            Some(_) => self.fetch_line_watched::<T>(kernel, entry, write, now),
        }
    }

    #[inline(always)]
    pub(super) fn fetch_line<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        entry: PhysAddr,
        write: bool,
        now: Time,
    ) -> Time {
        if write && self.shared.hardware.is_some() {
            return self.set_bits_in_hardware(entry, now);
        }
        let shared = &mut *self.shared;
        if F != FULL {
            // Without data caches every entry is taken to come from the last level.
            return now + shared.timing.llc;
        }
        let line = entry.line();
        if T::VIRTUAL_CACHES {
            let line = kernel.physical_line(line);
            let (os, memory, placer) = (&mut shared.os, &mut shared.memory, placer(&mut self.manager));
            let mut below = Behind { kernel, os, memory, placer, translated: Time::ZERO, hits_wait: false };
            return shared.caches.access(self.id, line, write, now, Initiator::Walk, &mut below).done;
        }
        shared.caches.access(self.id, line.in_caches(), write, now, Initiator::Walk, &mut shared.memory).done
    }

    /// An entry of tables that the memory controller reads.
    #[inline(always)]
    pub(super) fn fetch_line_below<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        addr: PhysAddr,
        through_last_level: bool,
        now: Time,
    ) -> Time {
        let shared = &mut *self.shared;
        let line = addr.line();
        if F != FULL {
            return now + shared.timing.llc.saturating_sub(shared.timing.l2);
        }
        if !through_last_level {
            return shared.memory.read(MemoryRequest::of_cpu(line, now, Initiator::Walk));
        }
        if T::VIRTUAL_CACHES {
            let line = kernel.physical_line(line);
            let (os, memory, placer) = (&mut shared.os, &mut shared.memory, placer(&mut self.manager));
            let mut below = Behind { kernel, os, memory, placer, translated: Time::ZERO, hits_wait: false };
            return shared.caches.read_from_below(line, now, Initiator::Walk, &mut below);
        }
        shared.caches.read_from_below(line.in_caches(), now, Initiator::Walk, &mut shared.memory)
    }

    /// Whether a translation is the page table's, and lets nothing pass that the table forbids: no store to a page that is
    /// shared since a fork, nothing to a page between unmap and map.
    pub(super) fn agrees(&self, request: &Request, hit: &TlbHit) -> bool {
        let leaf = self.shared.os.table(request.space).find(request.addr);
        if leaf.is_some_and(|leaf| leaf.pte.is_held() || request.write && leaf.pte.is_copy_on_write()) {
            return false;
        }
        let frame = leaf.and_then(|leaf| self.machine_frame(request.addr, &leaf));
        frame == Some(hit.frame_of(request.addr))
    }
}

impl<const F: u8> Walker for Site<'_, F> {
    #[inline(always)]
    fn walk<T: Translation>(
        &mut self,
        scheme: &mut T,
        kernel: &mut T::Kernel,
        request: &Request,
        looked_up: Time,
    ) -> Result<Walk, Stop> {
        let Request { space, addr, write, .. } = *request;
        let (leaf, mut faulted) = self.resolve(&mut Own { scheme, kernel }, request)?;
        let is_nested = self.core.nested.is_some();
        if is_nested {
            faulted |= self.back_walk(&mut Own { scheme, kernel }, request, &leaf)?;
        }
        // The instruction begins again after a fault, and walks then.
        let looked_up = if faulted { self.core.pipeline.now + self.shared.timing.l2_tlb } else { looked_up };
        let begin = self.core.walkers.start(looked_up);
        let pte = self.shared.os.mark(space, addr, &leaf, write);
        let bits_set = pte != leaf.pte;
        let leaf_level = leaf.size.index() as u32 + 1;
        let table = self.shared.os.table(space);
        let start = self.core.page_walk_cache.start_level(space, addr, leaf_level, table.levels());
        // Where the walk reads tables that the short cut to the leaf passed by, it is gone from the root.
        let from_root = if leaf.knows(start) { None } else { table.find(addr) };
        let leaf = from_root.as_ref().unwrap_or(&leaf);
        let mut at = begin + self.shared.timing.page_walk_cache;
        let knows_upper = start < table.levels();
        if begin > looked_up {
            self.note_lookup("wait for the page walker", looked_up, begin);
        }
        self.note_lookup(
            if knows_upper { "page-walk cache: hit" } else { "page-walk cache: miss" },
            begin,
            at,
        );
        if self.shared.hardware.is_some() {
            self.shared.caches.forget_requests();
        }
        for level in (leaf_level..=start).rev() {
            let mut entry = self.shared.os.table(space).entry_address(leaf, addr, level);
            if is_nested {
                (entry, at) = match level == start && self.knows_place(start, space) {
                    true => (self.place_of(entry), at),
                    false => self.walk_host::<T>(kernel, in_guest(entry), true, at),
                };
            }
            // A walker that sets an accessed or dirty bit writes the leaf's line.
            let sets_bits = level == leaf_level && bits_set;
            at = self.fetch_entry::<T>(kernel, entry, sets_bits, at);
            self.name_entry(if is_nested { GUEST_LEVELS } else { LEVELS }[level as usize % 6]);
            self.shared.walks.memory_refs += 1;
        }
        self.core.page_walk_cache.fill(space, addr, leaf_level + 1, start);
        if is_nested {
            let data = data_of(pte.frame(), addr, leaf.size);
            (_, at) = self.walk_host::<T>(kernel, data, write, at);
        }
        if self.shared.hardware.is_some() {
            let hit = TlbHit { entry: TlbEntry::new(pte.frame(), false), size: leaf.size };
            self.tag_fill(scheme, request, leaf, start, hit);
        }
        self.core.walkers.occupy(begin, at);
        self.shared.walks.count += 1;
        self.shared.walks.time += at - begin;
        if let Some(parts) = &mut self.shared.observers.parts {
            parts.walked(space, addr, at - begin);
        }
        if let Some(manager) = &mut self.manager {
            manager.walked(space, addr, leaf.size);
        }
        if is_nested {
            self.walked_in_host(addr, leaf);
        }
        Ok(Walk { leaf: *leaf, pte, looked_up, begin, done: at })
    }

    #[inline(never)]
    fn set_dirty<T: Translation>(
        &mut self,
        scheme: &mut T,
        kernel: &mut T::Kernel,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        let Request { space, addr, now, .. } = *request;
        let (leaf, mut faulted) = self.resolve(&mut Own { scheme, kernel }, request)?;
        let is_nested = self.core.nested.is_some();
        if is_nested {
            faulted |= self.back_walk(&mut Own { scheme, kernel }, request, &leaf)?;
        }
        let pte = self.shared.os.mark(space, addr, &leaf, true);
        let level = leaf.size.index() as u32 + 1;
        let mut begin = if faulted { self.core.pipeline.now } else { now };
        let mut entry = self.shared.os.table(space).entry_address(&leaf, addr, level);
        if is_nested {
            (entry, begin) = self.set_dirty_in_host::<T>(kernel, entry, &leaf, addr, begin);
        }
        let hit = TlbHit { entry: TlbEntry::new(pte.frame(), true), size: leaf.size };
        let hit = self.splinter(addr, hit);
        scheme.update(self.shared.os.table(space), request, &leaf, pte, hit);
        if pte == leaf.pte {
            return Ok((hit, begin));
        }
        self.shared.walks.dirty_updates += 1;
        let done = self.fetch_entry::<T>(kernel, entry, true, begin);
        Ok((hit, done))
    }

    #[inline(always)]
    fn translate_for_free<T: Translation>(
        &mut self,
        scheme: &mut T,
        kernel: &mut T::Kernel,
        request: &Request,
    ) -> Result<(Frame, PageSize), Stop> {
        let page = self.base_page(&mut Own { scheme, kernel }, request)?;
        Ok((page.frame, page.size))
    }

    fn fetch<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        addr: PhysAddr,
        write: bool,
        now: Time,
    ) -> Time {
        self.fetch_entry::<T>(kernel, addr, write, now)
    }

    fn fetch_below<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        addr: PhysAddr,
        through_last_level: bool,
        now: Time,
    ) -> Time {
        match self.shared.observers.steps {
            None => self.fetch_line_below::<T>(kernel, addr, through_last_level, now),
            Some(_) => self.fetch_line_below_watched::<T>(kernel, addr, through_last_level, now),
        }
    }

    fn store_below(&mut self, addr: PhysAddr, now: Time) -> Time {
        if F != FULL {
            return now;
        }
        self.shared.memory.write(MemoryRequest::of_cpu(addr.line(), now, Initiator::Walk))
    }

    #[inline(always)]
    fn note_lookup(&mut self, name: &'static str, begin: Time, end: Time) {
        if let Some(steps) = &mut self.shared.observers.steps {
            steps.add(Stage::Translation, name, begin, end);
        }
    }

    #[inline(always)]
    fn name_entry(&mut self, name: &'static str) {
        if let Some(steps) = &mut self.shared.observers.steps {
            steps.name_entry(name);
        }
    }

    fn count_walk(&mut self, took: Time) {
        self.shared.walks.count += 1;
        self.shared.walks.time += took;
    }

    #[inline(always)]
    fn count_references(&mut self, references: u64) {
        self.shared.walks.memory_refs += references;
    }

    fn confirm(&mut self, request: &Request, frame: Frame) -> Option<TlbHit> {
        let leaf = self.find_leaf(request.space, request.addr)?;
        let at_once =
            if request.write { leaf.pte.is_writable_at_once() } else { leaf.pte.is_readable_at_once() };
        if !at_once {
            return None;
        }
        debug_assert_eq!(leaf.frame_of(request.addr), frame, "{request:x?}: stale");
        let first = frame.0 - (request.addr.page_offset(leaf.size) >> 12);
        let entry = TlbEntry::new(Frame(first), leaf.pte.is_writable_in_tlb());
        Some(TlbHit { entry, size: leaf.size })
    }

    #[inline(always)]
    fn splinter(&self, addr: VirtAddr, hit: TlbHit) -> TlbHit {
        match &self.core.nested {
            None => hit,
            Some(_) => self.splinter_in_host(addr, hit),
        }
    }

    #[inline(always)]
    fn table(&self, space: SpaceId) -> &PageTable {
        self.shared.os.table(space)
    }

    #[inline(always)]
    fn now(&self) -> Time {
        self.core.pipeline.now
    }

    #[inline(always)]
    fn l2_tlb_latency(&self) -> Time {
        self.shared.timing.l2_tlb
    }

    #[inline(always)]
    fn llc_latency(&self) -> Time {
        self.shared.timing.llc
    }
}

impl Core {
    /// A fault waits, if it does not do so already.
    fn fault_stalls(&mut self, space: SpaceId, addr: VirtAddr) {
        if self.fault_began(space, addr).is_none() {
            self.stalled_fault = Some((space, addr, self.pipeline.now));
        }
    }

    /// When a fault that has waited began.
    pub(super) fn fault_began(&self, space: SpaceId, addr: VirtAddr) -> Option<Time> {
        let (_, _, began) = self.stalled_fault.filter(|(of, at, _)| (*of, *at) == (space, addr))?;
        Some(began)
    }
}
