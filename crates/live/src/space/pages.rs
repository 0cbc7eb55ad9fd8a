//! What Terrace knows of each page of a process: a sparse table, two bytes per base page.

use std::cell::Cell;
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
const ENTRY_DROPPED: u16 = 1 << 10;
const ACCESSED_BEFORE: u16 = 1 << 11;

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
        /// The page holds something, in memory or in a compressed tier.
        is_resident set_resident RESIDENT;
        /// The page's tier is known.
        is_located set_located LOCATED;
        /// Accessed since the policy last cleared the bit.
        is_accessed set_accessed ACCESSED;
        /// Accessed between the last two times that the policy cleared that bit.
        was_accessed set_was_accessed ACCESSED_BEFORE;
        /// Stored to since the policy last cleared the bit.
        is_dirty set_dirty DIRTY;
        /// Part of an order.
        is_in_flight set_in_flight IN_FLIGHT;
        /// Found by the pass under way.
        is_seen set_seen SEEN;
        /// In swap.
        is_swapped set_swapped SWAPPED;
        /// The page's entry was taken out, so the page may be there although it does not show.
        is_entry_dropped set_entry_dropped ENTRY_DROPPED;
    }

    /// Accessed lately, whenever one asks: a policy that has just looked has cleared what it saw.
    pub const fn is_hot(self) -> bool {
        self.0 & (ACCESSED | ACCESSED_BEFORE) != 0
    }

    /// The policy has seen whether the page was accessed, and asks for accesses from now on.
    pub const fn clear_accessed(&mut self) {
        self.set_was_accessed(self.is_accessed());
        self.set_accessed(false);
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
    Base(BasePages),
    /// One page that begins here.
    Whole(PageSize, PageState),
}

/// The base pages of a chunk, and what is known of all of them without looking at each.
#[derive(Clone, Debug)]
pub struct BasePages {
    pages: Box<[PageState; 512]>,
    /// All are seen, whatever each says.
    all_seen: bool,
    /// The bits that all pages have and those that any page has, where no page has changed since they were computed.
    common_and_any: Option<(PageState, PageState)>,
}

impl BasePages {
    fn new(state: PageState) -> BasePages {
        BasePages { pages: Box::new([state; 512]), all_seen: false, common_and_any: None }
    }

    /// Gives access to the states, to change one or all.
    #[inline]
    fn change(&mut self) -> &mut [PageState; 512] {
        self.common_and_any = None;
        if std::mem::take(&mut self.all_seen) {
            self.pages.iter_mut().for_each(|state| state.set_seen(true));
        }
        &mut self.pages
    }
}

/// Base pages in a chunk.
pub const CHUNK: u64 = 512;

/// All pages of a space, by page number.
#[derive(Clone, Debug)]
pub struct PageStates {
    /// Where in `chunks` each is, by page number divided by 512.
    index: BTreeMap<u64, usize>,
    chunks: Vec<Chunk>,
    /// Places in `chunks` that hold nothing any more.
    vacant: Vec<usize>,
    /// The chunk that was looked up last: its number, and what [`PageStates::find`] returned. Look-ups mostly follow the
    /// order of the pages.
    last: Cell<(u64, u64, usize)>,
}

/// No chunk has this number.
const NOWHERE: (u64, u64, usize) = (u64::MAX, 0, 0);

impl Default for PageStates {
    fn default() -> PageStates {
        PageStates {
            index: BTreeMap::new(),
            chunks: Vec::new(),
            vacant: Vec::new(),
            last: Cell::new(NOWHERE),
        }
    }
}

/// A page of any size, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAt {
    /// The page's first base page.
    pub vpn: u64,
    /// The page's size.
    pub size: PageSize,
}

impl PageStates {
    /// The nearest chunk that begins at `at` or below, by its number and its place.
    #[inline]
    fn find(&self, at: u64) -> Option<(u64, usize)> {
        let (last, first, place) = self.last.get();
        if last == at {
            return Some((first, place));
        }
        let (first, place) = self.index.range(..=at).next_back()?;
        self.last.set((at, *first, *place));
        Some((*first, *place))
    }

