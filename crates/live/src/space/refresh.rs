//! A look at a whole process: which pages are there, written, huge, and on which node each lies.

use super::pages::CHUNK;
use super::{Mapping, PageStates, Space, giants, parse_maps, see_known};
use crate::facts::TierMap;
use crate::kernel::{Kernel, PageRun, PageScan, category, read_text};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use terrace_model::{PageSize, TierId};
use terrace_policy::AreaKind;

/// How stores to pages are found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dirtiness {
    /// Not at all.
    #[default]
    Unknown,
    /// By soft-dirty bits, cleared for the whole process after each look: exact at 4 KiB, by 2 MiB on huge pages.
    SoftDirty,
    /// By write protection, renewed with each look, of memory that the target registered itself or has handed over a
    /// userfaultfd for: exact at 4 KiB, by 2 MiB on huge pages.
    Tracked,
}

/// What a look has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Base pages that were there and are no more.
    pub gone: Vec<Range<u64>>,
    /// Pages that came back from a compressed tier by themselves: the program touched them.
    pub returned: Vec<u64>,
    /// Pages that appeared.
    pub appeared: u64,
    /// Bytes of the pages that were found written, by the tier they lie in: the least that was written since the last look.
    pub written: Vec<u64>,
}

/// Runs per call. 24 bytes each.
const RUNS: usize = 8192;
/// Calls in a row that may get nowhere.
const ATTEMPTS: u32 = 3;
/// Pages per question for their nodes.
const ASKED: usize = 4096;
/// The least share of pages with a known place that is looked at again: the kernel moves pages, too.
const RELOCATED_SHARE: u64 = 8;
/// Below so many pages all are looked at again.
const RELOCATED_LEAST: u64 = 65_536;

impl Space {
    /// Brings everything up to date.
    ///
    /// # Errors
    /// The process has ended, or may not be looked into. What was known before stays.
    pub fn refresh(
        &mut self,
        kernel: &dyn Kernel,
        tiers: &TierMap,
        dirtiness: Dirtiness,
    ) -> io::Result<Refreshed> {
        let maps = read_text(kernel, format!("/proc/{}/maps", self.process.pid))?;
        let mappings = match &self.covered {
            Some(covered) => clipped(parse_maps(&maps), covered),
            None => parse_maps(&maps),
        };
        // An empty file: the process is a zombie.
        if maps.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let before = std::mem::replace(&mut self.mappings, mappings);
        self.find_giants(kernel);
        let dirtiness = if self.no_soft_dirty { Dirtiness::Unknown } else { dirtiness };
        // Registered memory has no neighbours mapped along with a page that is accessed, so accesses are exact, too.
        if dirtiness == Dirtiness::Tracked || self.covered.is_some() && !self.is_sampled {
            self.track(kernel);
        }
        let mut refreshed = Refreshed { written: vec![0; self.resident.len()], ..Refreshed::default() };
        let mut unknown = Vec::new();
        let mut runs = vec![PageRun::default(); RUNS];
        for mapping in &self.mappings {
            let scan = PageScan {
                start: mapping.first << 12,
                end: mapping.end << 12,
                any_of: category::PRESENT | category::SWAPPED,
                tell: category::PRESENT
                    | category::SWAPPED
                    | category::HUGE
                    | category::ZERO
                    | match dirtiness {
                        Dirtiness::Unknown => 0,
                        Dirtiness::SoftDirty => category::SOFT_DIRTY,
                        Dirtiness::Tracked => category::WRITTEN | category::WRITE_TRACKED,
                    },
                ..PageScan::default()
            };
            let mut look = Look {
                pages: &mut self.pages,
                clusters: clusters(tiers, mapping),
                split: &self.split,
                met: BTreeMap::new(),
                fixed_size: mapping.fixed_size,
                compressed: tiers.compressed(),
                unknown: &mut unknown,
                refreshed: &mut refreshed,
            };
            all_runs(kernel, &self.process, scan, &mut runs, |run| look.take(run))?;
            if dirtiness == Dirtiness::Tracked {
                let protect = PageScan {
                    all_of: category::WRITE_TRACKED | category::WRITTEN,
                    any_of: 0,
                    tell: category::WRITTEN,
                    protect: true,
                    ..scan
                };
                // What was written since the look above shows here, so nothing falls between the two.
                all_runs(kernel, &self.process, protect, &mut runs, |run| look.dirty(run))?;
            }
            look.finish();
        }
        if dirtiness == Dirtiness::SoftDirty {
            let path = format!("/proc/{}/clear_refs", self.process.pid);
            if let Err(error) = kernel.write(path.as_ref(), "4") {
                match error.raw_os_error() {
                    Some(libc::EINVAL) => self.no_soft_dirty = true,
                    _ => return Err(error),
                }
            }
        }
        if self.covered.is_some() {
            self.see_dropped(&before);
        }
        self.pages.sweep(|range| refreshed.gone.push(range));
        if tiers.only_tier().is_none() {
            self.ask_again(&mut unknown);
        }
        self.locate(kernel, tiers, &mut unknown)?;
        self.count();
        Ok(refreshed)
    }

