//! System calls that neither allocate nor go through a function that a preloaded library may replace.

use crate::BASE;
use std::ffi::{CStr, c_int, c_void};

/// `MADV_COLLAPSE` (Linux 6.1).
const COLLAPSE: c_int = 25;

/// What a system call returned, or its error number.
pub(crate) fn checked(result: libc::c_long) -> Result<usize, c_int> {
    // SAFETY: The error number belongs to this thread.
    if result == -1 { Err(unsafe { *libc::__errno_location() }) } else { Ok(result as usize) }
}

/// Anonymous private memory for reading and writing, at an address of the kernel's choice.
///
/// # Errors
/// The kernel's error number.
pub fn map(bytes: usize) -> Result<*mut u8, c_int> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: No address is asked for, so nothing that is mapped changes.
    checked(unsafe { libc::syscall(libc::SYS_mmap, 0usize, bytes, protection, flags, -1, 0usize) })
        .map(|address| address as *mut u8)
}

/// As [`map`], at this address, where nothing is mapped.
///
/// # Safety
/// The range is the caller's.
pub(crate) unsafe fn map_at(address: usize, bytes: usize) -> Result<*mut u8, c_int> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: The kernel replaces nothing.
    checked(unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, -1, 0usize) })
        .map(|address| address as *mut u8)
}

/// Addresses that nobody else gets, without memory.
pub(crate) fn reserve(bytes: usize) -> Result<*mut u8, c_int> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: No address is asked for, so nothing that is mapped changes.
    checked(unsafe { libc::syscall(libc::SYS_mmap, 0usize, bytes, libc::PROT_NONE, flags, -1, 0usize) })
        .map(|address| address as *mut u8)
}

/// For [`remap`]: the mapping stays where it was, too, empty (`MREMAP_DONTUNMAP`).
pub(crate) const KEEP_EMPTY: c_int = 4;

/// Moves a mapping over what is at another address. Where it fails, nothing may be there any more.
///
/// # Safety
/// Both ranges are the caller's.
pub(crate) unsafe fn remap(from: usize, bytes: usize, to: usize, more: c_int) -> Result<(), c_int> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | more;
    // SAFETY: The caller's word.
    checked(unsafe { libc::syscall(libc::SYS_mremap, from, bytes, bytes, flags, to) }).map(|_| ())
}

/// Anonymous private memory in the place of what is at this address. Where it fails, nothing may be there any more.
///
/// # Safety
/// The range is the caller's.
pub(crate) unsafe fn map_over(address: usize, bytes: usize) -> Result<(), c_int> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: The caller's word.
    checked(unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, -1, 0usize) })
        .map(|_| ())
}

/// Whether something is mapped at an address.
pub(crate) fn is_mapped(address: usize) -> bool {
    let mut present = 0u8;
    // SAFETY: One byte for one page.
    unsafe { libc::syscall(libc::SYS_mincore, address, BASE, &raw mut present) == 0 }
}

/// A file's beginning, mapped by these flags: at an address with `MAP_FIXED`, else where the kernel likes.
///
/// # Safety
/// With `MAP_FIXED` the range at `address` is the caller's.
pub(crate) unsafe fn map_file(
    address: usize,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
) -> Result<*mut u8, c_int> {
    // SAFETY: The caller's word.
    checked(unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, file, 0usize) })
        .map(|address| address as *mut u8)
}

/// Closes a descriptor of the caller's own.
pub(crate) fn close(number: c_int) {
    // SAFETY: The caller's word.
    unsafe { libc::close(number) };
}

/// Gives memory back.
///
/// # Safety
/// The range was mapped by the caller, and nobody uses it any more.
pub unsafe fn unmap(address: *mut u8, bytes: usize) -> bool {
    // SAFETY: The caller's word.
    unsafe { libc::syscall(libc::SYS_munmap, address, bytes) == 0 }
}

/// Joins the pages of a range into huge pages. The bytes of the range stay as they are, whatever lies there.
///
/// # Errors
/// The kernel's error number.
pub fn collapse(address: usize, bytes: usize) -> Result<(), c_int> {
    // SAFETY: The advice changes which pages hold the range's bytes and no byte.
    checked(unsafe { libc::syscall(libc::SYS_madvise, address, bytes, COLLAPSE) }).map(|_| ())
}

