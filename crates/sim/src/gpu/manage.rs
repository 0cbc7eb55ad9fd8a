//! A policy at work beside kernels: its calls and its orders in their time, and what a GPU does about pages that move.
//!
//! Sources: N. Agarwal, Paving the Path for Heterogeneous Memory Adoption in Production Systems (PhD, University of Michigan
//! 2017), chapter 4: a page that the GPU has touched takes a shootdown, for which the whole GPU stalls so many cycles; one
//! that it has never touched takes none, as the operating system's list of sharers tells. Chapter 2: the legacy model, which
//! copies all data into the GPU's memory before a kernel.
//!
//! Left open there, and chosen here: a shootdown drops the page's translation and its lines from all caches of the GPU,
//! whose written sectors go to memory, and makes the page one that the GPU has not touched. A warp that touches a page on
//! its way waits until it has arrived. Warps go on with what they have loaded while others stall.

use super::around::Around;
use super::coalesce::Transaction;
use super::line::{GpuLine, halves_of};
use super::paths::Paths;
use super::state::Engine;
use crate::cache::Outstanding;
use crate::coherence::Cause;
use crate::machine::{FULL, Machine};
use crate::memory::{Initiator, MemoryRequest};
use crate::observe::Objects;
use crate::os::OsError;
use crate::outcome::SimError;
use crate::tiering::{Change, Tiering, copy_line};
use terrace_model::{AddressRange, Frame, LINE_BYTES, PageId, PageRange, PageSize, SpaceId, TierId, Time};
use terrace_trace::{Advice, Agent, Event};

/// Lines that the copy before a kernel has under way: more than any machine here needs for its memories and its link to
/// be busy. Where the CPU's memory sends 379 GB/s over a link, and a line takes 0.5 us from there to its place, these are
/// 190 kB or 3000 lines.
const COPY_LINES: u32 = 4096;

impl Engine {
    /// The policy and its orders come as far as `until`.
    pub(super) fn manage(&mut self, until: Time) {
        while let Some(due) = self.policy_due().filter(|due| *due <= until) {
            let notified = self.tiering.as_ref().map(|tiering| tiering.state.notified_at());
            self.act(due.max(notified.unwrap_or_default()).min(until));
        }
    }

    pub(super) fn policy_due(&self) -> Option<Time> {
        self.tiering.as_ref().and_then(Tiering::due)
    }

    /// Does what is due next where nobody can go on before a page has arrived.
    pub(super) fn wait_for_page(&mut self) {
        match self.policy_due() {
            Some(due) => self.act(due.max(self.sms.now)),
            // No page is on its way: whoever waits may look again.
            None => drop(self.sms.wake(None, self.sms.now)),
        }
    }

    pub(super) fn act(&mut self, now: Time) {
        let Some(tiering) = &mut self.tiering else { return };
        self.machine.shared.os.now = now;
        self.machine.shared.stale_log = Some(Vec::new());
        tiering.act::<FULL>(&mut self.machine, now);
        let mut waited = Time::ZERO;
        for (page, size, at) in tiering.state.take_released() {
            waited += self.sms.wake(Some(PageRange::of(page, size)), at.max(now));
        }
        tiering.state.counters.wait_time += waited;
        for pages in self.machine.shared.stale_log.take().into_iter().flatten() {
            for addr in pages.range().base_pages() {
                self.shoot_down(PageId::of(pages.space, addr), now);
            }
        }
    }

    /// The entry of a page changed.
    fn shoot_down(&mut self, page: PageId, now: Time) {
        if !self.paths.forget_page(page) {
            self.managed.avoided += 1;
            return;
        }
        self.managed.shootdowns += 1;
        self.managed.stalled += self.shootdown;
        self.sms.stall(now, self.shootdown);
        let os = &self.machine.shared.os;
        if let Some(leaf) = os.table(page.space).find(page.addr()) {
            let frame = leaf.frame_of(page.addr());
            self.paths.forget_frame(&mut self.machine, frame, now);
        }
    }

    /// An event is about to change the address space: orders give up what it takes away.
    pub(super) fn before_change(&mut self, space: SpaceId, event: &Event) {
        let (range, change) = match event {
            Event::Unmap { range } | Event::Advise { range, advice: Advice::DontNeed } => {
                (range, Change::Unmap)
            }
            Event::Remap { from, .. } => (from, Change::Rename),
            _ => return,
        };
        let Some(tiering) = &mut self.tiering else { return };
        tiering.state.before_change(&mut self.machine, space, *range, &change, self.now);
        if let Event::Remap { to, .. } = event {
            tiering.state.before_change(&mut self.machine, space, *to, &Change::Unmap, self.now);
        }
    }

