//! What a policy may call.

use super::World;
use super::orders::Work;
use crate::targets::is_gone;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use terrace_model::{Bytes, PageSize, TierId, Time};
use terrace_placement::structures::Structure;
use terrace_policy::{
    Area, Block, Capabilities, Clear, CopyBy, Cost, Exchange, HugeSample, MemorySystem, Move, MoveOptions,
    PageCount, PageId, PageRange, PageView, PhysicalMemory, Resize, ScanHand, Scanned, Scope, SpaceId, Step,
    Ticket, TierTraffic, Topology, Watch,
};

/// The base page.
const BASE: u64 = PageSize::Base.bytes();

impl World {
    /// Shows the pages of one space that begin in a range. Returns the page at which the visitor stopped.
    fn scan_space(
        &mut self,
        id: SpaceId,
        range: Range<u64>,
        clear: Clear,
        visit: &mut dyn FnMut(&PageView) -> Option<Step>,
    ) -> Option<PageId> {
        let space = self.spaces.get_mut(&id)?;
        let (mut shown, mut stopped) = (0, None);
        space.visit_mut(range, |view, state| match visit(&view) {
            None => true,
            Some(step) => {
                if step == Step::Stop {
                    stopped = Some(view.page);
                    return false;
                }
                shown += view.base_pages();
                if step == Step::Clear {
                    // What the hardware or the kernel holds was taken over with the last look.
                    if clear.accessed {
                        state.clear_accessed();
                    }
                    state.set_dirty(state.is_dirty() && !clear.dirty);
                }
                true
            }
        });
        self.counters.scanned += shown;
        stopped
    }

    fn take(&mut self, work: impl Iterator<Item = Work>, how: MoveOptions) -> Ticket {
        let work: Arc<[Work]> = work.collect();
        self.set_in_flight(&work, true);
        self.orders.take(work, how)
    }
}

impl MemorySystem for World {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn traffic(&mut self) -> &[TierTraffic] {
        &self.traffic
    }

    fn spent(&self) -> Cost {
        self.spent
    }

    fn scan(
        &mut self,
        scope: Scope<'_>,
        hand: &mut ScanHand,
        clear: Clear,
        visit: &mut dyn FnMut(&PageView) -> Step,
    ) -> Scanned {
        let started = self.kernel.now();
        let mut pages = 0;
        let mut show = |view: &PageView| {
            let wanted = match scope {
                Scope::Tier(tier) => view.tier == tier,
                _ => true,
            };
            wanted.then(|| {
                let step = visit(view);
                pages += u64::from(step != Step::Stop);
                step
            })
        };
        let spaces: Vec<SpaceId> = self.spaces.keys().copied().collect();
        let find = |world: &mut World, page| Some(world.page(page)?.page);
        let lap = hand.lap(self, scope, &spaces, find, |world, space, range| {
            world.scan_space(space, range, clear, &mut show)
        });
        let time = Time::from_nanos((self.kernel.now() - started).as_nanos() as u64);
        let cost = Cost { time, ..Cost::default() };
        self.spent += cost;
        Scanned { pages, lap, cost }
    }

    fn page(&mut self, page: PageId) -> Option<PageView> {
        self.spaces.get(&page.space)?.view(page.vpn)
    }

    fn areas(&mut self, space: Option<SpaceId>, visit: &mut dyn FnMut(&Area)) {
        for of in self.spaces.values().filter(|of| space.is_none_or(|space| space == of.id)) {
            of.mappings.iter().for_each(|mapping| visit(&of.area(mapping)));
        }
    }

    fn area(&mut self, page: PageId) -> Option<Area> {
        let space = self.spaces.get(&page.space)?;
        space.mapping(page.vpn).map(|mapping| space.area(mapping))
    }

    fn blocks(&mut self, visit: &mut dyn FnMut(Block)) {
        let Some(table) = self.structures else { return };
        let spaces: BTreeMap<u32, SpaceId> =
            self.spaces.values().map(|space| (space.process.pid, space.id)).collect();
        let (mut ranges, mut strangers) = (Vec::new(), BTreeSet::new());
        table.each(&mut |Structure { pid, start, bytes }| match spaces.get(&pid) {
            Some(space) => {
                // Pages that are all its own.
                let vpn = start.div_ceil(BASE);
                let pages = (start.saturating_add(bytes) / BASE).saturating_sub(vpn);
                ranges.push(PageRange::new(PageId { space: *space, vpn }, pages));
            }
            None => _ = strangers.insert(pid),
        });
        // Entries of processes that have ended give room to others.
        let stat = |pid: &u32| self.kernel.read(Path::new(&format!("/proc/{pid}/stat")));
        strangers.retain(|pid| stat(pid).is_err_and(|error| is_gone(&error)));
        if !strangers.is_empty() {
            table.retain(&mut |pid| !strangers.contains(&pid));
        }
        ranges.sort_unstable_by_key(|range| range.first);
        for range in ranges.into_iter().filter(|range| range.pages > 0) {
            visit(Block { parts: vec![range], site: None, accesses: None });
        }
    }

    fn watch(&mut self, pages: &[PageId], how: Watch) {
        let mapped = pages.iter().filter_map(|page| self.page(*page).map(|view| (view.page, view.size)));
        let mapped: Vec<(PageId, PageSize)> = mapped.collect();
        self.watches.set(&mapped, how, self.now);
    }

    fn counts(&mut self, visit: &mut dyn FnMut(PageCount)) {
        self.watches.counts(self.now, visit);
    }

    fn affordable_samples(&self, sample: HugeSample) -> Option<f64> {
        self.costs.affordable(sample, self.sampling.interval)
    }

    fn sample_accesses(&mut self, one_in: u64) {
        self.samples_one_in = Some(one_in);
    }

    fn wake_below(&mut self, tier: TierId, free: Bytes) {
        self.low_water[tier.index()] = (free.0, false);
        self.account();
    }

    fn migrate(&mut self, moves: &[Move], how: MoveOptions) -> Ticket {
        self.take(moves.iter().copied().map(Work::Move), how)
    }

    fn exchange(&mut self, pairs: &[Exchange], how: MoveOptions) -> Ticket {
        self.take(pairs.iter().copied().map(Work::Exchange), how)
    }

    fn resize_by(&mut self, pages: &[Resize], copy: CopyBy) -> Ticket {
        let how = MoveOptions { in_flight: None, copy, ..MoveOptions::default() };
        self.take(pages.iter().copied().map(Work::Resize), how)
    }

    fn zero_pages(&mut self, _: PageId) -> Option<u64> {
        None
    }

    fn drop_zeros(&mut self, pages: &[PageId]) -> Ticket {
        self.take(pages.iter().copied().map(Work::DropZeros), MoveOptions::default())
    }

    fn physical(&mut self) -> Option<&mut dyn PhysicalMemory> {
        None
    }
}
