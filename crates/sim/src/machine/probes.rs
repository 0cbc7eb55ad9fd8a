//! Translation coherence by hardware: fills are marked in the directory, stores to page tables reach who holds translations.
//!
//! A core's own structures are probed with its store. Messages to other cores wait in the caches until
//! [`Machine::handle_messages`]: at once where an event or a kernel thread made the change, else before any of them runs
//! again.

use super::access::timeline;
use super::parts::{Core, Machine, Shared};
use super::pending::Pending;
use super::site::{Completed, FULL, Own, Site};
use super::system::System;
use crate::cache::{Message, Reason};
use crate::coherence::{Bill, Cause, FreedTables, Granularity, Hardware, Invalidation, LocalStores};
use crate::memory::Initiator;
use crate::os::{Changes, Leaf};
use crate::translate::{
    KernelState, Nested, PageWalkCache, Probed, Request, Resolution, TlbHit, TlbSet, Translation,
    WalkCacheTags, Walker,
};
use terrace_model::{CoreId, LINE_BYTES, Line, PhysAddr, SpaceId, Time};

/// The translation structures of one core.
pub(super) struct Structures<'a> {
    tlbs: &'a mut dyn TlbSet,
    walk_cache: &'a mut PageWalkCache,
    nested: Option<&'a mut Nested>,
}

impl<'a> Structures<'a> {
    pub fn of(tlbs: &'a mut dyn TlbSet, core: &'a mut Core) -> Structures<'a> {
        Structures { tlbs, walk_cache: &mut core.page_walk_cache, nested: core.nested.as_deref_mut() }
    }

    /// Drops what a message about a line means.
    fn probe(&mut self, hardware: &Hardware, core: CoreId, line: Line, reason: Option<Reason>) -> Probed {
        let resolution = hardware.resolution();
        let (targets, walk_cache) = hardware.targets(core, line, reason);
        let entries = if hardware.keys.granularity == Granularity::Line { 8 } else { 1 };
        let mut probed = Probed::default();
        for target in &targets {
            probed.add(&self.tlbs.probe(target, resolution));
            if walk_cache {
                let all = hardware.searches_walk_cache();
                // Where guest's tables are known by guest-virtual addresses, no set follows from an entry of the
                // hypervisor's.
                let by_guest = hardware.in_vm
                    && self
                        .nested
                        .as_ref()
                        .is_some_and(|nested| nested.walk_cache == WalkCacheTags::GuestVirtual);
                probed.add(&self.walk_cache.probe(target.address, entries, all || by_guest, resolution));
                if let Some(nested) = &mut self.nested {
                    probed.add(&nested.probe(target.address, entries, all, resolution));
                }
            }
        }
        probed
    }

    /// Whether translations of a line are there, and how many co-tags were compared for that.
    fn holds(&self, hardware: &Hardware, line: Line) -> (bool, u64) {
        let resolution = Resolution::new(hardware.keys.co_tag_bytes, true);
        let (in_tlbs, compared) = self.tlbs.holds(line.addr(), resolution);
        if !hardware.covers.walk_cache {
            return (in_tlbs, compared);
        }
        let (in_walk_cache, more) = self.walk_cache.holds(line.addr(), resolution);
        let (in_nested, most) =
            self.nested.as_ref().map_or((false, 0), |nested| nested.holds(line.addr(), resolution));
        (in_tlbs || in_walk_cache || in_nested, compared + more + most)
    }
}

impl Machine {
    /// Builds the hardware's side of the scheme of coherence, if it has one.
    pub(super) fn connect_hardware(&mut self) {
        let Some(hardware) = &mut self.shared.hardware else { return };
        hardware.in_vm = self.shared.hypervisor.is_some();
        hardware.has_ranges = self.scheme.follow_stores(hardware.keys.ranges);
        self.shared.caches.know_translations(hardware.is_eager(), hardware.is_boundless());
        for (id, core) in CoreId::number(&mut self.cores) {
            self.scheme.tlbs(id).keep_co_tags(hardware.is_eager());
            if hardware.covers.walk_cache {
                core.page_walk_cache.keep_co_tags();
                if let Some(nested) = core.nested.as_mut().filter(|_| hardware.in_vm) {
                    nested.keep_co_tags();
                }
            }
        }
    }

