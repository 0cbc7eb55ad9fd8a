//! The simulated operating system's side of the policy seam.
//!
//! A [`Tiering`] holds a policy and what the kernel keeps for it: watches, orders under way, signals to hand over, and what
//! all of it cost. The policy's own work and its orders slow the program by the interrupts they send, by the pages they hold
//! and by the traffic of their copies, and, where they share its cores (`os.kernel_threads`), by the time they take there.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | faults and walks: where the program meets a policy |
//! | `calls.rs` | when the policy is called, and with what |
//! | `world.rs` | [`terrace_policy::MemorySystem`]: what a policy sees and orders |
//! | `orders.rs` | orders: the five steps of a migration, exchange, split, collapse |
//! | `begin.rs` | how the items of an order begin |
//! | `changes.rs` | what becomes of orders and watches when the program unmaps, renames or forks |
//! | `watched.rs` | pages under watch, and how watches end |
//! | `physical.rs`, `relocate.rs` | [`terrace_policy::PhysicalMemory`]: frames by number, and orders upon them |
//! | `exchange.rs` | what a hypervisor exchanges for an order of its guest |
//! | `part.rs` | what an order has between unmap and map |
//! | `copy.rs` | the lines that a copy moves |
//! | `processors.rs` | the processors that all of this runs on |
//! | `shootdown.rs` | changes that kernel threads made to page tables, completed |
//! | `guest.rs` | which of several guests a policy manages |
//! | `offers.rs` | what the machine offers, and what it looks like to a policy |
//! | `bench.rs` | the throughput of migrations alone |
//! | `count.rs` | counters, and how often pages go back and forth |

mod begin;
mod bench;
mod calls;
mod changes;
mod copy;
mod count;
mod exchange;
mod guest;
mod offers;
mod orders;
mod part;
mod physical;
mod processors;
mod relocate;
mod shootdown;
mod watched;
mod world;

use crate::machine::{Manager, System, Trap};
use crate::observe::Objects;
use crate::os::{Fault as Page, KernelCosts, Leaf, Os, OsError};
use crate::translate::Placer;
pub use bench::{MigrationRow, migration_benchmark};
pub(crate) use copy::copy_line;
use count::Counters;
use guest::Guest;
use orders::Order;
use processors::Processors;
use std::collections::{BTreeMap, HashSet};
use terrace_model::{AddressRange, Bytes, PageSize, SpaceId, TierId, Time, VirtAddr};
use terrace_policy::{
    Agent, Area, AreaKind, Capabilities, Cost, Fault, Moment, Needs, Object, PageId, PageRange, Placement,
    Policy, Signal, SignalKind, SignalSet, Ticket, TierTraffic, Topology, Watch,
};
use terrace_trace::{Event, MapKind};
use watched::Watched;

/// A level of free memory of which the policy wants to be notified.
#[derive(Clone, Copy, Debug, Default)]
struct LowWater {
    below: Bytes,
    /// Free memory is below the level, and the policy was notified.
    notified: bool,
}

/// A policy at work.
pub(crate) struct Tiering {
    policy: Box<dyn Policy>,
    pub state: State,
}

/// What the kernel keeps for a policy.
pub(crate) struct State {
    /// The agent that accesses memory now.
    pub agent: Agent,
    /// The system whose memory the policy manages.
    pub system: System,
    /// The guest that the policy manages, where there are several virtual machines.
    pub guest: Guest,
    pub topology: Topology,
    /// The machine's tiers, which its copies go through.
    machine: Topology,
    capabilities: Capabilities,
    costs: KernelCosts,
    /// A core's cycle, for the issue of copied lines.
    cycle: Time,
    /// Lines that one copying thread may have outstanding.
    line_buffers: usize,
    /// Frames of each tier that are not for pages: the system's own.
    reserved: Vec<u64>,
    wanted: SignalSet,
    tick: Option<Time>,
    pub processors: Processors,
    /// The policy's own processor works until then.
    busy_until: Time,
    signals: Vec<Signal>,
    /// Some signals must not wait for the next tick.
    urgent: bool,
    watched: BTreeMap<PageId, Watched>,
    /// Orders by the time at which they do something next.
    orders: BTreeMap<(Time, Ticket), Order>,
    next_ticket: u64,
    /// Pages in the hands of an order.
    held: HashSet<PageId>,
    /// Pages that arrived, or that an order gave up, since the engine last looked: whoever waits for them goes on.
    released: Vec<(PageId, PageSize, Time)>,
    /// Pages whose faults wait for a block.
    stalled: BTreeMap<PageId, PageSize>,
    /// Pages whose faults may go on, since the engine last looked.
    resumed: Vec<(PageId, PageSize, Time)>,
    /// When the latest urgent signal was raised.
    notified_at: Time,
    /// When the draining of lists of pages under way that was begun last is over.
    drained_at: Time,
    sample_one_in: u64,
    until_sample: u64,
    low_water: Vec<LowWater>,
    traffic: Vec<TierTraffic>,
    /// The program's data structures, for a policy that needs to know them.
    objects: Option<Box<Objects>>,
    spent: Cost,
    pub counters: Counters,
}

