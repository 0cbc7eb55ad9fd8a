//! A sample of the pages of an input, each with its last use: what counts pages and uses of pages in bounded memory.
//!
//! Spatially hashed sampling (SHARDS: Waldspurger, Park, Garthwaite and Ahmad, FAST 2015): a page belongs to the sample
//! when some bits of its hash are zero, so either all of its accesses are seen or none, and the distances between pages of
//! the sample are those between all pages, divided by the share of pages in it. The sample starts with every page and
//! halves whenever it outgrows its bound, as the paper's variant of fixed size lowers its threshold page by page.
//!
//! Counts are exact until the sample is halved, and afterwards an estimate from at least about 8192 pages: a relative
//! standard error of 1/sqrt(8192) = 1.1 % for the number of pages.
//!
//! What the paper leaves open and what we chose: accesses that follow one to the same page are counted apart and exactly,
//! since they are most of an input and need no look-up; what is left of an input's length when all uses of the sample are
//! counted are uses at the smallest distance (the paper's section 3.4); the error is estimated from sixteen groups of
//! pages ([`Uses`]).

use super::recency::Recency;
use super::uses::{GROUP_BITS, Uses};
use terrace_report::ReuseCurves;

/// Pages in the sample at most; one that was just halved holds about half of it.
const SAMPLE_LIMIT: usize = 16_384;
/// Lowest bit of the hash that decides membership; the bits below choose the slot, the highest four the group.
const SAMPLE_BIT: u32 = 20;
/// Addresses handled at once.
const CHUNK: usize = 256;
/// An empty slot. The one page in 2^64 with this hash is not counted.
const EMPTY: u64 = 0;
/// Positions on the line of uses for each page in the sample: it is tidied up every few thousand uses.
const POSITIONS: usize = 4;

/// So many pages take their positions until it is, where there are fewer.
const LEAST_TIDIED: usize = 256;

/// A page of the sample.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// The hash stands for the page: two of 2^15 among 2^64 do not collide in practice.
    hash: u64,
    /// Number of the last access to it.
    last: u64,
    position: u32,
}

const NO_PAGE: Page = Page { hash: EMPTY, last: 0, position: 0 };

/// The sample: a table of hashes, open to the next slot, and the order of use.
#[derive(Debug)]
pub(super) struct PageSample {
    table: Box<[Page]>,
    recency: Recency,
    uses: Uses,
    pages: usize,
    limit: usize,
    /// A page is in the sample when `hash & mask == 0`.
    mask: u64,
    halvings: u32,
    /// Accesses seen.
    time: u64,
    /// Page of the last access, and its hash.
    last_page: u64,
    open: u64,
}

impl PageSample {
    pub(super) fn new() -> PageSample {
        PageSample::with_limit(SAMPLE_LIMIT)
    }

    fn with_limit(limit: usize) -> PageSample {
        PageSample {
            table: vec![NO_PAGE; (2 * limit).next_power_of_two()].into(),
            recency: Recency::new(POSITIONS * limit),
            uses: Uses::new(),
            pages: 0,
            limit,
            mask: 0,
            halvings: 0,
            time: 0,
            last_page: u64::MAX,
            open: EMPTY,
        }
    }

    /// Adds accesses to these addresses. `space` tells processes apart.
    pub(super) fn add(&mut self, addresses: &[u64], space: u64) {
        // First where runs of accesses to one page begin, without a branch that a random stream would mispredict; then
        // those of them that are in the sample against the table.
        let (mut hashes, mut begins) = ([0; CHUNK], [0; CHUNK]);
        for chunk in addresses.chunks(CHUNK) {
            let mut runs = 0;
            for (at, &address) in chunk.iter().enumerate() {
                let page = (address >> 12) | space << 52;
                hashes[runs] = mix(page);
                begins[runs] = at as u64;
                runs += usize::from(page != self.last_page);
                self.last_page = page;
            }
            self.uses.repeated((chunk.len() - runs) as u64);
            for run in 0..runs {
                let begin = self.time + begins[run];
                if run == 0 {
                    self.close(begin);
                }
                let end = if run + 1 < runs { self.time + begins[run + 1] } else { begin + 1 };
                if hashes[run] & self.mask == 0 {
                    self.used(hashes[run], begin, end - 1);
                }
            }
            if runs > 0 {
                self.open = hashes[runs - 1];
            }
            self.time += chunk.len() as u64;
        }
    }

