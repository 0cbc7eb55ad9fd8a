//! What programs do to their address space: map, unmap, advise, move, fork, end.

use super::address_space::AddressSpace;
use super::changes::Changes;
use super::entry::{Leaf, Pte};
use super::memory::Owner;
use super::page_table::PageTable;
use super::paging::{Os, OsError, Space};
use super::parameters::PagePolicy;
use std::ops::Range;
use terrace_model::{AddressRange, Frame, PageSize, SpaceId, VirtAddr};
use terrace_policy::PageId;
use terrace_trace::{AccessKind, Advice, Batch, MapKind, Protection};

impl Os {
    /// `mmap`: what was mapped there goes first.
    ///
    /// # Errors
    /// Memory is full (a huge page had to be split).
    pub fn map(
        &mut self,
        space: SpaceId,
        range: AddressRange,
        kind: MapKind,
        protection: Protection,
    ) -> Result<(), OsError> {
        let range = range.page_cover(PageSize::Base);
        if self.spaces[space.index()].areas.overlaps(range) {
            self.unmap(space, range)?;
        }
        self.spaces[space.index()].areas.map(range, kind, protection);
        Ok(())
    }

    /// `munmap`.
    ///
    /// # Errors
    /// Memory is full (a huge page had to be split).
    pub fn unmap(&mut self, space: SpaceId, range: AddressRange) -> Result<(), OsError> {
        let range = range.page_cover(PageSize::Base);
        self.spaces[space.index()].areas.unmap(range);
        self.drop_pages(space, range, true)
    }

    /// `madvise`.
    ///
    /// # Errors
    /// Memory is full (a huge page had to be split).
    pub fn advise(&mut self, space: SpaceId, range: AddressRange, advice: Advice) -> Result<(), OsError> {
        let range = range.page_cover(PageSize::Base);
        match advice {
            Advice::DontNeed => return self.drop_pages(space, range, false),
            Advice::HugePage => {
                self.spaces[space.index()].areas.update(range, |area| area.huge_advice = Some(true));
            }
            Advice::NoHugePage => {
                self.spaces[space.index()].areas.update(range, |area| area.huge_advice = Some(false));
            }
            // Cold, page-out and collapse are requests to policies that a plain kernel may ignore; freed pages stay
            // until memory is short.
            _ => {}
        }
        Ok(())
    }

    /// `mprotect`: the entries of all pages in the range are written anew. Where they lose a right, translations of them
    /// must be dropped.
    pub fn protect(&mut self, space: SpaceId, range: AddressRange, protection: Protection) {
        let range = range.page_cover(PageSize::Base);
        let Os { spaces, changes, .. } = self;
        let Space { table, areas, .. } = &mut spaces[space.index()];
        for (page, size, _) in table.pages_in(range) {
            let before = areas.find(page).map(|(_, area)| area.protection);
            let Some(before) = before.filter(|before| *before != protection) else { continue };
            if let Some(leaf) = table.find(page) {
                changes.rewrote(table.leaf_address(&leaf, page));
            }
            let loses = |had: bool, has: bool| had && !has;
            if loses(before.read, protection.read)
                || loses(before.write, protection.write)
                || loses(before.execute, protection.execute)
            {
                changes.make_stale(space, page, size);
            }
        }
        areas.update(range, |area| area.protection = protection);
    }

