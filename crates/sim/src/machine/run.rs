//! Runs of accesses on one core: the loops over a batch's columns.

use super::access::timeline;
use super::columns::Columns;
use super::hits::HITS_IN_A_ROW;
use super::parts::Shared;
use super::site::{FULL, Own, PAGES, Site, TRANSLATION};
use crate::core::Timeline;
use crate::memory::Initiator;
use crate::os::OsError;
use crate::translate::{Request, Stop, TlbHit, Translation};
use terrace_model::{LINE_BYTES, Line, PageNumber, PageSize, SpaceId, Time, VirtAddr};
use terrace_trace::{AccessKind, BATCH_ACCESSES, Batch};

/// Whether a process's page tables fit into the host's caches, so that looking ahead for their entries does not pay.
fn has_small_tables(shared: &Shared, space: SpaceId) -> bool {
    // 1 MiB of tables maps 512 MiB.
    shared.os.table(space).table_pages() <= 256
}

/// Bytes of a base page.
const BASE_PAGE: u64 = PageSize::Base.bytes();

/// A base page that a run of accesses used lately.
#[derive(Clone, Copy)]
struct RecentPage {
    /// The page's number in the address space.
    number: PageNumber,
    tier: u8,
    /// A load traps nowhere.
    readable: bool,
    /// A store changes nothing in the page table.
    writable: bool,
}

const RECENT_PAGES: usize = 32;
/// No page of an address space has this number.
const NO_PAGE: PageNumber = PageNumber(u64::MAX);
const NOTHING_RECENT: RecentPage = RecentPage { number: NO_PAGE, tier: 0, readable: false, writable: false };

/// Where a page is remembered. Any pages must spread: power-of-two strides are frequent.
#[inline(always)]
fn recent_page(PageNumber(number): PageNumber) -> usize {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - RECENT_PAGES.ilog2())) as usize
}

