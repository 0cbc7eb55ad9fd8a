//! A process under management: its areas, and what is known of each of its pages.

mod dropper;
mod entries;
mod maps;
mod pages;
mod refresh;
mod sampling;

pub use entries::Looked;
pub use maps::{Mapping, giants, parse as parse_maps};
use pages::see_known;
pub use pages::{PageAt, PageState, PageStates};
pub use refresh::{Dirtiness, Refreshed};
use sampling::Sampling;
pub use sampling::{Access, Exposure};

use crate::kernel::{Faults, Process};
use dropper::Dropper;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use terrace_model::{PageSize, TierId};
use terrace_policy::{Area, PageId, PageRange, PageView, SpaceId};

/// One process.
#[derive(Debug)]
pub struct Space {
    /// The process's number as policies know it; never used again for another process.
    pub id: SpaceId,
    /// The process.
    pub process: Process,
    /// The process's name, for people.
    pub name: String,
    /// What may be managed, by address.
    pub mappings: Vec<Mapping>,
    /// The process's pages.
    pub pages: PageStates,
    /// Base pages in each tier.
    pub resident: Vec<u64>,
    /// Pages of any size, less those in swap.
    pub units: u64,
    /// Pages among them that had been accessed when they were counted.
    pub hot: Vec<u64>,
    /// How often an access source has looked at it since it joined.
    pub looks: u64,
    /// Clusters that the policy has split: base pages until it joins them again. By page number divided by 512.
    pub split: BTreeSet<u64>,
    /// Whether mappings that may have pages of 1 GiB do, by their bounds. Asked once for each: the kernel's answer walks
    /// all memory of the process.
    giant: BTreeMap<(u64, u64), bool>,
    /// Where the next look at pages whose place is known goes on.
    relocate_from: u64,
    /// Bounds of the mappings whose stores are tracked, or cannot be.
    tracked: BTreeSet<(u64, u64)>,
    /// Page numbers of what is managed, where that is only what the process takes out entries of.
    covered: Option<Vec<Range<u64>>>,
    /// The thread of the process that takes entries out.
    dropper: Option<Dropper>,
    /// Pages that Terrace itself has had put back, to move them.
    ours: BTreeSet<u64>,
    /// Accesses are known by sampled faults; otherwise by all entries.
    is_sampled: bool,
    /// The faults that are sampled.
    sampling: Option<Sampling>,
    /// `/proc/PID/clear_refs` takes no 4: the kernel has no soft-dirty bits.
    no_soft_dirty: bool,
}

impl Space {
    /// A process of which nothing is known yet.
    pub fn new(id: SpaceId, process: Process, name: String, tiers: usize) -> Space {
        Space {
            id,
            process,
            name,
            mappings: Vec::new(),
            pages: PageStates::default(),
            resident: vec![0; tiers],
            units: 0,
            hot: vec![0; tiers],
            looks: 0,
            split: BTreeSet::new(),
            giant: BTreeMap::new(),
            relocate_from: 0,
            tracked: BTreeSet::new(),
            covered: None,
            dropper: None,
            ours: BTreeSet::new(),
            is_sampled: false,
            sampling: None,
            no_soft_dirty: false,
        }
    }

    /// Whether accesses would have shown by now. Before that pages are neither hot nor cold.
    pub(crate) fn is_looked_at(&self) -> bool {
        self.looks > 0
    }

    /// The process has handed over a userfaultfd of its memory.
    pub fn helps(&mut self, tracker: OwnedFd) {
        self.process.tracker = Some(tracker);
        self.tracked.clear();
    }

    /// Only shared memory is managed whose entries the process takes out; nothing until it says which that is.
    pub fn cover_only_droppable(&mut self) {
        self.covered = Some(Vec::new());
    }

    /// The process has handed over the socket of its thread that takes entries out.
    pub fn drops_entries(&mut self, thread: UnixStream) {
        self.dropper = Dropper::new(thread).ok();
        self.sampling.iter_mut().for_each(Sampling::begin_anew);
    }

