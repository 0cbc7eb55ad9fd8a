//! Demand paging: which frame, of which size, in which tier backs an address, and the events that change it.

use super::address_space::AddressSpace;
use super::changes::Changes;
use super::counters::OsCounters;
use super::entry::{Leaf, Pte};
use super::full::MemoryOf;
use super::memory::{Block, Buddy, Owner, TierMemory, age};
use super::page_table::PageTable;
use super::parameters::{OsParameters, PagePolicy, Placement};
use super::stores::Stores;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use terrace_model::{AddressRange, Bytes, Frame, PageSize, SpaceId, TierId, Time, VirtAddr};
use terrace_policy::PageId;

/// The operating system cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OsError {
    /// No tier that the placement allows has a free frame.
    #[error("out of memory: {resident} are resident and {tiers} is full; raise {}", whose.remedy())]
    OutOfMemory {
        /// Resident memory when it happened, of much in whole MiB.
        resident: Bytes,
        /// The tier, or all of them.
        tiers: String,
        /// The owner of that memory.
        whose: MemoryOf,
    },
    /// Memory is full, and so is what would take its contents.
    #[error(
        "out of memory: {resident} are resident, {tiers} is full, and the backing store of {store} has no room left; \
         raise translation.scheme.swap or tier.<name>.capacity"
    )]
    StoreFull {
        /// Resident memory when it happened, of much in whole MiB.
        resident: Bytes,
        /// The tier, or all of them.
        tiers: String,
        /// Size of the backing store.
        store: Bytes,
    },
    /// Too many processes for the TLB's address-space tags.
    #[error(
        "more than {MOST_PROCESSES} processes at a time; simulate a part of the input (terrace trace slice)"
    )]
    TooManyProcesses,
    /// The Virtual Block Interface has no block left.
    #[error("{0}; gather allocations in fewer blocks (translation.scheme.blocks)")]
    NoBlock(#[from] crate::vbi::VbiError),
}

/// Processes at a time: the tags of TLBs have 15 bits, and one value means none.
const MOST_PROCESSES: u32 = 32_767;

/// A page that a fault brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// First frame of the page.
    pub frame: Frame,
    /// The page's size.
    pub size: PageSize,
    /// The kernel copied it from here (copy-on-write) instead of zeroing it.
    pub copied_from: Option<Frame>,
    /// The frames were known to hold only zeros.
    pub zeroed: bool,
}

/// The moment at which most memory was resident.
#[derive(Clone, Debug)]
pub struct Peak {
    /// Resident base pages by the size of the page that holds them.
    pub resident: [u64; 3],
    /// Base frames that hold something, by tier; see [`Os::occupied_frames`].
    pub used: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Space {
    pub areas: AddressSpace,
    pub table: PageTable,
    pub alive: bool,
    /// The system whose process it is.
    pub guest: usize,
}

/// A frame for a page table: from tier `first` of a system's own, or else from any of them.
fn table_frame(tiers: &mut [TierMemory], first: usize, now: Time) -> Option<Frame> {
    let take = |tier: &mut TierMemory| tier.take(PageSize::Base, Owner::Table, now).map(|block| block.frame);
    loop {
        let frame = take(&mut tiers[first]).or_else(|| tiers.iter_mut().find_map(take));
        // A block that is being filled with zeros is taken back.
        if frame.is_some() || !tiers.iter_mut().any(|tier| tier.take_back_zeroing(now)) {
            return frame;
        }
    }
}

/// The simulated kernel's memory management. Several systems that are alike, those of virtual machines side by side, are
/// one of these: each has tiers of its own, and its processes get memory from them alone.
#[derive(Clone, Debug)]
pub struct Os {
    /// The owner of the memory that it manages.
    pub(crate) whose: MemoryOf,
    pub(super) pages: PagePolicy,
    /// The placement state of each system.
    pub(super) placement: Vec<PlacementState>,
    /// The tier of page tables, by its number among a system's tiers.
    pub(super) page_table_tier: usize,
    pub(super) levels: u32,
    pub(super) spaces: Vec<Space>,
    /// Numbers of processes that have ended, oldest first. Nothing holds translations of theirs any more.
    pub(super) ended: VecDeque<SpaceId>,
    pub(super) tiers: Vec<TierMemory>,
    /// How many page tables map a frame, for frames shared by fork. Absent: one.
    pub(super) shared: HashMap<u64, u32>,
    /// Whether any process ever forked.
    pub(super) forked: bool,
    peak: Peak,
    /// Resident base pages by page size, over all processes; a shared page counts once.
    pub(super) resident: [u64; 3],
    /// Which base pages hold something, where somebody wants to know.
    pub(super) stores: Option<Stores>,
    /// What changed in the page tables and is not completed yet.
    pub changes: Changes,
    /// What happened so far.
    pub counters: OsCounters,
    /// When what comes next happens.
    pub now: Time,
}

/// Placement with its names resolved and its place in the round.
#[derive(Clone, Debug)]
pub(super) enum PlacementState {
    FirstTouch,
    /// A tier per slot of the round.
    Round {
        slots: Vec<u8>,
        next: usize,
    },
    Only(usize),
    Prefer(usize),
    Ratio {
        first: u64,
        group: u64,
    },
}

impl Os {
    /// A kernel without processes over tiers given by name, first frame and number of frames.
    ///
    /// # Errors
    /// A placement that names an unknown tier or has the wrong number of weights.
    pub fn new(parameters: &OsParameters, levels: u32, tiers: &[(String, Frame, u64)]) -> Result<Os, String> {
        Os::of_guests(parameters, levels, tiers, 1, None)
    }

