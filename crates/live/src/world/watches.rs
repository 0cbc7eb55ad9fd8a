//! Pages whose accesses the policy wants to hear of, by the page-out probe.
//!
//! A watched page is sent to compressed swap; that it is back shows that it was accessed. A page that is counted is sent
//! out again after each look, so that `k` returns in `m` looks a time δ apart tell a rate of `-ln(1 - k/m) / δ`.

use std::collections::BTreeMap;
use terrace_policy::{Moment, PageCount, PageId, PageRange, Watch};

/// A page under watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Off, for pages that are to be let go.
    pub how: Watch,
    /// It is in swap since then. None: it has to be sent there.
    pub armed: Option<Moment>,
    /// Looks since the last reading.
    pub looks: u64,
    /// Looks that found it back.
    pub returns: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Watches {
    pages: BTreeMap<PageId, Watched>,
}

impl Watches {
    /// Begins or ends the watch of pages.
    pub fn set(&mut self, pages: &[PageId], how: Watch, _now: Moment) {
        for page in pages {
            if how == Watch::Off {
                self.pages.remove(page);
            } else {
                let fresh = Watched { how, armed: None, looks: 0, returns: 0 };
                self.pages.entry(*page).and_modify(|watched| watched.how = how).or_insert(fresh);
            }
        }
    }

    /// Ends the watch of what is gone.
    pub fn forget(&mut self, range: PageRange) {
        let last = PageId { space: range.first.space, vpn: range.end() };
        let gone: Vec<PageId> = self.pages.range(range.first..last).map(|(page, _)| *page).collect();
        for page in gone {
            self.pages.remove(&page);
        }
    }

    /// All pages, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&PageId, &mut Watched)> {
        self.pages.iter_mut()
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Estimates of the accesses since the last reading.
    pub fn counts(&mut self, visit: &mut dyn FnMut(PageCount)) {
        for (page, watched) in self.pages.iter_mut().filter(|(_, watched)| watched.how == Watch::Count) {
            let (accesses, saturated) = estimate(watched.looks, watched.returns);
            visit(PageCount { page: *page, accesses, saturated });
            (watched.looks, watched.returns) = (0, 0);
        }
    }
}

/// Accesses that make a page come back in `returns` of `looks`, if they come at random: `-looks · ln(1 - returns/looks)`.
/// A page that was back every time was accessed at least as often as one that missed half a look.
fn estimate(looks: u64, returns: u64) -> (u64, bool) {
    if looks == 0 {
        return (0, false);
    }
    let saturated = returns >= looks;
    let share = if saturated { 1.0 - 0.5 / looks as f64 } else { returns as f64 / looks as f64 };
    ((-(looks as f64) * (1.0 - share).ln()).round() as u64, saturated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_those_of_random_arrivals() {
        assert_eq!(estimate(0, 0), (0, false));
        assert_eq!(estimate(100, 0), (0, false));
        // 1 - e^-1 of the looks find a page that is accessed once per look on average.
        assert_eq!(estimate(1000, 632), (1000, false));
        assert_eq!(estimate(1, 1), (1, true));
        assert_eq!(estimate(100, 100), (530, true));
    }
}
