//! The tables of blocks, one per size class (section 4.5.1). A table holds entries up to the largest block that was ever
//! enabled, so the operating system takes blocks with small numbers, those that were used before among them.

use super::VbiError;
use super::address::{SizeClass, Vbuid, VmId};
use super::properties::Properties;
use std::collections::{BTreeSet, HashMap};

/// What is kept of a block. `S` is its translation structure: kind and pointer.
#[derive(Clone, Debug, Default)]
pub struct Info<S> {
    /// Somebody uses it.
    pub enabled: bool,
    /// What it holds and how it will be used.
    pub properties: Properties,
    /// Entries of clients' tables that point to it.
    pub references: u32,
    /// Its translation structure.
    pub structure: S,
    /// Lines of its last use may lie in caches still.
    pub stale_lines: bool,
}

/// The entries of one class and virtual machine.
#[derive(Clone, Debug)]
struct Part<S> {
    entries: Vec<Info<S>>,
    /// Entries that were disabled.
    free: BTreeSet<u64>,
}

/// All tables.
#[derive(Clone, Debug)]
pub struct InfoTables<S> {
    parts: HashMap<(SizeClass, VmId), Part<S>>,
}

impl<S: Default> Default for InfoTables<S> {
    fn default() -> InfoTables<S> {
        InfoTables { parts: HashMap::new() }
    }
}

impl<S: Default> InfoTables<S> {
    /// The smallest free block of a virtual machine that holds so many bytes. Among those of a class the one with the
    /// smallest number; where a class has none left, one of a larger class.
    ///
    /// # Errors
    /// More than 128 TiB, or all are in use.
    pub fn smallest_free(&self, vm: VmId, bytes: u64) -> Result<Vbuid, VbiError> {
        let wanted = SizeClass::holding(bytes)?;
        let mut class = Some(wanted);
        while let Some(of) = class {
            let part = self.parts.get(&(of, vm));
            let used = part.and_then(|part| part.free.first().copied());
            let index = used.unwrap_or(part.map_or(0, |part| part.entries.len() as u64));
            if let Ok(block) = Vbuid::new(of, vm, index) {
                return Ok(block);
            }
            class = of.larger();
        }
        Err(VbiError::NoFreeBlock(wanted, vm))
    }

    /// Entries that the table of a class holds for a virtual machine.
    pub fn len(&self, class: SizeClass, vm: VmId) -> usize {
        self.parts.get(&(class, vm)).map_or(0, |part| part.entries.len())
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
        let part = self.parts.get(&(block.class(), block.vm()));
        let info = part.and_then(|part| part.entries.get(block.index() as usize));
        info.filter(|info| info.enabled).ok_or(VbiError::NotEnabled(block))
    }

    /// The same, to change it.
    ///
    /// # Errors
    /// It is not enabled.
    pub fn get_mut(&mut self, block: Vbuid) -> Result<&mut Info<S>, VbiError> {
        let part = self.parts.get_mut(&(block.class(), block.vm()));
        let info = part.and_then(|part| part.entries.get_mut(block.index() as usize));
        info.filter(|info| info.enabled).ok_or(VbiError::NotEnabled(block))
    }

    /// The entry of a block, made if the table does not reach so far.
    pub(super) fn entry(&mut self, block: Vbuid) -> &mut Info<S> {
        let empty = || Part { entries: Vec::new(), free: BTreeSet::new() };
        let part = self.parts.entry((block.class(), block.vm())).or_insert_with(empty);
        while part.entries.len() as u64 <= block.index() {
            part.free.insert(part.entries.len() as u64);
            part.entries.push(Info::default());
        }
        part.free.remove(&block.index());
        &mut part.entries[block.index() as usize]
    }

    /// A block is free from now on; its entry stays.
    pub(super) fn release(&mut self, block: Vbuid) {
        if let Some(part) = self.parts.get_mut(&(block.class(), block.vm())) {
            part.free.insert(block.index());
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
