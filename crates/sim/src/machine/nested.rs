//! Two-dimensional walks: guest-physical addresses translated by the host's table, and the faults that this meets.
//!
//! All that a walk will need is backed before it begins, as an instruction begins again after an EPT violation. Accessed
//! and dirty bits are set in both tables: a walker's read of a guest's entry marks the host's page accessed, and dirty, as
//! the processor treats it as a write (Intel, Software Developer's Manual, volume 3, section 29.3.5).

use super::site::{Own, Site};
use super::system::{StoppedAt, System};
use crate::coherence::Cause;
use crate::host::BasePage;
use crate::os::{Leaf, PageTable, Pte};
use crate::translate::{HOST, Request, Stop, TlbEntry, TlbHit, Translation, WalkCacheTags, Walker, compose};
use terrace_model::{Frame, GuestPhysAddr, PageId, PageSize, PhysAddr, SpaceId, Time, VirtAddr};

/// Entries of the host's page tables by their level.
const HOST_LEVELS: [&str; 6] =
    ["host's table", "host, level 1", "host, level 2", "host, level 3", "host, level 4", "host, level 5"];

/// An address that a guest's page table says.
pub(super) fn in_guest(addr: PhysAddr) -> GuestPhysAddr {
    GuestPhysAddr(addr.0)
}

/// The guest-physical address of an access in the page that begins in the guest's frame `first`.
pub(super) fn data_of(first: Frame, addr: VirtAddr, size: PageSize) -> GuestPhysAddr {
    in_guest(first.addr()) + addr.page_offset(size)
}

