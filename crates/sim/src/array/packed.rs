//! Sets whose tags and state lie side by side in as few lines of the host's memory as they fit.
//!
//! A simulated last-level cache does not fit into the host's own caches, so every random set is a host miss or two. With
//! tags, recency and state in one place, a set of up to twelve ways costs one.

use super::{NARROW_MAX_WAYS, ORDER_MAX_WAYS, huge_vec, narrow, wide};
use std::marker::PhantomData;

/// No way holds the tag.
pub const NO_WAY: u32 = u32::MAX;

/// Marks an empty way. No caller uses it as a tag.
const EMPTY: u32 = u32::MAX;

const WORDS: usize = 16;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct HostLine([u32; WORDS]);

/// Where the parts of a set lie, in words from its first line on. Tags come first; state bits are the last two words.
#[derive(Clone, Copy, Debug)]
struct Layout {
    ways: u32,
    order: usize,
    state: usize,
}

impl Layout {
    fn new(ways: u32) -> Layout {
        // One line holds twelve ways; sixteen tags fill a line of their own.
        let order = match ways {
            0..=12 => 12,
            13..=16 => 16,
            _ => 28,
        };
        let state = if ways <= NARROW_MAX_WAYS { order + 2 } else { order + 4 };
        Layout { ways, order, state }
    }

    fn lines(&self) -> usize {
        (self.state + 2).div_ceil(WORDS)
    }

    /// One bit per way whose tag is `tag`.
    ///
    /// # Safety
    /// `words` must point to a whole set.
    #[inline(always)]
    unsafe fn matches(&self, words: *const u32, tag: u32) -> u32 {
        // SAFETY: a set begins with a whole line, or two where the ways exceed one.
        let found = unsafe {
            match self.ways {
                0..=NARROW_MAX_WAYS => match_sixteen(words, tag),
                _ => match_sixteen(words, tag) | match_sixteen(words.add(WORDS), tag) << WORDS,
            }
        };
        // Behind the tags lie other words.
        found & (u32::MAX >> (32 - self.ways))
    }
}

/// One bit per word of the sixteen from `words` on that equals `tag`.
///
/// # Safety
/// Sixteen words must be readable there.
#[inline(always)]
unsafe fn match_sixteen(words: *const u32, tag: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of the x86-64 baseline; the four loads read the sixteen words of the caller's promise.
        unsafe {
            let wanted = _mm_set1_epi32(tag as i32);
            let four = |at| _mm_cmpeq_epi32(_mm_loadu_si128(words.add(at).cast()), wanted);
            let low = _mm_packs_epi32(four(0), four(4));
            let high = _mm_packs_epi32(four(8), four(12));
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    (0..16).fold(0, |bits, at| bits | u32::from(unsafe { *words.add(at) } == tag) << at)
}

/// Words `at` and `at + 1` of a set as one, the first one low.
///
/// # Safety
/// Both must lie in the set that `words` points to.
#[inline(always)]
unsafe fn two_words(words: *const u32, at: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { u64::from(*words.add(at)) | u64::from(*words.add(at + 1)) << 32 }
}

/// The lowest way of a match.
#[inline(always)]
fn way_of(matches: u32) -> u32 {
    if matches == 0 { NO_WAY } else { matches.trailing_zeros() }
}

/// Tags, a recency word, and two bits of state per way, for every set.
#[derive(Clone, Debug)]
pub struct PackedSets {
    lines: Vec<HostLine>,
    sets: usize,
    lines_per_set: usize,
    layout: Layout,
}

/// One set, borrowed.
#[derive(Debug)]
pub struct PackedSet<'a> {
    /// The set's words, all of them borrowed.
    words: *mut u32,
    layout: Layout,
    borrow: PhantomData<&'a mut HostLine>,
}

impl PackedSets {
    /// `sets` empty sets of `ways` ways (1 to 25), least recent first from the highest way down, all state bits clear.
    pub fn new(sets: usize, ways: u32) -> PackedSets {
        assert!((1..=ORDER_MAX_WAYS).contains(&ways), "{ways} ways");
        let layout = Layout::new(ways);
        let lines_per_set = layout.lines();
        let lines = huge_vec(sets * lines_per_set, HostLine([EMPTY; WORDS]));
        let mut packed = PackedSets { lines, sets, lines_per_set, layout };
        for set in 0..sets {
            let mut set = packed.set(set);
            if ways <= NARROW_MAX_WAYS {
                set.set_order(narrow::initial(ways));
            } else {
                set.set_wide_order(wide::initial(ways));
            }
            set.set_state(0);
        }
        packed
    }

