//! Which large pages there are, and how often faults got one.

use crate::{Area, AreaKind, Fault, MemorySystem, PageId, PageRange, Placement, Report, Topology};
use std::collections::{BTreeMap, BTreeSet};
use terrace_model::{PageSize, TierId};

/// Whether an area is private memory without a file, stacks included.
pub fn is_private(area: &Area) -> bool {
    matches!(area.kind, AreaKind::Anonymous | AreaKind::Stack)
}

/// Whether large pages of the transparent kind may lie in an area: private memory but stacks, unless the program wants none
/// there (`MADV_NOHUGEPAGE`). Linux takes the stacks of threads as if they said so (since 6.7), and that of a process grows
/// page by page.
pub fn takes_large_pages(area: &Area) -> bool {
    area.kind == AreaKind::Anonymous && area.huge_advice != Some(false)
}

/// How fragmented the free memory of a tier is, for pages of `size`: the share of it that lies in smaller blocks. 0 where
/// all of it could be used, 1 where none could (Gorman and Healy, ISMM 2008; FMFI of Ingens). None where the world shows no
/// frames; 1 where nothing is free.
pub fn fragmentation(tier: TierId, size: PageSize, memory: &mut dyn MemorySystem) -> Option<f64> {
    let free = memory.topology().free_pages(tier);
    let (blocks, _) = memory.physical()?.free_blocks(tier, size);
    let usable = (blocks * size.base_pages()) as f64;
    Some(if free == 0 { 1.0 } else { (1.0 - usable / free as f64).max(0.0) })
}

/// Asks for `sizes`, the largest first, and for a base page: in one tier after the other, each down to its base pages.
/// Areas that take no large pages are left to the world, but for reserved ones.
pub fn largest_first(fault: &Fault, sizes: &[PageSize], topology: &Topology) -> Placement {
    if !takes_large_pages(&fault.area) && fault.area.kind != AreaKind::HugeTlb {
        return Placement::ANYWHERE;
    }
    let largest = fault.area.largest_page(fault.page);
    let sizes = || sizes.iter().filter(|size| **size <= largest).chain(&[PageSize::Base]);
    let all = topology.ids().flat_map(|tier| sizes().map(move |size| (tier, *size)));
    all.fold(Placement::ANYWHERE, |wishes, (tier, size)| wishes.or(tier, Some(size)))
}

/// The large pages that a policy knows of. An entry per page of 2 MiB or more, none for base pages.
#[derive(Clone, Debug, Default)]
pub struct LargePages {
    pages: BTreeMap<PageId, PageSize>,
    giant: u64,
    huge: u64,
}

impl LargePages {
    fn count_mut(&mut self, size: PageSize) -> &mut u64 {
        if size == PageSize::Giant { &mut self.giant } else { &mut self.huge }
    }

    /// How many there are of `size`.
    pub fn count(&self, size: PageSize) -> u64 {
        match size {
            PageSize::Base => 0,
            PageSize::Huge => self.huge,
            PageSize::Giant => self.giant,
        }
    }

    /// A page is there now; what it was joined of is not.
    pub fn appeared(&mut self, page: PageId, size: PageSize) {
        self.forget(PageRange::of(page, size));
        if size > PageSize::Base {
            self.pages.insert(page, size);
            *self.count_mut(size) += 1;
        }
    }

    /// An order to make a page of `size` was carried out. The page is there only where memory has it: a dry run answers
    /// orders as carried out, and joins nothing.
    pub fn joined(&mut self, page: PageId, size: PageSize, memory: &mut dyn MemorySystem) {
        if memory.page(page).is_some_and(|view| view.size >= size) {
            self.appeared(page, size);
        }
    }

    /// Pages that reach into `range` are no large pages any more: unmapped, or split.
    pub fn forget(&mut self, range: PageRange) {
        let end = PageId { space: range.first.space, vpn: range.end() };
        // The one that reaches in from below begins at an aligned place.
        let below = [PageSize::Huge, PageSize::Giant].map(|size| range.first.aligned(size));
        let inside = self.pages.range(range.first..end).map(|(page, _)| *page);
        let gone: Vec<PageId> = below.into_iter().chain(inside).collect();
        for page in gone {
            let reaches = |size: &PageSize| page.vpn + size.base_pages() > range.first.vpn;
            if self.pages.get(&page).is_some_and(reaches)
                && let Some(size) = self.pages.remove(&page)
            {
                *self.count_mut(size) -= 1;
            }
        }
    }

    /// The first page from `hand` on.
    pub fn next(&self, hand: PageId) -> Option<(PageId, PageSize)> {
        self.pages.range(hand..).next().map(|(page, size)| (*page, *size))
    }

    /// Adds how much is mapped by pages of each size.
    pub fn report(&self, report: &mut Report) {
        report.bytes("mapped_1g", self.giant * PageSize::Giant.bytes());
        report.bytes("mapped_2m", self.huge * PageSize::Huge.bytes());
    }
}

/// Tries of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// Allocations asked for.
    pub tried: u64,
    /// Allocations that the allocator could not grant.
    pub failed: u64,
}

/// How often a fault asked for a large page and got none. A fault asks where the range that the page would cover has no
/// page yet, so every range is counted once until it is unmapped.
#[derive(Clone, Debug, Default)]
pub struct FaultSizes {
    /// Ranges that hold smaller pages: by size, then by first page.
    begun: [BTreeSet<PageId>; 2],
    /// Faults for 2 MiB and for 1 GiB.
    tries: [Tries; 2],
    /// Pages of the largest size whose block was zeroed ahead, and those that the fault had to fill.
    pub zeroed_hits: u64,
    /// See `zeroed_hits`.
    pub zeroed_misses: u64,
}

