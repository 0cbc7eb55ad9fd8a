//! The test double as a [`MemorySystem`].

use super::InMemory;
use super::orders::Item;
use std::collections::BTreeSet;
use std::ops::Range;
use terrace_model::{Bytes, Frame, TierId, Time};
use terrace_seam::{
    Area, Block, Capabilities, Capability, Clear, CopyBy, Cost, Exchange, HugeSample, MemorySystem, Move,
    MoveOptions, PageCount, PageId, PageRange, PageView, PhysicalMemory, Resize, ScanHand, Scanned, Scope,
    SpaceId, Step, Ticket, TierTraffic, Topology, Watch,
};

/// What it costs to look at one page.
const LOOK: Time = Time::from_nanos(20);

impl InMemory {
    fn view(&self, first: PageId) -> PageView {
        let page = &self.pages[&first];
        PageView {
            page: first,
            size: page.size,
            tier: page.tier,
            accessed: page.accessed && self.capabilities.has(Capability::AccessedBits),
            dirty: page.dirty && self.capabilities.has(Capability::DirtyBits),
            writable: page.writable,
            in_flight: page.held_by.is_some(),
            frame: self.capabilities.has(Capability::Frames).then_some(Frame(page.frame)),
        }
    }

    /// Shows one page; false: the visitor ends the scan.
    fn show(
        &mut self,
        first: PageId,
        clear: Clear,
        scanned: &mut Scanned,
        visit: &mut dyn FnMut(&PageView) -> Step,
    ) -> bool {
        match visit(&self.view(first)) {
            Step::Stop => return false,
            Step::Keep => {}
            Step::Clear => {
                if let Some(page) = self.pages.get_mut(&first) {
                    page.accessed &= !clear.accessed;
                    page.dirty &= !clear.dirty;
                }
                if clear.flush && self.capabilities.has(Capability::FlushOnClear) {
                    self.flush(first);
                    scanned.cost.shootdowns += 1;
                }
            }
        }
        scanned.pages += 1;
        scanned.cost.time += LOOK;
        true
    }
}

