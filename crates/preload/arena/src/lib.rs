//! `libterrace.so`: preload library that gives a program huge pages where they pay.
//!
//! `LD_PRELOAD=libterrace.so program` is all; no right is needed. Where the system's setting is `madvise`, a program has
//! huge pages only in memory for which it asks. This library asks in its place:
//!
//! - **Mappings** ([`mapping`]). What the program maps is aligned and advised when it is made, so that the first touch
//!   brings in a huge page. Small mappings come out of larger ones, so that several share a huge page.
//! - **The heap** ([`heap`]). Where the C library's own allocator is at work, its heap grows in larger steps and is
//!   advised.
//! - **All else** ([`helper`]). A thread lets the policy `trident` look at the page table; what is dense is joined. The
//!   policy is the source that the simulator runs. The thread is started only where there is memory enough to pay.
//!
//! **No harm.** The functions replaced here hold no lock, allocate nothing, use no variable of a thread, and do what the
//! program asked for; `errno` stays as the real function left it. No memory belongs to this library but its own few pages:
//! what the program frees or unmaps, it frees and unmaps at the real functions. Advice that the kernel refuses changes
//! nothing. The library steps aside for sanitizers, in programs that restrict their system calls, and where `TERRACE_ARENA`
//! is `off`.
//!
//! | `TERRACE_ARENA` | meaning |
//! |---|---|
//! | unset | huge pages, no word |
//! | `log` | and a line on standard error for what is missing, and one at the end for what was done |
//! | `off` | nothing at all |

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// The functions replaced are those of the C library, and so are their names.
#![allow(missing_docs, non_snake_case, clippy::missing_safety_doc)]

mod api;
mod budget;
mod children;
mod heap;
mod helper;
mod hints;
mod log;
mod mapping;
mod memory;
mod restricting;
mod stores;

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

/// Whether the replaced functions do more than the real ones. Set once at the start, taken back for ever where a program
/// restricts its system calls.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// The process that this is. A child of `vfork` has its parent's memory and another number.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// What makes huge pages a waste or a hindrance: the shadow memory of sanitizers.
const SANITIZERS: [&CStr; 4] = [c"__asan_init", c"__tsan_init", c"__msan_init", c"__hwasan_init"];

/// Run when the program ends by `exit`.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn end() {
    terrace_arena::giant::give_back();
    log::summary();
    hints::summary();
}

/// Called when the library is loaded.
fn start() {
    children::begin();
    let setting = variable(c"TERRACE_ARENA").unwrap_or_default();
    log::begin(setting == b"log");
    if setting == b"off" {
        return;
    }
    for name in SANITIZERS {
        // SAFETY: The name ends with a zero.
        if !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null() {
            log::line(format_args!("stands aside: the program is built with a sanitizer"));
            return;
        }
    }
    // SAFETY: A number comes back.
    PROCESS.store(unsafe { libc::getpid() }, Relaxed);
    // SAFETY: The three functions may run around a fork, in the order in which they are given.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    heap::begin();
    ACTIVE.store(true, Relaxed);
    hints::begin();
    grow();
}

/// `TERRACE_GROW_1G`: so many pages may be added to the kernel's pool of 1 GiB pages while the program runs.
fn grow() {
    let Some(text) = variable(c"TERRACE_GROW_1G").filter(|text| !text.is_empty()) else { return };
    match str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
        Some(pages) => {
            terrace_arena::giant::listen(|refused| log::line(format_args!("pool of 1 GiB pages: {refused}")));
            terrace_arena::giant::allow(pages);
        }
        None => log::always(format_args!("TERRACE_GROW_1G is a number of pages; the pool is not grown")),
    }
}

fn is_active() -> bool {
    ACTIVE.load(Relaxed)
}

/// A variable of the environment, for the start, when no other thread can change it.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: The name ends with a zero; what comes back is null or a string of the environment.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

extern "C" fn before_fork() {
    memory::before_fork();
}

extern "C" fn in_parent() {
    memory::after_fork();
}

/// The child has the memory and no thread but this one.
extern "C" fn in_child() {
    let in_order = memory::after_fork();
    // SAFETY: A number comes back.
    PROCESS.store(unsafe { libc::getpid() }, Relaxed);
    helper::begin_anew(in_order);
}

/// Runs `work` and leaves the error number as it was.
fn quietly<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: The error number belongs to this thread.
    unsafe {
        let place = libc::__errno_location();
        let error = *place;
        let result = work();
        *place = error;
        result
    }
}
