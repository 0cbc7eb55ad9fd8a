//! What one entry of a page table says.

use terrace_model::{Frame, PageSize, PhysAddr, VirtAddr};

/// A leaf page-table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte(pub(super) u64);

impl Pte {
    pub(super) const PRESENT: u64 = 1;
    pub(super) const LEAF: u64 = 1 << 1;
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

    /// What narrows the rights of a page as cores see it.
    const NARROWS: u64 = Pte::TRAPS | Pte::HELD | Pte::COPY_ON_WRITE;
    /// No page.
    pub(in crate::os) const ABSENT: Pte = Pte(0);

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

    /// A page, or a table below.
    pub(in crate::os) const fn is_present(self) -> bool {
        self.0 & Pte::PRESENT != 0
    }

    /// Whether a translation made from `old`, the entry before, is wrong now. Nobody makes one from a held entry.
    pub(in crate::os) const fn makes_stale(self, old: Pte) -> bool {
        let leaf = Pte::PRESENT | Pte::LEAF;
        let was_usable = old.0 & (leaf | Pte::HELD) == leaf;
        let is_another = self.0 & leaf != leaf || self.0 >> 12 != old.0 >> 12;
        was_usable && (is_another || self.0 & !old.0 & Pte::NARROWS != 0)
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

    /// This page in another frame.
    #[must_use]
    pub const fn moved_to(self, frame: Frame) -> Pte {
        Pte(self.0 & 0xfff | frame.0 << 12)
    }

    /// Another page's contents in this one's place: its frame, and the bits that walks set there.
    #[must_use]
    pub const fn with_contents_of(self, other: Pte) -> Pte {
        let bits = Pte::ACCESSED | Pte::DIRTY;
        Pte(self.0 & 0xfff & !bits | other.0 & (!0xfff | bits))
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
    /// The table of base pages that was visited.
    lowest: u32,
    /// The table above it. Both are apart from the others, so that the most frequent walks keep them in registers.
    above: u32,
    /// The tables further up, of levels 3 and higher.
    upper: [u32; 3],
}

impl Leaf {
    /// A leaf, from the tables visited: the root at index `levels - 1`, the leaf's table at index `size`'s level - 1.
    #[inline(always)]
    pub(super) fn new(pte: Pte, size: PageSize, tables: [u32; 5]) -> Leaf {
        let [lowest, above, upper @ ..] = tables;
        Leaf { pte, size, lowest, above, upper }
    }

    /// The leaf of a base page, from the numbers of its table and of the one above. [`super::PageTable::entry_address`] of
    /// higher levels is not for it.
    #[inline(always)]
    pub fn of_base_page(pte: Pte, table: u32, above: u32) -> Leaf {
        Leaf { pte, size: PageSize::Base, lowest: table, above, upper: [NO_TABLE; 3] }
    }

    /// The base frame that holds `addr`, an address in the page.
    #[inline(always)]
    pub fn frame_of(&self, addr: VirtAddr) -> Frame {
        self.pte.frame().plus(addr.page_offset(self.size) >> PageSize::Base.shift())
    }

    /// Where `addr`, an address in the page, lies.
    #[inline(always)]
    pub fn place_of(&self, addr: VirtAddr) -> PhysAddr {
        self.pte.frame().addr() + addr.page_offset(self.size)
    }

    /// Number of the table at `level` on the way to the entry, if it is known.
    #[inline(always)]
    pub fn table(&self, level: u32) -> u32 {
        match level {
            1 => self.lowest,
            2 => self.above,
            _ => self.upper[level as usize - 3],
        }
    }

    /// Whether the tables up to `level` are known.
    #[inline(always)]
    pub fn knows(&self, level: u32) -> bool {
        self.table(level) != NO_TABLE
    }
}
