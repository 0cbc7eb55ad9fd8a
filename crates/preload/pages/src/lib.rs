//! Preload library that asks for huge pages in a program's own mappings.
//!
//! Where the system's setting for transparent huge pages is `madvise`, a program gets them only in memory for which it asks.
//! This library asks in its place, for each anonymous private mapping of at least a huge page that is made through the C
//! library. Memory of `malloc` does not come this way: the C library maps it by calls of its own, and asks for huge pages
//! itself where `GLIBC_TUNABLES` has `glibc.malloc.hugetlb=1`. A program that calls the kernel directly is not reached.

#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// `mmap`, with huge pages where they can be.
///
/// # Safety
/// As for `mmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: The caller's own arguments go to the system call, which sets the error number as `mmap` does.
    let mapping = unsafe { libc::syscall(libc::SYS_mmap, address, length, protection, flags, file, offset) };
    let mapping = mapping as *mut c_void;
    let is_own = flags & libc::MAP_ANONYMOUS != 0 && flags & libc::MAP_PRIVATE != 0;
    if mapping != libc::MAP_FAILED && is_own && flags & libc::MAP_STACK == 0 && length >= HUGE {
        // SAFETY: The error number belongs to this thread, and the advice concerns the mapping that was just made. Advice
        // that is refused changes nothing.
        unsafe {
            let error = *libc::__errno_location();
            libc::madvise(mapping, length, libc::MADV_HUGEPAGE);
            *libc::__errno_location() = error;
        }
    }
    mapping
}

/// The name of `mmap` in programs that are built with large file offsets.
///
/// # Safety
/// As for `mmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: As for `mmap`.
    unsafe { mmap(address, length, protection, flags, file, offset) }
}
