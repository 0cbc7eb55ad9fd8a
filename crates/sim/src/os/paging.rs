//! Demand paging: which frame, of which size, in which tier backs an address, and the events that change it.

use super::address_space::{AddressSpace, Area};
use super::buddy::{Buddy, MAX_ORDER};
use super::page_table::{Leaf, PageTable, Pte};
use crate::design::{OsParameters, PagePolicy, Placement};
use std::collections::HashMap;
use terrace_model::{AddressRange, Frame, PageSize, TierId, Time};
use terrace_policy::Wish;
use terrace_trace::{Advice, MapKind, Protection};

/// The operating system cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OsError {
    /// No tier that the placement allows has a free frame.
    #[error(
        "out of memory: {resident} MiB are resident and {tiers} is full; \
         raise tier.<name>.capacity, allow more tiers (os.placement), or choose smaller pages (os.pages)"
    )]
    OutOfMemory {
        /// Resident memory when it happened, in MiB.
        resident: u64,
        /// The tier, or all of them.
        tiers: String,
    },
    /// Too many processes for the TLB's address-space tags.
    #[error("more than 32,767 processes")]
    TooManyProcesses,
}

/// Counters of the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsCounters {
    /// Page faults, by the size of the page they brought in.
    pub faults: [u64; 3],
    /// Writes to a page shared since a fork.
    pub copy_on_write_faults: u64,
    /// Pages that were wanted larger than they came, for want of an aligned free block.
    pub huge_fallbacks: u64,
    /// Huge pages split into base pages because a part was unmapped.
    pub splits: u64,
    /// Accesses to addresses that no event had mapped; each mapped its page.
    pub unmapped_accesses: u64,
    /// Base pages given back.
    pub pages_freed: u64,
    /// Events after which other cores' TLBs had to be told.
    pub shootdowns: u64,
}

/// A page that a fault brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// First frame of the page.
    pub frame: Frame,
    /// Its size.
    pub size: PageSize,
    /// The kernel copied it from here (copy-on-write) instead of zeroing it.
    pub copied_from: Option<Frame>,
}

/// The moment at which most memory was resident.
#[derive(Clone, Debug)]
pub struct Peak {
    /// Resident base pages by the size of the page that holds them.
    pub resident: [u64; 3],
    /// Base frames in use, by tier; see [`Os::used_frames`].
    pub used: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Space {
    areas: AddressSpace,
    table: PageTable,
    alive: bool,
}

#[derive(Clone, Debug)]
struct TierFrames {
    name: String,
    buddy: Buddy,
    /// First frame in the machine's physical memory.
    base: u64,
    /// Frames in use times the time they were, in femtoseconds, up to `changed_at`.
    usage: u128,
    changed_at: Time,
}

impl TierFrames {
    fn used(&self) -> u64 {
        self.buddy.frames() - self.buddy.free_frames()
    }

    /// Use up to `now`. Cores' clocks differ a little; the latest counts.
    fn usage_at(&self, now: Time) -> u128 {
        self.usage + u128::from(self.used()) * u128::from(now.saturating_sub(self.changed_at).0)
    }

    fn before_change(&mut self, now: Time) {
        self.usage = self.usage_at(now);
        self.changed_at = self.changed_at.max(now);
    }