    /// `mremap`. Pages move without a copy where their size fits the new alignment; others are dropped from the page
    /// table and fault again.
    ///
    /// # Errors
    /// Memory is full.
    pub fn remap(&mut self, space: SpaceId, from: AddressRange, to: AddressRange) -> Result<(), OsError> {
        let (from, to) = (from.page_cover(PageSize::Base), to.page_cover(PageSize::Base));
        if from.start == to.start {
            if to.bytes < from.bytes {
                return self.unmap(space, AddressRange::between(to.end(), from.end()));
            }
            self.spaces[space.index()].areas.remap(from, to);
            return Ok(());
        }
        self.drop_pages(space, to, true)?;
        self.split_at(space, from.start)?;
        self.split_at(space, from.end())?;
        for (page, size, pte) in self.table(space).pages_in(from) {
            let target = VirtAddr(page.0.wrapping_sub(from.start.0).wrapping_add(to.start.0));
            self.take_out(space, page);
            let fits = target.is_aligned(size) && target + size.bytes() <= to.end();
            // Where large pages are forced, one may be held at the target for a neighbouring area.
            let free = fits && self.spaces[space.index()].table.is_region_empty(target, size);
            if page >= from.start && free {
                self.install(space, target, size, pte)?;
                self.own(space, target, size, pte.frame());
            } else {
                self.release_page(size, pte);
            }
        }
        if let Some(stores) = &mut self.stores {
            stores.remap(space, from, to.start);
        }
        self.spaces[space.index()].areas.remap(from, to);
        Ok(())
    }

