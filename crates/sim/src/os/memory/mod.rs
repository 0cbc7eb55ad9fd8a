//! The physical memory of one tier: which frames are free, and who holds the others.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | a tier: blocks taken and given back, with their owners |
//! | `crates/buddy` | the free blocks, grouped by mobility |
//! | `owner.rs` | who holds a frame, a word each |
//! | `cache.rs` | pages of files, evicted when memory is short |
//! | `aging.rs` | what a long life does to memory |
//! | `snapshot.rs` | an aged memory in a file |
//! | `zeroing.rs` | free blocks that are being filled with zeros |
//! | `parameters.rs` | the keys of `os.memory` |
//! | `figures.rs`, `map.rs` | what a memory is like, in figures and for pictures |

mod aging;
mod cache;
mod figures;
mod map;
mod owner;
mod parameters;
mod snapshot;
#[cfg(test)]
mod tests;
mod zeroing;

pub use aging::age;
use cache::PageCache;
pub use figures::{MemoryFigures, OrderFigures, RegionFigures};
pub use map::{FrameRun, Holder};
pub use owner::Owner;
use owner::{Word, Words};
pub use parameters::{Aging, FreeLists, LARGEST_ORDER, MemoryParameters};
pub use snapshot::Snapshot;
use terrace_buddy::HUGE;
pub use terrace_buddy::{Buddy, Mobility};
use terrace_model::{Frame, PageSize, Time};
use zeroing::Zeroing;

/// The watermarks of a zone are at least this share of it apart (Linux, `vm.watermark_scale_factor`).
const WATER_STEP: f64 = 0.001;

/// A block that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block's first frame, in the machine's numbers.
    pub frame: Frame,
    /// The block is known to hold only zeros.
    pub zeroed: bool,
}

/// The frames of one tier.
#[derive(Clone, Debug)]
pub struct TierMemory {
    /// The tier's name.
    pub name: String,
    /// First frame in the machine's physical memory.
    pub base: Frame,
    buddy: Buddy,
    owners: Words,
    cache: PageCache,
    zeroing: Zeroing,
    /// The page cache is evicted when fewer frames than the low watermark are free, until those of the high one are.
    low_water: u64,
    high_water: u64,
    /// Occupied frames times the time they were, in femtoseconds, up to `changed_at`.
    usage: u128,
    changed_at: Time,
}

impl TierMemory {
    /// All of it free.
    pub fn new(name: &str, base: Frame, frames: u64, parameters: &MemoryParameters) -> TierMemory {
        // Linux, mm/page_alloc.c, __setup_per_zone_wmarks.
        let of_all = |share: f64| (frames as f64 * share) as u64;
        let step = WATER_STEP.max(parameters.min_free / 4.0);
        let low_water = of_all(parameters.min_free + step);
        TierMemory {
            name: name.to_owned(),
            base,
            buddy: Buddy::new(frames, parameters.shape()),
            owners: Words::none(frames),
            cache: PageCache::default(),
            zeroing: Zeroing::default(),
            low_water,
            high_water: low_water + of_all(step),
            usage: 0,
            changed_at: Time::ZERO,
        }
    }

    /// The tier's free blocks.
    pub fn buddy(&self) -> &Buddy {
        &self.buddy
    }

    /// Frames in all.
    pub fn frames(&self) -> u64 {
        self.buddy.frames()
    }

    /// Frames in use, those that are being filled with zeros included. Those of the page cache are not: they are given up on
    /// demand.
    pub fn used(&self) -> u64 {
        self.buddy.frames() - self.buddy.free_frames() - self.cache.len()
    }

    /// Frames in use without those of free blocks that are being filled with zeros: what holds something.
    pub fn occupied(&self) -> u64 {
        self.used() - self.zeroing.frames()
    }

    /// Frames of the page cache.
    pub fn cached(&self) -> u64 {
        self.cache.len()
    }

    /// Use up to `now`. Cores' clocks differ a little; the latest counts.
    pub fn usage_at(&self, now: Time) -> u128 {
        self.usage + u128::from(self.occupied()) * u128::from(now.saturating_sub(self.changed_at).0)
    }

