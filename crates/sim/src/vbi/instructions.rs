//! The instructions that operating systems use (sections 4.1.2, 4.2 and 4.4).

use super::VbiError;
use super::address::{VbiAddress, Vbuid};
use super::client::{ClientId, ClientTable, Cvt, Index, Rights};
use super::info::InfoTables;
use super::layer::MemoryLayer;
use super::properties::Properties;
use std::collections::{BTreeMap, VecDeque};

/// An access as a program makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Execute,
}

/// The hardware: tables of clients and of blocks, and the layer behind them.
#[derive(Debug, Default)]
pub struct Instructions<M: MemoryLayer> {
    /// The memory translation layer.
    pub layer: M,
    /// The tables of blocks.
    pub info: InfoTables<M::Structure>,
    clients: BTreeMap<ClientId, ClientTable>,
    /// Disabled blocks whose lines nobody dropped yet, oldest first.
    stale: VecDeque<Vbuid>,
}

impl<M: MemoryLayer> Instructions<M> {
    /// No client, no block.
    pub fn new(layer: M) -> Instructions<M> {
        let (info, clients, stale) = (InfoTables::default(), BTreeMap::new(), VecDeque::new());
        Instructions { layer, info, clients, stale }
    }

    /// A client appears, with an empty table.
    pub(super) fn add_client(&mut self, client: ClientId) {
        self.clients.insert(client, ClientTable::default());
    }