/// The base pages that `range` touches.
fn pages_of(space: SpaceId, range: AddressRange) -> PageRange {
    let first = PageId::of(space, range.start);
    PageRange { first, pages: range.end().0.div_ceil(4096) - first.vpn }
}

/// A point in simulated time as policies see it.
fn moment(at: Time) -> Moment {
    Moment(at.as_nanos() as u64)
}

/// An area of the kernel's, as policies see it.
fn area_of(space: SpaceId, start: VirtAddr, area: &crate::os::Area) -> Area {
    let kind = match area.kind {
        MapKind::Anonymous | MapKind::Heap => AreaKind::Anonymous,
        MapKind::Stack => AreaKind::Stack,
        MapKind::PrivateFile => AreaKind::File,
        MapKind::SharedFile | MapKind::SharedAnonymous => AreaKind::Shared,
        MapKind::HugeTlb => AreaKind::HugeTlb,
    };
    let range = PageRange { first: PageId::of(space, start), pages: (area.end - start) >> 12 };
    Area { range, kind, writable: area.protection.write, huge_advice: area.huge_advice, object: None }
}

impl std::fmt::Debug for Tiering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiering").field("tick", &self.state.tick).finish_non_exhaustive()
    }
}

impl Tiering {
    /// A fault of the host's, whoever accesses memory now.
    pub fn fault_of_host(
        &mut self,
        os: &mut Os,
        space: SpaceId,
        addr: VirtAddr,
        now: Time,
    ) -> Result<Option<Page>, OsError> {
        let agent = std::mem::take(&mut self.state.agent);
        let page = self.fault(os, space, addr, true, now);
        self.state.agent = agent;
        page
    }

    /// What the policy cannot do without.
    pub fn needs(&self) -> Needs {
        self.policy.needs()
    }
}

impl Tiering {
    /// Asks the policy where a page shall lie that is touched first.
    fn ask(&mut self, os: &mut Os, space: SpaceId, addr: VirtAddr, write: bool, now: Time) -> Asked {
        let (start, area) = os.area_at_fault(space, addr);
        let object = self.state.structure_of(PageId::of(space, addr));
        let fault = Fault {
            page: PageId::of(space, addr),
            write,
            at: moment(now),
            agent: self.state.agent,
            area: Area { object, ..area_of(space, start, &area) },
        };
        self.state.account(os);
        let placement = self.policy.place(&fault, &self.state.topology);
        Asked { placement, start, area }
    }
}

/// What a policy was asked and said.
struct Asked {
    placement: Placement,
    start: VirtAddr,
    area: crate::os::Area,
}

impl Placer for Tiering {
    fn place(&mut self, os: &mut Os, space: SpaceId, addr: VirtAddr, write: bool, now: Time) -> Placement {
        self.ask(os, space, addr, write, now).placement
    }

    fn placed(&mut self, os: &Os, space: SpaceId, addr: VirtAddr, page: &Page) {
        if self.state.wanted.contains(SignalKind::Allocated) {
            let tier = self.state.guest.tier_of(os, page.frame);
            self.state.signals.push(Signal::Allocated {
                page: PageId::of(space, addr).aligned(page.size),
                size: page.size,
                tier,
                zeroed: page.zeroed,
            });
        }
        self.state.account(os);
    }
}

impl Manager for Tiering {
    fn fault(
        &mut self,
        os: &mut Os,
        space: SpaceId,
        addr: VirtAddr,
        write: bool,
        now: Time,
    ) -> Result<Option<Page>, OsError> {
        let Asked { placement, start, area } = self.ask(os, space, addr, write, now);
        if (placement.waits() || placement.notifies())
            && let Some(wish) = placement.wishes().first()
            && let Some(size) = os.lacks_block(space, addr, start, &area, wish)
        {
            let (page, tier) = (PageId::of(space, addr).aligned(size), wish.tier);
            if placement.waits() {
                self.state.stall(page, size, tier, now);
                return Ok(None);
            }
            self.state.notify_at_once(Signal::Refused { page, size, tier });
        }
        let page = os.fault(space, addr, placement.wishes())?;
        self.placed(os, space, addr, &page);
        Ok(Some(page))
    }

