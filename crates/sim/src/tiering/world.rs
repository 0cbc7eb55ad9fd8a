//! The simulated machine as a [`MemorySystem`].

use super::orders::{Item, Order};
use super::processors::POLICY;
use super::relocate::looking_time;
use super::shootdown::complete;
use super::watched::Watched;
use super::{LowWater, State, area_of, pages_of};
use crate::coherence::Cause;
use crate::machine::{Machine, TierLines};
use crate::os::{AddressSpace, Pte};
use std::num::NonZeroU32;
use terrace_model::{AddressRange, Bytes, LINE_BYTES, PageSize, TierId, Time, VirtAddr};
use terrace_policy::{
    Area, Block, Capabilities, Capability, Clear, CopyBy, Cost, Exchange, Initiator, MemorySystem, Move,
    MoveOptions, PageCount, PageId, PageView, PhysicalMemory, Resize, ScanHand, Scanned, Scope, SpaceId,
    Step, Ticket, TierTraffic, Topology, Watch,
};

/// What a policy works on while it is called.
pub(super) struct World<'a> {
    pub machine: &'a mut Machine,
    pub state: &'a mut State,
    /// When the call began. Stores of the call reach memory at this time, which all cores have come to. Memory serves
    /// requests in the order in which they are made, so a store at a later time would hold up what the cores ask for before
    /// that time.
    pub began: Time,
    /// The clock of the policy's processor.
    pub now: Time,
}

/// What a scan did so far.
struct Progress {
    scanned: Scanned,
    entries: u64,
    /// Pages whose translations are to be dropped.
    flush: Vec<(PageId, PageSize)>,
}

/// Whether stores are permitted, by the area that the last page lay in: scans go through areas in order.
struct Permissions {
    space: SpaceId,
    range: std::ops::Range<VirtAddr>,
    writable: bool,
}

impl Permissions {
    fn unknown() -> Permissions {
        Permissions { space: SpaceId(u32::MAX), range: VirtAddr(0)..VirtAddr(0), writable: false }
    }

    fn of(&mut self, areas: &AddressSpace, space: SpaceId, addr: VirtAddr) -> bool {
        if self.space != space || !self.range.contains(&addr) {
            let found = areas.find(addr);
            (self.range, self.writable) = found
                .map_or((addr..addr + 1, true), |(start, area)| (start..area.end, area.protection.write));
            self.space = space;
        }
        self.writable
    }
}

impl World<'_> {
    /// Shows the pages of `space` that begin in `range`; returns where a visitor stopped.
    fn scan_range(
        &mut self,
        space: SpaceId,
        range: AddressRange,
        tier: Option<TierId>,
        clear: Clear,
        progress: &mut Progress,
        visit: &mut dyn FnMut(&PageView) -> Step,
    ) -> Option<PageId> {
        if !self.state.guest.is_live(self.machine.shared.system(self.state.system), space) {
            return None;
        }
        let mut permissions = Permissions::unknown();
        let (mut stopped, guest) = (None, self.state.guest.clone());
        self.machine.shared.system_mut(self.state.system).visit(space, range, |around, addr, size, pte| {
            progress.entries += 1;
            let holder = guest.relative(around.tier_of(pte.frame()));
            if tier.is_some_and(|tier| holder != tier) {
                return true;
            }
            let writable = permissions.of(around.areas, space, addr);
            let page = view(holder, space, addr, size, *pte, writable);
            match visit(&page) {
                Step::Stop => {
                    stopped = Some(page.page);
                    return false;
                }
                Step::Keep => {}
                Step::Clear => progress.clear(clear, &page, pte),
            }
            progress.scanned.pages += 1;
            true
        });
        stopped
    }

    /// What a scan leaves to be done at its end.
    fn finish(&mut self, mut progress: Progress) -> Scanned {
        for (page, size) in &progress.flush {
            self.machine.shared.system_mut(self.state.system).changes.make_stale(
                page.space,
                page.addr(),
                *size,
            );
        }
        let (cost, waits) = complete(self.machine, self.state, Cause::Watch, self.began);
        progress.scanned.cost += cost;
        let looked = self.state.costs.scan_entry.times(progress.entries);
        progress.scanned.cost.time += looked;
        self.works(looked + waits, progress.scanned.cost);
        self.state.counters.scanned_pages += progress.scanned.pages;
        self.state.counters.scanned_entries += progress.entries;
        progress.scanned
    }

    /// The policy's processor is busy for `span`.
    pub(super) fn works(&mut self, span: Time, cost: Cost) {
        self.state.occupy(self.machine, POLICY, self.now, span);
        self.now += span;
        self.state.spent += cost;
        self.state.counters.policy_time += span;
    }

    pub(super) fn order(&mut self, items: Vec<Item>, options: MoveOptions) -> Ticket {
        let ticket = Ticket(self.state.next_ticket);
        self.state.next_ticket += 1;
        if !items.is_empty() {
            let order = Order::new(ticket, items.into(), options, self.now);
            self.state.orders.insert((order.next(), ticket), order);
        }
        ticket
    }

    /// Sets what accesses to a page are trapped.
    fn set_traps(&mut self, page: PageId, accesses: bool, stores: bool) -> Option<(PageId, PageSize)> {
        let os = self.machine.shared.system_mut(self.state.system);
        let leaf = self.state.guest.leaf_of(os, page)?;
        os.set_traps(page.space, &leaf, page.addr(), accesses, stores);
        Some((page.aligned(leaf.size), leaf.size))
    }
}

