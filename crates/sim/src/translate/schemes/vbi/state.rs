//! What the memory controller keeps for all cores: blocks, their memory, and the hardware that finds it.

use super::gather::Blocks;
use super::keys::{Reservation, VbiParameters};
use super::mtl::Mtl;
use super::names::{Name, Names};
use super::piece::RecentPieces;
use super::reserve::Mapping;
use super::store::{Swap, free_frames};
use super::wrong::Wrongs;
use crate::os::{Os, OsError, PageTable};
use crate::translate::{Backing, CountedBlock, Given, KernelState, Placer, TlbCounters};
use crate::vbi::{Rights, VbiError};
use std::ops::Range;
use terrace_model::{
    AddressRange, CacheLine, CoreId, Frame, LINE_BYTES, Line, PageNumber, PageSize, PhysAddr, SpaceId, Time,
    VirtAddr,
};
use terrace_policy::Wish;
use terrace_trace::{Advice, Event};

/// Pages whose place is remembered.
const RECENT: usize = 1024;

/// Where an address lies, and who asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct At {
    /// The entry of the client's table.
    pub entry: u64,
    pub rights: Rights,
    pub block: u32,
    /// Offset of the page in the block.
    pub offset: u64,
    /// Name of the page's first line.
    pub line: CacheLine,
}

/// The page of what is not remembered.
const NO_PAGE: PageNumber = PageNumber(u64::MAX);

#[derive(Clone, Copy, Debug)]
struct Recent {
    page: PageNumber,
    space: SpaceId,
    at: At,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub zero_lines: u64,
    pub given_at_miss: u64,
    pub given_at_writeback: u64,
    pub copied_at_writeback: u64,
    pub switches: u64,
    pub switch_reads: u64,
    pub switch_writes: u64,
    pub remote: u64,
    pub blocks_moved: u64,
    pub regions_moved: u64,
}

/// The controller's state.
#[derive(Debug)]
pub struct Controller {
    pub(super) blocks: Blocks,
    /// One for each node.
    pub(super) mtls: Vec<Mtl>,
    /// The node of the core that runs now.
    pub(super) node: u32,
    /// A block that another node reads most, and that node.
    pub(super) wants_to_move: Option<(u32, u32)>,
    pub(super) keys: VbiParameters,
    /// First address of its own tables.
    pub(super) memory: PhysAddr,
    pub(super) latency: Time,
    pub(super) at: At,
    recent: Box<[Recent]>,
    /// For pages that are not remembered.
    recent_pieces: RecentPieces,
    pub(super) counters: Counters,
    pub(super) failed: Option<OsError>,
    /// The access that comes next is the first to a page that nobody mapped.
    pub(super) in_new_stray: bool,
    /// Accesses that the program should not have made.
    pub(super) wrongs: Wrongs,
    /// The backing store.
    pub(super) swap: Swap,
}

impl Controller {
    pub(super) fn new(keys: &VbiParameters, mtls: Vec<Mtl>, memory: PhysAddr, latency: Time) -> Controller {
        let nothing = Recent { page: NO_PAGE, space: SpaceId(0), at: At::default() };
        let mut blocks = Blocks::new(keys.blocks, keys.least, keys.vms);
        blocks.system.hardware.info.set_nodes(keys.nodes);
        Controller {
            blocks,
            mtls,
            node: 0,
            wants_to_move: None,
            keys: keys.clone(),
            memory,
            latency,
            at: At::default(),
            recent: vec![nothing; RECENT].into(),
            recent_pieces: RecentPieces::default(),
            counters: Counters::default(),
            failed: None,
            in_new_stray: false,
            wrongs: Wrongs::default(),
            swap: Swap::new(keys.swap.0 >> 12),
        }
    }

    #[inline(never)]
    fn find(&mut self, space: SpaceId, addr: VirtAddr, os: &Os) -> Option<CacheLine> {
        self.move_block(os);
        let strays = self.blocks.strays;
        match self.place(space, addr, os) {
            Ok(at) => {
                self.in_new_stray = self.blocks.strays != strays;
                self.at = at;
                let slot = slot(space, addr);
                self.recent[slot] = Recent { page: addr.page_number(PageSize::Base), space, at };
                Some(at.line + addr.page_offset(PageSize::Base) / LINE_BYTES)
            }
            Err(error) => {
                self.failed.get_or_insert(error.into());
                Some(Names::physical(Line(0)))
            }
        }
    }

