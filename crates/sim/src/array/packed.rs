//! Sets whose tags and state lie side by side in as few lines of the host's memory as they fit.
//!
//! A simulated last-level cache does not fit into the host's own caches, so every random set is a host miss or two. With
//! tags, recency and state in one place, a set of up to twelve ways costs one.

use super::sets::{EMPTY, NO_WAY, match_tags};
use super::{NARROW_MAX_WAYS, huge_vec, narrow, wide};

const WORDS: usize = 16;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct HostLine([u32; WORDS]);

/// Tags, a recency word, and two bits of state per way, for every set.
///
/// Words of a set: tags padded to a multiple of four, order (two words, or four for more than sixteen ways), first
/// state bits, second state bits.
#[derive(Clone, Debug)]
pub struct PackedSets {
    lines: Vec<HostLine>,
    lines_per_set: usize,
    ways: u32,
    tag_words: usize,
}

/// One set, borrowed.
#[derive(Debug)]
pub struct PackedSet<'a> {
    words: &'a mut [u32],
    ways: u32,
    tag_words: usize,
}

impl PackedSets {
    /// `sets` empty sets of `ways` ways (1 to 25), least recent first from the highest way down, all state bits clear.
    pub fn new(sets: usize, ways: u32) -> PackedSets {
        let tag_words = ways.next_multiple_of(4) as usize;
        let order_words = if ways <= NARROW_MAX_WAYS { 2 } else { 4 };
        let lines_per_set = (tag_words + order_words + 2).div_ceil(WORDS);
        let lines = huge_vec(sets * lines_per_set, HostLine([EMPTY; WORDS]));
        let mut packed = PackedSets { lines, lines_per_set, ways, tag_words };
        for set in 0..sets {
            let mut set = packed.set(set);
            if ways <= NARROW_MAX_WAYS {
                set.set_order(narrow::initial(ways));
            } else {
                set.set_wide_order(wide::initial(ways));
            }
            set.words[tag_words + order_words] = 0;
            set.words[tag_words + order_words + 1] = 0;
        }
        packed
    }

    /// Number of sets.
    pub fn len(&self) -> usize {
        self.lines.len() / self.lines_per_set
    }

    /// Distance between the first slots of neighbouring sets in tables that run beside this one.
    #[inline(always)]
    pub fn stride(&self) -> usize {
        self.tag_words
    }

    #[inline(always)]
    fn words(&self, set: usize) -> &[u32] {
        let lines = &self.lines[set * self.lines_per_set..(set + 1) * self.lines_per_set];
        // SAFETY: `HostLine` is exactly sixteen `u32`s without padding, so the lines are that many words in a row.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * WORDS) }
    }

    /// A set to work on.
    #[inline(always)]
    pub fn set(&mut self, set: usize) -> PackedSet<'_> {
        let lines = &mut self.lines[set * self.lines_per_set..(set + 1) * self.lines_per_set];
        // SAFETY: as in `words`; the exclusive borrow of the lines passes to the words.
        let words = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * WORDS) };
        PackedSet { words, ways: self.ways, tag_words: self.tag_words }
    }

    /// The way of `set` that holds `tag`, or [`NO_WAY`].
    #[inline(always)]
    pub fn find(&self, set: usize, tag: u32) -> u32 {
        let matches = match_tags(&self.words(set)[..self.tag_words], tag);
        if matches == 0 { NO_WAY } else { matches.trailing_zeros() }
    }

    /// The tag in a way, or `None` when empty.
    #[inline(always)]
    pub fn tag(&self, set: usize, way: u32) -> Option<u32> {
        let tag = self.words(set)[way as usize];
        (tag != EMPTY).then_some(tag)
    }

    /// The way that LRU would give up next.
    #[inline(always)]
    pub fn least_recent(&self, set: usize) -> u32 {
        let words = self.words(set);
        if self.ways <= NARROW_MAX_WAYS {
            let order = u64::from(words[self.tag_words]) | u64::from(words[self.tag_words + 1]) << 32;
            narrow::victim(order, self.ways)
        } else {
            0
        }
    }

    /// Whether the first (`second` false) or second state bit of a way is set.
    #[inline(always)]
    pub fn bit(&self, set: usize, way: u32, second: bool) -> bool {
        let order_words = if self.ways <= NARROW_MAX_WAYS { 2 } else { 4 };
        self.words(set)[self.tag_words + order_words + usize::from(second)] >> way & 1 != 0
    }

    /// Asks the host's memory for a set, ahead of its use.
    #[inline(always)]
    pub fn prefetch(&self, set: usize) {
        let line = set * self.lines_per_set;
        for at in line..line + self.lines_per_set {
            super::prefetch(&self.lines, at);
        }
    }
}