impl<const F: u8> Site<'_, F> {
    /// Runs accesses `from..to` of a batch until the clock passes `horizon`; returns how far it came.
    ///
    /// # Errors
    /// The simulated kernel failed.
    #[inline(never)]
    pub(crate) fn run<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        space: SpaceId,
        batch: &Batch,
        from: usize,
        to: usize,
        horizon: Time,
    ) -> Result<usize, OsError> {
        if F == PAGES {
            return self.run_pages(own, space, batch, from, to);
        }
        let Columns { addr: addrs, size: sizes, kind: kinds, depends_on: depends, instructions } =
            Columns::of(batch, from..to);
        if from == 0 && !T::VIRTUAL_CACHES {
            let small = F == TRANSLATION && has_small_tables(self.shared, space);
            let misses = own.scheme.tlb_counters().l2_misses + self.shared.caches.counters.llc.misses;
            self.core.host_prefetch.weigh(misses, BATCH_ACCESSES, small);
        }
        let prefetches = !T::VIRTUAL_CACHES && self.core.host_prefetch.is_active();
        let mut demand_reads = self.shared.memory.demand_reads;
        // Hits so far without anything else between.
        let mut hits_in_a_row = 0;
        let mut next = 0;
        while next < addrs.len() {
            if F == TRANSLATION && hits_in_a_row >= HITS_IN_A_ROW && !prefetches {
                let reached = self.run_hits(own, space, batch, from + next, to, horizon);
                if reached == to || (reached > from + next && self.core.pipeline.now > horizon) {
                    return Ok(reached);
                }
                (next, hits_in_a_row) = (reached - from, 0);
            }
            let at = next;
            next += 1;
            if prefetches {
                self.prefetch_for::<T>(space, addrs, at);
            }
            self.core.pipeline.dispatch(u64::from(instructions[at]));
            let addr = VirtAddr(addrs[at]);
            let write = kinds[at] == AccessKind::Write;
            let now = self.core.pipeline.operands_ready(depends[at]);
            let size = u64::from(sizes[at]);
            let crosses = addr.line_offset() + size > LINE_BYTES;
            if addr.page_offset(PageSize::Base) + size <= BASE_PAGE
                && let Some(page) = own.scheme.recent(space, addr)
                && (!write || page.entry.is_dirty())
            {
                // A hit in the level-1 TLB that changes nothing there.
                own.scheme.count_hit(page);
                if crosses {
                    self.access_translated_lines(own, page, addr, size, write, now);
                } else {
                    self.access_translated(page, addr, write, now);
                }
                hits_in_a_row += 1;
                if F == FULL && self.shared.sampling && self.shared.memory.demand_reads != demand_reads {
                    demand_reads = self.shared.memory.demand_reads;
                    self.reached_memory(space, addr, write);
                }
                if self.core.pipeline.now > horizon {
                    return Ok(from + at + 1);
                }
                continue;
            }
            hits_in_a_row = 0;
            own.scheme.set_instruction(batch.pc.get(from + at).copied());
            let request = Request { space, addr, write, now };
            let timeline = if crosses {
                self.access_lines(own, &request, sizes[at])
            } else {
                self.access_line(own, &request, Initiator::Demand)
            };
            let timeline = match timeline {
                Ok(timeline) => timeline,
                Err(Stop::Held) => {
                    self.core.pipeline.take_back(u64::from(instructions[at]));
                    return Ok(from + at);
                }
                Err(Stop::Failed(error)) => return Err(error),
            };
            self.core.pipeline.access(write, timeline);
            if F == FULL && self.shared.sampling && self.shared.memory.demand_reads != demand_reads {
                demand_reads = self.shared.memory.demand_reads;
                self.reached_memory(space, addr, write);
            }
            if self.core.pipeline.now > horizon {
                return Ok(from + at + 1);
            }
        }
        Ok(to)
    }

    /// Prefetches on the host what accesses after `at` will need.
    #[inline(always)]
    fn prefetch_for<T: Translation>(&mut self, space: SpaceId, addrs: &[u64], at: usize) {
        let shared = &mut *self.shared;
        let (prefetch, table) = (&mut self.core.host_prefetch, shared.os.table(space));
        if F == FULL && T::WALKS {
            prefetch.entries::<true>(&shared.caches, table, &mut shared.regions, space, addrs, at);
        } else {
            prefetch.entries::<false>(&shared.caches, table, &mut shared.regions, space, addrs, at);
        }
        if F == FULL
            && let Some(line) =
                prefetch.line(&shared.caches, self.id, table, &shared.regions, space, addrs, at)
        {
            shared.memory.host_prefetch(line);
        }
    }

    /// An access to one line whose page is known at `now`.
    #[inline(always)]
    fn access_translated(&mut self, page: TlbHit, addr: VirtAddr, write: bool, now: Time) {
        if F == TRANSLATION {
            return self.core.pipeline.hit(write, now, now, now);
        }
        let line = page.place_of(addr).line().in_caches();
        let shared = &mut *self.shared;
        if let Some((looked_up, done)) = shared.caches.access_recent(self.id, line, write, now) {
            return self.core.pipeline.hit(write, now, looked_up, done);
        }
        let by = Initiator::Demand;
        let served = shared.caches.access_not_recent(self.id, line, write, now, by, &mut shared.memory);
        self.wait_for_register(now, served);
        self.core.pipeline.access(write, timeline(now, now, served));
    }

    /// An access over several lines of the page; the translation was counted for the first one. The access is done when its
    /// last line is.
    #[inline(always)]
    fn access_translated_lines<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        page: TlbHit,
        addr: VirtAddr,
        size: u64,
        write: bool,
        now: Time,
    ) {
        let others = (addr.line_offset() + size - 1) / LINE_BYTES;
        for _ in 0..others {
            own.scheme.count_hit(page);
        }
        if F == TRANSLATION {
            return self.core.pipeline.hit(write, now, now, now);
        }
        let first = page.place_of(addr).line();
        let whole = self.access_physical_lines(first, others, write, now);
        self.core.pipeline.access(write, whole);
    }

    /// `others` lines beside the `first`, whose page is known at `now`.
    #[inline(never)]
    fn access_physical_lines(&mut self, first: Line, others: u64, write: bool, now: Time) -> Timeline {
        let mut whole = Timeline::default();
        for at in 0..=others {
            let line = (first + at).in_caches();
            let shared = &mut *self.shared;
            let served =
                shared.caches.access(self.id, line, write, now, Initiator::Demand, &mut shared.memory);
            self.wait_for_register(now, served);
            if at == 0 || served.done > whole.done {
                whole = timeline(now, now, served);
            }
        }
        whole
    }

    /// Residency and unfiltered traffic. The order of simulated time between cores is that of their batches.
    fn run_pages<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        space: SpaceId,
        batch: &Batch,
        from: usize,
        to: usize,
    ) -> Result<usize, OsError> {
        if from == 0 {
            let small = has_small_tables(self.shared, space);
            self.core.host_prefetch.weigh(self.shared.page_changes, BATCH_ACCESSES, small);
        }
        let instructions = batch.instructions[from..to].iter().map(|&count| u64::from(count)).sum();
        self.core.pipeline.dispatch(instructions);
        let (reached, ran) = if self.core.host_prefetch.is_active() {
            self.run_pages_as::<T, true>(own, space, batch, from, to)
        } else {
            self.run_pages_as::<T, false>(own, space, batch, from, to)
        };
        match ran {
            Ok(()) => Ok(reached),
            Err(Stop::Held) => {
                let rest = batch.instructions[reached..to].iter().map(|&count| u64::from(count)).sum();
                self.core.pipeline.take_back(rest);
                Ok(reached)
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Returns how far it came, and why not further.
    #[inline(always)]
    fn run_pages_as<T: Translation, const PREFETCH: bool>(
        &mut self,
        own: &mut Own<'_, T>,
        space: SpaceId,
        batch: &Batch,
        from: usize,
        to: usize,
    ) -> (usize, Result<(), Stop>) {
        let Columns { addr: addrs, size: sizes, kind: kinds, .. } = Columns::of(batch, from..to);
        // Pages used lately: they stay as they are while no fault and no trap comes between. Direct mapped.
        let mut recent = [NOTHING_RECENT; RECENT_PAGES];
        // The page of the access before, its tier, and whether it may be written as it is.
        let (mut known, mut tier, mut writable) = (NO_PAGE, 0, false);
        // Accesses to that tier that are not counted in memory yet, and the writes among them: both stay in registers.
        let (mut accesses, mut writes) = (0, 0);
        let mut ended = (to, Ok(()));
        for at in 0..addrs.len() {
            if PREFETCH {
                self.prefetch_for::<T>(space, addrs, at);
            }
            let addr = VirtAddr(addrs[at]);
            let write = kinds[at] == AccessKind::Write;
            let number = addr.page_number(PageSize::Base);
            if number != known || (write && !writable) {
                let slot = recent_page(number);
                let page = if recent[slot].number == number && (!write || recent[slot].writable) {
                    debug_assert!(self.knows(space, &recent[slot]), "{addr:#x}: its page changed meanwhile");
                    recent[slot]
                } else {
                    match self.find_page(own, &Request { space, addr, write, now: self.core.pipeline.now }) {
                        Ok((page, as_before)) => {
                            if !as_before {
                                recent = [NOTHING_RECENT; RECENT_PAGES];
                            }
                            // A page that stays watched traps again.
                            if page.readable {
                                recent[slot] = page;
                            }
                            page
                        }
                        Err(stop) => {
                            ended = (from + at, Err(stop));
                            break;
                        }
                    }
                };
                (known, writable) = (number, page.writable);
                let now_tier = usize::from(page.tier);
                if now_tier != tier {
                    self.count_unfiltered(tier, std::mem::take(&mut accesses), std::mem::take(&mut writes));
                    tier = now_tier;
                }
            }
            accesses += 1;
            writes += u64::from(write);
            let size = u64::from(sizes[at]);
            if addr.page_offset(PageSize::Base) + size > 4096 {
                let last = VirtAddr(addr.0.wrapping_add(size - 1));
                let request = Request { space, addr: last, write, now: self.core.pipeline.now };
                match self.find_page(own, &request) {
                    Ok((_, as_before)) if as_before => {}
                    Ok(_) => recent = [NOTHING_RECENT; RECENT_PAGES],
                    Err(stop) => {
                        // The part on the first page is made, and counted, again.
                        ended = (from + at, Err(stop));
                        break;
                    }
                }
            }
        }
        self.count_unfiltered(tier, accesses, writes);
        ended
    }

    /// Whether a page of an address space is as it was remembered. Under a hypervisor it may be writable meanwhile: the
    /// host's page holds other pages of the guest, and a store to one of them makes it dirty.
    fn knows(&self, space: SpaceId, page: &RecentPage) -> bool {
        let addr = VirtAddr::of_page(page.number, PageSize::Base);
        let found = self.shared.regions.find(self.shared.os.table(space), space, addr);
        // A region that is not remembered has others in its slot.
        found.is_none_or(|found| {
            let found = self.as_mapped_in_host(found);
            let tier = self.shared.memory.tier_of_line(found.frame.line()).0;
            let writable = match self.shared.hypervisor {
                None => found.writable == page.writable,
                Some(_) => found.writable >= page.writable,
            };
            found.readable && writable && tier == page.tier
        })
    }

    /// The base page of a request, and whether no other page changed for it: no fault and no trap was taken.
    #[inline(always)]
    fn find_page<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        request: &Request,
    ) -> Result<(RecentPage, bool), Stop> {
        let Request { space, addr, write, .. } = *request;
        let known = self.shared.regions.find(self.shared.os.table(space), space, addr);
        let (page, as_before) = match known.filter(|page| page.allows(write)) {
            Some(page) if self.shared.hypervisor.is_none() => (page, true),
            Some(page) => self.in_machine(own, request, page)?,
            None => (self.base_page(own, request)?, false),
        };
        self.shared.page_changes += 1;
        let tier = self.shared.memory.tier_of_line(page.frame.line()).0;
        let (readable, writable) = (page.readable, page.writable);
        let number = addr.page_number(PageSize::Base);
        Ok((RecentPage { number, tier, readable, writable }, as_before))
    }

    /// Counts accesses to a tier, `writes` of them stores.
    #[inline]
    fn count_unfiltered(&mut self, tier: usize, accesses: u64, writes: u64) {
        let [reads_so_far, writes_so_far] = &mut self.shared.unfiltered[tier];
        *reads_so_far += accesses - writes;
        *writes_so_far += writes;
    }
}
