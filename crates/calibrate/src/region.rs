//! Anonymous memory with pages of a chosen size.

use std::ptr::NonNull;

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;
/// Bytes of a base page.
pub const BASE: usize = 4096;

/// The pages that a region asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB.
    Base,
    /// 2 MiB where the system's setting allows what a program asks for (`madvise` or `always`).
    Huge,
}

/// A mapping that begins at a multiple of 2 MiB; unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: The region owns its memory; who shares it between threads keeps to disjoint parts or to reads.
unsafe impl Send for Region {}
// SAFETY: As above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` untouched bytes. Errors: no memory.
    pub fn map(bytes: usize, pages: Pages) -> std::io::Result<Region> {
        let mapped = bytes + HUGE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: A new mapping anywhere.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(std::io::Error::last_os_error)?;
        let ahead = mapping.as_ptr().align_offset(HUGE);
        // SAFETY: `ahead` is less than the 2 MiB that the mapping has beyond `bytes`.
        let start = unsafe { mapping.add(ahead) };
        let advice = match pages {
            Pages::Base => libc::MADV_NOHUGEPAGE,
            Pages::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: Inside the mapping. A kernel without huge pages refuses, which changes nothing.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) };
        Ok(Region { mapping, mapped, start, bytes })
    }

    /// Address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The size of the region, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes one byte every `stride` bytes.
    pub fn touch(&self, stride: usize) {
        for at in (0..self.bytes).step_by(stride) {
            // SAFETY: Inside the region; no reference to it exists.
            unsafe { self.start.as_ptr().add(at).write_volatile(1) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: The mapping is the region's own, and no pointer into it outlives the region.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}
