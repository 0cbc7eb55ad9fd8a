//! The seam of translation: what a scheme is, and what it may ask of the machine around it.
//!
//! A scheme is a type that holds what one core has of it; [`Translation::Kernel`] is what the kernel keeps for all cores.
//! It is generic over the [`Walker`] that serves it, so nothing here is dispatched dynamically on the way of an access.
//! What happens rarely (shootdowns, statistics) goes through [`AnyScheme`], which knows no type.

use super::kernel_state::KernelState;
use super::parameters::TranslationParameters;
use super::tlb::TlbEntry;
use super::tlbs::{TlbCounters, TlbHit};
use crate::coherence::{
    HatricParameters, Probed, RangeStore, Ranges, RangesFound, Resolution, Target, TlbSets,
};
use crate::os::{Leaf, OsError, PageTable, Pte};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::fmt::Debug;
use terrace_model::parameters::Parameters;
use terrace_model::{AddressRange, CoreId, Frame, PageSize, PhysAddr, SpaceId, Stats, Time, VirtAddr};
use terrace_policy::CapabilitySet;

/// Why an access was not made.
#[derive(Debug)]
pub enum Stop {
    /// The page of the access is between unmap and map, or its fault waits for a block: the thread waits, then makes the
    /// access again.
    Held,
    /// The simulated kernel failed.
    Failed(OsError),
}

impl From<OsError> for Stop {
    fn from(error: OsError) -> Stop {
        Stop::Failed(error)
    }
}

/// An access that needs a translation.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The process.
    pub space: SpaceId,
    /// The access's virtual address.
    pub addr: VirtAddr,
    /// A store.
    pub write: bool,
    /// When its operands were there.
    pub now: Time,
}

impl Request {
    /// This request at another time.
    #[inline(always)]
    pub fn at(&self, now: Time) -> Request {
        Request { now, ..*self }
    }
}

/// A walk that ended at a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// The entry found, as it was before the walk.
    pub leaf: Leaf,
    /// The leaf's entry with the bits that the walk set.
    pub pte: Pte,
    /// When the TLBs had answered, after faults.
    pub looked_up: Time,
    /// When it began: a walker may have had to become free first.
    pub begin: Time,
    /// When the leaf's entry was there.
    pub done: Time,
}

impl Walk {
    /// What a TLB holds of it.
    #[inline(always)]
    pub fn hit(&self) -> TlbHit {
        TlbHit { entry: TlbEntry::new(self.pte.frame(), self.pte.is_writable_in_tlb()), size: self.leaf.size }
    }
}

/// The machine as a scheme sees it: one core, its page walker, and the kernel behind it.
pub trait Walker {
    /// Walks the page table for an access, after whatever faults that takes. `looked_up`: when the TLBs had answered
    /// that it needs a walk.
    ///
    /// # Errors
    /// The page is held, or the kernel failed.
    fn walk<T: Translation>(
        &mut self,
        scheme: &mut T,
        kernel: &mut T::Kernel,
        request: &Request,
        looked_up: Time,
    ) -> Result<Walk, Stop>;

    /// The first store through a TLB entry whose dirty bit is not set, looked up by `request.now`: the hardware sets the
    /// bit in the page table, or faults where the page is shared since a fork. [`Translation::update`] is called with the
    /// new entry. Returns it, and when it is known.
    ///
    /// # Errors
    /// The page is held, or the kernel failed.
    fn set_dirty<T: Translation>(
        &mut self,
        scheme: &mut T,
        kernel: &mut T::Kernel,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop>;

    /// Translates without any hardware, after whatever faults that takes. Returns the frame of the base page, and the size
    /// of the page that it belongs to.
    ///
    /// # Errors
    /// The page is held, or the kernel failed.
    fn translate_for_free<T: Translation>(
        &mut self,
        scheme: &mut T,
        kernel: &mut T::Kernel,
        request: &Request,
    ) -> Result<(Frame, PageSize), Stop>;

    /// Fetches a line of the kernel's or the hardware's own tables by physical address, through the data caches. Returns
    /// when it is there.
    fn fetch<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        addr: PhysAddr,
        write: bool,
        now: Time,
    ) -> Time;

    /// Fetches a line by the memory controller, which stands below the private caches: through the last level, or from
    /// memory alone.
    fn fetch_below<T: Translation>(
        &mut self,
        kernel: &mut T::Kernel,
        addr: PhysAddr,
        through_last_level: bool,
        now: Time,
    ) -> Time;

    /// Writes a line of the memory controller's own tables. Returns when the device has taken it.
    fn store_below(&mut self, addr: PhysAddr, now: Time) -> Time;

