//! This process's own memory as policies see it.
//!
//! A page of the page table is a page, an anonymous private area is an area, and collapse is `MADV_COLLAPSE`, which keeps
//! every byte whatever the program does meanwhile. So does taking a huge page apart, and Linux 6.12 then gives back its
//! zeros by itself, so that no store can be lost in between. What a process without rights cannot have is not offered:
//! frames, accessed bits, migration. There is one tier, the machine's memory.

use crate::pages::PageTable;
use crate::system::{self, File};
use crate::{BASE, HUGE, maps};
use std::collections::VecDeque;
use std::ops::Range;
use terrace_model::{Bytes, BytesPerSec, PageSize, TierId, Time};
use terrace_policy::{
    Area, AreaKind, Capabilities, Capability, CapabilitySet, Clear, CopyBy, Cost, Exchange, MemorySystem,
    Move, MoveOptions, Outcome, PageCount, PageId, PageRange, PageView, PhysicalMemory, Resize, ScanHand,
    Scanned, Scope, Signal, SpaceId, Step, Subject, Ticket, Tier, TierTraffic, Topology, Watch,
};

/// The only address space.
const SPACE: SpaceId = SpaceId(0);
const NO_FRAMES: &str = "Linux lets no process see or choose frames";
const NO_ZEROS: &str = "Linux before 6.12 gives back no zeros where it takes a huge page apart";
const NO_BITS: &str = "only the superuser may look at accessed bits";

/// The process's memory.
#[derive(Debug)]
pub struct OwnMemory {
    capabilities: Capabilities,
    topology: Topology,
    traffic: [TierTraffic; 1],
    table: PageTable,
    maps: File,
    memory: File,
    text: Vec<u8>,
    areas: Vec<Area>,
    orders: VecDeque<(Ticket, Subject, Order)>,
    tickets: u64,
    spent: Cost,
    is_short: bool,
}

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Collapse(PageId),
    Split(PageId),
    /// What a process cannot do.
    Unsupported,
}

