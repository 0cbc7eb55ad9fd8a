//! Whether the host has the memory that a large table needs, so that a machine that is too large is refused by name and
//! does not abort the process.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use terrace_model::Bytes;

/// Whether `bytes` bytes can be had at this moment. Nothing is kept, and no page is touched.
///
/// # Errors
/// They cannot; the message begins with `key`, and says what it needs them for and what to do.
pub fn can_have(key: &str, what: &str, bytes: u64) -> Result<(), String> {
    // Past the allocator, for which a refusal may be the end of the process.
    let is_there = usize::try_from(bytes).is_ok_and(|bytes| {
        let (anywhere, protection) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping disturbs no other, and nobody has a pointer into it when it goes.
        unsafe {
            mmap_anonymous(anywhere, bytes.max(1), protection, MapFlags::PRIVATE)
                .and_then(|begin| munmap(begin, bytes.max(1)))
                .is_ok()
        }
    });
    if is_there {
        return Ok(());
    }
    Err(format!(
        "{key}: {what} needs {} of this computer's memory, which cannot be had; simulate a smaller machine (--scale), or \
         raise the memory limit (ulimit -v)",
        Bytes(bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_named() {
        assert_eq!(can_have("tier.dram.capacity", "it", 1 << 20), Ok(()));
        let refused = can_have("tier.dram.capacity", "its table of frames", 1 << 60).unwrap_err();
        assert!(
            refused.starts_with("tier.dram.capacity: its table of frames needs 1048576 TiB"),
            "{refused}"
        );
        assert!(can_have("k", "it", u64::MAX).is_err());
    }
}
