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

/// Where the function of this name lies that comes after ours; 0 where none does.
pub fn next(name: &CStr) -> usize {
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

/// A function that ours hides, such as an operator of the C++ library: looked up when it is first wanted, since it is
/// there when that library is.
#[derive(Debug)]
pub struct Next {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Next {
    /// The function of this name, which ends with a zero.
    pub const fn of(name: &'static str) -> Next {
        match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => Next { name, address: AtomicUsize::new(0) },
            Err(_) => panic!("no zero at the end"),
        }
    }

    /// The function's address; 0 where there is none.
    pub fn address(&self) -> usize {
        let known = self.address.load(Relaxed);
        if known != 0 {
            return known;
        }
        let address = match next(self.name) {
            0 => hidden(self.name),
            address => address,
        };
        self.address.store(address, Relaxed);
        address
    }

    /// Calls it.
    ///
    /// # Safety
    /// It is there, and takes these arguments or the first of them.
    pub unsafe fn call(&self, first: usize, second: usize, third: usize) -> usize {
        // SAFETY: arguments beyond those that a function takes are in registers that it may change.
        unsafe {
            let function: unsafe extern "C" fn(usize, usize, usize) -> usize =
                std::mem::transmute(self.address());
            function(first, second, third)
        }
    }
}

/// The function in a C++ library that only the module which loaded it sees: one of an extension of Python, for instance.
fn hidden(name: &CStr) -> usize {
    for library in [c"libstdc++.so.6", c"libc++.so.1"] {
        // SAFETY: the names are strings; the library is there already and is not loaded by this. It stays, as the handle is
        // kept.
        let address = unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() { continue } else { libc::dlsym(handle, name.as_ptr()) }
        };
        if !address.is_null() {
            return address as usize;
        }
    }
    0
}

static NEW: Next = Next::of("_Znwm\0");
static NEW_ARRAY: Next = Next::of("_Znam\0");
static NEW_ALIGNED: Next = Next::of("_ZnwmSt11align_val_t\0");
static NEW_ARRAY_ALIGNED: Next = Next::of("_ZnamSt11align_val_t\0");
pub static NEW_NOTHROW: Next = Next::of("_ZnwmRKSt9nothrow_t\0");
pub static NEW_ARRAY_NOTHROW: Next = Next::of("_ZnamRKSt9nothrow_t\0");
pub static NEW_ALIGNED_NOTHROW: Next = Next::of("_ZnwmSt11align_val_tRKSt9nothrow_t\0");
pub static NEW_ARRAY_ALIGNED_NOTHROW: Next = Next::of("_ZnamSt11align_val_tRKSt9nothrow_t\0");

/// The address of a `new` that throws, which has no other way to fail: for the case that memory is out, or that operators
/// are left to who comes next. Without one the program ends, as it would where nobody catches what is thrown.
fn throwing(next: &Next) -> usize {
    let address = next.address();
    if address == 0 {
        let text = b"terrace: no memory for an object, and no C++ library to say so\n";
        // SAFETY: the text is that long.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        std::process::abort();
    }
    address
}

pub extern "C" fn new() -> usize {
    throwing(&NEW)
}

pub extern "C" fn new_array() -> usize {
    throwing(&NEW_ARRAY)
}

pub extern "C" fn new_aligned() -> usize {
    throwing(&NEW_ALIGNED)
}

pub extern "C" fn new_array_aligned() -> usize {
    throwing(&NEW_ARRAY_ALIGNED)
}

/// `std::nothrow`, at which nobody looks.
pub fn nothing() -> usize {
    static NOTHING: u8 = 0;
    &raw const NOTHING as usize
}