    fn place_of(&self, at: u64) -> Option<usize> {
        self.find(at).filter(|(first, _)| *first == at).map(|(_, place)| place)
    }

    fn insert(&mut self, at: u64, chunk: Chunk) -> usize {
        let place = self.vacant.pop().unwrap_or(self.chunks.len());
        match self.chunks.get_mut(place) {
            Some(vacant) => *vacant = chunk,
            None => self.chunks.push(chunk),
        }
        self.index.insert(at, place);
        self.last.set(NOWHERE);
        place
    }

    /// The page that holds `vpn`, resident or not; none where nothing was ever seen near it.
    #[inline]
    pub fn get(&self, vpn: u64) -> Option<(PageAt, PageState)> {
        let (first, place) = self.find(vpn / CHUNK)?;
        match &self.chunks[place] {
            Chunk::Base(base) if first == vpn / CHUNK => {
                Some((PageAt { vpn, size: PageSize::Base }, base.pages[(vpn % CHUNK) as usize]))
            }
            Chunk::Whole(size, state) if vpn < first * CHUNK + size.base_pages() => {
                Some((PageAt { vpn: first * CHUNK, size: *size }, *state))
            }
            _ => None,
        }
    }

    /// As [`PageStates::get`], to change the state.
    #[inline]
    pub fn get_mut(&mut self, vpn: u64) -> Option<(PageAt, &mut PageState)> {
        let (first, place) = self.find(vpn / CHUNK)?;
        match &mut self.chunks[place] {
            Chunk::Base(base) if first == vpn / CHUNK => {
                Some((PageAt { vpn, size: PageSize::Base }, &mut base.change()[(vpn % CHUNK) as usize]))
            }
            Chunk::Whole(size, state) if vpn < first * CHUNK + size.base_pages() => {
                Some((PageAt { vpn: first * CHUNK, size: *size }, state))
            }
            _ => None,
        }
    }

    /// Base page `vpn`, to change. A larger page there falls into base pages in its state; none of them is the page
    /// that was ordered to go somewhere.
    pub fn base_mut(&mut self, vpn: u64) -> &mut PageState {
        &mut self.base_run_mut(vpn..vpn + 1)[0]
    }

    /// As [`PageStates::base_mut`], for the first pages of a range, as many as are in one chunk.
    pub fn base_run_mut(&mut self, range: Range<u64>) -> &mut [PageState] {
        let at = range.start / CHUNK;
        let place = self
            .place_of(at)
            .unwrap_or_else(|| self.insert(at, Chunk::Base(BasePages::new(PageState::default()))));
        let chunk = &mut self.chunks[place];
        if let Chunk::Whole(_, state) = chunk {
            state.set_in_flight(false);
            *chunk = Chunk::Base(BasePages::new(*state));
        }
        let from = (range.start % CHUNK) as usize;
        let to = (range.end - at * CHUNK).min(CHUNK) as usize;
        match chunk {
            Chunk::Base(base) => &mut base.change()[from..to],
            Chunk::Whole(..) => unreachable!("it was split above"),
        }
    }