impl MemorySystem for InMemory {
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
        let wanted = match scope {
            Scope::Tier(tier) => Some(tier),
            _ => None,
        };
        let spaces: BTreeSet<SpaceId> = self.pages.keys().map(|page| page.space).collect();
        let spaces: Vec<SpaceId> = spaces.into_iter().collect();
        let mut scanned = Scanned::default();
        let show = |world: &mut InMemory, space, range: Range<u64>| {
            let [first, end] = [range.start, range.end].map(|vpn| PageId { space, vpn });
            let pages = world.pages.range(first..end);
            let in_scope = pages.filter(|(_, page)| wanted.is_none_or(|tier| page.tier == tier));
            let names: Vec<PageId> = in_scope.map(|(name, _)| *name).collect();
            names.into_iter().find(|name| !world.show(*name, clear, &mut scanned, visit))
        };
        let lap = hand.lap(self, scope, &spaces, |world, page| world.find(page), show);
        scanned.lap = lap;
        self.spent += scanned.cost;
        scanned
    }

    fn page(&mut self, page: PageId) -> Option<PageView> {
        self.find(page).map(|first| self.view(first))
    }

    fn areas(&mut self, space: Option<SpaceId>, visit: &mut dyn FnMut(&Area)) {
        for area in self.areas.values().filter(|area| space.is_none_or(|s| s == area.range.first.space)) {
            visit(area);
        }
    }

    fn area(&mut self, page: PageId) -> Option<Area> {
        self.area_of(page).copied()
    }

    fn blocks(&mut self, visit: &mut dyn FnMut(Block)) {
        let counted = self.capabilities.has(Capability::BlockCounts);
        let mut counts = std::mem::take(&mut self.block_counts);
        for area in self.areas.values().filter(|area| counted || area.object.is_some()) {
            let range = area.object.map_or(area.range, |object| object.range);
            let accesses = counted.then(|| counts.remove(&range.first).unwrap_or(0));
            visit(Block { parts: vec![range], site: area.object.map(|object| object.site), accesses });
        }
    }

    fn watch(&mut self, pages: &[PageId], how: Watch) {
        let offered = match how {
            Watch::Off => true,
            Watch::Hint => self.capabilities.has(Capability::HintFaults),
            Watch::HintStore => self.capabilities.has(Capability::WriteFaults),
            Watch::Count => self.capabilities.has(Capability::CountedFaults),
        };
        for name in pages {
            if !offered {
                return;
            }
            let Some(first) = self.find(*name) else { continue };
            self.flush(first);
            let now = self.now;
            if let Some(page) = self.pages.get_mut(&first) {
                page.watch = how;
                page.watched_since = now;
                page.counted = 0;
            }
            self.spent += Cost { shootdowns: 1, time: LOOK, ..Cost::default() };
        }
    }

    fn counts(&mut self, visit: &mut dyn FnMut(PageCount)) {
        for (name, page) in self.pages.iter_mut().filter(|(_, page)| page.watch == Watch::Count) {
            let is_hidden = self.hidden.contains(name);
            let accesses = if is_hidden { 0 } else { std::mem::take(&mut page.counted) };
            visit(PageCount { page: *name, accesses, saturated: is_hidden });
        }
    }

    fn affordable_samples(&self, _: HugeSample) -> Option<f64> {
        self.affordable
    }

    fn sample_accesses(&mut self, one_in: u64) {
        let offered = self.capabilities.has(Capability::of_sampling(one_in));
        self.sample_one_in = if offered { one_in } else { 0 };
        self.until_sample = one_in;
    }

    fn wake_below(&mut self, tier: TierId, free: Bytes) {
        self.watermarks[tier.index()] = (free, false);
        self.account();
    }

    fn migrate(&mut self, moves: &[Move], how: MoveOptions) -> Ticket {
        self.order(moves.iter().map(|one| Item::Move(*one)).collect(), how)
    }

    fn exchange(&mut self, pairs: &[Exchange], how: MoveOptions) -> Ticket {
        self.order(pairs.iter().map(|pair| Item::Exchange(*pair)).collect(), how)
    }

    fn resize_by(&mut self, pages: &[Resize], copy: CopyBy) -> Ticket {
        let all_at_once = MoveOptions { in_flight: None, copy, ..MoveOptions::default() };
        self.order(pages.iter().map(|page| Item::Resize(*page)).collect(), all_at_once)
    }

    fn zero_pages(&mut self, page: PageId) -> Option<u64> {
        let offered = self.capabilities.has(Capability::ZeroPages);
        let first = self.find(page).filter(|_| offered)?;
        let range = PageRange::of(first, self.pages[&first].size);
        self.spent.time += LOOK.times(range.pages);
        Some(range.pages - self.stored_in(range))
    }

    fn drop_zeros(&mut self, pages: &[PageId]) -> Ticket {
        self.order(pages.iter().map(|page| Item::DropZeros(*page)).collect(), MoveOptions::default())
    }

    fn resume(&mut self, page: PageId) {
        self.stalled.remove(&page);
    }

    fn physical(&mut self) -> Option<&mut dyn PhysicalMemory> {
        if self.capabilities.has(Capability::Frames) { Some(self) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_seam::Placement;

    fn world() -> InMemory {
        let mut world = InMemory::new(&[("fast", Bytes::mib(4)), ("slow", Bytes::mib(8))]);
        world.map_anonymous(0, 0, 16);
        world.map_anonymous(1, 0, 4);
        for (space, vpn) in (0..8).map(|vpn| (0, vpn)).chain([(1, 0), (1, 1)]) {
            let fault = world.touch(PageId::new(space, vpn), false).unwrap();
            world.fault_in(&fault, &Placement::tier(TierId(u8::from(vpn % 2 == 1))));
        }
        world
    }

    fn visited(world: &mut InMemory, hand: &mut ScanHand, stop_after: usize) -> Vec<(u32, u64)> {
        let mut seen = Vec::new();
        world.scan(Scope::Tier(TierId(1)), hand, Clear::BOTH, &mut |view| {
            if seen.len() == stop_after {
                return Step::Stop;
            }
            seen.push((view.page.space.0, view.page.vpn));
            Step::Keep
        });
        seen
    }

    #[test]
    fn the_hand_goes_round_over_all_spaces() {
        let mut world = world();
        let mut hand = ScanHand::default();
        assert_eq!(visited(&mut world, &mut hand, 3), [(0, 1), (0, 3), (0, 5)]);
        assert_eq!(visited(&mut world, &mut hand, 3), [(0, 7), (1, 1), (0, 1)]);
        assert_eq!(hand.next, PageId::new(0, 3));
        assert_eq!(visited(&mut world, &mut hand, 99), [(0, 3), (0, 5), (0, 7), (1, 1), (0, 1)]);
        assert_eq!(hand.next, PageId::new(0, 3), "a full lap ends where it began");
    }

    #[test]
    fn a_cached_translation_sets_no_bits_until_it_is_flushed() {
        let mut world = world().with_tlb(8);
        let page = PageId::new(0, 0);
        let look = |world: &mut InMemory| {
            let view = world.page(page).unwrap();
            (view.accessed, view.dirty)
        };
        let clear = |world: &mut InMemory, flush: bool| {
            let range = Scope::Range(PageRange::new(page, 1));
            world.scan(range, &mut ScanHand::default(), Clear::BOTH.flushed(flush), &mut |_| Step::Clear);
        };
        assert!(world.touch(page, false).is_none());
        assert_eq!(look(&mut world), (true, false));
        assert!(world.touch(page, true).is_none());
        assert_eq!(
            look(&mut world),
            (true, true),
            "the first store walks although the translation is cached"
        );
        clear(&mut world, false);
        assert!(world.touch(page, true).is_none());
        assert_eq!(look(&mut world), (false, false), "the stale translation hides the access");
        clear(&mut world, true);
        assert!(world.touch(page, true).is_none());
        assert_eq!(look(&mut world), (true, true));
    }

    #[test]
    fn counts_are_tlb_misses() {
        let mut world = world().with_tlb(1);
        let (one, other) = (PageId::new(0, 0), PageId::new(0, 2));
        world.watch(&[one], Watch::Count);
        for page in [one, one, one, other, one, other, one, one] {
            assert!(world.touch(page, false).is_none());
        }
        let mut counts = Vec::new();
        world.counts(&mut |count| counts.push((count.page, count.accesses)));
        assert_eq!(counts, [(one, 3)]);
        world.counts(&mut |count| assert_eq!(count.accesses, 0));
    }
}
