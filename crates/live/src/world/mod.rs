//! Live Linux as policies see it: [`World`] implements [`terrace_policy::MemorySystem`].

mod calls;
mod costs;
mod counters;
mod entries;
mod exchanging;
mod moving;
mod orders;
mod plan;
mod regions;
mod resizing;
mod sampling;
mod watches;

pub use costs::Probed;
pub use counters::Counters;
pub use regions::{Focus, Regions};
pub use watches::Sampling;
use watches::Watches;

use crate::facts::{TierMap, nodes, text};
use crate::help::Trackers;
use crate::kernel::{Kernel, Process};
use crate::space::{Dirtiness, Space};
use costs::Costs;
use orders::Orders;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use terrace_model::{Bytes, PageSize, TierId};
use terrace_placement::structures::Structures;
use terrace_policy::{
    Capabilities, Cost, Initiator, Moment, PageId, PageRange, Signal, SignalKind, SignalSet, SpaceId, Tier,
    TierTraffic, Topology,
};

/// Memory that is left free on every node, as a share of it: the kernel's own reserve, and room for pages on their way.
const HEADROOM: u64 = 64;

/// Bytes that an access to memory moves.
const CACHE_LINE: u64 = 64;

/// What a world is made with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Most memory of the targets in a tier, by its name.
    pub limits: BTreeMap<String, Bytes>,
    /// Orders are counted, not carried out.
    pub dry_run: bool,
    /// Most workers per order.
    pub workers: usize,
    /// What the command hands over, where it is launched with the library that lets its stores be tracked.
    pub trackers: Option<Trackers>,
    /// Which memory is managed.
    pub managed: Managed,
    /// Where the command's data structures are written down, if they are.
    pub structures: Option<Structures>,
}

/// Which memory is managed, and how accesses to it are found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Managed {
    /// All; by what the kernel offers.
    #[default]
    All,
    /// Shared memory whose entries the command takes out; by the entries that are there again.
    EntriesDropped,
    /// Shared memory as above; by faults of the pages that the policy watches.
    Sampled,
}

/// The processes under management, their pages, and what the policy has ordered.
pub struct World {
    kernel: Arc<dyn Kernel>,
    tiers: TierMap,
    topology: Topology,
    capabilities: Capabilities,
    limits: Vec<Option<Bytes>>,
    dry_run: bool,
    workers: usize,
    dirtiness: Dirtiness,
    trackers: Trackers,
    managed: Managed,
    structures: Option<Structures>,
    wanted: SignalSet,
    spaces: BTreeMap<SpaceId, Space>,
    next_space: u32,
    /// Free memory of each node beyond what is always kept, less what was moved there since it was read; below 0 where less
    /// is free than is kept.
    node_free: BTreeMap<u32, i64>,
    orders: Orders,
    /// Pages that are moved together.
    batch: usize,
    watches: Watches,
    sampling: Sampling,
    /// One access in so many is to be signalled, once the policy has said so.
    samples_one_in: Option<u64>,
    signals: VecDeque<Signal>,
    /// The level of each tier, and whether memory is below it.
    low_water: Vec<(u64, bool)>,
    traffic: Vec<TierTraffic>,
    spent: Cost,
    costs: Costs,
    counters: Counters,
    now: Moment,
}

impl World {
    /// A world without processes. A limit for a tier that is not there is an error of the caller's input.
    ///
    /// # Errors
    /// The name of that tier, and those that there are.
    pub fn new(
        kernel: Arc<dyn Kernel>,
        tiers: TierMap,
        capabilities: Capabilities,
        options: &Options,
    ) -> Result<World, String> {
        let topology = tiers.topology.clone();
        let mut limits = vec![None; topology.tiers.len()];
        for (name, limit) in &options.limits {
            let Some(tier) = topology.find(name) else {
                let names: Vec<&str> = topology.tiers.iter().map(|tier| tier.name.as_str()).collect();
                return Err(format!(
                    "no tier \"{name}\" on this machine; its tiers are {}",
                    names.join(", ")
                ));
            };
            limits[tier.index()] = Some(*limit);
        }
        let count = topology.tiers.len();
        let mut world = World {
            kernel,
            tiers,
            topology,
            capabilities,
            limits,
            dry_run: options.dry_run,
            workers: options.workers.max(1),
            dirtiness: Dirtiness::Unknown,
            trackers: options.trackers.clone().unwrap_or_default(),
            managed: options.managed,
            structures: options.structures,
            wanted: SignalSet::NONE,
            spaces: BTreeMap::new(),
            next_space: 0,
            node_free: BTreeMap::new(),
            orders: Orders::default(),
            batch: moving::BATCH,
            watches: Watches::default(),
            sampling: Sampling::default(),
            samples_one_in: None,
            signals: VecDeque::new(),
            low_water: vec![(0, false); count],
            traffic: vec![TierTraffic::default(); count],
            spent: Cost::default(),
            costs: Costs::default(),
            counters: Counters::default(),
            now: Moment::START,
        };
        world.look_at_nodes();
        Ok(world)
    }

