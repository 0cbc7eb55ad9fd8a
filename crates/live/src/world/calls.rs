//! What a policy may call.

use super::World;
use super::orders::Work;
use std::ops::Range;
use std::sync::Arc;
use terrace_model::{Bytes, PageSize, TierId, Time};
use terrace_policy::{
    Area, Capabilities, Clear, Cost, Exchange, HugeSample, MemorySystem, Move, MoveOptions, PageCount,
    PageId, PageView, PhysicalMemory, Resize, ScanHand, Scanned, Scope, SpaceId, Step, Ticket, TierTraffic,
    Topology, Watch,
};

/// No page number of a process reaches this.
const BEYOND: u64 = 1 << 52;

impl World {
    /// Shows pages of one space; answers whether to go on.
    fn scan_space(
        &mut self,
        id: SpaceId,
        range: Range<u64>,
        clear: Clear,
        visit: &mut dyn FnMut(&PageView) -> Option<Step>,
        stopped: &mut Option<PageId>,
    ) -> bool {
        let Some(space) = self.spaces.get_mut(&id) else { return true };
        let mut shown = 0;
        let go_on = space.visit_mut(range, |view, state| match visit(&view) {
            None => true,
            Some(step) => {
                if step == Step::Stop {
                    *stopped = Some(view.page);
                    return false;
                }
                shown += view.base_pages();
                if step == Step::Clear {
                    // What the hardware or the kernel holds was taken over with the last look.
                    state.set_accessed(state.is_accessed() && !clear.accessed);
                    state.set_dirty(state.is_dirty() && !clear.dirty);
                }
                true
            }
        });
        self.counters.scanned += shown;
        go_on
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
        let mut stopped = None;
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
        let ids: Vec<SpaceId> = self.spaces.keys().copied().collect();
        match scope {
            Scope::Pages(some) => {
                for page in some {
                    let Some(view) = self.page(*page) else { continue };
                    let range = view.page.vpn..view.page.vpn + 1;
                    if !self.scan_space(page.space, range, clear, &mut show, &mut stopped) {
                        break;
                    }
                }
            }
            Scope::Range(range) => {
                let from = if range.contains(hand.next) { hand.next.vpn } else { range.first.vpn };
                let space = range.first.space;
                for part in [from..range.end(), range.first.vpn..from] {
                    if !part.is_empty() && !self.scan_space(space, part, clear, &mut show, &mut stopped) {
                        break;
                    }
                }
                hand.next = stopped.unwrap_or(PageId { space, vpn: from });
            }
            Scope::All | Scope::Tier(_) => {
                let start = hand.next;
                let after = ids.iter().filter(|id| **id > start.space).map(|id| (*id, 0..BEYOND));
                let before = ids.iter().filter(|id| **id < start.space).map(|id| (*id, 0..BEYOND));
                let lap: Vec<(SpaceId, Range<u64>)> = std::iter::once((start.space, start.vpn..BEYOND))
                    .chain(after)
                    .chain(before)
                    .chain([(start.space, 0..start.vpn)])
                    .collect();
                for (id, range) in lap {
                    if !range.is_empty() && !self.scan_space(id, range, clear, &mut show, &mut stopped) {
                        break;
                    }
                }
                hand.next = stopped.unwrap_or(start);
            }
        }
        let time = Time::from_nanos((self.kernel.now() - started).as_nanos() as u64);
        let cost = Cost { time, ..Cost::default() };
        self.spent += cost;
        Scanned { pages, lap: stopped.is_none(), cost }
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

    fn resize(&mut self, pages: &[Resize]) -> Ticket {
        let how = MoveOptions { in_flight: None, ..MoveOptions::default() };
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
