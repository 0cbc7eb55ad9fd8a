//! What an access source watches when it cannot watch every page: small regions where accesses are, large ones elsewhere.

use super::World;
use super::watches::Watches;
use crate::space::Space;
use std::collections::BTreeMap;
use std::ops::Range;
use terrace_model::PageSize;

/// What is to be watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Page numbers, ascending and apart, by process.
    pub of_process: Vec<(u32, Vec<Range<u64>>)>,
    /// Pages in a region where accesses were, of whatever size they are.
    pub close: u64,
    /// Pages in a region elsewhere.
    pub wide: u64,
}

impl Regions {
    /// Whether every page has a region of its own.
    pub fn are_exact(&self) -> bool {
        self.wide <= 1
    }

    /// Regions over all processes.
    pub fn count(&self) -> usize {
        self.of_process.iter().map(|(_, regions)| regions.len()).sum()
    }
}

/// Share of the regions that lie where accesses were.
const CLOSE_SHARE: (usize, usize) = (3, 4);

/// Where accesses were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Focus {
    /// The ends of regions by process and start.
    accessed: BTreeMap<(u32, u64), u64>,
}

impl Focus {
    /// A region of a process was accessed.
    pub fn note(&mut self, pid: u32, pages: Range<u64>) {
        let end = self.accessed.entry((pid, pages.start)).or_default();
        *end = pages.end.max(*end);
    }

    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.accessed.is_empty()
    }

    /// Whether a page lies where accesses were.
    pub fn has(&self, pid: u32, vpn: u64) -> bool {
        let before = self.accessed.range(..=(pid, vpn)).next_back();
        before.is_some_and(|((of, _), end)| *of == pid && vpn < *end)
    }

    /// Whether somewhere in regions of several pages accesses were, which smaller ones would find.
    pub fn leaves_open(&self) -> bool {
        // A huge page is one page to whoever watches; its region is as long as that.
        self.accessed.iter().any(|((_, start), end)| end - start > 1 && !is_one_huge_page(*start, *end))
    }
}

fn is_one_huge_page(start: u64, end: u64) -> bool {
    let pages = [PageSize::Huge, PageSize::Giant].map(PageSize::base_pages);
    pages.iter().any(|pages| end - start == *pages && start.is_multiple_of(*pages))
}

/// Pages of any size, and what lies in swap left out, where accesses were and elsewhere. Those that the policy watches are
/// not counted.
fn units(space: &mut Space, watches: &Watches, focus: &Focus) -> [u64; 2] {
    let (pid, mut units) = (space.process.pid, [0; 2]);
    space.visit_mut(0..u64::MAX >> 12, |view, state| {
        if !state.is_swapped() && !watches.has(view.page) {
            units[usize::from(!focus.has(pid, view.page.vpn))] += 1;
        }
        true
    });
    units
}

fn regions(space: &mut Space, watches: &Watches, focus: &Focus, [close, wide]: [u64; 2]) -> Vec<Range<u64>> {
    let pid = space.process.pid;
    let mut regions: Vec<Range<u64>> = Vec::new();
    // The last region may grow: how many pages it has, of which size, and how many it may have.
    let mut open: Option<(u64, PageSize, u64)> = None;
    space.visit_mut(0..u64::MAX >> 12, |view, state| {
        if state.is_swapped() {
            return true;
        }
        let range = view.page.vpn..view.page.vpn + view.base_pages();
        let alone = watches.has(view.page);
        let most = if focus.has(pid, range.start) { close } else { wide };
        match (&mut open, regions.last_mut()) {
            (Some((pages, size, of)), Some(last))
                if !alone
                    && *size == view.size
                    && *of == most
                    && *pages < most
                    && last.end == range.start =>
            {
                last.end = range.end;
                *pages += 1;
            }
            _ => {
                regions.push(range);
                open = (!alone).then_some((1, view.size, most));
            }
        }
        true
    });
    regions
}

impl World {
    /// What is to be watched, by process: about `most` regions. Pages that the policy watches are regions of their
    /// own. Where the rest are more than may have one each, three in four regions are for where accesses were, down to
    /// single pages, and the others for the rest, whole pages together; with an empty `focus` all are divided evenly.
    pub fn regions(&mut self, most: usize, focus: &Focus) -> Regions {
        let watched = self.watches.pages().count();
        let most = most.saturating_sub(watched).max(1);
        let watches = &self.watches;
        let of = |space: &mut Space| units(space, watches, focus);
        let [accessed, others] =
            self.spaces.values_mut().map(of).fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
        let sizes = if accessed == 0 || accessed + others <= most as u64 {
            [(accessed + others).div_ceil(most as u64).max(1); 2]
        } else {
            let share = (most * CLOSE_SHARE.0 / CLOSE_SHARE.1).max(1) as u64;
            let close = accessed.div_ceil(share);
            let left = (most as u64).saturating_sub(accessed.div_ceil(close)).max(1);
            [close, others.div_ceil(left).max(close)]
        };
        let of = |space: &mut Space| (space.process.pid, regions(space, watches, focus, sizes));
        Regions { of_process: self.spaces.values_mut().map(of).collect(), close: sizes[0], wide: sizes[1] }
    }
}