    fn take(&mut self, order: u32, now: Time) -> Option<Frame> {
        self.before_change(now);
        self.buddy.allocate(order).map(|frame| Frame(self.base + frame))
    }
}

/// A frame for a page table: from tier `first`, or else wherever there is one.
fn table_frame(tiers: &mut [TierFrames], first: usize, now: Time) -> Option<Frame> {
    tiers[first].take(0, now).or_else(|| tiers.iter_mut().find_map(|tier| tier.take(0, now)))
}

/// The simulated kernel's memory management.
#[derive(Clone, Debug)]
pub struct Os {
    pages: PagePolicy,
    placement: PlacementState,
    page_table_tier: usize,
    levels: u32,
    spaces: Vec<Space>,
    tiers: Vec<TierFrames>,
    /// How many page tables map a frame, for frames shared by fork. Absent: one.
    shared: HashMap<u64, u32>,
    /// Whether any process ever forked.
    forked: bool,
    peak: Peak,
    /// Resident base pages by page size, over all processes; a shared page counts once.
    resident: [u64; 3],
    /// What happened so far.
    pub counters: OsCounters,
    /// When what comes next happens.
    pub now: Time,
}

/// Placement with its names resolved and its place in the round.
#[derive(Clone, Debug)]
enum PlacementState {
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
    pub fn new(parameters: &OsParameters, levels: u32, tiers: &[(String, u64, u64)]) -> Result<Os, String> {
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
            pages: parameters.pages,
            placement,
            page_table_tier,
            levels,
            spaces: Vec::new(),
            tiers: tiers
                .iter()
                .map(|(name, base, frames)| TierFrames {
                    name: name.clone(),
                    buddy: Buddy::new(*frames),
                    base: *base,
                    usage: 0,
                    changed_at: Time::ZERO,
                })
                .collect(),
            shared: HashMap::new(),
            forked: false,
            peak: Peak { resident: [0; 3], used: vec![0; tiers.len()] },
            resident: [0; 3],
            counters: OsCounters::default(),
            now: Time::ZERO,
        };
        // What the system keeps for itself, in the largest blocks that fit.
        let mut reserve = parameters.reserved.0 >> 12;
        while reserve > 0 && reserve < os.tiers[0].buddy.frames() {
            let order = reserve.ilog2().min(super::MAX_ORDER);
            if os.tiers[0].buddy.allocate(order).is_none() {
                break;
            }
            reserve -= 1 << order;
        }
        Ok(os)
    }

    /// A new, empty process; its number.
    ///
    /// # Errors
    /// No frame for its page table, or too many processes.
    pub fn new_space(&mut self) -> Result<u32, OsError> {
        if self.spaces.len() >= 32_767 {
            return Err(OsError::TooManyProcesses);
        }
        let root = self.table_frame().ok_or_else(|| self.out_of_memory(None))?;
        self.spaces.push(Space {
            areas: AddressSpace::default(),
            table: PageTable::new(self.levels, root),
            alive: true,
        });
        Ok(self.spaces.len() as u32 - 1)
    }

    /// Levels of the page tables.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// The page table of a process.
    #[inline(always)]
    pub fn table(&self, space: u32) -> &PageTable {
        &self.spaces[space as usize].table
    }

    /// Whether the page at `addr` is shared since a fork.
    #[inline]
    pub fn is_copy_on_write(&self, space: u32, addr: u64) -> bool {
        self.forked && self.table(space).find(addr).is_some_and(|leaf| leaf.pte.is_copy_on_write())
    }

    /// The areas of a process.
    pub fn areas(&self, space: u32) -> &AddressSpace {
        &self.spaces[space as usize].areas
    }

    /// Resident base pages by size of the page that holds them.
    pub fn resident(&self) -> [u64; 3] {
        self.resident
    }

    /// The moment at which most memory was resident; that of the latest fault where there are several.
    pub fn peak(&self) -> &Peak {
        &self.peak
    }

    fn note_peak(&mut self) {
        let total = |pages: &[u64; 3]| pages.iter().sum::<u64>();
        if total(&self.resident) >= total(&self.peak.resident) {
            self.peak.resident = self.resident;
            for (used, tier) in self.peak.used.iter_mut().zip(&self.tiers) {
                *used = tier.buddy.frames() - tier.buddy.free_frames();
            }
        }
    }

    /// Base frames in use in a tier, page tables and the system's own included.
    pub fn used_frames(&self, tier: TierId) -> u64 {
        let buddy = &self.tiers[tier.index()].buddy;
        buddy.frames() - buddy.free_frames()
    }

    /// Base frames in use in a tier times the time they were, up to `now`, in femtoseconds.
    pub fn usage(&self, tier: TierId, now: Time) -> u128 {
        self.tiers[tier.index()].usage_at(now)
    }

    /// The free frames of a tier.
    pub fn buddy(&self, tier: TierId) -> &Buddy {
        &self.tiers[tier.index()].buddy
    }

