//! The kernel's view of contiguity: for each process, the runs of its page table.
//!
//! A run is a maximal row of base pages in frames in a row; larger pages count as the base pages they hold. Only pages
//! belong that nothing stands before: none that is watched, on the move or shared since a fork. A run is known from the
//! first walk to one of its pages on, and what a shootdown names is forgotten, so that the table never says more than
//! the page table. Everything here is bookkeeping of the simulated kernel and costs no simulated time: the sources build
//! it while allocating.

use crate::os::PageTable;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use terrace_model::{AddressRange, Bytes, PageSize, PhysAddr, SpaceId, VirtAddr};

/// Ranges in a node of the range table.
const RANGES_PER_NODE: u64 = 4;

/// A run: base pages in a row, in frames in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First address of the first page.
    pub first: VirtAddr,
    /// First address after the last page.
    pub end: VirtAddr,
    /// Added to an address gives where it lies, modulo 2^64.
    pub offset: u64,
}

impl Run {
    /// What it covers.
    pub fn range(&self) -> AddressRange {
        AddressRange::between(self.first, self.end)
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.first) >> PageSize::Base.shift()
    }

    /// Whether an address lies in it.
    #[inline(always)]
    pub fn holds(&self, addr: VirtAddr) -> bool {
        self.first.0 <= addr.0 && addr.0 < self.end.0
    }

    /// Whether it has an address of `range`.
    #[inline(always)]
    pub fn overlaps(&self, range: &AddressRange) -> bool {
        self.first.0 < range.end().0 && range.start.0 < self.end.0
    }

    /// Where an address lies that is in it.
    #[inline]
    pub fn place_of(&self, addr: VirtAddr) -> PhysAddr {
        PhysAddr(addr.0.wrapping_add(self.offset))
    }
}

#[derive(Clone, Debug, Default)]
struct Table {
    /// End and offset of each run, by first address.
    runs: BTreeMap<VirtAddr, (VirtAddr, u64)>,
    /// The runs that are long enough, by length; the lowest address last among equals.
    long: BTreeSet<(u64, Reverse<VirtAddr>)>,
    covered: u64,
}

impl Table {
    fn insert(&mut self, run: Run, least: u64) {
        self.runs.insert(run.first, (run.end, run.offset));
        if run.pages() >= least {
            self.long.insert((run.pages(), Reverse(run.first)));
            self.covered += run.pages();
        }
    }

    fn remove(&mut self, run: Run) {
        self.runs.remove(&run.first);
        if self.long.remove(&(run.pages(), Reverse(run.first))) {
            self.covered -= run.pages();
        }
    }

    /// The last run that begins before an address.
    fn before(&self, addr: VirtAddr) -> Option<Run> {
        let (&first, &(end, offset)) = self.runs.range(..addr).next_back()?;
        Some(Run { first, end, offset })
    }

    /// The first run that begins at an address or later.
    fn from(&self, addr: VirtAddr) -> Option<Run> {
        let (&first, &(end, offset)) = self.runs.range(addr..).next()?;
        Some(Run { first, end, offset })
    }

    fn find(&self, addr: VirtAddr) -> Option<Run> {
        self.before(addr.saturating_add(1)).filter(|run| addr.0 < run.end.0)
    }
}

/// The shortest run that counts, in base pages.
fn least_pages(least: Bytes) -> u64 {
    least.0.div_ceil(4096).max(1)
}

/// The runs of all processes.
#[derive(Clone, Debug)]
pub struct RangeTables {
    tables: Vec<Table>,
    /// Length in pages from which a run is a range.
    least: u64,
}

impl RangeTables {
    /// No process has a run yet; those of `least` bytes and more are ranges.
    pub fn new(least: Bytes) -> RangeTables {
        RangeTables { tables: Vec::new(), least: least_pages(least) }
    }

    /// The range that holds an address.
    pub fn range(&self, space: SpaceId, addr: VirtAddr) -> Option<Run> {
        self.tables.get(space.index())?.find(addr).filter(|run| run.pages() >= self.least)
    }

    /// The longest range of a process; that of the lowest address where there are several.
    pub fn longest(&self, space: SpaceId) -> Option<Run> {
        let table = self.tables.get(space.index())?;
        let (_, Reverse(first)) = table.long.last()?;
        table.find(*first)
    }

    /// Levels of the tree that holds a process's ranges.
    pub fn depth(&self, space: SpaceId) -> u64 {
        let ranges = self.tables.get(space.index()).map_or(0, |table| table.long.len() as u64);
        let (mut depth, mut room) = (1, RANGES_PER_NODE);
        while room < ranges {
            depth += 1;
            room = room * (RANGES_PER_NODE + 1) + RANGES_PER_NODE;
        }
        depth
    }

    /// Base pages in ranges, over all processes.
    pub fn covered(&self) -> u64 {
        self.tables.iter().map(|table| table.covered).sum()
    }

    /// A walk came by the page of `addr`: finds its run, joining what it touches.
    pub fn learn(&mut self, space: SpaceId, addr: VirtAddr, table: &PageTable) {
        let at = space.index();
        if self.tables.len() <= at {
            self.tables.resize(at + 1, Table::default());
        }
        let own = &mut self.tables[at];
        let page = addr.align_down(PageSize::Base);
        if own.find(page).is_some() {
            return;
        }
        // The part of the page at `page` that no run holds, if it belongs to one, and its offset.
        let part = |own: &Table, page: VirtAddr| {
            let leaf = table.find(page).filter(|leaf| leaf.pte.is_plain())?;
            let whole = AddressRange::of_page(page, leaf.size);
            let first = own.before(page + 1).map_or(whole.start, |run| run.end.max(whole.start));
            let end = own.from(page).map_or(whole.end(), |run| run.first.min(whole.end()));
            Some(Run { first, end, offset: leaf.pte.frame().addr().0.wrapping_sub(whole.start.0) })
        };
        let Some(mut run) = part(own, page) else { return };
        while run.first > VirtAddr(0) {
            let before = run.first - PageSize::Base.bytes();
            let left = own.find(before);
            let known = left.is_some();
            match left.or_else(|| part(own, before)) {
                Some(left) if left.offset == run.offset => {
                    if known {
                        own.remove(left);
                    }
                    run.first = left.first;
                }
                _ => break,
            }
        }
        loop {
            let right = own.find(run.end);
            let known = right.is_some();
            match right.or_else(|| part(own, run.end)) {
                Some(right) if right.offset == run.offset => {
                    if known {
                        own.remove(right);
                    }
                    run.end = right.end;
                }
                _ => break,
            }
        }
        own.insert(run, self.least);
    }

    /// The pages of `range` changed: runs are cut there.
    pub fn forget(&mut self, space: SpaceId, range: AddressRange) {
        let Some(table) = self.tables.get_mut(space.index()) else { return };
        let changed = range.page_cover(PageSize::Base);
        let (first, end) = (changed.start, changed.end());
        while let Some(run) = table.before(end).filter(|run| run.end > first) {
            table.remove(run);
            if run.end > end {
                table.insert(Run { first: end, ..run }, self.least);
            }
            if run.first < first {
                table.insert(Run { end: first, ..run }, self.least);
            }
        }
    }
}