    /// Something was looked up without a reference. For those who watch single accesses.
    fn note_lookup(&mut self, name: &'static str, begin: Time, end: Time);

    /// The entry that was fetched last is this one. For those who watch single accesses.
    fn name_entry(&mut self, name: &'static str);

    /// Counts references of a walk that the scheme made by itself.
    fn count_references(&mut self, references: u64);

    /// Counts a walk that the scheme made by itself, and the time it took.
    fn count_walk(&mut self, took: Time);

    /// The page of an access that changes nothing in the page table; none where it would. `frame` is what a mechanism
    /// says of its base page.
    fn confirm(&mut self, request: &Request, frame: Frame) -> Option<TlbHit>;

    /// The part of a page that one TLB entry covers: under nested paging no more than a page of the host.
    fn splinter(&self, addr: VirtAddr, hit: TlbHit) -> TlbHit;

    /// A process's page table.
    fn table(&self, space: SpaceId) -> &PageTable;

    /// The core's clock.
    fn now(&self) -> Time;

    /// Added to an access that misses the level-1 TLB and hits level 2.
    fn l2_tlb_latency(&self) -> Time;

    /// A hit in the last-level cache.
    fn llc_latency(&self) -> Time;
}

/// The parameters that are a scheme's own.
pub trait SchemeKeys: Clone + Debug + Parameters + Serialize + DeserializeOwned {
    /// What must hold beside the ranges of the keys: the first key that breaks a rule, and what is wrong with it.
    ///
    /// # Errors
    /// That value.
    fn validate(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Divides what is reach by `scale`, as TLBs are.
    fn scale(&mut self, _scale: u32) {}
}

/// A scheme without parameters of its own.
#[derive(Clone, Debug, Serialize, serde::Deserialize, Parameters)]
#[serde(deny_unknown_fields)]
pub struct NoKeys {}

impl SchemeKeys for NoKeys {}

/// What a scheme is made from.
#[derive(Debug)]
pub struct Setup<'a, K> {
    /// The translation hardware of the design.
    pub translation: &'a TranslationParameters,
    /// The scheme's own parameters.
    pub own: &'a K,
    /// A core's cycle.
    pub cycle: Time,
    /// First physical address beyond all tiers, where [`Translation::memory_bytes`] lie.
    pub memory: PhysAddr,
}

/// The TLBs of one core: what the page table's changes do to them, and what they count.
pub trait TlbSet: Debug {
    /// See [`Translation::update`].
    fn update(&mut self, table: &PageTable, request: &Request, leaf: &Leaf, pte: Pte, hit: TlbHit);
    /// Drops every translation of `space` that overlaps `range`.
    fn invalidate(&mut self, space: SpaceId, range: AddressRange);
    /// Drops every translation of `space`.
    fn flush_space(&mut self, space: SpaceId);
    /// Hits and misses.
    fn counters(&self) -> TlbCounters;

    /// Keeps co-tags beside all entries from now on. `tells_evicted`: [`TlbSet::take_evicted`] is asked.
    fn keep_co_tags(&mut self, _tells_evicted: bool) {}
    /// The next fill is made from the page-table entry at this address.
    fn set_source(&mut self, _entry: PhysAddr) {}
    /// Co-tags of entries that had to go since this was asked last.
    fn take_evicted(&mut self) -> Vec<PhysAddr> {
        Vec::new()
    }
    /// Where level 1 and level 2 look for a page.
    fn tlb_sets(&self, _space: SpaceId, _addr: VirtAddr, _size: PageSize) -> TlbSets {
        TlbSets::default()
    }
    /// Drops the translations whose co-tags match.
    fn probe(&mut self, _target: &Target, _resolution: Resolution) -> Probed {
        Probed::default()
    }
    /// Whether a translation's co-tag matches, in any set, and how many co-tags were compared for that.
    fn holds(&self, _address: PhysAddr, _resolution: Resolution) -> (bool, u64) {
        (false, 0)
    }
}

/// Where translation stands under virtual caches, and who waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLevel {
    /// Beside the last level's lookup, and a hit waits for it too: rights are in the TLB.
    Waits,
    /// Beside the last level's lookup, and only a miss waits for it: rights were checked before.
    Beside,
    /// After a miss of the last level.
    After,
}

/// In caches with virtual names: this bit is set in the name of a line that is named by its physical address. All other
/// names are below it.
pub const PHYSICAL_NAMES: u64 = 1 << 37;

/// A translation scheme: what one core has of it.
pub trait Translation: Debug + Sized + 'static {
    /// The scheme's name in designs.
    const NAME: &'static str;
    /// The scheme's own parameters.
    type Keys: SchemeKeys;
    /// What the kernel keeps for it.
    type Kernel: KernelState;
    /// The scheme's TLBs.
    type Tlbs: TlbSet;
    /// Whether misses of its TLBs walk the page table, so that policies can count them.
    const WALKS: bool = true;
    /// Whether lines carry virtual names down to the last level, and translation stands below the L2.
    const VIRTUAL_CACHES: bool = false;
    /// What it offers to policies; none where that is all that the machine has.
    const OFFERS: Option<CapabilitySet> = None;
    /// Whether it runs in a virtual machine with a page table of the hypervisor's: its entries hold what a walk in both
    /// dimensions found, and nothing of the guest's frames.
    const RUNS_IN_VM: bool = false;
    /// What a design sets instead of a virtual machine with such a table, and why.
    const INSTEAD_OF_VM: Option<&'static str> = None;
    /// Where translation stands under virtual caches.
    const LAST_LEVEL: LastLevel = LastLevel::Waits;
    /// Whether the kernel's page tables are what hardware reads, so that changes of entries are stores. Where they are not,
    /// they only record what memory stands behind what.
    const KERNEL_TABLES: bool = true;
    /// Whether each of its translations can have a co-tag, so that cache coherence can keep them coherent.
    const CO_TAGS: bool = false;
    /// Whether it has ranges beside its TLBs, which stores to page tables have to reach.
    const RANGES: bool = false;
    /// A design that shows it, as the text of a file; none where the designs' folder has one.
    const DESIGN: Option<&'static str> = None;

