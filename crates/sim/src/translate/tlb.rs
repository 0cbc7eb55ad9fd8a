//! One TLB array with true LRU.

use super::parameters::Associativity;
use crate::array::{Divider, FullyAssociative, NARROW_MAX_WAYS, PackedSets};
use terrace_model::{Frame, PageNumber, PageSize, SpaceId};

/// What a TLB entry says, in one word: frame number of the page's first byte, and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbEntry(pub u64);

impl TlbEntry {
    const DIRTY: u64 = 1 << 63;

    /// An entry for a page whose first byte lies in base frame `frame`. Without `dirty` the first store through the
    /// entry must visit the page table (to set its dirty bit, or to break copy-on-write sharing).
    #[inline]
    pub fn new(frame: Frame, dirty: bool) -> TlbEntry {
        TlbEntry(frame.0 | if dirty { TlbEntry::DIRTY } else { 0 })
    }

    /// Base frame of the page's first byte.
    #[inline(always)]
    pub fn frame(self) -> Frame {
        Frame(self.0 & !TlbEntry::DIRTY)
    }

    /// Whether a store may go ahead without visiting the page table.
    #[inline(always)]
    pub fn is_dirty(self) -> bool {
        self.0 & TlbEntry::DIRTY != 0
    }
}

/// The key of a page in a TLB: page number, page size and address space.
///
/// Layout: bits 0..47 page number at its size, 47..49 size, 49..64 address space. The set is taken from the page
/// number alone. Arrays hold keys as bare numbers.
#[inline(always)]
pub fn key(space: SpaceId, PageNumber(page): PageNumber, size: PageSize) -> u64 {
    debug_assert!(page < 1 << 45 && space < SpaceId(1 << 15));
    page | (size.index() as u64) << 47 | u64::from(space.0) << 49
}

/// The key of no page.
const NO_KEY: u64 = u64::MAX;
/// The place of a page in an array that does not give it.
const NO_SLOT: u32 = u32::MAX;

const PAGE_NUMBER: u64 = (1 << 47) - 1;

/// Splits a key back into address space, page number and size.
pub fn split_key(key: u64) -> (SpaceId, PageNumber, PageSize) {
    (SpaceId((key >> 49) as u32), PageNumber(key & PAGE_NUMBER), PageSize::ALL[(key >> 47 & 3) as usize])
}

/// A TLB array. Set = page number modulo sets.
#[derive(Clone, Debug)]
pub enum Tlb {
    /// No entries: every lookup misses.
    Absent,
    /// Up to 16 ways.
    Sets(SetTlb),
    /// More ways: each set is a small fully associative array.
    Wide(WideTlb),
    /// Fully associative.
    Full(FullyAssociative),
}

/// A set-associative TLB array of more than 16 ways.
#[derive(Clone, Debug)]
pub struct WideTlb {
    sets: Vec<FullyAssociative>,
    divider: Divider,
}

impl WideTlb {
    #[inline(always)]
    fn set(&mut self, key: u64) -> &mut FullyAssociative {
        let set = set_of(&self.divider, key);
        &mut self.sets[set]
    }
}

/// The set of a page: its number modulo the sets.
#[inline(always)]
fn set_of(divider: &Divider, key: u64) -> usize {
    // Page numbers of 45 bits exceed what the divider takes for odd set counts: the top is cut, which only 57-bit
    // addresses of 4 KiB pages use.
    divider.divide(key & PAGE_NUMBER & ((1 << 40) - 1)).1 as usize
}

/// A set-associative TLB array.
#[derive(Clone, Debug)]
pub struct SetTlb {
    /// A hash of each key; `slots` decides.
    sets: PackedSets,
    /// Keys and entries.
    slots: Vec<(u64, u64)>,
    divider: Divider,
    ways: u32,
}

#[inline(always)]
fn tag_of(key: u64) -> u32 {
    // Any function of the key will do, since the whole key is compared afterwards; all ones marks an empty way.
    let folded = (key ^ (key >> 32)) as u32;
    if folded == u32::MAX { 0 } else { folded }
}