    /// Has the kernel track stores to mappings that are new. What cannot be tracked is tried again when its bounds change.
    fn track(&mut self, kernel: &dyn Kernel) {
        let writable = self.mappings.iter().filter(|mapping| mapping.writable);
        let bounds: BTreeSet<(u64, u64)> = writable.map(|mapping| (mapping.first, mapping.end)).collect();
        self.tracked.retain(|known| bounds.contains(known));
        for (first, end) in bounds {
            if self.tracked.contains(&(first, end)) {
                continue;
            }
            let tracked = kernel.track_writes(&self.process, first << 12, (end - first) << 12);
            let again = |error: &io::Error| {
                matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN | libc::EINTR))
            };
            if !tracked.is_err_and(|error| again(&error)) {
                self.tracked.insert((first, end));
            }
        }
    }

    /// Corrects the sizes of reserved pages where they have 1 GiB.
    fn find_giants(&mut self, kernel: &dyn Kernel) {
        let open: Vec<(u64, u64)> = self
            .mappings
            .iter()
            .filter(|mapping| mapping.may_be_giant())
            .map(|mapping| (mapping.first, mapping.end))
            .collect();
        self.giant.retain(|bounds, _| open.contains(bounds));
        if open.iter().any(|bounds| !self.giant.contains_key(bounds)) {
            // Without an answer they count as pages of 2 MiB until the next look.
            let Ok(text) = read_text(kernel, format!("/proc/{}/numa_maps", self.process.pid)) else { return };
            let giants = giants(&text);
            self.giant.extend(open.into_iter().map(|bounds| (bounds, giants.contains(&bounds.0))));
        }
        for mapping in self.mappings.iter_mut().filter(|mapping| mapping.may_be_giant()) {
            if self.giant.get(&(mapping.first, mapping.end)) == Some(&true) {
                mapping.fixed_size = Some(PageSize::Giant);
            }
        }
    }

    /// Looks at a few pages only, after something was done to them. What is gone stays known until the next whole look.
    ///
    /// # Errors
    /// The process has ended, or may not be looked into.
    pub fn look_at(&mut self, kernel: &dyn Kernel, tiers: &TierMap, range: Range<u64>) -> io::Result<()> {
        // Whole pages, so that the counts per tier lose nothing where one falls apart.
        let page = |vpn: u64| self.pages.get(vpn).map(|(at, _)| at.vpn..at.vpn + at.size.base_pages());
        let first = page(range.start).map_or(range.start, |page| page.start);
        let end = page(range.end - 1).map_or(range.end, |page| page.end).max(range.end);
        self.count_in(first..end, |count, pages| *count = count.saturating_sub(pages));
        let looked = self.look_at_whole(kernel, tiers, first..end);
        self.count_in(first..end, |count, pages| *count += pages);
        looked
    }

    fn look_at_whole(&mut self, kernel: &dyn Kernel, tiers: &TierMap, range: Range<u64>) -> io::Result<()> {
        let mapping = self.mapping(range.start);
        let fixed_size = mapping.and_then(|mapping| mapping.fixed_size);
        let clusters = mapping.map_or(0..0, |mapping| clusters(tiers, mapping));
        let scan = PageScan {
            start: range.start << 12,
            end: range.end << 12,
            any_of: category::PRESENT | category::SWAPPED,
            tell: category::PRESENT | category::SWAPPED | category::HUGE | category::ZERO,
            ..PageScan::default()
        };
        let mut unknown = Vec::new();
        let mut refreshed = Refreshed::default();
        let mut look = Look {
            pages: &mut self.pages,
            clusters,
            split: &self.split,
            met: BTreeMap::new(),
            fixed_size,
            compressed: tiers.compressed(),
            unknown: &mut unknown,
            refreshed: &mut refreshed,
        };
        let mut runs = [PageRun::default(); 512];
        let scanned = all_runs(kernel, &self.process, scan, &mut runs, |run| look.take(run));
        look.finish();
        // Only a whole pass shows what is gone, by the marks that this one must not leave.
        self.pages.visit_mut(range, |_, state| {
            state.set_seen(false);
            true
        });
        scanned?;
        self.locate(kernel, tiers, &mut unknown)
    }

    /// Adds some of the pages whose place is known to those to be asked about.
    fn ask_again(&mut self, unknown: &mut Vec<u64>) {
        let all: u64 = self.resident_pages();
        let mut left = if all <= RELOCATED_LEAST { u64::MAX } else { all / RELOCATED_SHARE };
        let from = self.relocate_from;
        self.relocate_from = 0;
        let next = &mut self.relocate_from;
        self.pages.visit_mut(from..u64::MAX >> 12, |at, state| {
            if left == 0 {
                *next = at.vpn;
                return false;
            }
            left = left.saturating_sub(at.size.base_pages());
            if state.is_located() && !state.is_swapped() {
                unknown.push(at.vpn);
            }
            true
        });
    }

    fn locate(&mut self, kernel: &dyn Kernel, tiers: &TierMap, unknown: &mut Vec<u64>) -> io::Result<()> {
        if let Some(only) = tiers.only_tier() {
            for vpn in unknown {
                if let Some((_, state)) = self.pages.get_mut(*vpn) {
                    state.set_tier(only);
                }
            }
            return Ok(());
        }
        unknown.sort_unstable();
        unknown.dedup();
        let mut status = vec![0; ASKED];
        for some in unknown.chunks(ASKED) {
            let addresses: Vec<u64> = some.iter().map(|vpn| vpn << 12).collect();
            kernel.move_pages(&self.process, &addresses, None, &mut status)?;
            for (vpn, node) in some.iter().zip(&status) {
                let Some((_, state)) = self.pages.get_mut(*vpn) else { continue };
                let tier = u32::try_from(*node).ok().and_then(|node| tiers.tier_of(node));
                match tier {
                    Some(tier) => state.set_tier(tier),
                    // Without an entry nobody can say; it lies where it lay.
                    None if state.is_entry_dropped() => {}
                    // Gone meanwhile, or on a node that is not managed.
                    None => state.set_located(false),
                }
            }
        }
        Ok(())
    }

    /// Counts pages per tier anew, and which of them are hot.
    pub fn count(&mut self) {
        self.resident.iter_mut().chain(&mut self.hot).for_each(|count| *count = 0);
        self.units = self.pages.count(&mut self.resident, &mut self.hot);
    }

    fn count_in(&mut self, range: Range<u64>, change: impl Fn(&mut u64, u64)) {
        let resident = &mut self.resident;
        self.pages.visit_mut(range, |at, state| {
            if state.is_located()
                && let Some(count) = resident.get_mut(state.tier().index())
            {
                change(count, at.size.base_pages());
            }
            true
        });
    }
}

