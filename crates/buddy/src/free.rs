//! The free blocks by order and list: which one a request gets, how it is split, and how what is given back merges
//! with its buddies.

use super::{Buddy, HUGE_ORDER, ISOLATED, KINDS, Mobility, ZEROED_LOOKED_FOR};

impl Buddy {
    pub(super) fn insert(&mut self, frame: u64, order: u32, kind: usize) {
        self.free[order as usize][kind].insert(frame >> order);
        self.filled[kind] |= 1 << order;
        if let Some(lists) = &mut self.lists {
            lists.push(order as usize * KINDS + kind, frame);
        }
    }

    pub(super) fn remove(&mut self, frame: u64, order: u32, kind: usize) {
        let set = &mut self.free[order as usize][kind];
        set.remove(frame >> order);
        if set.count() == 0 {
            self.filled[kind] &= !(1 << order);
        }
        if let Some(lists) = &mut self.lists {
            lists.unlink(order as usize * KINDS + kind, frame);
        }
    }

    /// The free block of order `order` or above that holds these frames: its first frame, order and lists.
    pub(super) fn free_block_of(&self, frame: u64, order: u32) -> Option<(u64, u32, usize)> {
        (order..=self.max_order).find_map(|have| {
            let block = frame >> have;
            let kind = (0..KINDS).find(|kind| self.free[have as usize][*kind].contains(block))?;
            Some((block << have, have, kind))
        })
    }

    pub(super) fn smallest(&self, order: u32, kind: usize) -> Option<u32> {
        let have = self.filled[kind] >> order << order;
        (have != 0).then(|| have.trailing_zeros())
    }

    /// The block of a list that goes next: a zeroed one where there is one among the first.
    pub(super) fn choose(&self, order: u32, have: u32, kind: usize) -> Option<u64> {
        let set = &self.free[have as usize][kind];
        let first = match &self.lists {
            Some(lists) => lists.first(have as usize * KINDS + kind)?,
            None => set.first()? << have,
        };
        if order < HUGE_ORDER || self.zeroed.count() == 0 || self.is_zeroed(first, order) {
            return Some(first);
        }
        let mut others = set.range(0, u64::MAX).take(ZEROED_LOOKED_FOR).map(|block| block << have);
        Some(others.find(|frame| self.is_zeroed(*frame, order)).unwrap_or(first))
    }

    /// Gives back what is left of a block of order `have` when the part at `frame` of order `order` is taken from it.
    pub(super) fn split(&mut self, mut first: u64, mut have: u32, frame: u64, order: u32, kind: usize) {
        while have > order {
            have -= 1;
            let upper = first + (1 << have);
            if frame >= upper {
                self.insert(first, have, kind);
                first = upper;
            } else {
                self.insert(upper, have, kind);
            }
        }
    }

    /// Puts a block on the lists, in parts where it is larger than an isolated one that lies in it.
    pub(super) fn insert_around_isolated(&mut self, frame: u64, order: u32) {
        let inside = |&(first, have): &(u64, u32)| have < order && first >> order == frame >> order;
        if self.isolated.iter().any(inside) {
            self.insert_around_isolated(frame, order - 1);
            self.insert_around_isolated(frame + (1 << (order - 1)), order - 1);
        } else {
            self.insert_merging(frame, order);
        }
    }

    pub(super) fn insert_merging(&mut self, frame: u64, order: u32) {
        let mut kind = self.kind_of(frame);
        let (mut order, mut block) = (order, frame >> order);
        while order < self.max_order {
            let other = block ^ 1;
            // What was taken over from another mobility is on lists that are not its pageblock's.
            let Some(on) = (0..KINDS).find(|on| self.free[order as usize][*on].contains(other)) else {
                break;
            };
            if (on == ISOLATED) != (kind == ISOLATED) {
                break;
            }
            self.remove(other << order, order, on);
            let other_kind = self.kind_of(other << order);
            block >>= 1;
            order += 1;
            if other_kind != kind {
                // A free block of several pageblocks belongs to nobody in particular.
                kind = Mobility::Movable as usize;
                self.set_pageblocks(block << order, order, Mobility::Movable);
            }
        }
        self.insert(block << order, order, kind);
    }
}
