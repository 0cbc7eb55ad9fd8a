//! Tags of a set-associative array, four to a comparison.

/// No way holds the tag.
pub const NO_WAY: u32 = u32::MAX;

/// 32-bit tags, `ways` per set, each set padded to a multiple of four so that it is searched by whole vectors.
#[derive(Clone, Debug)]
pub struct TagSets {
    tags: Vec<u32>,
    ways: u32,
    stride: usize,
}

/// Marks an empty way. No caller uses it as a tag.
pub(super) const EMPTY: u32 = u32::MAX;

impl TagSets {
    /// `sets` empty sets of `ways` ways. Panics on zero ways or more than 32.
    pub fn new(sets: usize, ways: u32) -> TagSets {
        assert!((1..=32).contains(&ways), "{ways} ways");
        let stride = ways.next_multiple_of(4) as usize;
        TagSets { tags: vec![EMPTY; sets * stride], ways, stride }
    }

    /// Distance between the first slots of neighbouring sets: the ways rounded up to a multiple of four.
    #[inline(always)]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The way of `set` that holds `tag`, or [`NO_WAY`].
    #[inline(always)]
    pub fn find(&self, set: usize, tag: u32) -> u32 {
        let matches = self.matches(set, tag);
        if matches == 0 { NO_WAY } else { matches.trailing_zeros() }
    }

    /// One bit per way of `set` that holds `tag`.
    #[inline(always)]
    pub fn matches(&self, set: usize, tag: u32) -> u32 {
        let start = set * self.stride;
        let row = &self.tags[start..start + self.stride];
        match_tags(row, tag)
    }

    /// The tag in a way, or `None` when empty.
    #[inline(always)]
    pub fn get(&self, set: usize, way: u32) -> Option<u32> {
        let tag = self.tags[set * self.stride + way as usize];
        (tag != EMPTY).then_some(tag)
    }

    /// Puts `tag` into a way.
    #[inline(always)]
    pub fn set(&mut self, set: usize, way: u32, tag: u32) {
        debug_assert!(tag != EMPTY && way < self.ways);
        self.tags[set * self.stride + way as usize] = tag;
    }

    /// Empties a way.
    #[inline]
    pub fn clear(&mut self, set: usize, way: u32) {
        self.tags[set * self.stride + way as usize] = EMPTY;
    }
}

/// One bit per element of `row` that equals `tag`. The length must be a multiple of four.
#[inline(always)]
pub(super) fn match_tags(row: &[u32], tag: u32) -> u32 {
    let mut bits = 0;
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        debug_assert!(row.len().is_multiple_of(4));
        let mut at = 0;
        // SAFETY: SSE2 is part of the x86-64 baseline; each load reads 16 bytes inside `row`, whose length is a
        // multiple of four.
        unsafe {
            let wanted = _mm_set1_epi32(tag as i32);
            while at + 4 <= row.len() {
                let four = _mm_loadu_si128(row.as_ptr().add(at).cast());
                let equal = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(four, wanted)));
                bits |= (equal as u32) << at;
                at += 4;
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    for (way, &held) in row.iter().enumerate() {
        bits |= u32::from(held == tag) << way;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_only_in_its_set_and_never_in_padding() {
        let mut sets = TagSets::new(3, 11);
        for way in 0..11 {
            sets.set(1, way, 100 + way);
        }
        for way in 0..11 {
            assert_eq!(sets.find(1, 100 + way), way);
            assert_eq!(sets.find(0, 100 + way), NO_WAY);
        }
        sets.clear(1, 4);
        assert_eq!(sets.find(1, 104), NO_WAY);
        assert_eq!(sets.get(1, 4), None);
        assert_eq!(sets.get(1, 5), Some(105));
    }
}
