//! What messages about page-table entries look for in translation structures, and what they find there.
//!
//! A message of the coherence directory names an entry of a page table, or a line of them, and the sets in which structures
//! look. A co-tag stands for the entry that a translation was made from, and keeps a part of its address only.

use terrace_model::PhysAddr;

/// A place without a co-tag: what stands there came from no entry of a page table.
pub const NOTHING: PhysAddr = PhysAddr(u64::MAX);
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

    /// This resolution for all entries of a line at once.
    pub fn by_line(&self) -> Resolution {
        let line = u64::MAX << LINE_BITS;
        Resolution { kept: self.kept & line, exact: self.exact & line }
    }

    /// Whether a message about the entry or line at `target` finds the co-tag of the entry at `tag`.
    #[inline]
    pub fn matches(&self, tag: PhysAddr, target: PhysAddr) -> bool {
        tag != NOTHING && (tag.0 ^ target.0) & self.kept == 0
    }

    /// Whether that is because it is meant.
    #[inline]
    pub fn is_exact(&self, tag: PhysAddr, target: PhysAddr) -> bool {
        (tag.0 ^ target.0) & self.exact == 0
    }
}

/// The sets of one array that a probe looks into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeSets {
    /// All of them.
    All,
    /// The sets of these numbers.
    Listed(Vec<u16>),
    /// The sets that may hold pages whose numbers, or their numbers' lowest bits, are these: below `modulo`, a power of two.
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
        address: PhysAddr,
        entries: u64,
        sets: usize,
        keys: usize,
        places: impl Fn(u64) -> I,
    ) -> ProbeSets {
        if !sets.is_power_of_two() || sets > keys {
            return ProbeSets::All;
        }
        let first = address.0 >> 3 & 511;
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
    /// The translation's sets in level 1 and level 2.
    pub sets: [u16; 2],
    /// The lowest bits of its page's number, from which arrays take the set.
    pub page: u16,
}

/// What a probe looks for, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address of the entry, or of the line's first one.
    pub address: PhysAddr,
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
    pub fn addresses(&self) -> impl Iterator<Item = PhysAddr> + use<> {
        let (line, entries) = (self.line, self.entries);
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