    /// Number of distinct pages.
    pub(super) fn count(&self) -> u64 {
        (self.pages as u64) << self.halvings
    }

    /// Whether the count is an estimate.
    pub(super) fn is_estimate(&self) -> bool {
        self.halvings > 0
    }

    /// What the uses say about memory of any size.
    pub(super) fn curves(mut self) -> ReuseCurves {
        self.close(self.time);
        for page in self.table.iter().filter(|page| page.hash != EMPTY) {
            self.uses.ended(group_of(page.hash), self.time - page.last, 1 << self.halvings);
        }
        self.uses.curves(self.time, self.count(), self.halvings)
    }

    /// The run of accesses to one page that went on until here is over.
    fn close(&mut self, end: u64) {
        let slot = self.slot_of(self.open);
        if self.open != EMPTY && self.table[slot].hash == self.open {
            self.table[slot].last = end - 1;
        }
    }

    /// A page of the sample was accessed from `begin` to `last` and not right before.
    fn used(&mut self, hash: u64, begin: u64, last: u64) {
        // The sample may have halved since the hash was chosen; a page without a hash is none.
        if hash & self.mask != 0 || hash == EMPTY {
            return;
        }
        // Early where pages are few: what is near in memory is found faster.
        if self.recency.used() >= POSITIONS * self.pages.max(LEAST_TIDIED) || self.recency.is_full() {
            self.tidy_up();
        }
        let (slot, weight) = (self.slot_of(hash), 1 << self.halvings);
        let page = self.table[slot];
        if page.hash == hash {
            let between = self.recency.after(page.position) << self.halvings;
            self.recency.remove(page.position);
            self.uses.reused(group_of(hash), between, begin - page.last, weight);
        } else {
            self.uses.first(group_of(hash), begin + 1, weight);
            self.pages += 1;
        }
        let position = self.recency.push(slot as u32);
        self.table[slot] = Page { hash, last, position };
        if self.pages > self.limit {
            self.halve();
        }
    }

    /// Where the page is, or the empty slot where it belongs.
    fn slot_of(&self, hash: u64) -> usize {
        let slots = self.table.len();
        let mut slot = hash as usize % slots;
        while self.table[slot].hash != hash && self.table[slot].hash != EMPTY {
            slot = (slot + 1) % slots;
        }
        slot
    }

    /// Moves the last uses together, in their order.
    #[cold]
    fn tidy_up(&mut self) {
        let order = self.recency.in_order();
        self.recency.clear();
        for slot in order {
            self.table[slot as usize].position = self.recency.push(slot);
        }
    }

    #[cold]
    fn halve(&mut self) {
        self.halvings += 1;
        self.mask = ((1 << self.halvings) - 1) << SAMPLE_BIT;
        let order: Vec<Page> =
            self.recency.in_order().into_iter().map(|slot| self.table[slot as usize]).collect();
        self.recency.clear();
        self.table.fill(NO_PAGE);
        self.pages = 0;
        for page in order {
            if page.hash & self.mask == 0 {
                let slot = self.slot_of(page.hash);
                let position = self.recency.push(slot as u32);
                self.table[slot] = Page { position, ..page };
                self.pages += 1;
            }
        }
    }
}

fn group_of(hash: u64) -> usize {
    (hash >> (u64::BITS - GROUP_BITS)) as usize
}

/// A hash whose every bit depends on every bit of `page`: both halves of a wide product, folded.
#[inline]
fn mix(page: u64) -> u64 {
    let product = u128::from(page ^ 0x9e37_79b9_7f4a_7c15) * 0xd1b5_4a32_d192_ed03;
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests;