    /// Pages that were resident before the recorded region: mapped without a fault.
    ///
    /// # Errors
    /// Memory is full.
    pub fn make_resident(&mut self, space: SpaceId, start: VirtAddr, bitmap: &[u64]) -> Result<(), OsError> {
        let before = self.counters;
        for (word, &bits) in bitmap.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let addr = start + 4096 * (64 * word as u64 + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
                if self.spaces[space.index()].table.find(addr).is_none() {
                    self.fault(space, addr, &[])?;
                }
            }
        }
        self.counters = before;
        // No core made these stores, and nothing was there before.
        self.changes = Changes::default();
        Ok(())
    }

    /// `fork`: a new process with the same areas and pages, shared until written.
    ///
    /// # Errors
    /// Memory is full, or too many processes.
    pub fn fork(&mut self, parent: SpaceId) -> Result<SpaceId, OsError> {
        let child = self.new_space_in(self.guest_of(parent))?;
        self.forked = true;
        if let Some(stores) = &mut self.stores {
            stores.fork(parent, child);
        }
        self.spaces[child.index()].areas = self.spaces[parent.index()].areas.clone();
        let everything = AddressRange::ALL;
        for (page, size, pte) in self.spaces[parent.index()].table.pages_in(everything) {
            let shared_mapping = self.spaces[parent.index()]
                .areas
                .find(page)
                .is_some_and(|(_, a)| matches!(a.kind, MapKind::SharedAnonymous | MapKind::SharedFile));
            let pte = pte.with_copy_on_write(!shared_mapping);
            if let Some(leaf) = self.spaces[parent.index()].table.find(page) {
                self.put(parent, &leaf, page, pte);
            }
            // The child's pages are not watched.
            self.install(child, page, size, pte.with_traps(false, false))?;
            *self.shared.entry(pte.frame().0).or_insert(1) += 1;
        }
        Ok(child)
    }

    /// The process is gone, or replaced its program: everything it had is freed.
    ///
    /// # Errors
    /// None in practice: nothing is split.
    pub fn clear_space(&mut self, space: SpaceId, ends: bool) -> Result<(), OsError> {
        let everything = AddressRange::ALL;
        self.spaces[space.index()].areas = AddressSpace::default();
        for (page, size, pte) in self.spaces[space.index()].table.pages_in(everything) {
            self.take_out(space, page);
            self.release_page(size, pte);
        }
        let tables: Vec<Frame> = self.spaces[space.index()].table.table_frames().collect();
        let keep_root = usize::from(!ends);
        for frame in &tables[keep_root..] {
            self.give_back(*frame);
        }
        self.spaces[space.index()].table = PageTable::new(self.levels, tables[0]);
        self.changes.reshaped = true;
        self.spaces[space.index()].alive = !ends;
        if ends {
            self.ended.push_back(space);
        }
        Ok(())
    }

    /// Accesses were made; the stores among them leave their pages with something in them.
    pub fn note_stores(&mut self, space: SpaceId, batch: &Batch, accesses: Range<usize>) {
        let Some(stores) = &mut self.stores else { return };
        for at in accesses.filter(|at| batch.kind[*at] == AccessKind::Write) {
            let addr = VirtAddr(batch.addr[at]);
            stores.mark(space, addr);
            stores.mark(space, addr.saturating_add(u64::from(batch.size[at].max(1)) - 1));
        }
    }

    /// The kernel stored to all of a range.
    pub fn note_stores_in(&mut self, space: SpaceId, range: AddressRange) {
        let Some(stores) = &mut self.stores else { return };
        for addr in range.base_pages() {
            stores.mark(space, addr);
        }
    }

    /// Unmaps the pages in `range`. With `areas_gone`, pages larger than the hole are split (or dropped whole where
    /// nothing of them is mapped any more); without, only what lies inside goes.
    fn drop_pages(&mut self, space: SpaceId, range: AddressRange, areas_gone: bool) -> Result<(), OsError> {
        if range.bytes == 0 {
            return Ok(());
        }
        let forced = matches!(self.pages, PagePolicy::Huge | PagePolicy::Giant);
        if !forced {
            self.split_at(space, range.start)?;
            self.split_at(space, range.end())?;
        }
        for (page, size, pte) in self.spaces[space.index()].table.pages_in(range) {
            let whole = AddressRange::of_page(page, size);
            let inside = range.covers(&whole);
            // Designs that force a large page everywhere hold it until its last area is gone.
            let unused = areas_gone && !self.spaces[space.index()].areas.overlaps(whole);
            if inside || unused {
                self.take_out(space, page);
                self.release_page(size, pte);
            }
        }
        Ok(())
    }

    /// Makes `addr` a page border: splits the large page that spans it into base pages.
    fn split_at(&mut self, space: SpaceId, addr: VirtAddr) -> Result<(), OsError> {
        let Some(leaf) = self.spaces[space.index()].table.find(addr) else { return Ok(()) };
        if leaf.size == PageSize::Base || addr.is_aligned(leaf.size) {
            return Ok(());
        }
        self.split(space, addr.align_down(leaf.size), &leaf, PageSize::Base)
    }

    /// Splits a large page into parts of a smaller size, in the tables of all processes that share it. The frames stay
    /// where they are.
    pub(super) fn split(
        &mut self,
        space: SpaceId,
        page: VirtAddr,
        leaf: &Leaf,
        parts: PageSize,
    ) -> Result<(), OsError> {
        let first = leaf.pte.frame();
        let sharers = self.shared.remove(&first.0);
        let mut holders = vec![(space, page, leaf.pte)];
        if sharers.is_some() {
            let everything = AddressRange::ALL;
            for (other, tables) in self.spaces.iter().enumerate() {
                let pages = tables.table.pages_in(everything).into_iter();
                let other = SpaceId(other as u32);
                let same = pages.filter(|&(at, _, pte)| pte.frame() == first && (other, at) != (space, page));
                holders.extend(same.map(|(at, _, pte)| (other, at, pte)));
            }
        }
        let places = || (0..leaf.size.base_pages()).step_by(parts.base_pages() as usize);
        for (holder, page, old) in holders {
            self.take_out(holder, page);
            for i in places() {
                let mut pte = Pte::new(Frame(first.0 + i)).with_copy_on_write(old.is_copy_on_write());
                if old.is_dirty() {
                    pte = pte.dirtied();
                } else if old.is_accessed() {
                    pte = pte.accessed();
                }
                self.install(holder, page + 4096 * i, parts, pte)?;
            }
        }
        if let Some(count) = sharers {
            self.shared.extend(places().map(|i| (first.0 + i, count)));
        }
        let tier = self.tier_of(first).index();
        let named = PageId::of(space, page);
        self.tiers[tier].recut(first, leaf.size, parts, |at| Owner::Page(named.plus(at)));
        self.resident[leaf.size.index()] -= leaf.size.base_pages();
        self.resident[parts.index()] += leaf.size.base_pages();
        self.counters.splits += 1;
        Ok(())
    }
}
