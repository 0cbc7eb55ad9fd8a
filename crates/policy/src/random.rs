//! The only randomness a policy has: a seeded generator that it is handed.

/// splitmix64 (Steele, Lea and Flood, OOPSLA 2014, with the mixing constants of its reference implementation). The
/// same seed gives the same choices on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// A generator by its seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`; 0 for `n = 0`. The bias is below n / 2^64.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next() as u128 * n as u128) >> 64) as u64
    }

    /// Moves `count` items chosen at random, all sets of that size equally likely, to the front, and returns how many
    /// there are: fewer where `items` has fewer.
    pub fn choose<T>(&mut self, items: &mut [T], count: usize) -> usize {
        let count = count.min(items.len());
        for at in 0..count {
            let from = at + self.below((items.len() - at) as u64) as usize;
            items.swap(at, from);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_fair_and_repeatable() {
        let mut chosen = [0u32; 8];
        let mut random = Random::new(1);
        for _ in 0..8000 {
            let mut items = [0, 1, 2, 3, 4, 5, 6, 7];
            assert_eq!(random.choose(&mut items, 2), 2);
            assert_ne!(items[0], items[1]);
            chosen[items[0]] += 1;
            chosen[items[1]] += 1;
        }
        assert!(chosen.iter().all(|count| (1800..2200).contains(count)), "{chosen:?}");
        assert_eq!(Random::new(7).next(), Random::new(7).next());
        assert_eq!(Random::new(7).choose(&mut [1, 2], 5), 2);
    }
}