/// The parts of the mappings that lie in these ranges of page numbers.
fn clipped(mappings: Vec<Mapping>, covered: &[Range<u64>]) -> Vec<Mapping> {
    let shared = mappings.into_iter().filter(|mapping| mapping.kind == AreaKind::Shared);
    let parts = shared.flat_map(|mapping| {
        covered.iter().filter_map(move |range| {
            let (first, end) = (mapping.first.max(range.start), mapping.end.min(range.end));
            // How far its pages lie from those of the file is the same for each part.
            (first < end).then_some(Mapping { first, end, ..mapping })
        })
    });
    let mut parts: Vec<Mapping> = parts.collect();
    parts.sort_by_key(|part| part.first);
    parts
}

/// Scans a range to its end, however many calls it takes.
///
/// # Errors
/// The process has ended or may not be looked into, or calls get nowhere: what was not looked at must not count as gone.
pub(super) fn all_runs(
    kernel: &dyn Kernel,
    process: &crate::kernel::Process,
    mut scan: PageScan,
    runs: &mut [PageRun],
    mut take: impl FnMut(&PageRun),
) -> io::Result<()> {
    let mut fruitless = 0;
    while scan.start < scan.end {
        let (count, walked) = kernel.scan_pages(process, &scan, runs)?;
        runs.get(..count).unwrap_or_default().iter().for_each(&mut take);
        fruitless = if walked > scan.start { 0 } else { fruitless + 1 };
        if fruitless == ATTEMPTS {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        scan.start = walked.max(scan.start);
    }
    Ok(())
}

/// Chunks of a mapping that count as one page each: with compressed memory as a tier, all that lie wholly inside. The kernel
/// takes huge pages apart there and most programs have few, but what is cold is cold by the megabyte.
fn clusters(tiers: &TierMap, mapping: &Mapping) -> Range<u64> {
    match tiers.compressed() {
        Some(_) if mapping.fixed_size.is_none() => mapping.first.div_ceil(CHUNK)..mapping.end / CHUNK,
        _ => 0..0,
    }
}

/// What a look writes to.
struct Look<'a> {
    pages: &'a mut PageStates,
    /// Where 2 MiB of address space count as one page: the chunks wholly inside the mapping, less those that were split.
    clusters: Range<u64>,
    split: &'a BTreeSet<u64>,
    /// Base pages in memory and in swap of each cluster that the look has met.
    met: BTreeMap<u64, [u64; 2]>,
    fixed_size: Option<PageSize>,
    compressed: Option<TierId>,
    unknown: &'a mut Vec<u64>,
    refreshed: &'a mut Refreshed,
}

