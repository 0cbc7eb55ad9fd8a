//! Regions go to the backing store where memory has no room for them, and come back (sections 3.4 and 5.1).

use super::gather::Blocks;
use super::names::Names;
use super::state::Controller;
use super::store::free_frames;
use crate::os::Os;
use terrace_model::{AddressRange, CacheLine, PageSize, SpaceId};
use terrace_trace::Advice;

/// Frames that are kept free, for page tables and pages of files.
pub const KEPT_FREE: u64 = 32;
/// Regions that go at most for one that comes: more than one, as page tables take memory too.
const MOST_AT_A_TIME: u64 = 2;

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
