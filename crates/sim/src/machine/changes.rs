//! Changes of page-table entries are completed here: the stores go through the caches, and all that is stale is dropped.
//!
//! Whoever changes entries completes the change before the program goes on: an event of the program, an order or a scan by
//! [`Machine::complete`], a fault or a trap by [`Site::complete`]. A fault sees its own core only; what the other cores have
//! to drop waits in [`Shared::pending`] until the engine calls [`Machine::drop_stale`], and none of them runs before that.

use super::access::timeline;
use super::behind::Behind;
use super::parts::{Core, Machine, Shared};
use super::pending::Pending;
use super::site::{Completed, FULL, Own, Site};
use super::system::System;
use super::virtual_machines::OfVms;
use crate::cache::Served;
use crate::coherence::{Bill, Cause, Invalidation};
use crate::memory::Initiator;
use crate::os::{Changes, Owner};
use crate::translate::{KernelState, Translation};
use std::ops::Range;
use terrace_model::{AddressRange, CacheLine, CoreId, Frame, LINE_BYTES, Line, PageSize, SpaceId, Time};
use terrace_policy::PageId;

impl Machine {
    /// Completes what changed in page tables. `core` made the changes; without one a kernel thread did, on a processor of
    /// its own at `now`, and whoever calls charges it. A core is charged here.
    pub fn complete(&mut self, cause: Cause, core: Option<CoreId>, now: Time) -> Completed {
        if self.shared.os.changes.is_empty() {
            return Completed::default();
        }
        let changes = std::mem::take(&mut self.shared.os.changes);
        if self.shared.is_for_hardware(System::Programs, cause) {
            self.shared.count_stores(System::Programs, cause, core.is_some(), &changes);
            return self.complete_in_hardware(System::Programs, cause, core, now, changes);
        }
        let completed = self.complete_changes(System::Programs, cause, core, now, changes);
        if let Some(core) = core
            && completed.waits > Time::ZERO
        {
            let pipeline = &mut self.cores[core.index()].pipeline;
            pipeline.drain();
            pipeline.kernel(completed.waits);
        }
        completed
    }

    /// Completes what changed in the hypervisor's page table: see [`Machine::complete`].
    pub fn complete_host(&mut self, cause: Cause, core: Option<CoreId>, now: Time) -> Completed {
        let Some(hypervisor) = &mut self.shared.hypervisor else { return Completed::default() };
        if hypervisor.os.changes.is_empty() {
            return Completed::default();
        }
        let changes = std::mem::take(&mut hypervisor.os.changes);
        if self.shared.is_for_hardware(System::Hypervisor, cause) {
            self.shared.count_stores(System::Hypervisor, cause, core.is_some(), &changes);
            return self.complete_in_hardware(System::Hypervisor, cause, core, now, changes);
        }
        self.complete_changes(System::Hypervisor, cause, core, now, changes)
    }

    /// Completes what changed in either operating system's page table, by a kernel thread on a processor of its own.
    pub fn complete_of(&mut self, system: System, cause: Cause, now: Time) -> Completed {
        match system {
            System::Programs => self.complete(cause, None, now),
            System::Hypervisor => self.complete_host(cause, None, now),
        }
    }

    fn complete_changes(
        &mut self,
        system: System,
        cause: Cause,
        core: Option<CoreId>,
        now: Time,
        changes: Changes,
    ) -> Completed {
        if self.scheme.has_kernel_tables() {
            self.shared.count_stores(system, cause, core.is_some(), &changes);
            if self.shared.has_caches && cause.stores_entries() {
                self.store_entries(system, cause, core, now, &changes);
            }
        }
        let mut completed = self.shared.invalidate(system, cause, core, changes, false);
        self.drop_stale();
        if let Some(hypervisor) = &mut self.shared.hypervisor {
            completed.waits += hypervisor.take_owed();
        }
        completed
    }

