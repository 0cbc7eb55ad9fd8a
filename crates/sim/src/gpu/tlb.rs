//! The TLB of an SM.

use crate::array::FullyAssociative;
use terrace_model::{Frame, PageNumber};

/// A fully associative TLB of base pages, which drops the page that was used longest ago.
#[derive(Debug)]
pub(super) struct Tlb {
    /// Frames by page; none in a TLB without entries.
    held: Option<FullyAssociative>,
    /// The page of the last look-up.
    recent: (PageNumber, Frame),
}

const NO_PAGE: PageNumber = PageNumber(u64::MAX);

impl Tlb {
    pub fn new(entries: u32) -> Tlb {
        Tlb { held: (entries > 0).then(|| FullyAssociative::new(entries)), recent: (NO_PAGE, Frame(0)) }
    }

    pub fn look_up(&mut self, page: PageNumber) -> Option<Frame> {
        if self.recent.0 == page {
            return Some(self.recent.1);
        }
        let frame = Frame(*self.held.as_mut()?.touch(page.0)?);
        self.recent = (page, frame);
        Some(frame)
    }

    /// Takes in a page that it does not hold.
    pub fn fill(&mut self, page: PageNumber, frame: Frame) {
        if let Some(held) = &mut self.held {
            held.insert(page.0, frame.0);
            self.recent = (page, frame);
        }
    }

    /// Drops a page by its frame.
    pub fn forget(&mut self, frame: Frame) {
        for place in 0..self.held.as_ref().map_or(0, FullyAssociative::capacity) {
            let entry = self.held.as_ref().and_then(|held| held.entry_at(place));
            if let Some((page, _)) = entry.filter(|(_, of)| *of == frame.0) {
                self.drop_page(PageNumber(page));
            }
        }
    }

    pub fn drop_page(&mut self, page: PageNumber) {
        if let Some(held) = &mut self.held {
            held.remove(page.0);
        }
        if self.recent.0 == page {
            self.recent = (NO_PAGE, Frame(0));
        }
    }

    pub fn flush(&mut self) {
        if let Some(held) = &mut self.held {
            held.retain(|_| false);
        }
        self.recent = (NO_PAGE, Frame(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tlb_drops_what_was_used_longest_ago() {
        let mut tlb = Tlb::new(2);
        tlb.fill(PageNumber(1), Frame(11));
        tlb.fill(PageNumber(2), Frame(12));
        assert_eq!(tlb.look_up(PageNumber(1)), Some(Frame(11)));
        tlb.fill(PageNumber(3), Frame(13));
        assert_eq!(
            [1, 2, 3].map(|page| tlb.look_up(PageNumber(page))),
            [Some(Frame(11)), None, Some(Frame(13))]
        );
        tlb.flush();
        assert_eq!(tlb.look_up(PageNumber(3)), None);
    }

    #[test]
    fn pages_are_dropped_by_number_and_by_frame() {
        let mut tlb = Tlb::new(3);
        for page in [1, 2, 3] {
            tlb.fill(PageNumber(page), Frame(10 + page));
        }
        tlb.drop_page(PageNumber(3));
        tlb.forget(Frame(11));
        assert_eq!([1, 2, 3].map(|page| tlb.look_up(PageNumber(page))), [None, Some(Frame(12)), None]);
        let mut none = Tlb::new(0);
        none.fill(PageNumber(1), Frame(11));
        assert_eq!(none.look_up(PageNumber(1)), None);
    }
}