    /// Page-table pages of all processes.
    pub fn table_pages(&self) -> u64 {
        self.spaces.iter().filter(|s| s.alive).map(|s| s.table.table_pages() as u64).sum()
    }

    /// The tier of a frame.
    #[inline]
    pub fn tier_of(&self, frame: Frame) -> TierId {
        let at = self.tiers.iter().rposition(|tier| tier.base <= frame.0).unwrap_or(0);
        TierId(at as u8)
    }

    /// Sets accessed (and, for a store, dirty) in the entry a walk found; answers the new entry.
    #[inline]
    pub fn mark(&mut self, space: u32, addr: u64, leaf: &Leaf, write: bool) -> Pte {
        let old = leaf.pte;
        let new = if write && !old.is_copy_on_write() { old.dirtied() } else { old.accessed() };
        if new != old {
            self.spaces[space as usize].table.store(leaf, addr, new);
        }
        new
    }

    /// The area that holds `addr` with its first address; an address that no event mapped gets one.
    pub fn area_at_fault(&mut self, space: u32, addr: u64) -> (u64, Area) {
        let areas = &mut self.spaces[space as usize].areas;
        if let Some(found) = areas.find(addr) {
            return found;
        }
        self.counters.unmapped_accesses += 1;
        let page = AddressRange::new(addr & !4095, 4096);
        areas.map(page, MapKind::Anonymous, Protection::READ_WRITE);
        let alone = Area {
            end: page.end().0,
            kind: MapKind::Anonymous,
            protection: Protection::READ_WRITE,
            huge_advice: None,
        };
        areas.find(addr).unwrap_or((page.start.0, alone))
    }

    /// Brings in the page that holds `addr`, which is not mapped in the page table: as the first of `wishes` that can be
    /// granted says, else as the design does.
    ///
    /// # Errors
    /// Memory is full.
    pub fn fault(&mut self, space: u32, addr: u64, wishes: &[Wish]) -> Result<Fault, OsError> {
        let (start, area) = self.area_at_fault(space, addr);
        let wanted = self.wanted_size(addr, start, &area);
        let granted = wishes.iter().find_map(|wish| self.grant(space, addr, start, &area, wanted, wish));
        let (frame, size) = match granted {
            Some(granted) => granted,
            None => {
                let (frame, size) = self.place_by_design(space, addr, start, wanted)?;
                if size != wanted {
                    self.counters.huge_fallbacks += 1;
                }
                (frame, size)
            }
        };
        self.install(space, addr & !(size.bytes() - 1), size, Pte::new(frame))?;
        self.resident[size.index()] += size.base_pages();
        self.counters.faults[size.index()] += 1;
        self.note_peak();
        Ok(Fault { frame, size, copied_from: None })
    }

    /// A frame for one wish, if it can be granted. Without a size it is the one that the design wants, else a base page.
    fn grant(
        &mut self,
        space: u32,
        addr: u64,
        start: u64,
        area: &Area,
        wanted: PageSize,
        wish: &Wish,
    ) -> Option<(Frame, PageSize)> {
        let sizes = match wish.size {
            Some(size) => [size, size],
            None => [wanted, PageSize::Base],
        };
        sizes.into_iter().find_map(|size| {
            let page = AddressRange::new(addr & !(size.bytes() - 1), size.bytes());
            let fits = wish.size.is_none() || (page.start.0 >= start && page.end().0 <= area.end);
            let free = fits
                && (size == PageSize::Base || self.spaces[space as usize].table.is_region_empty(addr, size));
            let tier = Some(wish.tier.index()).filter(|tier| free && *tier < self.tiers.len())?;
            self.take(tier, size.order()).map(|frame| (frame, size))
        })
    }

    /// A frame as the design places it, of the size wanted or the largest below that there is room for.
    fn place_by_design(
        &mut self,
        space: u32,
        addr: u64,
        start: u64,
        wanted: PageSize,
    ) -> Result<(Frame, PageSize), OsError> {
        let mut size = wanted;
        loop {
            let page = addr & !(size.bytes() - 1);
            let free =
                size == PageSize::Base || self.spaces[space as usize].table.is_region_empty(addr, size);
            if free && let Some(frame) = self.place(page.max(start) - start, size) {
                return Ok((frame, size));
            }
            size = match size {
                PageSize::Giant => PageSize::Huge,
                PageSize::Huge => PageSize::Base,
                PageSize::Base => return Err(self.out_of_memory(None)),
            };
        }
    }