/// Both large sizes, with their places in arrays.
const LARGE: [(usize, PageSize); 2] = [(0, PageSize::Huge), (1, PageSize::Giant)];

impl FaultSizes {
    /// A fault brought in `page` in an area whose largest page there is `largest`, by a policy that asks for `sizes`.
    pub fn allocated(
        &mut self,
        page: PageId,
        size: PageSize,
        zeroed: bool,
        largest: PageSize,
        sizes: &[PageSize],
    ) {
        if sizes.iter().max() == Some(&size) && size > PageSize::Base {
            *(if zeroed { &mut self.zeroed_hits } else { &mut self.zeroed_misses }) += 1;
        }
        for (at, wanted) in LARGE {
            if wanted > largest || wanted < size || !sizes.contains(&wanted) {
                continue;
            }
            if size == wanted {
                self.tries[at].tried += 1;
            } else if self.begun[at].insert(page.aligned(wanted)) {
                self.tries[at].tried += 1;
                self.tries[at].failed += 1;
            }
        }
    }

    /// The page was taken apart: faults in it ask for base pages only.
    pub fn split(&mut self, page: PageId, size: PageSize) {
        for (at, wanted) in LARGE {
            if wanted <= size {
                let step = wanted.base_pages();
                let parts = (0..size.base_pages()).step_by(step as usize);
                self.begun[at].extend(parts.map(|part| page.plus(part)));
            }
        }
    }

    /// A range is not mapped any more.
    pub fn unmapped(&mut self, range: PageRange) {
        let end = PageId { space: range.first.space, vpn: range.end() };
        for (at, size) in LARGE {
            let inside = self.begun[at].range(range.first..end).copied();
            let whole = inside.filter(|page| range.covers(PageRange::of(*page, size)));
            for page in whole.collect::<Vec<_>>() {
                self.begun[at].remove(&page);
            }
        }
    }

    /// What became of faults that asked for `size`.
    pub fn of(&self, size: PageSize) -> Tries {
        LARGE.iter().find(|(_, large)| *large == size).map_or_else(Tries::default, |(at, _)| self.tries[*at])
    }

    /// Adds the counts.
    pub fn report(&self, report: &mut Report) {
        for (name, (at, _)) in ["2m", "1g"].into_iter().zip(LARGE) {
            report.count(&format!("fault_{name}_tried"), self.tries[at].tried);
            report.count(&format!("fault_{name}_failed"), self.tries[at].failed);
        }
        report.count("zeroed_hits", self.zeroed_hits);
        report.count("zeroed_misses", self.zeroed_misses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InMemory, Moment, Resize};
    use PageSize::{Base, Giant, Huge};
    use terrace_model::{Bytes, Time};

    fn at(vpn: u64) -> PageId {
        PageId::new(0, vpn)
    }

    #[test]
    fn pages_come_and_go() {
        let mut pages = LargePages::default();
        for vpn in [0, 512, 1024] {
            pages.appeared(at(vpn), Huge);
        }
        pages.appeared(at(0), Giant);
        assert_eq!((pages.count(Huge), pages.count(Giant)), (0, 1));
        pages.forget(PageRange::new(at(262_143), 1));
        assert_eq!(pages.count(Giant), 0, "what reaches in from below is split");
        pages.appeared(at(512), Huge);
        pages.forget(PageRange::new(at(1024), 1));
        pages.forget(PageRange::new(at(0), 512));
        assert_eq!((pages.count(Huge), pages.next(at(0))), (1, Some((at(512), Huge))));
        pages.appeared(at(513), Base);
        assert_eq!(pages.count(Huge), 0);
    }

    /// A dry run says of every order that it was carried out.
    #[test]
    fn what_was_ordered_is_a_page_only_where_memory_has_it() {
        let mut world = InMemory::new(&[("dram", Bytes::mib(8))]);
        world.map_anonymous(0, 0, 1024);
        let fault = world.touch(at(0), true).unwrap();
        world.fault_in(&fault, &Placement::ANYWHERE);
        let mut pages = LargePages::default();
        pages.joined(at(0), Huge, &mut world);
        pages.joined(at(512), Huge, &mut world);
        assert_eq!(pages.count(Huge), 0);
        world.resize(&[Resize { page: at(0), to: Huge }]);
        world.advance_to(Moment::START.plus(Time::from_nanos(1_000_000_000)));
        pages.joined(at(0), Huge, &mut world);
        assert_eq!(pages.count(Huge), 1);
    }

    #[test]
    fn a_range_is_tried_once() {
        let mut faults = FaultSizes::default();
        let sizes = [Giant, Huge];
        faults.allocated(at(0), Huge, true, Giant, &sizes);
        faults.allocated(at(512), Base, false, Giant, &sizes);
        faults.allocated(at(513), Base, false, Giant, &sizes);
        assert_eq!(faults.of(Giant), Tries { tried: 1, failed: 1 });
        assert_eq!(faults.of(Huge), Tries { tried: 2, failed: 1 });
        faults.unmapped(PageRange::new(at(512), 512));
        faults.allocated(at(512), Base, false, Giant, &[Giant]);
        assert_eq!((faults.of(Giant).tried, faults.of(Huge).tried), (1, 2), "2 MiB was not asked for");
        faults.allocated(at(1 << 18), Giant, true, Giant, &sizes);
        assert_eq!((faults.of(Giant).tried, faults.zeroed_hits, faults.zeroed_misses), (2, 1, 0));
        faults.split(at(1 << 18), Giant);
        faults.allocated(at((1 << 18) + 5), Base, false, Giant, &sizes);
        assert_eq!((faults.of(Giant).tried, faults.of(Huge).tried), (2, 2));
    }
}