    /// Sets the agent that accesses memory from now on, as reported to policies.
    pub(super) fn set_agent(&mut self, agent: Agent) {
        if let Some(tiering) = &mut self.tiering {
            tiering.state.agent = match agent {
                Agent::Cpu => terrace_policy::Agent::Cpu(0),
                Agent::Gpu => terrace_policy::Agent::Gpu(0),
            };
        }
    }

    /// What comes before a kernel's first work-group. Returns when that can run.
    pub(super) fn prepare_kernel(&mut self, space: SpaceId, began: Time) -> Result<Time, SimError> {
        if let Some(objects) = self.populates.take() {
            self.populate(space, &objects)?;
            self.populates = Some(objects);
        }
        if !self.copies_at_launch {
            return Ok(began);
        }
        let done = self.copy_to_gpu(space, began);
        self.managed.copy_time += done - began;
        Ok(done)
    }

    /// Places the pages of data structures that nobody has touched, as if the host had filled them.
    fn populate(&mut self, space: SpaceId, objects: &Objects) -> Result<(), OsError> {
        for range in objects.ranges(space) {
            for page in range.base_pages() {
                let os = &mut self.machine.shared.os;
                if os.table(space).find(page).is_some() {
                    continue;
                }
                os.now = self.now;
                match &mut self.tiering {
                    Some(tiering) => drop(tiering.fault_of_host(os, space, page, self.now)?),
                    None => drop(os.fault(space, page, &[])?),
                }
                self.managed.populated += 1;
            }
        }
        self.machine.complete(Cause::Fault, None, self.now);
        Ok(())
    }

    /// Copies pages of other tiers to the first, while it has room, as fast as both memories and the link allow. Returns
    /// when the last line has arrived.
    fn copy_to_gpu(&mut self, space: SpaceId, began: Time) -> Time {
        let shared = &mut self.machine.shared;
        let all = AddressRange::ALL;
        let pages: Vec<_> = shared.os.table(space).pages_in(all).into_iter().collect();
        let mut under_way = Outstanding::new(COPY_LINES);
        let (mut done, mut without_room) = (began, 0);
        for (addr, size, pte) in pages {
            let from = pte.frame();
            if shared.os.tier_of(from) == TierId(0) || pte.is_held() || shared.os.is_shared(from) {
                continue;
            }
            let Some(to) = shared.os.take_block(TierId(0), size) else {
                without_room += size.base_pages();
                continue;
            };
            let lines = size.bytes() / LINE_BYTES;
            for line in 0..lines {
                let now = under_way.start(began);
                let arrived = copy_line(shared, Some(from.line() + line), to.line() + line, now);
                under_way.occupy(arrived);
                done = done.max(arrived);
            }
            shared.os.point_to(PageId::of(space, addr), to);
            shared.os.free_block(from);
            self.managed.copied += size.bytes();
        }
        self.managed.without_room = without_room;
        self.machine.complete(Cause::Migration, None, done);
        self.paths.flush_tlbs();
        done
    }
}

impl Paths {
    /// A page changed its place: its translations go. Returns whether the GPU had touched it.
    pub fn forget_page(&mut self, page: PageId) -> bool {
        let touched = self.touched.remove(&page);
        if touched {
            self.sms.iter_mut().for_each(|sm| sm.tlb.drop_page(page.addr().page_number(PageSize::Base)));
        }
        touched
    }

    /// All lines of a frame leave the GPU's caches; what was written of them goes to memory.
    pub fn forget_frame(&mut self, machine: &mut Machine, frame: Frame, now: Time) {
        for line in GpuLine::of_frame(frame) {
            for sm in &mut self.sms {
                sm.l1.remove(line);
            }
            let slice = &mut self.slices[machine.shared.memory.channel_of(line.half(0))];
            if let Some(dirty) = slice.cache.remove(line).filter(|dirty| *dirty != 0) {
                for half in halves_of(dirty) {
                    let request = MemoryRequest::of_gpu(line.half(half), now, Initiator::Writeback);
                    machine.shared.memory.write(request);
                }
            }
        }
    }

    /// The page that a warp has to wait for before these transactions, if one is on its way.
    pub fn waits_for(&self, around: &Around<'_>, transactions: &[Transaction]) -> Option<PageId> {
        let state = &around.tiering.as_ref()?.state;
        if !state.holds_pages() {
            return None;
        }
        let mut pages = transactions.iter().map(|one| PageId::of(around.space, one.addr));
        let table = around.machine.shared.os.table(around.space);
        pages.find(|page| {
            let size = table.find(page.addr()).map_or(PageSize::Base, |leaf| leaf.size);
            state.is_held(page.aligned(size))
        })
    }
}
