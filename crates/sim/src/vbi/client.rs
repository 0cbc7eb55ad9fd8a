//! Clients and their tables of blocks (section 4.1.2). A program's pointers are an index in its client's table and an
//! offset: what an index points to can be changed without a change of any pointer.

use super::VbiError;
use super::address::{Vbuid, VmId};

/// Clients of one virtual machine: 16 bits name a client, five of them its virtual machine as in a block's name.
const CLIENTS_PER_VM: u32 = 1 << 11;

/// A process, an operating system, or a process of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u16);

impl ClientId {
    /// Client `index` of a virtual machine.
    ///
    /// # Errors
    /// The virtual machine has not so many.
    pub fn new(vm: VmId, index: u32) -> Result<ClientId, VbiError> {
        if index >= CLIENTS_PER_VM {
            return Err(VbiError::NoFreeClient(vm));
        }
        Ok(ClientId((vm.number() * CLIENTS_PER_VM + index) as u16))
    }

    /// The client's number in the whole system.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// The client's virtual machine.
    pub fn vm(self) -> VmId {
        VmId::new(u32::from(self.0) / CLIENTS_PER_VM).unwrap_or(VmId::HOST)
    }
}

/// What a client may do with a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Load.
    pub read: bool,
    /// Store.
    pub write: bool,
    /// Fetch instructions.
    pub execute: bool,
}

impl Rights {
    /// Load.
    pub const READ: Rights = Rights { read: true, write: false, execute: false };
    /// Load and store.
    pub const READ_WRITE: Rights = Rights { read: true, write: true, execute: false };
    /// Load and fetch instructions.
    pub const READ_EXECUTE: Rights = Rights { read: true, write: false, execute: true };
    /// Store, as the operating system fills a section.
    pub const WRITE: Rights = Rights { read: false, write: true, execute: false };
}

/// A place in a client's table: a program's pointers carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u32);

impl Index {
    /// The one after it, where a shared library finds its static data.
    #[must_use]
    pub const fn next(self) -> Index {
        Index(self.0 + 1)
    }
}

/// An entry of a client's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cvt {
    /// The entry says something.
    pub valid: bool,
    /// The block.
    pub block: Vbuid,
    /// What the client may do with it.
    pub rights: Rights,
    /// The operating system's note: the block belongs to several clients on purpose, so that a fork leaves it shared.
    pub shared: bool,
}

/// A client's table of blocks.
#[derive(Clone, Debug, Default)]
pub struct ClientTable {
    entries: Vec<Cvt>,
}

impl ClientTable {
    /// All entries, those that are not valid among them.
    pub fn entries(&self) -> &[Cvt] {
        &self.entries
    }

    /// The valid entries with their places.
    pub fn valid(&self) -> impl Iterator<Item = (Index, Cvt)> + '_ {
        let numbered = self.entries.iter().enumerate();
        numbered.filter(|(_, entry)| entry.valid).map(|(at, entry)| (Index(at as u32), *entry))
    }

    /// The entry of an index.
    ///
    /// # Errors
    /// It lies beyond the table or is not valid.
    pub fn get(&self, index: Index) -> Result<Cvt, VbiError> {
        let entry = self.entries.get(index.0 as usize).filter(|entry| entry.valid);
        entry.copied().ok_or(VbiError::NoSuchIndex(index))
    }

    /// The first entry of a block.
    pub fn find(&self, block: Vbuid) -> Option<Index> {
        self.valid().find(|(_, entry)| entry.block == block).map(|(index, _)| index)
    }

    /// Puts an entry in the first place that is not valid, or at the end.
    pub(super) fn insert(&mut self, entry: Cvt) -> Index {
        let at = self.entries.iter().position(|entry| !entry.valid).unwrap_or(self.entries.len());
        self.put(Index(at as u32), entry);
        Index(at as u32)
    }

    /// Puts an entry in a place that the operating system chose. Places between the end and it are not valid.
    pub(super) fn put(&mut self, index: Index, entry: Cvt) {
        let at = index.0 as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, Cvt { valid: false, ..entry });
        }
        self.entries[at] = entry;
    }

    /// The first of two free places that follow each other.
    pub(super) fn free_pair(&self) -> Index {
        let free = |at: usize| self.entries.get(at).is_none_or(|entry| !entry.valid);
        let first = (0..=self.entries.len()).find(|&at| free(at) && free(at + 1));
        Index(first.unwrap_or(self.entries.len()) as u32)
    }
}
