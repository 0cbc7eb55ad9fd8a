//! Nodes with a controller each (section 6.2): which has a block, and blocks that move to another.

use super::gather::Blocks;
use super::names::Names;
use super::reserve::Mapping;
use super::state::Controller;
use super::swap::KEPT_FREE;
use crate::os::Os;
use crate::translate::{Backing, Given, KernelState};
use crate::vbi::VbiError;
use std::ops::Range;
use terrace_model::{AddressRange, CacheLine, LINE_BYTES, PageSize, TierId, Time};
use terrace_policy::Placement;
use terrace_trace::Advice;

impl Controller {
    /// The node that a block is at home in, as a place in the list of controllers.
    #[inline]
    pub(super) fn home(&mut self, number: u32) -> usize {
        match self.keys.nodes {
            1 => 0,
            _ => self.blocks.layer().get(number).map_or(0, |block| block.home as usize),
        }
    }

    /// The time from the core that runs now to the controller of a block, which is counted where it is another node's.
    #[inline]
    pub(super) fn hop(&mut self, number: u32) -> Time {
        if self.home(number) == self.node as usize {
            return Time::ZERO;
        }
        self.counters.remote += 1;
        self.keys.hop
    }

    /// No controller knows translations of a range of names any more.
    pub(super) fn forget_names(&mut self, names: &Range<CacheLine>) {
        self.mtls.iter_mut().for_each(|mtl| mtl.forget(names));
    }

    /// No controller knows the translation of the 4 KiB of names around a line any more.
    pub(super) fn forget_region_of(&mut self, line: CacheLine) {
        let first = CacheLine(line.0 & !63);
        self.forget_names(&(first..first + 64));
    }

    /// Memory for a block lies in the tiers of its home first.
    pub(super) fn placement_at_home(&mut self, number: u32, os: &Os) -> Placement {
        if self.keys.nodes == 1 {
            return Placement::ANYWHERE;
        }
        let home = self.home(number);
        let tiers = (0..os.tiers_of_memory().count()).filter(|tier| tier % self.keys.nodes as usize == home);
        tiers.fold(Placement::ANYWHERE, |placement, tier| placement.or(TierId(tier as u8), None))
    }

    /// A line is read from memory, where there are several nodes. The memory of a block that moved follows it.
    pub(super) fn read_by_node(&mut self, line: CacheLine, now: Time, os: &mut Os) -> Backing {
        let Some((number, _, space, addr)) = self.blocks.layer().place(line) else {
            return KernelState::backing(self, line, os);
        };
        let (node, after) = (self.node, self.keys.migrate_after);
        let Some(block) = self.blocks.layer().get(number) else {
            return KernelState::backing(self, line, os);
        };
        let (home, moved) = (block.home as usize, block.moved);
        if after > 0 && !block.file && block.vote(node) >= after {
            self.wants_to_move = Some((number, node));
            // The next access looks its block up.
            self.blocks.changed = true;
            self.settle();
        }
        let Some(leaf) = os.table(space).find(addr).filter(|_| moved) else {
            return KernelState::backing(self, line, os);
        };
        let nodes = self.keys.nodes as usize;
        let away = os.tier_of(leaf.pte.frame()).index() % nodes != home;
        let stays = leaf.size != PageSize::Base || leaf.pte.is_held() || leaf.pte.is_copy_on_write();
        let of_home = os.tiers_of_memory().enumerate().filter(|(tier, _)| tier % nodes == home);
        let has_room = of_home.map(|(_, tier)| tier.buddy().free_frames()).sum::<u64>() >= KEPT_FREE;
        if !away || stays || !has_room {
            return KernelState::backing(self, line, os);
        }
        let (from, page) = (leaf.pte.frame().line(), addr.align_down(PageSize::Base));
        let placement = self.placement_at_home(number, os);
        let before = std::mem::take(&mut os.changes);
        os.now = now;
        let dropped = os.advise(space, AddressRange::of_page(page, PageSize::Base), Advice::DontNeed);
        let given = dropped.and_then(|()| os.fault(space, page, placement.wishes()));
        let own = std::mem::replace(&mut os.changes, before);
        os.changes.reshaped |= own.reshaped;
        self.forget_region_of(line);
        match given {
            Ok(fault) => {
                self.counters.regions_moved += 1;
                let first = fault.frame.line();
                Backing::Given(Given {
                    line: first + addr.page_offset(fault.size) / LINE_BYTES,
                    first,
                    lines: PageSize::Base.bytes() / LINE_BYTES,
                    copied_from: Some(from),
                    stored: None,
                    notes_zeros: false,
                    entry: own.lines.last().map(|lines| lines.first),
                })
            }
            Err(error) => {
                self.failed.get_or_insert(error);
                Backing::Fault
            }
        }
    }

    /// Moves the block that another node reads most, if there is one.
    #[inline]
    pub(super) fn move_block(&mut self, os: &Os) {
        if let Some((number, to)) = self.wants_to_move.take() {
            self.move_block_to(number, to);
            self.replace_structures(os);
        }
    }

    #[inline(never)]
    fn move_block_to(&mut self, number: u32, to: u32) {
        let Some(block) = self.blocks.layer().get(number) else { return };
        let (names, class) = (block.names.clone(), block.class);
        if block.home == to || block.file {
            return;
        }
        // Where no block of its size is free there, it stays.
        if self.blocks.migrate(number, to).is_err() {
            return;
        }
        Names::ranges(&names, class).iter().for_each(|names| self.forget_names(names));
        self.mtls.iter_mut().for_each(|mtl| mtl.forget_runs(number));
        if let Some(block) = self.blocks.layer().get(number) {
            block.mapping = Mapping::Tables;
        }
        self.counters.blocks_moved += 1;
    }
}

impl Blocks {
    /// A block moves to another node, by a new block there. Its lines get other names, and its memory follows.
    fn migrate(&mut self, number: u32, home: u32) -> Result<(), VbiError> {
        let Some((client, index)) = self.holder(number) else { return Ok(()) };
        let block = self.system.hardware.table(client)?.get(index)?.block;
        let target = self.system.migrate(block, home)?;
        let layer = self.layer();
        // A block that moved is no larger than it was.
        layer.promotions -= 1;
        layer.grown(number, target.class());
        layer.set_home(number, home);
        if let Some(block) = layer.get(number) {
            (block.moved, block.away) = (true, (home, 0));
        }
        self.changed = true;
        Ok(())
    }
}