    /// Cores handle the messages of the directory. Returns the most sets that one of them searched in a row; none where
    /// nobody was notified of a store.
    pub(super) fn handle_messages(&mut self) -> Option<u64> {
        self.notify_ranges_of_others();
        let mut longest = None;
        while self.shared.caches.has_messages() {
            let messages = self.shared.caches.take_messages();
            for message in &messages {
                let searched = self.handle_message(message);
                if message.reason == Reason::Store {
                    longest = longest.max(Some(searched));
                }
            }
            let Some(hardware) = &mut self.shared.hardware else { continue };
            // A core that had translations of a line without a directory entry has dropped them.
            for message in messages.iter().filter(|message| message.reason == Reason::BackInvalidation) {
                hardware.forget(message.line.as_physical());
            }
        }
        if let Some(hardware) = &mut self.shared.hardware {
            hardware.all_handled();
        }
        longest
    }

    fn handle_message(&mut self, message: &Message) -> u64 {
        let Message { core, line: named, reason, cached } = *message;
        let line = named.as_physical();
        let Machine { cores, shared, scheme, .. } = self;
        let Some(hardware) = &mut shared.hardware else { return 0 };
        let mut own = Structures::of(scheme.tlbs(core), &mut cores[core.index()]);
        if reason == Reason::Departure {
            shared.ask_what_is_left(&own, core, line);
            return 0;
        }
        let probed = own.probe(hardware, core, line, Some(reason));
        hardware.answered(reason, cached, &probed);
        let keeps = reason == Reason::Store
            && hardware.keys.granularity == Granularity::Entry
            && own.holds(hardware, line).0;
        if keeps {
            shared.caches.keep_sharer(core, named, cores[core.index()].pipeline.now, &mut shared.memory);
        } else {
            hardware.emptied(core, line);
        }
        probed.longest
    }

    /// Completes what changed: the stores drop what is stale.
    pub(super) fn complete_in_hardware(
        &mut self,
        system: System,
        cause: Cause,
        core: Option<CoreId>,
        now: Time,
        mut changes: Changes,
    ) -> Completed {
        let clock = |machine: &Machine| core.map_or(now, |id| machine.cores[id.index()].pipeline.now);
        let mut acknowledged = Time::ZERO;
        if let Some(id) = core
            && !changes.stale.is_empty()
        {
            self.cores[id.index()].pipeline.drain();
        }
        for (line, entries) in changes.stored_entries() {
            let at = clock(self);
            if let Some(hardware) = &mut self.shared.hardware {
                hardware.stores(line, entries);
            }
            self.store_in_hardware(cause, core, line, at);
            let mut longest = self.probe_locally(core, line);
            let mut answered = at;
            let remote = self.handle_messages();
            let (sent, of_ranges) = self.notify_ranges(core, line, entries);
            if sent || remote.is_some() {
                answered += self.shared.round_trip();
            }
            longest = longest.max(remote.unwrap_or(0)).max(of_ranges);
            acknowledged = acknowledged.max(answered + self.shared.probe_time(longest));
            if let Some(hardware) = &mut self.shared.hardware
                && hardware.stores_leave_nothing()
            {
                hardware.forget(line);
            }
        }
        let mut waits = Time::ZERO;
        if let Some(id) = core
            && !changes.stale.is_empty()
        {
            self.cores[id.index()].pipeline.drain();
        }
        if !changes.stale.is_empty() {
            waits = acknowledged.saturating_sub(clock(self));
        }
        let pending = self.shared.leave_to_software(system, core, &mut changes, false);
        let completed = self.shared.account(system, cause, &changes, waits, pending.as_ref());
        if system == System::Programs {
            for pages in &changes.stale {
                self.scheme.forget(pages.space, pages.range());
            }
        }
        if self.shared.drops_own_in_software()
            && let Some(id) = core
        {
            if system == System::Programs {
                for pages in &changes.stale {
                    self.scheme.invalidate(id, pages.space, pages.range());
                }
                self.cores[id.index()].page_walk_cache.flush();
            } else {
                self.shared.os.live_spaces().for_each(|space| self.scheme.flush_space(id, space));
                self.cores[id.index()].flush_nested();
            }
        }
        self.shared.pending.extend(pending);
        self.drop_stale();
        if let Some(id) = core {
            self.cores[id.index()].pipeline.kernel(completed.waits);
        }
        completed
    }