    /// The names of its own statistics, and what they mean.
    const STATISTICS: &'static [(&'static str, &'static str)];

    /// An empty core.
    ///
    /// # Errors
    /// A geometry that cannot be built.
    fn new(setup: &Setup<'_, Self::Keys>) -> Result<Self, String>;

    /// The kernel's side, empty.
    ///
    /// # Errors
    /// A geometry that cannot be built.
    fn kernel(setup: &Setup<'_, Self::Keys>) -> Result<Self::Kernel, String>;

    /// The TLBs of its core.
    fn tlbs(&self) -> &Self::Tlbs;

    /// The TLBs of its core, to change them.
    fn tlbs_mut(&mut self) -> &mut Self::Tlbs;

    /// Bytes of memory beyond all tiers, on the first tier's device, that its own structures take.
    fn memory_bytes(_keys: &Self::Keys) -> u64 {
        0
    }

    /// The translation of a page used lately, if it is known to be in level 1; `None` says nothing. Uses it, but counts
    /// nothing: whoever goes on with it calls [`Translation::count_hit`].
    #[inline(always)]
    fn recent(&mut self, _space: SpaceId, _addr: VirtAddr) -> Option<TlbHit> {
        None
    }

    /// Counts a level-1 hit that [`Translation::recent`] returned.
    #[inline(always)]
    fn count_hit(&mut self, _hit: TlbHit) {}

    /// Under virtual caches: checks what can be checked without a translation, before the L1. Returns when that is done.
    #[inline(always)]
    fn check<W: Walker>(&mut self, _kernel: &mut Self::Kernel, _walker: &mut W, request: &Request) -> Time {
        request.now
    }

    /// Translates an access. Returns its page, and when that is known.
    ///
    /// # Errors
    /// The page is held, or the kernel failed.
    fn translate<W: Walker>(
        &mut self,
        kernel: &mut Self::Kernel,
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop>;

    /// The page of an access was found dirty, or made so, at a store through an entry that did not say so. `pte` is the
    /// entry now, `hit` what a plain TLB holds of it.
    fn update(&mut self, table: &PageTable, request: &Request, leaf: &Leaf, pte: Pte, hit: TlbHit) {
        self.tlbs_mut().update(table, request, leaf, pte, hit);
    }

    /// The instruction whose access comes next, where it is known.
    #[inline(always)]
    fn set_instruction(&mut self, _instruction: Option<u64>) {}

    /// Drops every translation of `space` that overlaps `range`.
    fn invalidate(&mut self, space: SpaceId, range: AddressRange) {
        self.tlbs_mut().invalidate(space, range);
        self.drop_changed(space, range);
    }

    /// Drops what the scheme holds of a range beside its plain TLBs.
    fn drop_changed(&mut self, _space: SpaceId, _range: AddressRange) {}

    /// Drops every translation of `space`.
    fn flush_space(&mut self, space: SpaceId) {
        self.tlbs_mut().flush_space(space);
        self.drop_changed(space, AddressRange::new(0, u64::MAX));
    }

    /// Hits and misses of its TLBs.
    fn tlb_counters(&self) -> TlbCounters {
        self.tlbs().counters()
    }

    /// What must hold where cache coherence keeps it coherent: the key that breaks a rule, and what is wrong with it.
    ///
    /// # Errors
    /// That value.
    fn check_co_tags(_own: &Self::Keys, _hatric: &HatricParameters) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Stores to page tables reach its ranges from now on.
    fn follow_stores(&mut self, _ranges: Ranges) {}

    /// A store to a page table reaches its ranges.
    fn probe_ranges(&mut self, _store: &RangeStore) -> RangesFound {
        RangesFound::default()
    }

    /// Adds what it counts beside its TLBs to the statistics of a run, over all cores.
    fn count_into(_cores: &[Self], _kernel: &Self::Kernel, _cycle: Time, _stats: &mut Stats) {}

    /// What a reader of the numbers should know.
    fn notes(_cores: &[Self], _kernel: &Self::Kernel) -> Vec<String> {
        Vec::new()
    }
}

/// A scheme on all cores of a machine.
#[derive(Debug)]
pub struct Scheme<T: Translation> {
    /// One for each core.
    pub cores: Vec<T>,
    /// The kernel's side.
    pub kernel: T::Kernel,
}

/// A scheme whose type is not known: for what happens rarely.
pub trait AnyScheme: Debug {
    /// For a downcast to [`Scheme`].
    fn as_any(&mut self) -> &mut dyn Any;
    /// Drops one core's translations that overlap a range.
    fn invalidate(&mut self, core: CoreId, space: SpaceId, range: AddressRange);
    /// Drops one core's translations of a process.
    fn flush_space(&mut self, core: CoreId, space: SpaceId);
    /// One core's TLBs.
    fn tlbs(&mut self, core: CoreId) -> &mut dyn TlbSet;
    /// Stores to page tables reach ranges from now on. Whether there can be any.
    fn follow_stores(&mut self, ranges: Ranges) -> bool;
    /// A store to a page table reaches one core's ranges.
    fn probe_ranges(&mut self, core: CoreId, store: &RangeStore) -> RangesFound;
    /// Tells the kernel's side that pages change.
    fn forget(&mut self, space: SpaceId, range: AddressRange);
    /// What the kernel keeps for it.
    fn kernel(&mut self) -> &mut dyn KernelState;
    /// See [`KernelState::frames_set_aside`].
    fn frames_set_aside(&self) -> Vec<Frame>;
    /// Whether caches are virtually tagged.
    fn has_virtual_caches(&self) -> bool;
    /// Whether hardware reads the kernel's page tables.
    fn has_kernel_tables(&self) -> bool;
    /// Hits and misses of all cores' TLBs together.
    fn tlb_counters(&self) -> TlbCounters;
    /// Adds what it counts beside its TLBs to the statistics of a run.
    fn count_into(&self, cycle: Time, stats: &mut Stats);
    /// What a reader of the numbers should know.
    fn notes(&self) -> Vec<String>;
}

impl<T: Translation> AnyScheme for Scheme<T> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
    fn invalidate(&mut self, core: CoreId, space: SpaceId, range: AddressRange) {
        self.cores[core.index()].invalidate(space, range);
    }
    fn flush_space(&mut self, core: CoreId, space: SpaceId) {
        self.cores[core.index()].flush_space(space);
    }
    fn tlbs(&mut self, core: CoreId) -> &mut dyn TlbSet {
        self.cores[core.index()].tlbs_mut()
    }
    fn follow_stores(&mut self, ranges: Ranges) -> bool {
        self.cores.iter_mut().for_each(|core| core.follow_stores(ranges));
        T::RANGES
    }
    fn probe_ranges(&mut self, core: CoreId, store: &RangeStore) -> RangesFound {
        self.cores[core.index()].probe_ranges(store)
    }
    fn forget(&mut self, space: SpaceId, range: AddressRange) {
        self.kernel.forget(space, range);
    }
    fn kernel(&mut self) -> &mut dyn KernelState {
        &mut self.kernel
    }
    fn frames_set_aside(&self) -> Vec<Frame> {
        self.kernel.frames_set_aside()
    }
    fn has_virtual_caches(&self) -> bool {
        T::VIRTUAL_CACHES
    }
    fn has_kernel_tables(&self) -> bool {
        T::KERNEL_TABLES
    }
    fn tlb_counters(&self) -> TlbCounters {
        let mut sum = TlbCounters::default();
        self.cores.iter().for_each(|core| sum.add(&core.tlb_counters()));
        sum.add(&self.kernel.tlb_counters());
        sum
    }
    fn count_into(&self, cycle: Time, stats: &mut Stats) {
        T::count_into(&self.cores, &self.kernel, cycle, stats);
    }
    fn notes(&self) -> Vec<String> {
        T::notes(&self.cores, &self.kernel)
    }
}
