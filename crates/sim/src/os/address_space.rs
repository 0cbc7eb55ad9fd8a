//! The areas of an address space: what is mapped where, as the program asked.

use std::collections::BTreeMap;
use terrace_model::{AddressRange, VirtAddr};
use terrace_trace::{MapKind, Protection};

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First address after it.
    pub end: VirtAddr,
    /// What backs it.
    pub kind: MapKind,
    /// What is allowed.
    pub protection: Protection,
    /// Huge pages asked for (`Some(true)`), refused (`Some(false)`), or not mentioned.
    pub huge_advice: Option<bool>,
}

/// All mappings of a process, by first address; they never overlap.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    areas: BTreeMap<VirtAddr, Area>,
    /// What was found last, until something changes: faults mostly follow each other in one area.
    last: Option<(VirtAddr, Area)>,
}

impl AddressSpace {
    /// The area that holds `addr`, with its first address.
    pub fn find(&self, addr: VirtAddr) -> Option<(VirtAddr, Area)> {
        let (&start, &area) = self.areas.range(..=addr).next_back()?;
        (area.end > addr).then_some((start, area))
    }

    /// As [`AddressSpace::find`], for one address after another.
    pub fn find_next(&mut self, addr: VirtAddr) -> Option<(VirtAddr, Area)> {
        match self.last {
            Some((start, area)) if (start..area.end).contains(&addr) => {}
            _ => self.last = self.find(addr),
        }
        self.last
    }

    /// Whether any area overlaps `range`.
    pub fn overlaps(&self, range: AddressRange) -> bool {
        self.areas.range(..range.end()).next_back().is_some_and(|(_, area)| area.end > range.start)
    }

    /// Maps `range`, replacing what was there.
    pub fn map(&mut self, range: AddressRange, kind: MapKind, protection: Protection) {
        if range.bytes == 0 {
            return;
        }
        self.unmap(range);
        let area = Area { end: range.end(), kind, protection, huge_advice: None };
        self.areas.insert(range.start, area);
        self.merge_with_neighbours(range.start);
    }

    /// Joins an area with equal neighbours, as kernels do: a heap that grows stays one area.
    fn merge_with_neighbours(&mut self, start: VirtAddr) {
        let alike = |a: &Area, b: &Area| {
            (a.kind, a.protection, a.huge_advice) == (b.kind, b.protection, b.huge_advice)
        };
        let Some(mut area) = self.areas.get(&start).copied() else { return };
        if let Some(next) = self.areas.get(&area.end).copied()
            && alike(&area, &next)
        {
            self.areas.remove(&area.end);
            area.end = next.end;
            self.areas.insert(start, area);
        }
        if let Some((&before, &previous)) = self.areas.range(..start).next_back()
            && previous.end == start
            && alike(&area, &previous)
        {
            self.areas.remove(&start);
            self.areas.insert(before, area);
        }
    }

    /// Unmaps `range`, splitting the areas at its ends.
    pub fn unmap(&mut self, range: AddressRange) {
        self.split(range.start);
        self.split(range.end());
        let inside: Vec<VirtAddr> =
            self.areas.range(range.start..range.end()).map(|(&start, _)| start).collect();
        for start in inside {
            self.areas.remove(&start);
        }
    }

    /// Moves the areas of `from` to `to.start`; where `to` is longer, the last area grows.
    pub fn remap(&mut self, from: AddressRange, to: AddressRange) {
        self.split(from.start);
        self.split(from.end());
        let moved: Vec<(VirtAddr, Area)> =
            self.areas.range(from.start..from.end()).map(|(&start, &area)| (start, area)).collect();
        for (start, _) in &moved {
            self.areas.remove(start);
        }
        self.unmap(to);
        let mut last = None;
        for (start, mut area) in moved {
            let new_start = to.start + (start - from.start);
            area.end = (to.start + (area.end - from.start)).min(to.end());
            if new_start < area.end {
                self.areas.insert(new_start, area);
                last = Some(new_start);
            }
        }
        if let Some(area) = last.and_then(|start| self.areas.get_mut(&start)) {
            area.end = to.end();
        }
    }

