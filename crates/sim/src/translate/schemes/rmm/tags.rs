//! What ranges keep of the page-table entries that they were made from, and what a store to such an entry takes from them.
//!
//! One co-tag names one entry, and a range has many. Two whole addresses name those of one table, which lie one after the
//! other; so a range that keeps them ends where its table ends, or where its pages have another size.

use super::{Entry, RangeTlb};
use crate::coherence::Ranges;
use crate::os::{Leaf, PageTable};
use crate::translate::{ProbeSets, Probed, RangeStore, RangesFound, Resolution, Run, Target, Tlbs};
use terrace_model::{PageNumber, PageSize, PhysAddr, VirtAddr};

/// In the place of a co-tag: an entry of level 1 was made from a range without addresses. No page table lies there.
const OF_A_RANGE: PhysAddr = PhysAddr(u64::MAX - 7);

/// Where the page-table entries of a range lie: one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    /// The page, in pages of this size, whose entry lies at `address`.
    page: PageNumber,
    size: PageSize,
    address: PhysAddr,
}

impl Tags {
    /// The part of `run` around the page of `addr`, mapped by `leaf`, whose entries lie in one table, and where.
    pub fn within_a_table(run: Run, leaf: &Leaf, addr: VirtAddr, table: &PageTable) -> (Run, Tags) {
        let size = leaf.size;
        let PageNumber(own) = addr.page_number(size);
        let address = table.leaf_address(leaf, addr);
        let index = address.0 >> 3 & 511;
        // Tables of base pages have no others.
        let first_of = |number: u64| VirtAddr::of_page(PageNumber(number), size);
        let is_like = |number: u64| {
            size == PageSize::Base || table.find(first_of(number)).is_some_and(|other| other.size == size)
        };
        let (mut first, mut last) = (own, own);
        while first > own - index && first_of(first) > run.first && is_like(first - 1) {
            first -= 1;
        }
        while last < own - index + 511 && first_of(last + 1) < run.end && is_like(last + 1) {
            last += 1;
        }
        let run = Run {
            first: run.first.max(first_of(first)),
            end: run.end.min(first_of(last + 1)),
            offset: run.offset,
        };
        (run, Tags { page: PageNumber(own), size, address })
    }

    /// Address of the entry that maps an address of the range.
    fn address_of(&self, addr: VirtAddr) -> PhysAddr {
        let PageNumber(page) = addr.page_number(self.size);
        PhysAddr(self.address.0.wrapping_add(page.wrapping_sub(self.page.0).wrapping_mul(8)))
    }

    /// The addresses that the entry at an address of the same table maps: from the first up to the second.
    fn mapped_by(&self, address: PhysAddr) -> (VirtAddr, VirtAddr) {
        let page = self.page.0.wrapping_add((address.0.wrapping_sub(self.address.0) as i64 / 8) as u64);
        let bytes = self.size.bytes();
        (VirtAddr(page.wrapping_mul(bytes)), VirtAddr(page.wrapping_add(1).wrapping_mul(bytes)))
    }
}

impl Entry {
    /// The range from the first to the last of its pages whose entries were stored to.
    fn stored(&self, tags: &Tags, store: &RangeStore) -> Option<(VirtAddr, VirtAddr)> {
        let bounds = tags.address_of(self.run.first)..=tags.address_of(self.run.end - 1);
        let mapped =
            store.addresses().filter(|address| bounds.contains(address)).map(|at| tags.mapped_by(at));
        mapped.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }
}

impl RangeTlb {
    /// The co-tag of an entry of level 1 that the most recent range fills.
    pub(super) fn source_of(&self, addr: VirtAddr) -> PhysAddr {
        let tags = self.entries.first().and_then(|entry| entry.tags);
        tags.map_or(OF_A_RANGE, |tags| tags.address_of(addr))
    }

    /// Entries of a page table were stored to: what was made from them goes.
    pub(super) fn probe(&mut self, store: &RangeStore, how: Ranges) -> RangesFound {
        let mut found = RangesFound::default();
        let mut room = self.capacity - self.entries.len();
        for entry in std::mem::take(&mut self.entries) {
            let Some(tags) = entry.tags else {
                found.dropped += 1;
                continue;
            };
            found.addresses += 2;
            let Some((first, end)) = entry.stored(&tags, store) else {
                self.entries.push(entry);
                continue;
            };
            if how != Ranges::Split {
                found.dropped += 1;
                room += 1;
                continue;
            }
            let run = entry.run;
            let parts = [Run { end: first.max(run.first), ..run }, Run { first: end.min(run.end), ..run }];
            let [shorter, longer] =
                if parts[0].pages() > parts[1].pages() { [1, 0] } else { [0, 1] }.map(|at| parts[at]);
            if longer.pages() == 0 {
                found.dropped += 1;
                room += 1;
                continue;
            }
            found.cut += 1;
            self.entries.push(Entry { run: longer, ..entry });
            if shorter.pages() > 0 && room > 0 {
                room -= 1;
                self.entries.push(Entry { run: shorter, ..entry });
            }
        }
        found
    }
}

