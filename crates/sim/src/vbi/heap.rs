//! `malloc` and `free` inside a block (section 4.2.1): the program manages what lies in the block that it asked for. First
//! fit in units of 16 bytes; the paper leaves the allocator open.

use super::VbiError;
use std::collections::BTreeMap;

/// Allocations begin at multiples of it.
const UNIT: u64 = 16;

/// What is allocated inside a block.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    /// Size of each allocation, by its offset.
    used: BTreeMap<u64, u64>,
}

impl Heap {
    /// The offset of a new allocation inside a block of `room` bytes.
    ///
    /// # Errors
    /// No gap is large enough.
    pub fn malloc(&mut self, bytes: u64, room: u64) -> Result<u64, VbiError> {
        let need = bytes.max(1).checked_next_multiple_of(UNIT).ok_or(VbiError::Full(bytes))?;
        let mut begin = 0;
        for (&offset, &length) in &self.used {
            if offset - begin >= need {
                break;
            }
            begin = offset + length;
        }
        if room.saturating_sub(begin) < need {
            return Err(VbiError::Full(bytes));
        }
        self.used.insert(begin, need);
        Ok(begin)
    }

    /// Frees the allocation at an offset.
    ///
    /// # Errors
    /// There is none.
    pub fn free(&mut self, offset: u64) -> Result<(), VbiError> {
        self.used.remove(&offset).map(drop).ok_or(VbiError::NotAllocated(offset))
    }

    /// Bytes that are allocated.
    pub fn bytes(&self) -> u64 {
        self.used.values().sum()
    }
}