/// A page as policies see it.
fn view(tier: TierId, space: SpaceId, addr: VirtAddr, size: PageSize, pte: Pte, writable: bool) -> PageView {
    PageView {
        page: PageId::of(space, addr),
        size,
        tier,
        accessed: pte.is_accessed(),
        dirty: pte.is_dirty(),
        writable: writable && !pte.is_copy_on_write(),
        in_flight: pte.is_held(),
        frame: Some(pte.frame()),
    }
}

impl Progress {
    fn new() -> Progress {
        let scanned = Scanned { lap: true, ..Scanned::default() };
        Progress { scanned, entries: 0, flush: Vec::new() }
    }

    fn clear(&mut self, clear: Clear, page: &PageView, pte: &mut Pte) {
        let cleared = pte.cleared(clear.accessed, clear.dirty);
        if cleared != *pte {
            *pte = cleared;
            if clear.flush {
                self.flush.push((page.page, page.size));
            }
        }
    }
}

impl MemorySystem for World<'_> {
    fn capabilities(&self) -> &Capabilities {
        &self.state.capabilities
    }

    fn topology(&self) -> &Topology {
        &self.state.topology
    }

    fn traffic(&mut self) -> &[TierTraffic] {
        let shared = &self.machine.shared;
        let waits: Vec<(u64, Time)> = shared.memory.waits().collect();
        let lines: Vec<&TierLines> = shared.memory.traffic().map(|(_, lines)| lines).collect();
        for (at, tier) in self.state.traffic.iter_mut().enumerate() {
            let behind =
                shared.tier_behind(self.state.system, self.state.guest.in_os(TierId(at as u8))).index();
            let ((reads, read_time), lines) = (waits[behind], lines[behind]);
            tier.reads = reads;
            tier.read_nanos = read_time.as_nanos() as u64;
            tier.read = by_initiator(&lines.reads);
            tier.written = by_initiator(&lines.writes);
        }
        &self.state.traffic
    }

    fn spent(&self) -> Cost {
        self.state.spent
    }

    fn scan(
        &mut self,
        scope: Scope<'_>,
        hand: &mut ScanHand,
        clear: Clear,
        visit: &mut dyn FnMut(&PageView) -> Step,
    ) -> Scanned {
        let mut progress = Progress::new();
        let tier = match scope {
            Scope::Tier(tier) => Some(tier),
            _ => None,
        };
        let os = self.machine.shared.system(self.state.system);
        let spaces: Vec<SpaceId> = self.state.guest.live_spaces(os).collect();
        let find = |world: &mut Self, page| Some(world.page(page)?.page);
        let lap = hand.lap(self, scope, &spaces, find, |world, space, pages| {
            let range = AddressRange::new(pages.start << 12, (pages.end - pages.start) << 12);
            world.scan_range(space, range, tier, clear, &mut progress, visit)
        });
        progress.scanned.lap = lap;
        self.finish(progress)
    }

    fn page(&mut self, page: PageId) -> Option<PageView> {
        let space = page.space;
        let os = self.machine.shared.system(self.state.system);
        let leaf = self.state.guest.leaf_of(os, page)?;
        let first = page.aligned(leaf.size).addr();
        let writable = Permissions::unknown().of(os.areas(space), space, first);
        Some(view(
            self.state.guest.tier_of(os, leaf.pte.frame()),
            space,
            first,
            leaf.size,
            leaf.pte,
            writable,
        ))
    }

    fn areas(&mut self, space: Option<SpaceId>, visit: &mut dyn FnMut(&Area)) {
        let os = self.machine.shared.system(self.state.system);
        for of in self.state.guest.live_spaces(os).filter(|of| space.is_none_or(|space| space == *of)) {
            for (start, area) in os.areas(of).iter() {
                visit(&area_of(of, start, &area));
            }
        }
    }

    fn area(&mut self, page: PageId) -> Option<Area> {
        let os = self.machine.shared.system(self.state.system);
        let space = page.space;
        let found = self.state.guest.is_live(os, space).then(|| os.areas(space).find(page.addr())).flatten();
        let object = self.state.structure_of(page);
        found.map(|(start, area)| Area { object, ..area_of(space, start, &area) })
    }

    fn blocks(&mut self, visit: &mut dyn FnMut(Block)) {
        let counted = self.state.capabilities.has(Capability::BlockCounts);
        if !counted {
            let known = self.state.objects.iter().flat_map(|objects| objects.all());
            return known.for_each(|(space, range, site)| {
                visit(Block { parts: vec![pages_of(space, range)], site: Some(site), accesses: None });
            });
        }
        for block in self.machine.scheme.kernel().take_block_counts() {
            let parts: Vec<_> = block.parts.iter().map(|range| pages_of(block.space, *range)).collect();
            let site = parts.first().and_then(|part| self.state.structure_of(part.first)).map(|one| one.site);
            visit(Block { parts, site, accesses: Some(block.misses) });
        }
    }

    fn watch(&mut self, pages: &[PageId], how: Watch) {
        let (needed, accesses, stores) = match how {
            Watch::Off => (None, false, false),
            Watch::Hint => (Some(Capability::HintFaults), true, false),
            Watch::HintStore => (Some(Capability::WriteFaults), false, true),
            Watch::Count => (Some(Capability::CountedFaults), true, false),
        };
        if needed.is_some_and(|needed| !self.state.capabilities.has(needed)) {
            return;
        }
        for page in pages {
            let Some((first, size)) = self.set_traps(*page, accesses, stores) else { continue };
            if how == Watch::Off {
                self.state.watched.remove(&first);
            } else {
                self.state.watched.insert(first, Watched { how, since: self.now, count: 0 });
                // Also where it was trapped already: the next access has to meet the trap. TLBs may keep what they hold of
                // pages that are watched no longer.
                self.machine.shared.system_mut(self.state.system).changes.make_stale(
                    first.space,
                    first.addr(),
                    size,
                );
            }
        }
        let (mut cost, waits) = complete(self.machine, self.state, Cause::Watch, self.began);
        let looked = self.state.costs.scan_entry.times(pages.len() as u64);
        cost.time += looked;
        self.works(looked + waits, cost);
    }

    fn counts(&mut self, visit: &mut dyn FnMut(PageCount)) {
        for (page, watched) in self.state.watched.iter_mut().filter(|(_, w)| w.how == Watch::Count) {
            let accesses = std::mem::take(&mut watched.count);
            visit(PageCount { page: *page, accesses, saturated: false });
        }
    }

    fn sample_accesses(&mut self, one_in: u64) {
        let offered = self.state.capabilities.has(Capability::of_sampling(one_in));
        self.state.sample_one_in = if offered { one_in } else { 0 };
        self.state.until_sample = one_in;
        let shared = &mut self.machine.shared;
        // Under a hypervisor there may be another policy that samples.
        let other = shared.sampling && shared.hypervisor.is_some();
        shared.sampling = self.state.sample_one_in > 0 || shared.observers.want_accesses() || other;
    }

    fn wake_below(&mut self, tier: TierId, free: Bytes) {
        self.state.low_water[tier.index()] = LowWater { below: free, notified: false };
        self.state.account(self.machine.shared.system(self.state.system));
    }

    fn migrate(&mut self, moves: &[Move], how: MoveOptions) -> Ticket {
        self.order(moves.iter().map(|one| Item::Move(*one)).collect(), how)
    }

    fn exchange(&mut self, pairs: &[Exchange], how: MoveOptions) -> Ticket {
        self.order(pairs.iter().map(|pair| Item::Exchange(*pair)).collect(), how)
    }

    fn resize_by(&mut self, pages: &[Resize], copy: CopyBy) -> Ticket {
        // As khugepaged does, one page after the other.
        let one = MoveOptions { in_flight: NonZeroU32::new(1), copy, ..MoveOptions::default() };
        self.order(pages.iter().map(|page| Item::Resize(*page)).collect(), one)
    }

    fn zero_pages(&mut self, page: PageId) -> Option<u64> {
        let view = self.page(page)?;
        let os = self.machine.shared.system(self.state.system);
        let zeros = os.zero_pages(page.space, view.page.addr(), view.size)?;
        let looked = looking_time(self.state, view.base_pages(), zeros);
        self.works(looked, Cost { time: looked, ..Cost::default() });
        Some(zeros)
    }

    fn drop_zeros(&mut self, pages: &[PageId]) -> Ticket {
        self.order(pages.iter().map(|page| Item::DropZeros(*page)).collect(), MoveOptions::default())
    }

    fn resume(&mut self, page: PageId) {
        let now = self.now;
        self.state.resume(page, now);
    }

    fn physical(&mut self) -> Option<&mut dyn PhysicalMemory> {
        Some(self)
    }
}

/// Lines by who asked for them as the bytes that policies see.
fn by_initiator(lines: &[u64; Initiator::COUNT]) -> [u64; Initiator::COUNT] {
    let mut bytes = [0; Initiator::COUNT];
    for by in Initiator::ALL {
        // What the kernel touches for a system call is the program's demand.
        let seen = if by == Initiator::Kernel { Initiator::Demand } else { by };
        bytes[seen as usize] += lines[by as usize] * LINE_BYTES;
    }
    bytes
}
