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
        rounded(bytes)
    ))
}

/// As [`can_have`], for tables that are written whole: there must be memory behind all of them at this moment.
///
/// # Errors
/// There is less; the message begins with `key`, and says what it needs them for and what to do.
pub fn can_fill(key: &str, what: &str, bytes: u64) -> Result<(), String> {
    can_have(key, what, bytes)?;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match available(&text) {
        Some(there) if bytes > there => Err(format!(
            "{key}: {what} needs {} of this computer's memory, of which {} is available; simulate smaller ones (--scale), or \
             fewer cores",
            rounded(bytes),
            rounded(there)
        )),
        _ => Ok(()),
    }
}

/// The bytes that programs can have, swap included, of a text as in `/proc/meminfo`; none where it does not say.
fn available(text: &str) -> Option<u64> {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    Some((of("MemAvailable")? + of("SwapFree").unwrap_or(0)) << 10)
}

/// In whole MiB or GiB where there are many, so that the amount is read at a glance.
fn rounded(bytes: u64) -> Bytes {
    let whole = if bytes < 64 << 30 { 1 << 20 } else { 1 << 30 };
    Bytes(if bytes < 64 << 20 { bytes } else { bytes.checked_next_multiple_of(whole).unwrap_or(bytes) })
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

    #[test]
    fn what_is_available_is_read_with_swap() {
        let text = "MemTotal:  8 kB\nMemFree:  1 kB\nMemAvailable:  2048 kB\nSwapFree:     1024 kB\n";
        assert_eq!(available(text), Some(3 << 20));
        assert_eq!(available("MemTotal: 8 kB\n"), None);
    }
}
