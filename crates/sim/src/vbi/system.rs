//! The operating system's part: blocks for programs, and the life of processes (sections 4.2 and 4.4).

use super::VbiError;
use super::address::{SizeClass, Vbuid, VmId};
use super::client::{ClientId, Cvt, Index, Rights};
use super::contents::{Contents, Regions};
use super::heap::Heap;
use super::instructions::Instructions;
use super::layer::MemoryLayer;
use super::properties::{Properties, Property};
use std::collections::HashMap;

/// A part of an executable.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// What it holds; a section may be larger, and the rest is zero.
    pub bytes: &'a [u8],
    /// The section's size.
    pub size: u64,
    /// What the process may do with it.
    pub rights: Rights,
    /// What it is.
    pub properties: Properties,
}

/// A shared library: code in one block for all, static data in a block for each process.
#[derive(Clone, Debug)]
pub struct Library {
    code: Vbuid,
    data: Vec<u8>,
}

/// An operating system on the interface; one for the host and all virtual machines, whose blocks and clients are apart.
#[derive(Debug)]
pub struct System<M: MemoryLayer> {
    /// The hardware.
    pub hardware: Instructions<M>,
    heaps: HashMap<Vbuid, Heap>,
}

impl<M: MemoryLayer> System<M> {
    /// A system on which nothing runs.
    pub fn new(layer: M) -> System<M> {
        System { hardware: Instructions::new(layer), heaps: HashMap::new() }
    }

    /// A new client of a virtual machine with an empty table: the one with the smallest number that is free.
    ///
    /// # Errors
    /// All of them exist.
    pub fn new_client(&mut self, vm: VmId) -> Result<ClientId, VbiError> {
        let mut index = 0;
        loop {
            let client = ClientId::new(vm, index)?;
            if !self.hardware.has_client(client) {
                self.hardware.add_client(client);
                return Ok(client);
            }
            index += 1;
        }
    }

    /// Enables the smallest free block of a virtual machine that fits. Nobody has it yet.
    ///
    /// # Errors
    /// More than 128 TiB, or no block is free.
    pub fn enable(&mut self, vm: VmId, bytes: u64, properties: Properties) -> Result<Vbuid, VbiError> {
        let block = self.hardware.info.smallest_free(vm, bytes)?;
        self.hardware.enable_vb(block, properties)?;
        Ok(block)
    }

    /// `request_vb`: a block for a data structure of an expected size, which the client may read and write.
    ///
    /// # Errors
    /// More than 128 TiB, no block is free, or there is no such client.
    pub fn request_vb(
        &mut self,
        client: ClientId,
        expected: u64,
        properties: Properties,
    ) -> Result<Index, VbiError> {
        self.request(client, expected, properties, Rights::READ_WRITE)
    }

    /// `request_vb` with other rights.
    ///
    /// # Errors
    /// As [`System::request_vb`].
    pub fn request(
        &mut self,
        client: ClientId,
        expected: u64,
        properties: Properties,
        rights: Rights,
    ) -> Result<Index, VbiError> {
        self.hardware.table(client)?;
        let block = self.enable(client.vm(), expected, properties)?;
        self.hardware.attach(client, block, rights)
    }

    /// The client gives a block back. With the last client the block goes.
    ///
    /// # Errors
    /// The index points to no block.
    pub fn release(&mut self, client: ClientId, index: Index) -> Result<(), VbiError> {
        let block = self.hardware.table(client)?.get(index)?.block;
        if self.hardware.detach_at(client, index)? == 0 {
            self.heaps.remove(&block);
            self.hardware.disable_vb(block)?;
        }
        Ok(())
    }

    /// Another client of the same machine gets a block of this one: true sharing. Both keep it over forks.
    ///
    /// # Errors
    /// The index points to no block, there is no such client, or it belongs to another virtual machine: that takes the host.
    pub fn share(
        &mut self,
        client: ClientId,
        index: Index,
        with: ClientId,
        rights: Rights,
    ) -> Result<Index, VbiError> {
        let entry = self.hardware.table(client)?.get(index)?;
        if client.vm() != with.vm() {
            return Err(VbiError::NoSuchClient(with));
        }
        let other = self.hardware.attach(with, entry.block, rights)?;
        self.hardware.table_mut(client)?.put(index, Cvt { shared: true, ..entry });
        let entry = self.hardware.table(with)?.get(other)?;
        self.hardware.table_mut(with)?.put(other, Cvt { shared: true, ..entry });
        Ok(other)
    }

    /// A fork leaves a block shared, as it does what a program maps to share.
    ///
    /// # Errors
    /// The index points to no block.
    pub fn keep_shared(&mut self, client: ClientId, index: Index) -> Result<(), VbiError> {
        let entry = self.hardware.table(client)?.get(index)?;
        self.hardware.table_mut(client)?.put(index, Cvt { shared: true, ..entry });
        Ok(())
    }

