//! A memory system in a few data structures, for tests of policies without the simulator.
//!
//! It has tiers, pages of three sizes, accessed and dirty bits that the test sets by [`InMemory::touch`], watches,
//! orders that take time or fail as the test says, exchange, split, collapse and the physical view. Every 4 KiB of
//! contents has a name, so that [`InMemory::check`] notices a page that was lost, doubled or mixed up.

mod access;
mod check;
mod driver;
mod faults;
mod frames;
mod landing;
mod orders;
mod physical;
mod relocation;
mod system;
mod zeros;

pub use driver::Driver;

use frames::{Frames, Holder};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use terrace_model::{Bytes, BytesPerSec, Frame, PageSize, TierId, Time};
use terrace_seam::{
    Area, Capabilities, Capability, CapabilitySet, Cost, Fault, Moment, Outcome, PageId, PageRange,
    Placement, Random, Signal, SignalKind, SignalSet, Subject, Ticket, Tier, TierTraffic, Topology, Watch,
    Watermarks,
};

/// One mapped page.
#[derive(Clone, Debug)]
struct Page {
    size: PageSize,
    tier: TierId,
    frame: u64,
    accessed: bool,
    dirty: bool,
    writable: bool,
    pinned: bool,
    watch: Watch,
    watched_since: Moment,
    counted: u64,
    /// The order that has it in its hands.
    held_by: Option<Ticket>,
}

/// What happens to orders that would succeed.
#[derive(Clone, Debug)]
struct Failures {
    next: VecDeque<Outcome>,
    one_in: u64,
    outcome: Outcome,
    random: Random,
}

/// The test double.
#[derive(Clone, Debug)]
pub struct InMemory {
    topology: Topology,
    capabilities: Capabilities,
    frames: Vec<Frames>,
    areas: BTreeMap<PageId, Area>,
    pages: BTreeMap<PageId, Page>,
    /// Base pages that were stored to: all others hold only zeros.
    stored: BTreeSet<PageId>,
    /// Base pages without a frame that read as zeros.
    zeros: BTreeSet<PageId>,
    /// Translations held, oldest first, with whether the entry knows the page dirty.
    tlb: VecDeque<(PageId, bool)>,
    tlb_entries: usize,
    traffic: Vec<TierTraffic>,
    spent: Cost,
    /// Requests to exchange pages below the system, instead of copies.
    exchange_requests: u64,
    now: Moment,
    delay: Time,
    orders: Vec<orders::Order>,
    next_ticket: u64,
    signals: Vec<Signal>,
    wanted: SignalSet,
    sample_one_in: u64,
    until_sample: u64,
    watermarks: Vec<(Bytes, bool)>,
    failures: Failures,
    largest_default: PageSize,
    /// Faults that wait for a block.
    stalled: BTreeSet<PageId>,
    /// Base pages whose accesses are not counted.
    hidden: BTreeSet<PageId>,
    /// Huge pages that can be sampled per second.
    affordable: Option<f64>,
    /// Accesses by the first page of their data structure, or of their area.
    block_counts: BTreeMap<PageId, u64>,
    ordered_pages: u64,
    /// Counts changes of what lies where.
    changes: u64,
}

