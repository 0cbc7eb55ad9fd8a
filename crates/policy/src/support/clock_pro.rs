//! CLOCK-Pro's circle of pages, with its three hands. It knows no memory: its owner reports what was referenced.
//!
//! Jiang, Chen and Zhang, USENIX ATC 2005, §3. Pages that left stay on the circle while they are in their test period: one
//! that comes back within it has a short reuse distance and is hot.

use crate::{PageId, PageRange};
use std::collections::BTreeMap;

/// What a page is to CLOCK-Pro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hot,
    /// Present; `test` while its reuse distance is being measured.
    Cold {
        test: bool,
    },
    /// The page left within its test period.
    Ghost,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    page: PageId,
    kind: Kind,
    referenced: bool,
    /// The bit still shows the access that brought it in, which does not count.
    fresh: bool,
    /// The round in which it was last seen present.
    seen: u64,
    next: usize,
    previous: usize,
}

/// A hand, by what it looks for.
#[derive(Clone, Copy, Debug)]
enum Hand {
    Hot,
    Cold,
    Test,
}

/// The circle. New pages enter behind the hand of the hot ones: it reaches them last.
#[derive(Clone, Debug, Default)]
pub struct ClockPro {
    nodes: Vec<Node>,
    unused: Vec<usize>,
    index: BTreeMap<PageId, usize>,
    hands: [usize; 3],
    hot: usize,
    cold: usize,
    ghosts: usize,
    /// Most pages that were ever present at once: the room there is.
    capacity: usize,
    /// How many of the pages present shall be cold; it adapts. All before the first has to leave.
    cold_target: Option<usize>,
    round: u64,
}

impl ClockPro {
    /// A look at all pages that are present begins.
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// The page is present; referenced or not since the last round.
    pub fn present(&mut self, page: PageId, referenced: bool) {
        let (at, referenced) = match self.index.get(&page) {
            Some(at) if self.nodes[*at].kind != Kind::Ghost => (*at, referenced),
            // The page came without a signal, or was to leave and did not.
            _ => (self.enter(page, Kind::Cold { test: true }), false),
        };
        let node = &mut self.nodes[at];
        node.referenced |= referenced && !std::mem::take(&mut node.fresh);
        node.seen = self.round;
    }

    /// The look is over: pages that were not seen are no longer there.
    pub fn end_round(&mut self) {
        let stale = |node: &&Node| node.kind != Kind::Ghost && node.seen != self.round;
        let gone: Vec<PageId> =
            self.index.values().map(|at| &self.nodes[*at]).filter(stale).map(|node| node.page).collect();
        for page in gone {
            self.remove(self.index[&page]);
        }
    }

    /// A new page came; the next look still sees the access that brought it in.
    pub fn allocate(&mut self, page: PageId) {
        self.arrive(page);
        let at = self.index[&page];
        self.nodes[at].fresh = true;
    }

    /// A page came because it was wanted. One that is still remembered is hot, any other begins its test period.
    pub fn arrive(&mut self, page: PageId) {
        match self.index.get(&page).map(|at| self.nodes[*at].kind) {
            Some(Kind::Ghost) => {
                // The page would have been present with more room for cold pages.
                self.adapt(1);
                self.enter(page, Kind::Hot);
                self.balance();
            }
            Some(_) => {}
            None => {
                self.enter(page, Kind::Cold { test: true });
            }
        }
    }

    /// The next page to leave; taken out of those present, and remembered if its test period is not over.
    pub fn evict(&mut self) -> Option<PageId> {
        self.cold_target.get_or_insert(self.capacity);
        self.balance();
        // A lap to turn cold pages hot, one to turn all hot ones cold, one to find them.
        for _ in 0..4 * self.index.len() {
            if self.cold == 0 && !self.cool_one() {
                break;
            }
            let at = self.hands[Hand::Cold as usize];
            let Node { page, kind: Kind::Cold { test }, referenced, .. } = self.nodes[at] else {
                self.advance(Hand::Cold);
                continue;
            };
            match (referenced, test) {
                (true, true) => {
                    self.adapt(1);
                    self.enter(page, Kind::Hot);
                    self.balance();
                    continue;
                }
                (true, false) => {
                    self.enter(page, Kind::Cold { test: true });
                    continue;
                }
                (false, true) => {
                    self.advance(Hand::Cold);
                    self.set(at, Kind::Ghost);
                    self.end_oldest_tests();
                }
                (false, false) => self.remove(at),
            }
            return Some(page);
        }
        None
    }

