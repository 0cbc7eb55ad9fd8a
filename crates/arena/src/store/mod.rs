//! A store: memory that is taken once, in the largest pages that can be had, and given out in pages of 4 KiB, 2 MiB and 1
//! GiB that can be moved.
//!
//! What is given out is named by a handle, and lies where it lies until the store is compacted; who needs its address for
//! longer pins it. So large blocks become free again where small pages were freed here and there: for a page of 2 MiB
//! or 1 GiB, or to go back to the kernel, whose pages of 1 GiB go back whole or not at all.
//!
//! The allocator is that of the simulated operating system (`crates/buddy`): blocks up to order 18, with counters of free
//! and of pinned frames per region. Compaction is Trident's, smart by those counters, or Linux's by two cursors: the same
//! source as in the simulator (`crates/policy/src/support/compaction`), to which the store is a memory with frames
//! (`StoreFrames`). Pages of 2 MiB are moved without a copy (`UFFDIO_MOVE`, Linux 6.8), 4 KiB are copied, which is faster.

mod frames;

use crate::memory::{Memory, Pages};
use crate::system;
use crate::{BASE, HUGE};
use frames::StoreFrames;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use terrace_buddy::{Buddy, Mobility, Shape};
use terrace_model::{Frame, PageSize, TierId, Time};
use terrace_policy::Moment;
pub use terrace_policy::support::Compaction;
use terrace_policy::support::{Compactor, Progress, SmartLimits, Unmovable};

/// Order of the largest block: 1 GiB.
const MAX_ORDER: u32 = 18;
/// Smart compaction tries so many regions (Trident, released), and one again at the next call: nobody calls it in vain.
const LIMITS: SmartLimits = SmartLimits { retries: 5, timeout: Time::ZERO, unmovable: Unmovable::Counter };

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No block of this size is free.
    Full,
    /// Nothing has this handle.
    NoHandle,
    /// The page is pinned, or was not.
    Pinned,
}

/// A page that was given out.
#[derive(Clone, Copy, Debug)]
struct Page {
    first: u64,
    size: PageSize,
    pins: u32,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// A block of the wanted size is free.
    pub is_free: bool,
    /// Bytes that were copied or moved.
    pub moved: u64,
    /// Bytes that were copied or moved out of regions that could not be emptied.
    pub wasted: u64,
}

/// A region of the store: an aligned run of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Bytes of it that are free.
    pub free: usize,
    /// Bytes that are pinned.
    pub pinned: usize,
}

/// The store. Its memory goes when it ends.
#[derive(Debug)]
pub struct Store {
    memory: Memory,
    buddy: Buddy,
    /// Pages by their handles.
    pages: Vec<Option<Page>>,
    free_handles: Vec<u32>,
    /// Handles by first frame.
    at: BTreeMap<u64, u32>,
    /// First frames of the gibibytes that had pages of 1 GiB and have smaller ones by now.
    replaced: BTreeSet<u64>,
    /// Compactors keep their cursors.
    compactors: [Compactor; 2],
    began: u64,
}

