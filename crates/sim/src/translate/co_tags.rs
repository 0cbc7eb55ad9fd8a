//! Co-tags: beside each translation the address of the page-table entry that it was made from (HATRIC, Yan 2019, section
//! 2.4.1).
//!
//! Co-tags stand in arrays of their own, one per translation structure, in the same sets and ways. A core's lookups never
//! read them; messages of the coherence directory do, and drop the entries whose co-tag matches. A co-tag keeps a part of
//! the address only, so entries of other addresses may match too: those are dropped with the right ones, and counted as
//! aliases.

use super::tlb::Tlb;
use terrace_model::PhysAddr;

/// A place without a co-tag: what stands there came from no entry of a page table.
const NOTHING: u64 = u64::MAX;
/// Bits of an address within a page-table entry, and within a line of eight entries.
const ENTRY_BITS: u32 = 3;
const LINE_BITS: u32 = 6;

/// Which bits of an entry's address are kept and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Bits that co-tags keep.
    kept: u64,
    /// Bits that tell two targets apart.
    exact: u64,
}

impl Resolution {
    /// Co-tags of so many bytes, of 8 for all of the address: the bits from 3 up, two bytes bits 18 to 3. `by_line`: bits 5
    /// to 3 are ignored, so that all entries of a line match.
    pub fn new(bytes: u32, by_line: bool) -> Resolution {
        let from = if by_line { LINE_BITS } else { ENTRY_BITS };
        let all = u64::MAX << from;
        let kept = if bytes >= 8 { all } else { all & ((1 << (8 * bytes + ENTRY_BITS)) - 1) };
        Resolution { kept, exact: all }
    }

    /// The same for all entries of a line at once.
    pub fn by_line(&self) -> Resolution {
        let line = u64::MAX << LINE_BITS;
        Resolution { kept: self.kept & line, exact: self.exact & line }
    }

    /// Whether a message about the entry or line at `target` finds the co-tag of the entry at `tag`.
    #[inline]
    pub fn matches(&self, tag: u64, target: u64) -> bool {
        tag != NOTHING && (tag ^ target) & self.kept == 0
    }

    /// Whether that is because it is meant.
    #[inline]
    pub fn is_exact(&self, tag: u64, target: u64) -> bool {
        (tag ^ target) & self.exact == 0
    }
}

/// The sets of one array that a probe looks into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeSets {
    /// All of them.
    All,
    /// Those of these numbers.
    Listed(Vec<u16>),
    /// Those that pages may be in whose numbers, or their numbers' lowest bits, are these: below `modulo`, a power of two.
    Cut {
        /// What is left of the page numbers.
        numbers: Vec<u16>,
        /// What they were cut to.
        modulo: u16,
    },
}

impl ProbeSets {
    /// The sets of an array of `sets` sets that entries from `address` on may be in: the place of an entry in its table is
    /// the lowest part of what the array is looked up by. All sets where that tells nothing. `places` says for a place what
    /// may stand in the array for it, of `keys` such keys.
    pub fn of_entries<I: Iterator<Item = u64>>(
        address: u64,
        entries: u64,
        sets: usize,
        keys: usize,
        places: impl Fn(u64) -> I,
    ) -> ProbeSets {
        if !sets.is_power_of_two() || sets > keys {
            return ProbeSets::All;
        }
        let first = address >> 3 & 511;
        let keys = (first..first + entries).flat_map(places);
        ProbeSets::Listed(keys.map(|key| (key % sets as u64) as u16).collect())
    }

    /// The sets of an array of `sets` sets, in ascending order.
    pub fn of(&self, sets: usize) -> Vec<usize> {
        let mut found: Vec<usize> = match self {
            ProbeSets::All => return (0..sets).collect(),
            _ if sets == 0 => return Vec::new(),
            ProbeSets::Listed(numbers) => numbers.iter().map(|number| usize::from(*number) % sets).collect(),
            ProbeSets::Cut { numbers, modulo } => match usize::from(*modulo) {
                cut if cut.is_multiple_of(sets) => {
                    numbers.iter().map(|number| usize::from(*number) % sets).collect()
                }
                cut if sets.is_multiple_of(cut) => {
                    numbers.iter().flat_map(|number| (usize::from(*number)..sets).step_by(cut)).collect()
                }
                _ if numbers.is_empty() => return Vec::new(),
                _ => return (0..sets).collect(),
            },
        };
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Where a translation stands in TLBs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlbSets {
    /// Its sets in level 1 and level 2.
    pub sets: [u16; 2],
    /// The lowest bits of its page's number, from which arrays take the set.
    pub page: u16,
}

/// What a probe looks for, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address of the entry, or of the line's first one.
    pub address: u64,
    /// Sets of level-1 TLBs.
    pub l1: ProbeSets,
    /// Sets of level-2 TLBs.
    pub l2: ProbeSets,
}

/// What a probe came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Entries dropped that were made from what changed.
    pub dropped: u64,
    /// Entries dropped because their co-tags looked the same.
    pub aliases: u64,
    /// Sets whose co-tags were compared: of level-1 TLBs, of level-2 TLBs, of the page-walk cache, of the nested TLB.
    pub sets: [u64; 4],
    /// Co-tags that were compared, of all structures.
    pub compared: u64,
    /// Most sets that one array searched, one after the other.
    pub longest: u64,
}