    /// Counts use up to `now`, from where later changes count at the earliest.
    pub fn settle_usage(&mut self, now: Time) {
        self.usage = self.usage_at(now);
        self.changed_at = self.changed_at.max(now);
    }

    /// Whether a frame is one of this tier's.
    pub fn contains(&self, frame: Frame) -> bool {
        frame >= self.base && frame - self.base < self.frames()
    }

    /// Takes a free block of the size of a page. The page cache shrinks where memory is short.
    pub fn take(&mut self, size: PageSize, owner: Owner, now: Time) -> Option<Block> {
        self.settle_usage(now);
        if self.cache.len() > 0 && self.buddy.free_frames() < self.low_water + size.base_pages() {
            self.reclaim(self.high_water + size.base_pages());
        }
        let (frame, zeroed) = match self.buddy.allocate(size.order(), mobility(owner)) {
            None if size == PageSize::Base => self.allocate_by_force(mobility(owner))?,
            allocated => allocated?,
        };
        self.owners.set(frame as usize, Word::new(owner, size));
        Some(Block { frame: self.base.plus(frame), zeroed })
    }

    /// A base frame where all that is free is kept from being handed out, as it is part of a region that is emptied: pages
    /// of files give way, one by one, until a frame elsewhere is free.
    #[cold]
    fn allocate_by_force(&mut self, mobility: Mobility) -> Option<(u64, bool)> {
        while self.reclaim(self.buddy.free_frames() + 1) > 0 {
            if let Some(allocated) = self.buddy.allocate(0, mobility) {
                return Some(allocated);
            }
        }
        None
    }

    /// Takes this block, if all of it is free.
    pub fn take_at(&mut self, frame: Frame, size: PageSize, owner: Owner, now: Time) -> bool {
        self.settle_usage(now);
        let at = frame - self.base;
        if at + size.base_pages() > self.frames() || !self.buddy.take_at(at, size.order(), mobility(owner)) {
            return false;
        }
        self.owners.set(at as usize, Word::new(owner, size));
        true
    }

    /// Takes a free run of 2^`order` frames that begins at a multiple of its size, each frame a block of its own.
    pub fn take_run(&mut self, order: u32, now: Time) -> Option<Frame> {
        let first = self.find_run(order)?;
        self.settle_usage(now);
        let step = order.min(self.buddy.max_order());
        for at in (first..first + (1 << order)).step_by(1 << step) {
            self.buddy.take_at(at, step, Mobility::Movable);
        }
        self.owners.take_all(first as usize..(first + (1 << order)) as usize);
        Some(self.base.plus(first))
    }

    /// The first frame of such a run: of the smallest free block that holds one, the lowest.
    pub fn find_run(&self, order: u32) -> Option<u64> {
        let most = self.buddy.max_order();
        if order <= most {
            let fits = self.buddy.blocks_from(order);
            return fits.min_by_key(|(first, have)| (*have, *first)).map(|(first, _)| first);
        }
        let runs = (0..self.frames() >> order).map(|run| run << order);
        let free = |first: u64| {
            (first..first + (1 << order)).step_by(1 << most).all(|at| self.buddy.is_free(at, most))
        };
        let mut runs = runs;
        runs.find(|first| free(*first))
    }

    /// Gives a block back.
    pub fn give_back(&mut self, frame: Frame, now: Time) {
        self.settle_usage(now);
        let at = frame - self.base;
        let word = self.owners.take(at as usize);
        let owner = word.owner();
        debug_assert!(owner.is_some(), "frame {:#x} is given back twice", frame.0);
        if let Some(owner) = owner {
            self.buddy.release(at, word.size().order(), mobility(owner));
        }
    }

