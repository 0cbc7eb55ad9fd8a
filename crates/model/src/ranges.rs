//! Address ranges with a number each, which never overlap.

use crate::AddressRange;
use std::collections::BTreeMap;

/// Ranges by first address: end and number.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ranges: BTreeMap<u64, (u64, u32)>,
}

impl Ranges {
    /// The range that holds `addr`: begin, end, number.
    pub fn find(&self, addr: u64) -> Option<(u64, u64, u32)> {
        let (&start, &(end, number)) = self.ranges.range(..=addr).next_back()?;
        (end > addr).then_some((start, end, number))
    }

    /// All ranges, by address.
    pub fn iter(&self) -> impl Iterator<Item = AddressRange> {
        self.ranges.iter().map(|(&start, &(end, _))| AddressRange::new(start, end - start))
    }

    /// All ranges with their numbers, by address.
    pub fn numbered(&self) -> impl Iterator<Item = (AddressRange, u32)> {
        self.ranges.iter().map(|(&start, &(end, number))| (AddressRange::new(start, end - start), number))
    }

    /// The begin of the first range after `addr`.
    pub fn next_after(&self, addr: u64) -> Option<u64> {
        self.ranges.range(addr.checked_add(1)?..).next().map(|(start, _)| *start)
    }

    /// Gives a range its number; what was there loses its own.
    pub fn insert(&mut self, range: AddressRange, number: u32) {
        if range.bytes > 0 {
            self.remove(range);
            self.ranges.insert(range.start.0, (range.end().0, number));
        }
    }

    /// Takes the numbers of a range away.
    pub fn remove(&mut self, range: AddressRange) {
        self.take(range);
    }

    /// Takes the numbers of a range away; its parts that had one.
    fn take(&mut self, range: AddressRange) -> Vec<(u64, u64, u32)> {
        self.split(range.start.0);
        self.split(range.end().0);
        let inside = self.ranges.range(range.start.0..range.end().0);
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
            let (start, end) = (start - from.start.0 + to.start.0, end - from.start.0 + to.start.0);
            if start < to.end().0 {
                self.ranges.insert(start, (end.min(to.end().0), number));
                last = Some(start);
            }
        }
        if let Some((end, _)) = last.and_then(|start| self.ranges.get_mut(&start)) {
            *end = to.end().0;
        }
    }

    fn split(&mut self, addr: u64) {
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
        ranges.insert(AddressRange::new(0x1000, 0x9000), 1);
        ranges.insert(AddressRange::new(0x3000, 0x1000), 2);
        assert_eq!(ranges.find(0x2fff), Some((0x1000, 0x3000, 1)));
        assert_eq!(ranges.find(0x3000), Some((0x3000, 0x4000, 2)));
        assert_eq!(ranges.find(0x4000), Some((0x4000, 0xa000, 1)));
        assert_eq!(ranges.next_after(0x3000), Some(0x4000));
        ranges.remap(AddressRange::new(0x2000, 0x2000), AddressRange::new(0x20000, 0x3000));
        assert_eq!(ranges.find(0x2000), None);
        assert_eq!(ranges.find(0x20000), Some((0x20000, 0x21000, 1)));
        assert_eq!(ranges.find(0x22fff), Some((0x21000, 0x23000, 2)));
        ranges.remove(AddressRange::new(0, u64::MAX));
        assert_eq!(ranges.find(0x20000), None);
    }
}