    fn store_entries(
        &mut self,
        system: System,
        cause: Cause,
        core: Option<CoreId>,
        now: Time,
        changes: &Changes,
    ) {
        let Machine { cores, shared, scheme, .. } = self;
        let virtual_caches = scheme.has_virtual_caches();
        for line in changes.stored_lines() {
            let line = shared.machine_line(system, line);
            let kernel = virtual_caches.then(|| scheme.kernel());
            let Some(id) = core else {
                shared.store_from_outside(kernel, line, now);
                continue;
            };
            let pipeline = &mut cores[id.index()].pipeline;
            if !cause.pays_for_stores() {
                shared.store_entry(kernel, id, line, pipeline.now);
                continue;
            }
            let now = pipeline.now;
            let served = shared.store_entry(kernel, id, line, now);
            pipeline.access(true, timeline(now, now, served));
        }
    }

    /// Every core drops what is stale.
    pub fn drop_stale(&mut self) {
        if self.shared.hardware.is_some() {
            self.handle_messages();
        }
        for pending in std::mem::take(&mut self.shared.pending) {
            if let Some(log) = &mut self.shared.stale_log {
                log.extend(pending.stale.iter().copied());
            }
            if pending.system == System::Hypervisor {
                self.drop_stale_of_host(&pending);
                continue;
            }
            // A core that has dropped its own has notified the kernel too.
            if pending.done.is_none() {
                for pages in &pending.stale {
                    self.scheme.forget(pages.space, pages.range());
                }
            }
            for (id, core) in CoreId::number(&mut self.cores) {
                if pending.targets.contains(&id) {
                    core.pipeline.kernel(pending.bill.interrupt.unwrap_or_default());
                    self.shared.shootdowns.interrupts += u64::from(pending.bill.interrupt.is_some());
                }
                if pending.done == Some(id) {
                    continue;
                }
                if pending.bill.flushes_space {
                    pending.spaces.iter().for_each(|space| self.scheme.flush_space(id, *space));
                } else {
                    for pages in &pending.stale {
                        self.scheme.invalidate(id, pages.space, pages.range());
                    }
                }
                if pending.bill.flushes_walk_cache || pending.reshaped {
                    core.page_walk_cache.flush();
                }
            }
        }
    }

    /// The hypervisor's page table changed: cores drop what they hold of the guest.
    fn drop_stale_of_host(&mut self, pending: &Pending) {
        let virtual_pages = self.shared.pages_of_guest(pending);
        let of_vms = self.shared.vms_of(&pending.spaces);
        let spaces = self.shared.processes_in(&of_vms);
        match &virtual_pages {
            Some((pages, _)) => pages.iter().for_each(|(space, range)| self.scheme.forget(*space, *range)),
            None => spaces.iter().for_each(|space| self.scheme.forget(*space, EVERYTHING)),
        }
        for (id, core) in CoreId::number(&mut self.cores) {
            // A core that is not interrupted goes on with what it has in flight.
            let interrupt = pending.holds_up(id);
            if interrupt > Time::ZERO {
                core.pipeline.drain();
                core.pipeline.kernel(interrupt);
            }
            if pending.done == Some(id) {
                continue;
            }
            match &virtual_pages {
                Some((pages, _)) => {
                    pages.iter().for_each(|(space, range)| self.scheme.invalidate(id, *space, *range));
                }
                None => spaces.iter().for_each(|space| self.scheme.flush_space(id, *space)),
            }
            let tables = virtual_pages.as_ref().is_some_and(|(_, tables)| *tables);
            core.drop_nested(pending, virtual_pages.is_none(), tables, &of_vms);
        }
    }

    /// Drops lines whose names get another meaning.
    pub fn discard_stale_names(&mut self) {
        let names = self.scheme.kernel().take_stale_names();
        names.into_iter().for_each(|names| self.shared.caches.discard_range(names));
    }

    /// Writes the dirty ones of these lines back; they leave the caches.
    pub fn flush_lines(&mut self, names: Vec<Range<CacheLine>>, now: Time) {
        let Machine { shared, scheme, .. } = self;
        let (os, memory) = (&mut shared.os, &mut shared.memory);
        let kernel = scheme.kernel();
        let mut below = Behind { kernel, os, memory, placer: None, translated: Time::ZERO, hits_wait: false };
        names.into_iter().for_each(|names| shared.caches.flush_range(names, now, &mut below));
    }

