//! Active and inactive pages of a tier, as Linux keeps them, from accessed bits alone.

use super::PageMap;
use crate::{Choice, PageId, PageRange, PageView};

/// Where a page stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum List {
    /// In use.
    #[default]
    Active,
    /// Not in use lately: a candidate for demotion.
    Inactive,
}

/// A page's list and its software accessed bit; one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Never seen.
    #[default]
    New,
    Inactive {
        referenced: bool,
    },
    Active {
        referenced: bool,
    },
}

/// Two lists per tier, distinguished by one state per page.
///
/// Transitions at each look at a page, whose hardware accessed bit is read and cleared (Nimble Fig. 3.7; the state
/// machine is Linux's, whose figure labels the thesis' text lost): an inactive page that was accessed once is
/// referenced, twice is active; an active page that was not accessed loses its reference first and becomes inactive at
/// the next look. An inactive page that was not accessed loses its reference and stays: it is not reclaimed.
#[derive(Clone, Debug, Default)]
pub struct TwoLists {
    states: PageMap<State>,
    first: List,
}

impl TwoLists {
    /// Lists on which new pages start as `first` says.
    pub fn new(first: List) -> TwoLists {
        TwoLists { states: PageMap::default(), first }
    }

    /// Looks at a page, whose accessed bit the caller clears, and returns the list it is on now.
    #[inline]
    pub fn look(&mut self, view: &PageView) -> List {
        let state = self.states.entry(view.page);
        let before = match *state {
            State::New => match self.first {
                List::Active => State::Active { referenced: false },
                List::Inactive => State::Inactive { referenced: false },
            },
            known => known,
        };
        *state = match (before, view.accessed) {
            (State::Active { .. }, true) => State::Active { referenced: true },
            (State::Active { referenced: true }, false) => State::Active { referenced: false },
            (State::Inactive { referenced: true }, true) => State::Active { referenced: false },
            (State::Inactive { referenced: false }, true) => State::Inactive { referenced: true },
            _ => State::Inactive { referenced: false },
        };
        self.list(view.page)
    }

    /// The list a page is on; inactive for one that was never seen.
    pub fn list(&self, page: PageId) -> List {
        match self.states.get(page) {
            State::Active { .. } => List::Active,
            _ => List::Inactive,
        }
    }

    /// Puts a page on the active list, as a fault on it does.
    pub fn activate(&mut self, page: PageId) {
        *self.states.entry(page) = State::Active { referenced: false };
    }

    /// Forgets pages that are no longer mapped.
    pub fn forget(&mut self, range: PageRange) {
        self.states.forget(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::{PageSize, TierId};

    fn look(lists: &mut TwoLists, accessed: bool) -> List {
        lists.look(&PageView {
            page: PageId::new(0, 5),
            size: PageSize::Base,
            tier: TierId(0),
            accessed,
            dirty: false,
            writable: true,
            in_flight: false,
            frame: None,
        })
    }

    #[test]
    fn transitions_one_by_one() {
        use List::{Active, Inactive};
        let mut lists = TwoLists::default();
        let looks = [true, false, false, false, true, false, true, true, false, true];
        let found: Vec<List> = looks.into_iter().map(|accessed| look(&mut lists, accessed)).collect();
        let expected = [
            Active,   // new, accessed: referenced
            Active,   // loses its reference
            Inactive, // and its place
            Inactive, // stays, is not reclaimed
            Inactive, // accessed once: referenced
            Inactive, // loses its reference
            Inactive, // once
            Active,   // twice
            Inactive, // active without a reference, not accessed
            Inactive, // once
        ];
        assert_eq!(found, expected);
        lists.activate(PageId::new(0, 5));
        assert_eq!(look(&mut lists, true), Active);
        lists.forget(PageRange::new(PageId::new(0, 5), 1));
        assert_eq!(lists.list(PageId::new(0, 5)), Inactive);
        assert_eq!(look(&mut TwoLists::new(Inactive), true), Inactive);
    }
}