/// Entries of level 1 that were made from ranges go, wherever they stand: no directory keeps their sets.
pub(super) fn probe_level_1(tlbs: &mut Tlbs, store: &RangeStore, how: Ranges) -> Probed {
    let target = |address| Target { address, l1: ProbeSets::All, l2: ProbeSets::Listed(Vec::new()) };
    if how == Ranges::SearchAll {
        return tlbs.probe(&target(OF_A_RANGE), Resolution::new(8, false));
    }
    if store.entries == u8::MAX {
        return tlbs.probe(&target(store.line), store.resolution.by_line());
    }
    let mut probed = Probed::default();
    store.addresses().for_each(|address| probed.add(&tlbs.probe(&target(address), store.resolution)));
    probed
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::{Frame, SpaceId, Time};

    /// A run of pages, `offset` frames further up.
    fn run(pages: std::ops::Range<u64>, offset: u64) -> Run {
        Run { first: VirtAddr::of_vpn(pages.start), end: VirtAddr::of_vpn(pages.end), offset: offset << 12 }
    }

    /// Pages 16 to 47 in frames from 116 on, whose entries lie from 0x1080 on; and in one of the tests' other process two
    /// pages.
    fn ranges(capacity: u32) -> RangeTlb {
        let mut ranges = RangeTlb::new(capacity);
        let tags = |page, address| Some(Tags { page, size: PageSize::Base, address: PhysAddr(address) });
        ranges.insert_tagged(SpaceId(0), run(16..48, 100), Time::ZERO, tags(PageNumber(20), 0x10a0));
        ranges.insert_tagged(SpaceId(1), run(4..6, 7), Time::ZERO, tags(PageNumber(4), 0x5020));
        ranges
    }

    fn store(line: u64, entries: u8) -> RangeStore {
        RangeStore { line: PhysAddr(line), entries, resolution: Resolution::new(2, true) }
    }

    /// Which of some pages of the first process are there.
    fn held(ranges: &mut RangeTlb, pages: &[u64]) -> Vec<u64> {
        let is_there = |page: &u64| {
            let frame = ranges.lookup(SpaceId(0), VirtAddr::of_vpn(*page), Time::ZERO);
            assert!(frame.is_none_or(|frame| frame == Frame(page + 100)));
            frame.is_some()
        };
        pages.iter().copied().filter(is_there).collect()
    }

    #[test]
    fn a_store_within_a_range_drops_it_or_cuts_it() {
        // Entries of pages 24 to 31.
        let line = store(0x10c0, u8::MAX);
        let mut cover = ranges(3);
        let found = cover.probe(&line, Ranges::RangeCover);
        assert_eq!((found.dropped, found.cut, found.addresses), (1, 0, 4));
        assert!(held(&mut cover, &[16, 24, 47]).is_empty());
        assert!(cover.holds(SpaceId(1), VirtAddr::of_vpn(5)));
        let mut split = ranges(3);
        let found = split.probe(&line, Ranges::Split);
        assert_eq!((found.dropped, found.cut, found.addresses), (0, 1, 4));
        assert_eq!(held(&mut split, &[16, 23, 24, 31, 32, 47]), [16, 23, 32, 47]);
        // Without room the longer part stays.
        let mut full = ranges(2);
        full.probe(&line, Ranges::Split);
        assert_eq!(held(&mut full, &[16, 23, 24, 31, 32, 47]), [32, 47]);
        assert!(full.holds(SpaceId(1), VirtAddr::of_vpn(5)));
        // One entry alone.
        let mut one = ranges(3);
        one.probe(&store(0x10c0, 1 << 3), Ranges::Split);
        assert_eq!(held(&mut one, &[16, 26, 27, 28, 47]), [16, 26, 28, 47]);
    }

    #[test]
    fn a_store_elsewhere_leaves_ranges_unless_nothing_tells_them_apart() {
        for how in [Ranges::RangeCover, Ranges::Split] {
            let mut ranges = ranges(3);
            // The lines before and after the range's.
            for line in [0x1040, 0x1180] {
                let found = ranges.probe(&store(line, u8::MAX), how);
                assert_eq!((found.dropped, found.cut), (0, 0));
            }
            assert_eq!(held(&mut ranges, &[15, 16, 47, 48]), [16, 47]);
        }
        let mut untagged = RangeTlb::new(2);
        untagged.insert(SpaceId(0), run(16..48, 100), Time::ZERO);
        let found = untagged.probe(&store(0x9000, 1), Ranges::SearchAll);
        assert_eq!((found.dropped, found.addresses), (1, 0));
        assert!(!untagged.holds(SpaceId(0), VirtAddr::of_vpn(16)));
    }

    #[test]
    fn entries_of_level_1_have_the_co_tag_of_their_page() {
        let mut ranges = ranges(3);
        held(&mut ranges, &[30]);
        assert_eq!(ranges.source_of(VirtAddr::of_vpn(30)), PhysAddr(0x1080 + 14 * 8));
        let mut untagged = RangeTlb::new(2);
        untagged.insert(SpaceId(0), run(16..48, 100), Time::ZERO);
        assert_eq!(untagged.source_of(VirtAddr::of_vpn(30)), OF_A_RANGE);
    }
}
