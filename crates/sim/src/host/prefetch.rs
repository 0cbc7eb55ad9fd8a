//! Prefetching into the host's caches what the next accesses of a batch will need. Changes nothing that is simulated.
//!
//! The tables of the simulator (page tables, sets of the last level) do not fit into the host's caches when the program's
//! footprint is large: each random access would wait for several host misses, one after the other.

use super::regions::{Region, RegionCache};
use crate::cache::Hierarchy;
use crate::os::PageTable;
use terrace_model::{CoreId, LINE_BYTES, Line, PageNumber, PageSize, SpaceId, VirtAddr};

/// Far enough to hide a host miss for a page-table entry, and again as far for what it leads to.
const FAR: usize = 24;
const NEAR: usize = 12;
/// No line has this number.
const NOT_FETCHED: Line = Line(u64::MAX);
const PAGE_LINES: u64 = PageSize::Base.bytes() / LINE_BYTES;

/// A line of a program's addresses, by number: address divided by [`LINE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VirtLine(u64);

/// What one core prefetches.
#[derive(Clone, Debug)]
pub struct HostPrefetch {
    /// Whether it pays: it does when many accesses miss what the host's caches hold.
    active: bool,
    /// Misses until the last decision.
    misses: u64,
    /// What was prefetched lately, direct mapped.
    lines: Box<[VirtLine; 256]>,
    /// The last line looked at, and where it lies in memory; [`NOT_FETCHED`] where nothing was prefetched for it.
    last_line: VirtLine,
    last_physical: Line,
    pages: Box<[PageNumber; 64]>,
}

impl HostPrefetch {
    /// Not active.
    pub fn new() -> HostPrefetch {
        HostPrefetch {
            active: false,
            misses: 0,
            lines: Box::new([VirtLine(u64::MAX); 256]),
            last_line: VirtLine(0),
            last_physical: NOT_FETCHED,
            pages: Box::new([PageNumber(u64::MAX); 64]),
        }
    }

    /// Whether a base page was not seen lately.
    #[inline(always)]
    fn is_new_page(&mut self, page: PageNumber) -> bool {
        std::mem::replace(&mut self.pages[page.0 as usize % 64], page) != page
    }

    /// Decides for the next batch of `accesses`: when more than one access in seven of the last one needed what
    /// looking ahead brings. (A sequential stream of doubles misses once in eight, in an order that the host foresees.)
    /// `misses` counts those since the start; `small`: what would be brought is near already.
    pub fn weigh(&mut self, misses: u64, accesses: usize, small: bool) {
        self.active = !small && (misses - self.misses) * 7 > accesses as u64;
        self.misses = misses;
    }

    /// Whether it pays.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Before access `at` is simulated: the page-table entry that access [`FAR`] ahead needs. With `WALKS` also the
    /// last-level set of that entry's line.
    #[inline(always)]
    pub fn entries<const WALKS: bool>(
        &mut self,
        caches: &Hierarchy,
        table: &PageTable,
        regions: &mut RegionCache,
        space: SpaceId,
        addrs: &[u64],
        at: usize,
    ) {
        if let Some(addr) = addrs.get(at + FAR).copied().map(VirtAddr)
            && self.is_new_page(addr.page_number(PageSize::Base))
        {
            match regions.get(space, addr) {
                Some(Region::Table(index, _)) => {
                    let entry = table.prefetch_base_entry(index, addr);
                    if WALKS {
                        caches.host_prefetch_llc(entry.line().in_caches());
                    }
                }
                Some(Region::Page { .. }) => {}
                None => {
                    regions.leaf_from_root(table, space, addr);
                }
            }
        }
    }

    /// Before access `at` is simulated: the physical line that access [`NEAR`] ahead needs, where the sets of the caches
    /// are worth prefetching for it. Its set of the last level is prefetched here; what memory has are up to whoever asks.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    pub fn line(
        &mut self,
        caches: &Hierarchy,
        core: CoreId,
        table: &PageTable,
        regions: &RegionCache,
        space: SpaceId,
        addrs: &[u64],
        at: usize,
    ) -> Option<Line> {
        let addr = VirtAddr(*addrs.get(at + NEAR)?);
        let line = VirtLine(addr.0 / LINE_BYTES);
        let step = line.0.wrapping_sub(std::mem::replace(&mut self.last_line, line).0);
        if step == 0 {
            return None;
        }
        let last_physical = std::mem::replace(&mut self.last_physical, NOT_FETCHED);
        let physical = if step == 1 && !line.0.is_multiple_of(PAGE_LINES) {
            // The next line of the same page is fetched where the one before it was.
            if last_physical == NOT_FETCHED {
                return None;
            }
            last_physical + 1
        } else {
            if std::mem::replace(&mut self.lines[line.0 as usize % 256], line) == line {
                return None;
            }
            let page = regions.find(table, space, addr)?;
            (page.frame.addr() + addr.page_offset(PageSize::Base)).line()
        };
        self.last_physical = physical;
        caches.host_prefetch_l2_and_llc(core, physical.in_caches());
        Some(physical)
    }
}
