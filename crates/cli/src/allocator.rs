//! What happens when memory runs out: one message and an exit status, instead of an abort.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator. Where it refuses, the process ends: nothing in Terrace goes on without the memory it asked for.
/// What may be too large is asked for by other means first.
pub struct Ending;

/// The status of every failure.
const FAILED: i32 = 1;

/// Ends the process where `pointer` is null.
#[inline]
fn or_end(pointer: *mut u8, bytes: usize) -> *mut u8 {
    if pointer.is_null() {
        end(bytes);
    }
    pointer
}

#[cold]
fn end(bytes: usize) -> ! {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::SeqCst) {
        // Another thread is saying it.
        loop {
            std::thread::park();
        }
    }
    // On the stack, and past the locks of standard error, which this thread may hold.
    let mut text = [0; 256];
    let mut rest = &mut text[..];
    let _ = writeln!(
        rest,
        "{}terrace: out of memory: {bytes} bytes more cannot be had; simulate a smaller machine or input (--scale), or raise \
         the memory limit (ulimit -v)",
        terrace_live::systemd::Priority::Error.prefix()
    );
    let length = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let _ = rustix::io::write(rustix::stdio::stderr(), &text[..length]);
    std::process::exit(FAILED)
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Ending {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is this call's.
        or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is this call's.
        or_end(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is this call's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is this call's.
        or_end(unsafe { System.realloc(pointer, layout, size) }, size)
    }
}