    /// Only shared memory is managed whose entries the process takes out, and faults of watched pages in it are sampled.
    pub fn cover_only_sampled(&mut self) {
        self.cover_only_droppable();
        self.is_sampled = true;
    }

    /// The process has handed over the userfaultfd for its minor faults.
    pub fn samples(&mut self, faults: Box<dyn Faults>) {
        self.sampling = Some(Sampling::new(faults));
    }

    /// The mapping that holds page `vpn`.
    pub fn mapping(&self, vpn: u64) -> Option<&Mapping> {
        let at = self.mappings.partition_point(|mapping| mapping.end <= vpn);
        self.mappings.get(at).filter(|mapping| mapping.first <= vpn)
    }

    /// A mapping as policies see it.
    pub fn area(&self, mapping: &Mapping) -> Area {
        let first = PageId { space: self.id, vpn: mapping.first };
        Area {
            range: PageRange::new(first, mapping.end - mapping.first),
            kind: mapping.kind,
            writable: mapping.writable,
            huge_advice: None,
            object: None,
        }
    }

    /// A page as a scan shows it; none where it is not resident or its place is not known.
    pub fn view(&self, vpn: u64) -> Option<PageView> {
        let (at, state) = self.pages.get(vpn)?;
        let writable = self.mapping(at.vpn)?.writable;
        (state.is_resident() && state.is_located()).then(|| view(self.id, at, state, writable))
    }

    /// Calls `visit` for pages in `range` whose place is known, in order, until it returns false.
    pub fn visit_mut(
        &mut self,
        range: Range<u64>,
        mut visit: impl FnMut(PageView, &mut PageState) -> bool,
    ) -> bool {
        let start = self.mappings.partition_point(|mapping| mapping.end <= range.start);
        for mapping in &self.mappings[start..] {
            if mapping.first >= range.end {
                break;
            }
            let part = mapping.first.max(range.start)..mapping.end.min(range.end);
            let id = self.id;
            let go_on = self.pages.visit_mut(part, |at, state| {
                !state.is_located() || visit(view(id, at, *state, mapping.writable), state)
            });
            if !go_on {
                return false;
            }
        }
        true
    }

    /// The whole page that holds `page`; none where it is not resident or its place is not known.
    #[inline]
    pub fn found(&self, page: PageId) -> Option<Found> {
        let (at, state) = self.pages.get(page.vpn)?;
        (state.is_resident() && state.is_located()).then(|| Found {
            page: page.aligned(at.size),
            size: at.size,
            tier: state.tier(),
        })
    }

    /// Notes that a page has moved to a tier, which [`Space::moved`] counts; returns its size and where it lay.
    pub fn relocate(&mut self, vpn: u64, to: TierId) -> Option<(PageSize, TierId)> {
        let (at, state) = self.pages.get_mut(vpn).filter(|(_, state)| state.is_located())?;
        let from = state.tier();
        state.set_tier(to);
        Some((at.size, from))
    }

    /// Counts base pages that have moved.
    pub fn moved(&mut self, from: TierId, to: TierId, pages: u64) {
        self.resident[from.index()] = self.resident[from.index()].saturating_sub(pages);
        self.resident[to.index()] += pages;
    }

    /// Base pages of all sizes that are resident.
    pub fn resident_pages(&self) -> u64 {
        self.resident.iter().sum()
    }
}

/// A page as it is when its turn comes.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The page's first base page.
    pub page: PageId,
    /// The page's size.
    pub size: PageSize,
    /// Where it lies.
    pub tier: TierId,
}

fn view(space: SpaceId, at: PageAt, state: PageState, writable: bool) -> PageView {
    PageView {
        page: PageId { space, vpn: at.vpn },
        size: at.size,
        tier: state.tier(),
        accessed: state.is_accessed(),
        dirty: state.is_dirty(),
        writable,
        in_flight: state.is_in_flight(),
        frame: None,
    }
}

/// What a page that must be asked about covers, in bytes.
pub(crate) fn bytes_of(vpn: u64, size: PageSize) -> (u64, u64) {
    (vpn << 12, size.bytes())
}
