//! `mmap`: mappings are aligned and advised when they are made.
//!
//! Only those whose place the kernel chooses. A program that says where a mapping is to lie may let it grow by another at
//! its end, and count on both being one; to the kernel what is advised and what is not are two, which do not move together.
//! Such memory is the helper's: joining pages leaves mappings as they are.

use crate::{budget, helper, is_active, log, quietly};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_arena::{BASE, HUGE, system};

/// Smaller mappings are left alone.
const SMALLEST: usize = 64 << 10;
/// Small mappings are cut from one of this size.
const BLOCK: usize = 32 << 20;
/// Bytes in small mappings before the first one is cut from a block: until then a program is taken for a small one.
const BEFORE_BLOCKS: usize = 16 << 20;

/// Where the next small mapping begins in the present block; at the block's end there is none. Blocks lie at multiples of
/// their size.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Bytes in small mappings so far.
static SMALL: AtomicUsize = AtomicUsize::new(0);

fn is_error(address: *mut c_void) -> bool {
    address == libc::MAP_FAILED
}

/// The real function.
unsafe fn real(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: The caller's arguments; the call sets the error number as `mmap` does.
    unsafe { libc::syscall(libc::SYS_mmap, address, length, protection, flags, file, offset) as *mut c_void }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let for_data = protection == libc::PROT_READ | libc::PROT_WRITE;
    let plain = flags & !libc::MAP_NORESERVE == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let suits = address.is_null() && plain && for_data && length >= SMALLEST && is_active();
    let found = match length {
        _ if !suits => None,
        ..HUGE => cut(length, flags),
        // SAFETY: Plain memory was asked for.
        _ => unsafe { aligned(length, flags) },
    };
    // SAFETY: The caller's own arguments.
    let mapping = found.unwrap_or_else(|| unsafe { real(address, length, protection, flags, file, offset) });
    if suits && length >= HUGE && !is_error(mapping) {
        quietly(|| advise(mapping as usize, length));
    }
    mapping
}

/// The name of `mmap` in programs that are built with large file offsets.
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

/// Asks for huge pages in what was just mapped or allocated, if memory suffices.
pub fn advise(start: usize, bytes: usize) {
    helper::grown(bytes);
    let bytes = bytes.next_multiple_of(BASE);
    if !budget::take(bytes) {
        helper::wanted();
    } else if system::advise_huge(start, bytes) {
        log::ADVISED.fetch_add(bytes as u64, Relaxed);
    }
}

/// A mapping that begins at a multiple of a huge page. The kernel aligns only those whose length is one. None where there
/// is not room enough, or it fails: then the plain call says why.
unsafe fn aligned(length: usize, flags: c_int) -> Option<*mut c_void> {
    let length = length.checked_next_multiple_of(BASE)?;
    if length.is_multiple_of(HUGE) {
        return None;
    }
    let with_room = length.checked_add(HUGE - BASE)?;
    quietly(|| {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: No address is asked for, so nothing that is mapped changes; what is cut off is part of what was just
        // mapped.
        unsafe {
            let mapping = real(std::ptr::null_mut(), with_room, protection, flags, -1, 0);
            if is_error(mapping) {
                return None;
            }
            let start = mapping as usize;
            let begin = start.next_multiple_of(HUGE);
            let (end, end_with_room) = (begin + length, start + with_room);
            if begin > start {
                system::unmap(start as *mut u8, begin - start);
            }
            if end_with_room > end {
                system::unmap(end as *mut u8, end_with_room - end);
            }
            Some(begin as *mut c_void)
        }
    })
}

/// A small mapping, cut from a block: part of a larger mapping that is advised, so that neighbours share a huge page. To
/// the program it is a mapping like any other, for the kernel knows no borders between mappings that are alike.
fn cut(length: usize, flags: c_int) -> Option<*mut c_void> {
    if flags & libc::MAP_NORESERVE != 0 {
        return None;
    }
    let length = length.next_multiple_of(BASE);
    if SMALL.fetch_add(length, Relaxed) < BEFORE_BLOCKS {
        return None;
    }
    helper::grown(length);
    loop {
        let next = NEXT.load(Relaxed);
        let room = next.next_multiple_of(BLOCK) - next;
        if length <= room {
            if NEXT.compare_exchange(next, next + length, Relaxed, Relaxed).is_ok() {
                return Some(next as *mut c_void);
            }
            continue;
        }
        let block = quietly(block)?;
        // What is left of the old block stays unused: less than the length of a small mapping. Whoever else has made a
        // block meanwhile goes on with theirs, and ours is given back.
        if NEXT.compare_exchange(next, block + length, Relaxed, Relaxed).is_ok() {
            return Some(block as *mut c_void);
        }
        // SAFETY: It was just made, and nobody has a piece of it.
        quietly(|| unsafe { system::unmap(block as *mut u8, BLOCK) });
    }
}

/// A new block, advised.
fn block() -> Option<usize> {
    if !budget::take(BLOCK) {
        return None;
    }
    let start = system::map(2 * BLOCK - BASE).ok()? as usize;
    let begin = start.next_multiple_of(BLOCK);
    // SAFETY: What is cut off is part of what was just mapped.
    unsafe {
        if begin > start {
            system::unmap(start as *mut u8, begin - start);
        }
        let (end, all) = (begin + BLOCK, start + 2 * BLOCK - BASE);
        if all > end {
            system::unmap(end as *mut u8, all - end);
        }
    }
    if system::advise_huge(begin, BLOCK) {
        log::ADVISED.fetch_add(BLOCK as u64, Relaxed);
    }
    Some(begin)
}