    /// A client is gone. Its table must be empty.
    pub(super) fn remove_client(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// Whether a client exists.
    pub fn has_client(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// A client's table.
    ///
    /// # Errors
    /// There is no such client.
    pub fn table(&self, client: ClientId) -> Result<&ClientTable, VbiError> {
        self.clients.get(&client).ok_or(VbiError::NoSuchClient(client))
    }

    pub(super) fn table_mut(&mut self, client: ClientId) -> Result<&mut ClientTable, VbiError> {
        self.clients.get_mut(&client).ok_or(VbiError::NoSuchClient(client))
    }

    /// `enable_vb VBUID, props`: the block is in use, without clients and without memory. Lines of its last use leave the
    /// caches first, if the background had no time for that.
    ///
    /// # Errors
    /// It is in use already.
    pub fn enable_vb(&mut self, block: Vbuid, properties: Properties) -> Result<(), VbiError> {
        if self.info.get(block).is_ok() {
            return Err(VbiError::InUse(block));
        }
        let info = self.info.entry(block);
        let stale = std::mem::take(&mut info.stale_lines);
        info.enabled = true;
        info.properties = properties;
        info.references = 0;
        info.structure = M::Structure::default();
        if stale {
            self.layer.invalidate_lines(block);
            self.stale.retain(|other| *other != block);
        }
        Ok(())
    }

    /// `disable_vb VBUID`: all of its state goes. Its lines may stay until its name is used again.
    ///
    /// # Errors
    /// It is not in use, or has clients.
    pub fn disable_vb(&mut self, block: Vbuid) -> Result<(), VbiError> {
        let info = self.info.get_mut(block)?;
        if info.references > 0 {
            return Err(VbiError::StillAttached(block, info.references));
        }
        info.enabled = false;
        info.stale_lines = true;
        let structure = std::mem::take(&mut info.structure);
        self.layer.disable(block, structure);
        self.info.release(block);
        self.stale.push_back(block);
        Ok(())
    }

    /// The background drops the lines of the block that was disabled longest ago. Returns it.
    pub fn invalidate_lazily(&mut self) -> Option<Vbuid> {
        let block = self.stale.pop_front()?;
        self.layer.invalidate_lines(block);
        let info = self.info.entry(block);
        info.stale_lines = false;
        self.info.release(block);
        Some(block)
    }

    /// `attach CID, VBUID, RWX`: the client has the block, at the index returned.
    ///
    /// # Errors
    /// The block is not in use, or there is no such client.
    pub fn attach(&mut self, client: ClientId, block: Vbuid, rights: Rights) -> Result<Index, VbiError> {
        self.info.get(block)?;
        let index = self.table_mut(client)?.insert(Cvt { valid: true, block, rights, shared: false });
        self.info.get_mut(block)?.references += 1;
        Ok(index)
    }

    /// The client has the block at an index that the operating system chose, in place of what was there.
    ///
    /// # Errors
    /// The block is not in use, or there is no such client.
    pub fn attach_at(&mut self, client: ClientId, index: Index, entry: Cvt) -> Result<(), VbiError> {
        self.info.get(entry.block)?;
        let before = self.table(client)?.get(index).ok();
        self.table_mut(client)?.put(index, entry);
        self.info.get_mut(entry.block)?.references += 1;
        if let Some(before) = before {
            self.info.get_mut(before.block)?.references -= 1;
        }
        Ok(())
    }

    /// `detach CID, VBUID`: the client's entry of the block is not valid any more. Returns how many are left in all.
    ///
    /// # Errors
    /// The client has not the block.
    pub fn detach(&mut self, client: ClientId, block: Vbuid) -> Result<u32, VbiError> {
        let index = self.table(client)?.find(block).ok_or(VbiError::NotAttached(block))?;
        self.detach_at(client, index)
    }

    /// The client's entry at one index is not valid any more. Returns how many entries of the block are left in all.
    ///
    /// # Errors
    /// The index points to no block.
    pub fn detach_at(&mut self, client: ClientId, index: Index) -> Result<u32, VbiError> {
        let entry = self.table(client)?.get(index)?;
        self.table_mut(client)?.put(index, Cvt { valid: false, ..entry });
        let info = self.info.get_mut(entry.block)?;
        info.references -= 1;
        Ok(info.references)
    }

    /// `clone_vb SVBUID, DVBUID`: the second block holds what the first does. Memory is shared and copied on write.
    ///
    /// # Errors
    /// One of them is not in use, or they differ in size.
    pub fn clone_vb(&mut self, source: Vbuid, clone: Vbuid) -> Result<(), VbiError> {
        if source.class() != clone.class() {
            return Err(VbiError::WrongSize(clone, source));
        }
        let (mut from, mut to) = self.info.take_two(source, clone)?;
        self.layer.flush_lines(source, &mut from);
        self.layer.clone_structure(&mut from, &mut to);
        self.info.get_mut(source)?.structure = from;
        self.info.get_mut(clone)?.structure = to;
        Ok(())
    }

    /// `promote_vb SVBUID, LVBUID`: the larger block begins with what the smaller one held, and every entry that pointed to
    /// the smaller one points to the larger one. (The paper speaks of the program's entry; where several clients share the
    /// block, all of theirs have to change.)
    ///
    /// # Errors
    /// One of them is not in use, or the second is not larger.
    pub fn promote_vb(&mut self, small: Vbuid, large: Vbuid) -> Result<(), VbiError> {
        if large.class() <= small.class() {
            return Err(VbiError::WrongSize(large, small));
        }
        self.take_over(small, large)
    }

    /// A block of the same size holds what another one held, and every entry that pointed to that one points to it: so data
    /// move to another node (section 6.2).
    ///
    /// # Errors
    /// One of them is not in use, or they differ in size.
    pub fn migrate_vb(&mut self, source: Vbuid, target: Vbuid) -> Result<(), VbiError> {
        if source.class() != target.class() {
            return Err(VbiError::WrongSize(target, source));
        }
        self.take_over(source, target)
    }

    fn take_over(&mut self, small: Vbuid, large: Vbuid) -> Result<(), VbiError> {
        let (mut from, mut to) = self.info.take_two(small, large)?;
        self.layer.flush_lines(small, &mut from);
        self.layer.promote(from, &mut to);
        self.info.get_mut(large)?.structure = to;
        let mut moved = 0;
        for table in self.clients.values_mut() {
            let entries: Vec<(Index, Cvt)> =
                table.valid().filter(|(_, entry)| entry.block == small).collect();
            for (index, entry) in entries {
                table.put(index, Cvt { block: large, ..entry });
                moved += 1;
            }
        }
        self.info.get_mut(small)?.references -= moved;
        self.info.get_mut(large)?.references += moved;
        Ok(())
    }

    /// What a core does before a load: the index, the right, the bound (section 4.2.3).
    ///
    /// # Errors
    /// What is wrong with the access; the core raises an exception.
    pub fn check_read(&self, client: ClientId, index: Index, offset: u64) -> Result<VbiAddress, VbiError> {
        self.check(client, index, offset, Kind::Read)
    }

    /// What a core does before a store: the index, the right, the bound.
    ///
    /// # Errors
    /// What is wrong with the access.
    pub fn check_write(&self, client: ClientId, index: Index, offset: u64) -> Result<VbiAddress, VbiError> {
        self.check(client, index, offset, Kind::Write)
    }

    /// What a core does before it fetches an instruction: the index, the right, the bound.
    ///
    /// # Errors
    /// What is wrong with the access.
    pub fn check_execute(&self, client: ClientId, index: Index, offset: u64) -> Result<VbiAddress, VbiError> {
        self.check(client, index, offset, Kind::Execute)
    }

    fn check(&self, client: ClientId, index: Index, offset: u64, kind: Kind) -> Result<VbiAddress, VbiError> {
        let entry = self.table(client)?.get(index)?;
        let (allowed, what) = match kind {
            Kind::Read => (entry.rights.read, "read"),
            Kind::Write => (entry.rights.write, "write"),
            Kind::Execute => (entry.rights.execute, "execute"),
        };
        if !allowed {
            return Err(VbiError::NoRight(what));
        }
        entry.block.at(offset)
    }
}
