//! x86-64 radix page tables in simulated frames.

#[cfg(test)]
mod tests;

use super::changes::Door;
use super::entry::{Leaf, Pte};
use crate::array::{huge_reserve, prefetch};
use terrace_model::{AddressRange, Frame, PageSize, PhysAddr, VirtAddr};

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

/// Bits of an address that lie within the reach of one entry at `level`.
#[inline(always)]
const fn shift_at(level: u32) -> u32 {
    12 + 9 * (level - 1)
}

#[inline(always)]
const fn index_at(addr: VirtAddr, level: u32) -> usize {
    (addr.0 >> shift_at(level) & 511) as usize
}

/// The size of pages whose entries lie at `level`; the largest above those that map pages.
fn size_at(level: u32) -> PageSize {
    PageSize::ALL[(level as usize - 1).min(PageSize::ALL.len() - 1)]
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
    pub fn find(&self, addr: VirtAddr) -> Option<Leaf> {
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
                return Some(Leaf::new(Pte(entry), PageSize::ALL[level as usize - 1], tables));
            }
            table = (entry >> 12) as u32;
            level -= 1;
        }
    }

    /// The entry of `addr` in table number `table`, which holds base pages, if it is present.
    #[inline(always)]
    pub fn base_entry(&self, table: u32, addr: VirtAddr) -> Option<Pte> {
        let entry = self.entries[table as usize][index_at(addr, 1)];
        (entry & Pte::PRESENT != 0).then_some(Pte(entry))
    }

    /// The entry of `addr` in table number `table`, which holds pages of `size` or points to tables below, if it is one of
    /// a page.
    pub fn leaf_in(&self, table: u32, addr: VirtAddr, size: PageSize) -> Option<Pte> {
        let entry = self.entries[table as usize][index_at(addr, leaf_level(size))];
        (entry & (Pte::PRESENT | Pte::LEAF) == Pte::PRESENT | Pte::LEAF).then_some(Pte(entry))
    }

    /// Asks the host's memory for that entry, ahead of its use; returns the entry's physical address.
    #[inline(always)]
    pub fn prefetch_base_entry(&self, table: u32, addr: VirtAddr) -> PhysAddr {
        let index = index_at(addr, 1);
        prefetch(&self.entries[table as usize], index);
        PhysAddr(self.frames[table as usize].addr().0 + 8 * index as u64)
    }

    /// Physical address of the entry that a walk for `addr` reads at `level`, on the way to `leaf`.
    #[inline(always)]
    pub fn entry_address(&self, leaf: &Leaf, addr: VirtAddr, level: u32) -> PhysAddr {
        let table = leaf.table(level);
        PhysAddr(self.frames[table as usize].addr().0 + 8 * index_at(addr, level) as u64)
    }

    /// Physical address of the entry that maps the page at `addr`, which `leaf` was found in.
    #[inline(always)]
    pub fn leaf_address(&self, leaf: &Leaf, addr: VirtAddr) -> PhysAddr {
        self.entry_address(leaf, addr, leaf_level(leaf.size))
    }

    /// Sets accessed and dirty bits in the entry that `leaf` was found in, as a walker does.
    #[inline]
    pub fn set_bits(&mut self, leaf: &Leaf, addr: VirtAddr, pte: Pte) {
        debug_assert_eq!(pte.cleared(true, true), leaf.pte.cleared(true, true));
        let level = leaf_level(leaf.size);
        self.entries[leaf.table(level) as usize][index_at(addr, level)] = pte.0;
    }

    /// Replaces an entry: what the kernel changes, it changes here.
    fn write(&mut self, table: u32, level: u32, addr: VirtAddr, new: Pte, door: &mut Door<'_>) {
        let index = index_at(addr, level);
        let old = Pte(std::mem::replace(&mut self.entries[table as usize][index], new.0));
        if old != new {
            let entry = PhysAddr(self.frames[table as usize].addr().0 + 8 * index as u64);
            door.stored(
                entry,
                VirtAddr(addr.0 >> shift_at(level) << shift_at(level)),
                size_at(level),
                old,
                new,
            );
        }
    }

    /// Replaces the entry that `leaf` was found in.
    pub fn store(&mut self, leaf: &Leaf, addr: VirtAddr, pte: Pte, door: &mut Door<'_>) {
        let level = leaf_level(leaf.size);
        self.write(leaf.table(level), level, addr, pte, door);
    }

    /// Maps the page of `size` at `addr`. Missing tables are made in frames from `new_frame`.
    ///
    /// Gives back `None` without a change when something smaller or equal is mapped there, or `new_frame` fails.
    pub fn map(
        &mut self,
        addr: VirtAddr,
        size: PageSize,
        pte: Pte,
        door: &mut Door<'_>,
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
                self.write(table, level, addr, Pte(u64::from(next) << 12 | Pte::PRESENT), door);
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
        self.write(table, level, addr, pte, door);
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
    fn is_empty_below(&self, table: u32, addr: VirtAddr, level: u32) -> bool {
        let entry = self.entries[table as usize][index_at(addr, level)];
        if entry & Pte::PRESENT == 0 {
            return true;
        }
        if entry & Pte::LEAF != 0 {
            return false;
        }
        let below = (entry >> 12) as u32;
        (0..512u64).all(|i| self.is_empty_below(below, VirtAddr(i << shift_at(level - 1)), level - 1))
    }

    /// Whether nothing is mapped in the page of `size` that holds `addr`.
    pub fn is_region_empty(&self, addr: VirtAddr, size: PageSize) -> bool {
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
    pub fn unmap(&mut self, addr: VirtAddr, door: &mut Door<'_>) -> Option<Leaf> {
        let leaf = self.find(addr)?;
        self.store(&leaf, addr, Pte::ABSENT, door);
        Some(leaf)
    }

    /// All pages that overlap `range`: first address, size, entry; by address.
    pub fn pages_in(&self, range: AddressRange) -> Vec<(VirtAddr, PageSize, Pte)> {
        let mut pages = Vec::new();
        self.collect(0, self.levels, VirtAddr(0), range, &mut pages);
        pages
    }

    /// Shows every page whose first byte lies in `range`, by address, until `visit` returns false; it may change the entry.
    /// Returns whether all were shown.
    pub fn visit(
        &mut self,
        range: AddressRange,
        door: &mut Door<'_>,
        mut visit: impl FnMut(VirtAddr, PageSize, &mut Pte) -> bool,
    ) -> bool {
        self.visit_below(0, self.levels, VirtAddr(0), range, door, &mut visit)
    }

    fn visit_below(
        &mut self,
        table: u32,
        level: u32,
        base: VirtAddr,
        range: AddressRange,
        door: &mut Door<'_>,
        visit: &mut impl FnMut(VirtAddr, PageSize, &mut Pte) -> bool,
    ) -> bool {
        let shift = shift_at(level);
        let from = range.start.0.saturating_sub(base.0) >> shift;
        let to = (range.end().0.saturating_sub(base.0)).div_ceil(1 << shift).min(512);
        for index in from.min(512)..to {
            let entry = self.entries[table as usize][index as usize];
            let addr = base + (index << shift);
            if entry & Pte::PRESENT == 0 {
                continue;
            }
            if entry & Pte::LEAF != 0 {
                if addr < range.start {
                    continue;
                }
                let mut pte = Pte(entry);
                let goes_on = visit(addr, PageSize::ALL[level as usize - 1], &mut pte);
                self.write(table, level, addr, pte, door);
                if !goes_on {
                    return false;
                }
            } else {
                let below = (entry >> 12) as u32;
                if !self.visit_below(below, level - 1, addr, range, door, visit) {
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
        base: VirtAddr,
        range: AddressRange,
        pages: &mut Vec<(VirtAddr, PageSize, Pte)>,
    ) {
        let shift = shift_at(level);
        let from = range.start.0.saturating_sub(base.0) >> shift;
        let to = (range.end().0.saturating_sub(base.0)).div_ceil(1 << shift).min(512);
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
