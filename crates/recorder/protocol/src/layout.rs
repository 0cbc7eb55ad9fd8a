//! The shared memory between the recorded processes and the recorder.
//!
//! One file of fixed size, mapped by all of them, so that whatever was written outlives the process that wrote it.
//! A thread owns a [`Slot`] while it lives and fills chunks of 16-byte records taken from a common pool; a full chunk
//! is handed over through the slot's queue. The recorder may also read a chunk that is still being filled, up to the
//! lane's cursor: that is how the records of a killed process, or of a thread that sleeps, come out.
//!
//! Every claim (process, slot, chunk, block of entries) is one compare-and-swap that names the claimant, so that a
//! process killed at any instruction leaves nothing that the recorder cannot attribute and take back.
//!
//! | part | bytes |
//! |---|---|
//! | [`Header`] | 4096 |
//! | [`Process`] × [`PROCESSES`] | 128 each |
//! | [`Slot`] × [`SLOTS`] | 192 each |
//! | [`Chunk`] × [`CHUNKS`] | 64 each |
//! | owners of blocks of entries | 4 each |
//! | chunk data | [`CHUNK_BYTES`] each |
//! | entries | [`BLOCK_ENTRIES`] × 40 per block |
//! | [`Lane`] × [`LANES`] | 64 each, per process |
//!
//! The file is sparse: pages never written take no memory.

use crate::entry::{ENTRY_BYTES, Entry};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Processes recorded at the same time; more run unrecorded.
pub const PROCESSES: usize = 1024;
/// Threads recorded at the same time; more run unrecorded.
pub const SLOTS: usize = 4096;
/// Chunks in the pool: one for each thread, because one that sleeps may hold a chunk that is not full, and some in
/// flight.
pub const CHUNKS: usize = SLOTS + 1024;
/// Bytes of a chunk's data.
pub const CHUNK_BYTES: usize = RECORD_BYTES * CHUNK_RECORDS;
/// Records in a chunk.
pub const CHUNK_RECORDS: usize = 4096;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 16;
/// Bits of an address in a record's first word and in [`Lane::pending`]; instructions are counted above them.
pub const ADDRESS_BITS: u32 = 48;
/// Chunks that one thread may have handed over and not yet got back: the bound on read-ahead per thread.
pub const QUEUE: usize = 32;
/// Lanes of a process: its vCPUs.
pub const LANES: usize = 16_384;
/// Blocks of entries.
pub const BLOCKS: usize = 2048;
/// Entries in a block.
pub const BLOCK_ENTRIES: usize = 2048;

/// The first entry that belongs to no one: an instruction about which nothing is known. Entry 0 is never named.
pub const UNKNOWN_ENTRY: u32 = 1;

const PROCESSES_AT: usize = 4096;
const SLOTS_AT: usize = PROCESSES_AT + PROCESSES * size_of::<Process>();
const CHUNK_HEADERS_AT: usize = SLOTS_AT + SLOTS * size_of::<Slot>();
const OWNERS_AT: usize = CHUNK_HEADERS_AT + CHUNKS * size_of::<Chunk>();
const DATA_AT: usize = (OWNERS_AT + BLOCKS * 4).next_multiple_of(4096);
const ENTRIES_AT: usize = DATA_AT + CHUNKS * CHUNK_BYTES;
const LANES_AT: usize = ENTRIES_AT + BLOCKS * BLOCK_ENTRIES * ENTRY_BYTES + SPARE_BYTES;
/// Bytes of the whole file.
pub const TOTAL_BYTES: usize = LANES_AT + PROCESSES * LANES * size_of::<Lane>();

/// Behind the table, so that the effects of its last entry lie in the file whatever their number says.
const SPARE_BYTES: usize = 4096;
const _: () = assert!(SPARE_BYTES >= 2 * (u8::MAX as usize) * size_of::<crate::entry::Effect>());

const _: () = assert!(size_of::<Header>() <= PROCESSES_AT);
const _: () = assert!(size_of::<Process>() == 128);
const _: () = assert!(size_of::<Slot>() == 192);
const _: () = assert!(size_of::<Lane>() == 64);
const _: () = assert!(size_of::<Chunk>() == 64);