    /// One store to a line of a page table.
    fn store_in_hardware(&mut self, cause: Cause, core: Option<CoreId>, line: Line, now: Time) {
        let Machine { cores, shared, .. } = self;
        if !shared.has_caches {
            shared.caches.notify_sharers(line.in_caches(), core);
            return;
        }
        let Some(id) = core else {
            return shared.caches.store_from_outside(line.in_caches(), now, &mut shared.memory);
        };
        let served =
            shared.caches.access(id, line.in_caches(), true, now, Initiator::Kernel, &mut shared.memory);
        if cause.pays_for_stores() {
            cores[id.index()].pipeline.access(true, timeline(now, now, served));
        }
    }

    /// The store of a core probes its own structures. Returns the most sets searched in a row.
    fn probe_locally(&mut self, core: Option<CoreId>, line: Line) -> u64 {
        let Machine { cores, shared, scheme, .. } = self;
        let Some(id) = core else { return 0 };
        let mut own = Structures::of(scheme.tlbs(id), &mut cores[id.index()]);
        shared.probe_own(&mut own, id, line)
    }
}

impl<const F: u8> Site<'_, F> {
    /// Completes in hardware what a fault or a trap here changed. Other cores handle its messages before they run again.
    pub(super) fn complete_in_hardware<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        system: System,
        cause: Cause,
        mut changes: Changes,
    ) {
        let now = self.core.pipeline.now;
        let mut acknowledged = Time::ZERO;
        for (line, entries) in changes.stored_entries() {
            let shared = &mut *self.shared;
            if let Some(hardware) = &mut shared.hardware {
                hardware.stores(line, entries);
            }
            let before = shared.caches.has_messages();
            if F == FULL {
                shared.caches.access(
                    self.id,
                    line.in_caches(),
                    true,
                    now,
                    Initiator::Kernel,
                    &mut shared.memory,
                );
            } else {
                shared.caches.notify_sharers(line.in_caches(), Some(self.id));
            }
            let mut sends = !before && shared.caches.has_messages();
            let mut structures = Structures::of(own.scheme.tlbs_mut(), self.core);
            // Other cores search the same sets.
            let longest = shared.probe_own(&mut structures, self.id, line);
            let (sent, of_ranges) = self.notify_ranges(own, line, entries);
            sends |= sent;
            let longest = longest.max(of_ranges);
            let shared = &*self.shared;
            let trip = if sends { shared.round_trip() } else { Time::ZERO };
            acknowledged = acknowledged.max(now + trip + shared.probe_time(longest));
        }
        let waits = if changes.stale.is_empty() { Time::ZERO } else { acknowledged.saturating_sub(now) };
        let pending = self.shared.leave_to_software(system, Some(self.id), &mut changes, true);
        let completed = self.shared.account(system, cause, &changes, waits, pending.as_ref());
        let drops_own = self.shared.drops_own_in_software();
        if system == System::Programs {
            for pages in &changes.stale {
                own.kernel.forget(pages.space, pages.range());
                if drops_own {
                    own.scheme.invalidate(pages.space, pages.range());
                    self.core.page_walk_cache.flush();
                }
            }
            if pending.is_some() {
                self.core.page_walk_cache.flush();
            }
        } else if drops_own && !changes.stale.is_empty() {
            self.shared.os.live_spaces().for_each(|space| own.scheme.flush_space(space));
            self.core.flush_nested();
        } else if pending.is_some() {
            self.core.flush_nested();
        }
        self.shared.pending.extend(pending);
        self.core.pipeline.kernel(completed.waits);
    }

    /// A walk fetched the entries from level `start` down to `leaf`'s: what is filled with them carries their addresses, and
    /// the directory marks their lines.
    #[inline(never)]
    pub(super) fn tag_fill<T: Translation>(
        &mut self,
        scheme: &mut T,
        request: &Request,
        leaf: &Leaf,
        start: u32,
        hit: TlbHit,
    ) {
        if self.shared.hypervisor.is_some() {
            return self.tag_fill_of_guest(scheme, request, leaf, start, hit);
        }
        let Request { space, addr, .. } = *request;
        let (now, leaf_level) = (self.core.pipeline.now, leaf.size.index() as u32 + 1);
        let size = self.splinter(addr, hit).size;
        let shared = &mut *self.shared;
        let Some(hardware) = &mut shared.hardware else { return };
        let top = if self.core.page_walk_cache.has_co_tags() { start } else { leaf_level };
        let mut evicted = scheme.tlbs_mut().take_evicted();
        for level in leaf_level..=top {
            let entry = shared.os.table(space).entry_address(leaf, addr, level);
            let marked = shared.caches.mark(self.id, entry.line().in_caches(), now, &mut shared.memory);
            let tlb_sets = if level == leaf_level {
                scheme.tlbs_mut().set_source(entry);
                Some(scheme.tlbs().tlb_sets(space, addr, size))
            } else {
                evicted.extend(self.core.page_walk_cache.tag(space, addr, level, entry));
                None
            };
            hardware.filled(self.id, entry, tlb_sets, marked);
        }
        if !hardware.is_eager() {
            return;
        }
        // The TLBs are filled next: what the walk ended at is as good as held.
        let filled = shared.os.table(space).entry_address(leaf, addr, leaf_level).line();
        self.leave_sharers(scheme, evicted, filled);
    }

    /// Eager updates: co-tags of these entries had to go. The line `filled` is as good as held.
    pub(super) fn leave_sharers<T: Translation>(
        &mut self,
        scheme: &mut T,
        evicted: Vec<PhysAddr>,
        filled: Line,
    ) {
        for line in evicted.into_iter().map(PhysAddr::line).filter(|line| *line != filled) {
            let structures = Structures::of(scheme.tlbs_mut(), self.core);
            self.shared.ask_what_is_left(&structures, self.id, line);
        }
    }

    /// A walker sets bits of the entry at `entry`. Returns when that is done.
    #[inline(never)]
    pub(super) fn set_bits_in_hardware(&mut self, entry: PhysAddr, now: Time) -> Time {
        let (shared, line) = (&mut *self.shared, entry.line());
        let named = line.in_caches();
        let Some(hardware) = &mut shared.hardware else { return now };
        let before = shared.caches.messages();
        let done = if F == FULL {
            shared.caches.access(self.id, named, true, now, Initiator::Walk, &mut shared.memory).done
        } else {
            shared.caches.notify_sharers(line.in_caches(), Some(self.id));
            now + shared.timing.llc
        };
        if hardware.ignores_walkers() {
            for core in shared.caches.take_back(named, before) {
                shared.caches.keep_sharer(core, named, now, &mut shared.memory);
            }
        } else {
            hardware.stores(line, 1 << (entry.0 % LINE_BYTES / 8));
        }
        done
    }
}

