//! Which blocks are free and where they stand on their lists, as plain data: what a snapshot keeps of an allocator.

use super::{Buddy, ISOLATED, KINDS, Mobility, Shape};

/// Which blocks are free, in the order in which lists hand them out.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Frames in all.
    pub frames: u64,
    /// How the allocator was made.
    pub shape: Shape,
    /// Mobility of each pageblock, by its number in the order of declaration.
    pub pageblocks: Vec<u8>,
    /// First frame, order, and number of the mobility.
    pub free: Vec<(u64, u32, u8)>,
}

impl Buddy {
    /// What is free, to be restored later.
    pub fn layout(&self) -> Layout {
        let mut free = Vec::new();
        for (order, kinds) in (0u32..).zip(&self.free) {
            for (kind, set) in kinds[..ISOLATED].iter().enumerate() {
                match &self.lists {
                    Some(lists) => {
                        free.extend(
                            lists.iter(order as usize * KINDS + kind).map(|first| (first, order, kind as u8)),
                        );
                    }
                    None => {
                        free.extend(set.range(0, u64::MAX).map(|block| (block << order, order, kind as u8)))
                    }
                }
            }
        }
        let pageblocks = self.pageblocks.iter().map(|mobility| *mobility as u8).collect();
        Layout { frames: self.frames, shape: self.shape(), pageblocks, free }
    }

    /// Makes exactly the blocks of a layout free, one of such an allocator. They do not overlap and lie within.
    pub fn restore(&mut self, layout: &Layout) {
        *self = Buddy::full(self.frames, self.shape());
        for (mobility, number) in self.pageblocks.iter_mut().zip(&layout.pageblocks) {
            *mobility = Mobility::ALL[usize::from(*number)];
        }
        for (first, order, kind) in layout.free.iter().rev() {
            self.free_frames += 1 << order;
            self.count(*first, *order, |free, _, frames| *free += frames);
            self.insert(*first, *order, usize::from(*kind));
        }
    }
}