    /// The page size that the design and the program's advice want at `addr`.
    fn wanted_size(&self, addr: u64, start: u64, area: &Area) -> PageSize {
        match self.pages {
            PagePolicy::Base if area.kind == MapKind::HugeTlb => PageSize::Huge,
            PagePolicy::Base => PageSize::Base,
            PagePolicy::Huge => PageSize::Huge,
            PagePolicy::Giant => PageSize::Giant,
            PagePolicy::Thp => {
                let page = AddressRange::new(addr & !(PageSize::Huge.bytes() - 1), PageSize::Huge.bytes());
                let anonymous = matches!(area.kind, MapKind::Anonymous | MapKind::Heap | MapKind::Stack);
                let inside = page.start.0 >= start && page.end().0 <= area.end;
                if area.kind == MapKind::HugeTlb || (anonymous && inside && area.huge_advice != Some(false)) {
                    PageSize::Huge
                } else {
                    PageSize::Base
                }
            }
        }
    }

    /// A write to a page that a fork shares: the writer gets a copy, or the page itself when nobody else is left.
    ///
    /// # Errors
    /// Memory is full.
    pub fn break_sharing(&mut self, space: u32, addr: u64, leaf: &Leaf) -> Result<Option<Fault>, OsError> {
        self.counters.copy_on_write_faults += 1;
        let old = leaf.pte.frame();
        if !self.shared.contains_key(&old.0) {
            let own = leaf.pte.with_copy_on_write(false).dirtied();
            self.spaces[space as usize].table.store(leaf, addr, own);
            return Ok(None);
        }
        let page = addr & !(leaf.size.bytes() - 1);
        let Some(frame) = self.place(page, leaf.size) else {
            if leaf.size == PageSize::Base {
                return Err(self.out_of_memory(None));
            }
            // No block of that size: only the base page that is written gets a copy.
            self.counters.huge_fallbacks += 1;
            self.counters.copy_on_write_faults -= 1;
            self.split(space, page, leaf)?;
            let base = self.table(space).find(addr).ok_or_else(|| self.out_of_memory(None))?;
            return self.break_sharing(space, addr, &base);
        };
        self.release_frames(old, leaf.size);
        self.resident[leaf.size.index()] += leaf.size.base_pages();
        self.note_peak();
        self.spaces[space as usize].table.store(leaf, addr, Pte::new(frame).dirtied());
        Ok(Some(Fault { frame, size: leaf.size, copied_from: Some(old) }))
    }

    /// Chooses a tier and takes a block in it. `offset` is the page's distance from its area's start.
    fn place(&mut self, offset: u64, size: PageSize) -> Option<Frame> {
        let order = size.order();
        let count = self.tiers.len();
        let first = match &mut self.placement {
            PlacementState::FirstTouch => 0,
            PlacementState::Only(tier) => {
                let tier = *tier;
                return self.take(tier, order);
            }
            PlacementState::Prefer(tier) => *tier,
            PlacementState::Round { slots, next } => {
                let tier = slots[*next];
                *next = (*next + 1) % slots.len();
                tier as usize
            }
            PlacementState::Ratio { first, group } => {
                // Spread evenly over the group: page i goes first when i * first crosses a multiple of the group.
                let position = (offset >> size.shift()) % *group;
                let crossed = (position + 1) * *first / *group != position * *first / *group;
                usize::from(!crossed)
            }
        };
        if let Some(frame) = self.take(first, order) {
            return Some(frame);
        }
        (0..count).filter(|&tier| tier != first).find_map(|tier| self.take(tier, order))
    }

    fn take(&mut self, tier: usize, order: u32) -> Option<Frame> {
        self.tiers[tier].take(order, self.now)
    }

    fn table_frame(&mut self) -> Option<Frame> {
        table_frame(&mut self.tiers, self.page_table_tier, self.now)
    }

