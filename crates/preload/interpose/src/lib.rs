//! The functions of a program that allocate, replaced: for preload libraries that want to know of its allocations.
//!
//! Each replacement calls the program's real allocator (the C library's, jemalloc, or what else comes next) and tells the
//! library's [`Hooks`] of the object, with the address that the call returns to as its site. C++'s `new` and `delete` are
//! replaced too, or every C++ object would come from the same site inside the C++ library.
//!
//! [`interpose!`] defines the functions in the library that is preloaded; this crate has what they do.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// The functions replaced are those of the C and C++ libraries, and so are their names.
#![allow(missing_docs, non_snake_case, clippy::missing_safety_doc)]

pub mod real;

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// What allocators return.
pub type Pointer = *mut c_void;

/// Whether the program allocates by the functions of this library: not where it brings an allocator of its own, of which
/// only C++'s library would be ours. 0: nobody has asked; 1: it does; 2: it does not.
static STATE: AtomicU8 = AtomicU8::new(0);

/// Whether the program allocates by the functions of this library.
#[inline]
pub fn is_allocator() -> bool {
    match STATE.load(Relaxed) {
        1 => true,
        2 => false,
        _ => decide(),
    }
}

#[cold]
fn decide() -> bool {
    let file_of = |address: *const c_void| {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the call fills the structure, of which all zeros is a value.
        unsafe {
            libc::dladdr(address, found.as_mut_ptr());
            found.assume_init().dli_fbase
        }
    };
    // SAFETY: the name ends with a zero.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    let is_ours = file_of(malloc) == file_of(decide as *const c_void);
    STATE.store(if is_ours { 1 } else { 2 }, Relaxed);
    is_ours
}

/// Whether the C++ library is to do it, which calls the program's own `malloc` and `free`.
#[inline]
fn is_left() -> bool {
    !is_allocator() && real::new() != 0
}

/// Who wants to know of allocations. Called by any thread, with what it has locked; a hook that allocates comes back here.
pub trait Hooks {
    /// What is known of an object while its size changes.
    type Resized;

    /// The library was loaded; there is one thread.
    fn start();

    /// An object is there.
    fn allocated(pointer: Pointer, bytes: usize, site: usize);

    /// An object is about to be freed: no other can have its memory yet.
    fn freeing(pointer: Pointer);

    /// An object is about to change its size.
    fn resizing(pointer: Pointer) -> Self::Resized;

    /// It has: it is at `new` now, or still at `old` with its old size where `new` is null.
    fn resized(object: Self::Resized, old: Pointer, new: Pointer, bytes: usize);
}

fn allocated<H: Hooks>(pointer: Pointer, bytes: usize, site: usize) -> Pointer {
    if !pointer.is_null() && !real::is_early(pointer) {
        H::allocated(pointer, bytes, site);
    }
    pointer
}

pub unsafe extern "C" fn malloc_from<H: Hooks>(bytes: usize, site: usize) -> Pointer {
    // SAFETY: the real function, with the caller's arguments; so in all functions below.
    allocated::<H>(unsafe { real::malloc(bytes) }, bytes, site)
}

pub unsafe extern "C" fn calloc_from<H: Hooks>(count: usize, size: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    allocated::<H>(unsafe { real::calloc(count, size) }, count.wrapping_mul(size), site)
}

pub unsafe extern "C" fn realloc_from<H: Hooks>(old: Pointer, bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe {
        if old.is_null() {
            return malloc_from::<H>(bytes, site);
        }
        if real::is_early(old) {
            return allocated::<H>(real::realloc_early(old, bytes), bytes, site);
        }
        if bytes == 0 {
            H::freeing(old);
            return real::realloc(old, 0);
        }
        let object = H::resizing(old);
        let new = real::realloc(old, bytes);
        H::resized(object, old, new, bytes);
        new
    }
}

pub unsafe extern "C" fn reallocarray_from<H: Hooks>(
    old: Pointer,
    count: usize,
    size: usize,
    site: usize,
) -> Pointer {
    match count.checked_mul(size) {
        // SAFETY: see `malloc_from`.
        Some(bytes) => unsafe { realloc_from::<H>(old, bytes, site) },
        None => {
            // SAFETY: errno is the thread's own.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            std::ptr::null_mut()
        }
    }
}

pub unsafe extern "C" fn posix_memalign_from<H: Hooks>(
    place: *mut Pointer,
    alignment: usize,
    bytes: usize,
    site: usize,
) -> c_int {
    // SAFETY: see `malloc_from`; on success the pointer has been stored.
    unsafe {
        let error = real::posix_memalign(place, alignment, bytes);
        if error == 0 {
            allocated::<H>(*place, bytes, site);
        }
        error
    }
}

pub unsafe extern "C" fn memalign_from<H: Hooks>(alignment: usize, bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    allocated::<H>(unsafe { real::memalign(alignment, bytes) }, bytes, site)
}

pub unsafe extern "C" fn aligned_alloc_from<H: Hooks>(
    alignment: usize,
    bytes: usize,
    site: usize,
) -> Pointer {
    // SAFETY: see `malloc_from`.
    allocated::<H>(unsafe { real::aligned_alloc(alignment, bytes) }, bytes, site)
}

pub unsafe extern "C" fn valloc_from<H: Hooks>(bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    allocated::<H>(unsafe { real::memalign(4096, bytes) }, bytes, site)
}