    /// The kernel is about to copy or drop pages under caches with virtual names: it writes their lines back, as it reaches
    /// contents by names of its own. Returns how many lines it goes over; none where caches know lines by their frames.
    pub fn flush_pages(&mut self, pages: &[(PageId, PageSize)], now: Time) -> u64 {
        if !self.shared.virtual_caches || self.shared.controller_copies || !self.shared.has_caches {
            return 0;
        }
        let mut lines = 0;
        for (page, size) in pages {
            let range = AddressRange { start: page.addr(), bytes: size.bytes() };
            if let Some(names) = self.scheme.kernel().names(page.space, range) {
                self.flush_lines(names, now);
            }
            lines += size.bytes() / LINE_BYTES;
        }
        lines
    }

    /// Drops the virtually named lines of a range from the caches, where names are virtual: the addresses may be
    /// backed by other memory next. Dirty lines of freed memory need no writeback.
    pub fn discard_lines(&mut self, space: SpaceId, range: AddressRange) {
        if let Some(names) = self.scheme.kernel().names(space, range) {
            names.into_iter().for_each(|names| self.shared.caches.discard_range(names));
            return;
        }
        for (page, size, _) in self.shared.os.table(space).pages_in(range) {
            for line in 0..size.bytes() / LINE_BYTES {
                let (kernel, os) = (self.scheme.kernel(), &self.shared.os);
                if let Some(line) = kernel.virtual_line(space, page + line * LINE_BYTES, os) {
                    self.shared.caches.discard(line);
                }
            }
        }
    }
}

impl<const F: u8> Site<'_, F> {
    /// Completes what a fault or a trap on this core changed. The core waits here.
    pub(super) fn complete<T: Translation>(&mut self, own: &mut Own<'_, T>, cause: Cause) {
        if self.shared.os.changes.is_empty() {
            return;
        }
        let changes = std::mem::take(&mut self.shared.os.changes);
        if T::KERNEL_TABLES {
            self.shared.count_stores(System::Programs, cause, true, &changes);
        }
        if self.shared.is_for_hardware(System::Programs, cause) {
            return self.complete_in_hardware(own, System::Programs, cause, changes);
        }
        if F == FULL && cause.stores_entries() && T::KERNEL_TABLES {
            for line in changes.stored_lines() {
                let line = self.shared.machine_line(System::Programs, line);
                let kernel = T::VIRTUAL_CACHES.then_some(&mut *own.kernel as &mut dyn KernelState);
                self.shared.store_entry(kernel, self.id, line, self.core.pipeline.now);
            }
        }
        if let Some(hypervisor) = &mut self.shared.hypervisor {
            self.core.pipeline.kernel(hypervisor.take_owed());
        }
        if changes.stale.is_empty() && !changes.reshaped {
            return;
        }
        let completed = self.shared.invalidate(System::Programs, cause, Some(self.id), changes, true);
        let Some(pending) = self.shared.pending.last().filter(|_| completed.shootdown) else { return };
        for pages in &pending.stale {
            own.kernel.forget(pages.space, pages.range());
            own.scheme.invalidate(pages.space, pages.range());
        }
        if pending.bill.flushes_walk_cache || pending.reshaped {
            self.core.page_walk_cache.flush();
        }
        self.core.pipeline.kernel(completed.waits);
    }
}