impl InMemory {
    /// A world with these tiers, fastest first: name and size. Everything is offered; tiers get slower by a factor of
    /// four in latency and bandwidth.
    pub fn new(tiers: &[(&str, Bytes)]) -> InMemory {
        let mut base = 0;
        let mut world = InMemory {
            topology: Topology::default(),
            capabilities: Capabilities::new(CapabilitySet::of(Capability::ALL), PageSize::Giant),
            frames: Vec::new(),
            areas: BTreeMap::new(),
            pages: BTreeMap::new(),
            stored: BTreeSet::new(),
            zeros: BTreeSet::new(),
            tlb: VecDeque::new(),
            tlb_entries: 0,
            traffic: vec![TierTraffic::default(); tiers.len()],
            spent: Cost::default(),
            exchange_requests: 0,
            now: Moment::START,
            delay: Time::from_nanos(10_000),
            orders: Vec::new(),
            next_ticket: 0,
            signals: Vec::new(),
            wanted: SignalSet::NONE,
            sample_one_in: 0,
            until_sample: 0,
            watermarks: vec![(Bytes(0), false); tiers.len()],
            failures: Failures {
                next: VecDeque::new(),
                one_in: 0,
                outcome: Outcome::Busy,
                random: Random::new(0),
            },
            largest_default: PageSize::Base,
            stalled: BTreeSet::new(),
            hidden: BTreeSet::new(),
            affordable: None,
            block_counts: BTreeMap::new(),
            ordered_pages: 0,
            changes: 0,
        };
        world.capabilities.copy_threads = 16;
        for (at, (name, capacity)) in tiers.iter().enumerate() {
            let slower = 4u64.pow(at as u32);
            let bandwidth = BytesPerSec(64e9 / slower as f64);
            world.topology.tiers.push(Tier {
                name: (*name).to_owned(),
                capacity: *capacity,
                used: Bytes(0),
                read_latency: Time::from_nanos(100 * slower),
                write_latency: Time::from_nanos(100 * slower),
                read_bandwidth: bandwidth,
                write_bandwidth: bandwidth,
            });
            world.frames.push(Frames::new(base, capacity.0 >> 12));
            base += (capacity.0 >> 12).next_multiple_of(PageSize::Giant.base_pages());
        }
        world
    }

    /// Without a capability.
    pub fn without(mut self, capability: Capability) -> InMemory {
        self.capabilities = self.capabilities.without(capability, "the test world was told not to offer it");
        self
    }

    /// With a TLB of so many translations, replaced in order of arrival. Without it, every access walks.
    pub fn with_tlb(mut self, entries: usize) -> InMemory {
        self.tlb_entries = entries;
        self
    }

    /// With huge pages for faults whose policy leaves the size open.
    pub fn with_huge_pages(mut self) -> InMemory {
        self.largest_default = PageSize::Huge;
        self
    }

    /// How many requests to exchange pages below the system were made, each of as many pairs as an order allows.
    pub fn exchange_requests(&self) -> u64 {
        self.exchange_requests
    }

    /// With orders that take `delay` per batch of pages in flight.
    pub fn with_delay(mut self, delay: Time) -> InMemory {
        self.delay = delay.max(Time::from_nanos(1));
        self
    }

    /// Lets one in `one_in` of the pages ordered fail with `outcome`; 0 ends it.
    pub fn fail_often(&mut self, one_in: u64, outcome: Outcome, seed: u64) {
        self.failures.one_in = one_in;
        self.failures.outcome = outcome;
        self.failures.random = Random::new(seed);
    }

    /// Lets the next page that is ordered fail with `outcome`; repeatable.
    pub fn fail_next(&mut self, outcome: Outcome) {
        self.failures.next.push_back(outcome);
    }

    /// From now on so many huge pages can be sampled per second.
    pub fn afford(&mut self, samples_per_second: f64) {
        self.affordable = Some(samples_per_second);
    }

    /// From now on accesses to these base pages are not counted, and the world says so.
    pub fn hide(&mut self, range: PageRange) {
        self.hidden.extend((0..range.pages).map(|at| range.first.plus(at)));
    }

    /// Bounds what a tier may hold, also below what it holds now.
    pub fn limit(&mut self, tier: TierId, capacity: Bytes) {
        self.topology.tiers[tier.index()].capacity = capacity;
    }

    /// Sets the idle latency of a tier, which its reads take, and its bandwidth.
    pub fn set_speed(&mut self, tier: TierId, latency: Time, bandwidth: BytesPerSec) {
        let tier = &mut self.topology.tiers[tier.index()];
        (tier.read_latency, tier.write_latency) = (latency, latency);
        (tier.read_bandwidth, tier.write_bandwidth) = (bandwidth, bandwidth);
    }

    /// The tiers, as a policy sees them.
    pub fn tiers(&self) -> &Topology {
        &self.topology
    }

