//! The C interface of stores: `include/terrace.h` says what each function does.

use crate::api::{guarded, pages, store};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use terrace_arena::memory::Pages;
use terrace_arena::store::{Compaction, Problem, Store};
use terrace_model::PageSize;

/// `terrace_store`.
pub struct CStore(Mutex<Store>);

fn size(number: c_int) -> Result<PageSize, c_int> {
    pages(number).map(|pages| match pages {
        Pages::Base => PageSize::Base,
        Pages::Huge => PageSize::Huge,
        Pages::Giant => PageSize::Giant,
    })
}

fn number(problem: Problem) -> c_int {
    match problem {
        Problem::Full => libc::ENOMEM,
        Problem::NoHandle => libc::EBADF,
        Problem::Pinned => libc::EBUSY,
    }
}

/// Works on a store.
///
/// # Safety
/// It is null or came from `terrace_store_new`.
unsafe fn with(place: *const CStore, work: impl FnOnce(&mut Store) -> Result<(), c_int>) -> c_int {
    guarded(|| {
        // SAFETY: The caller's word.
        let place = unsafe { place.as_ref() }.ok_or(libc::EINVAL)?;
        work(&mut place.0.lock().unwrap_or_else(PoisonError::into_inner))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_store_new(bytes: usize, wish: c_int, place: *mut *mut CStore) -> c_int {
    guarded(|| {
        if place.is_null() {
            return Err(libc::EINVAL);
        }
        let made = Box::new(CStore(Mutex::new(Store::new(bytes, pages(wish)?)?)));
        // SAFETY: As the caller promises; so in all functions below.
        unsafe { store(place, Box::into_raw(made)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_store_free(place: *mut CStore) {
    if !place.is_null() {
        // SAFETY: It came from `terrace_store_new`, and the caller has no more use for it.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(place) })));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_store_allocate(
    place: *const CStore,
    pages: c_int,
    handle: *mut u32,
) -> c_int {
    if handle.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: See `terrace_store_new`.
    unsafe { with(place, |kept| store(handle, kept.allocate(size(pages)?).map_err(number)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_store_release(place: *const CStore, handle: u32) -> c_int {
    // SAFETY: See `terrace_store_new`.
    unsafe { with(place, |kept| kept.release(handle).map_err(number)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_store_pin(
    place: *const CStore,
    handle: u32,
    address: *mut *mut c_void,
) -> c_int {
    if address.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: See `terrace_store_new`.
    unsafe { with(place, |kept| store(address, kept.pin(handle).map_err(number)?.cast())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_store_unpin(place: *const CStore, handle: u32) -> c_int {
    // SAFETY: See `terrace_store_new`.
    unsafe { with(place, |kept| kept.unpin(handle).map_err(number)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_store_compact(
    place: *const CStore,
    pages: c_int,
    how: c_int,
    moved: *mut u64,
) -> c_int {
    let mut is_free = false;
    // SAFETY: See `terrace_store_new`.
    let result = unsafe {
        with(place, |kept| {
            let kind = match how {
                0 => Compaction::Smart,
                1 => Compaction::Normal,
                _ => return Err(libc::EINVAL),
            };
            let done = kept.compact(kind, size(pages)?);
            is_free = done.is_free;
            if moved.is_null() { Ok(()) } else { store(moved, done.moved) }
        })
    };
    if result == 0 { c_int::from(is_free) } else { result }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_store_trim(place: *const CStore) -> usize {
    let mut given = 0;
    // SAFETY: See `terrace_store_new`.
    unsafe {
        with(place, |kept| {
            given = kept.trim();
            Ok(())
        });
    }
    given
}
