//! The state of the memory translation layer: the blocks that are enabled, what addresses of programs they hold, and their
//! memory.

mod places;

pub use places::{Part, Places};

use super::names::{BlockNames, Name, Names};
use super::reserve::{Mapping, Reservations};
use super::rewrite::Rewrite;
use crate::translate::CountedBlock;
use crate::vbi::{MemoryLayer, SizeClass, Vbuid};
use std::collections::BTreeSet;
use std::ops::Range;
use terrace_model::{AddressRange, CacheLine, Line, SpaceId, VirtAddr};

/// A block that is enabled.
#[derive(Clone, Debug)]
pub struct Block {
    pub class: SizeClass,
    /// Storage has its bytes: a region without memory is read from there.
    pub file: bool,
    /// The process in whose page table its memory is written down.
    pub space: SpaceId,
    pub places: Places,
    pub names: BlockNames,
    /// How its memory is found.
    pub mapping: Mapping,
    /// The block's structure was replaced.
    pub rewrite: Option<Box<Rewrite>>,
    /// Misses of the last level that read its memory, since they were last asked for.
    pub misses: u64,
    /// Regions whose contents are on the backing store, by number.
    pub stored: BTreeSet<u64>,
    /// The node whose controller has it.
    pub home: u32,
    /// The block came from another node, and regions of it may lie there still.
    pub moved: bool,
    /// The other node that reads most of its memory, by a vote: a read by that node counts one, any other one less.
    pub away: (u32, u32),
}

impl Block {
    /// What it holds of a program's addresses, in the order of its offsets.
    pub fn parts(&self) -> Vec<AddressRange> {
        let part = |part: &Part| AddressRange { start: part.addr, bytes: part.end - part.first };
        self.places.iter().map(part).collect()
    }

    /// A node read a line of its memory. Returns how far that node is ahead of all others together, of late.
    pub fn vote(&mut self, node: u32) -> u32 {
        let (leading, ahead) = &mut self.away;
        if node == *leading && node != self.home {
            *ahead += 1;
            return *ahead;
        }
        if *ahead > 0 {
            *ahead -= 1;
        } else if node != self.home {
            (*leading, *ahead) = (node, 1);
            return 1;
        }
        0
    }
}

/// All blocks, by the number that the table of blocks keeps as their pointer.
#[derive(Debug, Default)]
pub struct Layer {
    pub blocks: Vec<Option<Block>>,
    free: Vec<u32>,
    pub names: Names,
    pub reservations: Reservations,
    /// Lines that have to be in memory before anything else happens.
    pub dirty: Vec<Range<CacheLine>>,
    /// Names that are given back once those are.
    outdated: Vec<(BlockNames, SizeClass)>,
    /// Blocks of another class or in another place, since this was last asked for, and how their memory was found before.
    pub grown: Vec<(u32, Mapping, SizeClass)>,
    /// Regions that left the backing store since this was last asked for, as their block or its part is gone; less those
    /// that came to it as clones.
    pub unstored: i64,
    pub clones: u64,
    pub promotions: u64,
    pub disabled: u64,
}

impl Layer {
    /// A new block. Returns its number.
    pub fn add(&mut self, class: SizeClass, file: bool, space: SpaceId) -> u32 {
        self.put(Block {
            class,
            file,
            space,
            places: Places::default(),
            names: BlockNames::new(),
            mapping: Mapping::Unknown,
            rewrite: None,
            misses: 0,
            stored: BTreeSet::new(),
            home: 0,
            moved: false,
            away: (0, 0),
        })
    }