    /// What so many sets of these ways take of the host's memory, in bytes.
    pub fn host_bytes(sets: u64, ways: u32) -> u64 {
        sets.saturating_mul((Layout::new(ways).lines() * size_of::<HostLine>()) as u64)
    }

    /// Number of sets.
    pub fn len(&self) -> usize {
        self.sets
    }

    /// Distance between the first slots of neighbouring sets in tables that run beside this one.
    #[inline(always)]
    pub fn stride(&self) -> usize {
        self.layout.ways as usize
    }

    #[inline(always)]
    fn words(&self, set: usize) -> *const u32 {
        assert!(set < self.sets);
        // SAFETY: there are `sets` times `lines_per_set` lines.
        unsafe { self.lines.as_ptr().add(set * self.lines_per_set).cast() }
    }

    /// A set to work on.
    #[inline(always)]
    pub fn set(&mut self, set: usize) -> PackedSet<'_> {
        assert!(set < self.sets);
        // SAFETY: as in `words`; `self` stays borrowed as long as the set is.
        let words = unsafe { self.lines.as_mut_ptr().add(set * self.lines_per_set).cast() };
        PackedSet { words, layout: self.layout, borrow: PhantomData }
    }

    /// One bit per way of `set` that holds `tag`.
    #[inline(always)]
    pub fn matches(&self, set: usize, tag: u32) -> u32 {
        // SAFETY: `words` points to a whole set.
        unsafe { self.layout.matches(self.words(set), tag) }
    }

    /// The way of `set` that holds `tag`, or [`NO_WAY`].
    #[inline(always)]
    pub fn find(&self, set: usize, tag: u32) -> u32 {
        way_of(self.matches(set, tag))
    }

    /// The tag in a way, or `None` when empty.
    #[inline(always)]
    pub fn tag(&self, set: usize, way: u32) -> Option<u32> {
        assert!(way < self.layout.ways);
        // SAFETY: every way has a tag.
        let tag = unsafe { *self.words(set).add(way as usize) };
        (tag != EMPTY).then_some(tag)
    }

    /// The way that LRU would give up next.
    #[inline(always)]
    pub fn least_recent(&self, set: usize) -> u32 {
        if self.layout.ways <= NARROW_MAX_WAYS {
            // SAFETY: the order lies in the set.
            narrow::victim(unsafe { two_words(self.words(set), self.layout.order) }, self.layout.ways)
        } else {
            0
        }
    }

    /// The state bits of a set: the first of every way in the low half, the second in the high half.
    #[inline(always)]
    pub fn state(&self, set: usize) -> u64 {
        // SAFETY: the state lies in the set.
        unsafe { two_words(self.words(set), self.layout.state) }
    }

    /// Asks the host's memory for a set, ahead of its use.
    #[inline(always)]
    pub fn prefetch(&self, set: usize) {
        let line = set * self.lines_per_set;
        super::prefetch(&self.lines, line);
        if self.lines_per_set > 1 {
            super::prefetch(&self.lines, line + 1);
        }
    }
}

