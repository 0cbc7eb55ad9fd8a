//! Which block each address of a program lies in. A program of the interface would ask for blocks and carry their indices in
//! its pointers; a recorded program maps areas and allocates in them, so its addresses are gathered into blocks.

use super::keys::Gather;
use super::layer::Layer;
use super::names::Names;
use super::piece::Piece;
use crate::os::Os;
use crate::vbi::{ClientId, Index, Properties, Property, Rights, SizeClass, System, VbiError, VmId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use terrace_model::{AddressRange, Bytes, CacheLine, PageSize, SpaceId, VirtAddr};
use terrace_trace::{MapKind, Protection};

/// An allocation with pages in a block of its own, or of its like.
#[derive(Clone, Copy, Debug)]
struct Object {
    pages: AddressRange,
    index: Index,
    /// The object's offset where others are in the block too.
    pooled: Option<u64>,
}

/// A process.
#[derive(Clone, Debug)]
struct Space {
    client: ClientId,
    pieces: BTreeMap<VirtAddr, Piece>,
    /// Blocks of areas, by the address of their first byte: index, and end of the area when it became a block.
    areas: BTreeMap<VirtAddr, (Index, VirtAddr)>,
    /// Blocks of allocations that are alike, by what they have in common.
    pools: HashMap<u64, Index>,
    objects: HashMap<u64, Object>,
    /// Pieces of each index.
    held: HashMap<Index, u32>,
}

/// All processes.
#[derive(Debug)]
pub struct Blocks {
    pub system: System<Layer>,
    gather: Gather,
    least: Bytes,
    /// Virtual machines that processes are in by turns; none on the host.
    vms: u32,
    /// A bit for each virtual machine that a process was in.
    pub used_vms: u32,
    spaces: Vec<Option<Space>>,
    /// Lines of blocks' parts that were given back, which must leave the caches now.
    pub dropped: Vec<Range<CacheLine>>,
    /// Something that [`Piece`]s say changed.
    pub changed: bool,
    /// Accesses to addresses that nobody mapped.
    pub strays: u64,
}

fn rights(protection: Protection) -> Rights {
    Rights { read: protection.read, write: protection.write, execute: protection.execute }
}

/// Where the first byte of a piece's block would lie.
fn block_start(start: VirtAddr, piece: Piece) -> VirtAddr {
    VirtAddr(start.0.wrapping_sub(piece.offset))
}

impl Blocks {
    pub fn new(gather: Gather, least: Bytes, vms: u32) -> Blocks {
        let system = System::new(Layer::default());
        let (spaces, dropped) = (Vec::new(), Vec::new());
        Blocks { system, gather, least, vms, used_vms: 0, spaces, dropped, changed: false, strays: 0 }
    }

    pub fn layer(&mut self) -> &mut Layer {
        &mut self.system.hardware.layer
    }

    fn space(&mut self, space: SpaceId) -> Result<&mut Space, VbiError> {
        let at = space.index();
        if self.spaces.len() <= at {
            self.spaces.resize_with(at + 1, || None);
        }
        if self.spaces[at].is_none() {
            let vm = VmId::new(if self.vms == 0 { 0 } else { 1 + space.0 % self.vms })?;
            let client = self.system.new_client(vm)?;
            self.used_vms |= 1 << vm.number();
            self.spaces[at] = Some(Space {
                client,
                pieces: BTreeMap::new(),
                areas: BTreeMap::new(),
                pools: HashMap::new(),
                objects: HashMap::new(),
                held: HashMap::new(),
            });
        }
        self.spaces[at].as_mut().ok_or(VbiError::NoFreeClient(VmId::HOST))
    }

    /// The piece that holds an address, with its first address. An address in no block gets the one of its area.
    ///
    /// # Errors
    /// No block is left.
    pub fn piece(&mut self, space: SpaceId, addr: VirtAddr, os: &Os) -> Result<(VirtAddr, Piece), VbiError> {
        if let Some((start, piece)) = self.space(space)?.pieces.range(..=addr).next_back()
            && piece.end > addr
        {
            return Ok((*start, *piece));
        }
        self.area_block(space, addr, os)
    }

    fn area_block(&mut self, space: SpaceId, addr: VirtAddr, os: &Os) -> Result<(VirtAddr, Piece), VbiError> {
        let area = os.areas(space).find(addr);
        self.strays += u64::from(area.is_none());
        let (start, end, allowed, kind) = match area {
            Some((start, area)) => (start, area.end, rights(area.protection), area.kind),
            None => {
                let page = AddressRange::of_page(addr, PageSize::Base);
                (page.start, page.end(), Rights::READ_WRITE, MapKind::Anonymous)
            }
        };
        let own = self.space(space)?;
        let client = own.client;
        let next_area = own.areas.range(addr + 1..).next().map_or(VirtAddr(u64::MAX), |(base, _)| *base);
        let held = own.areas.range(start..=addr).next_back().map(|(base, (index, _))| (*base, *index));
        let end = end.min(next_area);
        let (base, index) = match held {
            Some((base, index)) => {
                let block = self.system.hardware.table(client)?.get(index)?.block;
                if addr - base >= block.bytes() {
                    self.promote(space, index, end - base)?;
                }
                (base, index)
            }
            None => {
                // More than the largest block holds: the part around the address.
                let largest = SizeClass::ALL[7].bytes();
                let base =
                    if end - start > largest { start.max(VirtAddr(addr.0 & !(largest - 1))) } else { start };
                let file = matches!(kind, MapKind::PrivateFile | MapKind::SharedFile);
                let mut properties = if file { Properties::of(&[Property::File]) } else { Properties::NONE };
                if allowed.execute {
                    properties = properties.with(Property::Code);
                }
                let bytes = (end - base).min(largest);
                let index = self.request(space, bytes, properties, allowed)?;
                if matches!(kind, MapKind::SharedAnonymous | MapKind::SharedFile) {
                    self.system.keep_shared(client, index)?;
                }
                self.space(space)?.areas.insert(base, (index, end));
                (base, index)
            }
        };
        let entry = self.system.hardware.table(client)?.get(index)?;
        let number = self.number(client, index)?;
        let own = self.space(space)?;
        let before = own.pieces.range(..=addr).next_back().map_or(VirtAddr(0), |(_, piece)| piece.end);
        let after = own.pieces.range(addr + 1..).next().map_or(VirtAddr(u64::MAX), |(start, _)| *start);
        let first = base.max(before).max(start);
        let end = end.min(after).min(base.saturating_add(entry.block.bytes()));
        let piece = Piece { end, block: number, offset: first - base, index, rights: allowed };
        self.insert(space, first, piece)?;
        Ok((first, piece))
    }

    /// A new block for a process. Returns its index.
    fn request(
        &mut self,
        space: SpaceId,
        bytes: u64,
        properties: Properties,
        allowed: Rights,
    ) -> Result<Index, VbiError> {
        let client = self.space(space)?.client;
        let index = self.system.request(client, bytes, properties, allowed)?;
        let block = self.system.hardware.table(client)?.get(index)?.block;
        let file = properties.has(Property::File);
        let number = self.layer().add(block.class(), file, space);
        let home = self.system.hardware.info.home(block);
        self.layer().set_home(number, home);
        self.system.hardware.info.get_mut(block)?.structure = Some(number);
        Ok(index)
    }

    fn number(&mut self, client: ClientId, index: Index) -> Result<u32, VbiError> {
        let block = self.system.hardware.table(client)?.get(index)?.block;
        self.system.hardware.info.get(block)?.structure.ok_or(VbiError::NotEnabled(block))
    }

    fn promote(&mut self, space: SpaceId, index: Index, bytes: u64) -> Result<(), VbiError> {
        let client = self.space(space)?.client;
        self.system.promote(client, index, bytes)?;
        self.grown(client, index)
    }

    /// The block of an index was promoted.
    fn grown(&mut self, client: ClientId, index: Index) -> Result<(), VbiError> {
        let block = self.system.hardware.table(client)?.get(index)?.block;
        let number = self.number(client, index)?;
        self.layer().grown(number, block.class());
        let home = self.system.hardware.info.home(block);
        self.layer().set_home(number, home);
        self.changed = true;
        Ok(())
    }

    /// The client and index that a block is found by. None where no process has it.
    pub fn holder(&self, number: u32) -> Option<(ClientId, Index)> {
        let holds =
            |own: &Space| own.pieces.values().find(|piece| piece.block == number).map(|piece| piece.index);
        self.spaces.iter().flatten().find_map(|own| Some((own.client, holds(own)?)))
    }

    fn insert(&mut self, space: SpaceId, start: VirtAddr, piece: Piece) -> Result<(), VbiError> {
        let own = self.space(space)?;
        own.pieces.insert(start, piece);
        *own.held.entry(piece.index).or_default() += 1;
        if let Some(block) = self.layer().get(piece.block) {
            block.places.insert(piece.part(start));
        }
        self.changed = true;
        Ok(())
    }

    /// An index has a piece less. With the last one the process gives the block back.
    fn let_go(&mut self, space: SpaceId, index: Index) -> Result<bool, VbiError> {
        let own = self.space(space)?;
        let count = own.held.entry(index).or_default();
        *count = count.saturating_sub(1);
        if *count > 0 {
            return Ok(false);
        }
        own.held.remove(&index);
        own.areas.retain(|_, (of, _)| *of != index);
        own.pools.retain(|_, of| *of != index);
        let client = own.client;
        self.system.release(client, index)?;
        Ok(true)
    }

    /// Makes both ends of a range ends of pieces.
    fn split(&mut self, space: SpaceId, range: AddressRange) -> Result<(), VbiError> {
        for cut in [range.start, range.end()] {
            let own = self.space(space)?;
            let holder = own.pieces.range(..cut).next_back().map(|(start, piece)| (*start, *piece));
            let Some((start, piece)) = holder.filter(|(_, piece)| piece.end > cut) else { continue };
            own.pieces.insert(start, Piece { end: cut, ..piece });
            own.pieces.insert(cut, Piece { offset: piece.offset + (cut - start), ..piece });
            *own.held.entry(piece.index).or_default() += 1;
        }
        Ok(())
    }

    pub(super) fn inside(
        &mut self,
        space: SpaceId,
        range: AddressRange,
    ) -> Result<Vec<(VirtAddr, Piece)>, VbiError> {
        self.split(space, range)?;
        let inside = self.space(space)?.pieces.range(range.start..range.end());
        Ok(inside.map(|(start, piece)| (*start, *piece)).collect())
    }

    /// Addresses of a range lie in no block any more. Returns whether some did.
    pub fn cut(&mut self, space: SpaceId, range: AddressRange) -> Result<bool, VbiError> {
        let inside = self.inside(space, range)?;
        for (start, piece) in &inside {
            self.space(space)?.pieces.remove(start);
            let offsets = piece.offset..piece.offset + (piece.end - *start);
            self.layer().remove_places(piece.block, offsets.clone());
            if !self.let_go(space, piece.index)?
                && let Some(block) = self.layer().get(piece.block)
            {
                let names = Names::within(&block.names, block.class, offsets);
                self.dropped.extend(names);
            }
        }
        self.changed = true;
        Ok(!inside.is_empty())
    }

    /// Addresses get other rights: an entry of its own in the process's table for the part of a block that they are.
    pub fn protect(
        &mut self,
        space: SpaceId,
        range: AddressRange,
        protection: Protection,
    ) -> Result<(), VbiError> {
        let (allowed, mut entries) = (rights(protection), HashMap::new());
        for (start, piece) in self.inside(space, range)? {
            if piece.rights == allowed {
                continue;
            }
            let client = self.space(space)?.client;
            let index = match entries.get(&piece.index) {
                Some(index) => *index,
                None => {
                    let entry = self.system.hardware.table(client)?.get(piece.index)?;
                    let index = self.system.hardware.attach(client, entry.block, allowed)?;
                    if entry.shared {
                        self.system.keep_shared(client, index)?;
                    }
                    entries.insert(piece.index, index);
                    index
                }
            };
            let own = self.space(space)?;
            own.pieces.insert(start, Piece { index, rights: allowed, ..piece });
            *own.held.entry(index).or_default() += 1;
            // The block's name as an area goes with the entry that most of it has.
            let last = own.held.get(&piece.index) == Some(&1);
            if last {
                own.areas.values_mut().filter(|(of, _)| *of == piece.index).for_each(|(of, _)| *of = index);
                own.pools.values_mut().filter(|of| **of == piece.index).for_each(|of| *of = index);
            }
            self.let_go(space, piece.index)?;
        }
        self.changed = true;
        Ok(())
    }

    /// Addresses move; their blocks stay what they are.
    pub fn remap(&mut self, space: SpaceId, from: AddressRange, to: AddressRange) -> Result<(), VbiError> {
        if from.start == to.start {
            if to.bytes < from.bytes {
                self.cut(space, AddressRange::between(to.end(), from.end()))?;
            }
            return Ok(());
        }
        self.cut(space, to)?;
        for (start, piece) in self.inside(space, from)? {
            let moved = to.start + (start - from.start);
            let own = self.space(space)?;
            own.pieces.remove(&start);
            if moved >= to.end() {
                self.let_go(space, piece.index)?;
                continue;
            }
            let end = (moved + (piece.end - start)).min(to.end());
            let moved_piece = Piece { end, ..piece };
            own.pieces.insert(moved, moved_piece);
            if let Some((index, old_end)) = own.areas.remove(&block_start(start, piece)) {
                own.areas.insert(block_start(moved, piece), (index, old_end));
            }
            self.layer().remove_places(piece.block, piece.offset..piece.offset + (piece.end - start));
            if let Some(block) = self.layer().get(piece.block) {
                block.places.insert(moved_piece.part(moved));
            }
        }
        self.changed = true;
        Ok(())
    }

    /// A data structure was allocated. Returns the pages that held something else before: it goes.
    pub fn allocated(
        &mut self,
        space: SpaceId,
        object: u64,
        site: u32,
        range: AddressRange,
    ) -> Result<Option<AddressRange>, VbiError> {
        let pages = range.pages_by_middle();
        if self.gather == Gather::Area || range.bytes < self.least.0 || pages.bytes == 0 {
            return Ok(None);
        }
        if self.has_area_of_its_own(space, pages)? {
            return Ok(None);
        }
        let class = SizeClass::holding(pages.bytes)?;
        let had = self.cut(space, pages)?;
        let shared_by = match self.gather {
            Gather::Site => Some(u64::from(site)),
            Gather::Pool => Some(class.number() as u64),
            Gather::Allocation | Gather::Area => None,
        };
        let (index, offset) = match shared_by {
            None => (self.request(space, pages.bytes, Properties::NONE, Rights::READ_WRITE)?, 0),
            Some(key) => {
                let index = match self.space(space)?.pools.get(&key) {
                    Some(index) => *index,
                    None => {
                        let index = self.request(space, pages.bytes, Properties::NONE, Rights::READ_WRITE)?;
                        self.space(space)?.pools.insert(key, index);
                        index
                    }
                };
                let client = self.space(space)?.client;
                let before = self.system.hardware.table(client)?.get(index)?.block.class();
                let offset = self.system.malloc(client, index, pages.bytes)?;
                if self.system.hardware.table(client)?.get(index)?.block.class() != before {
                    self.grown(client, index)?;
                }
                (index, offset)
            }
        };
        let client = self.space(space)?.client;
        let block = self.number(client, index)?;
        let piece = Piece { end: pages.end(), block, offset, index, rights: Rights::READ_WRITE };
        self.insert(space, pages.start, piece)?;
        let pooled = shared_by.map(|_| offset);
        self.space(space)?.objects.insert(object, Object { pages, index, pooled });
        Ok(had.then_some(pages))
    }

    /// Whether the block around these pages holds little else: the allocator mapped them for this allocation.
    fn has_area_of_its_own(&mut self, space: SpaceId, pages: AddressRange) -> Result<bool, VbiError> {
        let own = self.space(space)?;
        let Some((base, (_, end))) = own.areas.range(..=pages.start).next_back() else { return Ok(false) };
        Ok(*end >= pages.end() && *end - *base <= 2 * pages.bytes)
    }

    /// A data structure was freed. Returns its pages, whose memory goes.
    pub fn freed(&mut self, space: SpaceId, object: u64) -> Result<Option<AddressRange>, VbiError> {
        let own = self.space(space)?;
        let Some(Object { pages, index, pooled }) = own.objects.remove(&object) else { return Ok(None) };
        let client = own.client;
        if let Some(offset) = pooled {
            self.system.free(client, index, offset)?;
        }
        Ok(self.cut(space, pages)?.then_some(pages))
    }

    /// The block that an address lies in, and its offset there. None where it is in none yet.
    pub fn place_of(&self, space: SpaceId, addr: VirtAddr) -> Option<(u32, u64)> {
        let own = self.spaces.get(space.index())?.as_ref()?;
        let (start, piece) = own.pieces.range(..=addr).next_back()?;
        (piece.end > addr).then(|| (piece.block, piece.offset + (addr - *start)))
    }

    /// The names of a range's lines.
    pub fn names(&mut self, space: SpaceId, range: AddressRange) -> Vec<Range<CacheLine>> {
        let Ok(own) = self.space(space) else { return Vec::new() };
        let before = own.pieces.range(..=range.start).next_back().map(|(start, _)| *start);
        let first = before.unwrap_or(range.start);
        let pieces = own.pieces.range(first..range.end().max(first));
        let pieces: Vec<(VirtAddr, Piece)> = pieces.map(|(start, piece)| (*start, *piece)).collect();
        let mut names = Vec::new();
        for (start, piece) in pieces {
            let (from, to) = (start.max(range.start), piece.end.min(range.end()));
            if from < to
                && let Some(block) = self.layer().get(piece.block)
            {
                let offsets = piece.offset + (from - start)..piece.offset + (to - start);
                names.extend(Names::within(&block.names, block.class, offsets));
            }
        }
        names
    }

    /// A process was forked from another.
    pub fn forked(&mut self, parent: SpaceId, child: SpaceId) -> Result<(), VbiError> {
        let client = self.space(parent)?.client;
        let mut own = self.space(parent)?.clone();
        let clone = self.system.fork(client)?;
        own.client = clone;
        let mut numbers = HashMap::new();
        for index in own.held.keys() {
            numbers.insert(*index, self.number(clone, *index)?);
        }
        for piece in own.pieces.values_mut() {
            let number = numbers.get(&piece.index).copied().unwrap_or(piece.block);
            if number != piece.block {
                piece.block = number;
                if let Some(block) = self.layer().get(number) {
                    block.space = child;
                }
            }
        }
        let at = child.index();
        if self.spaces.len() <= at {
            self.spaces.resize_with(at + 1, || None);
        }
        self.spaces[at] = Some(own);
        self.changed = true;
        Ok(())
    }

    /// A process is gone. Blocks that others have too are found in their page tables from now on.
    pub fn ended(&mut self, space: SpaceId) -> Result<(), VbiError> {
        let Some(own) = self.spaces.get_mut(space.index()).and_then(Option::take) else { return Ok(()) };
        self.system.exit(own.client)?;
        self.changed = true;
        let Blocks { spaces, system, .. } = self;
        for (other, own) in (0..).zip(spaces.iter()) {
            for (start, piece) in own.iter().flat_map(|own| &own.pieces) {
                if let Some(block) = system.hardware.layer.get(piece.block)
                    && block.space == space
                {
                    block.space = SpaceId(other);
                    block.places.insert(piece.part(*start));
                }
            }
        }
        Ok(())
    }

    /// Blocks in use.
    pub fn in_use(&self) -> u64 {
        self.system.hardware.layer.blocks.iter().flatten().count() as u64
    }
}