    /// What the policy asked for: which signals it wants, and how stores are found out.
    pub fn serve(&mut self, wanted: SignalSet, dirtiness: Dirtiness) {
        self.wanted = wanted;
        self.dirtiness = dirtiness;
    }

    /// Takes a process under management.
    ///
    /// # Errors
    /// It has ended, or may not be looked into; or it still has the memory of its parent (`EBUSY`), which is Terrace or is
    /// managed already: it is about to execute a program.
    pub fn adopt(&mut self, pid: u32) -> std::io::Result<SpaceId> {
        if self.is_before_exec(pid) {
            return Err(std::io::Error::from_raw_os_error(libc::EBUSY));
        }
        let process = self.kernel.open(pid)?;
        let name = crate::kernel::read_text(&*self.kernel, format!("/proc/{pid}/comm"))
            .map_or_else(|_| pid.to_string(), |name| name.trim_end().to_owned());
        let id = SpaceId(self.next_space);
        let mut space = Space::new(id, process, name, self.topology.tiers.len());
        match self.managed {
            Managed::All => {}
            Managed::EntriesDropped => space.cover_only_droppable(),
            Managed::Sampled => space.cover_only_sampled(),
        }
        sampling::take_tracker(&self.trackers, self.managed, &*self.kernel, &mut space);
        space.refresh(&*self.kernel, &self.tiers, self.dirtiness)?;
        tracing::info!(pid, name = %space.name, pages = space.resident_pages(), "process joined");
        self.next_space += 1;
        self.counters.adopted += 1;
        self.spaces.insert(id, space);
        self.account();
        Ok(id)
    }

    /// Whether a process is a child that has not executed its program yet and works in the memory of its parent, as after
    /// `vfork`. To manage it would be to manage that memory once more, or Terrace's own.
    fn is_before_exec(&self, pid: u32) -> bool {
        let Ok(stat) = crate::kernel::read_text(&*self.kernel, format!("/proc/{pid}/stat")) else {
            return false;
        };
        let parent = text::stat_field(&stat, 4).and_then(|parent| u32::try_from(parent).ok());
        parent.is_some_and(|parent| {
            (parent == std::process::id() || self.has(parent)) && self.kernel.shares_memory(pid, parent)
        })
    }

    /// Takes processes under management anew that have executed a program: nothing that was known holds of the memory that
    /// they have. Lets go of those that have ended. Returns whether there were any.
    ///
    /// The number of a process that has ended may be another process's by now, which nobody chose as a target.
    pub fn renew(&mut self) -> bool {
        let spaces = self.spaces.values();
        let stale = spaces.filter(|space| !self.kernel.has_same_memory(&space.process));
        let stale: Vec<SpaceId> = stale.map(|space| space.id).collect();
        for id in &stale {
            let Some(Space { process: old, .. }) = self.let_go(*id) else { continue };
            if !self.kernel.is_alive(&old) {
                continue;
            }
            match self.adopt(old.pid) {
                // A number goes to another process only when its own has ended.
                Ok(new) if !self.kernel.is_alive(&old) => drop(self.let_go(new)),
                Ok(_) => (),
                Err(error) => tracing::debug!(old.pid, %error, "not managed any more"),
            }
        }
        !stale.is_empty()
    }

    /// Whether a process under management has ended, and was waited for.
    pub fn any_has_ended(&self) -> bool {
        self.spaces().any(|space| !self.kernel.is_alive(&space.process))
    }

