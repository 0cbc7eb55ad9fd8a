//! Counting distinct pages in bounded memory and about a nanosecond per access.
//!
//! Spatially hashed sampling: a page belongs to the sample when some bits of its hash are zero, so either all of its
//! accesses are seen or none. The sample starts with every page and halves whenever it outgrows its bound; the count
//! is exact until then, and afterwards an estimate from at least about 8192 pages: a relative standard error of
//! 1/sqrt(8192) = 1.1 %. (The idea is that of SHARDS, Waldspurger et al., FAST 2015, section 3.)

/// Pages in the sample at most; one that was just halved holds about half of it.
const SAMPLE_LIMIT: usize = 16_384;
/// Slots of the table: a load of at most a quarter, so that nearly every look-up ends at the first one.
const SLOTS: usize = 4 * SAMPLE_LIMIT;
/// Lowest bit of the hash that decides membership; the bits below choose the slot.
const SAMPLE_BIT: u32 = 20;
/// Addresses handled at once.
const CHUNK: usize = 256;
/// An empty slot. The one page in 2^64 with this hash is not counted.
const EMPTY: u64 = 0;

/// The set of pages, or a sample of it: a table of hashes, open to the next slot.
#[derive(Debug)]
pub(super) struct DistinctPages {
    /// Hashes stand for their pages: two of 2^15 among 2^64 do not collide in practice.
    slots: Box<[u64]>,
    used: usize,
    /// A page is in the sample when `hash & mask == 0`.
    mask: u64,
    halvings: u32,
    last: u64,
}

impl DistinctPages {
    pub(super) fn new() -> DistinctPages {
        DistinctPages { slots: vec![EMPTY; SLOTS].into(), used: 0, mask: 0, halvings: 0, last: u64::MAX }
    }

    /// Adds the pages of all addresses. `space` tells processes apart.
    pub(super) fn add(&mut self, addresses: &[u64], space: u64) {
        // First which pages are in the sample, without a branch that a random stream would mispredict; then those
        // few against the table.
        let mut chosen = [0; CHUNK];
        for chunk in addresses.chunks(CHUNK) {
            let mut count = 0;
            for &address in chunk {
                let page = (address >> 12) | space << 52;
                let hash = mix(page);
                chosen[count] = hash;
                count += usize::from(page != self.last && hash & self.mask == 0);
                self.last = page;
            }
            for &hash in &chosen[..count] {
                if self.slots[hash as usize % SLOTS] != hash {
                    self.insert(hash);
                }
            }
        }
    }

    /// Number of distinct pages.
    pub(super) fn count(&self) -> u64 {
        (self.used as u64) << self.halvings
    }

    /// Whether the count is an estimate.
    pub(super) fn is_estimate(&self) -> bool {
        self.halvings > 0
    }

    fn insert(&mut self, hash: u64) {
        // The sample may have halved since the hash was chosen.
        if hash & self.mask != 0 {
            return;
        }
        let mut slot = hash as usize % SLOTS;
        while self.slots[slot] != EMPTY {
            if self.slots[slot] == hash {
                return;
            }
            slot = (slot + 1) % SLOTS;
        }
        self.slots[slot] = hash;
        self.used += 1;
        if self.used > SAMPLE_LIMIT {
            self.halve();
        }
    }

    #[cold]
    fn halve(&mut self) {
        self.halvings += 1;
        self.mask = ((1 << self.halvings) - 1) << SAMPLE_BIT;
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; SLOTS].into());
        self.used = 0;
        for hash in old {
            if hash != EMPTY {
                self.insert(hash);
            }
        }
    }
}

/// A hash whose every bit depends on every bit of `page`: both halves of a wide product, folded.
#[inline]
fn mix(page: u64) -> u64 {
    let product = u128::from(page ^ 0x9e37_79b9_7f4a_7c15) * 0xd1b5_4a32_d192_ed03;
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Exact for small sets, whatever the order and the repetition.
        #[test]
        fn small_sets_are_counted_exactly(addresses in prop::collection::vec(0u64..1 << 30, 0..4000)) {
            let mut pages = DistinctPages::new();
            pages.add(&addresses, 0);
            let reference: std::collections::BTreeSet<u64> = addresses.iter().map(|a| a >> 12).collect();
            prop_assert_eq!(pages.count(), reference.len() as u64);
            prop_assert!(!pages.is_estimate());
        }
    }

    #[test]
    fn large_sets_are_estimated_whatever_the_stride() {
        for stride in [1u64, 3, 512, 262_144] {
            let mut pages = DistinctPages::new();
            let n = 1_000_000u64;
            for page in 0..n {
                pages.add(&[page * stride * 4096 % (1 << 52)], 1);
            }
            let error = (pages.count() as f64 / n as f64 - 1.0).abs();
            assert!(pages.is_estimate() && error < 0.04, "stride {stride}: off by {error}");
        }
    }

    #[test]
    fn processes_are_apart() {
        let mut pages = DistinctPages::new();
        pages.add(&[0x1000, 0x1008], 0);
        pages.add(&[0x1000], 1);
        assert_eq!(pages.count(), 2);
    }
}
