//! x86-64 radix page tables in simulated frames.

use crate::array::{huge_reserve, prefetch};
use terrace_model::{AddressRange, Frame, PageSize, PhysAddr};

/// A leaf page-table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte(u64);

impl Pte {
    const PRESENT: u64 = 1;
    const LEAF: u64 = 1 << 1;
    const ACCESSED: u64 = 1 << 2;
    const DIRTY: u64 = 1 << 3;
    const COPY_ON_WRITE: u64 = 1 << 4;
    /// The next walk faults (a reserved bit, as BadgerTrap sets it, or no permission, as for a hint fault).
    const TRAPS_ACCESS: u64 = 1 << 5;
    /// The next walk for a store faults.
    const TRAPS_STORE: u64 = 1 << 6;
    /// The page is between unmap and map: whoever touches it waits.
    const HELD: u64 = 1 << 7;
    const TRAPS: u64 = Pte::TRAPS_ACCESS | Pte::TRAPS_STORE;
    /// What a load cannot pass.
    const STOPS_LOAD: u64 = Pte::TRAPS_ACCESS | Pte::HELD;
    /// What a store cannot pass.
    const STOPS_STORE: u64 = Pte::STOPS_LOAD | Pte::TRAPS_STORE | Pte::COPY_ON_WRITE;

    /// A present, clean, unreferenced leaf.
    pub const fn new(frame: Frame) -> Pte {
        Pte(frame.0 << 12 | Pte::PRESENT | Pte::LEAF)
    }

    /// The frame of the page's first byte.
    #[inline(always)]
    pub const fn frame(self) -> Frame {
        Frame(self.0 >> 12)
    }

    /// Set by a walk.
    pub const fn is_accessed(self) -> bool {
        self.0 & Pte::ACCESSED != 0
    }

    /// Set by the first store after it was cleared.
    #[inline(always)]
    pub const fn is_dirty(self) -> bool {
        self.0 & Pte::DIRTY != 0
    }

    /// Shared with another process until one of them writes.
    #[inline(always)]
    pub const fn is_copy_on_write(self) -> bool {
        self.0 & Pte::COPY_ON_WRITE != 0
    }

    /// Whether a store needs neither a fault nor a bit set in the table.
    #[inline(always)]
    pub const fn is_writable_at_once(self) -> bool {
        self.0 & (Pte::DIRTY | Pte::STOPS_STORE) == Pte::DIRTY
    }

    /// Whether a load needs neither a fault nor a bit set in the table.
    #[inline(always)]
    pub const fn is_readable_at_once(self) -> bool {
        self.0 & (Pte::ACCESSED | Pte::STOPS_LOAD) == Pte::ACCESSED
    }

    /// Whether a store through a TLB entry made from this one needs the table. A page whose walks are counted is
    /// trapped at walks only: the handler lets the access through and leaves the entry as it found it.
    #[inline(always)]
    pub const fn is_writable_in_tlb(self) -> bool {
        self.0 & (Pte::DIRTY | Pte::COPY_ON_WRITE | Pte::TRAPS_STORE) == Pte::DIRTY
    }

    /// Whether the kernel has to do something before an access of this kind.
    #[inline(always)]
    pub const fn stops(self, write: bool) -> bool {
        self.0 & (if write { Pte::STOPS_STORE } else { Pte::STOPS_LOAD }) != 0
    }

    /// Whether an access needs at most bits set: nobody watches the page, shares it or moves it.
    #[inline(always)]
    pub const fn is_plain(self) -> bool {
        self.0 & (Pte::TRAPS | Pte::HELD | Pte::COPY_ON_WRITE) == 0
    }

    /// Between unmap and map.
    pub const fn is_held(self) -> bool {
        self.0 & Pte::HELD != 0
    }

    /// Held, or no longer.
    #[must_use]
    pub const fn with_held(self, held: bool) -> Pte {
        if held { Pte(self.0 | Pte::HELD) } else { Pte(self.0 & !Pte::HELD) }
    }

    /// Trapping these accesses and no others.
    #[must_use]
    pub const fn with_traps(self, accesses: bool, stores: bool) -> Pte {
        let access = if accesses { Pte::TRAPS_ACCESS } else { 0 };
        let store = if stores { Pte::TRAPS_STORE } else { 0 };
        Pte(self.0 & !Pte::TRAPS | access | store)
    }