    /// The page of `size` that begins at `vpn`, to change. Base pages there are joined: it was accessed or stored to if
    /// one of them was, and lies nowhere known.
    pub fn whole_mut(&mut self, vpn: u64, size: PageSize) -> &mut PageState {
        debug_assert!(vpn.is_multiple_of(size.base_pages()) && size != PageSize::Base);
        let at = vpn / CHUNK;
        if size > PageSize::Huge {
            let beyond: Vec<u64> =
                self.index.range(at + 1..at + size.base_pages() / CHUNK).map(|(at, _)| *at).collect();
            for at in beyond {
                self.vacant.extend(self.index.remove(&at));
                self.last.set(NOWHERE);
            }
        }
        let place =
            self.place_of(at).unwrap_or_else(|| self.insert(at, Chunk::Whole(size, PageState::default())));
        let chunk = &mut self.chunks[place];
        if let Chunk::Base(BasePages { pages, .. }) = chunk {
            let mut joined = PageState::default();
            joined.set_accessed(pages.iter().any(|page| page.is_resident() && page.is_accessed()));
            joined.set_was_accessed(pages.iter().any(|page| page.is_resident() && page.was_accessed()));
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

    /// Marks chunks of base pages from the start of a range as seen, up to the first that is not whole in it or in which
    /// anything is not yet known; returns where that is.
    pub fn see_known_base(&mut self, range: Range<u64>) -> u64 {
        self.see_chunks(range, |chunk| match chunk {
            Chunk::Base(base) => {
                let found = base.common_and_any.unwrap_or_else(|| common_and_any(&base.pages[..]));
                let known = is_known(found);
                if known {
                    base.common_and_any = Some(found);
                    base.all_seen = true;
                }
                known
            }
            Chunk::Whole(..) => false,
        })
    }

    /// Marks huge pages from the start of a range as seen, up to the first that is not known or not whole. Returns
    /// the number of that page.
    pub fn see_known_huge(&mut self, range: Range<u64>) -> u64 {
        self.see_chunks(range, |chunk| match chunk {
            Chunk::Whole(PageSize::Huge, state) => {
                let known = is_known((*state, *state));
                if known {
                    state.set_seen(true);
                }
                known
            }
            _ => false,
        })
    }

    /// Shows `see` the chunks from the start of a range, up to the first that is not there, not whole in the range, or for
    /// which it returns false. Returns the first page of that chunk.
    fn see_chunks(&mut self, range: Range<u64>, mut see: impl FnMut(&mut Chunk) -> bool) -> u64 {
        let (mut at, end) = (range.start / CHUNK, range.end / CHUNK);
        if !range.start.is_multiple_of(CHUNK) || at >= end {
            return range.start;
        }
        for (found, place) in self.index.range(at..end) {
            if *found != at || !see(&mut self.chunks[*place]) {
                break;
            }
            at += 1;
        }
        at * CHUNK
    }

    /// Calls `visit` for the resident pages of a range, in order, until it returns false.
    pub fn visit_mut(
        &mut self,
        range: Range<u64>,
        mut visit: impl FnMut(PageAt, &mut PageState) -> bool,
    ) -> bool {
        let Some(first) = self.first_chunk(range.start) else { return true };
        // The nearest may lie beyond the end.
        for (at, place) in self.index.range(first..range.end.div_ceil(CHUNK).max(first)) {
            match &mut self.chunks[*place] {
                Chunk::Whole(size, state) => {
                    let vpn = at * CHUNK;
                    let inside = vpn + size.base_pages() > range.start;
                    if inside && state.is_resident() && !visit(PageAt { vpn, size: *size }, state) {
                        return false;
                    }
                }
                Chunk::Base(base) => {
                    let from = range.start.saturating_sub(at * CHUNK).min(CHUNK) as usize;
                    let to = (range.end - at * CHUNK).min(CHUNK) as usize;
                    for (offset, state) in base.change()[from..to].iter_mut().enumerate() {
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

    /// Ends a pass that marked what it found as seen: forgets the rest and unmarks. `gone` is called with runs of base pages
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
        let PageStates { index, chunks, vacant, last } = self;
        // Mostly there are none, and to look at all is quicker than to retain.
        let mut empty = Vec::new();
        for (at, place) in &*index {
            let keep = match &mut chunks[*place] {
                Chunk::Whole(size, state) => {
                    if !state.is_seen() && state.is_resident() {
                        add(at * CHUNK..at * CHUNK + size.base_pages());
                    }
                    let keep = state.is_seen();
                    state.set_seen(false);
                    keep
                }
                Chunk::Base(base) if base.all_seen => {
                    base.all_seen = false;
                    true
                }
                Chunk::Base(base) => {
                    let mut any = false;
                    for (offset, state) in base.change().iter_mut().enumerate() {
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
            };
            if !keep {
                // Only the place of a chunk is kept.
                chunks[*place] = Chunk::Whole(PageSize::Huge, PageState::default());
                vacant.push(*place);
                empty.push(*at);
            }
        }
        for at in empty {
            index.remove(&at);
        }
        last.set(NOWHERE);
        if let Some(done) = run {
            gone(done);
        }
    }

    /// The first chunk that may hold pages from `vpn` on.
    fn first_chunk(&self, vpn: u64) -> Option<u64> {
        let at = vpn / CHUNK;
        // A larger page may begin below and reach in.
        let below = self.index.range(..=at).next_back().map(|(at, _)| *at);
        below.or_else(|| self.index.range(at..).next().map(|(at, _)| *at))
    }

    /// Calls `visit` for pages in `range`, in order: how many base pages, and what holds of each. Pages of a chunk that are
    /// all alike come together.
    pub fn visit_alike(&self, range: Range<u64>, mut visit: impl FnMut(u64, PageState)) {
        let Some(first) = self.first_chunk(range.start) else { return };
        for (at, place) in self.index.range(first..range.end.div_ceil(CHUNK).max(first)) {
            let from = range.start.saturating_sub(at * CHUNK);
            let left = range.end.saturating_sub(at * CHUNK);
            match &self.chunks[*place] {
                Chunk::Whole(size, state) => {
                    let inside = left.min(size.base_pages()).saturating_sub(from);
                    if inside > 0 {
                        visit(inside, *state);
                    }
                }
                Chunk::Base(base) => {
                    let pages = &base.pages[from.min(CHUNK) as usize..left.min(CHUNK) as usize];
                    match base.common_and_any.unwrap_or_else(|| common_and_any(pages)) {
                        (all, any) if all == any => visit(pages.len() as u64, all),
                        _ => pages.iter().for_each(|state| visit(1, *state)),
                    }
                }
            }
        }
    }

    /// Adds to `counts` the base pages that lie in each tier, and to `hot` those of them that were accessed lately.
    /// Returns how many pages of any size are in memory.
    pub fn count(&self, counts: &mut [u64], hot: &mut [u64]) -> u64 {
        const KIND: u16 = TIER | RESIDENT | LOCATED | ACCESSED | ACCESSED_BEFORE | SWAPPED;
        let mut in_memory = 0;
        let mut add = |state: PageState, units: u64, pages: u64| {
            if state.is_resident()
                && state.is_located()
                && let Some(count) = counts.get_mut(state.tier().index())
            {
                *count += pages;
                if state.is_hot() {
                    hot[state.tier().index()] += pages;
                }
                in_memory += if state.is_swapped() { 0 } else { units };
            }
        };
        for place in self.index.values() {
            match &self.chunks[*place] {
                Chunk::Whole(size, state) => add(*state, 1, size.base_pages()),
                Chunk::Base(base) => {
                    match base.common_and_any.unwrap_or_else(|| common_and_any(&base.pages[..])) {
                        (all, any) if all.0 & KIND == any.0 & KIND => add(all, CHUNK, CHUNK),
                        _ => base.pages.iter().for_each(|state| add(*state, 1, 1)),
                    }
                }
            }
        }
        in_memory
    }
}

/// The bits that all of these pages have, and those that any has. Loops like these are what a compiler does many at a time.
fn common_and_any(pages: &[PageState]) -> (PageState, PageState) {
    let (all, any) = pages.iter().fold((u16::MAX, 0), |(all, any), state| (all & state.0, any | state.0));
    (PageState(all), PageState(any))
}

/// Whether all pages are known, and known not to be in swap, by what holds of all and of any.
fn is_known((all, any): (PageState, PageState)) -> bool {
    all.is_resident() && all.is_located() && !any.is_swapped()
}

/// Marks pages as seen if nothing else of them is new: all are known, and known not to be in swap. Returns whether.
pub fn see_known(pages: &mut [PageState]) -> bool {
    let known = is_known(common_and_any(pages));
    if known {
        pages.iter_mut().for_each(|state| state.set_seen(true));
    }
    known
}

#[cfg(test)]
mod tests;