pub unsafe extern "C" fn pvalloc_from<H: Hooks>(bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe { valloc_from::<H>(bytes.next_multiple_of(4096), site) }
}

/// Null where the C++ library is to be called.
pub unsafe extern "C" fn new_from<H: Hooks>(bytes: usize, site: usize) -> Pointer {
    if is_left() {
        return std::ptr::null_mut();
    }
    let bytes = bytes.max(1);
    // SAFETY: see `malloc_from`.
    unsafe { malloc_from::<H>(bytes, site) }
}

/// Null where the C++ library is to be called.
pub unsafe extern "C" fn new_aligned_from<H: Hooks>(bytes: usize, alignment: usize, site: usize) -> Pointer {
    if is_left() {
        return std::ptr::null_mut();
    }
    // SAFETY: see `malloc_from`.
    allocated::<H>(unsafe { real::memalign(alignment, bytes.max(1)) }, bytes, site)
}

pub unsafe extern "C" fn new_nothrow_from<H: Hooks>(bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe { if is_left() { real::new_nothrow(bytes) } else { new_from::<H>(bytes, site) } }
}

pub unsafe extern "C" fn new_aligned_nothrow_from<H: Hooks>(
    bytes: usize,
    alignment: usize,
    site: usize,
) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe {
        if is_left() {
            real::new_aligned_nothrow(bytes, alignment)
        } else {
            new_aligned_from::<H>(bytes, alignment, site)
        }
    }
}

/// Frees an object of C++.
///
/// # Safety
/// As for the C++ function.
pub unsafe fn delete<H: Hooks>(pointer: Pointer) {
    // SAFETY: the caller's own pointer.
    unsafe { if is_left() { real::delete(pointer) } else { free::<H>(pointer) } }
}

/// Frees an object.
///
/// # Safety
/// As for the C function.
#[inline]
pub unsafe fn free<H: Hooks>(pointer: Pointer) {
    if pointer.is_null() || real::is_early(pointer) {
        return;
    }
    H::freeing(pointer);
    // SAFETY: the caller's own pointer.
    unsafe { real::free(pointer) }
}

/// Defines all functions that allocate and free, with these [`Hooks`], and the library's start.
#[macro_export]
macro_rules! interpose {
    ($hooks:ty) => {
        /// Run by the dynamic linker when the library is loaded.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static START: extern "C" fn() = start;

        extern "C" fn start() {
            $crate::real::resolve();
            <$hooks as $crate::Hooks>::start();
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn free(pointer: $crate::Pointer) {
            // SAFETY: the caller's own pointer.
            unsafe { $crate::free::<$hooks>(pointer) }
        }

        $crate::with_site! { $hooks;
            malloc("rsi") => malloc_from;
            calloc("rdx") => calloc_from;
            realloc("rdx") => realloc_from;
            reallocarray("rcx") => reallocarray_from;
            posix_memalign("rcx") => posix_memalign_from;
            memalign("rdx") => memalign_from;
            aligned_alloc("rdx") => aligned_alloc_from;
            valloc("rsi") => valloc_from;
            pvalloc("rsi") => pvalloc_from;
            _ZnwmRKSt9nothrow_t("rsi") => new_nothrow_from;
            _ZnamRKSt9nothrow_t("rsi") => new_nothrow_from;
            _ZnwmSt11align_val_tRKSt9nothrow_t("rdx") => new_aligned_nothrow_from;
            _ZnamSt11align_val_tRKSt9nothrow_t("rdx") => new_aligned_nothrow_from;
        }

        $crate::throwing_new! { $hooks;
            _Znwm("rsi") => new_from, new;
            _Znam("rsi") => new_from, new_array;
            _ZnwmSt11align_val_t("rdx") => new_aligned_from, new_aligned;
            _ZnamSt11align_val_t("rdx") => new_aligned_from, new_array_aligned;
        }

        $crate::delete! { $hooks;
            _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm
            _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t
            _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t
            _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t
        }
    };
}

/// An entry point that passes its return address, the call's site, as one argument more.
#[doc(hidden)]
#[macro_export]
macro_rules! with_site {
    ($hooks:ty; $($name:ident($register:literal) => $function:ident;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                concat!("mov ", $register, ", [rsp]"),
                "jmp {function}",
                function = sym $crate::$function::<$hooks>,
            )
        }
    )*};
}

/// As [`with_site`], for a `new` that must not return null: where our function fails, the C++ library's own is
/// entered as if the program had called it, calls the program's handler and throws past us.
#[doc(hidden)]
#[macro_export]
macro_rules! throwing_new {
    ($hooks:ty; $($name:ident($register:literal) => $function:ident, $real:ident;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "push rdi",
                "push rsi",
                concat!("mov ", $register, ", [rsp + 16]"),
                "sub rsp, 8",
                "call {function}",
                "test rax, rax",
                "jz 2f",
                "add rsp, 24",
                "ret",
                "2:",
                "call {real}",
                "add rsp, 8",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                function = sym $crate::$function::<$hooks>,
                real = sym $crate::real::$real,
            )
        }
    )*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! delete {
    ($hooks:ty; $($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(pointer: $crate::Pointer) {
            // SAFETY: memory that one of the functions above allocated.
            unsafe { $crate::delete::<$hooks>(pointer) }
        }
    )*};
}
