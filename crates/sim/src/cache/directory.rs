//! The MESI directory beside the last level: which private caches hold a line.

use crate::array::{Divider, NO_WAY, PackedSets};

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
    sets: PackedSets,
    sharers: Vec<Sharers>,
    divider: Divider,
}

impl Directory {
    /// An empty directory for private caches of `private_lines` lines altogether.
    pub fn new(private_lines: usize) -> Directory {
        let sets = (2 * private_lines).div_ceil(WAYS as usize).clamp(1, 1 << 24);
        Directory {
            sets: PackedSets::new(sets, WAYS),
            sharers: vec![Sharers::default(); sets * WAYS as usize],
            divider: Divider::new(sets as u64),
        }
    }

    fn find(&self, line: u64) -> (usize, u32, u32) {
        let (tag, set) = self.divider.divide(line);
        (set as usize, tag as u32, self.sets.find(set as usize, tag as u32))
    }

    /// Who holds `line`; nobody when it has no entry.
    pub fn sharers(&self, line: u64) -> Sharers {
        let (set, _, way) = self.find(line);
        if way == NO_WAY { Sharers::default() } else { self.sharers[set * WAYS as usize + way as usize] }
    }

    /// Sets who holds `line`, making an entry if needed. Returns the entry that had to go for it.
    pub fn record(&mut self, line: u64, sharers: Sharers) -> Option<(u64, Sharers)> {
        let (number, tag, way) = self.find(line);
        let mut set = self.sets.set(number);
        if way != NO_WAY {
            set.touch(way);
            self.sharers[number * WAYS as usize + way as usize] = sharers;
            return None;
        }
        let way = set.take_victim();
        let old_tag = set.tag(way);
        set.set_tag(way, tag);
        let entry = &mut self.sharers[number * WAYS as usize + way as usize];
        let old = std::mem::replace(entry, sharers);
        old_tag.map(|tag| (u64::from(tag) * self.divider.divisor() + number as u64, old))
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
            let mut set = self.sets.set(set);
            set.clear_tag(way);
            set.move_to_back(way);
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