    fn install(&mut self, space: u32, page: u64, size: PageSize, pte: Pte) -> Result<(), OsError> {
        let Os { spaces, tiers, page_table_tier, now, .. } = self;
        let table = &mut spaces[space as usize].table;
        table
            .map(page, size, pte, || table_frame(tiers, *page_table_tier, *now))
            .ok_or_else(|| self.out_of_memory(None))
    }

    fn out_of_memory(&self, tier: Option<usize>) -> OsError {
        let tiers = match (&self.placement, tier) {
            (_, Some(tier)) => self.tiers[tier].name.clone(),
            (PlacementState::Only(tier), None) => self.tiers[*tier].name.clone(),
            _ => "every tier".to_owned(),
        };
        OsError::OutOfMemory { resident: self.resident.iter().sum::<u64>() >> 8, tiers }
    }

    /// `mmap`: what was mapped there goes first.
    ///
    /// # Errors
    /// Memory is full (a huge page had to be split).
    pub fn map(
        &mut self,
        space: u32,
        range: AddressRange,
        kind: MapKind,
        protection: Protection,
    ) -> Result<(), OsError> {
        let range = range.page_cover(PageSize::Base);
        if self.spaces[space as usize].areas.overlaps(range) {
            self.unmap(space, range)?;
        }
        self.spaces[space as usize].areas.map(range, kind, protection);
        Ok(())
    }

    /// `munmap`. Answers whether any page was mapped there, so that TLBs must be told.
    ///
    /// # Errors
    /// Memory is full (a huge page had to be split).
    pub fn unmap(&mut self, space: u32, range: AddressRange) -> Result<bool, OsError> {
        let range = range.page_cover(PageSize::Base);
        self.spaces[space as usize].areas.unmap(range);
        self.drop_pages(space, range, true)
    }

    /// `madvise`. Answers whether TLBs must be told.
    ///
    /// # Errors
    /// Memory is full (a huge page had to be split).
    pub fn advise(&mut self, space: u32, range: AddressRange, advice: Advice) -> Result<bool, OsError> {
        let range = range.page_cover(PageSize::Base);
        match advice {
            Advice::DontNeed => return self.drop_pages(space, range, false),
            Advice::HugePage => {
                self.spaces[space as usize].areas.update(range, |area| area.huge_advice = Some(true));
            }
            Advice::NoHugePage => {
                self.spaces[space as usize].areas.update(range, |area| area.huge_advice = Some(false));
            }
            // Cold, page-out and collapse are requests to policies that a plain kernel may ignore; freed pages stay
            // until memory is short.
            _ => {}
        }
        Ok(false)
    }

    /// `mprotect`.
    pub fn protect(&mut self, space: u32, range: AddressRange, protection: Protection) {
        let range = range.page_cover(PageSize::Base);
        self.spaces[space as usize].areas.update(range, |area| area.protection = protection);
    }

    /// `mremap`. Pages move without a copy where their size fits the new alignment; others are dropped from the page
    /// table and fault again. Answers whether TLBs must be told.
    ///
    /// # Errors
    /// Memory is full.
    pub fn remap(&mut self, space: u32, from: AddressRange, to: AddressRange) -> Result<bool, OsError> {
        let (from, to) = (from.page_cover(PageSize::Base), to.page_cover(PageSize::Base));
        if from.start == to.start {
            if to.bytes < from.bytes {
                return self.unmap(space, AddressRange::new(to.end().0, from.bytes - to.bytes));
            }
            self.spaces[space as usize].areas.remap(from, to);
            return Ok(false);
        }
        let dropped = self.drop_pages(space, to, true)?;
        self.split_at(space, from.start.0)?;
        self.split_at(space, from.end().0)?;
        let pages = self.spaces[space as usize].table.pages_in(from);
        for &(page, size, pte) in &pages {
            let target = page.wrapping_sub(from.start.0).wrapping_add(to.start.0);
            self.spaces[space as usize].table.unmap(page);
            let fits = target & (size.bytes() - 1) == 0 && target + size.bytes() <= to.end().0;
            // Where large pages are forced, one may be held at the target for a neighbouring area.
            let free = fits && self.spaces[space as usize].table.is_region_empty(target, size);
            if page >= from.start.0 && free {
                self.install(space, target, size, pte)?;
            } else {
                self.release_page(size, pte);
            }
        }
        self.spaces[space as usize].areas.remap(from, to);
        Ok(dropped || !pages.is_empty())
    }

