//! The order in which things were last used, and how many were used after one of them.
//!
//! Every use takes the next position on a line and gives up the position of the use before it. What lies after a position
//! is counted by the bits of its word, the words of its block, and the counts of the blocks after it: a few additions
//! where the position is recent, at most a hundred or so where it is old.

/// Positions in a word, and in a block.
const WORD: usize = 64;
const BLOCK: usize = 512;
const WORDS_OF_BLOCK: usize = BLOCK / WORD;

/// The line. Who holds a position is a number of the caller's.
#[derive(Debug)]
pub(super) struct Recency {
    /// A bit for each position that is held.
    words: Box<[u64]>,
    /// Positions held in each block.
    blocks: Box<[u16]>,
    holders: Box<[u32]>,
    next: usize,
}

impl Recency {
    /// A line with at least so many positions.
    pub(super) fn new(positions: usize) -> Recency {
        let blocks = positions.div_ceil(BLOCK);
        Recency {
            words: vec![0; blocks * WORDS_OF_BLOCK].into(),
            blocks: vec![0; blocks].into(),
            holders: vec![0; blocks * BLOCK].into(),
            next: 0,
        }
    }

    /// Positions that were taken, also those that were given up since.
    pub(super) fn used(&self) -> usize {
        self.next
    }

    /// Whether no position is left.
    pub(super) fn is_full(&self) -> bool {
        self.next == self.holders.len()
    }

    /// The next position, for `holder`. There must be one.
    pub(super) fn push(&mut self, holder: u32) -> u32 {
        let position = self.next;
        self.words[position / WORD] |= 1 << (position % WORD);
        self.blocks[position / BLOCK] += 1;
        self.holders[position] = holder;
        self.next += 1;
        position as u32
    }

    /// Gives up a position that is held.
    pub(super) fn remove(&mut self, position: u32) {
        let position = position as usize;
        self.words[position / WORD] &= !(1 << (position % WORD));
        self.blocks[position / BLOCK] -= 1;
    }

    /// Positions held after this one.
    pub(super) fn after(&self, position: u32) -> u64 {
        let position = position as usize;
        let (word, block) = (position / WORD, position / BLOCK);
        let later_bits = (u64::MAX << (position % WORD)) << 1;
        let ones = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum::<u32>();
        let here = (self.words[word] & later_bits).count_ones();
        let in_block = ones(&self.words[word + 1..(block + 1) * WORDS_OF_BLOCK]);
        let used = self.next.div_ceil(BLOCK);
        let beyond: u32 =
            self.blocks[(block + 1).min(used)..used].iter().map(|&count| u32::from(count)).sum();
        u64::from(here + in_block + beyond)
    }

    /// All holders, least recently used first.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let held = |position: &usize| self.words[position / WORD] >> (position % WORD) & 1 == 1;
        (0..self.next).filter(held).map(|position| self.holders[position]).collect()
    }

    /// Gives up all positions.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.blocks.fill(0);
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As a list from which the used is taken and put at its end.
        #[test]
        fn it_is_a_list_in_the_order_of_use(uses in prop::collection::vec(0u32..600, 0..1500)) {
            let mut line = Recency::new(1500);
            let mut position_of = vec![None; 600];
            let mut list: Vec<u32> = Vec::new();
            for holder in uses {
                if let Some(position) = position_of[holder as usize] {
                    let at = list.iter().position(|&other| other == holder).unwrap();
                    prop_assert_eq!(line.after(position), (list.len() - 1 - at) as u64);
                    list.remove(at);
                    line.remove(position);
                }
                position_of[holder as usize] = Some(line.push(holder));
                list.push(holder);
            }
            prop_assert_eq!(line.in_order(), list);
            line.clear();
            prop_assert!(line.in_order().is_empty() && !line.is_full());
        }
    }
}
