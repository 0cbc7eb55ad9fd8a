//! Whether the host has the memory that a large table needs, so that a machine that is too large is refused by name and
//! does not abort the process.

use terrace_model::Bytes;

/// Whether `bytes` bytes can be had at this moment. Nothing is kept, and no page is touched.
///
/// # Errors
/// They cannot; the message begins with `key`, and says what it needs them for and what to do.
pub fn can_have(key: &str, what: &str, bytes: u64) -> Result<(), String> {
    let table = usize::try_from(bytes).map(|bytes| Vec::<u8>::new().try_reserve_exact(bytes));
    match table {
        Ok(Ok(())) => Ok(()),
        _ => Err(format!(
            "{key}: {what} needs {} of this computer's memory, which cannot be had; simulate a smaller machine (--scale), \
             or raise the memory limit (ulimit -v)",
            Bytes(bytes)
        )),
    }
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