    /// Pages that were resident before the recorded region: mapped without a fault.
    ///
    /// # Errors
    /// Memory is full.
    pub fn make_resident(&mut self, space: u32, start: u64, bitmap: &[u64]) -> Result<(), OsError> {
        let before = self.counters;
        for (word, &bits) in bitmap.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let addr = start + 4096 * (64 * word as u64 + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
                if self.spaces[space as usize].table.find(addr).is_none() {
                    self.fault(space, addr, &[])?;
                }
            }
        }
        self.counters = before;
        Ok(())
    }

    /// `fork`: a new process with the same areas and pages, shared until written.
    ///
    /// # Errors
    /// Memory is full, or too many processes.
    pub fn fork(&mut self, parent: u32) -> Result<u32, OsError> {
        let child = self.new_space()?;
        self.forked = true;
        self.spaces[child as usize].areas = self.spaces[parent as usize].areas.clone();
        let everything = AddressRange::new(0, u64::MAX);
        for (page, size, pte) in self.spaces[parent as usize].table.pages_in(everything) {
            let shared_mapping = self.spaces[parent as usize]
                .areas
                .find(page)
                .is_some_and(|(_, a)| matches!(a.kind, MapKind::SharedAnonymous | MapKind::SharedFile));
            let pte = pte.with_copy_on_write(!shared_mapping);
            if let Some(leaf) = self.spaces[parent as usize].table.find(page) {
                self.spaces[parent as usize].table.store(&leaf, page, pte);
            }
            // Nobody watches the child's pages.
            self.install(child, page, size, pte.with_traps(false, false))?;
            *self.shared.entry(pte.frame().0).or_insert(1) += 1;
        }
        Ok(child)
    }

    /// The process is gone, or replaced its program: everything it had is freed.
    ///
    /// # Errors
    /// None in practice: nothing is split.
    pub fn clear_space(&mut self, space: u32, ends: bool) -> Result<(), OsError> {
        let everything = AddressRange::new(0, u64::MAX);
        self.spaces[space as usize].areas = AddressSpace::default();
        for (page, size, pte) in self.spaces[space as usize].table.pages_in(everything) {
            self.spaces[space as usize].table.unmap(page);
            self.release_page(size, pte);
        }
        let tables: Vec<Frame> = self.spaces[space as usize].table.table_frames().collect();
        let keep_root = usize::from(!ends);
        for frame in &tables[keep_root..] {
            self.give_back(*frame, 0);
        }
        self.spaces[space as usize].table = PageTable::new(self.levels, tables[0]);
        self.spaces[space as usize].alive = !ends;
        Ok(())
    }

    /// Unmaps the pages in `range`. With `areas_gone`, pages larger than the hole are split (or dropped whole where
    /// nothing of them is mapped any more); without, only what lies inside goes.
    fn drop_pages(&mut self, space: u32, range: AddressRange, areas_gone: bool) -> Result<bool, OsError> {
        if range.bytes == 0 {
            return Ok(false);
        }
        let forced = matches!(self.pages, PagePolicy::Huge | PagePolicy::Giant);
        if !forced {
            self.split_at(space, range.start.0)?;
            self.split_at(space, range.end().0)?;
        }
        let mut any = false;
        for (page, size, pte) in self.spaces[space as usize].table.pages_in(range) {
            let whole = AddressRange::new(page, size.bytes());
            let inside = whole.start.0 >= range.start.0 && whole.end().0 <= range.end().0;
            // Designs that force a large page everywhere hold it until its last area is gone.
            let unused = areas_gone && !self.spaces[space as usize].areas.overlaps(whole);
            if inside || unused {
                self.spaces[space as usize].table.unmap(page);
                self.release_page(size, pte);
                any = true;
            }
        }
        if any {
            self.counters.shootdowns += 1;
        }
        Ok(any)
    }

    /// Makes `addr` a page border: splits the large page that spans it into base pages.
    fn split_at(&mut self, space: u32, addr: u64) -> Result<(), OsError> {
        let Some(leaf) = self.spaces[space as usize].table.find(addr) else { return Ok(()) };
        if leaf.size == PageSize::Base || addr & (leaf.size.bytes() - 1) == 0 {
            return Ok(());
        }
        self.split(space, addr & !(leaf.size.bytes() - 1), &leaf)
    }

    /// Splits a large page into base pages, in the tables of all processes that share it. The frames stay where they
    /// are, so translations that TLBs hold remain right.
    fn split(&mut self, space: u32, page: u64, leaf: &Leaf) -> Result<(), OsError> {
        let first = leaf.pte.frame();
        let sharers = self.shared.remove(&first.0);
        let mut holders = vec![(space, page, leaf.pte)];
        if sharers.is_some() {
            let everything = AddressRange::new(0, u64::MAX);
            for (other, tables) in self.spaces.iter().enumerate() {
                let pages = tables.table.pages_in(everything).into_iter();
                let same =
                    pages.filter(|&(at, _, pte)| pte.frame() == first && (other as u32, at) != (space, page));
                holders.extend(same.map(|(at, _, pte)| (other as u32, at, pte)));
            }
        }
        for (holder, page, old) in holders {
            self.spaces[holder as usize].table.unmap(page);
            for i in 0..leaf.size.base_pages() {
                let mut pte = Pte::new(Frame(first.0 + i)).with_copy_on_write(old.is_copy_on_write());
                if old.is_dirty() {
                    pte = pte.dirtied();
                } else if old.is_accessed() {
                    pte = pte.accessed();
                }
                self.install(holder, page + 4096 * i, PageSize::Base, pte)?;
            }
        }
        if let Some(count) = sharers {
            self.shared.extend((0..leaf.size.base_pages()).map(|i| (first.0 + i, count)));
        }
        self.resident[leaf.size.index()] -= leaf.size.base_pages();
        self.resident[0] += leaf.size.base_pages();
        self.counters.splits += 1;
        Ok(())
    }

    /// Processes that are not over.
    pub fn live_spaces(&self) -> impl Iterator<Item = u32> + use<> {
        let alive: Vec<u32> =
            (0..self.spaces.len() as u32).filter(|&space| self.spaces[space as usize].alive).collect();
        alive.into_iter()
    }

    /// Whether there is such a process, and it is not over.
    pub fn is_live(&self, space: u32) -> bool {
        self.spaces.get(space as usize).is_some_and(|space| space.alive)
    }

    /// The page table of a process, to change entries in.
    pub fn table_mut(&mut self, space: u32) -> &mut PageTable {
        &mut self.spaces[space as usize].table
    }

    /// Whether several page tables map this frame.
    pub fn is_shared(&self, frame: Frame) -> bool {
        self.shared.contains_key(&frame.0)
    }

    /// Takes a free block of a tier, for a page on its way there.
    pub fn take_block(&mut self, tier: TierId, size: PageSize) -> Option<Frame> {
        self.take(tier.index(), size.order())
    }

    /// Frees a block that no page table maps.
    pub fn free_block(&mut self, frame: Frame, size: PageSize) {
        self.give_back(frame, size.order());
    }

    /// Nothing is ever put into the first tier: it is a cache of the last one, which holds page tables too.
    pub fn give_up_first_tier(&mut self) {
        let first = &mut self.tiers[0];
        for order in (0..=MAX_ORDER).rev() {
            while first.take(order, Time::ZERO).is_some() {}
        }
        self.page_table_tier = self.tiers.len() - 1;
    }

    /// Splits the large page at `page` into base pages in place.
    ///
    /// # Errors
    /// No frame for a page table.
    pub fn split_page(&mut self, space: u32, page: u64) -> Result<(), OsError> {
        match self.spaces[space as usize].table.find(page) {
            Some(leaf) if leaf.size != PageSize::Base => self.split(space, page, &leaf),
            _ => Ok(()),
        }
    }

    /// Replaces the parts of the page of `size` at `page`, which are unmapped, by one entry. Their blocks are freed
    /// unless `in_place`: then they are the new page's.
    ///
    /// # Errors
    /// No frame for a page table.
    pub fn collapse(
        &mut self,
        space: u32,
        page: u64,
        size: PageSize,
        pte: Pte,
        in_place: bool,
    ) -> Result<(), OsError> {
        for (part, part_size, old) in
            self.spaces[space as usize].table.pages_in(AddressRange::new(page, size.bytes()))
        {
            self.spaces[space as usize].table.unmap(part);
            self.resident[part_size.index()] -= part_size.base_pages();
            if !in_place {
                self.give_back(old.frame(), part_size.order());
            }
        }
        self.resident[size.index()] += size.base_pages();
        self.install(space, page, size, pte)?;
        self.note_peak();
        Ok(())
    }

    /// Counts everything anew: every frame in use is a page's, a page table's, one of `taken` (blocks of orders under way)
    /// or one of the `reserved`, and nobody's twice.
    ///
    /// # Errors
    /// The first thing that is wrong, in words.
    pub fn audit(&self, taken: &[(Frame, PageSize)], reserved: &[u64]) -> Result<(), String> {
        let mut held: HashMap<u64, u32> = HashMap::new();
        let mut used = vec![0u64; self.tiers.len()];
        let mut resident = [0u64; 3];
        for (number, space) in self.spaces.iter().enumerate() {
            for frame in space.table.table_frames() {
                if space.alive && held.insert(frame.0, u32::MAX).is_some() {
                    return Err(format!("frame {:#x} of a page table is used twice", frame.0));
                }
                used[self.tier_of(frame).index()] += u64::from(space.alive);
            }
            for (addr, size, pte) in space.table.pages_in(AddressRange::new(0, u64::MAX)) {
                let first = pte.frame().0;
                if !first.is_multiple_of(size.base_pages()) {
                    return Err(format!("{number}:{addr:#x}: frame {first:#x} is not aligned to {size}"));
                }
                let sharers = self.shared.get(&first).copied();
                for frame in first..first + size.base_pages() {
                    let mappings = held.entry(frame).or_insert(0);
                    *mappings = mappings.saturating_add(1);
                    if *mappings > sharers.unwrap_or(1) {
                        return Err(format!("{number}:{addr:#x}: frame {frame:#x} has {mappings} users"));
                    }
                }
                if held[&first] == 1 {
                    used[self.tier_of(pte.frame()).index()] += size.base_pages();
                    resident[size.index()] += size.base_pages();
                }
            }
        }
        for (block, size) in taken {
            for frame in block.0..block.0 + size.base_pages() {
                if held.insert(frame, u32::MAX).is_some() {
                    return Err(format!("frame {frame:#x} of an order is used twice"));
                }
            }
            used[self.tier_of(*block).index()] += size.base_pages();
        }
        for (at, tier) in self.tiers.iter().enumerate() {
            let expected = used[at] + reserved[at];
            let found = tier.buddy.frames() - tier.buddy.free_frames();
            if found != expected {
                return Err(format!("{}: {found} frames in use, {expected} accounted for", tier.name));
            }
        }
        if resident != self.resident {
            return Err(format!("resident by size: counted {resident:?}, kept {:?}", self.resident));
        }
        Ok(())
    }

    fn release_page(&mut self, size: PageSize, pte: Pte) {
        self.release_frames(pte.frame(), size);
    }

    fn release_frames(&mut self, frame: Frame, size: PageSize) {
        if let Some(count) = self.shared.get_mut(&frame.0) {
            *count -= 1;
            if *count == 1 {
                self.shared.remove(&frame.0);
            }
            return;
        }
        self.resident[size.index()] -= size.base_pages();
        self.counters.pages_freed += size.base_pages();
        self.give_back(frame, size.order());
    }

    fn give_back(&mut self, frame: Frame, order: u32) {
        let tier = self.tier_of(frame).index();
        let tier = &mut self.tiers[tier];
        tier.before_change(self.now);
        tier.buddy.release(frame.0 - tier.base, order);
    }
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