    fn place(&mut self, space: SpaceId, addr: VirtAddr, os: &Os) -> Result<At, VbiError> {
        let page = addr.align_down(PageSize::Base);
        let known = self.recent_pieces.find(space, page).filter(|_| !self.blocks.changed);
        let (start, piece) = match known {
            Some(known) => known,
            None => {
                let (start, piece) = self.blocks.piece(space, page, os)?;
                // The page's block may have been promoted for it.
                self.replace_structures(os);
                self.settle();
                self.recent_pieces.add(space, start, piece);
                (start, piece)
            }
        };
        let offset = piece.offset + (page - start);
        let line = self.blocks.layer().line(piece.block, offset);
        let entry = u64::from(space.0) << 32 | u64::from(piece.index.0);
        Ok(At { entry, rights: piece.rights, block: piece.block, offset, line })
    }

    /// Something changed in what pages lie where.
    pub(super) fn settle(&mut self) {
        if std::mem::take(&mut self.blocks.changed) {
            self.recent.iter_mut().for_each(|recent| recent.page = NO_PAGE);
            self.recent_pieces = RecentPieces::default();
        }
    }

    /// Memory for the region of a line. `placer` is asked in which tier it shall lie.
    fn give(
        &mut self,
        line: CacheLine,
        now: Time,
        os: &mut Os,
        mut placer: Option<&mut dyn Placer>,
        at_writeback: bool,
    ) -> Backing {
        let Some((number, offset, space, addr)) = self.blocks.layer().place(line) else {
            return Backing::Fault;
        };
        os.now = now;
        let page = addr.align_down(PageSize::Base);
        let made_room = placer.is_none() && self.make_room(os);
        if !at_writeback
            && !made_room
            && self.keys.headroom.0 > 0
            && free_frames(os) <= self.keys.headroom.0 >> 12
        {
            let error = os.out_of_memory(None);
            self.failed.get_or_insert(self.swap.explain(error));
            return Backing::Fault;
        }
        let before = std::mem::take(&mut os.changes);
        let placement = match &mut placer {
            Some(placer) => placer.place(os, space, page, at_writeback, now),
            None => self.placement_at_home(number, os),
        };
        let given = match self.keys.reservation {
            Reservation::None => os.fault(space, page, placement.wishes()),
            Reservation::Early => self.give_reserved(number, offset, (space, page), placement.wishes(), os),
        };
        if let (Some(placer), Ok(given)) = (&mut placer, &given) {
            placer.placed(os, space, page, given);
        }
        let own = std::mem::replace(&mut os.changes, before);
        os.changes.reshaped |= own.reshaped;
        match given {
            Ok(fault) => {
                let counter = match at_writeback {
                    true => &mut self.counters.given_at_writeback,
                    false => &mut self.counters.given_at_miss,
                };
                *counter += 1;
                let back = self.comes_back((number, offset), space, AddressRange::of_page(page, fault.size));
                let first = fault.frame.line();
                let within = addr.page_offset(fault.size) / LINE_BYTES;
                Backing::Given(Given {
                    line: first + within,
                    first,
                    lines: if fault.zeroed && !back { 0 } else { fault.size.bytes() / LINE_BYTES },
                    copied_from: None,
                    stored: back.then_some(self.keys.swap_read),
                    notes_zeros: self.keys.notes_zeros,
                    entry: own.lines.last().map(|lines| lines.first),
                })
            }
            Err(error) => {
                self.failed.get_or_insert(self.swap.explain(error));
                Backing::Fault
            }
        }
    }

    fn give_reserved(
        &mut self,
        number: u32,
        offset: u64,
        page: (SpaceId, VirtAddr),
        wishes: &[Wish],
        os: &mut Os,
    ) -> Result<crate::os::Fault, OsError> {
        let layer = self.blocks.layer();
        layer.reservations.settle(os);
        let Some(block) = layer.blocks.get_mut(number as usize).and_then(Option::as_mut) else {
            return Err(os.out_of_memory(None));
        };
        layer.reservations.allocate(number, block.class, &mut block.mapping, offset & !4095, page, wishes, os)
    }

    /// A block is found otherwise from now on: some of its memory does not lie where its run says.
    pub(super) fn switch(&mut self, number: u32, table: &PageTable) {
        self.counters.switches += 1;
        if let Some(block) = self.blocks.layer().get(number) {
            let (mapping, class) = (std::mem::replace(&mut block.mapping, Mapping::Tables), block.class);
            self.replace_structure(number, (&mapping, class), table);
            let layer = self.blocks.layer();
            layer.reservations.give_up(number, mapping);
        }
        self.mtls.iter_mut().for_each(|mtl| mtl.forget_runs(number));
    }

