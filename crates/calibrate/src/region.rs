//! Anonymous memory with pages of a chosen size.

use std::ptr::NonNull;
use terrace_model::{KERNEL_OF_BASE_PAGES, other_base_page};

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;
/// Bytes of a base page.
pub const BASE: usize = 4096;

/// Refuses a machine whose base pages have another size: on those every measurement by pages would be of something else.
///
/// # Errors
/// The kernel's base page, in words.
pub fn check_base_page() -> std::io::Result<()> {
    // SAFETY: a number comes back.
    refuse_other_than_base(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
}

fn refuse_other_than_base(bytes: i64) -> std::io::Result<()> {
    match other_base_page(bytes as u64) {
        None => Ok(()),
        Some(reason) => Err(std::io::Error::other(format!("{reason}; it needs {KERNEL_OF_BASE_PAGES}"))),
    }
}

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

    /// As [`Region::map`], with memory of one node, as long as that has room.
    pub fn map_on(node: i32, bytes: usize, pages: Pages) -> std::io::Result<Region> {
        /// `MPOL_PREFERRED`: without room the memory comes from elsewhere, where the strict policy would have processes
        /// killed (`linux/mempolicy.h`).
        const PREFERRED: libc::c_int = 1;
        let region = Region::map(bytes, pages)?;
        let mut mask = [0u64; 16];
        let word = usize::try_from(node).ok().and_then(|node| mask.get_mut(node / 64));
        *word.ok_or_else(|| std::io::Error::from_raw_os_error(libc::EINVAL))? |= 1 << (node % 64);
        // SAFETY: The region's own mapping, and a mask of as many bits as said.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                region.start(),
                bytes,
                PREFERRED,
                mask.as_ptr(),
                mask.len() * 64,
                0,
            )
        };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(region)
    }

    /// Whether its memory lies on a node, by some of its pages, which have been touched.
    pub fn is_on(&self, node: i32) -> std::io::Result<bool> {
        let step = (self.bytes / 64).next_multiple_of(BASE);
        let pages: Vec<usize> = (0..self.bytes).step_by(step).map(|at| self.start() as usize + at).collect();
        Ok(move_pages(&pages, None)?.iter().all(|on| *on == node))
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

/// Moves base pages of this process to a node, or asks where they are. Returns the node of each, or an error code below 0.
pub fn move_pages(pages: &[usize], to: Option<i32>) -> std::io::Result<Vec<i32>> {
    /// Pages of this process alone (`linux/mempolicy.h`).
    const MPOL_MF_MOVE: libc::c_int = 1 << 1;
    let mut status = vec![-1; pages.len()];
    let nodes = to.map(|node| vec![node; pages.len()]);
    let nodes = nodes.as_ref().map_or(std::ptr::null(), |nodes| nodes.as_ptr());
    // SAFETY: Arrays of as many elements as there are pages, or none of nodes, as the call allows. No byte changes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(status) }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: The mapping is the region's own, and no pointer into it outlives the region.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_base_pages_of_4_kib_are_measured() {
        assert!(refuse_other_than_base(4096).is_ok());
        let refusal = refuse_other_than_base(65_536).unwrap_err().to_string();
        assert!(refusal.contains("have 64 KiB") && refusal.contains("CONFIG_ARM64_4K_PAGES"), "{refusal}");
    }
}