    /// Gives frames back that were taken as a run and never used.
    pub fn give_back_run(&mut self, first: Frame, frames: u64, now: Time) {
        self.settle_usage(now);
        let (mut at, end) = (first - self.base, first - self.base + frames);
        self.owners.release_all(at as usize..end as usize);
        while at < end {
            // At most a pageblock at a time: then blocks merge as if each frame came back by itself.
            let fits = (end - at).ilog2().min(PageSize::Huge.order());
            let order = at.trailing_zeros().min(fits).min(self.buddy.max_order());
            self.buddy.release(at, order, mobility(Owner::Taken));
            at += 1 << order;
        }
    }

    /// Free frames below which the page cache is evicted, and those that are free then.
    pub fn watermarks(&self) -> (u64, u64) {
        (self.low_water, self.high_water)
    }

    /// Evicts pages of files until `free` frames are free, or no such page is left. Returns how many were evicted.
    pub fn reclaim(&mut self, free: u64) -> u64 {
        let mut evicted = 0;
        while self.buddy.free_frames() < free
            && let Some(frame) = self.cache.evict()
        {
            self.owners.set(frame as usize, Word::default());
            self.buddy.release(u64::from(frame), 0, Mobility::Movable);
            evicted += 1;
        }
        evicted
    }

    /// The block that a frame belongs to: its first frame, its size and who holds it. None for free frames.
    pub fn block_of(&self, frame: Frame) -> Option<(Frame, PageSize, Owner)> {
        let at = frame.0.checked_sub(self.base.0).filter(|at| *at < self.frames())?;
        PageSize::ALL.into_iter().rev().find_map(|size| {
            let first = at & !(size.base_pages() - 1);
            let word = self.owners.get(first as usize);
            let owner = word.owner().filter(|_| word.size() == size)?;
            Some((self.base.plus(first), size, owner))
        })
    }

    /// Says who holds a block that is in use. Its mobility has to stay the same.
    pub fn set_owner(&mut self, frame: Frame, size: PageSize, owner: Owner) {
        let at = (frame - self.base) as usize;
        debug_assert!(!self.owners.get(at).is_none() && self.owners.get(at).size() == size);
        self.owners.set(at, Word::new(owner, size));
    }

    /// A block in use, or several that fill one of `size`, become blocks of the size of `parts`.
    pub fn recut(&mut self, frame: Frame, size: PageSize, parts: PageSize, owner: impl Fn(u64) -> Owner) {
        let first = (frame - self.base) as usize;
        self.owners.clear(first..first + size.base_pages() as usize);
        for at in (0..size.base_pages()).step_by(parts.base_pages() as usize) {
            self.owners.set(first + at as usize, Word::new(owner(at), parts));
        }
    }

    /// What lies in the blocks that begin at `one` and `other`, in their first `frames` frames, changes places: words of
    /// owners, with what they say. The blocks hold nothing that cannot move.
    pub fn swap_owners(&mut self, one: Frame, other: Frame, frames: u64) {
        let (one, other) = ((one - self.base) as usize, (other - self.base) as usize);
        for at in 0..frames as usize {
            self.owners.swap(one + at, other + at);
            for frame in [one + at, other + at] {
                if let Some(Owner::Cache(place)) = self.owners.get(frame).owner() {
                    self.cache.set(place, frame as u32);
                }
            }
        }
    }

    /// A page of a file comes into the page cache, unless memory is full.
    pub fn cache_page(&mut self) -> Option<u64> {
        if self.buddy.free_frames() <= self.low_water {
            self.reclaim(self.low_water + 1);
        }
        let (frame, _) = self.buddy.allocate(0, Mobility::Movable)?;
        let place = self.cache.push(frame as u32);
        self.owners.set(frame as usize, Word::new(Owner::Cache(place), PageSize::Base));
        Some(frame)
    }

    /// A cached page was read, of the frame at this place in the tier: it is evicted after all others.
    pub fn touch_cached(&mut self, at: u64) {
        if let Some(Owner::Cache(place)) = self.owners.get(at as usize).owner() {
            let place = self.cache.touch(place);
            self.owners.set(at as usize, Word::new(Owner::Cache(place), PageSize::Base));
        }
        if let Some(places) = self.cache.tidy() {
            for (place, frame) in (0u32..).zip(places) {
                self.owners.set(*frame as usize, Word::new(Owner::Cache(place), PageSize::Base));
            }
        }
    }

