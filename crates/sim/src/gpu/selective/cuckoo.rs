//! A cuckoo filter: a set of lines that may say yes of a line it does not hold, and never no of one that it holds.
//!
//! Each line has a fingerprint and two buckets, of which either follows from the other and the fingerprint. A line is added
//! to the one with room; where neither has any, a fingerprint there moves to its own other bucket, and so on.
//!
//! Source: B. Fan, D. Andersen, M. Kaminsky, M. Mitzenmacher, Cuckoo Filter: Practically Better Than Bloom (CoNEXT 2014),
//! sections 3 and 4. Left open there, and chosen here: which fingerprint moves, by a fixed sequence of numbers, so that
//! equal runs are equal; the last one that finds no room is kept beside the table, and from then on the filter says yes of
//! every line until it is reset.

use crate::gpu::line::GpuLine;

/// Moves after which an addition gives up, as the source's implementation does.
const MOST_MOVES: u32 = 500;

/// An entry without a fingerprint.
const EMPTY: u16 = 0;

/// The filter.
#[derive(Clone, Debug)]
pub struct CuckooFilter {
    entries: Vec<u16>,
    bucket: usize,
    buckets: u64,
    /// Fingerprints are 1 to this.
    fingerprints: u64,
    held: usize,
    /// A fingerprint found no room.
    overflowed: bool,
    /// Decides which fingerprint moves.
    dice: u64,
}

/// The finalizer of SplitMix64: every bit of the number decides every bit of the hash.
fn hash(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl CuckooFilter {
    /// An empty filter. The number of buckets is a power of two.
    pub fn new(entries: u32, bucket: u32, fingerprint_bits: u32) -> CuckooFilter {
        CuckooFilter {
            entries: vec![EMPTY; entries as usize],
            bucket: bucket as usize,
            buckets: u64::from(entries / bucket),
            fingerprints: (1 << fingerprint_bits) - 1,
            held: 0,
            overflowed: false,
            dice: 1,
        }
    }

    /// Holds nothing any more.
    pub fn reset(&mut self) {
        self.entries.fill(EMPTY);
        (self.held, self.overflowed) = (0, false);
    }

    /// The fingerprint of a line, and its two buckets.
    fn place(&self, line: GpuLine) -> (u16, u64, u64) {
        let hash = hash(line.0);
        let fingerprint = ((hash >> 32) % self.fingerprints + 1) as u16;
        let first = hash & (self.buckets - 1);
        (fingerprint, first, self.other(first, fingerprint))
    }

    fn other(&self, bucket: u64, fingerprint: u16) -> u64 {
        bucket ^ (hash(u64::from(fingerprint)) & (self.buckets - 1))
    }

    fn of(&self, bucket: u64) -> &[u16] {
        &self.entries[bucket as usize * self.bucket..][..self.bucket]
    }

    /// Whether a line was added; yes by mistake for a few others.
    pub fn may_hold(&self, line: GpuLine) -> bool {
        let (fingerprint, first, second) = self.place(line);
        self.overflowed || self.of(first).contains(&fingerprint) || self.of(second).contains(&fingerprint)
    }

    /// Adds a line, unless it seems to be held. Returns whether it was added.
    pub fn add(&mut self, line: GpuLine) -> bool {
        if self.may_hold(line) {
            return false;
        }
        let (mut fingerprint, first, second) = self.place(line);
        self.held += 1;
        if self.put(first, fingerprint) || self.put(second, fingerprint) {
            return true;
        }
        let mut bucket = first;
        for _ in 0..MOST_MOVES {
            self.dice = hash(self.dice);
            let at = bucket as usize * self.bucket + self.dice as usize % self.bucket;
            std::mem::swap(&mut self.entries[at], &mut fingerprint);
            bucket = self.other(bucket, fingerprint);
            if self.put(bucket, fingerprint) {
                return true;
            }
        }
        self.overflowed = true;
        true
    }

    fn put(&mut self, bucket: u64, fingerprint: u16) -> bool {
        let free = self.entries[bucket as usize * self.bucket..][..self.bucket]
            .iter_mut()
            .find(|entry| **entry == EMPTY);
        free.is_some_and(|entry| {
            *entry = fingerprint;
            true
        })
    }

    /// Lines that were added.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Share of the entries that are taken; 1 where a line found no room.
    pub fn load(&self) -> f64 {
        if self.overflowed { 1.0 } else { self.held as f64 / self.entries.len() as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn at_the_source_s_size_three_of_a_hundred_answers_are_wrong() {
        // 65,536 fingerprints of 8 bits: 64 KiB for 8 MiB of lines of 128 bytes.
        let mut filter = CuckooFilter::new(65536, 4, 8);
        let mut line = 0;
        while filter.load() < 0.95 {
            filter.add(GpuLine(line));
            line += 1;
        }
        assert!((0..line).all(|held| filter.may_hold(GpuLine(held))), "no false negative");
        let wrong = (0..100_000).filter(|other| filter.may_hold(GpuLine(1 << 40 | other))).count();
        // Two buckets of four fingerprints of 255, of which 95 % are taken: 1 - (1 - 1/255)^7.6 = 2.9 %.
        assert!((2800..3100).contains(&wrong), "{wrong} of 100,000");
    }

    #[test]
    fn a_filter_that_overflows_says_yes_of_everything_until_it_is_reset() {
        let mut filter = CuckooFilter::new(8, 4, 16);
        let mut line = 0;
        while filter.load() < 1.0 {
            filter.add(GpuLine(line));
            line += 1;
        }
        assert!(line >= 8);
        for _ in 0..4 {
            // Eight fit; the ninth different fingerprint does not.
            filter.add(GpuLine(line));
            line += 1;
        }
        assert!((0..2 * line).all(|line| filter.may_hold(GpuLine(line))));
        filter.reset();
        assert_eq!((filter.held(), filter.may_hold(GpuLine(0))), (0, false));
        assert!(filter.add(GpuLine(0)) && !filter.add(GpuLine(0)));
    }

    proptest! {
        /// Against a plain set: whatever was added is found, at every moment and at every fullness, overflow included.
        #[test]
        fn never_forgets_a_line(
            lines in prop::collection::vec(0u64..4000, 1..600),
            (buckets, bucket, bits) in (0u32..7, 1u32..6, 2u32..12),
        ) {
            let mut filter = CuckooFilter::new(bucket << buckets, bucket, bits);
            let mut set = BTreeSet::new();
            for (at, line) in lines.into_iter().enumerate() {
                let seemed_held = filter.may_hold(GpuLine(line));
                prop_assert_eq!(filter.add(GpuLine(line)), !seemed_held);
                set.insert(line);
                if at % 8 == 0 {
                    prop_assert!(set.iter().all(|line| filter.may_hold(GpuLine(*line))));
                }
                prop_assert!(filter.held() <= set.len());
            }
            prop_assert!(set.iter().all(|line| filter.may_hold(GpuLine(*line))));
            filter.reset();
            prop_assert!((0..4000).all(|line| !filter.may_hold(GpuLine(line))));
        }
    }
}