impl<const F: u8> Site<'_, F> {
    /// Completes what an EPT violation on this core changed in the hypervisor's page table.
    pub(super) fn complete_host<T: Translation>(&mut self, own: &mut Own<'_, T>, cause: Cause) {
        let Some(hypervisor) = &mut self.shared.hypervisor else { return };
        let changes = std::mem::take(&mut hypervisor.os.changes);
        self.shared.count_stores(System::Hypervisor, cause, true, &changes);
        if self.shared.is_for_hardware(System::Hypervisor, cause) {
            return self.complete_in_hardware(own, System::Hypervisor, cause, changes);
        }
        if F == FULL && cause.stores_entries() {
            for line in changes.stored_lines() {
                self.shared.store_entry(None, self.id, line, self.core.pipeline.now);
            }
        }
        if changes.stale.is_empty() && !changes.reshaped {
            return;
        }
        let completed = self.shared.invalidate(System::Hypervisor, cause, Some(self.id), changes, true);
        let Some(pending) = self.shared.pending.last().filter(|_| completed.shootdown) else { return };
        let virtual_pages = self.shared.pages_of_guest(pending);
        let of_vms = self.shared.vms_of(&pending.spaces);
        let spaces = self.shared.processes_in(&of_vms);
        match &virtual_pages {
            Some((pages, _)) => pages.iter().for_each(|(space, range)| own.scheme.invalidate(*space, *range)),
            None => spaces.iter().for_each(|space| own.scheme.flush_space(*space)),
        }
        let tables = virtual_pages.as_ref().is_some_and(|(_, tables)| *tables);
        self.core.drop_nested(pending, virtual_pages.is_none(), tables, &of_vms);
        self.core.pipeline.kernel(completed.waits);
    }
}

/// All addresses.
const EVERYTHING: AddressRange = AddressRange::new(0, u64::MAX);

impl Core {
    /// Drops what the nested TLB and the page-walk cache hold of pages whose entries changed in the hypervisor's table.
    /// `tables`: tables of the guest's lie in them. What other virtual machines have stays.
    fn drop_nested(&mut self, pending: &Pending, everything: bool, tables: bool, of_vms: &OfVms) {
        // A scheme that leaves nested TLBs to software names no pages.
        if everything || pending.stale.is_empty() {
            return self.flush_nested_of(of_vms);
        }
        if let Some(nested) = &mut self.nested {
            pending.stale.iter().for_each(|pages| nested.invalidate(pages.range()));
        }
        if tables || pending.reshaped || pending.bill.flushes_walk_cache {
            self.flush_walk_cache_of(of_vms);
        }
    }

    /// Drops all of the nested TLB and the page-walk cache.
    pub(super) fn flush_nested(&mut self) {
        if let Some(nested) = &mut self.nested {
            nested.flush();
        }
        self.page_walk_cache.flush();
    }
}

impl Shared {
    /// Whether the stores to the entries drop what is stale.
    fn is_for_hardware(&self, system: System, cause: Cause) -> bool {
        // In a virtual machine co-tags are those of the hypervisor's entries, and the guest's are left to software.
        let of_host = system == System::Hypervisor;
        self.hardware.as_ref().is_some_and(|hardware| hardware.in_vm == of_host)
            && !(cause == Cause::Exit && self.frees_tables_unstored())
    }

    /// Where a line of an operating system's page table lies in the machine.
    #[inline]
    fn machine_line(&mut self, system: System, line: Line) -> Line {
        match &mut self.hypervisor {
            Some(hypervisor) if system == System::Programs => hypervisor.line(line),
            _ => line,
        }
    }

    /// The pages of programs behind pages of the hypervisor's that are to be dropped one by one: space and addresses, and
    /// whether tables of the guest's are there too. None where all goes, or where a frame of the guest's is in hands that
    /// name no page.
    fn pages_of_guest(&self, pending: &Pending) -> Option<(Vec<(SpaceId, AddressRange)>, bool)> {
        if pending.bill.flushes_space {
            return None;
        }
        let (mut pages, mut tables) = (Vec::new(), false);
        for stale in &pending.stale {
            let range = stale.range();
            let (mut frame, end) = (range.start.0 >> 12, range.end().0 >> 12);
            while frame < end {
                let Some((first, size, owner)) = self.os.block_of(Frame(frame)) else {
                    frame += 1;
                    continue;
                };
                match owner {
                    Owner::Page(page) => {
                        for page in self.os.mappers(first, size, page)?.iter() {
                            pages.push((page.space, AddressRange::new(page.addr().0, size.bytes())));
                        }
                    }
                    // Only walks translate to them, by the nested TLB and the page-walk cache.
                    Owner::Table => tables = true,
                    Owner::Kernel | Owner::Cache(_) => {}
                    Owner::Taken => return None,
                }
                frame = first.0 + size.base_pages();
            }
        }
        Some((pages, tables))
    }