/// Takes a huge page at `address` apart, a multiple of 2 MiB: by a hint that its first base page is cold. The bytes stay as
/// they are, whatever the program does meanwhile. Linux 6.12 then gives back those base pages that hold zeros alone.
///
/// # Errors
/// The kernel's error number.
pub fn split(address: usize) -> Result<(), c_int> {
    // SAFETY: As for `collapse`.
    checked(unsafe { libc::syscall(libc::SYS_madvise, address, BASE, libc::MADV_COLD) }).map(|_| ())
}

/// Reads memory of this process into `into`; how many bytes, up to the first page that is not there.
fn read_some(address: usize, into: &mut [u8]) -> Result<usize, c_int> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: into.len() };
    // SAFETY: The buffer is as long as is said. What is not mapped is an error and no fault.
    unsafe {
        let (one, other) = (&raw const local, &raw const remote);
        let process = libc::getpid();
        checked(libc::syscall(libc::SYS_process_vm_readv, process, one, 1usize, other, 1usize, 0usize))
    }
}

/// Reads memory of this process into `into`; false where something of it is not there.
pub fn peek(address: usize, into: &mut [u8]) -> bool {
    read_some(address, into) == Ok(into.len())
}

/// As [`peek`], with zeros for pages that are not there; false where the kernel reads nothing.
pub(crate) fn peek_or_zeros(address: usize, into: &mut [u8]) -> bool {
    let mut done = 0;
    while done < into.len() {
        match read_some(address + done, &mut into[done..]) {
            Ok(read @ 1..) => done += read,
            Err(libc::EFAULT) => {
                let end = (done + BASE - (address + done) % BASE).min(into.len());
                into[done..end].fill(0);
                done = end;
            }
            _ => return false,
        }
    }
    true
}

/// Asks for huge pages in a range, whatever lies there. The bytes of the range stay as they are.
pub fn advise_huge(address: usize, bytes: usize) -> bool {
    // SAFETY: As for `collapse`.
    unsafe { libc::syscall(libc::SYS_madvise, address, bytes, libc::MADV_HUGEPAGE) == 0 }
}

/// Nanoseconds of the clock that is never set.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: The call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Page faults of this process so far that read nothing from a disk.
pub fn minor_faults() -> u64 {
    // SAFETY: All zeros is a value of this structure of numbers, and the call fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_minflt as u64
    }
}

/// A file that stays open for reading.
#[derive(Debug)]
pub struct File(c_int);

impl File {
    /// Opens it.
    pub fn open(path: &CStr) -> Option<File> {
        // SAFETY: The path ends with a zero.
        let number = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (number >= 0).then_some(File(number))
    }

    /// The file's number, which stays open as long as this value lives.
    pub fn number(&self) -> c_int {
        self.0
    }

    /// Reads at most so many bytes as `into` holds, from byte `at` on.
    pub fn read_at(&self, into: &mut [u8], at: u64) -> usize {
        let (to, most) = (into.as_mut_ptr().cast::<c_void>(), into.len());
        // SAFETY: The buffer holds as many bytes as is said.
        let read = unsafe { libc::pread(self.0, to, most, at as libc::off_t) };
        read.max(0) as usize
    }

    /// Reads all of a file of the kernel's into `into`, whose capacity is kept for the next time.
    pub fn read(&self, into: &mut Vec<u8>) {
        let mut filled = 0;
        loop {
            into.resize(into.capacity().max(filled + 4096), 0);
            let read = self.read_at(&mut into[filled..], filled as u64);
            filled += read;
            if read == 0 {
                into.truncate(filled);
                return;
            }
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: It is ours and open.
        unsafe { libc::close(self.0) };
    }
}

/// The kibibytes that a line such as `MemTotal:  123 kB` of a file of the kernel's states, in bytes.
pub fn line_of(text: &[u8], name: &str) -> Option<u64> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
    let digits = line.iter().skip_while(|byte| !byte.is_ascii_digit());
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0u64, |sum, digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let text = b"MemTotal:       24576 kB\nMemFree:  1 kB\nMemAvailable:   12 kB\n";
        assert_eq!(line_of(text, "MemTotal:"), Some(24576 << 10));
        assert_eq!(line_of(text, "MemAvailable:"), Some(12 << 10));
        assert_eq!(line_of(text, "Swap:"), None);
    }

    #[test]
    fn a_file_longer_than_the_buffer_is_read_whole() {
        let maps = File::open(c"/proc/self/smaps").unwrap();
        let mut text = Vec::with_capacity(16);
        maps.read(&mut text);
        assert!(text.len() > 4096 && text.ends_with(b"\n"), "{}", text.len());
        assert!(File::open(c"/nonexistent").is_none());
    }
}