impl PackedSet<'_> {
    #[inline(always)]
    fn order_words(&self) -> usize {
        if self.ways <= NARROW_MAX_WAYS { 2 } else { 4 }
    }

    /// The way that holds `tag`, or [`NO_WAY`].
    #[inline(always)]
    pub fn find(&self, tag: u32) -> u32 {
        let matches = match_tags(&self.words[..self.tag_words], tag);
        if matches == 0 { NO_WAY } else { matches.trailing_zeros() }
    }

    /// The tag in a way, or `None` when empty.
    #[inline(always)]
    pub fn tag(&self, way: u32) -> Option<u32> {
        let tag = self.words[way as usize];
        (tag != EMPTY).then_some(tag)
    }

    /// Puts `tag` into a way.
    #[inline(always)]
    pub fn set_tag(&mut self, way: u32, tag: u32) {
        debug_assert!(tag != EMPTY && way < self.ways);
        self.words[way as usize] = tag;
    }

    /// Empties a way.
    pub fn clear_tag(&mut self, way: u32) {
        self.words[way as usize] = EMPTY;
    }

    /// The first order word: recency of up to sixteen ways, or whatever else the owner keeps there.
    #[inline(always)]
    pub fn order(&self) -> u64 {
        u64::from(self.words[self.tag_words]) | u64::from(self.words[self.tag_words + 1]) << 32
    }

    /// Replaces it.
    #[inline(always)]
    pub fn set_order(&mut self, order: u64) {
        self.words[self.tag_words] = order as u32;
        self.words[self.tag_words + 1] = (order >> 32) as u32;
    }

    fn wide_order(&self) -> u128 {
        let high =
            u64::from(self.words[self.tag_words + 2]) | u64::from(self.words[self.tag_words + 3]) << 32;
        u128::from(self.order()) | u128::from(high) << 64
    }

    fn set_wide_order(&mut self, order: u128) {
        self.set_order(order as u64);
        self.words[self.tag_words + 2] = (order >> 64) as u32;
        self.words[self.tag_words + 3] = (order >> 96) as u32;
    }

    /// Makes `way` the most recently used.
    #[inline(always)]
    pub fn touch(&mut self, way: u32) {
        if self.ways <= NARROW_MAX_WAYS {
            self.set_order(narrow::touch(self.order(), way));
        } else {
            self.set_wide_order(wide::touch(self.wide_order(), way));
        }
    }

    /// The least recently used way.
    #[inline(always)]
    pub fn victim(&self) -> u32 {
        if self.ways <= NARROW_MAX_WAYS {
            narrow::victim(self.order(), self.ways)
        } else {
            wide::victim(self.wide_order(), self.ways)
        }
    }

    /// Makes `way` the least recently used.
    pub fn move_to_back(&mut self, way: u32) {
        if self.ways <= NARROW_MAX_WAYS {
            self.set_order(narrow::move_to_back(self.order(), way, self.ways));
        } else {
            self.set_wide_order(wide::move_to_back(self.wide_order(), way, self.ways));
        }
    }

    /// The first or second state bit of a way.
    #[inline(always)]
    pub fn bit(&self, way: u32, second: bool) -> bool {
        self.words[self.tag_words + self.order_words() + usize::from(second)] >> way & 1 != 0
    }

    /// Sets it.
    #[inline(always)]
    pub fn set_bit(&mut self, way: u32, second: bool, value: bool) {
        let at = self.tag_words + self.order_words() + usize::from(second);
        let word = &mut self.words[at];
        *word = *word & !(1 << way) | u32::from(value) << way;
    }
}
