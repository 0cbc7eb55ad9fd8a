//! Snapshots of blocks, by the kernel's copying on a write.

use super::{Block, Problem, last_error, next_data};
use crate::pages::PageTable;
use crate::{BASE, system};
use std::ops::Range;

/// A private mapping for reading and writing, of which nothing is reserved.
const PRIVATE: libc::c_int = libc::MAP_PRIVATE | libc::MAP_NORESERVE;

impl Block {
    /// Another block with what this one holds. From now on both map the file privately, and it is sealed: nobody writes to
    /// it. Where a forked child has it mapped shared, all is copied.
    ///
    /// # Safety
    /// Nobody writes to the block meanwhile.
    pub(super) unsafe fn snapshot(&mut self) -> Result<Block, Problem> {
        if self.shared {
            // SAFETY: The caller's word.
            return unsafe { self.copied() };
        }
        if !self.cloned {
            self.map_over(self.file, PRIVATE)?;
            // SAFETY: The block's own file. The kernel refuses while anybody has it mapped so that stores reach it.
            if unsafe { libc::fcntl(self.file, libc::F_ADD_SEALS, libc::F_SEAL_WRITE) } != 0 {
                let back = self.map_over(self.file, libc::MAP_SHARED | libc::MAP_NORESERVE);
                // Where it stays private, what is written from now on is not in the file.
                self.cloned = back.is_err();
                back?;
                // SAFETY: The caller's word.
                return unsafe { self.copied() };
            }
            self.cloned = true;
        }
        let mut copy = self.of_same_file()?;
        // SAFETY: The caller's word.
        unsafe { self.copy_written(&copy) };
        copy.property = self.property;
        copy.place();
        Ok(copy)
    }

    /// Another block that maps the same file, as it is, privately.
    fn of_same_file(&self) -> Result<Block, Problem> {
        // SAFETY: The block's own file; a new descriptor comes back.
        let file = unsafe { libc::fcntl(self.file, libc::F_DUPFD_CLOEXEC, 0) };
        if file < 0 {
            return Err(last_error());
        }
        let mut copy = Block::of_file(file, true, false);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let length = self.bytes as usize;
        // SAFETY: No address is asked for, so nothing that is mapped changes.
        let start =
            unsafe { system::map_file(0, length, protection, PRIVATE, file) }.map_err(Problem::System)?;
        (copy.start, copy.bytes, copy.cloned) = (start, self.bytes, true);
        Ok(copy)
    }

    /// Maps a file where the block is, in one step: who reads it meanwhile finds the same bytes.
    fn map_over(&self, file: libc::c_int, how: libc::c_int) -> Result<(), Problem> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (flags, length) = (how | libc::MAP_FIXED, self.bytes as usize);
        // SAFETY: The block's own mapping is replaced by one of the same bytes.
        let mapped = unsafe { system::map_file(self.start as usize, length, protection, flags, file) };
        mapped.map(drop).map_err(Problem::System)
    }

    /// Copies the pages that this block has written since the file was left alone.
    ///
    /// # Safety
    /// Nobody writes to either.
    unsafe fn copy_written(&self, to: &Block) {
        let (start, bytes) = (self.start as usize, self.bytes as usize);
        let copy = |at: usize, bytes: usize| {
            let from = at - start;
            // SAFETY: Both blocks hold the range, and nobody writes.
            unsafe { std::ptr::copy_nonoverlapping(self.start.add(from), to.start.add(from), bytes) };
        };
        let known = PageTable::open()
            .is_some_and(|table| table.private(start..start + bytes, &mut |run| copy(run.start, run.len())));
        if !known {
            // SAFETY: The caller's word.
            unsafe { self.copy_different(to) };
        }
    }

    /// Copies the pages that differ. Only where the file has data is looked: a private store puts a page into it too, and a
    /// load from a hole would take memory for it.
    ///
    /// # Safety
    /// Nobody writes to either.
    pub(super) unsafe fn copy_different(&self, to: &Block) {
        for data in self.data() {
            for at in data.step_by(BASE) {
                // SAFETY: Both blocks hold the page, and nobody writes.
                unsafe {
                    let (one, other) = (self.start.add(at), to.start.add(at));
                    if std::slice::from_raw_parts(one, BASE) != std::slice::from_raw_parts(other, BASE) {
                        std::ptr::copy_nonoverlapping(one, other, BASE);
                    }
                }
            }
        }
    }

    /// Where the block's file is no hole, in bytes from its start.
    fn data(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let data = next_data(self.file, at).filter(|data| data.start < self.bytes)?;
            at = data.end;
            Some(data.start as usize..data.end.min(self.bytes) as usize)
        })
    }

    /// Another block with a file of its own.
    ///
    /// # Safety
    /// Nobody writes to the block meanwhile.
    unsafe fn copied(&self) -> Result<Block, Problem> {
        let mut copy = Block::new(self.bytes)?;
        for data in self.data() {
            let (from, bytes) = (data.start, data.len());
            // SAFETY: Both blocks hold the range, and nobody writes to the source.
            unsafe { std::ptr::copy_nonoverlapping(self.start.add(from), copy.start.add(from), bytes) };
        }
        copy.property = self.property;
        copy.place();
        Ok(copy)
    }

    /// A block that was cloned gets a file of its own, which others can attach. Its addresses stay valid.
    ///
    /// # Safety
    /// Nobody writes to the block meanwhile.
    pub(super) unsafe fn make_own(&mut self) -> Result<(), Problem> {
        // SAFETY: The caller's word.
        let own = unsafe {
            let own = self.copied()?;
            self.copy_written(&own);
            own
        };
        self.map_over(own.file, libc::MAP_SHARED | libc::MAP_NORESERVE)?;
        let before = std::mem::replace(&mut self.file, own.file);
        self.cloned = false;
        // SAFETY: The mapping at the new block's own place, and the old file, are nobody's any more.
        unsafe { system::unmap(own.start, own.bytes as usize) };
        system::close(before);
        std::mem::forget(own);
        self.place();
        Ok(())
    }
}