impl PackedSet<'_> {
    #[inline(always)]
    fn two_words(&self, at: usize) -> u64 {
        debug_assert!(at <= self.layout.state);
        // SAFETY: only called with places of the layout, which lie in the set.
        unsafe { two_words(self.words, at) }
    }

    #[inline(always)]
    fn put_two_words(&mut self, at: usize, value: u64) {
        debug_assert!(at <= self.layout.state);
        // SAFETY: as in `two_words`; the set is borrowed exclusively.
        unsafe {
            *self.words.add(at) = value as u32;
            *self.words.add(at + 1) = (value >> 32) as u32;
        }
    }

    /// One bit per way that holds `tag`.
    #[inline(always)]
    pub fn matches(&self, tag: u32) -> u32 {
        // SAFETY: `words` points to a whole set.
        unsafe { self.layout.matches(self.words, tag) }
    }

    /// The way that holds `tag`, or [`NO_WAY`].
    #[inline(always)]
    pub fn find(&self, tag: u32) -> u32 {
        way_of(self.matches(tag))
    }

    /// The tag in a way, or `None` when empty.
    #[inline(always)]
    pub fn tag(&self, way: u32) -> Option<u32> {
        assert!(way < self.layout.ways);
        // SAFETY: every way has a tag.
        let tag = unsafe { *self.words.add(way as usize) };
        (tag != EMPTY).then_some(tag)
    }

    /// Puts `tag` into a way.
    #[inline(always)]
    pub fn set_tag(&mut self, way: u32, tag: u32) {
        debug_assert!(tag != EMPTY);
        assert!(way < self.layout.ways);
        // SAFETY: every way has a tag; the set is borrowed exclusively.
        unsafe { *self.words.add(way as usize) = tag }
    }

    /// Empties a way.
    pub fn clear_tag(&mut self, way: u32) {
        assert!(way < self.layout.ways);
        // SAFETY: as in `set_tag`.
        unsafe { *self.words.add(way as usize) = EMPTY }
    }

    /// The first order word: recency of up to sixteen ways, or whatever else the owner keeps there.
    #[inline(always)]
    pub fn order(&self) -> u64 {
        self.two_words(self.layout.order)
    }

    /// Replaces it.
    #[inline(always)]
    pub fn set_order(&mut self, order: u64) {
        self.put_two_words(self.layout.order, order);
    }

    fn wide_order(&self) -> u128 {
        u128::from(self.order()) | u128::from(self.two_words(self.layout.order + 2)) << 64
    }

    fn set_wide_order(&mut self, order: u128) {
        self.set_order(order as u64);
        self.put_two_words(self.layout.order + 2, (order >> 64) as u64);
    }

    /// Makes `way` the most recently used.
    #[inline(always)]
    pub fn touch(&mut self, way: u32) {
        if self.layout.ways <= NARROW_MAX_WAYS {
            self.set_order(narrow::touch(self.order(), way));
        } else {
            self.set_wide_order(wide::touch(self.wide_order(), way));
        }
    }

    /// Makes the least recently used way the most recently used, and returns it.
    #[inline(always)]
    pub fn take_victim(&mut self) -> u32 {
        if self.layout.ways <= NARROW_MAX_WAYS {
            let (way, order) = narrow::rotate(self.order(), self.layout.ways);
            self.set_order(order);
            way
        } else {
            let (way, order) = wide::rotate(self.wide_order(), self.layout.ways);
            self.set_wide_order(order);
            way
        }
    }

    /// Makes `way` the least recently used.
    pub fn move_to_back(&mut self, way: u32) {
        if self.layout.ways <= NARROW_MAX_WAYS {
            self.set_order(narrow::move_to_back(self.order(), way, self.layout.ways));
        } else {
            self.set_wide_order(wide::move_to_back(self.wide_order(), way, self.layout.ways));
        }
    }

    /// The state bits: the first of every way in the low half, the second in the high half.
    #[inline(always)]
    pub fn state(&self) -> u64 {
        self.two_words(self.layout.state)
    }

    /// Replaces them.
    #[inline(always)]
    pub fn set_state(&mut self, state: u64) {
        self.put_two_words(self.layout.state, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_only_in_its_set_and_never_behind_the_tags() {
        for ways in 1..=25 {
            let mut sets = PackedSets::new(3, ways);
            for way in 0..ways {
                sets.set(1).set_tag(way, 100 + way);
            }
            for way in 0..ways {
                assert_eq!((sets.find(1, 100 + way), sets.set(1).find(100 + way)), (way, way));
                assert_eq!(sets.find(0, 100 + way), NO_WAY);
            }
            // Words of the order and the state are no tags.
            sets.set(1).set_state(u64::from(u32::MAX - 9) << 32 | 7);
            let order = sets.set(1).order();
            for word in [7, u32::MAX - 9, order as u32, (order >> 32) as u32] {
                assert_eq!(sets.matches(1, word), 0, "{ways} ways, word {word:#x}");
            }
            sets.set(1).clear_tag(0);
            assert_eq!(sets.find(1, 100), NO_WAY);
            assert_eq!((sets.tag(1, 0), sets.set(1).tag(0)), (None, None));
        }
    }

    #[test]
    fn all_ways_that_match_are_found() {
        let mut sets = PackedSets::new(1, 16);
        (0..16).filter(|way| way % 3 == 0).for_each(|way| sets.set(0).set_tag(way, 7));
        assert_eq!(sets.matches(0, 7), 0b1001_0010_0100_1001);
    }

    #[test]
    fn order_and_state_keep_apart() {
        for ways in [8, 12, 13, 16, 17, 25] {
            let mut sets = PackedSets::new(2, ways);
            let state = u64::MAX >> (64 - ways) << 32 | 5;
            sets.set(1).set_state(state);
            let victims: Vec<u32> = (0..ways).map(|_| sets.set(1).take_victim()).collect();
            assert_eq!(victims, (0..ways).rev().collect::<Vec<_>>());
            sets.set(1).touch(ways - 1);
            sets.set(1).move_to_back(0);
            assert_eq!(sets.set(1).take_victim(), 0);
            assert_eq!(sets.state(1), state);
            assert_eq!(sets.set(1).tag(ways - 1), None);
        }
    }
}