    /// Forgets the pages of a range.
    pub fn forget(&mut self, range: PageRange) {
        let end = PageId { space: range.first.space, vpn: range.end() };
        let gone: Vec<usize> = self.index.range(range.first..end).map(|(_, at)| *at).collect();
        for at in gone {
            self.remove(at);
        }
    }

    /// A sign that cold pages need more or less room.
    fn adapt(&mut self, by: isize) {
        if let Some(target) = &mut self.cold_target {
            *target = target.saturating_add_signed(by).clamp(1, self.capacity);
        }
    }

    /// Hot pages cool until there are no more than the target of cold ones leaves.
    fn balance(&mut self) {
        let enough = |this: &ClockPro| this.hot + this.cold_target.unwrap_or(0) <= this.capacity;
        while self.hot > 0 && !enough(self) {
            self.step_hot();
        }
    }

    /// The hot hand goes on until a page cools. Returns whether one did.
    fn cool_one(&mut self) -> bool {
        let before = self.hot;
        while self.hot > 0 && self.hot == before {
            self.step_hot();
        }
        self.hot < before
    }

    /// The hot hand takes the mark of a hot page, or else its heat, and ends a test period that it passes.
    fn step_hot(&mut self) {
        let at = self.hands[Hand::Hot as usize];
        self.advance(Hand::Hot);
        let kind = self.nodes[at].kind;
        match kind {
            Kind::Hot if std::mem::take(&mut self.nodes[at].referenced) => {}
            Kind::Hot => self.set(at, Kind::Cold { test: false }),
            Kind::Cold { .. } | Kind::Ghost => self.end_test(at),
        }
    }

    /// No more pages are remembered than are present.
    fn end_oldest_tests(&mut self) {
        while self.ghosts > self.hot + self.cold {
            let at = self.hands[Hand::Test as usize];
            self.advance(Hand::Test);
            self.end_test(at);
        }
    }

    /// A test period, if there is one, ended without a reference: fewer cold pages would have done.
    fn end_test(&mut self, at: usize) {
        match self.nodes[at] {
            Node { kind: Kind::Ghost, .. } => self.remove(at),
            Node { kind: Kind::Cold { test: true }, referenced: false, .. } => {
                self.set(at, Kind::Cold { test: false });
            }
            _ => return,
        }
        self.adapt(-1);
    }

    fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Hot => &mut self.hot,
            Kind::Cold { .. } => &mut self.cold,
            Kind::Ghost => &mut self.ghosts,
        }
    }

    fn set(&mut self, at: usize, kind: Kind) {
        *self.count(self.nodes[at].kind) -= 1;
        *self.count(kind) += 1;
        self.nodes[at].kind = kind;
    }

    /// Puts a page behind the hot hand, from wherever it was.
    fn enter(&mut self, page: PageId, kind: Kind) -> usize {
        if let Some(at) = self.index.get(&page) {
            self.remove(*at);
        }
        let mut node =
            Node { page, kind, referenced: false, fresh: false, seen: self.round, next: 0, previous: 0 };
        let at = self.unused.pop().unwrap_or(self.nodes.len());
        if at == self.nodes.len() {
            self.nodes.push(node);
        }
        if self.index.is_empty() {
            (node.next, node.previous) = (at, at);
            self.hands = [at; 3];
        } else {
            node.next = self.hands[Hand::Hot as usize];
            node.previous = self.nodes[node.next].previous;
        }
        self.nodes[at] = node;
        self.nodes[node.next].previous = at;
        self.nodes[node.previous].next = at;
        self.index.insert(page, at);
        *self.count(kind) += 1;
        self.capacity = self.capacity.max(self.hot + self.cold);
        at
    }

    fn remove(&mut self, at: usize) {
        let Node { page, kind, next, previous, .. } = self.nodes[at];
        for hand in &mut self.hands {
            if *hand == at {
                *hand = next;
            }
        }
        self.nodes[previous].next = next;
        self.nodes[next].previous = previous;
        self.index.remove(&page);
        self.unused.push(at);
        *self.count(kind) -= 1;
    }

    fn advance(&mut self, hand: Hand) {
        let hand = &mut self.hands[hand as usize];
        *hand = self.nodes[*hand].next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Demand paging over `room` pages, named by letters; which accesses missed.
    fn misses(room: usize, string: &str) -> String {
        let mut clock = ClockPro::default();
        let mut present: Vec<PageId> = Vec::new();
        let mut missed = String::new();
        for letter in string.chars() {
            let page = PageId::new(0, u64::from(letter));
            if present.contains(&page) {
                clock.present(page, true);
                continue;
            }
            missed.push(letter);
            if present.len() == room {
                let victim = clock.evict().unwrap();
                present.retain(|page| *page != victim);
            }
            present.push(page);
            clock.arrive(page);
            assert_eq!(clock.hot + clock.cold, present.len());
            assert!(clock.ghosts <= room && clock.index.len() == clock.ghosts + present.len());
        }
        missed
    }

    #[test]
    fn a_page_that_comes_back_within_its_test_outlives_a_scan() {
        // a leaves for d and is still remembered when it comes back: hot. The pages of the scan replace each other.
        assert_eq!(misses(3, "abcd a uvwxyz a".replace(' ', "").as_str()), "abcdauvwxyz");
        // Without the ghost, it is as cold as the others.
        assert_eq!(misses(3, "bcd a uvwxyz a".replace(' ', "").as_str()), "bcdauvwxyza");
    }

    #[test]
    fn a_page_referenced_within_its_test_turns_hot_in_place() {
        // The cold hand finds a referenced: it stays through any number of others.
        assert_eq!(misses(3, "abcadefghija"), "abcdefghij");
    }

    #[test]
    fn a_loop_that_does_not_fit_keeps_part_of_it() {
        // CLOCK and LRU miss every access.
        let laps = "abcd".repeat(20);
        let missed = misses(3, &laps).len();
        assert!(missed < 60, "{missed} of 80 missed");
    }

    #[test]
    fn hot_pages_that_are_no_longer_used_cool_down() {
        let first = misses(3, &"abab".repeat(5));
        assert_eq!(first, "ab");
        let later = format!("{}{}", "abab".repeat(5), "xyxyz".repeat(10));
        let missed = misses(3, &later).len();
        assert!(missed < 2 + 10, "{missed}: x, y and z fit, once a and b have gone");
    }

    #[test]
    fn the_access_that_brought_a_page_in_does_not_count() {
        let pages = [0, 1].map(|n| PageId::new(0, n));
        let mut clock = ClockPro::default();
        clock.allocate(pages[0]);
        clock.arrive(pages[1]);
        clock.begin_round();
        for page in pages {
            clock.present(page, true);
        }
        clock.end_round();
        assert_eq!(clock.evict(), Some(pages[0]));
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let page = |n| PageId::new(0, n);
        let mut clock = ClockPro::default();
        for n in 0..4 {
            clock.arrive(page(n));
        }
        clock.forget(PageRange::new(page(1), 2));
        assert_eq!((clock.cold, clock.index.len()), (2, 2));
        clock.begin_round();
        clock.present(page(3), false);
        clock.end_round();
        assert_eq!(clock.evict(), Some(page(3)));
        assert_eq!(clock.evict(), None);
        clock.begin_round();
        clock.present(page(3), false);
        clock.end_round();
        assert_eq!(clock.evict(), Some(page(3)), "it did not leave, so it is there again");
    }
}
