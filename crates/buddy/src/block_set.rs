//! Sets of block numbers with a fast minimum: one bit per block and summary levels above.

/// A set of block numbers.
#[derive(Clone, Debug)]
pub(crate) struct BlockSet {
    /// `levels[0]` has one bit per block; each bit above says whether a word below has any.
    levels: Vec<Vec<u64>>,
    count: u64,
}

impl BlockSet {
    pub fn new(blocks: u64) -> BlockSet {
        let mut levels = Vec::new();
        let mut bits = blocks.max(1);
        loop {
            let words = bits.div_ceil(64);
            levels.push(vec![0; words as usize]);
            if words == 1 {
                break;
            }
            bits = words;
        }
        BlockSet { levels, count: 0 }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn contains(&self, block: u64) -> bool {
        self.levels[0].get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 != 0)
    }

    pub fn insert(&mut self, mut block: u64) {
        debug_assert!(!self.contains(block));
        self.count += 1;
        for level in &mut self.levels {
            let word = &mut level[(block / 64) as usize];
            let known = *word != 0;
            *word |= 1 << (block % 64);
            if known {
                return;
            }
            block /= 64;
        }
    }

    pub fn remove(&mut self, mut block: u64) {
        debug_assert!(self.contains(block));
        self.count -= 1;
        for level in &mut self.levels {
            let word = &mut level[(block / 64) as usize];
            *word &= !(1 << (block % 64));
            if *word != 0 {
                return;
            }
            block /= 64;
        }
    }

    pub fn first(&self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let mut at = 0;
        for level in self.levels.iter().rev() {
            at = at * 64 + u64::from(level[at as usize].trailing_zeros());
        }
        Some(at)
    }

    /// The lowest block that is `from` or above.
    pub fn next(&self, from: u64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let mut at = from;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get((at / 64) as usize)?;
            let rest = word & (u64::MAX << (at % 64));
            if rest != 0 {
                let mut found = at / 64 * 64 + u64::from(rest.trailing_zeros());
                for below in self.levels[..height].iter().rev() {
                    found = found * 64 + u64::from(below[found as usize].trailing_zeros());
                }
                return Some(found);
            }
            at = at / 64 + 1;
        }
        None
    }

    /// All blocks from `from` to `until`, the latter excluded.
    pub fn range(&self, from: u64, until: u64) -> impl Iterator<Item = u64> + '_ {
        let mut next = self.next(from);
        std::iter::from_fn(move || {
            let block = next.filter(|block| *block < until)?;
            next = self.next(block + 1);
            Some(block)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(blocks in 1u64..9000, picks in prop::collection::vec(any::<u64>(), 0..200)) {
            let (mut set, mut reference) = (BlockSet::new(blocks), BTreeSet::new());
            for pick in picks {
                let block = pick % blocks;
                if reference.insert(block) {
                    set.insert(block);
                } else {
                    reference.remove(&block);
                    set.remove(block);
                }
                prop_assert_eq!(set.first(), reference.first().copied());
                prop_assert_eq!(set.next(pick % 9000), reference.range(pick % 9000..).next().copied());
                prop_assert_eq!(set.count(), reference.len() as u64);
            }
            let (from, until) = (blocks / 3, blocks / 2);
            prop_assert!(set.range(from, until).eq(reference.range(from..until).copied()));
        }
    }
}