    /// A dirty line of a page that is shared since a fork leaves the caches: its block gets a copy.
    fn copy(&mut self, line: CacheLine, space: SpaceId, addr: VirtAddr, now: Time, os: &mut Os) -> Backing {
        os.now = now;
        // The page, and a table where a large page is split for it.
        self.make_room_for_system(2, os);
        let Some(leaf) = os.table(space).find(addr) else { return Backing::Fault };
        let before = std::mem::take(&mut os.changes);
        let broken = os.break_sharing(space, addr, &leaf);
        let own = std::mem::replace(&mut os.changes, before);
        os.changes.reshaped |= own.reshaped;
        self.forget_region_of(line);
        match broken {
            Ok(Some(fault)) => {
                self.counters.copied_at_writeback += 1;
                let first = fault.frame.line();
                Backing::Given(Given {
                    line: first + addr.page_offset(fault.size) / LINE_BYTES,
                    first,
                    lines: fault.size.bytes() / LINE_BYTES,
                    copied_from: fault.copied_from.map(Frame::line),
                    stored: None,
                    notes_zeros: false,
                    entry: own.lines.last().map(|lines| lines.first),
                })
            }
            Ok(None) => self.backing(line, os),
            Err(error) => {
                self.failed.get_or_insert(self.swap.explain(error));
                Backing::Fault
            }
        }
    }

    /// Follows an event of a program, which may find no block left.
    fn follow_event(&mut self, space: SpaceId, event: &Event) -> Result<Vec<AddressRange>, VbiError> {
        let blocks = &mut self.blocks;
        let gone = match event {
            Event::Map { range, .. } | Event::Unmap { range } => {
                blocks.cut(space, range.page_cover(PageSize::Base))?;
                None
            }
            Event::Remap { from, to } => {
                blocks.remap(space, from.page_cover(PageSize::Base), to.page_cover(PageSize::Base))?;
                None
            }
            Event::Protect { range, protection } => {
                blocks.protect(space, range.page_cover(PageSize::Base), *protection)?;
                None
            }
            Event::Alloc { object, site, range } => blocks.allocated(space, *object, *site, *range)?,
            Event::Realloc { object, range } => {
                let gone = blocks.freed(space, *object)?;
                let more = blocks.allocated(space, *object, 0, *range)?;
                return Ok(gone.into_iter().chain(more).collect());
            }
            Event::Free { object } => blocks.freed(space, *object)?,
            Event::Advise { range, advice: Advice::DontNeed } => {
                blocks.unstore(space, range.page_cover(PageSize::Base));
                None
            }
            _ => None,
        };
        Ok(gone.into_iter().collect())
    }
}

/// Where a page is remembered.
#[inline(always)]
fn slot(space: SpaceId, addr: VirtAddr) -> usize {
    let page = addr.vpn() ^ u64::from(space.0) << 40;
    (page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - RECENT.ilog2())) as usize
}

impl KernelState for Controller {
    fn forget(&mut self, space: SpaceId, range: AddressRange) {
        for names in self.blocks.names(space, range) {
            self.forget_names(&names);
        }
    }

    #[inline(always)]
    fn virtual_line(&mut self, space: SpaceId, addr: VirtAddr, os: &Os) -> Option<CacheLine> {
        let recent = &self.recent[slot(space, addr)];
        if recent.page == addr.page_number(PageSize::Base) && recent.space == space {
            self.at = recent.at;
            return Some(recent.at.line + addr.page_offset(PageSize::Base) / LINE_BYTES);
        }
        self.find(space, addr, os)
    }

    #[inline(always)]
    fn physical_line(&self, line: Line) -> CacheLine {
        Names::physical(line)
    }

    fn backing(&self, line: CacheLine, os: &Os) -> Backing {
        let layer = &self.blocks.system.hardware.layer;
        if let Name::Physical(line) = layer.names.resolve(line) {
            return Backing::Memory(line);
        }
        let Some((_, _, space, addr)) = layer.place(line) else { return Backing::Fault };
        match os.table(space).find(addr) {
            Some(leaf) => Backing::Memory(leaf.place_of(addr).line()),
            None => Backing::Zero,
        }
    }

