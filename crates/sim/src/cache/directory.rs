//! The MESI directory beside the last level: which private caches hold a line.

use crate::array::{Divider, NO_WAY, TagSets, narrow};

/// Cores that one sharer mask can name.
pub const DIRECTORY_MAX_CORES: u32 = 64;

const WAYS: u32 = 16;

/// What the directory knows about a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharers {
    /// One bit per core whose private caches hold the line.
    pub mask: u64,
    /// The single sharer may write it (and may have).
    pub exclusive: bool,
}

/// A sparse directory: set-associative, with room for twice the lines of all private caches, as built directories have.
///
/// When an entry must go, the line leaves all private caches with it; the caller does that.
#[derive(Clone, Debug)]
pub struct Directory {
    tags: TagSets,
    order: Vec<u64>,
    sharers: Vec<Sharers>,
    divider: Divider,
}

impl Directory {
    /// An empty directory for private caches of `private_lines` lines altogether.
    pub fn new(private_lines: usize) -> Directory {
        let sets = (2 * private_lines).div_ceil(WAYS as usize).clamp(1, 1 << 24);
        Directory {
            tags: TagSets::new(sets, WAYS),
            order: vec![narrow::initial(WAYS); sets],
            sharers: vec![Sharers::default(); sets * WAYS as usize],
            divider: Divider::new(sets as u64),
        }
    }

    fn find(&self, line: u64) -> (usize, u32, u32) {
        let (tag, set) = self.divider.divide(line);
        (set as usize, tag as u32, self.tags.find(set as usize, tag as u32))
    }

    /// Who holds `line`; nobody when it has no entry.
    pub fn sharers(&self, line: u64) -> Sharers {
        let (set, _, way) = self.find(line);
        if way == NO_WAY { Sharers::default() } else { self.sharers[set * WAYS as usize + way as usize] }
    }

    /// Sets who holds `line`, making an entry if needed. Returns the entry that had to go for it.
    pub fn record(&mut self, line: u64, sharers: Sharers) -> Option<(u64, Sharers)> {
        let (set, tag, mut way) = self.find(line);
        let mut evicted = None;
        if way == NO_WAY {
            way = narrow::victim(self.order[set], WAYS);
            let slot = set * WAYS as usize + way as usize;
            evicted = self
                .tags
                .get(set, way)
                .map(|old| (u64::from(old) * self.divider.divisor() + set as u64, self.sharers[slot]));
            self.tags.set(set, way, tag);
        }
        self.order[set] = narrow::touch(self.order[set], way);
        self.sharers[set * WAYS as usize + way as usize] = sharers;
        evicted
    }

    /// `core` no longer holds `line`; an entry without sharers is freed.
    pub fn remove(&mut self, line: u64, core: u32) {
        let (set, _, way) = self.find(line);
        if way == NO_WAY {
            return;
        }
        let entry = &mut self.sharers[set * WAYS as usize + way as usize];
        entry.mask &= !(1 << core);
        if entry.mask == 0 {
            self.tags.clear(set, way);
            self.order[set] = narrow::move_to_back(self.order[set], way, WAYS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_lives_as_long_as_a_sharer() {
        let mut directory = Directory::new(64);
        directory.record(7, Sharers { mask: 0b101, exclusive: false });
        directory.remove(7, 0);
        assert_eq!(directory.sharers(7), Sharers { mask: 0b100, exclusive: false });
        directory.remove(7, 2);
        assert_eq!(directory.sharers(7), Sharers::default());
    }

    #[test]
    fn the_least_recent_entry_of_a_full_set_goes() {
        let mut directory = Directory::new(8); // one set of 16
        let one = Sharers { mask: 1, exclusive: true };
        for line in 0..16 {
            assert_eq!(directory.record(line, one), None);
        }
        directory.record(0, one);
        assert_eq!(directory.record(16, one), Some((1, one)));
    }
}
