//! One cache level: tags, recency, and the dirty and writable bits of its lines.

use super::parameters::{CacheParameters, Replacement, SetIndex};
use crate::array::{Divider, NO_WAY, ORDER_MAX_WAYS, PackedSets};
use terrace_model::{CacheLine, LINE_BYTES};

/// What happened at a level, counted where it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounters {
    /// Lookups that found the line.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Dirty lines sent down.
    pub writebacks: u64,
}

/// A line pushed out of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The line's number.
    pub line: CacheLine,
    /// Whether it holds data that the level below does not.
    pub dirty: bool,
}

/// The place of a line in a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    set: u32,
    way: u32,
}

/// Where a line belongs in a level, whether it is there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    set: u32,
    tag: u32,
}

/// A line found in a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The line's place.
    pub slot: Slot,
    /// The line holds data that the level below does not.
    pub dirty: bool,
    /// MESI: exclusive or modified. Others are shared.
    pub writable: bool,
}

/// The state bit of a way: dirty.
#[inline(always)]
const fn dirty_bit(way: u32) -> u64 {
    1 << way
}

/// The state bit of a way: writable.
#[inline(always)]
const fn writable_bit(way: u32) -> u64 {
    1 << (32 + way)
}

/// A set-associative cache level of 64-byte lines.
#[derive(Clone, Debug)]
pub struct Level {
    /// With SRRIP the order word holds two bits of re-reference prediction per way.
    sets: PackedSets,
    divider: Divider,
    ways: u32,
    replacement: Replacement,
    fold: Fold,
}

/// What a line's tag does to the number of its set.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fold {
    /// Nothing: the lowest bits alone give it.
    Nothing,
    /// The tag's hash of so many bits goes in by exclusive or, where the sets are a power of two.
    Xor(u32),
    /// The tag's hash, below this number of sets, is added modulo that.
    Add(u32),
}

/// 2³² over the golden ratio.
const GOLDEN_RATIO: u32 = 0x9e37_79b9;

const SRRIP_DISTANT: u64 = 3;
const SRRIP_LONG: u64 = 2;
const SRRIP_LOWS: u64 = 0x5555_5555_5555_5555;

impl Level {
    /// An empty level. The capacity is rounded down to whole sets.
    ///
    /// # Errors
    /// More than 25 ways, or less capacity than one set.
    pub fn new(parameters: &CacheParameters) -> Result<Level, String> {
        let ways = parameters.ways;
        if !(1..=ORDER_MAX_WAYS).contains(&ways) {
            return Err(format!("a cache of {ways} ways: 1 to {ORDER_MAX_WAYS} are possible"));
        }
        let sets = parameters.capacity.0 / (LINE_BYTES * u64::from(ways));
        if !(1..=1 << 24).contains(&sets) {
            return Err(format!("a cache of {} with {ways} ways has {sets} sets", parameters.capacity));
        }
        let fold = match parameters.index {
            // One set is everybody's.
            SetIndex::Modulo => Fold::Nothing,
            SetIndex::Hashed if sets == 1 => Fold::Nothing,
            SetIndex::Hashed if sets.is_power_of_two() => Fold::Xor(sets.trailing_zeros()),
            SetIndex::Hashed => Fold::Add(sets as u32),
        };
        let mut packed = PackedSets::new(sets as usize, ways);
        if parameters.replacement == Replacement::Srrip {
            for set in 0..packed.len() {
                packed.set(set).set_order(u64::MAX);
            }
        }
        let (divider, replacement) = (Divider::new(sets), parameters.replacement);
        Ok(Level { sets: packed, divider, ways, replacement, fold })
    }

    /// Number of sets, where the set of a line is given by as many of its lowest bits.
    pub fn sets_by_lowest_bits(&self) -> Option<usize> {
        let sets = self.sets.len();
        (sets.is_power_of_two() && self.fold == Fold::Nothing).then_some(sets)
    }

    /// The set of a line with this tag, by what the lowest bits say.
    #[inline(always)]
    fn folded(&self, tag: u32, low: u32) -> u32 {
        let hash = tag.wrapping_mul(GOLDEN_RATIO);
        match self.fold {
            Fold::Nothing => low,
            Fold::Xor(bits) => low ^ (hash >> (32 - bits)),
            Fold::Add(sets) => {
                let sum = low + below(hash, sets);
                if sum >= sets { sum - sets } else { sum }
            }
        }
    }

