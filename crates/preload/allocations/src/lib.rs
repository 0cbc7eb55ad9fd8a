//! Preload library that reports the allocations of a recorded program.
//!
//! The functions that allocate are replaced: each calls the program's real allocator (the C library's, jemalloc, or
//! what else comes next) and then reports the object by the reserved system call, with the address of the call as
//! its site. Objects are reported dead before they are freed, so that no other thread can be given the memory
//! first. C++'s `new` and `delete` are replaced too, or every C++ object would come from the same site inside the
//! C++ library.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// The functions replaced are those of the C and C++ libraries, and so are their names.
#![allow(missing_docs, non_snake_case, clippy::missing_safety_doc)]

mod real;

use std::arch::{asm, naked_asm};
use std::ffi::{c_int, c_void};
use terrace_protocol::marker;

type Pointer = *mut c_void;

/// Run by the dynamic linker when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    real::resolve();
    report(marker::HELLO, 1, 0, 0);
}

/// Issues the reserved system call. Leaves `errno` alone.
fn report(operation: u64, a: u64, b: u64, c: u64) {
    // SAFETY: the number names no system call; nothing happens but an error result, which is ignored. `syscall`
    // overwrites rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") marker::SYSCALL => _,
            in("rdi") operation,
            in("rsi") a,
            in("rdx") b,
            in("r10") c,
            // The optional name.
            in("r8") 0u64,
            in("r9") 0u64,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
}

fn allocated(pointer: Pointer, bytes: usize, site: usize) -> Pointer {
    if !pointer.is_null() && !real::is_early(pointer) {
        report(marker::ALLOC, pointer as u64, bytes as u64, site as u64);
    }
    pointer
}

unsafe extern "C" fn malloc_from(bytes: usize, site: usize) -> Pointer {
    // SAFETY: the real function, with the caller's arguments; so in all functions below.
    allocated(unsafe { real::malloc(bytes) }, bytes, site)
}

unsafe extern "C" fn calloc_from(count: usize, size: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    allocated(unsafe { real::calloc(count, size) }, count.wrapping_mul(size), site)
}

unsafe extern "C" fn realloc_from(old: Pointer, bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe {
        if old.is_null() {
            return malloc_from(bytes, site);
        }
        if real::is_early(old) {
            return allocated(real::realloc_early(old, bytes), bytes, site);
        }
        if bytes == 0 {
            report(marker::FREE, old as u64, 0, 0);
            return real::realloc(old, 0);
        }
        report(marker::REALLOC_BEGIN, old as u64, 0, 0);
        let new = real::realloc(old, bytes);
        report(marker::REALLOC_END, new as u64, bytes as u64, 0);
        new
    }
}

unsafe extern "C" fn reallocarray_from(old: Pointer, count: usize, size: usize, site: usize) -> Pointer {
    match count.checked_mul(size) {
        // SAFETY: see `malloc_from`.
        Some(bytes) => unsafe { realloc_from(old, bytes, site) },
        None => {
            // SAFETY: errno is the thread's own.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            std::ptr::null_mut()
        }
    }
}

unsafe extern "C" fn posix_memalign_from(
    place: *mut Pointer,
    alignment: usize,
    bytes: usize,
    site: usize,
) -> c_int {
    // SAFETY: see `malloc_from`; on success the pointer has been stored.
    unsafe {
        let error = real::posix_memalign(place, alignment, bytes);
        if error == 0 {
            allocated(*place, bytes, site);
        }
        error
    }
}

unsafe extern "C" fn memalign_from(alignment: usize, bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    allocated(unsafe { real::memalign(alignment, bytes) }, bytes, site)
}

unsafe extern "C" fn aligned_alloc_from(alignment: usize, bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    allocated(unsafe { real::aligned_alloc(alignment, bytes) }, bytes, site)
}

unsafe extern "C" fn valloc_from(bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    allocated(unsafe { real::memalign(4096, bytes) }, bytes, site)
}

unsafe extern "C" fn pvalloc_from(bytes: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    unsafe { valloc_from(bytes.next_multiple_of(4096), site) }
}

unsafe extern "C" fn new_from(bytes: usize, site: usize) -> Pointer {
    let bytes = bytes.max(1);
    // SAFETY: see `malloc_from`.
    unsafe { malloc_from(bytes, site) }
}

unsafe extern "C" fn new_aligned_from(bytes: usize, alignment: usize, site: usize) -> Pointer {
    // SAFETY: see `malloc_from`.
    allocated(unsafe { real::memalign(alignment, bytes.max(1)) }, bytes, site)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(pointer: Pointer) {
    if pointer.is_null() || real::is_early(pointer) {
        return;
    }
    report(marker::FREE, pointer as u64, 0, 0);
    // SAFETY: the caller's own pointer.
    unsafe { real::free(pointer) }
}

/// An entry point that passes its return address, the call's site, as one argument more.
macro_rules! with_site {
    ($($name:ident($register:literal) => $function:ident;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                concat!("mov ", $register, ", [rsp]"),
                "jmp {function}",
                function = sym $function,
            )
        }
    )*};
}

with_site! {
    malloc("rsi") => malloc_from;
    calloc("rdx") => calloc_from;
    realloc("rdx") => realloc_from;
    reallocarray("rcx") => reallocarray_from;
    posix_memalign("rcx") => posix_memalign_from;
    memalign("rdx") => memalign_from;
    aligned_alloc("rdx") => aligned_alloc_from;
    valloc("rsi") => valloc_from;
    pvalloc("rsi") => pvalloc_from;
    _ZnwmRKSt9nothrow_t("rsi") => new_from;
    _ZnamRKSt9nothrow_t("rsi") => new_from;
    _ZnwmSt11align_val_tRKSt9nothrow_t("rdx") => new_aligned_from;
    _ZnamSt11align_val_tRKSt9nothrow_t("rdx") => new_aligned_from;
}

/// As [`with_site`], for a `new` that must not return null: where our function fails, the C++ library's own is
/// entered as if the program had called it, calls the program's handler and throws past us.
macro_rules! throwing_new {
    ($($name:ident($register:literal) => $function:ident, $real:path;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
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
                function = sym $function,
                real = sym $real,
            )
        }
    )*};
}

throwing_new! {
    _Znwm("rsi") => new_from, real::new;
    _Znam("rsi") => new_from, real::new_array;
    _ZnwmSt11align_val_t("rdx") => new_aligned_from, real::new_aligned;
    _ZnamSt11align_val_t("rdx") => new_aligned_from, real::new_array_aligned;
}

macro_rules! delete {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(pointer: Pointer) {
            // SAFETY: memory that one of the functions above allocated.
            unsafe { free(pointer) }
        }
    )*};
}

delete! {
    _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm
    _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t
    _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t
    _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t
}
