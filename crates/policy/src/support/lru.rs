//! Pages in the order of their last use.

use super::PageMap;
use crate::{PageId, PageRange};
use std::collections::BTreeMap;

/// A list ordered by last use; O(log n) per use.
#[derive(Clone, Debug, Default)]
pub struct Lru {
    by_use: BTreeMap<u64, PageId>,
    /// When each page was used last; 0 for pages that are not in the list.
    uses: PageMap<u64>,
    now: u64,
}

impl Lru {
    /// The page was used: it goes to the front, also if it was not in the list.
    pub fn touch(&mut self, page: PageId) {
        self.now += 1;
        let last = self.uses.entry(page);
        self.by_use.remove(last);
        *last = self.now;
        self.by_use.insert(self.now, page);
    }

    /// Takes the page out.
    pub fn remove(&mut self, page: PageId) {
        let last = std::mem::take(self.uses.entry(page));
        self.by_use.remove(&last);
    }

    /// Pages, the one that was not used for longest first.
    pub fn oldest(&self) -> impl Iterator<Item = PageId> + '_ {
        self.by_use.values().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_use.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_use.is_empty()
    }

    /// Takes out the pages of a range.
    pub fn forget(&mut self, range: PageRange) {
        self.by_use.retain(|_, page| !range.contains(*page));
        self.uses.forget(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_first() {
        let page = |n| PageId::new(0, n);
        let mut lru = Lru::default();
        for n in [1, 2, 3, 4, 2, 1] {
            lru.touch(page(n));
        }
        assert_eq!(lru.oldest().collect::<Vec<_>>(), [3, 4, 2, 1].map(page));
        lru.remove(page(4));
        lru.forget(PageRange::new(page(1), 1));
        assert_eq!(lru.oldest().collect::<Vec<_>>(), [3, 2].map(page));
        lru.touch(page(1));
        assert_eq!((lru.len(), lru.is_empty()), (3, false));
    }
}