impl Tlb {
    /// An empty array.
    ///
    /// # Errors
    /// Entries that are no multiple of the ways.
    pub fn new(entries: u32, ways: Associativity) -> Result<Tlb, String> {
        if entries == 0 {
            return Ok(Tlb::Absent);
        }
        let ways = match ways {
            Associativity::Ways(ways) if ways != entries || ways <= NARROW_MAX_WAYS => ways,
            _ => return Ok(Tlb::Full(FullyAssociative::new(entries))),
        };
        if ways == 0 || !entries.is_multiple_of(ways) {
            return Err(format!(
                "{entries} entries in {ways} ways: the ways must divide the entries, or be \"full\""
            ));
        }
        if ways > NARROW_MAX_WAYS {
            let sets = vec![FullyAssociative::new(ways); (entries / ways) as usize];
            let divider = Divider::new(sets.len() as u64);
            return Ok(Tlb::Wide(WideTlb { sets, divider }));
        }
        let sets = entries / ways;
        Ok(Tlb::Sets(SetTlb {
            sets: PackedSets::new(sets as usize, ways),
            slots: vec![(NO_KEY, 0); entries as usize],
            divider: Divider::new(u64::from(sets)),
            ways,
        }))
    }

    /// Number of sets; each has a recency order of its own. None without entries.
    pub fn sets(&self) -> usize {
        match self {
            Tlb::Absent => 0,
            Tlb::Sets(sets) => sets.sets.len(),
            Tlb::Wide(wide) => wide.sets.len(),
            Tlb::Full(_) => 1,
        }
    }

    /// Entries of one set. None without entries.
    pub fn ways(&self) -> usize {
        match self {
            Tlb::Absent => 0,
            Tlb::Sets(sets) => sets.ways as usize,
            Tlb::Wide(wide) => wide.sets[0].capacity(),
            Tlb::Full(full) => full.capacity(),
        }
    }

    /// Where an entry is, counted over all sets and ways.
    pub fn place(&self, key: u64) -> Option<usize> {
        match self {
            Tlb::Absent => None,
            Tlb::Sets(sets) => sets.find(key).map(|(slot, _, _)| slot),
            Tlb::Wide(wide) => {
                let set = set_of(&wide.divider, key);
                wide.sets[set].place(key).map(|way| set * self.ways() + way)
            }
            Tlb::Full(full) => full.place(key),
        }
    }

    /// The key of the entry at a place.
    pub fn key_at(&self, place: usize) -> Option<u64> {
        match self {
            Tlb::Absent => None,
            Tlb::Sets(sets) => Some(sets.slots[place].0).filter(|key| *key != NO_KEY),
            Tlb::Wide(wide) => wide.sets[place / self.ways()].key_at(place % self.ways()),
            Tlb::Full(full) => full.key_at(place),
        }
    }

    /// Drops the entry at a place.
    pub fn drop_at(&mut self, place: usize) {
        if let Some(key) = self.key_at(place) {
            self.remove(key);
        }
    }

    /// The set of a page, below [`Tlb::sets`].
    #[inline(always)]
    pub fn set_number(&self, key: u64) -> usize {
        match self {
            Tlb::Sets(sets) => set_of(&sets.divider, key),
            Tlb::Wide(wide) => set_of(&wide.divider, key),
            Tlb::Absent | Tlb::Full(_) => 0,
        }
    }

    /// Finds a page and makes it the most recently used of its set. Returns also where it is, for
    /// [`Tlb::touch_slot`].
    #[inline(always)]
    pub fn touch(&mut self, key: u64) -> Option<(TlbEntry, u32)> {
        match self {
            Tlb::Absent => None,
            Tlb::Sets(sets) => sets.touch(key),
            Tlb::Wide(wide) => wide.set(key).touch(key).map(|entry| (TlbEntry(*entry), NO_SLOT)),
            Tlb::Full(full) => full.touch(key).map(|entry| (TlbEntry(*entry), NO_SLOT)),
        }
    }