/// What concerns all processes.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Header {
    /// [`crate::VERSION`].
    pub version: AtomicU64,
    /// Held by the recorder while it lives: a producer that waits looks at it.
    pub lease: Lease,
    /// Name of the recorder's socket that needs no file system: [`crate::session::abstract_name`].
    pub socket_name: AtomicU64,
    /// Shown to that socket by those who belong to the recording.
    pub secret: AtomicU64,
    /// Not 0: recording is over, programs run on unrecorded.
    pub stop: AtomicU32,
    /// Processes forked that have not registered yet.
    pub forks: AtomicU32,
    /// Threads or processes that found no place and run unrecorded.
    pub unrecorded: AtomicU32,
    /// 1 if the table of entries was full and instructions lack their static part.
    pub entries_exhausted: AtomicU32,
    /// Highest slot ever used, plus 1.
    pub slots_used: AtomicU32,
    /// Highest process ever used, plus 1.
    pub processes_used: AtomicU32,
    /// Callbacks counted by a plugin in counting mode, and by any other at exit 0.
    pub counted: AtomicU64,
    /// Last global sequence number given out.
    pub sequence: Aligned<AtomicU64>,
    /// Order in which chunks were handed over.
    pub ticket: Aligned<AtomicU64>,
    /// Numbers streams.
    pub serial: AtomicU64,
    /// Programs that have registered, ever.
    pub registered: AtomicU64,
    /// Futex: changes when the recorder is to wake.
    pub filled: Aligned<AtomicU32>,
    /// While the recorder waits on `filled`: how many chunks must have been handed over in all before it is worth
    /// waking. Whoever wakes it puts 0 here; 0 when it does not wait.
    pub wake_at: AtomicU64,
    /// Futex: changes when producers that wait for a chunk are to look again.
    pub freed: Aligned<AtomicU32>,
    /// Threads that wait on `freed`.
    pub producers_wait: AtomicU32,
}

/// A word that the kernel clears when the process that holds it ends, however it ends: a robust futex (futex(2),
/// set_robust_list(2)). Process ids cannot show that across pid namespaces.
#[derive(Default)]
#[repr(C)]
pub struct Lease {
    /// The holder's list of what the kernel is to clear, as an address in the holder's memory.
    pub next: AtomicU64,
    /// Thread id of the holder, as the kernel compares it; 0 when there is none.
    pub holder: AtomicU32,
}

impl Lease {
    /// From [`Lease::next`] to [`Lease::holder`], as the kernel wants to know it.
    pub const FUTEX_OFFSET: usize = std::mem::offset_of!(Lease, holder) - std::mem::offset_of!(Lease, next);

    /// Whether the holder lives.
    pub fn is_held(&self) -> bool {
        /// The bits of the thread id (`FUTEX_TID_MASK` of Linux); the kernel clears them when the thread ends.
        const THREAD: u32 = 0x3fff_ffff;
        self.holder.load(SeqCst) & THREAD != 0
    }
}

/// A value with a cache line of its own.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Aligned<T>(pub T);

/// A recorded process.
#[repr(C, align(128))]
pub struct Process {
    /// 0 free; else the process's own id << 8 | 1 while it registers, | 2 when the rest is valid.
    pub state: AtomicU64,
    /// Address at which this process mapped the file.
    pub base: AtomicU64,
    /// Serial of the stream that forked it, or 0.
    pub forked_from: AtomicU64,
    /// Counts up with each registration: a program that replaces another has a higher one.
    pub registration: AtomicU64,
    /// Process number (in this table) plus 1 of the one that translated the code this process inherited; its own for
    /// one that did not come from a fork.
    pub family: AtomicU32,
    /// The process id that the recorder sees, which is another than the process's own where that lies in a pid
    /// namespace. The recorder asks the kernel and writes it here; 0 until then.
    pub seen_pid: AtomicU32,
}

/// What a thread needs for each access. It lies at a place that follows from the vCPU's number, not in the [`Slot`]: to
/// look for the slot's address first would cost each access a nanosecond.
#[repr(C, align(64))]
pub struct Lane {
    /// Where the next record goes, as an address in the producer's mapping; 0 when there is no current chunk.
    pub cursor: AtomicU64,
    /// End of the current chunk; 0 sends the next access to the slow path.
    pub limit: AtomicU64,
    /// Instructions retired in blocks that make no record, from bit [`ADDRESS_BITS`] on; the producer's own.
    pub pending: AtomicU64,
    /// Not 0: an event of another thread happened; say so before the next access.
    pub cut: AtomicU32,
}

/// A recorded thread.
#[repr(C, align(64))]
pub struct Slot {
    /// 0 free; else (process + 1) << 8 | 1 while claimed, | 2 when valid, | 3 when the thread has ended.
    pub state: AtomicU32,
    /// Thread id.
    pub thread: AtomicU32,
    /// The lane of its process that it writes.
    pub lane: AtomicU32,
    /// Not 0 while a sequence number has been taken whose record is not yet written.
    pub claiming: AtomicU32,
    /// Unique number of the stream.
    pub serial: AtomicU64,
    /// The current chunk, tagged ([`tag`]); 0 when there is none.
    pub current: AtomicU64,
    /// Chunks handed over, ever.
    pub tail: AtomicU32,
    /// Chunks given back, ever.
    pub head: AtomicU32,
    /// Chunks handed over: tagged, chunk `n` at `n % QUEUE`.
    pub queue: [AtomicU32; QUEUE],
}

