//! Records and the table of entries that they name, as they lie in the shared memory.

pub use terrace_protocol::layout::ADDRESS_BITS;

use terrace_protocol::entry::{Effect, Entry};
use terrace_protocol::layout::{BLOCK_ENTRIES, BLOCKS};

/// Entries in the whole table.
const ENTRIES: u32 = (BLOCKS * BLOCK_ENTRIES) as u32;

/// A record as it lies in a chunk.
pub type Record = [u64; 2];

/// The address itself.
pub const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;

/// What the entry table looks like to the decoder.
#[derive(Clone, Copy)]
pub struct Entries(*const Entry);

impl Entries {
    /// The table at `base`.
    ///
    /// # Safety
    /// It must stay mapped while the value is used, and entries that records name must have been written.
    pub unsafe fn new(base: *const Entry) -> Entries {
        Entries(base)
    }

    /// What is known of an entry's instruction.
    #[inline(always)]
    pub fn get(&self, number: u32) -> &Entry {
        // SAFETY: in range by the mask; any content of the file is a valid entry.
        unsafe { &*self.0.add((number & (ENTRIES - 1)) as usize) }
    }

    /// Effects of an entry: `count` after the first `skip`. They run on into the next places of the table.
    #[inline(always)]
    pub fn effects(&self, number: u32, skip: u8, count: u8) -> &[Effect] {
        // SAFETY: in range by the mask, and the file goes on behind the table's last entry for as many effects as the
        // numbers can say; any content is a valid effect.
        unsafe {
            let entry = self.0.add((number & (ENTRIES - 1)) as usize);
            let first = entry.cast::<u8>().add(std::mem::offset_of!(Entry, effects)).cast::<Effect>();
            std::slice::from_raw_parts(first.add(usize::from(skip)), usize::from(count))
        }
    }
}