    /// Applies a change to every area inside `range`.
    pub fn update(&mut self, range: AddressRange, mut change: impl FnMut(&mut Area)) {
        self.split(range.start);
        self.split(range.end());
        for (_, area) in self.areas.range_mut(range.start..range.end()) {
            change(area);
        }
    }

    /// Makes `addr` a border between areas. Every change begins with this.
    fn split(&mut self, addr: VirtAddr) {
        self.last = None;
        if let Some((&start, area)) = self.areas.range_mut(..addr).next_back()
            && area.end > addr
        {
            let upper = *area;
            area.end = addr;
            debug_assert!(start < addr);
            self.areas.insert(addr, upper);
        }
    }

    /// All areas, by address.
    pub fn iter(&self) -> impl Iterator<Item = (VirtAddr, Area)> + '_ {
        self.areas.iter().map(|(&start, &area)| (start, area))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(space: &mut AddressSpace, start: u64, bytes: u64) {
        space.map(AddressRange::new(start, bytes), MapKind::Anonymous, Protection::READ_WRITE);
    }

    #[test]
    fn what_was_found_last_is_forgotten_with_every_change() {
        type Change = fn(&mut AddressSpace);
        let range = AddressRange::new(0x2000, 0x1000);
        let changes: [Change; 4] = [
            |space| map(space, 0x6000, 0x1000),
            |space| space.unmap(AddressRange::new(0x2000, 0x1000)),
            |space| {
                space.remap(AddressRange::new(0x2000, 0x1000), AddressRange::new(0x9000, 0x1000));
            },
            |space| {
                space.update(AddressRange::new(0x2000, 0x1000), |area| area.huge_advice = Some(true));
            },
        ];
        for change in changes {
            let mut space = AddressSpace::default();
            map(&mut space, 0x1000, 0x5000);
            assert_eq!(space.find_next(range.start), space.find(range.start));
            change(&mut space);
            for addr in AddressRange::new(0, 0xa000).base_pages() {
                assert_eq!(space.find_next(addr), space.find(addr), "{addr:#x}");
            }
        }
    }

    fn ranges(space: &AddressSpace) -> Vec<(u64, u64)> {
        space.iter().map(|(start, area)| (start.0, area.end.0)).collect()
    }

    #[test]
    fn unmapping_the_middle_leaves_two_ends() {
        let mut space = AddressSpace::default();
        map(&mut space, 0x1000, 0x5000);
        space.unmap(AddressRange::new(0x2000, 0x1000));
        assert_eq!(ranges(&space), [(0x1000, 0x2000), (0x3000, 0x6000)]);
        assert!(space.find(VirtAddr(0x2fff)).is_none());
        assert!(!space.overlaps(AddressRange::new(0x2000, 0x1000)));
        assert!(space.overlaps(AddressRange::new(0x2000, 0x1001)));
    }

    #[test]
    fn a_growing_heap_stays_one_area() {
        let mut space = AddressSpace::default();
        map(&mut space, 0x1000, 0x1000);
        map(&mut space, 0x2000, 0x1000);
        map(&mut space, 0x0, 0x1000);
        assert_eq!(ranges(&space), [(0, 0x3000)]);
    }

    #[test]
    fn remap_moves_and_grows() {
        let mut space = AddressSpace::default();
        map(&mut space, 0x1000, 0x4000);
        space.remap(AddressRange::new(0x2000, 0x1000), AddressRange::new(0x9000, 0x3000));
        assert_eq!(ranges(&space), [(0x1000, 0x2000), (0x3000, 0x5000), (0x9000, 0xc000)]);
        space.remap(AddressRange::new(0x9000, 0x3000), AddressRange::new(0x9000, 0x1000));
        assert_eq!(ranges(&space), [(0x1000, 0x2000), (0x3000, 0x5000), (0x9000, 0xa000)]);
    }
}