    /// What the world offers.
    pub fn offers(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The time.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Pages, pairs and frames in all orders so far.
    pub fn ordered_pages(&self) -> u64 {
        self.ordered_pages
    }

    /// Sends only the optional signals of this set.
    pub fn send_only(&mut self, wanted: SignalSet) {
        self.wanted = wanted;
    }

    /// Maps an area. Pages appear at first touch.
    ///
    /// # Panics
    /// It overlaps another: a mistake of the test.
    pub fn map(&mut self, area: Area) {
        let overlaps = self.areas.values().any(|other| {
            other.range.first.space == area.range.first.space
                && other.range.first.vpn < area.range.end()
                && area.range.first.vpn < other.range.end()
        });
        assert!(!overlaps, "{area:?} overlaps another area");
        self.areas.insert(area.range.first, area);
    }

    /// Maps anonymous, writable memory.
    pub fn map_anonymous(&mut self, space: u32, vpn: u64, pages: u64) {
        self.map_private(PageRange::new(PageId::new(space, vpn), pages), None);
    }

    /// Maps private memory for which the program asked for huge pages, or for none.
    pub fn map_advised(&mut self, space: u32, vpn: u64, pages: u64, huge: bool) {
        self.map_private(PageRange::new(PageId::new(space, vpn), pages), Some(huge));
    }

    fn map_private(&mut self, range: PageRange, huge_advice: Option<bool>) {
        self.map(Area {
            range,
            kind: terrace_seam::AreaKind::Anonymous,
            writable: true,
            huge_advice,
            object: None,
        });
    }

    /// The area that holds `page`.
    fn area_of(&self, page: PageId) -> Option<&Area> {
        let (_, area) = self.areas.range(..=page).next_back()?;
        area.range.contains(page).then_some(area)
    }

    /// The first page name of the mapped page that holds `page`.
    fn find(&self, page: PageId) -> Option<PageId> {
        let (&first, found) = self.pages.range(..=page).next_back()?;
        PageRange::of(first, found.size).contains(page).then_some(first)
    }

    /// Whether anything is mapped in `range`.
    fn is_empty(&self, range: PageRange) -> bool {
        let end = PageId { space: range.first.space, vpn: range.end() };
        self.find(range.first).is_none() && self.pages.range(range.first..end).next().is_none()
    }

    fn tier_of(&self, frame: u64) -> Option<usize> {
        self.frames.iter().position(|frames| frames.contains(frame))
    }

    /// Where `page` lies and how large its page is; none if it is not mapped.
    pub fn locate(&self, page: PageId) -> Option<(TierId, PageSize)> {
        self.find(page).map(|first| (self.pages[&first].tier, self.pages[&first].size))
    }

    /// The frame under a base page.
    pub fn frame(&self, page: PageId) -> Option<Frame> {
        self.find(page).map(|first| Frame(self.pages[&first].frame + page.vpn - first.vpn))
    }

    /// How many base pages of managed memory lie in a tier.
    pub fn resident(&self, tier: TierId) -> u64 {
        self.pages.values().filter(|page| page.tier == tier).map(|page| page.size.base_pages()).sum()
    }

    /// Pins a page, as direct I/O does: it cannot move.
    pub fn pin(&mut self, page: PageId) {
        if let Some(first) = self.find(page)
            && let Some(page) = self.pages.get_mut(&first)
        {
            page.pinned = true;
        }
    }

    /// Gives a free frame to the kernel for good, or to the page cache.
    pub fn take_frame(&mut self, frame: Frame, movable: bool) {
        if let Some(tier) = self.tier_of(frame.0) {
            let holder = if movable { Holder::Other } else { Holder::Kernel };
            self.frames[tier].set(frame.0, holder);
            self.account();
        }
    }

    /// The pageblock of 2 MiB that a frame lies in is kept for what cannot move from now on. All others are for what can.
    pub fn keep_for_unmovable(&mut self, frame: Frame) {
        if let Some(tier) = self.tier_of(frame.0) {
            self.frames[tier].keep_for_unmovable(frame.0);
        }
    }

    /// Gives a free frame to a page of a file that can be evicted, as long as it stays where it is.
    pub fn cache_frame(&mut self, frame: Frame) {
        self.take_frame(frame, true);
        if let Some(tier) = self.tier_of(frame.0) {
            self.frames[tier].evictable.insert(frame.0);
        }
    }

    /// Says how much of a tier the world keeps free. It does nothing for it.
    pub fn set_watermarks(&mut self, tier: TierId, watermarks: Watermarks) {
        self.frames[tier.index()].watermarks = watermarks;
    }

    /// Takes frames back that were given by [`InMemory::take_frame`].
    pub fn give_frames(&mut self, frames: &[u64]) {
        for &frame in frames {
            if let Some(tier) = self.tier_of(frame)
                && matches!(self.frames[tier].holder(frame), Holder::Other | Holder::Kernel)
            {
                self.frames[tier].set(frame, Holder::Free { zeroed: false });
            }
        }
        self.account();
    }

    /// Unmaps a range: areas and pages in it are gone, huge pages that reach beyond it are split.
    pub fn unmap(&mut self, range: PageRange) {
        for edge in [range.first, PageId { space: range.first.space, vpn: range.end() }] {
            if let Some(first) = self.find(edge)
                && first != edge
            {
                self.split(first, PageSize::Base);
            }
            self.split_area(edge);
        }
        let end = PageId { space: range.first.space, vpn: range.end() };
        let gone: Vec<PageId> = self.pages.range(range.first..end).map(|(page, _)| *page).collect();
        for first in gone {
            self.release(first);
        }
        self.forget_stores(range);
        self.forget_zeros(range);
        self.areas.retain(|_, area| !range.covers(area.range));
        if self.wanted.contains(SignalKind::Unmapped) {
            self.signals.push(Signal::Unmapped { range });
        }
        self.account();
    }

    fn split_area(&mut self, edge: PageId) {
        let Some(area) = self.area_of(edge).copied() else { return };
        let below = edge.vpn - area.range.first.vpn;
        if below > 0 {
            let lower = PageRange::new(area.range.first, below);
            let upper = PageRange::new(edge, area.range.pages - below);
            self.areas.insert(lower.first, Area { range: lower, ..area });
            self.areas.insert(upper.first, Area { range: upper, ..area });
        }
    }

    fn release(&mut self, first: PageId) {
        if let Some(page) = self.pages.remove(&first) {
            let frames = &mut self.frames[page.tier.index()];
            frames.set_block(page.frame, page.size.base_pages(), Holder::Free { zeroed: false });
            for frame in page.frame..page.frame + page.size.base_pages() {
                frames.set_content(frame, None);
            }
            self.flush(first);
        }
    }

    /// Splits a page in place.
    fn split(&mut self, first: PageId, to: PageSize) {
        let Some(whole) = self.pages.remove(&first) else { return };
        let part = to.base_pages();
        for at in (0..whole.size.base_pages()).step_by(part as usize) {
            let name = first.plus(at);
            let frame = whole.frame + at;
            self.frames[whole.tier.index()].set_block(frame, part, Holder::Page(name));
            let page =
                Page { size: to, frame, watch: Watch::Off, counted: 0, held_by: None, ..whole.clone() };
            self.pages.insert(name, page);
        }
        self.flush(first);
    }

    fn flush(&mut self, page: PageId) {
        self.tlb.retain(|(held, _)| *held != page);
    }

    /// Brings the tiers' figures up to date and sends what falls due by that.
    fn account(&mut self) {
        self.changes += 1;
        for (at, frames) in self.frames.iter().enumerate() {
            let tier = &mut self.topology.tiers[at];
            tier.used = Bytes(tier.capacity.0 - frames.free() * 4096);
            let (level, sent) = &mut self.watermarks[at];
            let low = tier.free() < *level;
            if low && !*sent {
                self.signals.push(Signal::LowWater { tier: TierId(at as u8), free: tier.free() });
            }
            *sent = low;
        }
    }

    /// Takes the signals since the last call: each is returned once.
    pub fn take_signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }

    fn done(&mut self, ticket: Ticket, subject: Subject, outcome: Outcome, cost: Cost) {
        self.spent += cost;
        self.signals.push(Signal::Done { ticket, subject, outcome, cost });
    }
}
