//! Page faults: where what is touched first goes, and faults that wait for a block.

use super::*;

impl InMemory {
    /// Lets a fault wait where its placement says so and there is no block for its first wish; returns the page that it
    /// waits for. Where the placement asks for a signal instead, the fault goes on and the signal is sent.
    pub(crate) fn stall(&mut self, fault: &Fault, placement: &Placement) -> Option<PageId> {
        let wish = placement.wishes().first().filter(|_| placement.waits() || placement.notifies())?;
        let size =
            wish.size.filter(|size| *size > PageSize::Base && *size <= self.capabilities.largest_page)?;
        let (page, tier) = (fault.page.aligned(size), wish.tier);
        let range = PageRange::of(page, size);
        let fits = fault.area.range.covers(range) && self.is_empty(range);
        if !fits || self.frames.get(tier.index())?.find(size).is_some() {
            return None;
        }
        if !placement.waits() {
            self.signals.push(Signal::Refused { page, size, tier });
            return None;
        }
        self.stalled.insert(page);
        self.signals.push(Signal::Stalled { page, size, tier });
        Some(page)
    }

    /// Whether a fault still waits.
    pub(crate) fn is_stalled(&self, page: PageId) -> bool {
        self.stalled.contains(&page)
    }

    /// Brings in the page of a fault as the policy wishes, else in the first tier with room.
    ///
    /// # Panics
    /// All tiers are full: the test asks for more than there is.
    pub fn fault_in(&mut self, fault: &Fault, placement: &Placement) {
        let default = [self.largest_default];
        for wish in placement.wishes() {
            let sizes = wish.size.map_or(default, |size| [size]);
            if sizes.into_iter().any(|size| self.bring_in(fault, wish.tier, size))
                || (wish.size.is_none() && self.bring_in(fault, wish.tier, PageSize::Base))
            {
                return;
            }
        }
        let fallback = [self.largest_default, PageSize::Base];
        let tiers: Vec<TierId> = self.topology.ids().collect();
        let found =
            tiers.iter().any(|tier| fallback.into_iter().any(|size| self.bring_in(fault, *tier, size)));
        assert!(found, "all tiers are full at {:?}", fault.page);
    }

    pub(super) fn bring_in(&mut self, fault: &Fault, tier: TierId, size: PageSize) -> bool {
        let first = fault.page.aligned(size);
        let range = PageRange::of(first, size);
        let fits = fault.area.range.covers(range) && size <= self.capabilities.largest_page;
        if !fits || !self.is_empty(range) || tier.index() >= self.frames.len() {
            return false;
        }
        let Some(frame) = self.frames[tier.index()].find(size) else { return false };
        let zeroed = self.frames[tier.index()].is_zeroed(frame, size.base_pages());
        self.insert(first, size, tier, frame, fault.area.writable);
        if self.wanted.contains(SignalKind::Allocated) {
            self.signals.push(Signal::Allocated { page: first, size, tier, zeroed });
        }
        self.account();
        true
    }

    pub(super) fn insert(&mut self, first: PageId, size: PageSize, tier: TierId, frame: u64, writable: bool) {
        self.forget_zeros(PageRange::of(first, size));
        let frames = &mut self.frames[tier.index()];
        frames.set_block(frame, size.base_pages(), Holder::Page(first));
        for at in 0..size.base_pages() {
            frames.set_content(frame + at, Some(first.plus(at)));
        }
        let page = Page {
            size,
            tier,
            frame,
            accessed: false,
            dirty: false,
            writable,
            pinned: false,
            watch: Watch::Off,
            watched_since: self.now,
            counted: 0,
            held_by: None,
        };
        self.pages.insert(first, page);
    }
}