impl OwnMemory {
    /// Opens what the kernel shows of this process; none where it shows too little.
    ///
    /// # Errors
    /// What is missing.
    pub fn open() -> Result<OwnMemory, &'static str> {
        let table = PageTable::open().ok_or("PAGEMAP_SCAN, of Linux 6.7 and later, is not to be had")?;
        // This thread's file is read: the files of a process whose first thread has ended show nothing.
        let maps = File::open(c"/proc/thread-self/maps").ok_or("/proc/self/maps cannot be opened")?;
        let memory = File::open(c"/proc/meminfo").ok_or("/proc/meminfo cannot be opened")?;
        let mut can = CapabilitySet::of(&[Capability::Collapse, Capability::Split]);
        let gives_zeros_back = crate::pages::gives_zeros_back(&table);
        if gives_zeros_back {
            can = can.with(Capability::ZeroPages);
        }
        let mut capabilities = Capabilities::new(can, PageSize::Huge)
            .without(Capability::Frames, NO_FRAMES)
            .without(Capability::AccessedBits, NO_BITS)
            .without(Capability::DirtyBits, NO_BITS);
        if !gives_zeros_back {
            capabilities = capabilities.without(Capability::ZeroPages, NO_ZEROS);
        }
        // A policy that places in one tier does not look at these figures.
        let unknown = (Time::ZERO, BytesPerSec(0.0));
        let tier = Tier {
            name: "memory".to_owned(),
            capacity: Bytes(0),
            used: Bytes(0),
            read_latency: unknown.0,
            write_latency: unknown.0,
            read_bandwidth: unknown.1,
            write_bandwidth: unknown.1,
        };
        let mut world = OwnMemory {
            capabilities,
            topology: Topology { tiers: vec![tier] },
            traffic: Default::default(),
            table,
            maps,
            memory,
            text: Vec::new(),
            areas: Vec::new(),
            orders: VecDeque::new(),
            tickets: 0,
            spent: Cost::default(),
            is_short: false,
        };
        world.look();
        Ok(world)
    }

    /// Looks anew at how much memory is free, which is little work.
    pub fn look_at_memory(&mut self) {
        self.memory.read(&mut self.text);
        let total = system::line_of(&self.text, "MemTotal:").unwrap_or(0);
        let available = system::line_of(&self.text, "MemAvailable:").unwrap_or(0);
        self.topology.tiers[0].capacity = Bytes(total);
        self.topology.tiers[0].used = Bytes(total.saturating_sub(available));
    }

    /// Looks anew at what areas there are and how much memory is free.
    pub fn look(&mut self) {
        self.look_at_memory();
        self.maps.read(&mut self.text);
        self.areas.clear();
        let areas = &mut self.areas;
        maps::anonymous(&self.text, |range| {
            let range = PageRange::new(page_at(range.start), (range.len() / BASE) as u64);
            let kind = AreaKind::Anonymous;
            areas.push(Area { range, kind, writable: true, huge_advice: None, object: None });
        });
    }

    /// Share of the machine's memory that is not used, 0 to 1.
    pub fn free_share(&self) -> f64 {
        1.0 - self.topology.tiers[0].usage()
    }

    /// While memory is short nothing is joined.
    pub fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// The huge pages that there are, as if faults had just brought them in.
    pub fn huge_pages(&self) -> Vec<Signal> {
        let mut found = Vec::new();
        for area in &self.areas {
            let start = address_of(area.range.first);
            let range = start..start + area.range.pages as usize * BASE;
            self.show(range, &mut Scanned::default(), &mut |view| {
                if view.size == PageSize::Huge {
                    let PageView { page, size, tier, .. } = *view;
                    found.push(Signal::Allocated { page, size, tier, zeroed: false });
                }
                Step::Keep
            });
        }
        found
    }

    /// Carries out the oldest order that is left, and returns what became of it.
    pub fn carry_out(&mut self) -> Option<Signal> {
        let (ticket, subject, order) = self.orders.pop_front()?;
        let before = system::now();
        let outcome = match order {
            Order::Unsupported => Outcome::Unsupported,
            Order::Collapse(_) if self.is_short => Outcome::NoSpace,
            Order::Collapse(page) => self.collapse(address_of(page)),
            Order::Split(page) => self.split(address_of(page.aligned(PageSize::Huge))),
        };
        let time = Time::from_nanos(system::now() - before);
        let is_copied = outcome == Outcome::Done && matches!(order, Order::Collapse(_));
        let copied = if is_copied { HUGE as u64 } else { 0 };
        let cost = Cost { time, copied, ..Cost::default() };
        self.spent += cost;
        Some(Signal::Done { ticket, subject, outcome, cost })
    }

    fn collapse(&self, start: usize) -> Outcome {
        // What a forked child shares is copied when one of them stores to it; to join it now would copy all of it.
        if !self.table.is_own(start) {
            return Outcome::Busy;
        }
        match system::collapse(start, HUGE) {
            Ok(()) => Outcome::Done,
            Err(libc::ENOMEM) => Outcome::NoSpace,
            Err(libc::EAGAIN | libc::EBUSY) => Outcome::Busy,
            // Not, or no longer, an area that takes huge pages.
            Err(_) => Outcome::Gone,
        }
    }

    /// Takes a huge page apart. Linux leaves one whole that a forked child has too.
    fn split(&self, start: usize) -> Outcome {
        if !self.table.is_huge(start) {
            return Outcome::Gone;
        }
        match system::split(start) {
            Ok(()) if self.table.is_huge(start) => Outcome::Busy,
            Ok(()) => Outcome::Done,
            Err(libc::EAGAIN | libc::EBUSY) => Outcome::Busy,
            Err(_) => Outcome::Gone,
        }
    }

    fn order(&mut self, items: impl Iterator<Item = (Subject, Order)>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.orders.extend(items.map(|(subject, order)| (ticket, subject, order)));
        ticket
    }

    /// Shows the pages that begin in a range of addresses; the one at which the visitor stopped.
    fn show(
        &self,
        range: Range<usize>,
        scanned: &mut Scanned,
        visit: &mut dyn FnMut(&PageView) -> Step,
    ) -> Option<PageId> {
        let mut stopped = None;
        self.table.runs(range, &mut |run, is_huge| {
            let (size, bytes) = if is_huge { (PageSize::Huge, HUGE) } else { (PageSize::Base, BASE) };
            let mut at = run.start;
            while at < run.end && stopped.is_none() {
                let page = page_at(at);
                let view = PageView {
                    page: page.aligned(size),
                    size,
                    tier: TierId(0),
                    accessed: false,
                    dirty: false,
                    writable: true,
                    in_flight: false,
                    frame: None,
                };
                // A huge page belongs to the range in which it begins.
                if view.page == page || !is_huge {
                    if visit(&view) == Step::Stop {
                        stopped = Some(page);
                        break;
                    }
                    scanned.pages += 1;
                }
                at = (at + 1).next_multiple_of(bytes);
            }
        });
        stopped
    }
}