/// A chunk's state; the data lie elsewhere.
#[repr(C, align(64))]
pub struct Chunk {
    /// Slot plus 1 of the thread that fills it; 0 when free.
    pub owner: AtomicU32,
    /// Records in it when it was handed over.
    pub records: AtomicU32,
    /// Order of handing over.
    pub ticket: AtomicU64,
}

/// A chunk number with a generation, so that the same chunk taken twice is told apart; never 0.
pub const fn tag(chunk: usize, generation: u32) -> u32 {
    (chunk as u32 + 1) | generation << 16
}

/// The chunk number of a tag.
pub const fn untag(tag: u32) -> usize {
    (tag & 0xffff) as usize - 1
}

/// A mapping of the file.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    base: *mut u8,
}

// SAFETY: everything behind the pointer that two threads may touch at once is atomic; chunk data and entries are
// handed over by release and acquire operations on those atomics.
unsafe impl Send for Shared {}
// SAFETY: see above.
unsafe impl Sync for Shared {}

impl Shared {
    /// A view of a mapping at `base`.
    ///
    /// # Safety
    /// `base` must be the page-aligned start of a shared mapping of [`TOTAL_BYTES`] that stays mapped as long as the
    /// view or anything it returned is used.
    pub const unsafe fn new(base: *mut u8) -> Shared {
        Shared { base }
    }

    /// Where the file is mapped.
    #[inline]
    pub fn base(self) -> *mut u8 {
        self.base
    }

    /// What concerns all processes.
    #[inline]
    pub fn header(self) -> &'static Header {
        // SAFETY: the header lies at the start of the mapping; all its fields are atomics, valid for any content.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// A process. Panics when out of range.
    #[inline]
    pub fn process(self, index: usize) -> &'static Process {
        assert!(index < PROCESSES);
        // SAFETY: in range; all fields are atomics.
        unsafe { &*self.base.add(PROCESSES_AT).cast::<Process>().add(index) }
    }

    /// A thread's slot. Panics when out of range.
    #[inline]
    pub fn slot(self, index: usize) -> &'static Slot {
        assert!(index < SLOTS);
        // SAFETY: in range; all fields but the padding, which is never read, are atomics.
        unsafe { &*self.base.add(SLOTS_AT).cast::<Slot>().add(index) }
    }

    /// The lanes of a process, [`LANES`] of them. Panics when out of range.
    #[inline]
    pub fn lanes(self, process: usize) -> *mut Lane {
        assert!(process < PROCESSES);
        // SAFETY: in range of the mapping.
        unsafe { self.base.add(LANES_AT).cast::<Lane>().add(process * LANES) }
    }

    /// A process's lane. Panics when out of range.
    #[inline]
    pub fn lane(self, process: usize, lane: usize) -> &'static Lane {
        assert!(lane < LANES);
        // SAFETY: in range; all fields are atomics.
        unsafe { &*self.lanes(process).add(lane) }
    }

    /// A chunk's state. Panics when out of range.
    #[inline]
    pub fn chunk(self, index: usize) -> &'static Chunk {
        assert!(index < CHUNKS);
        // SAFETY: in range; all fields are atomics.
        unsafe { &*self.base.add(CHUNK_HEADERS_AT).cast::<Chunk>().add(index) }
    }

    /// Family plus 1 that owns a block of entries; 0 when free. Panics when out of range.
    #[inline]
    pub fn block_owner(self, index: usize) -> &'static AtomicU32 {
        assert!(index < BLOCKS);
        // SAFETY: in range.
        unsafe { &*self.base.add(OWNERS_AT).cast::<AtomicU32>().add(index) }
    }

    /// Offset of a chunk's data in the file.
    #[inline]
    pub const fn data_offset(chunk: usize) -> usize {
        DATA_AT + chunk * CHUNK_BYTES
    }

    /// A chunk's data. Panics when out of range.
    #[inline]
    pub fn data(self, chunk: usize) -> *mut [u64; 2] {
        assert!(chunk < CHUNKS);
        // SAFETY: in range of the mapping.
        unsafe { self.base.add(Shared::data_offset(chunk)).cast() }
    }

    /// The table of entries.
    #[inline]
    pub fn entries(self) -> *mut Entry {
        // SAFETY: in range of the mapping.
        unsafe { self.base.add(ENTRIES_AT).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_tell_generations_apart() {
        for chunk in [0, 1, CHUNKS - 1] {
            assert_eq!(untag(tag(chunk, 0)), chunk);
            assert_eq!(untag(tag(chunk, 65_535)), chunk);
            assert_ne!(tag(chunk, 1), tag(chunk, 2));
            assert_ne!(tag(chunk, 0), 0);
        }
    }
}
