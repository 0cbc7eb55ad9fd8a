//! Regions on a backing store, those that memory has no room for (sections 3.4 and 5.1).
//!
//! The controller goes over the regions that have memory as a clock does: one that was read from memory since the hand came
//! by stays for another round.

use super::gather::Blocks;
use super::layer::Layer;
use super::names::Names;
use super::state::Controller;
use crate::os::{Leaf, Os, OsError};
use std::collections::{HashSet, VecDeque};
use terrace_model::{AddressRange, Bytes, CacheLine, Line, PageSize, SpaceId, VirtAddr};
use terrace_trace::Advice;

/// Frames that are kept free, for page tables and pages of files.
pub const KEPT_FREE: u64 = 32;
/// Regions that go at most for one that comes: more than one, as page tables take memory too.
const MOST_AT_A_TIME: u64 = 2;

/// A region with memory, by block and offset; its process and address; and the entry that maps it.
type Mapped = ((u32, u64), (SpaceId, VirtAddr), Leaf);

/// Frames that can be taken. Pages of files that nobody maps go on demand.
pub fn free_frames(os: &Os) -> u64 {
    os.tiers_of_memory().map(|tier| tier.buddy().free_frames() + tier.cached()).sum()
}

/// What the backing store holds, and who goes there next.
#[derive(Clone, Debug, Default)]
pub struct Swap {
    /// Regions that it holds.
    size: u64,
    /// Regions that it has room for still. Clones may take more than there is.
    room: i64,
    /// Regions with memory, by block and offset.
    clock: VecDeque<(u32, u64)>,
    /// Those of them that were read from memory since the hand came by.
    used: HashSet<(u32, u64)>,
    /// First lines of memory whose contents went there, and was not read yet.
    pub written_out: Vec<Line>,
    /// Regions that went there.
    pub out: u64,
    /// Regions that came back.
    pub back: u64,
}

impl Swap {
    /// A store for so many regions.
    pub fn new(regions: u64) -> Swap {
        Swap { size: regions, room: regions as i64, ..Swap::default() }
    }

    /// Whether there is a store.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.size > 0
    }

    /// A region got memory.
    pub fn given(&mut self, block: u32, offset: u64) {
        if self.is_used() {
            self.clock.push_back((block, offset & !4095));
        }
    }

    /// A region was read from memory.
    pub fn read(&mut self, block: u32, offset: u64) {
        if self.is_used() {
            self.used.insert((block, offset & !4095));
        }
    }

    /// Contents of so many regions are no longer on the store: they came back, or are gone.
    pub fn left(&mut self, regions: i64) {
        self.room += regions;
    }

    /// Says of memory that is full whether the store is full too.
    pub fn explain(&self, error: OsError) -> OsError {
        match error {
            OsError::OutOfMemory { resident, tiers } if self.is_used() && self.room <= 0 => {
                OsError::StoreFull { resident, tiers, store: Bytes(self.size << 12) }
            }
            error => error,
        }
    }

    /// The region whose turn it is. None where none may go.
    fn next(&mut self, layer: &Layer, os: &Os) -> Option<Mapped> {
        for _ in 0..2 * self.clock.len() {
            let region = self.clock.pop_front()?;
            // Those of blocks that are gone leave the clock.
            let Some((space, addr)) = layer.address_of(region.0, region.1) else { continue };
            let Some(leaf) = os.table(space).find(addr) else { continue };
            let stays = leaf.pte.is_held() || os.is_shared(leaf.pte.frame());
            if stays || self.used.remove(&region) {
                self.clock.push_back(region);
                continue;
            }
            return Some((region, (space, addr), leaf));
        }
        None
    }
}

impl Controller {
    /// While less memory is free than shall be, contents of regions go to the backing store. Returns whether some did.
    pub(super) fn make_room(&mut self, os: &mut Os) -> bool {
        self.swap_out(KEPT_FREE + (self.keys.headroom.0 >> 12), MOST_AT_A_TIME, os)
    }

