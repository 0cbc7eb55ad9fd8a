//! Address ranges with a number each, which never overlap.

use crate::{AddressRange, VirtAddr};
use std::collections::BTreeMap;

/// Ranges by first address: end and number.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ranges: BTreeMap<VirtAddr, (VirtAddr, u32)>,
}

impl Ranges {
    /// The range that holds `addr`, and its number.
    pub fn find(&self, addr: VirtAddr) -> Option<(AddressRange, u32)> {
        let (&start, &(end, number)) = self.ranges.range(..=addr).next_back()?;
        (end > addr).then_some((AddressRange::between(start, end), number))
    }

    /// All ranges, by address.
    pub fn iter(&self) -> impl Iterator<Item = AddressRange> {
        self.ranges.iter().map(|(&start, &(end, _))| AddressRange::between(start, end))
    }

    /// All ranges with their numbers, by address.
    pub fn numbered(&self) -> impl Iterator<Item = (AddressRange, u32)> {
        self.ranges.iter().map(|(&start, &(end, number))| (AddressRange::between(start, end), number))
    }

    /// The begin of the first range after `addr`.
    pub fn next_after(&self, addr: VirtAddr) -> Option<VirtAddr> {
        self.ranges.range(addr.checked_add(1)?..).next().map(|(start, _)| *start)
    }

    /// Gives a range its number; what was there loses its own.
    pub fn insert(&mut self, range: AddressRange, number: u32) {
        if range.bytes > 0 {
            self.remove(range);
            self.ranges.insert(range.start, (range.end(), number));
        }
    }

    /// Takes the numbers of a range away.
    pub fn remove(&mut self, range: AddressRange) {
        self.take(range);
    }

    /// Takes the numbers of a range away; its parts that had one.
    fn take(&mut self, range: AddressRange) -> Vec<(VirtAddr, VirtAddr, u32)> {
        self.split(range.start);
        self.split(range.end());
        let inside = self.ranges.range(range.start..range.end());
        let taken: Vec<_> = inside.map(|(&start, &(end, number))| (start, end, number)).collect();
        for (start, _, _) in &taken {
            self.ranges.remove(start);
        }
        taken
    }

    /// Numbers go with their contents; where `to` is longer, the last one grows.
    pub fn remap(&mut self, from: AddressRange, to: AddressRange) {
        let moved = self.take(from);
        self.remove(to);
        let mut last = None;
        for (start, end, number) in moved {
            let (start, end) = (to.start + (start - from.start), to.start + (end - from.start));
            if start < to.end() {
                self.ranges.insert(start, (end.min(to.end()), number));
                last = Some(start);
            }
        }
        if let Some((end, _)) = last.and_then(|start| self.ranges.get_mut(&start)) {
            *end = to.end();
        }
    }

    fn split(&mut self, addr: VirtAddr) {
        if let Some((_, (end, number))) = self.ranges.range_mut(..addr).next_back()
            && *end > addr
        {
            let upper = (*end, *number);
            *end = addr;
            self.ranges.insert(addr, upper);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ranges_cut_earlier_ones_and_remaps_carry_numbers() {
        let mut ranges = Ranges::default();
        let found = |start, end, number| Some((AddressRange::new(start, end - start), number));
        ranges.insert(AddressRange::new(0x1000, 0x9000), 1);
        ranges.insert(AddressRange::new(0x3000, 0x1000), 2);
        assert_eq!(ranges.find(VirtAddr(0x2fff)), found(0x1000, 0x3000, 1));
        assert_eq!(ranges.find(VirtAddr(0x3000)), found(0x3000, 0x4000, 2));
        assert_eq!(ranges.find(VirtAddr(0x4000)), found(0x4000, 0xa000, 1));
        assert_eq!(ranges.next_after(VirtAddr(0x3000)), Some(VirtAddr(0x4000)));
        ranges.remap(AddressRange::new(0x2000, 0x2000), AddressRange::new(0x20000, 0x3000));
        assert_eq!(ranges.find(VirtAddr(0x2000)), None);
        assert_eq!(ranges.find(VirtAddr(0x20000)), found(0x20000, 0x21000, 1));
        assert_eq!(ranges.find(VirtAddr(0x22fff)), found(0x21000, 0x23000, 2));
        ranges.remove(AddressRange::ALL);
        assert_eq!(ranges.find(VirtAddr(0x20000)), None);
    }
}
