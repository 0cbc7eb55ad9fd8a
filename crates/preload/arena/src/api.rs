//! The C interface: `include/terrace.h` says what each function does.
//!
//! No panic leaves a function: it becomes `ENOTRECOVERABLE`.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_arena::blocks::{self, Handle, Problem, Property, Rights};
use terrace_arena::exchange::Refused;
use terrace_arena::memory::{self, Hint, Memory, Pages};
use terrace_arena::pool::{self, Pool};

/// `struct terrace_memory`.
#[repr(C)]
pub struct CMemory {
    start: *mut c_void,
    bytes: usize,
    pages: c_int,
}

/// `struct terrace_exchanged`.
#[repr(C)]
pub struct CExchanged {
    moved: usize,
    copied: usize,
}

/// `terrace_blocks`.
pub struct Table(Mutex<blocks::Blocks>);

impl Table {
    fn lock(&self) -> MutexGuard<'_, blocks::Blocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn guarded(work: impl FnOnce() -> Result<(), c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => 0,
        Ok(Err(number)) => -number,
        Err(_) => -libc::ENOTRECOVERABLE,
    }
}

/// Stores a result where the caller wants it.
///
/// # Safety
/// `place` is null or valid for a store.
pub unsafe fn store<T>(place: *mut T, value: T) -> Result<(), c_int> {
    if place.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: The caller's word.
    unsafe { place.write(value) };
    Ok(())
}

/// Works on a table.
///
/// # Safety
/// `table` is null or came from `terrace_blocks_new`.
unsafe fn with(table: *const Table, work: impl FnOnce(&mut blocks::Blocks) -> Result<(), Problem>) -> c_int {
    guarded(|| {
        // SAFETY: The caller's word.
        let table = unsafe { table.as_ref() }.ok_or(libc::EINVAL)?;
        work(&mut table.lock()).map_err(Problem::number)
    })
}

/// Stores what a table answered.
///
/// # Safety
/// As for `store`.
unsafe fn store_answer<T>(place: *mut T, value: T) -> Result<(), Problem> {
    // SAFETY: The caller's word.
    unsafe { store(place, value) }.map_err(Problem::System)
}

pub fn pages(number: c_int) -> Result<Pages, c_int> {
    [Pages::Base, Pages::Huge, Pages::Giant]
        .into_iter()
        .find(|pages| *pages as c_int == number)
        .ok_or(libc::EINVAL)
}