impl Look<'_> {
    fn take(&mut self, run: &PageRun) {
        let is = |category: u64| run.categories & category != 0;
        let swapped = is(category::SWAPPED);
        // The page of zeros belongs to nobody; what is in swap lies nowhere, unless swap is a tier.
        if is(category::ZERO) || swapped && self.compressed.is_none() {
            return;
        }
        let (mut vpn, end) = (run.start >> 12, run.end >> 12);
        while vpn < end && self.is_cluster(vpn / CHUNK) {
            let part = end.min((vpn / CHUNK + 1) * CHUNK);
            self.met.entry(vpn / CHUNK).or_default()[usize::from(swapped)] += part - vpn;
            vpn = part;
        }
        let dirty = is(category::SOFT_DIRTY) || is(category::WRITTEN) && is(category::WRITE_TRACKED);
        let size = match self.fixed_size {
            Some(size) if is(category::PRESENT) => size,
            // With compressed memory as a tier only clusters count as huge, whatever the kernel makes of the rest: what the
            // policy has split is split for it, and the kernel follows as soon as a part is sent out.
            None if is(category::HUGE) && self.compressed.is_none() => PageSize::Huge,
            _ => PageSize::Base,
        };
        let step = size.base_pages();
        let mut looked_at = vpn;
        while vpn < end && !self.is_cluster(vpn / CHUNK) {
            // Almost all pages are unchanged, so those of a chunk are passed over together.
            if step == 1 && !swapped && !dirty && vpn >= looked_at {
                // With compressed memory as a tier the next chunk may be a cluster.
                let reach = if self.compressed.is_some() { end.min(vpn + CHUNK) } else { end };
                let changed = self.pages.see_known_base(vpn..reach);
                if changed > vpn {
                    vpn = changed;
                    continue;
                }
                let some = self.pages.base_run_mut(vpn..end);
                looked_at = vpn + some.len() as u64;
                if see_known(some) {
                    vpn += some.len() as u64;
                    continue;
                }
            }
            if size == PageSize::Huge && !swapped && !dirty && vpn >= looked_at {
                let changed = self.pages.see_known_huge(vpn..end);
                looked_at = changed + step;
                if changed > vpn {
                    vpn = changed;
                    continue;
                }
            }
            let whole = vpn.is_multiple_of(step) && (vpn + step <= end || self.fixed_size.is_some());
            let state =
                if whole && step > 1 { self.pages.whole_mut(vpn, size) } else { self.pages.base_mut(vpn) };
            let was_swapped = state.is_swapped();
            if !state.is_resident() {
                self.refreshed.appeared += 1;
                // A page that comes into being was accessed, and nothing is known of its past.
                *state = Default::default();
                state.set_accessed(!swapped);
            }
            state.set_resident(true);
            state.set_seen(true);
            state.set_swapped(swapped);
            if dirty {
                state.set_dirty(true);
                if let Some(bytes) =
                    self.refreshed.written.get_mut(state.tier().index()).filter(|_| state.is_located())
                {
                    *bytes += if whole { size.bytes() } else { PageSize::Base.bytes() };
                }
            }
            match self.compressed.filter(|_| swapped) {
                Some(tier) => state.set_tier(tier),
                None if was_swapped => {
                    state.set_located(false);
                    state.set_accessed(true);
                    self.refreshed.returned.push(vpn);
                    self.unknown.push(vpn);
                }
                None if !state.is_located() => self.unknown.push(vpn),
                None => {}
            }
            vpn += if whole { step } else { 1 };
        }
        // Clusters and split ones may follow each other in one run.
        if vpn < end {
            self.take(&PageRun { start: vpn << 12, ..*run });
        }
    }

    fn is_cluster(&self, chunk: u64) -> bool {
        self.clusters.contains(&chunk) && !self.split.contains(&chunk)
    }

    /// Ends a look at clusters: one that is mostly in swap lies in the compressed tier.
    fn finish(mut self) {
        let Some(compressed) = self.compressed else { return };
        for (chunk, [present, swapped]) in std::mem::take(&mut self.met) {
            let vpn = chunk * CHUNK;
            let state = self.pages.whole_mut(vpn, PageSize::Huge);
            let was_out = state.is_resident() && state.is_swapped();
            let out = swapped > present;
            if was_out && present > 0 {
                state.set_accessed(true);
                self.refreshed.returned.push(vpn);
            }
            self.refreshed.appeared += u64::from(!state.is_resident());
            state.set_resident(true);
            state.set_seen(true);
            state.set_swapped(out);
            state.set_tier(if out { compressed } else { TierId(0) });
        }
    }

    fn dirty(&mut self, run: &PageRun) {
        for vpn in run.start >> 12..run.end >> 12 {
            if let Some((_, state)) = self.pages.get_mut(vpn) {
                state.set_dirty(true);
            }
        }
    }
}