impl Probed {
    /// Adds another probe's.
    pub fn add(&mut self, other: &Probed) {
        self.dropped += other.dropped;
        self.aliases += other.aliases;
        self.compared += other.compared;
        (0..4).for_each(|at| self.sets[at] += other.sets[at]);
        self.longest = self.longest.max(other.longest);
    }

    /// Whether an entry was dropped.
    pub fn found(&self) -> bool {
        self.dropped + self.aliases > 0
    }
}

/// A line of a page table was stored to, as range TLBs are notified of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeStore {
    /// The line's address.
    pub line: PhysAddr,
    /// Which of its entries drop what was made from them, one bit each.
    pub entries: u8,
    /// Which bits of co-tags are compared.
    pub resolution: Resolution,
}

impl RangeStore {
    /// The addresses of those entries.
    pub fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        let (line, entries) = (self.line.0, self.entries);
        (0..8).filter(move |entry| entries & 1 << entry != 0).map(move |entry| line + 8 * entry)
    }
}

/// What a range TLB had to lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangesFound {
    /// Ranges that went.
    pub dropped: u64,
    /// Ranges that were cut.
    pub cut: u64,
    /// Addresses that were compared.
    pub addresses: u64,
    /// What level 1 had of them.
    pub in_tlbs: Probed,
}

/// What a structure is to a probe: its place in [`Probed::sets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// A level-1 TLB.
    L1,
    /// A level-2 TLB.
    L2,
    /// The page-walk cache.
    WalkCache,
    /// The nested TLB.
    NestedTlb,
}

/// The co-tags of one array.
#[derive(Clone, Debug)]
pub struct CoTags {
    /// Whole addresses: what a real co-tag lacks of them is masked when they are compared. They are bare numbers, as co-tags
    /// are outside of this array too: a tag is bits to compare and leads to no memory.
    tags: Box<[u64]>,
    ways: usize,
}

impl CoTags {
    /// Beside `array`, all empty.
    pub fn beside(array: &Tlb) -> CoTags {
        let (sets, ways) = (array.sets(), array.ways());
        CoTags { tags: vec![NOTHING; sets * ways].into(), ways }
    }

    /// The entry at `place` was made from the page-table entry at `address`. Returns the co-tag that stood there.
    #[inline]
    pub fn set(&mut self, place: usize, address: u64) -> Option<u64> {
        let old = std::mem::replace(&mut self.tags[place], address);
        (old != NOTHING).then_some(old)
    }

    /// The entry at `place` was made from no entry that a message could be about. Returns the co-tag that stood there.
    pub fn clear(&mut self, place: usize) -> Option<u64> {
        self.set(place, NOTHING)
    }

    /// The co-tag of the entry at `place`.
    #[inline]
    pub fn get(&self, place: usize) -> u64 {
        self.tags[place]
    }

    /// Drops from `array` what matches in these sets.
    pub fn probe(
        &mut self,
        array: &mut Tlb,
        structure: Structure,
        sets: &ProbeSets,
        target: u64,
        resolution: Resolution,
    ) -> Probed {
        let mut probed = Probed::default();
        for set in sets.of(array.sets()) {
            probed.longest += 1;
            for place in set * self.ways..(set + 1) * self.ways {
                let tag = self.tags[place];
                probed.compared += 1;
                if !resolution.matches(tag, target) || array.key_at(place).is_none() {
                    continue;
                }
                if resolution.is_exact(tag, target) {
                    probed.dropped += 1;
                } else {
                    probed.aliases += 1;
                }
                array.drop_at(place);
                self.tags[place] = NOTHING;
            }
        }
        probed.sets[structure as usize] = probed.longest;
        probed
    }

    /// Whether an entry of `array` matches, in any set, and how many co-tags were compared for that: all.
    pub fn holds(&self, array: &Tlb, target: u64, resolution: Resolution) -> (bool, u64) {
        let mut tags = self.tags.iter().enumerate();
        let held = tags.any(|(place, tag)| resolution.matches(*tag, target) && array.key_at(place).is_some());
        (held, self.tags.len() as u64)
    }
}

#[cfg(test)]
mod tests;
