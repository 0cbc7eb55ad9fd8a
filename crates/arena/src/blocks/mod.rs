//! Virtual blocks as a library: what the Virtual Block Interface gives a program, within what Linux offers.
//!
//! A block is memory of one of eight sizes that has an identity of its own: it is named by an index in its holder's table,
//! not by an address, so that it can be promoted to a larger size, moved and handed to other processes while its handles
//! stay valid. Source: Hajinazar et al., "The Virtual Block Interface", ISCA 2020, §4.1 to §4.4: sizes, `request_vb`,
//! `attach`, `detach`, `promote_vb`, `clone_vb`, handles of index and offset, and the check of each access against the
//! client's table.
//!
//! **Left open by the source, and our choices.** *What stands behind a block*: a file of the kernel's (`memfd`), mapped
//! shared; memory is taken as it is touched. *Rights*: the one who hands a block over read-only seals it
//! (`F_SEAL_FUTURE_WRITE`): nobody can map it for writing any more, whatever its user may do otherwise; who has it mapped
//! already, goes on writing. *Promotion* of a block that others have attached: refused, as they would not learn of it.
//! *Cloning*: nothing is copied. From then on nobody writes to the file, which is sealed (`F_SEAL_WRITE`): source and clone
//! map it privately, and the kernel copies a page when one of them writes to it. What a block has written since its first
//! clone is copied when it is cloned again. A block that others have attached is copied at once, as they write to the file;
//! so is one that a forked child, or the parent, still maps shared. One that was cloned is copied when it is handed over.
//! *Properties* ([`Property`]): a hint for the kernel, where the block shall lie.

mod snapshot;
mod transport;

use crate::memory::{self, Hint};
use crate::system;
use crate::tiers::Tiers;
use std::ffi::c_int;
use std::ops::Range;

/// Bytes of the smallest size; each further one is 32 times as large.
const SMALLEST: u64 = 4096;
/// Sizes: 4 KiB, 128 KiB, 4 MiB, 128 MiB, 4 GiB, 128 GiB, 4 TiB, 128 TiB. A process on x86-64 has no room for the last.
const SIZES: u32 = 8;

/// A place in a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handle {
    /// Which block of the table.
    pub index: u32,
    /// Bytes from its start.
    pub offset: u64,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No block has this index.
    NoBlock,
    /// The access reaches beyond the block.
    Outside,
    /// The block may only be read, or is shared with others and may not change its size.
    NotAllowed,
    /// No size is large enough.
    TooLarge,
    /// What came over the socket is no block.
    NoMessage,
    /// The kernel's error number.
    System(c_int),
}

impl Problem {
    /// As an error number.
    pub fn number(self) -> c_int {
        match self {
            Problem::NoBlock => libc::EBADF,
            Problem::Outside => libc::ERANGE,
            Problem::NotAllowed => libc::EACCES,
            Problem::TooLarge => libc::EFBIG,
            Problem::NoMessage => libc::EPROTO,
            Problem::System(number) => number,
        }
    }
}

/// What the others may do with a block that is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Read it.
    Read,
    /// Read and write it.
    Write,
}

/// What a program knows of a block, as in the property vector of VBI (§4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Accesses to the block wait for one another. With tiers, it goes to the fast tier where there is room; with one tier,
    /// it gets huge pages.
    LatencySensitive,
    /// Accesses to the block are many at a time: it is spread over all tiers in turn.
    BandwidthSensitive,
    /// The block is hardly used. With tiers, it goes to the slow tier; with one tier, it is given up first.
    Cold,
}

#[derive(Debug)]
struct Block {
    file: c_int,
    start: *mut u8,
    bytes: u64,
    writable: bool,
    /// Handed over, or taken over.
    shared: bool,
    /// Mapped privately: the file is the state at a cloning, and nobody writes to it any more.
    cloned: bool,
    property: Option<Property>,
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: Both are this block's own; the holder of the table promised that nobody uses the memory any more.
        unsafe {
            system::unmap(self.start, self.bytes as usize);
            libc::close(self.file);
        }
    }
}