    /// Makes a page the most recently used of its set, if it still is where [`Tlb::touch`] or [`Tlb::insert`] said.
    #[inline(always)]
    pub fn touch_slot(&mut self, key: u64, slot: u32) -> bool {
        match self {
            Tlb::Sets(sets) => sets.touch_slot(key, slot),
            Tlb::Absent | Tlb::Wide(_) | Tlb::Full(_) => false,
        }
    }

    /// Puts in a page that is not there; it becomes the most recently used. Returns where it is.
    #[inline(always)]
    pub fn insert(&mut self, key: u64, entry: TlbEntry) -> u32 {
        match self {
            Tlb::Absent => {}
            Tlb::Sets(sets) => return sets.insert(key, entry),
            Tlb::Wide(wide) => {
                wide.set(key).insert(key, entry.0);
            }
            Tlb::Full(full) => {
                full.insert(key, entry.0);
            }
        }
        NO_SLOT
    }

    /// Replaces the entry of a page where it is present, without touching the recency.
    pub fn update(&mut self, key: u64, entry: TlbEntry) {
        match self {
            Tlb::Absent => {}
            Tlb::Sets(sets) => {
                if let Some((slot, _, _)) = sets.find(key) {
                    sets.slots[slot].1 = entry.0;
                }
            }
            Tlb::Wide(wide) => {
                wide.set(key).update(key, entry.0);
            }
            Tlb::Full(full) => {
                full.update(key, entry.0);
            }
        }
    }

    /// Drops all entries for whose key `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        match self {
            Tlb::Absent => {}
            Tlb::Sets(sets) => {
                for set in 0..sets.sets.len() {
                    for way in 0..sets.ways {
                        let key = sets.slots[set * sets.ways as usize + way as usize].0;
                        if sets.sets.tag(set, way).is_some() && !keep(key) {
                            sets.drop_way(set, way);
                        }
                    }
                }
            }
            Tlb::Wide(wide) => wide.sets.iter_mut().for_each(|set| set.retain(&mut keep)),
            Tlb::Full(full) => full.retain(keep),
        }
    }

    /// Drops one page.
    pub fn remove(&mut self, key: u64) {
        match self {
            Tlb::Absent => {}
            Tlb::Sets(sets) => {
                if let Some((_, set, way)) = sets.find(key) {
                    sets.drop_way(set, way);
                }
            }
            Tlb::Wide(wide) => {
                wide.set(key).remove(key);
            }
            Tlb::Full(full) => {
                full.remove(key);
            }
        }
    }
}

impl SetTlb {
    /// Slot, set and way of a page.
    #[inline(always)]
    fn find(&self, key: u64) -> Option<(usize, usize, u32)> {
        let set = set_of(&self.divider, key);
        let mut matches = self.sets.matches(set, tag_of(key));
        while matches != 0 {
            let way = matches.trailing_zeros();
            let slot = set * self.ways as usize + way as usize;
            if self.slots[slot].0 == key {
                return Some((slot, set, way));
            }
            matches &= matches - 1;
        }
        None
    }

    #[inline(always)]
    fn touch(&mut self, key: u64) -> Option<(TlbEntry, u32)> {
        let (slot, set, way) = self.find(key)?;
        self.sets.set(set).touch(way);
        Some((TlbEntry(self.slots[slot].1), slot as u32))
    }

    #[inline(always)]
    fn touch_slot(&mut self, key: u64, slot: u32) -> bool {
        if self.slots.get(slot as usize).is_none_or(|&(held, _)| held != key) {
            return false;
        }
        let set = set_of(&self.divider, key);
        self.sets.set(set).touch(slot - set as u32 * self.ways);
        true
    }

    #[inline(always)]
    fn insert(&mut self, key: u64, entry: TlbEntry) -> u32 {
        debug_assert!(self.find(key).is_none(), "{key:#x} inserted twice");
        let number = set_of(&self.divider, key);
        let mut set = self.sets.set(number);
        let way = set.take_victim();
        set.set_tag(way, tag_of(key));
        let slot = number * self.ways as usize + way as usize;
        self.slots[slot] = (key, entry.0);
        slot as u32
    }

