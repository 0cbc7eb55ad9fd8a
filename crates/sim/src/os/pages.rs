//! Pages as policies handle them: blocks for orders, splits and collapses, and the account of all frames.

use super::address_space::AddressSpace;
use super::entry::{Leaf, Pte};
use super::memory::{Owner, TierMemory};
use super::paging::{Os, OsError, PlacementState, Space, tier_of};
use terrace_model::{AddressRange, Bytes, Frame, PageSize, SpaceId, TierId, Time, VirtAddr};
use terrace_policy::PageId;

/// The pages that map one block.
#[derive(Clone, Debug)]
pub struct Mappers {
    /// The page that the block is named after.
    pub first: PageId,
    /// The pages of other processes.
    pub others: Vec<PageId>,
}

/// What a visitor of a page table sees beside the entries.
#[derive(Debug)]
pub struct Around<'a> {
    /// The areas of the process.
    pub areas: &'a AddressSpace,
    tiers: &'a [TierMemory],
}

impl Around<'_> {
    /// The tier of a frame.
    pub fn tier_of(&self, frame: Frame) -> TierId {
        tier_of(self.tiers, frame)
    }
}

impl Mappers {
    /// All of them, the first one first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = PageId> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

impl Os {
    /// Processes that are not over.
    pub fn live_spaces(&self) -> impl Iterator<Item = SpaceId> + use<> {
        let spaces = (0..self.spaces.len() as u32).map(SpaceId);
        let alive: Vec<SpaceId> = spaces.filter(|space| self.spaces[space.index()].alive).collect();
        alive.into_iter()
    }

    /// Whether there is such a process, and it is not over.
    pub fn is_live(&self, space: SpaceId) -> bool {
        self.spaces.get(space.index()).is_some_and(|space| space.alive)
    }

    /// The leaf that maps `page`, if there is such a process still.
    pub fn leaf_of(&self, page: PageId) -> Option<Leaf> {
        let space = self.spaces.get(page.space.index()).filter(|space| space.alive)?;
        space.table.find(page.addr())
    }

    /// Changes what accesses to the page in `leaf` are trapped.
    pub fn set_traps(&mut self, space: SpaceId, leaf: &Leaf, addr: VirtAddr, accesses: bool, stores: bool) {
        self.put(space, leaf, addr, leaf.pte.with_traps(accesses, stores));
    }

    /// Marks the page at an address held, or no longer.
    pub fn set_held(&mut self, page: PageId, held: bool) {
        if let Some(leaf) = self.table(page.space).find(page.addr()) {
            self.put(page.space, &leaf, page.addr(), leaf.pte.with_held(held));
        }
    }

