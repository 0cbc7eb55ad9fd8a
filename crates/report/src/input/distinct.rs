//! Counting distinct pages in bounded memory and about a nanosecond per access.
//!
//! Spatially hashed sampling: a page belongs to the sample when some bits of its hash are zero, so either all of its
//! accesses are seen or none. The sample starts with every page and halves whenever it outgrows its bound; the count
//! is exact until then, and afterwards an estimate from at least about 16,384 pages: a relative standard error of
//! 1/sqrt(16384) = 0.8 %. (The idea is that of SHARDS, Waldspurger et al., FAST 2015, section 3.)

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Pages in the sample at most; one that was just halved holds about half of it.
const SAMPLE_LIMIT: usize = 32_768;
/// Entries of the filter of pages seen lately; a power of two.
const FILTER_ENTRIES: usize = 4096;
/// Lowest bit of the hash that decides membership; the bits below index the filter.
const SAMPLE_BIT: u32 = 20;

/// The set of pages, or a sample of it.
#[derive(Debug)]
pub(super) struct DistinctPages {
    /// Hashes, which stand for their pages: two of 2^15 among 2^64 do not collide in practice.
    sample: HashSet<u64, BuildHasherDefault<AlreadyHashed>>,
    /// A page is in the sample when `hash & mask == 0`.
    mask: u64,
    halvings: u32,
    /// Hashes known to be in the sample: spares most look-ups in the set.
    filter: Box<[u64; FILTER_ENTRIES]>,
    last: u64,
}

impl DistinctPages {
    pub(super) fn new() -> DistinctPages {
        DistinctPages {
            sample: HashSet::default(),
            mask: 0,
            halvings: 0,
            filter: Box::new([0; FILTER_ENTRIES]),
            last: u64::MAX,
        }
    }

    /// Adds the pages of all addresses. `space` tells processes apart.
    pub(super) fn add(&mut self, addresses: &[u64], space: u64) {
        for &address in addresses {
            let page = (address >> 12) | space << 52;
            if page == self.last {
                continue;
            }
            self.last = page;
            let hash = mix(page);
            if hash & self.mask == 0 && self.filter[hash as usize % FILTER_ENTRIES] != hash {
                self.insert(hash);
            }
        }
    }

    #[cold]
    fn insert(&mut self, hash: u64) {
        self.filter[hash as usize % FILTER_ENTRIES] = hash;
        self.sample.insert(hash);
        while self.sample.len() > SAMPLE_LIMIT {
            self.halvings += 1;
            self.mask = ((1 << self.halvings) - 1) << SAMPLE_BIT;
            let mask = self.mask;
            self.sample.retain(|hash| hash & mask == 0);
        }
    }

    /// Number of distinct pages.
    pub(super) fn count(&self) -> u64 {
        (self.sample.len() as u64) << self.halvings
    }

    /// Whether the count is an estimate.
    pub(super) fn is_estimate(&self) -> bool {
        self.halvings > 0
    }
}

/// A hash whose every bit depends on every bit of `page`: both halves of a wide product, folded.
#[inline]
fn mix(page: u64) -> u64 {
    let product = u128::from(page ^ 0x9e37_79b9_7f4a_7c15) * 0xd1b5_4a32_d192_ed03;
    (product as u64) ^ (product >> 64) as u64
}

/// The set's keys are hashes: hashing them again would cost time for nothing.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are u64");
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
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