fn page_at(address: usize) -> PageId {
    PageId { space: SPACE, vpn: (address / BASE) as u64 }
}

fn address_of(page: PageId) -> usize {
    page.vpn as usize * BASE
}

impl MemorySystem for OwnMemory {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn traffic(&mut self) -> &[TierTraffic] {
        &self.traffic
    }

    fn spent(&self) -> Cost {
        self.spent
    }

    fn scan(
        &mut self,
        scope: Scope<'_>,
        hand: &mut ScanHand,
        _clear: Clear,
        visit: &mut dyn FnMut(&PageView) -> Step,
    ) -> Scanned {
        let mut scanned = Scanned::default();
        let begin = system::now();
        let find = |world: &mut OwnMemory, page| world.page(page).map(|view| view.page);
        let show = |world: &mut OwnMemory, _, vpns: Range<u64>| {
            let wanted = address_range(vpns);
            let range_of = |area: &Area| {
                let start = address_of(area.range.first);
                start..start + area.range.pages as usize * BASE
            };
            world.areas.iter().map(range_of).find_map(|area| {
                let both = area.start.max(wanted.start)..area.end.min(wanted.end);
                if both.is_empty() { None } else { world.show(both, &mut scanned, visit) }
            })
        };
        let lap = hand.lap(self, scope, &[SPACE], find, show);
        scanned.lap = lap;
        scanned.cost.time = Time::from_nanos(system::now() - begin);
        self.spent += scanned.cost;
        scanned
    }

    fn page(&mut self, page: PageId) -> Option<PageView> {
        let start = address_of(page.aligned(PageSize::Huge));
        let mut found = None;
        self.show(start..start + HUGE, &mut Scanned::default(), &mut |view| {
            let holds = PageRange::of(view.page, view.size).covers(PageRange::of(page, PageSize::Base));
            found = found.or(holds.then_some(*view));
            if holds { Step::Stop } else { Step::Keep }
        });
        found
    }

    fn areas(&mut self, space: Option<SpaceId>, visit: &mut dyn FnMut(&Area)) {
        self.areas.iter().filter(|_| space.is_none_or(|space| space == SPACE)).for_each(visit);
    }

    fn area(&mut self, page: PageId) -> Option<Area> {
        self.areas.iter().find(|area| area.range.covers(PageRange::of(page, PageSize::Base))).copied()
    }

    fn watch(&mut self, _: &[PageId], _: Watch) {}

    fn counts(&mut self, _: &mut dyn FnMut(PageCount)) {}

    fn sample_accesses(&mut self, _: u64) {}

    fn wake_below(&mut self, _: TierId, _: Bytes) {}

    fn migrate(&mut self, moves: &[Move], _: MoveOptions) -> Ticket {
        self.order(moves.iter().map(|one| (Subject::Page(one.page), Order::Unsupported)))
    }

    fn exchange(&mut self, pairs: &[Exchange], _: MoveOptions) -> Ticket {
        self.order(pairs.iter().map(|pair| (Subject::Pair(pair.one, pair.other), Order::Unsupported)))
    }

    fn resize_by(&mut self, pages: &[Resize], copy: CopyBy) -> Ticket {
        let order = |page: &Resize| match page.to {
            PageSize::Huge if copy == CopyBy::Bytes => Order::Collapse(page.page),
            PageSize::Base => Order::Split(page.page),
            _ => Order::Unsupported,
        };
        self.order(pages.iter().map(|page| (Subject::Page(page.page), order(page))))
    }

    fn zero_pages(&mut self, page: PageId) -> Option<u64> {
        let start = address_of(page.aligned(PageSize::Huge));
        if self.table.is_huge(start) { crate::pages::zeros(start) } else { None }
    }

    fn drop_zeros(&mut self, pages: &[PageId]) -> Ticket {
        // The page is taken apart: the kernel gives back the zeros that it then finds.
        self.order(pages.iter().map(|page| (Subject::Page(*page), Order::Split(*page))))
    }

    fn physical(&mut self) -> Option<&mut dyn PhysicalMemory> {
        None
    }
}

/// Addresses of page numbers; those beyond what a process can have are left out.
fn address_range(vpns: Range<u64>) -> Range<usize> {
    let address = |vpn: u64| vpn.min(1 << 35) as usize * BASE;
    address(vpns.start)..address(vpns.end)
}