    fn count_stores(&mut self, system: System, cause: Cause, by_core: bool, changes: &Changes) {
        if !cause.stores_entries() {
            return;
        }
        let stores = match (&mut self.hypervisor, system) {
            (Some(hypervisor), System::Hypervisor) => &mut hypervisor.table_stores,
            _ => &mut self.table_stores,
        };
        stores[usize::from(by_core)] += changes.stored_lines().count() as u64;
    }

    /// Finds out who has to drop what, counts it, and leaves it to be dropped.
    fn invalidate(
        &mut self,
        system: System,
        cause: Cause,
        core: Option<CoreId>,
        changes: Changes,
        dropped_by_core: bool,
    ) -> Completed {
        if changes.reshaped && system == System::Programs {
            self.regions.flush();
        }
        if changes.stale.is_empty() {
            return Completed::default();
        }
        let mut spaces: Vec<SpaceId> = changes.stale.iter().map(|pages| pages.space).collect();
        spaces.sort_unstable();
        spaces.dedup();
        let of_host = system == System::Hypervisor;
        let runs = |id: CoreId| self.runs_any_of(id, system, &spaces);
        let targets: Vec<CoreId> =
            CoreId::first(self.running.len()).filter(|id| Some(*id) != core && runs(*id)).collect();
        let what = Invalidation {
            pages: changes.stale_pages(),
            whole: cause.is_whole(),
            targets: targets.len() as u64,
            local: core.is_some_and(runs),
        };
        let bill = match &self.hypervisor {
            Some(hypervisor) if of_host => self.coherence.host_bill(&what, hypervisor.vm_exit),
            _ if self.hardware.as_ref().is_some_and(|hardware| hardware.guest_changes_are_free()) => {
                Bill::default()
            }
            _ => self.coherence.bill(&what),
        };
        let completed = Completed {
            shootdown: true,
            waits: bill.waits,
            targets: targets.len() as u64,
            interrupt: bill.interrupt,
        };
        self.count_shootdown(system, cause, &completed);
        if of_host && bill.interrupt.is_some() {
            self.count_interrupts_of_vms(&targets);
        }
        self.pending.push(Pending {
            system,
            stale: changes.stale,
            spaces,
            bill,
            reshaped: changes.reshaped,
            targets,
            done: core.filter(|_| dropped_by_core),
        });
        completed
    }

    /// Counts what a change came to.
    pub(super) fn count_shootdown(&mut self, system: System, cause: Cause, completed: &Completed) {
        let Completed { waits, targets, interrupt, .. } = *completed;
        match &mut self.hypervisor {
            Some(hypervisor) if system == System::Hypervisor => {
                hypervisor.shootdowns.add(cause, targets, waits);
                if let Some(interrupt) = interrupt {
                    hypervisor.exits.interrupts += targets;
                    hypervisor.exits.time += interrupt.times(targets);
                }
            }
            _ => self.shootdowns.add(cause, targets, waits),
        }
    }

    /// A core stores to a line of a page table. `kernel`: where caches are virtually tagged.
    fn store_entry(
        &mut self,
        kernel: Option<&mut dyn KernelState>,
        core: CoreId,
        line: Line,
        now: Time,
    ) -> Served {
        let by = Initiator::Kernel;
        let Some(kernel) = kernel else {
            return self.caches.access(core, line.in_caches(), true, now, by, &mut self.memory);
        };
        let line = kernel.physical_line(line);
        let (os, memory) = (&mut self.os, &mut self.memory);
        let mut below = Behind { kernel, os, memory, placer: None, translated: Time::ZERO, hits_wait: false };
        self.caches.access(core, line, true, now, by, &mut below)
    }

    /// A processor that is none of the design's cores stores to a line of a page table.
    fn store_from_outside(&mut self, kernel: Option<&mut dyn KernelState>, line: Line, now: Time) {
        let Some(kernel) = kernel else {
            return self.caches.store_from_outside(line.in_caches(), now, &mut self.memory);
        };
        let line = kernel.physical_line(line);
        let (os, memory) = (&mut self.os, &mut self.memory);
        let mut below = Behind { kernel, os, memory, placer: None, translated: Time::ZERO, hits_wait: false };
        self.caches.store_from_outside(line, now, &mut below);
    }
}