    /// The line with this tag in this set.
    #[inline(always)]
    fn line(&self, tag: u32, set: u32) -> CacheLine {
        let hash = tag.wrapping_mul(GOLDEN_RATIO);
        let low = match self.fold {
            Fold::Nothing => set,
            Fold::Xor(bits) => set ^ (hash >> (32 - bits)),
            Fold::Add(sets) => {
                let hash = below(hash, sets);
                if set >= hash { set - hash } else { set + sets - hash }
            }
        };
        CacheLine(u64::from(tag) * self.divider.divisor() + u64::from(low))
    }

    /// The line that belongs at a home.
    pub fn line_of(&self, home: Home) -> CacheLine {
        self.line(home.tag, home.set)
    }

    /// Whether a first hit leaves a line's standing as the insertion made it: under SRRIP it promotes the line.
    #[inline(always)]
    pub fn hit_after_insert_changes_nothing(&self) -> bool {
        self.replacement == Replacement::Lru
    }

    /// Number of slots for tables that run beside the level; see [`Level::slot_index`].
    pub fn slots(&self) -> usize {
        self.sets.len() * self.sets.stride()
    }

    /// Number of lines the level can hold.
    pub fn lines(&self) -> usize {
        self.sets.len() * self.ways as usize
    }

    /// Index of a slot into tables of [`Level::slots`] entries.
    #[inline(always)]
    pub fn slot_index(&self, slot: Slot) -> usize {
        slot.set as usize * self.sets.stride() + slot.way as usize
    }

    /// Where a line belongs.
    #[inline(always)]
    pub fn home(&self, line: CacheLine) -> Home {
        let (tag, set) = self.divider.divide(line.0);
        debug_assert!(tag < u64::from(u32::MAX), "line {:#x} beyond what a tag can hold", line.0);
        let tag = tag as u32;
        Home { set: self.folded(tag, set as u32), tag }
    }

    /// Finds a line and counts it as used.
    #[inline(always)]
    pub fn touch(&mut self, home: Home) -> Option<Held> {
        let replacement = self.replacement;
        let mut set = self.sets.set(home.set as usize);
        let way = set.find(home.tag);
        if way == NO_WAY {
            return None;
        }
        match replacement {
            Replacement::Lru => set.touch(way),
            Replacement::Srrip => set.set_order(set.order() & !(3 << (2 * way))),
        }
        Some(held(home.set, way, set.state()))
    }

    /// Finds a line without counting it as used.
    #[inline]
    pub fn peek(&self, home: Home) -> Option<Held> {
        let way = self.sets.find(home.set as usize, home.tag);
        (way != NO_WAY).then(|| held(home.set, way, self.sets.state(home.set as usize)))
    }

    /// Whether a line is there.
    #[inline]
    pub fn holds(&self, line: CacheLine) -> bool {
        let Home { set, tag } = self.home(line);
        self.sets.find(set as usize, tag) != NO_WAY
    }

    /// Puts in a line that is not there. Returns its slot and the line that had to go.
    #[inline(always)]
    pub fn insert(&mut self, home: Home, dirty: bool, writable: bool) -> (Slot, Option<Evicted>) {
        let (replacement, ways) = (self.replacement, self.ways);
        let mut set = self.sets.set(home.set as usize);
        debug_assert_eq!(set.find(home.tag), NO_WAY, "{home:?} inserted twice");
        let way = match replacement {
            Replacement::Lru => set.take_victim(),
            Replacement::Srrip => {
                let mut predictions = set.order();
                let way = srrip_victim(&mut predictions, ways);
                set.set_order(predictions & !(3 << (2 * way)) | SRRIP_LONG << (2 * way));
                way
            }
        };
        let state = set.state();
        let old = set.tag(way);
        set.set_tag(way, home.tag);
        let cleared = state & !(dirty_bit(way) | writable_bit(way));
        set.set_state(cleared | u64::from(dirty) << way | u64::from(writable) << (32 + way));
        let was_dirty = state & dirty_bit(way) != 0;
        let evicted = old.map(|old| Evicted { line: self.line(old, home.set), dirty: was_dirty });
        (Slot { set: home.set, way }, evicted)
    }

    #[inline(always)]
    fn change_state(&mut self, slot: Slot, change: impl FnOnce(u64) -> u64) {
        let mut set = self.sets.set(slot.set as usize);
        set.set_state(change(set.state()));
    }

    /// Marks the line as modified here.
    #[inline(always)]
    pub fn set_dirty(&mut self, slot: Slot) {
        self.change_state(slot, |state| state | dirty_bit(slot.way));
    }

    /// Grants the right to write.
    #[inline]
    pub fn set_writable(&mut self, slot: Slot) {
        self.change_state(slot, |state| state | writable_bit(slot.way));
    }

