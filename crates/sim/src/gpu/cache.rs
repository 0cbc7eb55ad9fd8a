//! A set-associative cache of 128-byte lines in 32-byte sectors.

use super::line::GpuLine;
use super::parameters::GPU_LINE;
use terrace_model::Time;

/// A way that holds nothing.
const EMPTY: GpuLine = GpuLine(u64::MAX);

/// A line that had to leave, and its written sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The line's number.
    pub line: GpuLine,
    /// A bit for each written sector.
    pub dirty: u8,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    line: GpuLine,
    used: u64,
    /// When its data is there.
    ready: Time,
    valid: u8,
    dirty: u8,
}

/// The cache. Lines are spread over sets by a hash, as in GPUs; the least recently used way leaves.
#[derive(Clone, Debug)]
pub struct SectorCache {
    ways: usize,
    sets: u64,
    all: Vec<Way>,
    clock: u64,
}

impl SectorCache {
    /// An empty cache. The capacity is a whole number of sets.
    pub fn new(capacity: u64, ways: u32) -> SectorCache {
        let sets = (capacity / GPU_LINE / u64::from(ways)).max(1);
        let empty = Way { line: EMPTY, used: 0, ready: Time::ZERO, valid: 0, dirty: 0 };
        let all = vec![empty; (sets * u64::from(ways)) as usize];
        SectorCache { ways: ways as usize, sets, all, clock: 0 }
    }

    /// Forgets everything; nothing is written back.
    pub fn clear(&mut self) {
        self.all.iter_mut().for_each(|way| *way = Way { line: EMPTY, valid: 0, dirty: 0, ..*way });
    }

    fn set(&self, line: GpuLine) -> std::ops::Range<usize> {
        // Fibonacci hashing; the upper half of the product is scaled to the sets.
        let hash = line.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = ((hash * self.sets) >> 32) as usize * self.ways;
        first..first + self.ways
    }

    /// Whether anything of a line is there.
    pub fn holds(&self, line: GpuLine) -> bool {
        self.all[self.set(line)].iter().any(|way| way.line == line)
    }

    /// A line leaves. Returns its written sectors, if it was there.
    pub fn remove(&mut self, line: GpuLine) -> Option<u8> {
        let set = self.set(line);
        let way = self.all[set].iter_mut().find(|way| way.line == line)?;
        let dirty = way.dirty;
        *way = Way { line: EMPTY, valid: 0, dirty: 0, ..*way };
        Some(dirty)
    }

    /// Removes the clean lines that match.
    pub fn remove_where(&mut self, leaves: impl Fn(GpuLine) -> bool) {
        for way in self.all.iter_mut().filter(|way| way.line != EMPTY && way.dirty == 0 && leaves(way.line)) {
            *way = Way { line: EMPTY, valid: 0, dirty: 0, ..*way };
        }
    }

    /// The sectors of a line that are there, and when.
    pub fn look_up(&mut self, line: GpuLine) -> Option<(u8, Time)> {
        self.clock += 1;
        let set = self.set(line);
        let clock = self.clock;
        let way = self.all[set].iter_mut().find(|way| way.line == line)?;
        way.used = clock;
        Some((way.valid, way.ready))
    }

    /// Puts sectors of a line in, or more of them; `written` if by a store. Returns what had to leave.
    pub fn fill(&mut self, line: GpuLine, sectors: u8, ready: Time, written: bool) -> Option<Victim> {
        self.clock += 1;
        let set = self.set(line);
        let dirty = if written { sectors } else { 0 };
        let clock = self.clock;
        let ways = &mut self.all[set];
        if let Some(way) = ways.iter_mut().find(|way| way.line == line) {
            way.used = clock;
            way.valid |= sectors;
            way.dirty |= dirty;
            way.ready = way.ready.max(ready);
            return None;
        }
        let oldest = ways.iter_mut().min_by_key(|way| if way.line == EMPTY { 0 } else { way.used })?;
        let left = *oldest;
        *oldest = Way { line, used: clock, ready, valid: sectors, dirty };
        (left.line != EMPTY && left.dirty != 0).then_some(Victim { line: left.line, dirty: left.dirty })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::ZERO;

    #[test]
    fn a_line_that_is_removed_is_gone_with_what_was_written_of_it() {
        let mut cache = SectorCache::new(2 * GPU_LINE, 2);
        cache.fill(GpuLine(1), 0b0011, NOW, true);
        cache.fill(GpuLine(2), 0b1111, NOW, false);
        assert_eq!([1, 2, 3].map(|line| cache.remove(GpuLine(line))), [Some(0b0011), Some(0), None]);
        assert_eq!([1, 2].map(|line| cache.look_up(GpuLine(line))), [None; 2]);
    }

    #[test]
    fn the_least_recently_used_line_leaves_with_its_written_sectors() {
        let mut cache = SectorCache::new(2 * GPU_LINE, 2);
        assert_eq!(cache.look_up(GpuLine(1)), None);
        assert_eq!(cache.fill(GpuLine(1), 0b0001, NOW, true), None);
        assert_eq!(cache.fill(GpuLine(2), 0b1111, Time(7), false), None);
        assert_eq!(cache.fill(GpuLine(1), 0b0100, NOW, true), None, "more of the same line");
        assert_eq!(cache.look_up(GpuLine(1)), Some((0b0101, NOW)));
        assert_eq!(cache.look_up(GpuLine(2)), Some((0b1111, Time(7))));
        assert_eq!(
            cache.fill(GpuLine(3), 0b1111, NOW, false),
            Some(Victim { line: GpuLine(1), dirty: 0b0101 })
        );
        assert_eq!(cache.fill(GpuLine(4), 0b1111, NOW, false), None, "line 2 was only read");
        assert!(cache.holds(GpuLine(3)) && cache.holds(GpuLine(4)) && !cache.holds(GpuLine(2)));
        assert_eq!((cache.remove(GpuLine(3)), cache.remove(GpuLine(3))), (Some(0), None));
        assert_eq!(cache.fill(GpuLine(5), 0b0110, NOW, true), None, "there is room");
        cache.remove_where(|_| true);
        assert_eq!((cache.holds(GpuLine(4)), cache.remove(GpuLine(5))), (false, Some(0b0110)));
        cache.fill(GpuLine(3), 0b1111, NOW, false);
        cache.clear();
        assert_eq!(cache.look_up(GpuLine(3)), None);
    }

    proptest! {
        /// One set against a list in the order of use.
        #[test]
        fn agrees_with_a_list(steps in prop::collection::vec((0u64..12, 1u8..16, prop::bool::ANY), 1..200)) {
            let mut cache = SectorCache::new(4 * GPU_LINE, 4);
            let mut list: Vec<(u64, u8, u8)> = Vec::new();
            for (line, sectors, written) in steps {
                let at = list.iter().position(|held| held.0 == line);
                let held = at.map(|at| list.remove(at));
                prop_assert_eq!(cache.look_up(GpuLine(line)).map(|found| found.0), held.map(|held| held.1));
                let (valid, dirty) = held.map_or((0, 0), |held| (held.1, held.2));
                list.push((line, valid | sectors, dirty | if written { sectors } else { 0 }));
                let left = (list.len() > 4).then(|| list.remove(0)).filter(|left| left.2 != 0);
                let expected = left.map(|left| Victim { line: GpuLine(left.0), dirty: left.2 });
                prop_assert_eq!(cache.fill(GpuLine(line), sectors, NOW, written), expected);
            }
        }
    }
}