    /// A process moves to a larger block; its pointers stay. The block's other clients move too, and the smaller one goes.
    ///
    /// # Errors
    /// The index points to no block, or no larger one is free.
    pub fn promote(&mut self, client: ClientId, index: Index, bytes: u64) -> Result<(), VbiError> {
        let small = self.hardware.table(client)?.get(index)?.block;
        let next = small.class().larger().ok_or(VbiError::TooLarge(bytes))?;
        let properties = self.hardware.info.get(small)?.properties;
        // The larger block has the same home as the smaller one.
        let large = self.near(self.hardware.info.home(small), |system| {
            system.enable(small.vm(), bytes.max(next.bytes()), properties)
        })?;
        self.hardware.promote_vb(small, large)?;
        if let Some(heap) = self.heaps.remove(&small) {
            self.heaps.insert(large, heap);
        }
        self.hardware.disable_vb(small)
    }

    /// What is asked for meanwhile shall be at home in a node.
    fn near<T>(&mut self, home: u32, asks: impl FnOnce(&mut System<M>) -> T) -> T {
        let before = self.hardware.info.near();
        self.hardware.info.prefer(home);
        let answer = asks(self);
        self.hardware.info.prefer(before);
        answer
    }

    /// Data move to another node: into a new block that is at home there. Pointers of all clients stay, and the old block
    /// goes. Returns the new one.
    ///
    /// # Errors
    /// The block is not enabled, or none of its class is free in that node.
    pub fn migrate(&mut self, block: Vbuid, home: u32) -> Result<Vbuid, VbiError> {
        let properties = self.hardware.info.get(block)?.properties;
        let free = self.hardware.info.free_in(block.class(), block.vm(), home);
        let target = free.ok_or(VbiError::NoFreeBlock(block.class(), block.vm()))?;
        self.hardware.enable_vb(target, properties)?;
        self.hardware.migrate_vb(block, target)?;
        if let Some(heap) = self.heaps.remove(&block) {
            self.heaps.insert(target, heap);
        }
        self.hardware.disable_vb(block)?;
        Ok(target)
    }

    /// `malloc` inside a block. A block that is full is promoted to the next class.
    ///
    /// # Errors
    /// The index points to no block, or even the largest is full.
    pub fn malloc(&mut self, client: ClientId, index: Index, bytes: u64) -> Result<u64, VbiError> {
        loop {
            let block = self.hardware.table(client)?.get(index)?.block;
            let heap = self.heaps.entry(block).or_default();
            match heap.malloc(bytes, block.bytes()) {
                Err(VbiError::Full(_)) if block.class() != SizeClass::ALL[7] => {
                    self.promote(client, index, block.bytes().saturating_add(1))?;
                }
                answer => return answer,
            }
        }
    }

    /// `free` inside a block.
    ///
    /// # Errors
    /// Nothing is allocated there.
    pub fn free(&mut self, client: ClientId, index: Index, offset: u64) -> Result<(), VbiError> {
        let block = self.hardware.table(client)?.get(index)?.block;
        self.heaps.entry(block).or_default().free(offset)
    }

    /// `fork`: a client with the same table. Shared blocks stay; of each private one the child gets a clone at the same
    /// index, so that its pointers mean what they meant.
    ///
    /// # Errors
    /// There is no such client, or clients or blocks are used up; then no child is left behind.
    pub fn fork(&mut self, parent: ClientId) -> Result<ClientId, VbiError> {
        self.hardware.table(parent)?;
        let child = self.new_client(parent.vm())?;
        match self.clone_all(parent, child) {
            Ok(()) => Ok(child),
            Err(error) => {
                self.exit(child)?;
                Err(error)
            }
        }
    }

    fn clone_all(&mut self, parent: ClientId, child: ClientId) -> Result<(), VbiError> {
        let entries: Vec<(Index, Cvt)> = self.hardware.table(parent)?.valid().collect();
        let mut clones: HashMap<Vbuid, Vbuid> = HashMap::new();
        for (index, entry) in entries {
            let block = match clones.get(&entry.block) {
                _ if entry.shared => entry.block,
                Some(clone) => *clone,
                None => {
                    let source = entry.block;
                    let properties = self.hardware.info.get(source)?.properties;
                    // Memory is shared at first, so that a clone is at home where its source is.
                    let home = self.hardware.info.home(source);
                    let clone = self.near(home, |system| {
                        system.hardware.info.smallest_free(source.vm(), source.bytes())
                    })?;
                    if clone.class() != source.class() {
                        return Err(VbiError::NoFreeBlock(source.class(), source.vm()));
                    }
                    self.hardware.enable_vb(clone, properties)?;
                    self.hardware.clone_vb(source, clone)?;
                    if let Some(heap) = self.heaps.get(&source).cloned() {
                        self.heaps.insert(clone, heap);
                    }
                    clones.insert(source, clone);
                    clone
                }
            };
            self.hardware.attach_at(child, index, Cvt { block, ..entry })?;
        }
        Ok(())
    }

    /// `exit`: every block is detached, those that nobody else has are disabled, and the client is free.
    ///
    /// # Errors
    /// There is no such client.
    pub fn exit(&mut self, client: ClientId) -> Result<(), VbiError> {
        let entries: Vec<Index> = self.hardware.table(client)?.valid().map(|(index, _)| index).collect();
        for index in entries {
            self.release(client, index)?;
        }
        self.hardware.remove_client(client);
        Ok(())
    }
}