    /// Marks the line as clean and shared: its data went down, and others may hold it.
    pub fn set_shared(&mut self, slot: Slot) {
        self.change_state(slot, |state| state & !(dirty_bit(slot.way) | writable_bit(slot.way)));
    }

    /// Removes a line; says whether it was there and dirty.
    pub fn invalidate(&mut self, home: Home) -> Option<bool> {
        let Held { slot: Slot { set, way }, dirty, .. } = self.peek(home)?;
        let replacement = self.replacement;
        let mut set = self.sets.set(set as usize);
        set.clear_tag(way);
        match replacement {
            Replacement::Lru => set.move_to_back(way),
            Replacement::Srrip => set.set_order(set.order() | SRRIP_DISTANT << (2 * way)),
        }
        set.set_state(set.state() & !(dirty_bit(way) | writable_bit(way)));
        Some(dirty)
    }

    /// All lines held, in no particular order of use.
    pub fn resident(&self) -> impl Iterator<Item = CacheLine> + '_ {
        (0..self.sets.len()).flat_map(move |set| {
            (0..self.ways)
                .filter_map(move |way| self.sets.tag(set, way).map(|tag| self.line(tag, set as u32)))
        })
    }

    /// The line that a miss at this home would push out under LRU, if it is dirty: a hint for looking ahead.
    #[inline(always)]
    pub fn likely_dirty_victim(&self, home: Home) -> Option<CacheLine> {
        let set = home.set as usize;
        let way = self.sets.least_recent(set);
        if self.sets.state(set) & dirty_bit(way) == 0 {
            return None;
        }
        self.sets.tag(set, way).map(|tag| self.line(tag, home.set))
    }

    /// Asks the host's memory for the set of a line, ahead of its use.
    #[inline(always)]
    pub fn prefetch_set(&self, home: Home) {
        self.sets.prefetch(home.set as usize);
    }
}

/// A hash of 32 bits as a number below `sets`: its highest bits where these are a power of two.
#[inline(always)]
fn below(hash: u32, sets: u32) -> u32 {
    ((u64::from(hash) * u64::from(sets)) >> 32) as u32
}

/// What the state bits of a set say of a way.
#[inline(always)]
fn held(set: u32, way: u32, state: u64) -> Held {
    Held {
        slot: Slot { set, way },
        dirty: state & dirty_bit(way) != 0,
        writable: state & writable_bit(way) != 0,
    }
}