/// A client's table of blocks.
#[derive(Debug, Default)]
pub struct Blocks(Vec<Option<Block>>);

// SAFETY: Addresses are given out and never followed, but by `copy`, which has the table for itself.
unsafe impl Send for Blocks {}

/// The smallest size that holds so many bytes.
pub fn size_for(bytes: u64) -> Result<u64, Problem> {
    let sizes = (0..SIZES).map(|class| SMALLEST << (5 * class));
    sizes.into_iter().find(|size| *size >= bytes).ok_or(Problem::TooLarge)
}

fn last_error() -> Problem {
    // SAFETY: The error number belongs to this thread.
    Problem::System(unsafe { *libc::__errno_location() })
}

impl Block {
    fn of_file(file: c_int, writable: bool, shared: bool) -> Block {
        let start = std::ptr::null_mut();
        Block { file, start, bytes: 0, writable, shared, cloned: false, property: None }
    }

    fn new(bytes: u64) -> Result<Block, Problem> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: The name ends with a zero; a new descriptor comes back.
        let file = unsafe { libc::memfd_create(c"terrace-block".as_ptr(), flags) };
        if file < 0 {
            return Err(last_error());
        }
        let block = Block::of_file(file, true, false);
        // SAFETY: A file of this function's own.
        if unsafe { libc::ftruncate(file, bytes as libc::off_t) } != 0 {
            return Err(last_error());
        }
        block.mapped(bytes, true)
    }

    /// Maps the block.
    fn mapped(mut self, bytes: u64, writable: bool) -> Result<Block, Problem> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let length = usize::try_from(bytes).map_err(|_| Problem::TooLarge)?;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: No address is asked for, so nothing that is mapped changes.
        let start =
            unsafe { system::map_file(0, length, protection, flags, self.file) }.map_err(Problem::System)?;
        (self.start, self.bytes, self.writable) = (start, bytes, writable);
        Ok(self)
    }
}

impl Block {
    /// Asks the kernel for what the property says; whether there are tiers to choose from.
    fn place(&self) -> bool {
        let Some(property) = self.property else { return false };
        let tiers = Tiers::discover();
        let set =
            |group: &[u32]| group.iter().filter(|node| **node < 64).fold(0u64, |set, node| set | 1 << node);
        let all = set(&tiers.nodes.concat());
        let has_tiers = tiers.nodes.len() > 1;
        let hint = match (property, &tiers.nodes[..]) {
            (Property::LatencySensitive, [fast, _, ..]) => Hint::Nodes(set(fast)),
            (Property::Cold, [.., _, slow]) => Hint::Nodes(set(slow)),
            (Property::BandwidthSensitive, [_, _, ..]) => Hint::Interleave(all),
            (Property::LatencySensitive, _) => Hint::Collapse,
            (Property::Cold, _) => Hint::Cold,
            (Property::BandwidthSensitive, _) => return false,
        };
        // SAFETY: The block's own memory, of which no byte changes. A kernel that does not take the hint is left alone.
        let _ = unsafe { memory::hint(self.start, self.bytes as usize, hint) };
        has_tiers
    }
}

impl Blocks {
    /// A table without blocks.
    pub fn new() -> Blocks {
        Blocks::default()
    }

    fn get(&self, index: u32) -> Result<&Block, Problem> {
        self.0.get(index as usize).and_then(Option::as_ref).ok_or(Problem::NoBlock)
    }

    fn get_mut(&mut self, index: u32) -> Result<&mut Block, Problem> {
        self.0.get_mut(index as usize).and_then(Option::as_mut).ok_or(Problem::NoBlock)
    }

    /// Puts a block at the lowest free index.
    fn put(&mut self, block: Block) -> Result<u32, Problem> {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        let index = u32::try_from(free).map_err(|_| Problem::TooLarge)?;
        if free == self.0.len() {
            self.0.push(None);
        }
        self.0[free] = Some(block);
        Ok(index)
    }

