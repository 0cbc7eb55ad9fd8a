//! The functions that ours hide, and a little memory for the time before they are known.
//!
//! Looking them up may itself allocate. Such early allocations come from a fixed buffer and are never freed.

use crate::Pointer;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const EARLY_BYTES: usize = 64 * 1024;

#[repr(C, align(64))]
struct Early(UnsafeCell<[u8; EARLY_BYTES]>);
// SAFETY: parts of it are given out once each.
unsafe impl Sync for Early {}
static EARLY: Early = Early(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// 0: not looked up; 1: being looked up; 2: known.
static STATE: AtomicUsize = AtomicUsize::new(0);

static MALLOC: AtomicUsize = AtomicUsize::new(0);
static CALLOC: AtomicUsize = AtomicUsize::new(0);
static REALLOC: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicUsize = AtomicUsize::new(0);
static POSIX_MEMALIGN: AtomicUsize = AtomicUsize::new(0);
static MEMALIGN: AtomicUsize = AtomicUsize::new(0);
static ALIGNED_ALLOC: AtomicUsize = AtomicUsize::new(0);

/// Looks the functions up. Before this has happened there is one thread only.
pub fn resolve() {
    if STATE.compare_exchange(0, 1, AcqRel, Acquire).is_err() {
        return;
    }
    let names = [
        (c"malloc", &MALLOC),
        (c"calloc", &CALLOC),
        (c"realloc", &REALLOC),
        (c"free", &FREE),
        (c"posix_memalign", &POSIX_MEMALIGN),
        (c"memalign", &MEMALIGN),
        (c"aligned_alloc", &ALIGNED_ALLOC),
    ];
    for (name, place) in names {
        place.store(next(name), Relaxed);
    }
    STATE.store(2, Release);
}

fn next(name: &CStr) -> usize {
    // SAFETY: the name is a string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize }
}

/// Whether the functions are known; looks them up if nobody does.
#[inline]
fn ready() -> bool {
    if STATE.load(Acquire) != 2 {
        resolve();
    }
    STATE.load(Acquire) == 2
}

/// Whether the memory is of the early kind.
#[inline]
pub fn is_early(pointer: Pointer) -> bool {
    let start = EARLY.0.get() as usize;
    (start..start + EARLY_BYTES).contains(&(pointer as usize))
}

/// 16 bytes before it hold its size.
fn early(bytes: usize, alignment: usize) -> Pointer {
    let alignment = alignment.max(16);
    let Some(room) = bytes.checked_add(alignment + 16) else { return std::ptr::null_mut() };
    let at = EARLY_USED.fetch_add(room, Relaxed);
    if at.saturating_add(room) > EARLY_BYTES {
        return std::ptr::null_mut();
    }
    let start = EARLY.0.get() as usize + at + 16;
    let aligned = start.next_multiple_of(alignment);
    // SAFETY: inside the part of the buffer that `at` gives us alone.
    unsafe { (aligned as *mut usize).sub(1).write(bytes) };
    aligned as Pointer
}

/// Moves an early object to the real allocator.
pub unsafe fn realloc_early(old: Pointer, bytes: usize) -> Pointer {
    // SAFETY: `early` has stored the size; both objects hold what is copied.
    unsafe {
        let new = malloc(bytes);
        if !new.is_null() {
            let held = *old.cast::<usize>().sub(1);
            std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), held.min(bytes));
        }
        new
    }
}

/// Calls a function that has been looked up, or takes early memory.
macro_rules! call {
    ($place:ident: fn($($name:ident: $type:ty),*) $(-> $result:ty, $early:expr)?) => {{
        let mut address = $place.load(Relaxed);
        if address == 0 {
            if !ready() {
                return $($early)?;
            }
            address = $place.load(Relaxed);
        }
        // SAFETY: the dynamic linker found the function under its standard name, which has this type.
        let function: unsafe extern "C" fn($($type),*) $(-> $result)? = unsafe { std::mem::transmute(address) };
        // SAFETY: the caller keeps the function's contract.
        unsafe { function($($name),*) }
    }};
}

#[inline]
pub unsafe fn malloc(bytes: usize) -> Pointer {
    call!(MALLOC: fn(bytes: usize) -> Pointer, early(bytes, 16))
}