    /// Shows every page whose first byte lies in `range`, by address, until `visit` returns false; it may change the entry.
    pub fn visit(
        &mut self,
        space: SpaceId,
        range: AddressRange,
        mut visit: impl FnMut(&Around<'_>, VirtAddr, PageSize, &mut Pte) -> bool,
    ) {
        let Os { spaces, tiers, changes, .. } = self;
        let Space { table, areas, .. } = &mut spaces[space.index()];
        let around = Around { areas, tiers };
        table.visit(range, &mut changes.door(space), |addr, size, pte| visit(&around, addr, size, pte));
    }

    /// Whether several page tables map this frame.
    pub fn is_shared(&self, frame: Frame) -> bool {
        self.shared.contains_key(&frame.0)
    }

    /// The pages that map a block, which `owner` names: of a block that processes share since a fork the page of every one.
    /// None if one of them cannot be found, since its process maps it elsewhere.
    pub fn mappers(&self, frame: Frame, size: PageSize, owner: PageId) -> Option<Mappers> {
        let maps = |page: &PageId| {
            self.leaf_of(*page).is_some_and(|leaf| leaf.pte.frame() == frame && leaf.size == size)
        };
        let Some(sharers) = self.shared.get(&frame.0) else {
            return maps(&owner).then(|| Mappers { first: owner, others: Vec::new() });
        };
        let others = self.live_spaces().filter(|space| *space != owner.space);
        let same_place = others.map(|space| PageId::new(space.0, owner.vpn));
        let mut all = std::iter::once(owner).chain(same_place).filter(maps);
        let mappers = Mappers { first: all.next()?, others: all.collect() };
        (mappers.iter().count() == *sharers as usize).then_some(mappers)
    }

    /// Takes a free block of a tier, for a page on its way there.
    pub fn take_block(&mut self, tier: TierId, size: PageSize) -> Option<Frame> {
        self.take(tier.index(), size, Owner::Taken).map(|block| block.frame)
    }

    /// The page lies in another block now, and is held no longer.
    pub fn point_to(&mut self, page: PageId, frame: Frame) {
        let addr = page.addr();
        if let Some(leaf) = self.table(page.space).find(addr) {
            self.put(page.space, &leaf, addr, leaf.pte.moved_to(frame).with_held(false));
            self.own(page.space, addr, leaf.size, frame);
        }
    }

    /// What two pages of one size hold changes places without a copy: each lies where the other lay. Bits that walks set go
    /// with it.
    pub fn exchange_contents(&mut self, one: PageId, other: PageId) {
        let (Some(of_one), Some(of_other)) = (self.leaf_of(one), self.leaf_of(other)) else { return };
        for (page, leaf, pte) in [(one, of_one, of_other.pte), (other, of_other, of_one.pte)] {
            let addr = page.addr();
            self.put(page.space, &leaf, addr, leaf.pte.with_contents_of(pte));
            self.own(page.space, addr, leaf.size, pte.frame());
        }
    }

    /// The first frame of a tier and the number of its frames.
    pub fn tier_frames(&self, tier: TierId) -> (Frame, u64) {
        let tier = &self.tiers[tier.index()];
        (tier.base, tier.frames())
    }

    /// Whether there is such a frame.
    pub fn contains(&self, frame: Frame) -> bool {
        self.tiers.iter().any(|tier| tier.contains(frame))
    }

    /// The first tier of a process's system.
    pub fn first_tier_of(&self, space: SpaceId) -> TierId {
        TierId(self.tiers_of(self.guest_of(space)).start as u8)
    }

    fn tier_with(&self, frame: Frame) -> &TierMemory {
        &self.tiers[self.tier_of(frame).index()]
    }

    fn tier_with_mut(&mut self, frame: Frame) -> &mut TierMemory {
        let at = self.tier_of(frame).index();
        &mut self.tiers[at]
    }

    /// The block that a frame belongs to: its first frame, its size and who holds it. None for free frames.
    pub fn block_of(&self, frame: Frame) -> Option<(Frame, PageSize, Owner)> {
        self.tier_with(frame).block_of(frame)
    }

    /// Whether every frame of a block is free.
    pub fn is_free(&self, frame: Frame, size: PageSize) -> bool {
        self.tier_with(frame).is_free(frame, size)
    }

    /// Whether a free frame lies in 2 MiB that are known to hold only zeros.
    pub fn is_zeroed(&self, frame: Frame) -> bool {
        let huge = PageSize::Huge;
        self.is_zeroed_block(Frame(frame.0 & !(huge.base_pages() - 1)), huge)
    }

    /// Whether a block is free and known to hold only zeros.
    pub fn is_zeroed_block(&self, frame: Frame, size: PageSize) -> bool {
        let tier = self.tier_with(frame);
        tier.buddy().is_zeroed(frame - tier.base, size.order())
    }

    /// Takes this block for an order, if all of it is free.
    pub fn take_block_at(&mut self, frame: Frame, size: PageSize) -> bool {
        let now = self.now;
        self.tier_with_mut(frame).take_at(frame, size, Owner::Taken, now)
    }

    /// Keeps a cached page from being evicted while an order has it.
    pub fn hold_cached(&mut self, frame: Frame) {
        self.tier_with_mut(frame).hold_cached(frame);
    }

    /// The order is done with it.
    pub fn release_cached(&mut self, frame: Frame) {
        self.tier_with_mut(frame).release_cached(frame);
    }

    /// What two blocks of one tier hold changes places; the page tables do not change.
    pub fn swap_frames(&mut self, one: Frame, other: Frame, frames: u64) {
        self.tier_with_mut(one).swap_owners(one, other, frames);
        if self.shared.is_empty() {
            return;
        }
        for at in 0..frames {
            let (one, other) = (one.0 + at, other.0 + at);
            let (of_one, of_other) = (self.shared.remove(&one), self.shared.remove(&other));
            self.shared.extend(of_one.map(|sharers| (other, sharers)));
            self.shared.extend(of_other.map(|sharers| (one, sharers)));
        }
    }

    /// Evicts pages of files until so many frames are free in a tier. Returns how many were evicted.
    pub fn reclaim(&mut self, tier: TierId, free: u64) -> u64 {
        self.tiers[tier.index()].reclaim(free)
    }

    /// Free frames of a tier below which its page cache is evicted, and those that are free then.
    pub fn watermarks(&self, tier: TierId) -> (u64, u64) {
        self.tiers[tier.index()].watermarks()
    }

    /// Keeps a block from being handed out, or ends that.
    pub fn isolate(&mut self, frame: Frame, size: PageSize, isolated: bool) {
        if self.contains(frame) {
            self.tier_with_mut(frame).isolate(frame, size, isolated);
        }
    }

    /// Takes a free block that an order will fill with zeros; see [`TierMemory::begin_zeroing`].
    pub fn begin_zeroing(&mut self, frame: Frame, size: PageSize) -> Option<u64> {
        let now = self.now;
        self.tier_with_mut(frame).begin_zeroing(frame, size, now)
    }

    /// Whether a filling of the block goes on; see [`TierMemory::is_being_zeroed`].
    pub fn is_being_zeroed(&self, frame: Frame, filling: u64) -> bool {
        self.tier_with(frame).is_being_zeroed(filling)
    }

    /// A block that an order has filled with zeros is free again.
    pub fn end_zeroing(&mut self, frame: Frame, filling: u64) {
        let now = self.now;
        self.tier_with_mut(frame).end_zeroing(filling, now);
    }

    /// Where a process's memory is full, a free block that is being filled with zeros is free again, as it is. Returns
    /// false where there is none.
    pub(super) fn take_back_zeroing(&mut self, space: SpaceId) -> bool {
        let guest = self.guest_of(space);
        let own = match self.placement[guest] {
            PlacementState::Only(tier) => {
                let tier = self.tiers_of(guest).start + tier;
                tier..tier + 1
            }
            _ => self.tiers_of(guest),
        };
        let now = self.now;
        self.tiers[own].iter_mut().any(|tier| tier.take_back_zeroing(now))
    }

    /// From now on it is known which base pages hold only zeros.
    pub fn watch_stores(&mut self) {
        self.stores.get_or_insert_default();
    }

    /// Whether that is known.
    pub fn knows_zeros(&self) -> bool {
        self.stores.is_some()
    }

    /// How many base pages of a page hold only zeros.
    pub fn zero_pages(&self, space: SpaceId, page: VirtAddr, size: PageSize) -> Option<u64> {
        let stores = self.stores.as_ref()?;
        Some(
            AddressRange::of_page(page, size)
                .base_pages()
                .filter(|addr| !stores.contains(space, *addr))
                .count() as u64,
        )
    }

    /// Unmaps the base pages in the place of a page of `size` that hold only zeros; their addresses.
    pub fn drop_zeros(&mut self, space: SpaceId, page: VirtAddr, size: PageSize) -> Vec<VirtAddr> {
        let Some(stores) = &self.stores else { return Vec::new() };
        let addresses = AddressRange::of_page(page, size).base_pages();
        let zeros: Vec<VirtAddr> = addresses.filter(|addr| !stores.contains(space, *addr)).collect();
        for addr in &zeros {
            if let Some(leaf) = self.take_out(space, *addr) {
                self.release_page(leaf.size, leaf.pte);
            }
        }
        zeros
    }

    /// Frees a block that no page table maps.
    pub fn free_block(&mut self, frame: Frame) {
        self.give_back(frame);
    }

    /// Frees frames that were taken as a run and never used.
    pub fn free_run(&mut self, first: Frame, frames: u64) {
        let now = self.now;
        self.tier_with_mut(first).give_back_run(first, frames, now);
    }

    /// Takes the whole first tier, so that nothing is ever put into it: it is a cache of the last one, which holds page
    /// tables too.
    pub fn give_up_first_tier(&mut self) {
        let first = &mut self.tiers[0];
        for size in PageSize::ALL.into_iter().rev() {
            while first.take(size, Owner::Kernel, Time::ZERO).is_some() {}
        }
        self.page_table_tier = self.tiers.len() - 1;
    }

    /// Splits the large page at `page` into parts in place.
    ///
    /// # Errors
    /// No frame for a page table.
    pub fn split_page(&mut self, space: SpaceId, page: VirtAddr, parts: PageSize) -> Result<(), OsError> {
        match self.spaces[space.index()].table.find(page) {
            Some(leaf) if leaf.size > parts => self.split(space, page, &leaf, parts),
            _ => Ok(()),
        }
    }

    /// Replaces the parts of the page of `size` at `page`, which are unmapped, by one entry. Their blocks are freed
    /// unless `in_place`: then they are the new page's.
    ///
    /// # Errors
    /// No frame for a page table.
    pub fn collapse(
        &mut self,
        space: SpaceId,
        page: VirtAddr,
        size: PageSize,
        pte: Pte,
        in_place: bool,
    ) -> Result<(), OsError> {
        for (part, part_size, old) in
            self.spaces[space.index()].table.pages_in(AddressRange::of_page(page, size))
        {
            self.take_out(space, part);
            self.resident[part_size.index()] -= part_size.base_pages();
            if !in_place {
                self.give_back(old.frame());
            }
        }
        self.resident[size.index()] += size.base_pages();
        self.install(space, page, size, pte)?;
        if in_place {
            let tier = self.tier_of(pte.frame()).index();
            self.tiers[tier].recut(pte.frame(), size, size, |_| Owner::Taken);
        }
        self.own(space, page, size, pte.frame());
        self.note_peak();
        Ok(())
    }

    /// The error of memory that is full: a tier, or all that the placement allows.
    pub fn out_of_memory(&self, tier: Option<usize>) -> OsError {
        let tiers = match (&self.placement[0], tier) {
            (_, Some(tier)) => self.tiers[tier].name.clone(),
            (PlacementState::Only(tier), None) => self.tiers[*tier].name.clone(),
            _ => self.whose.every_tier().to_owned(),
        };
        let resident = self.resident.iter().sum::<u64>() << 12;
        // The odd KiB of much memory say nothing.
        let resident = if resident < 10 << 20 { resident } else { resident >> 20 << 20 };
        OsError::OutOfMemory { resident: Bytes(resident), tiers, whose: self.whose }
    }

    pub(super) fn release_page(&mut self, size: PageSize, pte: Pte) {
        self.release_frames(pte.frame(), size);
    }

    pub(super) fn release_frames(&mut self, frame: Frame, size: PageSize) {
        if let Some(count) = self.shared.get_mut(&frame.0) {
            *count -= 1;
            if *count == 1 {
                self.shared.remove(&frame.0);
            }
            return;
        }
        self.resident[size.index()] -= size.base_pages();
        self.counters.pages_freed += size.base_pages();
        self.give_back(frame);
    }

    pub(super) fn give_back(&mut self, frame: Frame) {
        let tier = self.tier_of(frame).index();
        self.tiers[tier].give_back(frame, self.now);
    }
}