    /// Kernels of `guests` systems that are alike. `tiers`: those of the first, then those of the next, and so on. Memory
    /// that ages stays as it is when `stop` is set.
    ///
    /// # Errors
    /// As [`Os::new`].
    pub fn of_guests(
        parameters: &OsParameters,
        levels: u32,
        all: &[(String, Frame, u64)],
        guests: usize,
        stop: Option<&AtomicBool>,
    ) -> Result<Os, String> {
        let tiers = &all[..all.len() / guests];
        let index_of = |name: &str, key: &str| {
            tiers.iter().position(|(tier, _, _)| tier == name).ok_or_else(|| {
                let names: Vec<&str> = tiers.iter().map(|t| t.0.as_str()).collect();
                format!("{key}: no tier \"{name}\"; the machine has {}", names.join(", "))
            })
        };
        let placement = match &parameters.placement {
            Placement::FirstTouch => PlacementState::FirstTouch,
            Placement::Interleave => {
                PlacementState::Round { slots: (0..tiers.len() as u8).collect(), next: 0 }
            }
            Placement::WeightedInterleave { weights } => {
                if weights.len() != tiers.len() || weights.iter().sum::<u32>() == 0 {
                    return Err(format!(
                        "os.placement.weights: {} weights for {} tiers",
                        weights.len(),
                        tiers.len()
                    ));
                }
                PlacementState::Round { slots: round_of(weights), next: 0 }
            }
            Placement::Bind { tier } => PlacementState::Only(index_of(tier, "os.placement.tier")?),
            Placement::Preferred { tier } => PlacementState::Prefer(index_of(tier, "os.placement.tier")?),
            Placement::Ratio { first, group } => {
                if *group == 0 || first > group || tiers.len() < 2 {
                    return Err(format!(
                        "os.placement: {first} pages of each {group} over {} tiers",
                        tiers.len()
                    ));
                }
                PlacementState::Ratio { first: u64::from(*first), group: u64::from(*group) }
            }
        };
        let page_table_tier = match &parameters.page_table_tier {
            Some(name) => index_of(name, "os.page_table_tier")?,
            None => 0,
        };
        let mut os = Os {
            whose: MemoryOf::Machine,
            pages: parameters.pages,
            placement: vec![placement; guests],
            page_table_tier,
            levels,
            spaces: Vec::new(),
            ended: VecDeque::new(),
            tiers: all
                .iter()
                .map(|(name, base, frames)| TierMemory::new(name, *base, *frames, &parameters.memory))
                .collect(),
            shared: HashMap::new(),
            forked: false,
            peak: Peak { resident: [0; 3], used: vec![0; all.len()] },
            resident: [0; 3],
            stores: None,
            changes: Changes::default(),
            counters: OsCounters::default(),
            now: Time::ZERO,
        };
        for guest in 0..guests {
            let first = os.tiers_of(guest).start;
            age(&mut os.tiers[first], &parameters.memory.aging, stop)?;
        }
        os.reserve(parameters.reserved.0 >> 12);
        Ok(os)
    }

    /// What the system keeps for itself in the first tier, in the largest pages that fit. What aging left it counts.
    fn reserve(&mut self, frames: u64) {
        let tier = &mut self.tiers[0];
        if frames >= tier.frames() {
            return;
        }
        let mut size = PageSize::Giant;
        while tier.used() < frames {
            if size.base_pages() > frames - tier.used()
                || tier.take(size, Owner::Kernel, Time::ZERO).is_none()
            {
                size = match size {
                    PageSize::Giant => PageSize::Huge,
                    PageSize::Huge => PageSize::Base,
                    PageSize::Base => return,
                };
            }
        }
    }