    /// A cached page is not evicted until it is released: an order has it.
    pub fn hold_cached(&mut self, frame: Frame) {
        let at = (frame - self.base) as usize;
        if let Some(Owner::Cache(place)) = self.owners.get(at).owner() {
            self.cache.remove(place);
            self.owners.set(at, Word::new(Owner::Taken, PageSize::Base));
        }
    }

    /// The page of a file in this frame may be evicted again, after all others.
    pub fn release_cached(&mut self, frame: Frame) {
        let at = (frame - self.base) as usize;
        let place = self.cache.push(at as u32);
        self.owners.set(at, Word::new(Owner::Cache(place), PageSize::Base));
    }

    /// Whether every frame of a block is free.
    pub fn is_free(&self, frame: Frame, size: PageSize) -> bool {
        let at = frame - self.base;
        at + size.base_pages() <= self.frames() && self.buddy.is_free(at, size.order())
    }

    /// Keeps the allocator from handing out frames of a block, or ends that.
    pub fn isolate(&mut self, frame: Frame, size: PageSize, isolated: bool) {
        let at = frame - self.base;
        if at.is_multiple_of(size.base_pages()) && at + size.base_pages() <= self.frames() {
            self.buddy.isolate(at, size.order(), isolated);
        }
    }

    /// A free block was filled with zeros. Returns whether it is free still.
    pub fn mark_zeroed(&mut self, frame: Frame, size: PageSize) -> bool {
        self.buddy.mark_zeroed(frame - self.base, size.order())
    }

    /// Counts every frame anew.
    ///
    /// # Errors
    /// The first thing that is wrong, in words.
    pub fn audit(&self) -> Result<(), String> {
        let mut free = vec![false; self.frames() as usize];
        for (first, order) in self.buddy.blocks() {
            for frame in first..first + (1 << order) {
                if std::mem::replace(&mut free[frame as usize], true) {
                    return Err(format!("{}: frame {frame:#x} is free twice", self.name));
                }
            }
        }
        let mut held = 0;
        // The state of each 2 MiB, as policies see it: free frames, and frames that hold what cannot move.
        let mut regions = vec![(0, 0); free.len().div_ceil(HUGE as usize)];
        for (frame, free) in (0..).zip(&free) {
            let block = self.block_of(self.base.plus(frame));
            held += u64::from(block.is_some());
            if *free == block.is_some() {
                return Err(format!("{}: frame {frame:#x} is free {free} and held by {block:?}", self.name));
            }
            let region: &mut (u64, u64) = &mut regions[(frame / HUGE) as usize];
            region.0 += u64::from(*free);
            let stays = |(_, _, owner)| matches!(mobility(owner), Mobility::Unmovable);
            region.1 += u64::from(block.is_some_and(stays));
        }
        for (first, recount) in (0..).step_by(HUGE as usize).zip(&regions) {
            let counters = self.buddy.region(first, HUGE.min(self.frames() - first));
            if counters != *recount {
                return Err(format!(
                    "{}: (free, unmovable) of the region at {first:#x} are {recount:?}, its counters {counters:?}",
                    self.name
                ));
            }
        }
        let counted = free.iter().filter(|free| **free).count() as u64;
        let (in_regions, _) = self.buddy.region(0, self.frames());
        if counted != self.buddy.free_frames() || counted != in_regions || counted + held != self.frames() {
            let kept = self.buddy.free_frames();
            return Err(format!("{}: {counted} frames are free, {kept} and {in_regions} counted", self.name));
        }
        Ok(())
    }
}

/// Whether what an owner keeps in a block can be moved.
fn mobility(owner: Owner) -> Mobility {
    match owner {
        Owner::Table | Owner::Kernel => Mobility::Unmovable,
        Owner::Taken | Owner::Page(_) | Owner::Cache(_) => Mobility::Movable,
    }
}
