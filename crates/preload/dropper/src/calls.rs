//! The functions that change what is mapped where, in place of the C library's. Each does the same system call; a drop
//! neither begins nor goes on while it does.

use crate::PAGE;
use crate::areas;
use crate::gate::Change;
use std::ffi::{c_int, c_long, c_void};
use std::ops::Range;

/// `TMPFS_MAGIC`, of memfds, too.
const TMPFS: i64 = 0x0102_1994;
/// The part of `flags` that says whether a mapping is shared.
const KIND: c_int = 0x0f;
/// `MREMAP_DONTUNMAP`.
const LEAVE: c_int = 4;
/// Memory of which Terrace samples a part is several mappings for the kernel, which moves one at a time only. Terrace lets
/// go of what is an area no longer; so often, and so far apart, it is tried whether it has.
const TRIES: u32 = 200;
static APART: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };

fn failed(result: *mut c_void) -> bool {
    result == libc::MAP_FAILED
}

fn range(start: *mut c_void, bytes: usize) -> Range<u64> {
    let start = start as u64;
    start..start.saturating_add((bytes as u64).saturating_add(PAGE - 1) & !(PAGE - 1))
}

/// Leaves the program's `errno` as the call has left it.
fn quietly<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the address is this thread's own number.
    unsafe {
        let before = *libc::__errno_location();
        let result = work();
        *libc::__errno_location() = before;
        result
    }
}

/// Whether a mapping with these arguments is shared memory whose pages are no file's on a disk.
fn is_shared_memory(flags: c_int, file: c_int) -> bool {
    if !matches!(flags & KIND, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE) || flags & libc::MAP_HUGETLB != 0
    {
        return false;
    }
    if flags & libc::MAP_ANONYMOUS != 0 {
        return true;
    }
    // SAFETY: the structure is filled, or the call fails.
    unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        libc::fstatfs(file, &raw mut system) == 0 && system.f_type as i64 == TMPFS
    }
}

/// `mmap(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let _change = Change::begin();
    if flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == libc::MAP_FIXED {
        quietly(|| areas::remove(range(address, bytes)));
    }
    // SAFETY: the caller's arguments, for the same call.
    let mapped = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            address,
            bytes,
            c_long::from(protection),
            c_long::from(flags),
            c_long::from(file),
            offset,
        )
    } as *mut c_void;
    if !failed(mapped) {
        quietly(|| match is_shared_memory(flags, file) {
            true => areas::add(range(mapped, bytes)),
            // No area is known there, unless it was given up past this library.
            false => areas::remove(range(mapped, bytes)),
        });
    }
    mapped
}

/// `mmap(2)`, whose offsets have 64 bits on every machine that Terrace runs on.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's arguments, for the same call.
    unsafe { mmap(address, bytes, protection, flags, file, offset) }
}

/// `munmap(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    let _change = Change::begin();
    quietly(|| areas::remove(range(address, bytes)));
    // SAFETY: the caller's arguments, for the same call.
    unsafe { libc::syscall(libc::SYS_munmap, address, bytes) as c_int }
}

/// `mremap(2)`. The last argument means something with `MREMAP_FIXED` only, and may be missing otherwise.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    bytes: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let _change = Change::begin();
    let from = range(old, old_bytes);
    // A length of 0 makes a second mapping of what is there.
    let second = from.is_empty();
    let was = quietly(|| areas::contain(&if second { range(old, 1) } else { from.clone() }));
    quietly(|| {
        if !second {
            areas::remove(from.clone());
        }
        if flags & libc::MREMAP_FIXED != 0 {
            areas::remove(range(new, bytes));
        }
    });
    let mut mapped;
    let mut tries = 0;
    loop {
        // SAFETY: the caller's arguments, for the same call.
        mapped = unsafe { libc::syscall(libc::SYS_mremap, old, old_bytes, bytes, c_long::from(flags), new) }
            as *mut c_void;
        // SAFETY: the address is this thread's own number.
        let parts = failed(mapped) && unsafe { *libc::__errno_location() } == libc::EFAULT;
        if !(parts && was && !second && tries < TRIES) {
            break;
        }
        tries += 1;
        // SAFETY: the span is a constant; what would be left of it is not asked for.
        quietly(|| unsafe { libc::nanosleep(&raw const APART, std::ptr::null_mut()) });
    }
    quietly(|| {
        if was && !second && (failed(mapped) || flags & LEAVE != 0) {
            areas::add(from);
        }
        if was && !failed(mapped) {
            areas::add(range(mapped, bytes));
        }
    });
    mapped
}

/// `shmat(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void {
    let _change = Change::begin();
    // SAFETY: the structure is filled, or the call fails and zeros stay; the caller's arguments, for the same call.
    unsafe {
        let mut segment: libc::shmid_ds = std::mem::zeroed();
        let known = quietly(|| libc::shmctl(id, libc::IPC_STAT, &raw mut segment)) == 0;
        if known && flags & libc::SHM_REMAP != 0 {
            quietly(|| areas::remove(range(address.cast_mut(), segment.shm_segsz)));
        }
        let mapped =
            libc::syscall(libc::SYS_shmat, c_long::from(id), address, c_long::from(flags)) as *mut c_void;
        if known && !failed(mapped) {
            quietly(|| areas::add(range(mapped, segment.shm_segsz)));
        }
        mapped
    }
}

/// `shmdt(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmdt(address: *const c_void) -> c_int {
    let _change = Change::begin();
    quietly(|| areas::remove_at(address as u64));
    // SAFETY: the caller's arguments, for the same call.
    unsafe { libc::syscall(libc::SYS_shmdt, address) as c_int }
}
