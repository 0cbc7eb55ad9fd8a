//! Page faults: which frame, of which size, in which tier a page gets.

use super::address_space::Area;
use super::entry::{Leaf, Pte};
use super::memory::{Block, Owner};
use super::paging::{Fault, Os, OsError, PlacementState};
use super::parameters::PagePolicy;
use terrace_model::{AddressRange, Frame, PageSize, SpaceId, VirtAddr};
use terrace_policy::{PageId, Wish};
use terrace_trace::{MapKind, Protection};

impl Os {
    /// The area that holds `addr` with its first address; an address that no event mapped gets one.
    pub fn area_at_fault(&mut self, space: SpaceId, addr: VirtAddr) -> (VirtAddr, Area) {
        let areas = &mut self.spaces[space.index()].areas;
        if let Some(found) = areas.find_next(addr) {
            return found;
        }
        self.counters.unmapped_accesses += 1;
        let page = AddressRange::of_page(addr, PageSize::Base);
        areas.map(page, MapKind::Anonymous, Protection::READ_WRITE);
        let alone = Area {
            end: page.end(),
            kind: MapKind::Anonymous,
            protection: Protection::READ_WRITE,
            huge_advice: None,
        };
        areas.find(addr).unwrap_or((page.start, alone))
    }

    /// Brings in the page that holds `addr`, which is not mapped in the page table: as the first of `wishes` that can be
    /// granted says, else as the design does. A wish counts the tiers of the process's system.
    ///
    /// # Errors
    /// Memory is full.
    pub fn fault(&mut self, space: SpaceId, addr: VirtAddr, wishes: &[Wish]) -> Result<Fault, OsError> {
        let (start, area) = self.area_at_fault(space, addr);
        let wanted = self.wanted_size(addr, start, &area);
        if wanted == PageSize::Base && self.pages == PagePolicy::Thp && may_be_huge(&area) {
            self.counters.huge_unfit += 1;
        }
        let granted = wishes.iter().find_map(|wish| self.grant(space, addr, start, &area, wanted, wish));
        let (Block { frame, zeroed }, size) = match granted {
            Some(granted) => granted,
            None => {
                let occupied = wanted != PageSize::Base && !self.table(space).is_region_empty(addr, wanted);
                let (block, size) = self.place_by_design(space, addr, start, wanted)?;
                if occupied {
                    self.counters.huge_occupied += 1;
                } else if size != wanted {
                    self.counters.huge_fallbacks += 1;
                }
                (block, size)
            }
        };
        let page = addr.align_down(size);
        self.install(space, page, size, Pte::new(frame))?;
        if let Some(stores) = &mut self.stores {
            stores.clear(space, page, size);
        }
        self.resident[size.index()] += size.base_pages();
        self.counters.faults[size.index()] += 1;
        self.note_peak();
        Ok(Fault { frame, size, copied_from: None, zeroed })
    }

    /// Brings in the base page at `addr`, which is not mapped, in a frame that was taken for it.
    ///
    /// # Errors
    /// Memory is full: the page table has no room.
    pub fn fault_in(&mut self, space: SpaceId, addr: VirtAddr, frame: Frame) -> Result<Fault, OsError> {
        self.area_at_fault(space, addr);
        let (page, size) = (addr.align_down(PageSize::Base), PageSize::Base);
        self.install(space, page, size, Pte::new(frame))?;
        self.own(space, page, size, frame);
        if let Some(stores) = &mut self.stores {
            stores.clear(space, page, size);
        }
        self.resident[size.index()] += 1;
        self.counters.faults[size.index()] += 1;
        self.note_peak();
        Ok(Fault { frame, size, copied_from: None, zeroed: false })
    }

    /// Takes a free run of 2^`order` base frames, in the first tier that has one, those of the wishes first. Each is a block
    /// of its own.
    pub fn take_run(&mut self, order: u32, wishes: &[Wish]) -> Option<Frame> {
        let now = self.now;
        let wished = wishes.iter().map(|wish| wish.tier.index()).filter(|tier| *tier < self.tiers.len());
        let order_of_tiers: Vec<usize> = wished.chain(0..self.tiers.len()).collect();
        order_of_tiers.into_iter().find_map(|tier| self.tiers[tier].take_run(order, now))
    }

    /// Whether a tier has such a run.
    pub fn has_run(&self, order: u32) -> bool {
        self.tiers.iter().any(|tier| tier.find_run(order).is_some())
    }

    /// The size that a wish asks for, where it is a large page that would fit at `addr` in its area, and its tier has no
    /// free block for it.
    pub fn lacks_block(
        &self,
        space: SpaceId,
        addr: VirtAddr,
        start: VirtAddr,
        area: &Area,
        wish: &Wish,
    ) -> Option<PageSize> {
        let size = wish.size.filter(|size| *size > PageSize::Base)?;
        let page = AddressRange::of_page(addr, size);
        let fits = page.start >= start && page.end() <= area.end;
        let lacks = self.tiers[self.wished_tier(space, wish)?].buddy().free_blocks(size.order()).0 == 0;
        let empty = || self.spaces[space.index()].table.is_region_empty(addr, size);
        (fits && lacks && empty()).then_some(size)
    }

    /// The place of a wished tier in the list of all, if the process's system has it.
    fn wished_tier(&self, space: SpaceId, wish: &Wish) -> Option<usize> {
        self.tiers_of(self.guest_of(space)).nth(wish.tier.index())
    }