    /// Places in the list of tiers of those that are a system's.
    pub fn tiers_of(&self, guest: usize) -> Range<usize> {
        let each = self.tiers.len() / self.placement.len();
        guest * each..(guest + 1) * each
    }

    /// The system whose process it is.
    #[inline]
    pub fn guest_of(&self, space: SpaceId) -> usize {
        self.spaces[space.index()].guest
    }

    /// A system's processes, those that are over as well.
    pub fn spaces_of(&self, guest: usize) -> impl Iterator<Item = SpaceId> + '_ {
        let spaces = (0..self.spaces.len() as u32).map(SpaceId);
        spaces.filter(move |space| self.guest_of(*space) == guest)
    }

    /// Base frames in use in all tiers of a system.
    pub fn used_by(&self, guest: usize) -> u64 {
        self.tiers[self.tiers_of(guest)].iter().map(TierMemory::occupied).sum()
    }

    /// A new, empty process of the first system; its number.
    ///
    /// # Errors
    /// No frame for its page table, or too many processes.
    pub fn new_space(&mut self) -> Result<SpaceId, OsError> {
        self.new_space_in(0)
    }

    /// A new, empty process of any system; its number.
    ///
    /// # Errors
    /// As [`Os::new_space`].
    pub fn new_space_in(&mut self, guest: usize) -> Result<SpaceId, OsError> {
        let fresh = SpaceId(self.spaces.len() as u32);
        // Numbers of processes that have ended are used again, the oldest first, where there are no others.
        let number = match fresh.0 < MOST_PROCESSES {
            true => fresh,
            false => SpaceId(self.ended.front().ok_or(OsError::TooManyProcesses)?.0),
        };
        let own = self.tiers_of(guest);
        let root = table_frame(&mut self.tiers[own], self.page_table_tier, self.now)
            .ok_or_else(|| self.out_of_memory(None))?;
        let (areas, table) = (AddressSpace::default(), PageTable::new(self.levels, root));
        let space = Space { areas, table, alive: true, guest };
        if number == fresh {
            self.spaces.push(space);
        } else {
            self.ended.pop_front();
            self.spaces[number.index()] = space;
            if let Some(stores) = &mut self.stores {
                stores.forget(number);
            }
        }
        Ok(number)
    }

    /// Levels of the page tables.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// The page table of a process.
    #[inline(always)]
    pub fn table(&self, space: SpaceId) -> &PageTable {
        &self.spaces[space.index()].table
    }

    /// Whether the kernel has to do something before such an access to `addr`; `managed`: policies may hold pages or watch
    /// them.
    #[inline]
    pub fn stops(&self, space: SpaceId, addr: VirtAddr, write: bool, managed: bool) -> bool {
        let may_stop = managed || write && self.forked;
        may_stop && self.table(space).find(addr).is_some_and(|leaf| leaf.pte.stops(write))
    }

    /// The areas of a process.
    pub fn areas(&self, space: SpaceId) -> &AddressSpace {
        &self.spaces[space.index()].areas
    }

    /// Resident base pages by size of the page that holds them.
    pub fn resident(&self) -> [u64; 3] {
        self.resident
    }

    /// The moment at which most memory was resident; that of the latest fault where there are several.
    pub fn peak(&self) -> &Peak {
        &self.peak
    }

    pub(super) fn note_peak(&mut self) {
        let total = |pages: &[u64; 3]| pages.iter().sum::<u64>();
        if total(&self.resident) >= total(&self.peak.resident) {
            self.peak.resident = self.resident;
            for (used, tier) in self.peak.used.iter_mut().zip(&self.tiers) {
                *used = tier.occupied();
            }
        }
    }

    /// Base frames of a tier that hold something: those in use without free blocks that are being filled with zeros.
    pub fn occupied_frames(&self, tier: TierId) -> u64 {
        self.tiers[tier.index()].occupied()
    }

    /// Base frames in use in a tier, page tables and the system's own included.
    pub fn used_frames(&self, tier: TierId) -> u64 {
        self.tiers[tier.index()].used()
    }

    /// Frames of a tier that are in use, and hold neither page tables nor pages: the system's own.
    pub fn reserved_frames(&self, tier: TierId) -> u64 {
        let mut reserved = self.used_frames(tier);
        for space in self.spaces.iter().filter(|space| space.alive) {
            let tables = space.table.table_frames().filter(|frame| self.tier_of(*frame) == tier);
            reserved -= tables.count() as u64;
            for (_, size, pte) in space.table.pages_in(AddressRange::ALL) {
                reserved -= if self.tier_of(pte.frame()) == tier { size.base_pages() } else { 0 };
            }
        }
        reserved
    }