impl Store {
    /// A store of at least so many bytes, in pages of the size that is wished for or the next smaller one.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn new(bytes: usize, wish: Pages) -> Result<Store, c_int> {
        let memory = Memory::new(bytes, wish)?;
        let compactors = [Compaction::Smart, Compaction::Normal].map(|kind| Compactor::new(kind, LIMITS));
        Ok(Store {
            buddy: Store::buddy(memory.bytes()),
            memory,
            pages: Vec::new(),
            free_handles: Vec::new(),
            at: BTreeMap::new(),
            replaced: BTreeSet::new(),
            compactors,
            began: system::now(),
        })
    }

    fn buddy(bytes: usize) -> Buddy {
        let shape =
            Shape { max_order: MAX_ORDER, last_freed_first: false, grouping: false, pageblock_order: 9 };
        Buddy::new((bytes / BASE) as u64, shape)
    }

    /// The memory's size, and the pages that it has, or had before it was trimmed.
    pub fn memory(&self) -> (usize, Pages) {
        (self.memory.bytes(), self.memory.pages())
    }

    /// A page; what it holds is not defined. Returns its handle.
    ///
    /// # Errors
    /// No block of this size is free: compaction may help.
    pub fn allocate(&mut self, size: PageSize) -> Result<u32, Problem> {
        let (first, _) = self.buddy.allocate(size.order(), Mobility::Movable).ok_or(Problem::Full)?;
        let handle = self.free_handles.pop().unwrap_or(self.pages.len() as u32);
        if handle as usize == self.pages.len() {
            self.pages.push(None);
        }
        self.pages[handle as usize] = Some(Page { first, size, pins: 0 });
        self.at.insert(first, handle);
        Ok(handle)
    }

    fn page(&self, handle: u32) -> Result<Page, Problem> {
        self.pages.get(handle as usize).copied().flatten().ok_or(Problem::NoHandle)
    }

    /// Gives a page back.
    ///
    /// # Errors
    /// It is pinned, or there is none.
    pub fn release(&mut self, handle: u32) -> Result<(), Problem> {
        let page = self.page(handle)?;
        if page.pins > 0 {
            return Err(Problem::Pinned);
        }
        self.buddy.release(page.first, page.size.order(), Mobility::Movable);
        self.at.remove(&page.first);
        self.pages[handle as usize] = None;
        self.free_handles.push(handle);
        Ok(())
    }

    /// Where a page lies now: until the next compaction, unless it is pinned. And its size.
    ///
    /// # Errors
    /// There is none.
    pub fn resolve(&self, handle: u32) -> Result<(*mut u8, PageSize), Problem> {
        let page = self.page(handle)?;
        // SAFETY: Within the memory.
        Ok((unsafe { self.memory.start().add(page.first as usize * BASE) }, page.size))
    }

    /// As [`Store::resolve`]; the page stays there until it is unpinned as often as it was pinned.
    ///
    /// # Errors
    /// There is none.
    pub fn pin(&mut self, handle: u32) -> Result<*mut u8, Problem> {
        self.count_pins(handle, |pins| pins.checked_add(1))?;
        self.resolve(handle).map(|(start, _)| start)
    }

    /// Takes one pin off a page, which may be moved again once it was unpinned as often as pinned.
    ///
    /// # Errors
    /// There is none, or it was not pinned.
    pub fn unpin(&mut self, handle: u32) -> Result<(), Problem> {
        self.count_pins(handle, |pins| pins.checked_sub(1))
    }

    fn count_pins(&mut self, handle: u32, change: impl Fn(u32) -> Option<u32>) -> Result<(), Problem> {
        let page = self.page(handle)?;
        let pins = change(page.pins).ok_or(Problem::Pinned)?;
        self.pages[handle as usize] = Some(Page { pins, ..page });
        let of = |pins: u32| if pins > 0 { Mobility::Unmovable } else { Mobility::Movable };
        if of(pins) != of(page.pins) {
            // The counters of its region follow.
            self.buddy.release(page.first, page.size.order(), of(page.pins));
            let taken = self.buddy.take_at(page.first, page.size.order(), of(pins));
            debug_assert!(taken, "what was just given back");
        }
        Ok(())
    }

    /// Blocks of a size that are free, parts of larger ones included.
    pub fn free_blocks(&self, size: PageSize) -> u64 {
        self.buddy.free_blocks(size.order()).0
    }

    /// The share of free memory that lies in blocks too small for a page of this size, 0 to 1.
    pub fn fragmentation(&self, size: PageSize) -> f64 {
        self.buddy.fragmentation_index(size.order())
    }

    /// The regions of a size of 2 MiB or more, by address.
    pub fn regions(&self, size: PageSize) -> Vec<Region> {
        let step = size.base_pages();
        let bytes = |frames: u64| frames as usize * BASE;
        let firsts = (0..self.buddy.frames()).step_by(step as usize);
        let counted = firsts.map(|first| self.buddy.region(first, step.min(self.buddy.frames() - first)));
        counted.map(|(free, pinned)| Region { free: bytes(free), pinned: bytes(pinned) }).collect()
    }

    /// Moves pages until a block of `size` is free, unless one is. Handles stay, addresses of what is not pinned do not.
    ///
    /// # Safety
    /// Nobody uses an address of a page that is not pinned, meanwhile or afterwards.
    pub unsafe fn compact(&mut self, kind: Compaction, size: PageSize) -> Compacted {
        let at = match kind {
            Compaction::Smart => 0,
            Compaction::Normal => 1,
            Compaction::None => {
                return Compacted { is_free: self.free_blocks(size) > 0, ..Compacted::default() };
            }
        };
        if self.free_blocks(size) > 0 {
            return Compacted { is_free: true, ..Compacted::default() };
        }
        let mut compactor = self.compactors[at].clone();
        let (before, began) = (compactor.work(), self.began);
        let now = || Moment(system::now() - began);
        let mut frames = StoreFrames::new(self);
        let mut progress = compactor.start(TierId(0), size, now(), &mut frames);
        while progress == Progress::Working {
            let Some(signal) = frames.carry_out() else { break };
            progress = compactor.handle(&signal, now(), &mut frames).unwrap_or(progress);
        }
        drop(frames);
        let work = compactor.work();
        self.compactors[at] = compactor;
        Compacted {
            is_free: self.free_blocks(size) > 0,
            moved: work.copied - before.copied,
            wasted: work.wasted - before.wasted,
        }
    }

    /// Gives free memory back to the kernel: blocks of 2 MiB, or of 1 GiB where the pages are as large. It stays the store's
    /// and comes back when it is used. Returns the bytes.
    ///
    /// A page of 1 GiB goes back to the kernel's pool, and memory in pages of 2 MiB takes its place: others may have the
    /// page now, and where the pool is empty, a store to such memory would end the program.
    pub fn trim(&mut self) -> usize {
        let mut given = 0;
        let free: Vec<(u64, u32)> =
            self.buddy.blocks().filter(|(_, order)| *order >= PageSize::Huge.order()).collect();
        for (first, order) in free {
            let bytes = BASE << order;
            if !self.is_giant(first) {
                // SAFETY: Nobody has it.
                let gone =
                    unsafe { libc::madvise(self.address(Frame(first)).cast(), bytes, libc::MADV_DONTNEED) };
                given += if gone == 0 { bytes } else { 0 };
            } else if order == MAX_ORDER && self.replace(first, bytes) {
                given += bytes;
            }
        }
        given
    }

    /// Whether the frame is part of a page of 1 GiB.
    fn is_giant(&self, frame: u64) -> bool {
        self.memory.pages() == Pages::Giant && !self.replaced.contains(&(frame >> MAX_ORDER << MAX_ORDER))
    }

    /// Other memory takes the place of a free page of 1 GiB.
    fn replace(&mut self, first: u64, bytes: usize) -> bool {
        let start = self.address(Frame(first)) as usize;
        // SAFETY: Memory of the store that nobody has.
        if unsafe { system::map_over(start, bytes) }.is_err() {
            // Where the kernel has unmapped it before it failed, nobody shall get it.
            if !system::is_mapped(start) {
                self.buddy.take_at(first, MAX_ORDER, Mobility::Unmovable);
            }
            return false;
        }
        system::advise_huge(start, bytes);
        self.replaced.insert(first);
        true
    }

    fn address(&self, frame: Frame) -> *mut u8 {
        // SAFETY: Within the memory.
        unsafe { self.memory.start().add(frame.0 as usize * BASE) }
    }

    /// Moves a page to a free block: whether it is there now.
    fn relocate(&mut self, from: Frame, to: Frame) -> bool {
        let Some(handle) = self.at.get(&from.0).copied() else { return false };
        let Ok(page) = self.page(handle) else { return false };
        let order = page.size.order();
        if page.pins > 0 || !self.buddy.take_at(to.0, order, Mobility::Movable) {
            return false;
        }
        let (source, target) = (self.address(from), self.address(to));
        let bytes = page.size.bytes() as usize;
        // SAFETY: The page is at one place and nothing at the other; neither is used by anybody, as `compact` is promised.
        unsafe {
            let moved = if bytes >= HUGE && !self.is_giant(from.0) && !self.is_giant(to.0) {
                libc::madvise(target.cast(), bytes, libc::MADV_DONTNEED);
                crate::exchange::shift(source, target, bytes)
            } else {
                0
            };
            std::ptr::copy_nonoverlapping(source.add(moved), target.add(moved), bytes - moved);
        }
        self.buddy.release(from.0, order, Mobility::Movable);
        self.at.remove(&from.0);
        self.at.insert(to.0, handle);
        self.pages[handle as usize] = Some(Page { first: to.0, ..page });
        true
    }
}

#[cfg(test)]
mod tests;