    /// A frame for one wish, if it can be granted. Without a size it is the one that the design wants, else a base page.
    fn grant(
        &mut self,
        space: SpaceId,
        addr: VirtAddr,
        start: VirtAddr,
        area: &Area,
        wanted: PageSize,
        wish: &Wish,
    ) -> Option<(Block, PageSize)> {
        let sizes = match wish.size {
            Some(size) => [size, size],
            None => [wanted, PageSize::Base],
        };
        sizes.into_iter().find_map(|size| {
            let page = AddressRange::of_page(addr, size);
            let fits = wish.size.is_none() || (page.start >= start && page.end() <= area.end);
            let free = fits
                && (size == PageSize::Base || self.spaces[space.index()].table.is_region_empty(addr, size));
            let tier = self.wished_tier(space, wish).filter(|_| free)?;
            let owner = Owner::Page(PageId::of(space, page.start));
            self.take(tier, size, owner).map(|block| (block, size))
        })
    }

    /// A frame as the design places it, of the size wanted or the largest below that there is room for.
    fn place_by_design(
        &mut self,
        space: SpaceId,
        addr: VirtAddr,
        start: VirtAddr,
        wanted: PageSize,
    ) -> Result<(Block, PageSize), OsError> {
        let mut size = wanted;
        loop {
            let page = addr.align_down(size);
            let free = size == PageSize::Base || self.spaces[space.index()].table.is_region_empty(addr, size);
            let owner = Owner::Page(PageId::of(space, page));
            if free && let Some(block) = self.place(space, page.max(start) - start, size, owner) {
                return Ok((block, size));
            }
            size = match size {
                PageSize::Giant => PageSize::Huge,
                PageSize::Huge => PageSize::Base,
                PageSize::Base if self.take_back_zeroing(space) => PageSize::Base,
                PageSize::Base => return Err(self.out_of_memory(None)),
            };
        }
    }

    /// The page size that the design and the program's advice want at `addr`.
    fn wanted_size(&self, addr: VirtAddr, start: VirtAddr, area: &Area) -> PageSize {
        match self.pages {
            PagePolicy::Base if area.kind == MapKind::HugeTlb => PageSize::Huge,
            PagePolicy::Base => PageSize::Base,
            PagePolicy::Huge => PageSize::Huge,
            PagePolicy::Giant => PageSize::Giant,
            PagePolicy::Thp => {
                let page = AddressRange::of_page(addr, PageSize::Huge);
                let inside = page.start >= start && page.end() <= area.end;
                if area.kind == MapKind::HugeTlb || (inside && may_be_huge(area)) {
                    PageSize::Huge
                } else {
                    PageSize::Base
                }
            }
        }
    }

    /// A write to a page that a fork shares: the writer gets a copy, or the page itself when nobody else is left.
    ///
    /// # Errors
    /// Memory is full.
    pub fn break_sharing(
        &mut self,
        space: SpaceId,
        addr: VirtAddr,
        leaf: &Leaf,
    ) -> Result<Option<Fault>, OsError> {
        let old = leaf.pte.frame();
        if !self.shared.contains_key(&old.0) {
            self.counters.copy_on_write_faults += 1;
            let own = leaf.pte.with_copy_on_write(false).dirtied();
            self.put(space, leaf, addr, own);
            // The page's first owner may be gone.
            self.own(space, addr.align_down(leaf.size), leaf.size, old);
            return Ok(None);
        }
        let page = addr.align_down(leaf.size);
        let owner = Owner::Page(PageId::of(space, page));
        let start = self.spaces[space.index()].areas.find(page).map_or(page, |(start, _)| start);
        let Some(Block { frame, .. }) = self.place(space, page - start, leaf.size, owner) else {
            if leaf.size == PageSize::Base {
                if self.take_back_zeroing(space) {
                    return self.break_sharing(space, addr, leaf);
                }
                return Err(self.out_of_memory(None));
            }
            // No block of that size: only the base page that is written gets a copy.
            self.counters.huge_fallbacks += 1;
            self.split(space, page, leaf, PageSize::Base)?;
            let base = self.table(space).find(addr).ok_or_else(|| self.out_of_memory(None))?;
            return self.break_sharing(space, addr, &base);
        };
        self.counters.copy_on_write_faults += 1;
        self.release_frames(old, leaf.size);
        self.resident[leaf.size.index()] += leaf.size.base_pages();
        self.note_peak();
        self.put(space, leaf, addr, Pte::new(frame).dirtied());
        Ok(Some(Fault { frame, size: leaf.size, copied_from: Some(old), zeroed: false }))
    }

    /// Chooses a tier of the process's system and takes a block in it. `offset` is the page's distance from the start of
    /// its area.
    fn place(&mut self, space: SpaceId, offset: u64, size: PageSize, owner: Owner) -> Option<Block> {
        let guest = self.guest_of(space);
        let own = self.tiers_of(guest);
        let first = own.start
            + match &mut self.placement[guest] {
                PlacementState::FirstTouch => 0,
                PlacementState::Only(tier) => {
                    let tier = own.start + *tier;
                    return self.take(tier, size, owner);
                }
                PlacementState::Prefer(tier) => *tier,
                PlacementState::Round { slots, next } => {
                    let tier = slots[*next];
                    *next = (*next + 1) % slots.len();
                    tier as usize
                }
                PlacementState::Ratio { first, group } => {
                    let position = (offset >> size.shift()) % *group;
                    usize::from(position >= *first)
                }
            };
        if let Some(block) = self.take(first, size, owner) {
            return Some(block);
        }
        own.filter(|&tier| tier != first).find_map(|tier| self.take(tier, size, owner))
    }
}

/// Whether an area may have transparent huge pages, as far as it is large enough. No stack has one: Linux takes those of
/// threads as `MADV_NOHUGEPAGE` (since 6.7), and that of a process grows page by page, so that a fault finds no whole huge
/// page in its mapping.
fn may_be_huge(area: &Area) -> bool {
    matches!(area.kind, MapKind::Anonymous | MapKind::Heap) && area.huge_advice != Some(false)
}
