//! What Terrace knows of each page of a process: a sparse table, two bytes per base page.

use std::collections::BTreeMap;
use std::ops::Range;
use terrace_model::{PageSize, TierId};

/// The state of one page, or of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageState(u16);

const TIER: u16 = 0b111;
const RESIDENT: u16 = 1 << 3;
const LOCATED: u16 = 1 << 4;
const ACCESSED: u16 = 1 << 5;
const DIRTY: u16 = 1 << 6;
const IN_FLIGHT: u16 = 1 << 7;
const SEEN: u16 = 1 << 8;
const SWAPPED: u16 = 1 << 9;

macro_rules! flag {
    ($($(#[$doc:meta])* $get:ident $set:ident $bit:ident;)+) => {
        $($(#[$doc])*
        pub const fn $get(self) -> bool {
            self.0 & $bit != 0
        }

        /// Sets or clears it.
        pub const fn $set(&mut self, on: bool) {
            self.0 = if on { self.0 | $bit } else { self.0 & !$bit };
        }
        )+
    };
}

impl PageState {
    flag! {
        /// It holds something, in memory or in a compressed tier.
        is_resident set_resident RESIDENT;
        /// Its tier is known.
        is_located set_located LOCATED;
        /// Accessed since the policy last cleared the bit.
        is_accessed set_accessed ACCESSED;
        /// Stored to since the policy last cleared the bit.
        is_dirty set_dirty DIRTY;
        /// Part of an order.
        is_in_flight set_in_flight IN_FLIGHT;
        /// Found by the pass under way.
        is_seen set_seen SEEN;
        /// In swap.
        is_swapped set_swapped SWAPPED;
    }

    /// Where it lies; meaningful where it is located.
    pub const fn tier(self) -> TierId {
        TierId((self.0 & TIER) as u8)
    }

    /// Where it lies, from now on.
    pub const fn set_tier(&mut self, tier: TierId) {
        self.0 = self.0 & !TIER | tier.0 as u16 & TIER | LOCATED;
    }
}

/// Pages of 2 MiB of address space, or one larger page.
#[derive(Clone, Debug)]
pub enum Chunk {
    /// Base pages.
    Base(Box<[PageState; 512]>),
    /// One page that begins here.
    Whole(PageSize, PageState),
}

/// Base pages in a chunk.
pub const CHUNK: u64 = 512;

/// All pages of a space, by page number.
#[derive(Clone, Debug, Default)]
pub struct PageMap {
    /// By page number divided by 512.
    chunks: BTreeMap<u64, Chunk>,
}

/// A page of any size, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAt {
    /// Its first base page.
    pub vpn: u64,
    /// Its size.
    pub size: PageSize,
}

impl PageMap {
    /// The page that holds `vpn`, resident or not; none where nothing was ever seen near it.
    pub fn get(&self, vpn: u64) -> Option<(PageAt, PageState)> {
        let (first, chunk) = self.chunks.range(..=vpn / CHUNK).next_back()?;
        match chunk {
            Chunk::Base(pages) if *first == vpn / CHUNK => {
                Some((PageAt { vpn, size: PageSize::Base }, pages[(vpn % CHUNK) as usize]))
            }
            Chunk::Whole(size, state) if vpn < first * CHUNK + size.base_pages() => {
                Some((PageAt { vpn: first * CHUNK, size: *size }, *state))
            }
            _ => None,
        }
    }

    /// The same, to change.
    pub fn get_mut(&mut self, vpn: u64) -> Option<&mut PageState> {
        let (first, chunk) = self.chunks.range_mut(..=vpn / CHUNK).next_back()?;
        match chunk {
            Chunk::Base(pages) if *first == vpn / CHUNK => Some(&mut pages[(vpn % CHUNK) as usize]),
            Chunk::Whole(size, state) if vpn < first * CHUNK + size.base_pages() => Some(state),
            _ => None,
        }
    }

    /// Base page `vpn`, to change. A larger page there falls into base pages in its state; none of them is the page
    /// that was ordered to go somewhere.
    pub fn base_mut(&mut self, vpn: u64) -> &mut PageState {
        let at = vpn / CHUNK;
        let chunk =
            self.chunks.entry(at).or_insert_with(|| Chunk::Base(Box::new([PageState::default(); 512])));
        if let Chunk::Whole(_, state) = chunk {
            state.set_in_flight(false);
            *chunk = Chunk::Base(Box::new([*state; 512]));
        }
        match chunk {
            Chunk::Base(pages) => &mut pages[(vpn % CHUNK) as usize],
            Chunk::Whole(..) => unreachable!("it was split above"),
        }
    }

    /// The page of `size` that begins at `vpn`, to change. Base pages there are joined: it was accessed or stored to if
    /// one of them was, and lies nowhere known unless they lay in one tier.
    pub fn whole_mut(&mut self, vpn: u64, size: PageSize) -> &mut PageState {
        debug_assert!(vpn.is_multiple_of(size.base_pages()) && size != PageSize::Base);
        let at = vpn / CHUNK;
        let beyond: Vec<u64> =
            self.chunks.range(at + 1..at + size.base_pages() / CHUNK).map(|(at, _)| *at).collect();
        for at in beyond {
            self.chunks.remove(&at);
        }
        let chunk = self.chunks.entry(at).or_insert_with(|| Chunk::Whole(size, PageState::default()));
        if let Chunk::Base(pages) = chunk {
            let mut joined = PageState::default();
            joined.set_accessed(pages.iter().any(|page| page.is_resident() && page.is_accessed()));
            joined.set_resident(pages.iter().any(|page| page.is_resident()));
            joined.set_dirty(pages.iter().any(|page| page.is_resident() && page.is_dirty()));
            *chunk = Chunk::Whole(size, joined);
        }
        match chunk {
            Chunk::Whole(known, state) => {
                *known = size;
                state
            }
            Chunk::Base(_) => unreachable!("it was joined above"),
        }
    }

    /// Calls `visit` for the resident pages of a range, in order, until it answers false.
    pub fn visit_mut(
        &mut self,
        range: Range<u64>,
        mut visit: impl FnMut(PageAt, &mut PageState) -> bool,
    ) -> bool {
        let Some(first) = self.first_chunk(range.start) else { return true };
        // The nearest may lie beyond the end.
        for (at, chunk) in self.chunks.range_mut(first..range.end.div_ceil(CHUNK).max(first)) {
            match chunk {
                Chunk::Whole(size, state) => {
                    let vpn = at * CHUNK;
                    let inside = vpn + size.base_pages() > range.start;
                    if inside && state.is_resident() && !visit(PageAt { vpn, size: *size }, state) {
                        return false;
                    }
                }
                Chunk::Base(pages) => {
                    let from = range.start.saturating_sub(at * CHUNK).min(CHUNK) as usize;
                    let to = (range.end - at * CHUNK).min(CHUNK) as usize;
                    for (offset, state) in pages[from..to].iter_mut().enumerate() {
                        let vpn = at * CHUNK + (from + offset) as u64;
                        if state.is_resident() && !visit(PageAt { vpn, size: PageSize::Base }, state) {
                            return false;
                        }
                    }
                }
            }
        }
        true
    }

    /// Ends a pass that marked what it found as seen: forgets the rest and unmarks. `gone` hears of runs of base pages
    /// that were resident and were not seen.
    pub fn sweep(&mut self, mut gone: impl FnMut(Range<u64>)) {
        let mut run: Option<Range<u64>> = None;
        let mut add = |range: Range<u64>| match &mut run {
            Some(open) if open.end == range.start => open.end = range.end,
            _ => {
                if let Some(done) = run.replace(range) {
                    gone(done);
                }
            }
        };
        self.chunks.retain(|at, chunk| match chunk {
            Chunk::Whole(size, state) => {
                if !state.is_seen() && state.is_resident() {
                    add(at * CHUNK..at * CHUNK + size.base_pages());
                }
                let keep = state.is_seen();
                state.set_seen(false);
                keep
            }
            Chunk::Base(pages) => {
                let mut any = false;
                for (offset, state) in pages.iter_mut().enumerate() {
                    if state.is_seen() {
                        state.set_seen(false);
                        any = true;
                    } else if state.0 != 0 {
                        if state.is_resident() {
                            let vpn = at * CHUNK + offset as u64;
                            add(vpn..vpn + 1);
                        }
                        *state = PageState::default();
                    }
                }
                any
            }
        });
        if let Some(done) = run {
            gone(done);
        }
    }

    /// The first chunk that may hold pages from `vpn` on.
    fn first_chunk(&self, vpn: u64) -> Option<u64> {
        let at = vpn / CHUNK;
        // A larger page may begin below and reach in.
        let below = self.chunks.range(..=at).next_back().map(|(at, _)| *at);
        below.or_else(|| self.chunks.range(at..).next().map(|(at, _)| *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(map: &mut PageMap, vpn: u64) {
        let page = map.base_mut(vpn);
        page.set_resident(true);
        page.set_seen(true);
    }

    fn resident(map: &mut PageMap, range: Range<u64>) -> Vec<(u64, PageSize)> {
        let mut pages = Vec::new();
        map.visit_mut(range, |page, _| {
            pages.push((page.vpn, page.size));
            true
        });
        pages
    }

    #[test]
    fn states_hold_what_was_set() {
        let mut state = PageState::default();
        state.set_tier(TierId(5));
        state.set_dirty(true);
        assert!(state.is_located() && state.is_dirty() && !state.is_accessed() && state.tier() == TierId(5));
        state.set_tier(TierId(2));
        state.set_dirty(false);
        assert!(!state.is_dirty() && state.tier() == TierId(2));
        assert_eq!(size_of::<PageState>(), 2, "two bytes per base page");
    }

    #[test]
    fn pages_join_and_fall_apart() {
        let mut map = PageMap::default();
        seen(&mut map, 1024);
        map.base_mut(1024).set_dirty(true);
        map.whole_mut(1024, PageSize::Huge).set_resident(true);
        assert_eq!(resident(&mut map, 1500..1501), [(1024, PageSize::Huge)]);
        assert!(map.get(1030).unwrap().1.is_dirty());
        assert_eq!(map.get(1536), None);
        map.base_mut(1025).set_accessed(true);
        assert_eq!(resident(&mut map, 1024..1030).len(), 6);
        assert!(!map.get(1024).unwrap().1.is_accessed() && map.get(1025).unwrap().1.is_accessed());
    }

    #[test]
    fn a_giant_page_covers_its_whole_range() {
        let mut map = PageMap::default();
        seen(&mut map, 5000);
        map.whole_mut(0, PageSize::Giant).set_resident(true);
        assert_eq!(resident(&mut map, 200_000..200_010), [(0, PageSize::Giant)]);
        assert_eq!(map.get(262_143).unwrap().0.size, PageSize::Giant);
        assert_eq!(map.get(262_144), None);
    }

    proptest! {
        #[test]
        fn a_sweep_keeps_what_was_seen_and_tells_the_rest(first in proptest::collection::btree_set(0u64..3000, 0..200), second in proptest::collection::btree_set(0u64..3000, 0..200)) {
            let mut map = PageMap::default();
            first.iter().for_each(|vpn| seen(&mut map, *vpn));
            map.sweep(|_| panic!("all was seen"));
            second.iter().for_each(|vpn| seen(&mut map, *vpn));
            let mut gone = Vec::new();
            map.sweep(|range| gone.extend(range));
            prop_assert_eq!(gone, first.difference(&second).copied().collect::<Vec<_>>());
            let left: Vec<u64> = resident(&mut map, 0..4000).into_iter().map(|page| page.0).collect();
            prop_assert_eq!(left, second.into_iter().collect::<Vec<_>>());
        }
    }
}