    /// The processes under management.
    pub fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.spaces.values()
    }

    /// Whether the process is under management.
    pub fn has(&self, pid: u32) -> bool {
        self.spaces.values().any(|space| space.process.pid == pid)
    }

    /// Brings all processes up to date and lets go of those that ended.
    pub fn refresh(&mut self) {
        self.look_at_nodes();
        self.renew();
        let mut ended = Vec::new();
        let ids: Vec<SpaceId> = self.spaces.keys().copied().collect();
        for id in ids {
            let Some(space) = self.spaces.get_mut(&id) else { continue };
            sampling::take_tracker(&self.trackers, self.managed, &*self.kernel, space);
            match space.refresh(&*self.kernel, &self.tiers, self.dirtiness) {
                Ok(refreshed) => {
                    self.counters.returned += refreshed.returned.len() as u64;
                    for (tier, bytes) in self.traffic.iter_mut().zip(&refreshed.written) {
                        tier.written[Initiator::Demand as usize] += bytes;
                    }
                    for range in refreshed.gone {
                        let first = PageId { space: id, vpn: range.start };
                        self.unmapped(PageRange::new(first, range.end - range.start));
                    }
                }
                Err(_) if !self.kernel.is_alive(&space.process) => ended.push(id),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => ended.push(id),
                Err(error) => {
                    tracing::warn!(pid = space.process.pid, name = %space.name, %error, "cannot look into the process; it is left alone");
                    ended.push(id);
                }
            }
        }
        for id in ended {
            self.let_go(id);
        }
        self.account();
    }

    /// Ends the management of a process, and returns what was known of it. Its pages stay where they are.
    pub fn let_go(&mut self, id: SpaceId) -> Option<Space> {
        let space = self.spaces.remove(&id)?;
        tracing::info!(pid = space.process.pid, name = %space.name, "process left");
        let ranges: Vec<PageRange> = space.mappings.iter().map(|mapping| space.area(mapping).range).collect();
        ranges.into_iter().for_each(|range| self.unmapped(range));
        self.account();
        Some(space)
    }

    fn unmapped(&mut self, range: PageRange) {
        self.watches.forget(range);
        if self.wanted.contains(SignalKind::Unmapped) {
            self.signals.push_back(Signal::Unmapped { range });
        }
    }

    /// Which nodes have room.
    fn look_at_nodes(&mut self) {
        let nodes = nodes::discover(&*self.kernel);
        self.tiers.refresh(&*self.kernel, &nodes);
        self.node_free = nodes
            .iter()
            .map(|node| (node.id, node.free.0 as i64 - (node.total.0 / HEADROOM) as i64))
            .collect();
    }

    /// What is used, and may be: of a tier's memory what targets hold and what is free; of other processes' memory nothing.
    fn account(&mut self) {
        for at in 0..self.topology.tiers.len() {
            let used: u64 = self.spaces.values().map(|space| space.resident[at] << 12).sum();
            let free = self.physical_free(TierId(at as u8));
            let capacity = self.limits[at].map_or(used + free, |limit| limit.0.min(used + free));
            let tier = &mut self.topology.tiers[at];
            (tier.capacity, tier.used) = (Bytes(capacity), Bytes(used));
            let free = tier.free();
            let (level, below) = &mut self.low_water[at];
            let is_below = free.0 < *level;
            if is_below && !*below {
                self.signals.push_back(Signal::LowWater { tier: TierId(at as u8), free });
            }
            *below = is_below;
        }
    }

    /// What is free on a tier's nodes, whatever the tier's limit.
    fn physical_free(&self, tier: TierId) -> u64 {
        match self.tiers.nodes[tier.index()].as_slice() {
            [] => self.tiers.topology.tier(tier).free().0,
            nodes => nodes
                .iter()
                .filter_map(|node| self.node_free.get(node))
                .map(|free| (*free).max(0) as u64)
                .sum(),
        }
    }

    fn roomiest_node(&self, tier: TierId) -> Option<i32> {
        let nodes = &self.tiers.nodes[tier.index()];
        let free = |node: &u32| self.node_free.get(node).copied().unwrap_or(0);
        // The first of equals.
        nodes.iter().rev().max_by_key(|node| free(node)).map(|node| *node as i32)
    }

    /// Takes the signals for the policy that came since the last call.
    pub fn take_signals(&mut self) -> Vec<Signal> {
        self.signals.drain(..).collect()
    }

    /// Whether signals wait.
    pub fn has_signals(&self) -> bool {
        !self.signals.is_empty()
    }

    /// How many.
    pub fn signals_waiting(&self) -> usize {
        self.signals.len()
    }

    /// Orders that wait, in pages and pairs.
    pub fn orders_waiting(&self) -> usize {
        self.orders.len()
    }

    /// Pieces of orders that were done or given up so far.
    pub fn orders_finished(&self) -> u64 {
        self.orders.finished()
    }

    /// The tiers, fastest first, with what targets may have there and what they have.
    pub fn tiers(&self) -> &[Tier] {
        &self.topology.tiers
    }

    /// Whether orders are only counted.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sets the time.
    pub fn set_now(&mut self, now: Moment) {
        self.now = now;
    }

    /// The kernel.
    pub fn kernel(&self) -> &Arc<dyn Kernel> {
        &self.kernel
    }

    /// Changes when the policy watches more pages.
    pub fn watch_generation(&self) -> u64 {
        self.watches.generation()
    }

    /// How the access source looks.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.sampling = sampling;
    }

    /// The pages that the policy watches, with their sizes.
    pub fn watched(&self) -> Vec<(PageId, PageSize)> {
        self.watches.pages().collect()
    }

    /// So many accesses to a watched page were seen one by one.
    pub fn seen(&mut self, page: PageId, accesses: u64) {
        self.counters.count_faults += accesses;
        self.watches.seen(page, accesses);
    }

    /// In the last interval the access source would not have seen an access to this watched page.
    pub fn unseen(&mut self, page: PageId) {
        self.watches.unseen(page);
    }

    /// So many watched pages were in memory after they had been sent to swap.
    pub fn stayed(&mut self, pages: u64) {
        self.counters.stayed += pages;
    }

    /// The process of a space, as long as it is managed.
    pub fn process(&self, space: SpaceId) -> Option<&Process> {
        self.spaces.get(&space).map(|space| &space.process)
    }

    /// The access source has looked so often since it last said so.
    pub fn looked(&mut self, times: u64) {
        self.watches.looked(times);
        self.spaces.values_mut().for_each(|space| space.looks += times);
    }

    /// One access in so many is signalled to the policy one by one; none until it has asked for that.
    pub fn samples_one_in(&self) -> Option<u64> {
        self.samples_one_in
    }

    /// The kernel itself has moved so many base pages up and down.
    pub fn offloaded(&mut self, promoted: u64, demoted: u64) {
        self.counters.promoted += promoted;
        self.counters.demoted += demoted;
    }

    /// Accesses of a process to a base page were sampled. Those to memory that is not managed are left out.
    pub fn sampled(&mut self, pid: u32, vpn: u64, write: bool, count: u32) {
        let Some(space) = self.spaces.values_mut().find(|space| space.process.pid == pid) else { return };
        let (traffic, mut known) = (&mut self.traffic, false);
        let bytes = u64::from(count) * self.samples_one_in.unwrap_or(1) * CACHE_LINE;
        space.visit_mut(vpn..vpn + 1, |view, state| {
            known = true;
            state.set_accessed(true);
            // What was written is known by the pages that were, where it is known at all.
            if !write {
                traffic[view.tier.index()].read[Initiator::Demand as usize] += bytes;
            }
            true
        });
        if known {
            self.counters.samples += u64::from(count);
            self.signals.push_back(Signal::Access { page: PageId { space: space.id, vpn }, write, count });
        }
    }

    /// An access source has found accesses to pages in so many of the last intervals.
    pub fn accessed(&mut self, pid: u32, pages: Range<u64>, intervals: u32) {
        let Some(space) = self.spaces.values_mut().find(|space| space.process.pid == pid) else { return };
        let (sampling, traffic) = (self.sampling, &mut self.traffic);
        space.visit_mut(pages.clone(), |view, state| {
            state.set_accessed(true);
            traffic[view.tier.index()].read[Initiator::Demand as usize] += view.size.bytes();
            true
        });
        let signals = self.watches.accessed(space.id, pages, intervals, sampling, self.now);
        self.counters.hint_faults += signals.len() as u64;
        self.signals.extend(signals);
    }
}