#[inline]
pub unsafe fn calloc(count: usize, size: usize) -> Pointer {
    call!(CALLOC: fn(count: usize, size: usize) -> Pointer, early(count.saturating_mul(size), 16))
}

#[inline]
pub unsafe fn realloc(old: Pointer, bytes: usize) -> Pointer {
    call!(REALLOC: fn(old: Pointer, bytes: usize) -> Pointer, std::ptr::null_mut())
}

#[inline]
pub unsafe fn free(pointer: Pointer) {
    call!(FREE: fn(pointer: Pointer))
}

#[inline]
pub unsafe fn posix_memalign(place: *mut Pointer, alignment: usize, bytes: usize) -> c_int {
    call!(POSIX_MEMALIGN: fn(place: *mut Pointer, alignment: usize, bytes: usize) -> c_int, libc::ENOMEM)
}

#[inline]
pub unsafe fn memalign(alignment: usize, bytes: usize) -> Pointer {
    call!(MEMALIGN: fn(alignment: usize, bytes: usize) -> Pointer, early(bytes, alignment))
}

#[inline]
pub unsafe fn aligned_alloc(alignment: usize, bytes: usize) -> Pointer {
    call!(ALIGNED_ALLOC: fn(alignment: usize, bytes: usize) -> Pointer, early(bytes, alignment))
}

/// Where the real allocation function lies.
pub fn address_of_malloc() -> usize {
    if ready() { MALLOC.load(Relaxed) } else { 0 }
}

/// Looked up, and not there.
const ABSENT: usize = 1;

/// Functions of the C++ library, looked up when they are first called: 0 before. They are there when it is.
static CPP: [(&CStr, AtomicUsize); 7] = [
    (c"_Znwm", AtomicUsize::new(0)),
    (c"_Znam", AtomicUsize::new(0)),
    (c"_ZnwmSt11align_val_t", AtomicUsize::new(0)),
    (c"_ZnamSt11align_val_t", AtomicUsize::new(0)),
    (c"_ZnwmRKSt9nothrow_t", AtomicUsize::new(0)),
    (c"_ZnwmSt11align_val_tRKSt9nothrow_t", AtomicUsize::new(0)),
    (c"_ZdlPv", AtomicUsize::new(0)),
];

/// The address of one of them; 0 where it is not there.
fn cpp(at: usize) -> usize {
    let (name, place) = &CPP[at];
    let mut address = place.load(Relaxed);
    if address == 0 {
        address = next(name).max(ABSENT);
        place.store(address, Relaxed);
    }
    if address == ABSENT { 0 } else { address }
}

/// The C++ library's own `new`, for the case that memory is out, or that it is left to that library.
pub extern "C" fn new() -> usize {
    cpp(0)
}

pub extern "C" fn new_array() -> usize {
    cpp(1)
}

pub extern "C" fn new_aligned() -> usize {
    cpp(2)
}

pub extern "C" fn new_array_aligned() -> usize {
    cpp(3)
}

pub unsafe fn new_nothrow(bytes: usize) -> Pointer {
    match cpp(4) {
        0 => std::ptr::null_mut(),
        // SAFETY: the C++ library's function: the size, and an object without content.
        address => unsafe {
            let function: unsafe extern "C" fn(usize, *const u8) -> Pointer = std::mem::transmute(address);
            function(bytes, &raw const NOTHING)
        },
    }
}

pub unsafe fn new_aligned_nothrow(bytes: usize, alignment: usize) -> Pointer {
    match cpp(5) {
        0 => std::ptr::null_mut(),
        // SAFETY: see `new_nothrow`.
        address => unsafe {
            let function: unsafe extern "C" fn(usize, usize, *const u8) -> Pointer =
                std::mem::transmute(address);
            function(bytes, alignment, &raw const NOTHING)
        },
    }
}

/// `std::nothrow`, which nobody looks at.
static NOTHING: u8 = 0;

/// Where the C++ library is there, its own; so it is where `new` was.
pub unsafe fn delete(pointer: Pointer) {
    match cpp(6) {
        // SAFETY: the caller's own pointer.
        0 => unsafe { free(pointer) },
        // SAFETY: the C++ library's function, with the caller's own pointer.
        address => unsafe {
            let function: unsafe extern "C" fn(Pointer) = std::mem::transmute(address);
            function(pointer);
        },
    }
}