    /// With some of the bits that walks set cleared.
    #[must_use]
    pub const fn cleared(self, accessed: bool, dirty: bool) -> Pte {
        let accessed = if accessed { Pte::ACCESSED } else { 0 };
        let dirty = if dirty { Pte::DIRTY } else { 0 };
        Pte(self.0 & !(accessed | dirty))
    }

    /// The same page in another frame.
    #[must_use]
    pub const fn moved_to(self, frame: Frame) -> Pte {
        Pte(self.0 & 0xfff | frame.0 << 12)
    }

    /// With the accessed bit.
    #[must_use]
    pub const fn accessed(self) -> Pte {
        Pte(self.0 | Pte::ACCESSED)
    }

    /// With accessed and dirty bits.
    #[must_use]
    pub const fn dirtied(self) -> Pte {
        Pte(self.0 | Pte::ACCESSED | Pte::DIRTY)
    }

    /// Shared, or no longer.
    #[must_use]
    pub const fn with_copy_on_write(self, shared: bool) -> Pte {
        if shared { Pte(self.0 | Pte::COPY_ON_WRITE) } else { Pte(self.0 & !Pte::COPY_ON_WRITE) }
    }
}

/// A table that was not looked at.
const NO_TABLE: u32 = u32::MAX;

/// Where a walk ended.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// The entry.
    pub pte: Pte,
    /// Page size it maps.
    pub size: PageSize,
    /// Tables visited, root at index `levels - 1`, the leaf's table at index `size`'s level - 1.
    tables: [u32; 5],
}

impl Leaf {
    /// The leaf of a base page, from the numbers of its table and of the one above. [`PageTable::entry_address`] of
    /// higher levels is not for it.
    #[inline(always)]
    pub fn of_base_page(pte: Pte, table: u32, above: u32) -> Leaf {
        Leaf { pte, size: PageSize::Base, tables: [table, above, NO_TABLE, NO_TABLE, NO_TABLE] }
    }

    /// Number of the table at `level` on the way to the entry, if it is known.
    #[inline(always)]
    pub fn table(&self, level: u32) -> u32 {
        self.tables[level as usize - 1]
    }

    /// Whether the tables up to `level` are known.
    #[inline(always)]
    pub fn knows(&self, level: u32) -> bool {
        self.tables[level as usize - 1] != NO_TABLE
    }
}

/// The page table of one address space.
#[derive(Clone, Debug, Default)]
pub struct PageTable {
    /// Tables: each entry a leaf as in [`Pte`], or the index of the next table shifted by 12 with only the present
    /// bit, or 0.
    entries: Vec<[u64; 512]>,
    /// The simulated frame that holds each table: walks read entries at its address.
    frames: Vec<Frame>,
    /// Tables that hang nowhere since a larger page took their place, all empty. The next that is needed is one of them, as
    /// Linux keeps the table of a page that became huge for when it is split (`pgtable_trans_huge_deposit`).
    spare: Vec<u32>,
    levels: u32,
}

/// Level of the table that holds leaves of a size: 1, 2 or 3.
#[inline(always)]
pub(crate) const fn leaf_level(size: PageSize) -> u32 {
    size.index() as u32 + 1
}

#[inline(always)]
const fn index_at(addr: u64, level: u32) -> usize {
    (addr >> (12 + 9 * (level - 1)) & 511) as usize
}

impl PageTable {
    /// An empty table of 4 or 5 levels whose root lies in `root`.
    pub fn new(levels: u32, root: Frame) -> PageTable {
        PageTable { entries: vec![[0; 512]], frames: vec![root], spare: Vec::new(), levels }
    }

    /// Number of levels.
    #[inline(always)]
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Number of table pages, root included.
    pub fn table_pages(&self) -> usize {
        self.entries.len()
    }