impl<const F: u8> Site<'_, F> {
    /// Finds memory in the host for all that a walk to `leaf` meets. Returns whether any had to be found.
    pub(super) fn back_walk<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
        leaf: &Leaf,
    ) -> Result<bool, Stop> {
        if self.shared.hypervisor.is_none() {
            return Ok(false);
        }
        let Request { space, addr, write, .. } = *request;
        let (lowest, levels) = (leaf.size.index() as u32 + 1, self.shared.os.levels());
        let path = match leaf.knows(levels) {
            true => *leaf,
            false => self.shared.os.table(space).find(addr).unwrap_or(*leaf),
        };
        let mut faulted = false;
        for level in lowest..=levels {
            let entry = self.shared.os.table(space).entry_address(&path, addr, level);
            faulted |= self.back(own, in_guest(entry), true)?;
        }
        Ok(faulted | self.back(own, data_of(leaf.pte.frame(), addr, leaf.size), write)?)
    }

    /// Makes sure that the host maps a guest-physical address for a kind of access. Returns whether that took a fault.
    fn back<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        addr: GuestPhysAddr,
        write: bool,
    ) -> Result<bool, Stop> {
        let mut faulted = false;
        loop {
            let Some(hypervisor) = &self.shared.hypervisor else { return Ok(faulted) };
            match hypervisor.find(addr) {
                Some(leaf) if !leaf.pte.stops(write) => return Ok(faulted),
                Some(leaf) if leaf.pte.is_held() => return Err(self.stop_at_host(addr)),
                Some(leaf) => {
                    if self.take_host_trap(own, addr, &leaf, write) {
                        return Ok(true);
                    }
                }
                None => self.ept_violation(own, addr, write)?,
            }
            faulted = true;
        }
    }

    /// An access where there are no TLBs: it walks both tables, and the host's entries of the guest's tables and of the page
    /// get their bits. Pages used lately are not walked to again while an access changes nothing in either table. Returns
    /// the guest's `page` as it lies in the machine, and whether no fault was taken.
    #[inline(never)]
    pub(super) fn in_machine<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
        page: BasePage,
    ) -> Result<(BasePage, bool), Stop> {
        let Request { space, addr, write, .. } = *request;
        let Some(leaf) = self.shared.os.table(space).find(addr) else {
            debug_assert!(false, "{addr:#x}: a page that was found is mapped");
            return Ok((page, false));
        };
        let (mut faulted, mut settled) = (false, true);
        for level in leaf.size.index() as u32 + 1..=self.shared.os.levels() {
            let entry = self.shared.os.table(space).entry_address(&leaf, addr, level);
            let (pte, by_fault) = self.touch(own, in_guest(entry), true)?;
            (faulted, settled) = (faulted | by_fault, settled && pte.is_some_and(Pte::is_writable_at_once));
        }
        let (_, by_fault) = self.touch(own, data_of(leaf.pte.frame(), addr, leaf.size), write)?;
        let BasePage { readable, writable, .. } = page;
        let page = BasePage { readable: readable && settled, writable: writable && settled, ..page };
        Ok((self.as_mapped_in_host(page), !(faulted | by_fault)))
    }

    /// An access to a guest-physical address sets bits in the host's entry. Returns the entry, and whether that took a
    /// fault.
    fn touch<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        addr: GuestPhysAddr,
        write: bool,
    ) -> Result<(Option<Pte>, bool), Stop> {
        let faulted = self.back(own, addr, write)?;
        let pte = self.shared.hypervisor.as_mut().and_then(|hypervisor| {
            let (space, leaf) = (hypervisor.space_of(addr), hypervisor.find(addr)?);
            Some(hypervisor.os.mark(space, addr.in_host_space(), &leaf, write))
        });
        Ok((pte, faulted))
    }

    /// The guest's page as it lies in the machine. It counts as readable, or writable, where such an access changes nothing
    /// in either table.
    pub(super) fn as_mapped_in_host(&self, page: BasePage) -> BasePage {
        let addr = in_guest(page.frame.addr());
        let Some(leaf) = self.shared.hypervisor.as_ref().and_then(|hypervisor| hypervisor.find(addr)) else {
            return page;
        };
        BasePage {
            frame: leaf.frame_of(addr.in_host_space()),
            size: page.size.min(leaf.size),
            readable: page.readable && leaf.pte.is_readable_at_once(),
            writable: page.writable && leaf.pte.is_writable_at_once(),
        }
    }

    /// The thread waits for a page of the host's.
    fn stop_at_host(&mut self, addr: GuestPhysAddr) -> Stop {
        let space =
            self.shared.hypervisor.as_ref().map_or(SpaceId(0), |hypervisor| hypervisor.space_of(addr));
        let page = PageId::of(space, addr.in_host_space());
        self.shared.stopped_at = Some(StoppedAt { system: System::Hypervisor, page });
        Stop::Held
    }

    /// The host maps nothing at a guest-physical address: the core leaves the guest, and the hypervisor finds a page.
    fn ept_violation<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        addr: GuestPhysAddr,
        write: bool,
    ) -> Result<(), Stop> {
        self.core.pipeline.drain();
        let now = self.core.pipeline.now;
        let Some(hypervisor) = &mut self.shared.hypervisor else { return Ok(()) };
        hypervisor.os.now = now;
        let (space, at) = (hypervisor.space_of(addr), addr.in_host_space());
        let fault = match &mut self.host_manager {
            Some(manager) => match manager.fault(&mut hypervisor.os, space, at, write, now)? {
                Some(fault) => fault,
                None => return Err(self.stop_at_host(addr)),
            },
            None => hypervisor.os.fault(space, at, hypervisor.wish(addr).as_slice())?,
        };
        hypervisor.note_ept_violation(addr);
        let from = now + hypervisor.fault_time();
        let filled = self.fill_page(own, space, at, &fault, None, from);
        self.core.pipeline.kernel(filled.now - now);
        self.complete_host(own, Cause::Fault);
        if let Some(hypervisor) = &mut self.shared.hypervisor {
            hypervisor.exits.time += self.core.pipeline.now - now;
        }
        Ok(())
    }

    /// A walk met a page that the host's policy watches. Returns whether the access goes on although the page stays trapped.
    fn take_host_trap<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        addr: GuestPhysAddr,
        leaf: &Leaf,
        write: bool,
    ) -> bool {
        let (Some(manager), Some(hypervisor)) = (&mut self.host_manager, &mut self.shared.hypervisor) else {
            return true;
        };
        self.core.pipeline.drain();
        let (space, now) = (hypervisor.space_of(addr), self.core.pipeline.now);
        let trap = manager.trap(&mut hypervisor.os, space, addr.in_host_space(), leaf, write, now);
        let cost = trap.cost + hypervisor.vm_exit;
        hypervisor.note_ept_violation(addr);
        hypervisor.exits.time += cost;
        self.core.pipeline.kernel(cost);
        self.complete_host(own, Cause::Watch);
        trap.goes_on
    }

    /// The guest's kernel is about to touch all of a block of its memory.
    pub(super) fn back_block<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        frame: Frame,
        size: PageSize,
    ) -> Result<(), Stop> {
        let mut from = in_guest(frame.addr());
        let end = from + size.bytes();
        while let Some(addr) =
            self.shared.hypervisor.as_ref().and_then(|hypervisor| hypervisor.unbacked(from, end))
        {
            self.ept_violation(own, addr, true)?;
            from = addr;
        }
        Ok(())
    }

    /// Nested paging: translates a guest-physical address that a walk met. Returns where it lies in the machine, and when
    /// that is known. `write`: what the access behind it is to the host's table.
    #[inline(never)]
    pub(super) fn walk_host<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        addr: GuestPhysAddr,
        write: bool,
        mut at: Time,
    ) -> (PhysAddr, Time) {
        if self.shared.hypervisor.is_some() {
            return self.walk_hypervisor::<T>(kernel, addr, write, at);
        }
        // The constant table maps an address to itself.
        let place = PhysAddr(addr.0);
        let Some(nested) = &mut self.core.nested else { return (place, at) };
        at += self.shared.timing.nested_tlb;
        let caches_host = nested.caches_host;
        let levels = nested.levels_to_fetch(addr, &mut self.core.page_walk_cache);
        if levels.len() > 0 && caches_host {
            at += self.shared.timing.page_walk_cache;
        }
        for level in levels {
            let table = self.core.nested.as_ref().and_then(|nested| nested.constant.as_ref());
            let Some(entry) = table.map(|table| table.entry_address(addr, level)) else { continue };
            at = self.fetch_entry::<T>(kernel, entry, false, at);
            self.name_entry(HOST_LEVELS[level as usize % 6]);
            self.shared.walks.memory_refs += 1;
        }
        (place, at)
    }

    /// Translates a guest-physical address by the hypervisor's table.
    fn walk_hypervisor<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        addr: GuestPhysAddr,
        write: bool,
        mut at: Time,
    ) -> (PhysAddr, Time) {
        let place = |hit: TlbHit| hit.entry.frame().addr() + addr.page_offset(hit.size);
        at += self.shared.timing.nested_tlb;
        if let Some(hit) = self.core.nested.as_mut().and_then(|nested| nested.look_up(addr)) {
            if write && !hit.entry.is_dirty() {
                at = self.set_host_bits::<T>(kernel, addr, at);
            }
            debug_assert_eq!(
                self.place_in_host(addr),
                Some(place(hit)),
                "{addr:#x}: the nested TLB is stale"
            );
            return (place(hit), at);
        }
        let caches_host = self.core.nested.as_ref().is_some_and(|nested| nested.caches_host);
        if caches_host {
            at += self.shared.timing.page_walk_cache;
        }
        let Some(hypervisor) = &mut self.shared.hypervisor else { return (PhysAddr(addr.0), at) };
        let in_space = addr.in_host_space();
        let Some(leaf) = hypervisor.find(addr) else { return (PhysAddr(addr.0), at) };
        let pte = hypervisor.os.mark(hypervisor.space_of(addr), in_space, &leaf, write);
        let sets_bits = pte != leaf.pte;
        let lowest = leaf.size.index() as u32 + 1;
        let cache = caches_host.then_some(&mut self.core.page_walk_cache);
        let levels = hypervisor.os.levels();
        let start = cache.map_or(levels, |cache| cache.start_level(HOST, in_space, lowest, levels));
        for level in (lowest..=start).rev() {
            let Some(entry) = self.host_entry(&leaf, addr, level) else { continue };
            at = self.fetch_entry::<T>(kernel, entry, sets_bits && level == lowest, at);
            self.name_entry(HOST_LEVELS[level as usize % 6]);
            self.shared.walks.memory_refs += 1;
        }
        if caches_host {
            self.core.page_walk_cache.fill(HOST, in_space, lowest + 1, start);
        }
        let hit = TlbHit { entry: TlbEntry::new(pte.frame(), pte.is_writable_in_tlb()), size: leaf.size };
        if let Some(nested) = &mut self.core.nested {
            nested.references += u64::from(start + 1 - lowest);
            nested.insert(addr, hit);
        }
        if self.shared.hardware.is_some() {
            self.tag_walk_of_host(addr, &leaf, lowest, start);
        }
        (place(hit), at)
    }

    /// Where the host's entry of `level` lies on the way to `leaf`.
    pub(super) fn host_entry(&self, leaf: &Leaf, addr: GuestPhysAddr, level: u32) -> Option<PhysAddr> {
        let hypervisor = self.shared.hypervisor.as_ref()?;
        let table: &PageTable = hypervisor.os.table(hypervisor.space_of(addr));
        Some(table.entry_address(leaf, addr.in_host_space(), level))
    }

    /// A store goes to a page whose dirty bit is clear in the host's table: the walker sets it. Returns when that is done.
    fn set_host_bits<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        addr: GuestPhysAddr,
        at: Time,
    ) -> Time {
        let Some(hypervisor) = &mut self.shared.hypervisor else { return at };
        let Some(leaf) = hypervisor.find(addr) else { return at };
        let pte = hypervisor.os.mark(hypervisor.space_of(addr), addr.in_host_space(), &leaf, true);
        let hit = TlbHit { entry: TlbEntry::new(pte.frame(), pte.is_writable_in_tlb()), size: leaf.size };
        if let Some(nested) = &mut self.core.nested {
            nested.update(addr, hit);
        }
        if pte == leaf.pte {
            return at;
        }
        let Some(entry) = self.host_entry(&leaf, addr, leaf.size.index() as u32 + 1) else { return at };
        self.fetch_entry::<T>(kernel, entry, true, at)
    }

    /// Whether the page-walk cache said where the table at `start`, the first that a walk reads, lies in the machine.
    pub(super) fn knows_place(&self, start: u32, space: SpaceId) -> bool {
        let by_guest_virtual =
            self.core.nested.as_ref().is_some_and(|nested| nested.walk_cache == WalkCacheTags::GuestVirtual);
        // A walk from the root found nothing there.
        by_guest_virtual && start < self.shared.os.table(space).levels()
    }

    /// Where an address of the guest lies in the machine.
    pub(super) fn place_of(&self, addr: PhysAddr) -> PhysAddr {
        self.place_in_host(in_guest(addr)).unwrap_or(addr)
    }

    fn place_in_host(&self, addr: GuestPhysAddr) -> Option<PhysAddr> {
        self.shared.hypervisor.as_ref()?.place(addr)
    }

    /// The guest set a dirty bit in the entry at `entry`, at a store to `addr`: the host's tables say so too. Returns where
    /// the entry lies in the machine, and when the host's bits are set.
    pub(super) fn set_dirty_in_host<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        entry: PhysAddr,
        leaf: &Leaf,
        addr: VirtAddr,
        at: Time,
    ) -> (PhysAddr, Time) {
        let place = self.shared.hypervisor.as_ref().and_then(|hypervisor| hypervisor.place(in_guest(entry)));
        let Some(place) = place else { return (entry, at) };
        let at = self.set_host_bits::<T>(kernel, in_guest(entry), at);
        (place, self.set_host_bits::<T>(kernel, data_of(leaf.pte.frame(), addr, leaf.size), at))
    }

    /// A walk ended at a page of the guest: the hypervisor's policy may want to know.
    pub(super) fn walked_in_host(&mut self, addr: VirtAddr, leaf: &Leaf) {
        let (Some(manager), Some(hypervisor)) = (&mut self.host_manager, &self.shared.hypervisor) else {
            return;
        };
        let data = data_of(leaf.pte.frame(), addr, leaf.size);
        if let Some(of_host) = hypervisor.find(data) {
            manager.walked(hypervisor.space_of(data), data.in_host_space(), of_host.size);
        }
    }

    /// An access of the guest reached memory. Returns the time that a sample of it costs its core.
    pub(super) fn reached_memory_of_host(&mut self, space: SpaceId, addr: VirtAddr, write: bool) -> Time {
        let (Some(manager), Some(hypervisor)) = (&mut self.host_manager, &self.shared.hypervisor) else {
            return Time::ZERO;
        };
        let Some(leaf) = self.shared.os.table(space).find(addr) else { return Time::ZERO };
        let data = data_of(leaf.pte.frame(), addr, leaf.size);
        manager.reached_memory(hypervisor.space_of(data), data.in_host_space(), write)
    }

    /// What a TLB holds of a page of the guest: no more than a page of the host, and in the machine's frames.
    #[inline(never)]
    pub(super) fn splinter_in_host(&self, addr: VirtAddr, hit: TlbHit) -> TlbHit {
        if let Some(hypervisor) = &self.shared.hypervisor {
            let in_guest = data_of(hit.entry.frame(), addr, hit.size);
            return match hypervisor.translate(in_guest) {
                Some(host) => compose(addr, hit, in_guest, host),
                None => hit,
            };
        }
        match self.core.nested.as_ref().and_then(|nested| nested.constant.as_ref()) {
            Some(constant) => constant.splinter(addr, hit),
            None => hit,
        }
    }

    /// The machine's frame of an address in the page that `leaf` maps for the programs' operating system.
    pub(super) fn machine_frame(&self, addr: VirtAddr, leaf: &Leaf) -> Option<Frame> {
        let data = data_of(leaf.pte.frame(), addr, leaf.size);
        match &self.shared.hypervisor {
            Some(hypervisor) => hypervisor.place(data).map(PhysAddr::frame),
            None => Some(PhysAddr(data.0).frame()),
        }
    }
}
