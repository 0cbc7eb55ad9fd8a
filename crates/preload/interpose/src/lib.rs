//! The functions of a program that allocate, replaced: for preload libraries that want to know of its allocations.
//!
//! Each replacement calls the program's real allocator (the C library's, jemalloc, or what else comes next) and notifies the
//! library's [`Hooks`] of the object, with the address that the call returns to as its site. C++'s `new` and `delete` are
//! replaced too, or every C++ object would come from the same site inside the C++ library.
//!
//! [`interpose!`] defines the functions in the library that is preloaded; this crate has what they do.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// The functions replaced are those of the C and C++ libraries, and so are their names.
#![allow(missing_docs, non_snake_case, clippy::missing_safety_doc)]

pub mod real;

pub use real::Next;

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// What allocators return.
pub type Pointer = *mut c_void;

/// What is found out when it is first asked for, and stays so.
struct Found(AtomicU8);

impl Found {
    const fn unknown() -> Found {
        Found(AtomicU8::new(0))
    }

    #[inline]
    fn get(&self, find: fn() -> bool) -> bool {
        match self.0.load(Relaxed) {
            0 => self.set(find()),
            known => known == 2,
        }
    }

    #[cold]
    fn set(&self, found: bool) -> bool {
        self.0.store(1 + u8::from(found), Relaxed);
        found
    }
}

/// Whether the program allocates by the functions of this library: not where it brings an allocator of its own, of which
/// only C++'s library would be ours.
#[inline]
pub fn is_allocator() -> bool {
    static IS_ALLOCATOR: Found = Found::unknown();
    IS_ALLOCATOR.get(|| file_of(seen(c"malloc")) == own_file())
}

/// Whether C++'s operators are left to who would have them without this library. A program may replace some of them alone,
/// such as `new` and the plain `delete`; then the C++ library's others call its own, and none may be ours.
#[inline]
fn is_left() -> bool {
    static IS_LEFT: Found = Found::unknown();
    IS_LEFT.get(|| {
        let all_ours = is_allocator() && OPERATOR_NAMES.iter().all(|name| file_of(seen(name)) == own_file());
        // What comes next is the C++ library's, or that of an allocator whose `new` and `malloc` are of one kind.
        let next = real::next(c"_Znwm") as *const c_void;
        let (of_library, of_allocator) =
            (file_of(seen(c"__cxa_throw")), file_of(real::address_of_malloc() as *const c_void));
        let is_plain = next.is_null() || [of_library, of_allocator].contains(&file_of(next));
        !(all_ours && is_plain)
    })
}

/// Where the program finds a function.
fn seen(name: &CStr) -> *const c_void {
    // SAFETY: the name ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Where this library begins in memory.
fn own_file() -> *mut c_void {
    file_of(own_file as *const c_void)
}

/// The operators that [`interpose!`] defines.
const OPERATOR_NAMES: [&CStr; 20] = [
    c"_Znwm",
    c"_Znam",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZdlPvm",
    c"_ZdaPvm",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
    c"_ZdlPvmSt11align_val_t",
    c"_ZdaPvmSt11align_val_t",
    c"_ZdlPvRKSt9nothrow_t",
    c"_ZdaPvRKSt9nothrow_t",
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
];

/// Where the file begins in memory that an address lies in; null where none does.
fn file_of(address: *const c_void) -> *mut c_void {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call fills the structure, of which all zeros is a value.
    unsafe {
        libc::dladdr(address, found.as_mut_ptr());
        found.assume_init().dli_fbase
    }
}

/// A library that wants to know of allocations. Called by any thread, with what it has locked; a hook that allocates comes
/// back here.
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

    /// An object has changed its size: it is at `new` now, or still at `old` with its old size where `new` is null.
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
        None => no_memory(),
    }
}

