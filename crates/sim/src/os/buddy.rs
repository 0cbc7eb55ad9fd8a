//! A buddy allocator over the frames of one tier, up to blocks of 1 GiB.
//!
//! Free blocks of each order are one bit each in a bitmap with summary levels above it, so that finding the lowest
//! free block takes a handful of steps at any size and the whole costs about two bits per frame. The lowest address
//! is always taken first: placement is the same in every run.

/// Order of the largest block: 2^18 frames, 1 GiB (Linux stops at 4 MiB unless its limit is raised).
pub const MAX_ORDER: u32 = 18;

/// A set of block numbers with a fast minimum.
#[derive(Clone, Debug)]
struct BlockSet {
    /// `levels[0]` has one bit per block; each bit above says whether a word below has any.
    levels: Vec<Vec<u64>>,
    count: u64,
}

impl BlockSet {
    fn new(blocks: u64) -> BlockSet {
        let mut levels = Vec::new();
        let mut bits = blocks.max(1);
        loop {
            let words = bits.div_ceil(64);
            levels.push(vec![0; words as usize]);
            if words == 1 {
                break;
            }
            bits = words;
        }
        BlockSet { levels, count: 0 }
    }

    fn contains(&self, block: u64) -> bool {
        self.levels[0].get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 != 0)
    }

    fn insert(&mut self, mut block: u64) {
        debug_assert!(!self.contains(block));
        self.count += 1;
        for level in &mut self.levels {
            level[(block / 64) as usize] |= 1 << (block % 64);
            block /= 64;
        }
    }

    fn remove(&mut self, mut block: u64) {
        debug_assert!(self.contains(block));
        self.count -= 1;
        for level in &mut self.levels {
            let word = &mut level[(block / 64) as usize];
            *word &= !(1 << (block % 64));
            if *word != 0 {
                return;
            }
            block /= 64;
        }
    }

    fn first(&self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let mut at = 0;
        for level in self.levels.iter().rev() {
            at = at * 64 + u64::from(level[at as usize].trailing_zeros());
        }
        Some(at)
    }
}

/// The free frames of one tier, numbered from 0 within it.
#[derive(Clone, Debug)]
pub struct Buddy {
    free: Vec<BlockSet>,
    frames: u64,
    free_frames: u64,
}

impl Buddy {
    /// All of `frames` frames free.
    pub fn new(frames: u64) -> Buddy {
        let mut buddy = Buddy {
            free: (0..=MAX_ORDER).map(|order| BlockSet::new(frames.div_ceil(1 << order))).collect(),
            frames,
            free_frames: frames,
        };
        let mut at = 0;
        while at < frames {
            let aligned = if at == 0 { MAX_ORDER } else { at.trailing_zeros().min(MAX_ORDER) };
            let fits = (frames - at).ilog2();
            let order = aligned.min(fits);
            buddy.free[order as usize].insert(at >> order);
            at += 1 << order;
        }
        buddy
    }

    /// Frames in all.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Frames that are free.
    pub fn free_frames(&self) -> u64 {
        self.free_frames
    }

    /// Takes the lowest free block of the smallest sufficient order; the answer is its first frame.
    pub fn allocate(&mut self, order: u32) -> Option<u64> {
        let (mut have, block) =
            (order..=MAX_ORDER).find_map(|o| self.free[o as usize].first().map(|block| (o, block)))?;
        self.free[have as usize].remove(block);
        let frame = block << have;
        while have > order {
            have -= 1;
            self.free[have as usize].insert((frame >> have) + 1);
        }
        self.free_frames -= 1 << order;
        Some(frame)
    }

    /// Gives a block back; it merges with its free buddies.
    pub fn release(&mut self, frame: u64, order: u32) {
        debug_assert!(frame.is_multiple_of(1 << order) && frame + (1 << order) <= self.frames);
        self.free_frames += 1 << order;
        let mut order = order;
        let mut block = frame >> order;
        while order < MAX_ORDER && self.free[order as usize].contains(block ^ 1) {
            self.free[order as usize].remove(block ^ 1);
            block >>= 1;
            order += 1;
        }
        self.free[order as usize].insert(block);
    }

    /// Free blocks of exactly this order.
    #[cfg(test)]
    fn free_blocks(&self, order: u32) -> u64 {
        self.free[order as usize].count
    }

    /// Free-memory fragmentation index at `order`: the share of free memory that lies in blocks too small for a
    /// request of that order (Gorman's "unusable free space index"). 0 is unfragmented; 0 too when nothing is free.
    pub fn fragmentation_index(&self, order: u32) -> f64 {
        if self.free_frames == 0 {
            return 0.0;
        }
        let usable: u64 = (order..=MAX_ORDER).map(|o| self.free[o as usize].count << o).sum();
        (self.free_frames - usable) as f64 / self.free_frames as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_overlaps_never_loses(
            frames in 1u64..3000, steps in prop::collection::vec((any::<bool>(), 0u32..8, any::<usize>()), 0..300),
        ) {
            let mut buddy = Buddy::new(frames);
            let mut held: Vec<(u64, u32)> = Vec::new();
            let mut owner = vec![false; frames as usize];
            for (release, order, pick) in steps {
                if release && !held.is_empty() {
                    let (frame, order) = held.swap_remove(pick % held.len());
                    owner[frame as usize..(frame + (1 << order)) as usize].fill(false);
                    buddy.release(frame, order);
                } else if let Some(frame) = buddy.allocate(order) {
                    prop_assert_eq!(frame % (1 << order), 0);
                    for slot in &mut owner[frame as usize..(frame + (1 << order)) as usize] {
                        prop_assert!(!*slot);
                        *slot = true;
                    }
                    held.push((frame, order));
                } else {
                    // A refusal is only right when no aligned free block exists.
                    let run = 1usize << order;
                    prop_assert!(!owner.chunks_exact(run).any(|c| c.iter().all(|o| !o)));
                }
                let used = owner.iter().filter(|o| **o).count() as u64;
                prop_assert_eq!(buddy.free_frames(), frames - used);
                let recount: u64 = (0..=MAX_ORDER).map(|o| buddy.free_blocks(o) << o).sum();
                prop_assert_eq!(recount, buddy.free_frames());
            }
            for (frame, order) in held {
                buddy.release(frame, order);
            }
            // Everything merged again: as if new.
            let fresh = Buddy::new(frames);
            for order in 0..=MAX_ORDER {
                prop_assert_eq!(buddy.free_blocks(order), fresh.free_blocks(order));
            }
        }
    }

    #[test]
    fn fragmentation_by_hand() {
        let mut buddy = Buddy::new(1024);
        assert_eq!(buddy.fragmentation_index(9), 0.0);
        let frame = buddy.allocate(0).unwrap();
        assert_eq!(frame, 0);
        // 1023 free: 512 in one block of order 9, 511 in smaller ones.
        assert_eq!(buddy.fragmentation_index(9), 511.0 / 1023.0);
    }
}