    /// `request_vb`: a block of zeros of the smallest size that holds so many bytes. Returns its index.
    ///
    /// # Errors
    /// There is no such size, or the kernel refuses.
    pub fn request(&mut self, bytes: u64) -> Result<u32, Problem> {
        let block = Block::new(size_for(bytes)?)?;
        self.put(block)
    }

    /// Bytes of a block.
    ///
    /// # Errors
    /// There is no such block.
    pub fn size(&self, index: u32) -> Result<u64, Problem> {
        self.get(index).map(|block| block.bytes)
    }

    /// Where so many bytes from a handle on lie now: until the block is promoted or detached. Checks bounds and rights, as
    /// the hardware does at each access.
    ///
    /// # Errors
    /// There is no such block, the bytes reach beyond it, or it may not be written.
    pub fn resolve(&self, handle: Handle, bytes: u64, write: bool) -> Result<*mut u8, Problem> {
        let block = self.get(handle.index)?;
        let end = handle.offset.checked_add(bytes).ok_or(Problem::Outside)?;
        if end > block.bytes {
            return Err(Problem::Outside);
        }
        if write && !block.writable {
            return Err(Problem::NotAllowed);
        }
        // SAFETY: Within the mapping, or at its end.
        Ok(unsafe { block.start.add(handle.offset as usize) })
    }

    /// `detach`: gives up a block. Its index may come back for another one; its memory stays with those that have it
    /// attached.
    ///
    /// # Errors
    /// There is no such block.
    ///
    /// # Safety
    /// Nobody uses an address in the block any more.
    pub unsafe fn detach(&mut self, index: u32) -> Result<(), Problem> {
        self.get(index)?;
        self.0[index as usize] = None;
        Ok(())
    }

    /// `promote_vb`: the block becomes one of the smallest size that holds so many bytes. What it held is in its first
    /// part, and its handles stay valid; addresses do not. A block that is large enough stays as it is. Nothing is copied.
    /// The block's property holds for all of it.
    ///
    /// # Errors
    /// There is no such block or size, or others have the block attached.
    ///
    /// # Safety
    /// Nobody uses an address in the block meanwhile, or one from before afterwards.
    pub unsafe fn promote(&mut self, index: u32, bytes: u64) -> Result<(), Problem> {
        let size = size_for(bytes)?;
        let block = self.get_mut(index)?;
        if size <= block.bytes {
            return Ok(());
        }
        if block.shared {
            return Err(Problem::NotAllowed);
        }
        let length = usize::try_from(size).map_err(|_| Problem::TooLarge)?;
        // SAFETY: The block's own file and mapping; the caller promised that nobody uses its addresses.
        unsafe {
            // A clone may have made the file longer already. What lies there is zeros, as nobody writes to it.
            let is_long_enough = block.cloned && length_of(block.file) >= Some(size);
            if !is_long_enough && libc::ftruncate(block.file, size as libc::off_t) != 0 {
                return Err(last_error());
            }
            let old = block.bytes as usize;
            let moved = libc::syscall(libc::SYS_mremap, block.start, old, length, libc::MREMAP_MAYMOVE);
            if moved == -1 {
                let problem = last_error();
                if !block.cloned {
                    libc::ftruncate(block.file, old as libc::off_t);
                }
                return Err(problem);
            }
            block.start = moved as *mut u8;
        }
        block.bytes = size;
        block.place();
        Ok(())
    }

    /// `clone_vb`: another block with what this one holds now. Returns its index. Addresses in the source stay valid. While
    /// a process that was forked from this one has the source, all is copied, and both still see each other's writes to it.
    ///
    /// # Errors
    /// There is no such block, or the kernel refuses.
    ///
    /// # Safety
    /// Nobody writes to the block meanwhile.
    pub unsafe fn duplicate(&mut self, index: u32) -> Result<u32, Problem> {
        // SAFETY: The caller's word.
        let copy = unsafe { self.get_mut(index)?.snapshot()? };
        self.put(copy)
    }