    fn drop_way(&mut self, set: usize, way: u32) {
        self.slots[set * self.ways as usize + way as usize] = (NO_KEY, 0);
        let mut set = self.sets.set(set);
        set.clear_tag(way);
        set.move_to_back(way);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::parameters::FullKeyword;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Lists of keys, most recent first.
    struct Naive {
        sets: Vec<Vec<(u64, u64)>>,
        ways: usize,
    }

    impl Naive {
        fn set(&mut self, key: u64) -> &mut Vec<(u64, u64)> {
            let n = self.sets.len() as u64;
            &mut self.sets[((key & PAGE_NUMBER) % n) as usize]
        }
        fn touch(&mut self, key: u64) -> Option<u64> {
            let set = self.set(key);
            let at = set.iter().position(|e| e.0 == key)?;
            let entry = set.remove(at);
            set.insert(0, entry);
            Some(entry.1)
        }
        fn insert(&mut self, key: u64, entry: u64) {
            let ways = self.ways;
            let set = self.set(key);
            set.insert(0, (key, entry));
            set.truncate(ways);
        }
        fn remove(&mut self, key: u64) {
            self.set(key).retain(|e| e.0 != key);
        }
    }

    fn keys() -> impl Strategy<Value = u64> {
        // Two address spaces, two sizes, and page numbers that collide in the tag hash's folding.
        (0u32..2, prop_oneof![0u64..64, (0u64..4).prop_map(|k| k << 32 | k)], 0usize..2)
            .prop_map(|(space, page, size)| key(SpaceId(space), PageNumber(page), PageSize::ALL[size]))
    }

    proptest! {
        #[test]
        fn agrees_with_lists(
            sets in 1u32..7, ways in 1u32..=24, full: bool,
            steps in prop::collection::vec((keys(), 0u8..12), 0..500),
        ) {
            let associativity =
                if full { Associativity::Full(FullKeyword::Full) } else { Associativity::Ways(ways) };
            let mut tlb = Tlb::new(sets * ways, associativity).unwrap();
            let mut naive = if full {
                Naive { sets: vec![Vec::new()], ways: (sets * ways) as usize }
            } else {
                Naive { sets: vec![Vec::new(); sets as usize], ways: ways as usize }
            };
            let mut slots = HashMap::new();
            for (n, (key, action)) in steps.into_iter().enumerate() {
                match action {
                    0 => { tlb.remove(key); naive.remove(key); }
                    // Where a page was seen last must not be believed when it has gone.
                    1..4 => if let Some(&slot) = slots.get(&key)
                        && tlb.touch_slot(key, slot)
                    {
                        prop_assert!(naive.touch(key).is_some());
                    }
                    action => {
                        let (found, slot) = tlb.touch(key).unzip();
                        prop_assert_eq!(found.map(|e| e.0), naive.touch(key));
                        let place = tlb.place(key);
                        prop_assert_eq!(place.is_some(), found.is_some());
                        prop_assert_eq!(place.and_then(|place| tlb.key_at(place)), found.map(|_| key));
                        prop_assert_eq!(place.map(|place| place / tlb.ways()), found.map(|_| tlb.set_number(key)));
                        slots.extend(slot.map(|slot| (key, slot)));
                        if found.is_none() && action < 9 {
                            slots.insert(key, tlb.insert(key, TlbEntry(n as u64)));
                            naive.insert(key, n as u64);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn keys_split_back() {
        let k = key(SpaceId(3), PageNumber(0x1_2345_6789), PageSize::Huge);
        assert_eq!(split_key(k), (SpaceId(3), PageNumber(0x1_2345_6789), PageSize::Huge));
    }

    #[test]
    fn ways_that_do_not_divide_are_refused() {
        assert!(Tlb::new(64, Associativity::Ways(5)).unwrap_err().contains("divide"));
    }
}