    /// Frames of all tables.
    pub fn table_frames(&self) -> impl Iterator<Item = Frame> + '_ {
        self.frames.iter().copied()
    }

    /// The leaf that maps `addr`, if any.
    #[inline]
    pub fn find(&self, addr: u64) -> Option<Leaf> {
        let mut tables = [0; 5];
        let mut table = 0u32;
        let mut level = self.levels;
        loop {
            tables[level as usize - 1] = table;
            let entry = self.entries[table as usize][index_at(addr, level)];
            if entry & Pte::PRESENT == 0 {
                return None;
            }
            if entry & Pte::LEAF != 0 {
                return Some(Leaf { pte: Pte(entry), size: PageSize::ALL[level as usize - 1], tables });
            }
            table = (entry >> 12) as u32;
            level -= 1;
        }
    }

    /// The entry of `addr` in table number `table`, which holds base pages, if it is present.
    #[inline(always)]
    pub fn base_entry(&self, table: u32, addr: u64) -> Option<Pte> {
        let entry = self.entries[table as usize][index_at(addr, 1)];
        (entry & Pte::PRESENT != 0).then_some(Pte(entry))
    }

    /// The entry of `addr` in table number `table`, which holds pages of `size` or points to tables below, if it is one of
    /// a page.
    pub fn leaf_in(&self, table: u32, addr: u64, size: PageSize) -> Option<Pte> {
        let entry = self.entries[table as usize][index_at(addr, leaf_level(size))];
        (entry & (Pte::PRESENT | Pte::LEAF) == Pte::PRESENT | Pte::LEAF).then_some(Pte(entry))
    }

    /// Asks the host's memory for that entry, ahead of its use; returns the entry's physical address.
    #[inline(always)]
    pub fn prefetch_base_entry(&self, table: u32, addr: u64) -> PhysAddr {
        let index = index_at(addr, 1);
        prefetch(&self.entries[table as usize], index);
        PhysAddr(self.frames[table as usize].addr().0 + 8 * index as u64)
    }

    /// Physical address of the entry that a walk for `addr` reads at `level`, on the way to `leaf`.
    #[inline(always)]
    pub fn entry_address(&self, leaf: &Leaf, addr: u64, level: u32) -> PhysAddr {
        let table = leaf.tables[level as usize - 1];
        PhysAddr(self.frames[table as usize].addr().0 + 8 * index_at(addr, level) as u64)
    }

    /// Replaces the entry that `leaf` was found in.
    #[inline]
    pub fn store(&mut self, leaf: &Leaf, addr: u64, pte: Pte) {
        let level = leaf_level(leaf.size);
        self.entries[leaf.tables[level as usize - 1] as usize][index_at(addr, level)] = pte.0;
    }

    /// Maps the page of `size` at `addr`. Missing tables are made in frames from `new_frame`.
    ///
    /// Gives back `None` without a change when something smaller or equal is mapped there, or `new_frame` fails.
    pub fn map(
        &mut self,
        addr: u64,
        size: PageSize,
        pte: Pte,
        mut new_frame: impl FnMut() -> Option<Frame>,
    ) -> Option<()> {
        let mut table = 0u32;
        let mut level = self.levels;
        while level > leaf_level(size) {
            let index = index_at(addr, level);
            let entry = self.entries[table as usize][index];
            if entry & Pte::LEAF != 0 {
                return None;
            }
            table = if entry & Pte::PRESENT != 0 {
                (entry >> 12) as u32
            } else {
                let next = match self.spare.pop() {
                    Some(spare) => spare,
                    None => self.add_table(new_frame()?),
                };
                self.entries[table as usize][index] = u64::from(next) << 12 | Pte::PRESENT;
                next
            };
            level -= 1;
        }
        let index = index_at(addr, level);
        let entry = self.entries[table as usize][index];
        if entry & Pte::PRESENT != 0 {
            if entry & Pte::LEAF != 0 || !self.is_empty_below(table, addr, level) {
                return None;
            }
            self.set_aside((entry >> 12) as u32);
        }
        self.entries[table as usize][index] = pte.0;
        Some(())
    }

    fn add_table(&mut self, frame: Frame) -> u32 {
        let number = self.entries.len() as u32;
        huge_reserve(&mut self.entries);
        self.entries.push([0; 512]);
        self.frames.push(frame);
        number
    }

    /// A table that maps nothing, and those that hang from it, are to be used elsewhere.
    fn set_aside(&mut self, table: u32) {
        for below in std::mem::replace(&mut self.entries[table as usize], [0; 512]) {
            if below != 0 {
                self.set_aside((below >> 12) as u32);
            }
        }
        self.spare.push(table);
    }

    /// Whether no leaf lies under the entry for `addr` at `level` of `table`.
    fn is_empty_below(&self, table: u32, addr: u64, level: u32) -> bool {
        let entry = self.entries[table as usize][index_at(addr, level)];
        if entry & Pte::PRESENT == 0 {
            return true;
        }
        if entry & Pte::LEAF != 0 {
            return false;
        }
        let below = (entry >> 12) as u32;
        (0..512u64).all(|i| self.is_empty_below(below, i << (12 + 9 * (level - 2)), level - 1))
    }

    /// Whether nothing is mapped in the page of `size` that holds `addr`.
    pub fn is_region_empty(&self, addr: u64, size: PageSize) -> bool {
        let mut table = 0u32;
        let mut level = self.levels;
        while level > leaf_level(size) {
            let entry = self.entries[table as usize][index_at(addr, level)];
            if entry & Pte::PRESENT == 0 {
                return true;
            }
            if entry & Pte::LEAF != 0 {
                return false;
            }
            table = (entry >> 12) as u32;
            level -= 1;
        }
        self.is_empty_below(table, addr, level)
    }

    /// Removes the leaf that maps `addr`.
    pub fn unmap(&mut self, addr: u64) -> Option<Leaf> {
        let leaf = self.find(addr)?;
        let level = leaf_level(leaf.size);
        self.entries[leaf.tables[level as usize - 1] as usize][index_at(addr, level)] = 0;
        Some(leaf)
    }

    /// All pages that overlap `range`: first address, size, entry; by address.
    pub fn pages_in(&self, range: AddressRange) -> Vec<(u64, PageSize, Pte)> {
        let mut pages = Vec::new();
        self.collect(0, self.levels, 0, range, &mut pages);
        pages
    }

    /// Shows every page whose first byte lies in `range`, by address, until `visit` answers false; it may change the
    /// entry. Returns whether all were shown.
    pub fn visit(
        &mut self,
        range: AddressRange,
        mut visit: impl FnMut(u64, PageSize, &mut Pte) -> bool,
    ) -> bool {
        self.visit_below(0, self.levels, 0, range, &mut visit)
    }

    fn visit_below(
        &mut self,
        table: u32,
        level: u32,
        base: u64,
        range: AddressRange,
        visit: &mut impl FnMut(u64, PageSize, &mut Pte) -> bool,
    ) -> bool {
        let shift = 12 + 9 * (level - 1);
        let from = range.start.0.saturating_sub(base) >> shift;
        let to = (range.end().0.saturating_sub(base)).div_ceil(1 << shift).min(512);
        for index in from.min(512)..to {
            let entry = &mut self.entries[table as usize][index as usize];
            let addr = base + (index << shift);
            if *entry & Pte::PRESENT == 0 {
                continue;
            }
            if *entry & Pte::LEAF != 0 {
                if addr < range.start.0 {
                    continue;
                }
                let mut pte = Pte(*entry);
                let goes_on = visit(addr, PageSize::ALL[level as usize - 1], &mut pte);
                *entry = pte.0;
                if !goes_on {
                    return false;
                }
            } else {
                let below = (*entry >> 12) as u32;
                if !self.visit_below(below, level - 1, addr, range, visit) {
                    return false;
                }
            }
        }
        true
    }

    fn collect(
        &self,
        table: u32,
        level: u32,
        base: u64,
        range: AddressRange,
        pages: &mut Vec<(u64, PageSize, Pte)>,
    ) {
        let shift = 12 + 9 * (level - 1);
        let from = range.start.0.saturating_sub(base) >> shift;
        let to = (range.end().0.saturating_sub(base)).div_ceil(1 << shift).min(512);
        for index in from.min(512)..to {
            let entry = self.entries[table as usize][index as usize];
            let addr = base + (index << shift);
            if entry & Pte::PRESENT == 0 {
                continue;
            }
            if entry & Pte::LEAF != 0 {
                pages.push((addr, PageSize::ALL[level as usize - 1], Pte(entry)));
            } else {
                self.collect((entry >> 12) as u32, level - 1, addr, range, pages);
            }
        }
    }
}

#[cfg(test)]
mod tests;