impl Shared {
    fn round_trip(&self) -> Time {
        self.hardware.as_ref().map_or(Time::ZERO, |hardware| hardware.round_trip)
    }

    fn probe_time(&self, sets: u64) -> Time {
        self.hardware.as_ref().map_or(Time::ZERO, |hardware| hardware.probe.times(sets))
    }

    /// Whether the core that makes a change drops its own translations by instructions.
    fn drops_own_in_software(&self) -> bool {
        self.hardware.as_ref().is_some_and(|hardware| hardware.keys.local_stores == LocalStores::Software)
    }

    /// Whether a process that ends leaves its tables as they are, so that software has to drop what was made from them.
    pub(super) fn frees_tables_unstored(&self) -> bool {
        self.hardware.as_ref().is_some_and(|hardware| hardware.keys.freed_tables == FreedTables::Flush)
    }

    /// A core's store probes its own structures.
    fn probe_own(&mut self, own: &mut Structures<'_>, core: CoreId, line: Line) -> u64 {
        let Some(hardware) = &mut self.hardware else { return 0 };
        if hardware.keys.local_stores == LocalStores::Software {
            return 0;
        }
        let probed = own.probe(hardware, core, line, None);
        hardware.counters.local_probes += 1;
        hardware.counters.probed.add(&probed);
        probed.longest
    }

