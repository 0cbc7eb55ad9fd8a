//! One tier as a hardware cache of another, as DRAM is of DCPMM in memory mode.

use crate::array::Divider;
use std::ops::Range;
use terrace_model::{LINE_BYTES, Line};

/// Tags of a direct-mapped cache of 64-byte lines.
#[derive(Debug)]
pub(super) struct HardwareCache {
    /// The tier whose lines it holds.
    pub tier: usize,
    /// First line of that tier.
    cached: Line,
    /// The line that is slot 0.
    first_slot: Line,
    /// Per slot 0 when empty, else which of the lines that fall there it holds, plus 1, and whether it was written.
    pub tags: Vec<u32>,
    /// Slots are so many blocks of `1 << block` lines.
    blocks: Divider,
    block: u32,
    pub hits: u64,
    pub misses: u64,
}

/// What a look-up found, by lines of physical memory.
pub(super) struct Looked {
    pub slot: Line,
    pub hit: bool,
    /// A written line that has to leave for this one.
    pub victim: Option<Line>,
}

const WRITTEN: u32 = 1 << 31;

const LINES_PER_MIB: u64 = (1 << 20) / LINE_BYTES;

impl HardwareCache {
    /// The lines `own` hold those of the tier `tier`, which begins at the line `cached`.
    pub fn new(own: Range<Line>, tier: usize, cached: Line) -> HardwareCache {
        let (first_slot, lines) = (own.start, own.end - own.start);
        // Whole MiB, so that no tier has more blocks than can be divided by.
        let slots = if lines < LINES_PER_MIB { lines.max(1) } else { lines - lines % LINES_PER_MIB };
        let block = slots.trailing_zeros();
        let blocks = Divider::new(slots >> block);
        let tags = vec![0; slots as usize];
        HardwareCache { tier, cached, first_slot, tags, blocks, block, hits: 0, misses: 0 }
    }

    /// The slot of a line, and which of the lines it is that fall there.
    #[inline]
    pub fn place(&self, line: Line) -> (u64, u64) {
        let line = line - self.cached;
        let (round, block) = self.blocks.divide(line >> self.block);
        (block << self.block | line & ((1 << self.block) - 1), round)
    }

    pub fn look_up(&mut self, line: Line, write: bool) -> Looked {
        let slots = self.tags.len() as u64;
        let (slot, round) = self.place(line);
        let wanted = round as u32 + 1;
        let tag = &mut self.tags[slot as usize];
        let (held, written) = (*tag & !WRITTEN, *tag & WRITTEN != 0);
        let hit = held == wanted;
        let victim = (!hit && written).then(|| self.cached + u64::from(held - 1) * slots + slot);
        *tag = wanted | if write || (hit && written) { WRITTEN } else { 0 };
        if hit {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        Looked { slot: self.first_slot + slot, hit, victim }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_mapped_cache_gives_up_what_falls_on_the_same_slot() {
        // Lines 100 to 103 hold those from 1000 on.
        let mut cache = HardwareCache::new(Line(100)..Line(104), 1, Line(1000));
        let mut look = |at: u64, write| {
            let found = cache.look_up(Line(1000 + at), write);
            (found.slot - Line(100), found.hit, found.victim.map(|victim| victim - Line(1000)))
        };
        assert_eq!(look(1, false), (1, false, None));
        assert_eq!(look(1, true), (1, true, None));
        assert_eq!(look(1, false), (1, true, None), "reading keeps it written");
        assert_eq!(look(9, false), (1, false, Some(1)));
        assert_eq!(look(5, true), (1, false, None), "line 9 was only read");
        assert_eq!(look(2, false), (2, false, None));
        assert_eq!(look(13, false), (1, false, Some(5)));
        assert_eq!((cache.hits, cache.misses), (2, 5));
    }

    #[test]
    fn a_line_has_the_slot_that_a_division_gives() {
        for slots in [1, 6, 1000, LINES_PER_MIB, 3 * LINES_PER_MIB, 37 * LINES_PER_MIB] {
            let cache = HardwareCache::new(Line(0)..Line(slots), 1, Line(0));
            for line in [0, 1, slots - 1, slots, 5 * slots - 1, 77 * slots + slots / 3, (1 << 39) + 12_345] {
                assert_eq!(cache.place(Line(line)), (line % slots, line / slots), "{line} in {slots}");
            }
        }
        // What is beyond a whole MiB holds nothing.
        let cache = HardwareCache::new(Line(0)..Line(LINES_PER_MIB + 64), 1, Line(0));
        assert_eq!(cache.place(Line(LINES_PER_MIB)), (0, 1));
    }
}