/// The first way predicted to be re-referenced in the distant future; ages all ways until there is one.
#[inline]
fn srrip_victim(predictions: &mut u64, ways: u32) -> u32 {
    let mask = (1 << (2 * ways)) - 1;
    loop {
        let distant = *predictions & (*predictions >> 1) & SRRIP_LOWS & mask;
        if distant != 0 {
            return distant.trailing_zeros() / 2;
        }
        // No field is 3, so adding one to each cannot carry into the next.
        *predictions += SRRIP_LOWS & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use terrace_model::{Bytes, Cycles};

    fn parameters(sets: u64, ways: u32, replacement: Replacement) -> CacheParameters {
        CacheParameters {
            index: SetIndex::Modulo,
            capacity: Bytes(sets * u64::from(ways) * 64),
            ways,
            latency: Cycles(4.0),
            replacement,
            outstanding: 10,
        }
    }

    /// A set as a list, most recent first, or with predictions per place: slow and obvious.
    struct Naive {
        sets: Vec<Vec<Option<(u64, bool, u8)>>>,
        recency: Vec<Vec<usize>>,
        replacement: Replacement,
        index: SetIndex,
    }

    impl Naive {
        fn new(sets: u64, ways: u32, replacement: Replacement, index: SetIndex) -> Naive {
            Naive {
                index,
                sets: vec![vec![None; ways as usize]; sets as usize],
                recency: vec![(0..ways as usize).collect(); sets as usize],
                replacement,
            }
        }

        fn set(&self, line: u64) -> usize {
            let sets = self.sets.len();
            let low = line as usize % sets;
            let product = line / sets as u64 * 2_654_435_769 % (1 << 32);
            let hash = ((product * sets as u64) >> 32) as usize;
            match self.index {
                SetIndex::Modulo => low,
                SetIndex::Hashed if sets.is_power_of_two() => low ^ hash,
                SetIndex::Hashed => (low + hash) % sets,
            }
        }

        fn access(&mut self, line: u64, write: bool) -> (bool, Option<Evicted>) {
            let s = self.set(line);
            if let Some(way) = self.sets[s].iter().position(|w| w.is_some_and(|w| w.0 == line)) {
                let entry = self.sets[s][way].as_mut().unwrap();
                entry.1 |= write;
                entry.2 = 0;
                self.recency[s].retain(|&w| w != way);
                self.recency[s].insert(0, way);
                return (true, None);
            }
            let way = match self.replacement {
                Replacement::Lru => *self.recency[s].last().unwrap(),
                Replacement::Srrip => loop {
                    if let Some(way) = self.sets[s].iter().position(|w| w.is_none_or(|w| w.2 == 3)) {
                        break way;
                    }
                    self.sets[s].iter_mut().flatten().for_each(|w| w.2 += 1);
                },
            };
            let evicted = self.sets[s][way].map(|w| Evicted { line: CacheLine(w.0), dirty: w.1 });
            self.sets[s][way] = Some((line, write, 2));
            self.recency[s].retain(|&w| w != way);
            self.recency[s].insert(0, way);
            (false, evicted)
        }

        fn invalidate(&mut self, line: u64) -> Option<bool> {
            let s = self.set(line);
            let way = self.sets[s].iter().position(|w| w.is_some_and(|w| w.0 == line))?;
            let dirty = self.sets[s][way].take().unwrap().1;
            self.recency[s].retain(|&w| w != way);
            self.recency[s].push(way);
            Some(dirty)
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_cache(
            sets in 1u64..9, ways in 1u32..=25, srrip: bool, hashed: bool,
            steps in prop::collection::vec((0u64..200, 0u8..10), 0..600),
        ) {
            let replacement = if srrip { Replacement::Srrip } else { Replacement::Lru };
            let index = if hashed { SetIndex::Hashed } else { SetIndex::Modulo };
            let parameters = CacheParameters { index, ..parameters(sets, ways, replacement) };
            let mut level = Level::new(&parameters).unwrap();
            let mut naive = Naive::new(sets, ways, replacement, index);
            for (line, action) in steps {
                if action == 0 {
                    prop_assert_eq!(level.invalidate(level.home(CacheLine(line))), naive.invalidate(line));
                    continue;
                }
                let write = action > 6;
                let home = level.home(CacheLine(line));
                let (hit, evicted) = match level.touch(home) {
                    Some(held) => {
                        if write { level.set_dirty(held.slot) }
                        (true, None)
                    }
                    None => (false, level.insert(home, write, true).1),
                };
                prop_assert_eq!((hit, evicted), naive.access(line, write));
            }
            let mut held: Vec<u64> = level.resident().map(|line| line.0).collect();
            held.sort_unstable();
            let mut expected: Vec<u64> = naive.sets.iter().flatten().flatten().map(|w| w.0).collect();
            expected.sort_unstable();
            prop_assert_eq!(held, expected);
        }
    }

    #[test]
    fn a_level_that_cannot_be_built_says_why() {
        let error = Level::new(&parameters(4, 26, Replacement::Lru)).unwrap_err();
        assert!(error.contains("26 ways"), "{error}");
    }

    /// As below, where the sets are no power of two: 88 lines that all belong to one set by their lowest bits.
    #[test]
    fn any_number_of_sets_is_hashed() {
        for (index, kept) in [(SetIndex::Modulo, 11), (SetIndex::Hashed, 88)] {
            let parameters = CacheParameters { index, ..parameters(40_960, 11, Replacement::Lru) };
            let mut level = Level::new(&parameters).unwrap();
            for line in (0..88).map(|i| i * 40_960) {
                let home = level.home(CacheLine(line));
                assert_eq!(level.line_of(home), CacheLine(line));
                level.insert(home, false, true);
            }
            assert_eq!(level.resident().count(), kept, "{index:?}");
        }
    }

    /// 64 lines a megabyte apart, of which 16 fit into one set; then as many blocks of 64 lines.
    #[test]
    fn hashing_spreads_what_lies_at_regular_distances() {
        for (index, kept) in [(SetIndex::Modulo, [16, 1024]), (SetIndex::Hashed, [64, 4096])] {
            let parameters = CacheParameters { index, ..parameters(1024, 16, Replacement::Lru) };
            for (lines, kept) in [1, 64].into_iter().zip(kept) {
                let mut level = Level::new(&parameters).unwrap();
                for line in (0..64).flat_map(|i| (0..lines).map(move |line| (i << 14) + line)) {
                    let home = level.home(CacheLine(line));
                    level.insert(home, false, true);
                }
                assert_eq!(level.resident().count(), kept, "{index:?}");
            }
        }
    }
}