    /// Counts the use of memory up to `now`: changes of clocks that lag behind count from there.
    pub fn settle_usage(&mut self, now: Time) {
        self.tiers.iter_mut().for_each(|tier| tier.settle_usage(now));
    }

    /// Base frames of a tier that hold something times the time they were, up to `now`, in femtoseconds.
    pub fn usage(&self, tier: TierId, now: Time) -> u128 {
        self.tiers[tier.index()].usage_at(now)
    }

    /// The free frames of a tier.
    pub fn buddy(&self, tier: TierId) -> &Buddy {
        self.tiers[tier.index()].buddy()
    }

    /// A tier.
    pub fn tier_memory(&self, tier: TierId) -> &TierMemory {
        &self.tiers[tier.index()]
    }

    /// The tiers, fastest first.
    pub fn tiers_of_memory(&self) -> impl Iterator<Item = &TierMemory> {
        self.tiers.iter()
    }

    /// Page-table pages of all processes.
    pub fn table_pages(&self) -> u64 {
        self.spaces.iter().filter(|s| s.alive).map(|s| s.table.table_pages() as u64).sum()
    }

    /// The tier of a frame.
    #[inline]
    pub fn tier_of(&self, frame: Frame) -> TierId {
        tier_of(&self.tiers, frame)
    }

    /// Sets accessed (and, for a store, dirty) in the entry a walk found; returns the new entry.
    #[inline]
    pub fn mark(&mut self, space: SpaceId, addr: VirtAddr, leaf: &Leaf, write: bool) -> Pte {
        let old = leaf.pte;
        let new = if write && !old.is_copy_on_write() { old.dirtied() } else { old.accessed() };
        if new != old {
            self.spaces[space.index()].table.set_bits(leaf, addr, new);
        }
        new
    }

    /// Replaces the entry that `leaf` was found in.
    pub(super) fn put(&mut self, space: SpaceId, leaf: &Leaf, addr: VirtAddr, pte: Pte) {
        let door = &mut self.changes.door(space);
        self.spaces[space.index()].table.store(leaf, addr, pte, door);
    }

    /// Removes the leaf that maps an address from its page table; its frame keeps its owner.
    pub(super) fn take_out(&mut self, space: SpaceId, addr: VirtAddr) -> Option<Leaf> {
        let door = &mut self.changes.door(space);
        self.spaces[space.index()].table.unmap(addr, door)
    }

    pub(super) fn take(&mut self, tier: usize, size: PageSize, owner: Owner) -> Option<Block> {
        self.tiers[tier].take(size, owner, self.now)
    }

    /// A page is the holder of its frames.
    pub(super) fn own(&mut self, space: SpaceId, page: VirtAddr, size: PageSize, frame: Frame) {
        let tier = self.tier_of(frame).index();
        self.tiers[tier].set_owner(frame, size, Owner::Page(PageId::of(space, page)));
    }

    pub(super) fn install(
        &mut self,
        space: SpaceId,
        page: VirtAddr,
        size: PageSize,
        pte: Pte,
    ) -> Result<(), OsError> {
        let own = self.tiers_of(self.guest_of(space));
        let Os { spaces, tiers, page_table_tier, changes, now, .. } = self;
        let (tiers, table) = (&mut tiers[own], &mut spaces[space.index()].table);
        table
            .map(page, size, pte, &mut changes.door(space), || table_frame(tiers, *page_table_tier, *now))
            .ok_or_else(|| self.out_of_memory(None))
    }
}

/// The tier of a frame.
#[inline]
pub(super) fn tier_of(tiers: &[TierMemory], frame: Frame) -> TierId {
    let at = tiers.iter().rposition(|tier| tier.base <= frame).unwrap_or(0);
    TierId(at as u8)
}

/// One round of weighted interleaving: each tier as often as its weight, spread as evenly as the weights allow.
fn round_of(weights: &[u32]) -> Vec<u8> {
    let total: u32 = weights.iter().sum();
    let mut credit = vec![0i64; weights.len()];
    (0..total)
        .map(|_| {
            for (credit, weight) in credit.iter_mut().zip(weights) {
                *credit += i64::from(*weight);
            }
            let best = (0..weights.len()).rev().max_by_key(|&i| credit[i]).unwrap_or(0);
            credit[best] -= i64::from(total);
            best as u8
        })
        .collect()
}