    /// Says what is known of a block. Changes no byte. False: the machine has one tier of memory, so that what follows is
    /// advice about pages and not their place.
    ///
    /// # Errors
    /// There is no such block.
    pub fn describe(&mut self, index: u32, property: Property) -> Result<bool, Problem> {
        let block = self.get_mut(index)?;
        block.property = Some(property);
        Ok(block.place())
    }

    /// Hands a block over through a connected Unix socket. With [`Rights::Read`] the block is sealed first: nobody, this
    /// table included, can map it for writing any more; what is mapped stays as it is. A block that was cloned is copied.
    ///
    /// # Errors
    /// There is no such block, it may not be written and was to be handed over for that, or the socket does not take it.
    ///
    /// # Safety
    /// Nobody writes to a block that was cloned meanwhile.
    pub unsafe fn send(&mut self, index: u32, socket: c_int, rights: Rights) -> Result<(), Problem> {
        let block = self.get_mut(index)?;
        if block.cloned {
            // First, as its file is sealed. SAFETY: The caller's word.
            unsafe { block.make_own()? };
        }
        let seals = match rights {
            Rights::Write if !block.writable || is_sealed(block.file) => return Err(Problem::NotAllowed),
            Rights::Write => libc::F_SEAL_SHRINK | libc::F_SEAL_GROW,
            Rights::Read => libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE,
        };
        // SAFETY: The block's own file.
        if unsafe { libc::fcntl(block.file, libc::F_ADD_SEALS, seals) } != 0 {
            return Err(last_error());
        }
        block.shared = true;
        transport::send(socket, block.file, block.bytes)
    }

    /// `attach`: takes a block over from a connected Unix socket. Returns its index. It can be written where it is not
    /// sealed.
    ///
    /// # Errors
    /// What came is no block, or the kernel refuses.
    pub fn attach(&mut self, socket: c_int) -> Result<u32, Problem> {
        let (file, bytes) = transport::receive(socket)?;
        let block = Block::of_file(file, false, true);
        if size_for(bytes) != Ok(bytes) || !holds(file, bytes) {
            return Err(Problem::NoMessage);
        }
        let block = block.mapped(bytes, !is_sealed(file))?;
        self.put(block)
    }
}

/// Whether a file is sealed against mappings for writing.
fn is_sealed(file: c_int) -> bool {
    // SAFETY: A number comes back.
    let seals = unsafe { libc::fcntl(file, libc::F_GET_SEALS) };
    seals & (libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_WRITE) != 0
}

/// Whether a file is as long as is said and can never become shorter: else an access could end the program.
fn holds(file: c_int, bytes: u64) -> bool {
    // SAFETY: All zeros is a value of this structure of numbers, and the call fills it.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let known = libc::fstat(file, &raw mut status) == 0 && status.st_size as u64 == bytes;
        known && libc::fcntl(file, libc::F_GET_SEALS) & libc::F_SEAL_SHRINK != 0
    }
}

fn length_of(file: c_int) -> Option<u64> {
    // SAFETY: All zeros is a value of this structure of numbers, and the call fills it.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(file, &raw mut status) == 0).then_some(status.st_size as u64)
    }
}

/// The next range of a file, from `at` on, that is no hole.
fn next_data(file: c_int, at: u64) -> Option<Range<u64>> {
    // SAFETY: Numbers come back. Nobody reads or writes the file by its position.
    unsafe {
        let start = libc::lseek(file, at as libc::off_t, libc::SEEK_DATA);
        let start = (start >= 0).then_some(start)?;
        let end = libc::lseek(file, start, libc::SEEK_HOLE);
        (end > start).then_some(start as u64..end as u64)
    }
}

#[cfg(test)]
mod tests;