    fn fill(&mut self, line: CacheLine, os: &mut Os, placer: Option<&mut dyn Placer>, now: Time) -> Backing {
        let found = match self.backing(line, os) {
            Backing::Zero if self.keys.delayed && !self.is_stored(line) => {
                self.counters.zero_lines += 1;
                return Backing::Zero;
            }
            Backing::Zero => self.give(line, now, os, placer, false),
            Backing::Memory(_) if self.keys.nodes > 1 && placer.is_none() => self.read_by_node(line, now, os),
            found => found,
        };
        self.blocks.layer().count_miss(line);
        if self.swap.is_used()
            && let Some((number, offset, ..)) = self.blocks.layer().place(line)
        {
            self.swap.read(number, offset);
        }
        found
    }

    fn evict(&mut self, line: CacheLine, os: &mut Os, placer: Option<&mut dyn Placer>, now: Time) -> Backing {
        let place = self.blocks.layer().place(line);
        let Some((_, _, space, addr)) = place else { return self.backing(line, os) };
        match os.table(space).find(addr) {
            None => self.give(line, now, os, placer, true),
            Some(leaf) if leaf.pte.is_copy_on_write() && !leaf.pte.is_held() => {
                self.copy(line, space, addr, now, os)
            }
            Some(leaf) => {
                if !leaf.pte.is_held() {
                    os.mark(space, addr, &leaf, true);
                }
                Backing::Memory(leaf.place_of(addr).line())
            }
        }
    }

    fn before_taking(&mut self, frames: u64, os: &mut Os) {
        self.make_room_for_system(frames, os);
    }

    fn take_written_out(&mut self) -> Option<Line> {
        self.swap.written_out.pop()
    }

    #[inline(always)]
    fn failed(&mut self) -> Option<OsError> {
        self.failed.take()
    }

    #[inline(always)]
    fn has_dirty_names(&self) -> bool {
        !self.blocks.system.hardware.layer.dirty.is_empty()
    }

    fn take_dirty_names(&mut self) -> Vec<Range<CacheLine>> {
        let dirty = self.blocks.layer().take_dirty();
        dirty.iter().for_each(|names| self.forget_names(names));
        dirty
    }

    fn before_event(&mut self, space: SpaceId, event: &Event, os: &mut Os) -> Vec<AddressRange> {
        let gone = match self.follow_event(space, event) {
            Ok(gone) => gone,
            Err(error) => {
                self.failed.get_or_insert(error.into());
                Vec::new()
            }
        };
        self.replace_structures(os);
        self.wrongs.apply(space, event);
        self.settle();
        self.blocks.layer().reservations.settle(os);
        gone
    }

    fn before_fork(&mut self, parent: SpaceId) -> Vec<Range<CacheLine>> {
        self.blocks.names(parent, AddressRange::new(0, u64::MAX))
    }

    fn forked(&mut self, parent: SpaceId, child: SpaceId) {
        if let Err(error) = self.blocks.forked(parent, child) {
            self.failed.get_or_insert(error.into());
        }
        self.wrongs.forked(parent, child);
        self.settle();
        // What the clones share was written back before.
        self.blocks.layer().take_dirty();
    }

    fn ended(&mut self, space: SpaceId, os: &mut Os) {
        if let Err(error) = self.blocks.ended(space) {
            self.failed.get_or_insert(error.into());
        }
        self.settle();
        self.blocks.layer().reservations.settle(os);
    }

    fn names(&mut self, space: SpaceId, range: AddressRange) -> Option<Vec<Range<CacheLine>>> {
        Some(self.blocks.names(space, range))
    }

    fn take_stale_names(&mut self) -> Vec<Range<CacheLine>> {
        let mut names = std::mem::take(&mut self.blocks.dropped);
        let layer = self.blocks.layer();
        if layer.dirty.is_empty() {
            layer.release_outdated();
        }
        let clean = layer.names.clean();
        if !clean.is_empty() {
            self.mtls.iter_mut().for_each(|mtl| mtl.tables.flush());
        }
        names.extend(clean);
        names.iter().for_each(|names| self.forget_names(names));
        names
    }

    fn take_block_counts(&mut self) -> Vec<CountedBlock> {
        self.blocks.layer().take_counts()
    }

    fn frames_set_aside(&self) -> Vec<Frame> {
        self.blocks.system.hardware.layer.reservations.frames().collect()
    }

    fn tlb_counters(&self) -> TlbCounters {
        let mut sum = TlbCounters::default();
        self.mtls.iter().for_each(|mtl| sum.add(&mtl.counters));
        sum
    }

    #[inline(always)]
    fn runs_on(&mut self, core: CoreId) {
        if self.keys.nodes > 1 {
            self.node = core.0 % self.keys.nodes;
            self.blocks.system.hardware.info.prefer(self.node);
        }
    }
}