    fn trap(
        &mut self,
        os: &mut Os,
        space: SpaceId,
        addr: VirtAddr,
        leaf: &Leaf,
        write: bool,
        now: Time,
    ) -> Trap {
        let state = &mut self.state;
        let page = PageId::of(space, addr).aligned(leaf.size);
        let watched = state.watched.get_mut(&page);
        if let Some(Watched { how: Watch::Count, count, .. }) = watched {
            *count += 1;
            let cost = Cost { time: state.costs.count_fault, faults: 1, ..Cost::default() };
            state.spent += cost;
            state.counters.count_faults += 1;
            return Trap { cost: cost.time, goes_on: true };
        }
        os.set_traps(space, leaf, addr, false, false);
        let cost = Cost { time: state.costs.hint_fault, faults: 1, ..Cost::default() };
        state.spent += cost;
        state.counters.hint_faults += 1;
        if let Some(Watched { since, .. }) = state.watched.remove(&page) {
            let latency = now.saturating_sub(since);
            let agent = state.agent;
            state.notify_at_once(Signal::HintFault { page, write, at: moment(now), latency, agent });
        }
        Trap { cost: cost.time, goes_on: false }
    }

    fn walked(&mut self, space: SpaceId, addr: VirtAddr, size: PageSize) {
        if self.state.wanted.contains(SignalKind::TlbMiss) {
            let page = PageId::of(space, addr).aligned(size);
            self.state.signals.push(Signal::TlbMiss { page, agent: self.state.agent });
        }
    }

    fn reached_memory(&mut self, space: SpaceId, addr: VirtAddr, write: bool) -> Time {
        let state = &mut self.state;
        if state.sample_one_in == 0 {
            return Time::ZERO;
        }
        state.until_sample -= 1;
        if state.until_sample > 0 {
            return Time::ZERO;
        }
        state.until_sample = state.sample_one_in;
        let page = PageId::of(space, addr);
        match state.signals.last_mut() {
            Some(Signal::Access { page: last, write: kind, count }) if *last == page && *kind == write => {
                *count += 1;
            }
            _ => state.signals.push(Signal::Access { page, write, count: 1 }),
        }
        state.counters.samples += 1;
        // Counting every access is the simulator's privilege; no hardware does it, so it has no price.
        if state.sample_one_in == 1 {
            return Time::ZERO;
        }
        state.spent += Cost { time: state.costs.sample, ..Cost::default() };
        state.costs.sample
    }
}

impl State {
    /// Brings what is used up to date and sends what falls due by that.
    fn account(&mut self, os: &Os) {
        for (at, tier) in self.topology.tiers.iter_mut().enumerate() {
            let id = TierId(at as u8);
            let used = os.used_frames(self.guest.in_os(id));
            tier.used = Bytes(used.saturating_sub(self.reserved[at]) << 12);
            let level = &mut self.low_water[at];
            let low = tier.free() < level.below;
            if low && !level.notified {
                self.signals.push(Signal::LowWater { tier: id, free: tier.free() });
                self.urgent = true;
            }
            level.notified = low;
        }
    }

    /// The data structure that a page is of, where the policy needs to know.
    fn structure_of(&self, page: PageId) -> Option<Object> {
        self.objects.as_ref()?.of_page(page)
    }

    /// An event of a process may name or change its data structures.
    pub fn note_structures(&mut self, space: SpaceId, event: &Event) {
        if let Some(objects) = &mut self.objects {
            objects.apply(space, event);
        }
    }

    /// A fork gives the child the data structures of its parent.
    pub fn note_fork(&mut self, parent: SpaceId, child: SpaceId) {
        if let Some(objects) = &mut self.objects {
            objects.forked(parent, child);
        }
    }

    fn notify_at_once(&mut self, signal: Signal) {
        self.signals.push(signal);
        self.urgent = true;
    }

    /// A fault waits for a block, if it does not do so already for another thread.
    fn stall(&mut self, page: PageId, size: PageSize, tier: TierId, now: Time) {
        self.counters.stalls += 1;
        if self.stalled.insert(page, size).is_none() {
            self.notified_at = self.notified_at.max(now);
            self.notify_at_once(Signal::Stalled { page, size, tier });
        }
    }

    /// A fault that waits may go on.
    fn resume(&mut self, page: PageId, now: Time) {
        if let Some(size) = self.stalled.remove(&page) {
            self.resumed.push((page, size, now));
        }
    }

    /// Whether faults in a base page wait for a block.
    pub fn is_stalled(&self, page: PageId) -> bool {
        let before = self.stalled.range(..=page).next_back();
        before.is_some_and(|(first, size)| PageRange::of(*first, *size).contains(page))
    }

    /// Whether a page is in the hands of an order.
    pub fn is_held(&self, page: PageId) -> bool {
        self.held.contains(&page)
    }

    /// Whether any is.
    pub fn holds_pages(&self) -> bool {
        !self.held.is_empty()
    }

    /// When the latest urgent signal was raised: an idle machine handles it then, not before.
    pub fn notified_at(&self) -> Time {
        self.notified_at
    }
}

/// Pages of an address space, or all of it, are about to go, to move within it, or to be shared by a fork.
pub(crate) enum Change {
    /// The pages are unmapped.
    Unmap,
    /// The pages get other addresses.
    Rename,
    /// A fork shares them.
    Share,
}