    /// Eager updates: a core that holds nothing of a line any more leaves its sharers.
    fn ask_what_is_left(&mut self, own: &Structures<'_>, core: CoreId, line: Line) {
        let Some(hardware) = &mut self.hardware else { return };
        let (held, compared) = own.holds(hardware, line);
        hardware.counters.eager_lookups += 1;
        hardware.counters.probed.compared += compared;
        if !held && !self.caches.is_private(core, line.in_caches()) {
            hardware.counters.eager_updates += 1;
            hardware.emptied(core, line);
            self.caches.demote(core, line.in_caches());
        }
    }

    /// What hardware does not keep coherent: the page-walk caches of UNITD++ when entries above the leaves changed.
    fn leave_to_software(
        &mut self,
        system: System,
        core: Option<CoreId>,
        changes: &mut Changes,
        dropped_by_core: bool,
    ) -> Option<Pending> {
        let reshaped = std::mem::take(&mut changes.reshaped);
        let of_host = system == System::Hypervisor;
        if reshaped && !of_host {
            self.regions.flush();
        }
        let covered = self.hardware.as_ref().is_none_or(|hardware| hardware.covers.walk_cache);
        // Nested TLBs hold pages, so that any change of the hypervisor's concerns them.
        if covered || !(reshaped || of_host) || changes.stale.is_empty() {
            return None;
        }
        let mut spaces: Vec<SpaceId> = changes.stale.iter().map(|pages| pages.space).collect();
        spaces.sort_unstable();
        spaces.dedup();
        let runs = |id: CoreId| self.runs_any_of(id, system, &spaces);
        let targets: Vec<CoreId> =
            CoreId::first(self.running.len()).filter(|id| Some(*id) != core && runs(*id)).collect();
        let local = core.is_some_and(runs);
        let what = Invalidation { pages: 1, whole: false, targets: targets.len() as u64, local };
        let bill = match &self.hypervisor {
            Some(hypervisor) if of_host => self.coherence.host_bill(&what, hypervisor.vm_exit),
            _ => self.coherence.bill(&what),
        };
        let bill = Bill { flushes_space: false, flushes_walk_cache: true, ..bill };
        if of_host && bill.interrupt.is_some() {
            self.count_interrupts_of_vms(&targets);
        }
        Some(Pending {
            system,
            stale: Vec::new(),
            spaces,
            bill,
            reshaped: true,
            targets,
            done: core.filter(|_| dropped_by_core),
        })
    }

    /// Counts a change, and says what it came to for whoever made it.
    fn account(
        &mut self,
        system: System,
        cause: Cause,
        changes: &Changes,
        mut waits: Time,
        software: Option<&Pending>,
    ) -> Completed {
        if changes.stale.is_empty() {
            return Completed::default();
        }
        let mut completed = Completed { shootdown: true, ..Completed::default() };
        if let Some(pending) = software {
            waits += pending.bill.waits;
            completed.targets = pending.targets.len() as u64;
            completed.interrupt = pending.bill.interrupt;
        }
        if self.drops_own_in_software() {
            let pages = changes.stale_pages();
            // No instruction drops the translations of one guest-physical page.
            let whole = cause.is_whole() || system == System::Hypervisor;
            waits += self.coherence.bill(&Invalidation { pages, whole, targets: 0, local: true }).waits;
        }
        completed.waits = waits;
        self.count_shootdown(system, cause, &completed);
        completed
    }
}
