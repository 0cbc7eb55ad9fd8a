//! Which block a page lies in.

use crate::{PageId, PageRange};
use std::collections::BTreeMap;

/// Parts of blocks by their first page, with their pages and their block: data structures, and areas.
pub type Index = [BTreeMap<PageId, (u64, usize)>; 2];

/// Pages side by side that lie in one block, or in none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stretch {
    first: PageId,
    end: u64,
    /// The block.
    pub block: Option<usize>,
}

impl Stretch {
    /// The stretch from a page on.
    pub fn of(index: &Index, page: PageId) -> Stretch {
        let mut stretch = Stretch { first: page, end: u64::MAX, block: None };
        for parts in index {
            let holder = parts.range(..=page).next_back().map(|(first, (pages, at))| {
                let range = PageRange { first: *first, pages: *pages };
                (range, *at)
            });
            if let Some((range, at)) = holder.filter(|(range, _)| range.contains(page)) {
                return Stretch { end: stretch.end.min(range.end()), block: Some(at), ..stretch };
            }
            let next = parts.range(page..).next().filter(|(next, _)| next.space == page.space);
            stretch.end = stretch.end.min(next.map_or(u64::MAX, |(next, _)| next.vpn));
        }
        stretch
    }

    /// Whether a page lies in it.
    pub fn contains(&self, page: PageId) -> bool {
        page.space == self.first.space && (self.first.vpn..self.end).contains(&page.vpn)
    }
}