    fn put(&mut self, block: Block) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.blocks[number as usize] = Some(block);
                number
            }
            None => {
                self.blocks.push(Some(block));
                self.blocks.len() as u32 - 1
            }
        }
    }

    /// A block by its number.
    pub fn get(&mut self, number: u32) -> Option<&mut Block> {
        self.blocks.get_mut(number as usize)?.as_mut()
    }

    /// A block is at home in a node.
    pub fn set_home(&mut self, number: u32, home: u32) {
        if let Some(block) = self.get(number) {
            block.home = home;
        }
    }

    /// The name of the line at an offset of a block.
    pub fn line(&mut self, number: u32, offset: u64) -> CacheLine {
        let Layer { blocks, names, .. } = self;
        match blocks.get_mut(number as usize).and_then(Option::as_mut) {
            Some(block) => names.line(&mut block.names, number, block.class, offset),
            None => Names::physical(Line(0)),
        }
    }

    /// The block of a line's name, the offset there, and the process and address that it stands for. None if nothing does.
    pub fn place(&self, line: CacheLine) -> Option<(u32, u64, SpaceId, VirtAddr)> {
        let Name::Block(number, offset) = self.names.resolve(line) else { return None };
        let (space, addr) = self.address_of(number, offset)?;
        Some((number, offset, space, addr))
    }

    /// A miss of the last level read a line of memory.
    #[inline]
    pub fn count_miss(&mut self, line: CacheLine) {
        if let Name::Block(number, _) = self.names.resolve(line)
            && let Some(block) = self.get(number)
        {
            block.misses += 1;
        }
    }

    /// What the blocks hold of programs' addresses, and their misses, which are counted anew from now on. What lies in no
    /// address of a program is left out.
    pub fn take_counts(&mut self) -> Vec<CountedBlock> {
        let blocks = self.blocks.iter_mut().flatten().filter(|block| !block.places.is_empty());
        blocks
            .map(|block| {
                let mut parts = block.parts();
                parts.sort_unstable_by_key(|part| part.start);
                CountedBlock { space: block.space, parts, misses: std::mem::take(&mut block.misses) }
            })
            .collect()
    }

    /// Lines that have to be in memory now; the names that went with them may be used again later.
    pub fn take_dirty(&mut self) -> Vec<Range<CacheLine>> {
        std::mem::take(&mut self.dirty)
    }

    /// Names of promoted blocks that were written back.
    pub fn release_outdated(&mut self) {
        for (mut names, class) in self.outdated.drain(..) {
            self.names.release(&mut names, class);
        }
    }

    /// A part of a block is used for nothing any more.
    pub fn remove_places(&mut self, number: u32, offsets: Range<u64>) {
        let Some(block) = self.get(number) else { return };
        block.places.remove(&offsets);
        self.unstore(number, offsets);
    }

    /// What a part of a block has on the backing store is not wanted any more.
    pub fn unstore(&mut self, number: u32, offsets: Range<u64>) {
        let Some(block) = self.get(number) else { return };
        let before = block.stored.len();
        block.stored.retain(|region| !offsets.contains(&(region << 12)));
        let gone = before - block.stored.len();
        self.unstored += gone as i64;
    }

    /// The process and address that an offset of a block stands for. None if nothing does.
    pub fn address_of(&self, number: u32, offset: u64) -> Option<(SpaceId, VirtAddr)> {
        let block = self.blocks.get(number as usize)?.as_ref()?;
        Some((block.space, block.places.address_of(offset)?))
    }
}

impl MemoryLayer for Layer {
    /// The number of the block.
    type Structure = Option<u32>;

    fn disable(&mut self, _block: Vbuid, structure: Option<u32>) {
        let Some(number) = structure else { return };
        if let Some(mut block) = self.blocks[number as usize].take() {
            self.names.release(&mut block.names, block.class);
            self.unstored += block.stored.len() as i64;
            self.reservations.give_up(number, block.mapping);
            self.free.push(number);
            self.grown.retain(|(grown, ..)| *grown != number);
            self.disabled += 1;
        }
    }

    fn invalidate_lines(&mut self, _block: Vbuid) {
        // The names of its last use are never those of this one.
    }

    fn flush_lines(&mut self, _block: Vbuid, structure: &mut Option<u32>) {
        if let Some(block) = structure.and_then(|number| self.get(number)) {
            let names = Names::ranges(&block.names, block.class);
            self.dirty.extend(names);
        }
    }

    fn clone_structure(&mut self, from: &mut Option<u32>, to: &mut Option<u32>) {
        let Some(block) = from.and_then(|number| self.get(number)) else { return };
        // Memory of the clone is the source's until it is copied, page by page, to other places.
        let mut clone = Block { names: BlockNames::new(), mapping: Mapping::Tables, ..block.clone() };
        (clone.misses, clone.rewrite) = (0, None);
        self.unstored -= clone.stored.len() as i64;
        *to = Some(self.put(clone));
        self.clones += 1;
    }

    fn promote(&mut self, from: Option<u32>, to: &mut Option<u32>) {
        // The caller names the larger class by `grown`, since the names of lines depend on it.
        *to = from;
        self.promotions += 1;
    }
}

impl Layer {
    /// A promoted block has another class. Lines of its old names are written back before the names are used again.
    pub fn grown(&mut self, number: u32, class: SizeClass) {
        let Some(block) = self.get(number) else { return };
        let old = std::mem::replace(&mut block.class, class);
        let names = std::mem::take(&mut block.names);
        let mapping = std::mem::replace(&mut block.mapping, Mapping::Tables);
        self.grown.push((number, mapping.clone(), old));
        self.reservations.give_up(number, mapping);
        self.outdated.push((names, old));
    }
}