/// What a function returns that has no memory.
fn no_memory() -> Pointer {
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    std::ptr::null_mut()
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
    match bytes.checked_next_multiple_of(4096) {
        // SAFETY: see `malloc_from`.
        Some(bytes) => unsafe { valloc_from::<H>(bytes, site) },
        None => no_memory(),
    }
}

/// Null where who comes next is to be called.
pub unsafe extern "C" fn new_from<H: Hooks>(bytes: usize, site: usize) -> Pointer {
    if is_left() {
        return std::ptr::null_mut();
    }
    // SAFETY: see `malloc_from`.
    unsafe { malloc_from::<H>(bytes.max(1), site) }
}

/// Null where who comes next is to be called.
pub unsafe extern "C" fn new_aligned_from<H: Hooks>(bytes: usize, alignment: usize, site: usize) -> Pointer {
    if is_left() {
        return std::ptr::null_mut();
    }
    // SAFETY: see `malloc_from`.
    allocated::<H>(unsafe { real::memalign(alignment, bytes.max(1)) }, bytes, site)
}

pub unsafe extern "C" fn new_nothrow_from<H: Hooks>(bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe { or_next(new_from::<H>(bytes, site), &real::NEW_NOTHROW, bytes, real::nothing(), 0) }
}

pub unsafe extern "C" fn new_array_nothrow_from<H: Hooks>(bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe { or_next(new_from::<H>(bytes, site), &real::NEW_ARRAY_NOTHROW, bytes, real::nothing(), 0) }
}

pub unsafe extern "C" fn new_aligned_nothrow_from<H: Hooks>(
    bytes: usize,
    alignment: usize,
    site: usize,
) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe {
        let pointer = new_aligned_from::<H>(bytes, alignment, site);
        or_next(pointer, &real::NEW_ALIGNED_NOTHROW, bytes, alignment, real::nothing())
    }
}

pub unsafe extern "C" fn new_array_aligned_nothrow_from<H: Hooks>(
    bytes: usize,
    alignment: usize,
    site: usize,
) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe {
        let pointer = new_aligned_from::<H>(bytes, alignment, site);
        or_next(pointer, &real::NEW_ARRAY_ALIGNED_NOTHROW, bytes, alignment, real::nothing())
    }
}

/// What our operator returned, or where that is null what the next one does, which calls the program's handler.
unsafe fn or_next(pointer: Pointer, next: &Next, first: usize, second: usize, third: usize) -> Pointer {
    if !pointer.is_null() || next.address() == 0 {
        return pointer;
    }
    // SAFETY: the next function of the same name, with the caller's arguments.
    unsafe { next.call(first, second, third) as Pointer }
}

/// Frees an object of C++. `second` and `third` are what the operator of this name takes besides.
///
/// # Safety
/// As for the C++ function.
pub unsafe fn delete<H: Hooks>(next: &Next, pointer: Pointer, second: usize, third: usize) {
    if is_left() && next.address() != 0 {
        // SAFETY: the next function of the same name, with the caller's arguments.
        unsafe { next.call(pointer as usize, second, third) };
    } else {
        // SAFETY: the caller's own pointer.
        unsafe { free::<H>(pointer) }
    }
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
            _ZnamRKSt9nothrow_t("rsi") => new_array_nothrow_from;
            _ZnwmSt11align_val_tRKSt9nothrow_t("rdx") => new_aligned_nothrow_from;
            _ZnamSt11align_val_tRKSt9nothrow_t("rdx") => new_array_aligned_nothrow_from;
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

/// As [`with_site`], for a `new` that must not return null: where our function fails, the next one of its name is
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
        pub unsafe extern "C" fn $name(pointer: $crate::Pointer, second: usize, third: usize) {
            static NEXT: $crate::Next = $crate::Next::of(concat!(stringify!($name), "\0"));
            // SAFETY: memory that one of the functions above allocated.
            unsafe { $crate::delete::<$hooks>(&NEXT, pointer, second, third) }
        }
    )*};
}