    /// So many frames are taken in ways that know nothing of what is set aside, or of the backing store.
    pub(super) fn make_room_for_system(&mut self, frames: u64, os: &mut Os) {
        let reservations = &mut self.blocks.layer().reservations;
        while free_frames(os) < frames && reservations.steal(u32::MAX, os) {}
        if self.swap.is_used() {
            self.swap_out(KEPT_FREE + frames, frames, os);
        }
    }

    fn swap_out(&mut self, wanted: u64, most: u64, os: &mut Os) -> bool {
        if !self.swap.is_used() {
            return false;
        }
        let gone = std::mem::take(&mut self.blocks.layer().unstored);
        self.swap.left(gone);
        // As with all that the controller changes, no core holds a translation.
        let before = std::mem::take(&mut os.changes);
        let mut went = 0;
        while went < most
            && self.swap.room > 0
            && free_frames(os) + self.blocks.layer().reservations.unused() < wanted
            && self.take_one(os).is_some()
        {
            went += 1;
        }
        let own = std::mem::replace(&mut os.changes, before);
        os.changes.reshaped |= own.reshaped;
        went > 0
    }

    /// Takes the memory of one region; its contents go to the store. None where no region may go.
    fn take_one(&mut self, os: &mut Os) -> Option<()> {
        let ((number, offset), (space, addr), leaf) =
            self.swap.next(&self.blocks.system.hardware.layer, os)?;
        if leaf.size != PageSize::Base {
            // The others of a large page go one by one too.
            os.split_page(space, addr.align_down(leaf.size), PageSize::Base).ok()?;
            let others = AddressRange::of_page(addr, leaf.size).base_pages();
            let others = others.filter_map(|page| self.blocks.place_of(space, page));
            self.swap.clock.extend(others.filter(|region| *region != (number, offset)));
        }
        let first = os.table(space).find(addr)?.pte.frame().line();
        os.advise(space, AddressRange::of_page(addr, PageSize::Base), Advice::DontNeed).ok()?;
        let block = self.blocks.layer().get(number)?;
        block.stored.insert(offset >> 12);
        let names = Names::within(&block.names, block.class, offset..offset + 4096);
        names.iter().for_each(|names| self.forget_names(names));
        self.swap.room -= 1;
        self.swap.out += 1;
        self.swap.written_out.push(first);
        Some(())
    }

    /// A region was given a page of memory. Returns whether contents of the page come from the backing store.
    pub(super) fn comes_back(&mut self, region: (u32, u64), space: SpaceId, page: AddressRange) -> bool {
        if !self.swap.is_used() {
            return false;
        }
        self.swap.given(region.0, region.1);
        let is_large = page.bytes > PageSize::Base.bytes();
        let others = page.base_pages().filter(|_| is_large);
        let others = others.filter_map(|page| self.blocks.place_of(space, page));
        let all: Vec<(u32, u64)> = std::iter::once(region).chain(others).collect();
        let back = all.into_iter().filter(|(number, offset)| {
            let block = self.blocks.system.hardware.layer.get(*number);
            block.is_some_and(|block| block.stored.remove(&(offset >> 12)))
        });
        let back = back.count() as u64;
        self.swap.back += back;
        self.swap.left(back as i64);
        back > 0
    }

    /// Whether the contents of a line's region are on the backing store.
    #[inline]
    pub(super) fn is_stored(&mut self, line: CacheLine) -> bool {
        self.swap.is_used()
            && self.blocks.layer().place(line).is_some_and(|(number, offset, ..)| {
                self.blocks.layer().get(number).is_some_and(|block| block.stored.contains(&(offset >> 12)))
            })
    }
}

impl Blocks {
    /// What a range has on the backing store is not wanted any more.
    pub fn unstore(&mut self, space: SpaceId, range: AddressRange) {
        if let Ok(inside) = self.inside(space, range) {
            for (start, piece) in inside {
                self.layer().unstore(piece.block, piece.offset..piece.offset + (piece.end - start));
            }
        }
    }
}
