//! Mapping the shared memory, and reading the program's own without risking a fault.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Maps `bytes` of `file`, shared, at an address of the system's choice.
pub fn map_shared(file: &File, bytes: usize) -> std::io::Result<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping disturbs no other.
    let base =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// Copies the program's memory at `address` into `buffer`, as far as it is readable; the number of bytes copied.
///
/// QEMU places a 64-bit program's memory at its own addresses, which `maps::initial` verifies; the system call
/// reports an address that is not mapped where a plain load would fault.
pub fn read(address: u64, buffer: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: the local vector describes `buffer`; the remote one is checked by the kernel.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(copied).unwrap_or(0)
}

/// A 64-bit word of the program's memory.
pub fn read_word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (read(address, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
}

/// A string of `length` bytes of the program's memory, at most `limit`; what is readable of it.
pub fn read_bytes(address: u64, length: u64, limit: usize) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(limit).min(limit)];
    let copied = read(address, &mut bytes);
    bytes.truncate(copied);
    bytes
}

/// A string of the program's memory that ends with a zero byte, at most `limit` long.
pub fn read_string(address: u64, limit: usize) -> Vec<u8> {
    let mut string = Vec::new();
    while string.len() < limit {
        // Up to the page's end at a time: the next page may not be there.
        let at = address + string.len() as u64;
        let mut bytes = vec![0; (4096 - (at % 4096) as usize).min(limit - string.len())];
        let copied = read(at, &mut bytes);
        let end = bytes[..copied].iter().position(|&b| b == 0);
        string.extend_from_slice(&bytes[..end.unwrap_or(copied)]);
        if end.is_some() || copied < bytes.len() {
            break;
        }
    }
    string
}
