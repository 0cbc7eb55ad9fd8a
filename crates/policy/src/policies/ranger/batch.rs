//! One order of relocations, each of which counts on those before it.

use crate::{FrameState, PageId, Relocate};
use std::collections::BTreeMap;
use terrace_model::{Frame, PageSize};

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The page is at its place, or will be by what was ordered for others.
    There,
    /// A relocation of the page to its place was ordered.
    Ordered,
    /// What lies there cannot move now.
    Busy,
    /// What lies there never moves.
    Unmovable,
    /// What lies there is part of this page, larger than the one that shall go there.
    Larger(PageId, PageSize),
}

/// Relocations in the making, with what they will have changed.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In the order in which they are to be carried out.
    pub moves: Vec<Relocate>,
    /// The frame whose contents each frame will hold, where it will not be its own.
    holds: BTreeMap<u64, u64>,
    /// The frame that the contents of each frame will be in.
    goes: BTreeMap<u64, u64>,
}

impl Batch {
    fn content(&self, frame: u64) -> u64 {
        self.holds.get(&frame).copied().unwrap_or(frame)
    }

    /// Orders the page of `size` that now begins in `from` to `to`. `look` says what a frame holds now, and of a movable
    /// page its size.
    pub fn place(
        &mut self,
        from: Frame,
        size: PageSize,
        to: u64,
        look: &mut dyn FnMut(Frame) -> (FrameState, PageSize),
    ) -> Placed {
        let at = self.goes.get(&from.0).copied().unwrap_or(from.0);
        if at == to {
            return Placed::There;
        }
        let length = size.base_pages();
        let (mut exchange, mut busy) = (false, false);
        for frame in to..to + length {
            match look(Frame(self.content(frame))) {
                (FrameState::Free { .. }, _) => {}
                (FrameState::Unmovable, _) => return Placed::Unmovable,
                (FrameState::Busy, _) => busy = true,
                (FrameState::Movable(page), other) if other > size => return Placed::Larger(page, other),
                (FrameState::Movable(_) | FrameState::MovableOther, _) => exchange = true,
            }
        }
        if busy {
            return Placed::Busy;
        }
        self.moves.push(Relocate { from: Frame(at), to: Frame(to), exchange });
        for offset in 0..length {
            let (one, other) = (at + offset, to + offset);
            let (of_one, of_other) = (self.content(one), self.content(other));
            self.holds.insert(one, of_other);
            self.holds.insert(other, of_one);
            self.goes.insert(of_one, other);
            self.goes.insert(of_other, one);
        }
        Placed::Ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(moves: &[(u64, u64, bool)]) -> Vec<Relocate> {
        let order = |&(from, to, exchange): &_| Relocate { from: Frame(from), to: Frame(to), exchange };
        moves.iter().map(order).collect()
    }

    /// Figure 4.6: anchor (V0, P4); V0 in P2, V1 in P9, V2 in P7, V3 in P3; P5 and P6 hold other pages.
    #[test]
    fn figure_4_6() {
        let mut batch = Batch::default();
        let mut look = |frame: Frame| {
            let state = match frame.0 {
                2 | 3 | 7 | 9 => FrameState::Movable(PageId::new(0, frame.0)),
                5 | 6 => FrameState::MovableOther,
                _ => FrameState::Free { zeroed: false },
            };
            (state, PageSize::Base)
        };
        for (from, to) in [(2, 4), (9, 5), (7, 6), (3, 7)] {
            assert_eq!(batch.place(Frame(from), PageSize::Base, to, &mut look), Placed::Ordered);
        }
        assert_eq!(batch.moves, order(&[(2, 4, false), (9, 5, true), (7, 6, true), (3, 7, true)]));
    }

    #[test]
    fn a_page_that_was_displaced_is_found_where_it_will_be() {
        let mut batch = Batch::default();
        let mut look = |frame: Frame| (FrameState::Movable(PageId::new(0, frame.0)), PageSize::Base);
        // Three pages in a circle: after two exchanges the third is at its place.
        assert_eq!(batch.place(Frame(5), PageSize::Base, 4, &mut look), Placed::Ordered);
        assert_eq!(batch.place(Frame(6), PageSize::Base, 5, &mut look), Placed::Ordered);
        assert_eq!(batch.place(Frame(4), PageSize::Base, 6, &mut look), Placed::There);
        assert_eq!(batch.place(Frame(9), PageSize::Base, 6, &mut look), Placed::Ordered);
        assert_eq!(batch.place(Frame(4), PageSize::Base, 7, &mut look), Placed::Ordered);
        assert_eq!(batch.moves, order(&[(5, 4, true), (6, 5, true), (9, 6, true), (9, 7, true)]));
    }

    #[test]
    fn huge_pages_go_whole_and_nothing_larger_is_broken_up() {
        let mut batch = Batch::default();
        let huge = PageId::new(0, 512);
        let mut look = |frame: Frame| match frame.0 {
            0..512 => (FrameState::Movable(PageId::new(0, 0)), PageSize::Huge),
            512..1024 => (FrameState::Movable(huge), PageSize::Huge),
            1030 => (FrameState::Unmovable, PageSize::Base),
            2000 => (FrameState::MovableOther, PageSize::Base),
            3000 => (FrameState::Busy, PageSize::Base),
            _ => (FrameState::Free { zeroed: false }, PageSize::Base),
        };
        assert_eq!(
            batch.place(Frame(2000), PageSize::Base, 600, &mut look),
            Placed::Larger(huge, PageSize::Huge)
        );
        assert_eq!(batch.place(Frame(0), PageSize::Huge, 1024, &mut look), Placed::Unmovable);
        assert_eq!(batch.place(Frame(0), PageSize::Huge, 2560, &mut look), Placed::Busy);
        assert_eq!(batch.place(Frame(0), PageSize::Huge, 1536, &mut look), Placed::Ordered, "with a mixture");
        assert_eq!(batch.place(Frame(512), PageSize::Huge, 0, &mut look), Placed::Ordered);
        assert_eq!(batch.moves, order(&[(0, 1536, true), (512, 0, true)]));
    }
}
