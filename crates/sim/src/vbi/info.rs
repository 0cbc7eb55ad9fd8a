//! The tables of blocks, one per size class (section 4.5.1). A table holds entries up to the largest block that was ever
//! enabled, so the operating system takes blocks with small numbers, those that were used before among them.

use super::VbiError;
use super::address::{SizeClass, Vbuid, VmId};
use super::properties::Properties;
use std::collections::{BTreeSet, HashMap};

/// Nodes with a controller each: the largest class has nine bits for a virtual machine's blocks.
pub const MOST_NODES: u32 = 16;

/// The record of a block. `S` is its translation structure: kind and pointer.
#[derive(Clone, Debug, Default)]
pub struct Info<S> {
    /// The block is in use.
    pub enabled: bool,
    /// What it holds and how it will be used.
    pub properties: Properties,
    /// Entries of clients' tables that point to it.
    pub references: u32,
    /// The block's translation structure.
    pub structure: S,
    /// Lines of its last use may lie in caches still.
    pub stale_lines: bool,
}

/// The entries of one class, virtual machine and node.
#[derive(Clone, Debug)]
struct Part<S> {
    entries: Vec<Info<S>>,
    /// Entries that were disabled.
    free: BTreeSet<u64>,
}

/// All tables. Where there are several nodes, the highest bits of a block's number are its home: the node whose controller
/// has its entry (section 6.2).
#[derive(Clone, Debug)]
pub struct InfoTables<S> {
    parts: HashMap<(SizeClass, VmId, u32), Part<S>>,
    /// Bits of the home.
    home_bits: u32,
    /// Where a block shall be at home that is asked for.
    near: u32,
}

impl<S: Default> Default for InfoTables<S> {
    fn default() -> InfoTables<S> {
        InfoTables { parts: HashMap::new(), home_bits: 0, near: 0 }
    }
}

impl<S: Default> InfoTables<S> {
    /// Blocks are spread over so many nodes from now on, a power of two up to [`MOST_NODES`]. There must be none yet.
    pub fn set_nodes(&mut self, nodes: u32) {
        self.home_bits = nodes.clamp(1, MOST_NODES).ilog2();
    }

    /// Blocks that are asked for from now on shall be at home in this node.
    pub fn prefer(&mut self, home: u32) {
        self.near = home & ((1 << self.home_bits) - 1);
    }

    /// The node in which blocks shall be at home that are asked for.
    pub const fn near(&self) -> u32 {
        self.near
    }

    /// The node in which a block is at home.
    pub const fn home(&self, block: Vbuid) -> u32 {
        (block.index() / self.share(block.class())) as u32
    }

    /// Blocks of a class that a node has of each virtual machine.
    const fn share(&self, class: SizeClass) -> u64 {
        class.blocks_per_vm() >> self.home_bits
    }

    fn part(&self, block: Vbuid) -> ((SizeClass, VmId, u32), usize) {
        let at = block.index() % self.share(block.class());
        ((block.class(), block.vm(), self.home(block)), at as usize)
    }

    /// The smallest free block of a virtual machine that holds so many bytes. Among those of a class the one with the
    /// smallest number in the preferred node, else in the next one that has some. Where a class has none left, one of a
    /// larger class.
    ///
    /// # Errors
    /// More than 128 TiB, or all are in use.
    pub fn smallest_free(&self, vm: VmId, bytes: u64) -> Result<Vbuid, VbiError> {
        let wanted = SizeClass::holding(bytes)?;
        let mut class = Some(wanted);
        while let Some(of) = class {
            let homes = 1 << self.home_bits;
            let free = (0..homes).find_map(|next| self.free_in(of, vm, (self.near + next) % homes));
            if let Some(block) = free {
                return Ok(block);
            }
            class = of.larger();
        }
        Err(VbiError::NoFreeBlock(wanted, vm))
    }

    /// The free block with the smallest number of a class in a node.
    pub fn free_in(&self, class: SizeClass, vm: VmId, home: u32) -> Option<Vbuid> {
        let part = self.parts.get(&(class, vm, home));
        let used = part.and_then(|part| part.free.first().copied());
        let index = used.unwrap_or(part.map_or(0, |part| part.entries.len() as u64));
        let share = self.share(class);
        (index < share).then(|| Vbuid::new(class, vm, u64::from(home) * share + index).ok())?
    }

    /// Entries that the tables of a class hold for a virtual machine.
    pub fn len(&self, class: SizeClass, vm: VmId) -> usize {
        let of_node = |home| self.parts.get(&(class, vm, home)).map_or(0, |part| part.entries.len());
        (0..1 << self.home_bits).map(of_node).sum()
    }

    /// Whether nothing was ever enabled.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The entry of an enabled block.
    ///
    /// # Errors
    /// It is not enabled.
    pub fn get(&self, block: Vbuid) -> Result<&Info<S>, VbiError> {
        let (part, at) = self.part(block);
        let info = self.parts.get(&part).and_then(|part| part.entries.get(at));
        info.filter(|info| info.enabled).ok_or(VbiError::NotEnabled(block))
    }

    /// As [`InfoTables::get`], to change the entry.
    ///
    /// # Errors
    /// It is not enabled.
    pub fn get_mut(&mut self, block: Vbuid) -> Result<&mut Info<S>, VbiError> {
        let (part, at) = self.part(block);
        let info = self.parts.get_mut(&part).and_then(|part| part.entries.get_mut(at));
        info.filter(|info| info.enabled).ok_or(VbiError::NotEnabled(block))
    }

    /// The entry of a block, made if the table does not reach so far.
    pub(super) fn entry(&mut self, block: Vbuid) -> &mut Info<S> {
        let empty = || Part { entries: Vec::new(), free: BTreeSet::new() };
        let (part, at) = self.part(block);
        let part = self.parts.entry(part).or_insert_with(empty);
        while part.entries.len() <= at {
            part.free.insert(part.entries.len() as u64);
            part.entries.push(Info::default());
        }
        part.free.remove(&(at as u64));
        &mut part.entries[at]
    }

    /// A block is free from now on; its entry stays.
    pub(super) fn release(&mut self, block: Vbuid) {
        let (part, at) = self.part(block);
        if let Some(part) = self.parts.get_mut(&part) {
            part.free.insert(at as u64);
        }
    }

    /// The structures of two enabled blocks.
    ///
    /// # Errors
    /// One of them is not enabled, or they are the same.
    pub(super) fn take_two(&mut self, one: Vbuid, other: Vbuid) -> Result<(S, S), VbiError> {
        if one == other {
            return Err(VbiError::WrongSize(one, other));
        }
        self.get(other)?;
        let first = std::mem::take(&mut self.get_mut(one)?.structure);
        let second = std::mem::take(&mut self.get_mut(other)?.structure);
        Ok((first, second))
    }
}
