//! The order in which every world visits pages in a scan.

use crate::{PageId, ScanHand, Scope, SpaceId};
use std::ops::Range;

/// No page number of a space reaches this.
const BEYOND: u64 = 1 << 51;

impl ScanHand {
    /// Leads `world` through one scan: from the hand up to the highest page, then from the lowest page up to the hand; the
    /// pages of [`Scope::Pages`] in the order given, whatever the hand.
    ///
    /// `spaces` are the address spaces of the world, in order. `find` returns the first base page of the page that holds a
    /// given one. `show` shows the pages of one space that begin in a range of page numbers, and returns the page at which
    /// the visitor stopped.
    ///
    /// Returns whether every page in scope was shown. The hand then stays where it was, for the next scan begins with the
    /// page that was shown first; after a stop the hand points at the page that stopped the scan.
    pub fn lap<W: ?Sized>(
        &mut self,
        world: &mut W,
        scope: Scope<'_>,
        spaces: &[SpaceId],
        mut find: impl FnMut(&mut W, PageId) -> Option<PageId>,
        mut show: impl FnMut(&mut W, SpaceId, Range<u64>) -> Option<PageId>,
    ) -> bool {
        if let Scope::Pages(pages) = scope {
            return pages.iter().all(|page| match find(world, *page) {
                Some(first) => show(world, first.space, first.vpn..first.vpn + 1).is_none(),
                None => true,
            });
        }
        let (limits, only) = match scope {
            Scope::Range(range) => (range.first.vpn..range.end(), Some(range.first.space)),
            _ => (0..BEYOND, None),
        };
        let start = self.next;
        for above_the_hand in [true, false] {
            for space in spaces.iter().copied().filter(|space| only.is_none_or(|only| only == *space)) {
                // The page numbers of this space on the wanted side of the hand.
                let split = match space.cmp(&start.space) {
                    std::cmp::Ordering::Less => BEYOND,
                    std::cmp::Ordering::Equal => start.vpn,
                    std::cmp::Ordering::Greater => 0,
                };
                let side = if above_the_hand { split..BEYOND } else { 0..split };
                let range = side.start.max(limits.start)..side.end.min(limits.end);
                if range.is_empty() {
                    continue;
                }
                if let Some(stopped) = show(world, space, range) {
                    self.next = stopped;
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageRange;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Pages in three spaces; the list of pages that a lap shows, where it stops after `most`.
    fn shown(
        pages: &BTreeSet<PageId>,
        scope: Scope<'_>,
        hand: &mut ScanHand,
        most: usize,
    ) -> (Vec<PageId>, bool) {
        let mut seen = Vec::new();
        let spaces = [0, 1, 2].map(SpaceId);
        let whole = hand.lap(
            &mut seen,
            scope,
            &spaces,
            |_, page| pages.contains(&page).then_some(page),
            |seen, space, range| {
                let [first, end] = [range.start, range.end].map(|vpn| PageId { space, vpn });
                for page in pages.range(first..end) {
                    if seen.len() == most {
                        return Some(*page);
                    }
                    seen.push(*page);
                }
                None
            },
        );
        (seen, whole)
    }

    proptest! {
        /// The plain reference: all pages in scope, sorted, turned so that the first at the hand or above comes first.
        #[test]
        fn a_lap_is_the_sorted_list_turned_to_the_hand(
            pages in prop::collection::btree_set((0..3u32, 0..20u64), 0..40),
            hand in (0..4u32, 0..22u64),
            range in (0..3u32, 0..20u64, 0..20u64),
            whole_space in any::<bool>(),
            most in 0..50usize,
        ) {
            let pages: BTreeSet<PageId> =
                pages.into_iter().map(|(space, vpn)| PageId::new(space, vpn)).collect();
            let range = PageRange::new(PageId::new(range.0, range.1), range.2);
            let (scope, in_scope): (_, Vec<PageId>) = if whole_space {
                (Scope::All, pages.iter().copied().collect())
            } else {
                (Scope::Range(range), pages.iter().copied().filter(|page| range.contains(*page)).collect())
            };
            let start = ScanHand { next: PageId::new(hand.0, hand.1) };
            let turn = in_scope.iter().position(|page| *page >= start.next).unwrap_or(0);
            let turned: Vec<PageId> = in_scope[turn..].iter().chain(&in_scope[..turn]).copied().collect();
            let mut hand = start;
            let (seen, whole) = shown(&pages, scope, &mut hand, most);
            prop_assert_eq!(&seen[..], &turned[..most.min(turned.len())]);
            prop_assert_eq!(whole, most >= turned.len());
            prop_assert_eq!(hand.next, turned.get(most).copied().unwrap_or(start.next));
        }
    }

    #[test]
    fn named_pages_are_shown_in_the_order_given_and_leave_the_hand() {
        let pages: BTreeSet<PageId> = [PageId::new(0, 1), PageId::new(1, 2), PageId::new(1, 3)].into();
        let named = [PageId::new(1, 3), PageId::new(2, 0), PageId::new(0, 1), PageId::new(1, 2)];
        let mut hand = ScanHand { next: PageId::new(1, 0) };
        let shown = shown(&pages, Scope::Pages(&named), &mut hand, 2);
        assert_eq!(shown, (vec![named[0], named[2]], false));
        assert_eq!(hand.next, PageId::new(1, 0));
    }
}