#[unsafe(no_mangle)]
pub extern "C" fn terrace_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_allocate(bytes: usize, wish: c_int, place: *mut CMemory) -> c_int {
    guarded(|| {
        if place.is_null() {
            return Err(libc::EINVAL);
        }
        let (start, bytes, pages) = Memory::new(bytes, pages(wish)?)?.into_parts();
        // SAFETY: As the caller promises.
        unsafe { store(place, CMemory { start: start.cast(), bytes, pages: pages as c_int }) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_free(place: *mut CMemory) -> c_int {
    guarded(|| {
        // SAFETY: As the caller promises; so below.
        let given = unsafe { place.as_mut() }.ok_or(libc::EINVAL)?;
        let pages = pages(given.pages)?;
        let start = std::mem::replace(&mut given.start, std::ptr::null_mut());
        let bytes = std::mem::take(&mut given.bytes);
        if !start.is_null() && bytes > 0 {
            // SAFETY: It came from `terrace_allocate`, and its structure is cleared.
            drop(unsafe { Memory::from_parts(start.cast(), bytes, pages) });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_resize(place: *mut CMemory, to: c_int) -> c_int {
    guarded(|| {
        // SAFETY: As the caller promises; so below.
        let given = unsafe { place.as_mut() }.filter(|given| !given.start.is_null()).ok_or(libc::EINVAL)?;
        let (has, to) = (pages(given.pages)?, pages(to)?);
        // SAFETY: It came from `terrace_allocate`; it is taken apart again below, whatever happens.
        let mut memory = unsafe { Memory::from_parts(given.start.cast(), given.bytes, has) };
        // SAFETY: As the caller promises.
        let resized = unsafe { terrace_arena::resize::resize(&mut memory, to) };
        let (start, _, pages) = memory.into_parts();
        (given.start, given.pages) = (start.cast(), pages as c_int);
        resized.map_err(|refused| refused.number())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_hint(start: *mut c_void, bytes: usize, hint: c_int, argument: u64) -> c_int {
    guarded(|| {
        let hint = match hint {
            0 => Hint::Collapse,
            1 => Hint::Populate,
            2 => Hint::Cold,
            3 => Hint::PageOut,
            4 => Hint::Node(u32::try_from(argument).map_err(|_| libc::EINVAL)?),
            5 => Hint::Interleave(argument),
            6 => Hint::Split,
            _ => return Err(libc::EINVAL),
        };
        // SAFETY: As the caller promises.
        unsafe { memory::hint(start.cast(), bytes, hint) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_exchange(
    one: *mut c_void,
    other: *mut c_void,
    bytes: usize,
    how: *mut CExchanged,
) -> c_int {
    guarded(|| {
        // SAFETY: As the caller promises.
        let exchanged = unsafe { terrace_arena::exchange::exchange(one.cast(), other.cast(), bytes) };
        let exchanged = exchanged.map_err(|refused| match refused {
            Refused::Unaligned | Refused::Overlap => libc::EINVAL,
        })?;
        if how.is_null() {
            return Ok(());
        }
        // SAFETY: As the caller promises.
        unsafe { store(how, CExchanged { moved: exchanged.moved, copied: exchanged.copied }) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pool_new(bytes: usize, ahead: usize, place: *mut *mut Pool) -> c_int {
    guarded(|| {
        if place.is_null() || bytes == 0 {
            return Err(libc::EINVAL);
        }
        let pool = Box::new(Pool::new(bytes, ahead)?);
        // SAFETY: As the caller promises.
        unsafe { store(place, Box::into_raw(pool)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pool_free(pool: *mut Pool) {
    if !pool.is_null() {
        // SAFETY: It came from `terrace_pool_new`, and the caller has no more use for it.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(pool) })));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pool_take(
    pool: *const Pool,
    bytes: usize,
    start: *mut *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: As the caller promises; so below.
        let pool = unsafe { pool.as_ref() }.filter(|_| !start.is_null()).ok_or(libc::EINVAL)?;
        let taken = pool.take(bytes).map_err(of_pool)?;
        // SAFETY: See above.
        unsafe { store(start, taken.cast()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pool_give(pool: *const Pool, start: *mut c_void, bytes: usize) -> c_int {
    guarded(|| {
        // SAFETY: See `terrace_pool_take`.
        let pool = unsafe { pool.as_ref() }.ok_or(libc::EINVAL)?;
        // SAFETY: See `terrace_pool_take`.
        unsafe { pool.give(start.cast(), bytes) }.map_err(of_pool)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pool_ready(pool: *const Pool) -> usize {
    // SAFETY: See `terrace_pool_take`.
    catch_unwind(AssertUnwindSafe(|| unsafe { pool.as_ref() }.map_or(0, Pool::ready))).unwrap_or(0)
}

fn of_pool(problem: pool::Problem) -> c_int {
    match problem {
        pool::Problem::Full => libc::ENOMEM,
        pool::Problem::NotTaken => libc::EINVAL,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn terrace_blocks_new() -> *mut Table {
    let table = catch_unwind(|| Box::into_raw(Box::new(Table(Mutex::new(blocks::Blocks::new())))));
    table.unwrap_or(std::ptr::null_mut())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_blocks_free(table: *mut Table) {
    if !table.is_null() {
        // SAFETY: It came from `terrace_blocks_new`, and the caller has no more use for it.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(table) })));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_request(table: *const Table, bytes: u64, index: *mut u32) -> c_int {
    if index.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: As the caller promises; so in all functions below.
    unsafe { with(table, |blocks| store_answer(index, blocks.request(bytes)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_size(table: *const Table, index: u32, bytes: *mut u64) -> c_int {
    // SAFETY: See `terrace_request`.
    unsafe { with(table, |blocks| store_answer(bytes, blocks.size(index)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_resolve(
    table: *const Table,
    handle: Handle,
    bytes: u64,
    write: c_int,
    address: *mut *mut c_void,
) -> c_int {
    // SAFETY: See `terrace_request`.
    unsafe { with(table, |blocks| store_answer(address, blocks.resolve(handle, bytes, write != 0)?.cast())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_promote(table: *const Table, index: u32, bytes: u64) -> c_int {
    // SAFETY: See `terrace_request`.
    unsafe { with(table, |blocks| blocks.promote(index, bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_clone(table: *const Table, index: u32, copy: *mut u32) -> c_int {
    if copy.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: See `terrace_request`.
    unsafe { with(table, |blocks| store_answer(copy, blocks.duplicate(index)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_describe(table: *const Table, index: u32, property: c_int) -> c_int {
    let property = match property {
        0 => Property::LatencySensitive,
        1 => Property::BandwidthSensitive,
        2 => Property::Cold,
        _ => return -libc::EINVAL,
    };
    // SAFETY: See `terrace_request`.
    unsafe { with(table, |blocks| blocks.describe(index, property).map(|_| ())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_send(
    table: *const Table,
    index: u32,
    socket: c_int,
    rights: c_int,
) -> c_int {
    let rights = match rights {
        0 => Rights::Read,
        1 => Rights::Write,
        _ => return -libc::EINVAL,
    };
    // SAFETY: See `terrace_request`.
    unsafe { with(table, |blocks| blocks.send(index, socket, rights)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_attach(table: *const Table, socket: c_int, index: *mut u32) -> c_int {
    if index.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: See `terrace_request`.
    unsafe { with(table, |blocks| store_answer(index, blocks.attach(socket)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_detach(table: *const Table, index: u32) -> c_int {
    // SAFETY: See `terrace_request`.
    unsafe { with(table, |blocks| blocks.detach(index)) }
}