impl System<Contents> {
    /// A byte as a program loads it.
    ///
    /// # Errors
    /// The exception that the core raises.
    pub fn load(&self, client: ClientId, index: Index, offset: u64) -> Result<u8, VbiError> {
        let address = self.hardware.check_read(client, index, offset)?;
        Ok(Contents::load(&self.hardware.info.get(address.block())?.structure, address.offset()))
    }

    /// A byte as a program stores it.
    ///
    /// # Errors
    /// The exception that the core raises.
    pub fn store(&mut self, client: ClientId, index: Index, offset: u64, byte: u8) -> Result<(), VbiError> {
        let address = self.hardware.check_write(client, index, offset)?;
        Contents::store(&mut self.hardware.info.get_mut(address.block())?.structure, address.offset(), byte);
        Ok(())
    }

    fn regions(&mut self, block: Vbuid) -> Result<&mut Regions, VbiError> {
        Ok(&mut self.hardware.info.get_mut(block)?.structure)
    }

    /// A block that the operating system has filled: it attaches itself with the right to write, copies and detaches. Nobody
    /// has the block then.
    fn filled(
        &mut self,
        vm: VmId,
        bytes: &[u8],
        size: u64,
        properties: Properties,
    ) -> Result<Vbuid, VbiError> {
        let kernel = self.new_client(vm)?;
        let block = self.enable(vm, size.max(bytes.len() as u64).max(1), properties)?;
        let index = self.hardware.attach(kernel, block, Rights::WRITE)?;
        for (offset, byte) in (0..).zip(bytes) {
            self.store(kernel, index, offset, *byte)?;
        }
        self.hardware.detach(kernel, block)?;
        self.hardware.remove_client(kernel);
        Ok(block)
    }

    /// `exec`: a new client with a block for each section, in their order.
    ///
    /// # Errors
    /// Clients or blocks are used up.
    pub fn exec(&mut self, vm: VmId, sections: &[Section<'_>]) -> Result<(ClientId, Vec<Index>), VbiError> {
        let client = self.new_client(vm)?;
        let mut places = Vec::new();
        for section in sections {
            let block = self.filled(vm, section.bytes, section.size, section.properties)?;
            places.push(self.hardware.attach(client, block, section.rights)?);
        }
        Ok((client, places))
    }

    /// A shared library: its code lies in one block; `data` is what the static data of each process begin with. The library
    /// itself keeps its code while nobody uses it.
    ///
    /// # Errors
    /// Clients or blocks are used up.
    pub fn install_library(&mut self, vm: VmId, code: &[u8], data: &[u8]) -> Result<Library, VbiError> {
        let properties = Properties::of(&[Property::Code, Property::ReadOnly]);
        let code = self.filled(vm, code, code.len() as u64, properties)?;
        let keeper = self.new_client(vm)?;
        self.hardware.attach(keeper, code, Rights::default())?;
        Ok(Library { code, data: data.to_vec() })
    }

    /// A process loads a shared library: its code at the index returned, its static data at the next one, so that the code
    /// finds them by its own index plus one, and nothing is relocated.
    ///
    /// # Errors
    /// There is no such client, or blocks are used up.
    pub fn load_library(&mut self, client: ClientId, library: &Library) -> Result<Index, VbiError> {
        let data = self.filled(client.vm(), &library.data, 1, Properties::NONE)?;
        let index = self.hardware.table(client)?.free_pair();
        let (rights, block) = (Rights::READ_EXECUTE, library.code);
        self.hardware.attach_at(client, index, Cvt { valid: true, block, rights, shared: true })?;
        let (rights, block) = (Rights::READ_WRITE, data);
        self.hardware.attach_at(client, index.next(), Cvt { valid: true, block, rights, shared: false })?;
        Ok(index)
    }

    /// `mmap` of a file: a block whose offsets are the file's.
    ///
    /// # Errors
    /// There is no such client, or blocks are used up.
    pub fn map_file(&mut self, client: ClientId, file: &[u8], rights: Rights) -> Result<Index, VbiError> {
        let properties = Properties::of(&[Property::File]);
        let index = self.request(client, file.len().max(1) as u64, properties, rights)?;
        let block = self.hardware.table(client)?.get(index)?.block;
        let regions = self.regions(block)?;
        (0..).zip(file).for_each(|(offset, byte)| Contents::store(regions, offset, *byte));
        Ok(index)
    }

    /// Writes a mapped file back: the first `length` bytes of its block.
    ///
    /// # Errors
    /// The index points to no block.
    pub fn file_contents(
        &mut self,
        client: ClientId,
        index: Index,
        length: u64,
    ) -> Result<Vec<u8>, VbiError> {
        let block = self.hardware.table(client)?.get(index)?.block;
        let regions = self.regions(block)?;
        Ok((0..length.min(block.bytes())).map(|offset| Contents::load(regions, offset)).collect())
    }
}
