//! Memory of the library's own thread. Not the program's `malloc`: that may be interrupted, or be in the middle of calling
//! a function of ours.

use dlmalloc::{Allocator, Dlmalloc};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_arena::system;

/// Gets its memory from the kernel, past the functions that this library replaces.
struct Kernel;

// SAFETY: `alloc` returns memory that nobody else has, and `free` gives back just that.
unsafe impl Allocator for Kernel {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        match system::map(size) {
            Ok(address) => (address, size, 0),
            Err(_) => (std::ptr::null_mut(), 0, 0),
        }
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, address: *mut u8, size: usize) -> bool {
        // SAFETY: It came from `alloc`, and the allocator has no more use for it.
        unsafe { system::unmap(address, size) }
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        terrace_arena::BASE
    }
}

struct Own(UnsafeCell<Dlmalloc<Kernel>>);

// SAFETY: It is reached only while `LOCKED` is held.
unsafe impl Sync for Own {}

static OWN: Own = Own(UnsafeCell::new(Dlmalloc::new_with_allocator(Kernel)));
static LOCKED: AtomicBool = AtomicBool::new(false);

/// Waits until nobody else allocates. Held around a fork, so that the child does not find it locked for ever.
pub fn lock() {
    while LOCKED.swap(true, Ordering::Acquire) {
        // SAFETY: No arguments.
        unsafe { libc::sched_yield() };
    }
}

/// Ends what [`lock`] began.
pub fn unlock() {
    LOCKED.store(false, Ordering::Release);
}

fn with<R>(work: impl FnOnce(&mut Dlmalloc<Kernel>) -> R) -> R {
    lock();
    // SAFETY: The lock is held, and `work` cannot keep the reference.
    let result = work(unsafe { &mut *OWN.0.get() });
    unlock();
    result
}

struct Global;

// SAFETY: dlmalloc keeps the contract of an allocator; layouts are handed on as they come.
unsafe impl GlobalAlloc for Global {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: As the caller promises; so below.
        with(|own| unsafe { own.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: See `alloc`.
        with(|own| unsafe { own.free(address, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: See `alloc`.
        with(|own| unsafe { own.realloc(address, layout.size(), layout.align(), size) })
    }
}

#[global_allocator]
static GLOBAL: Global = Global;
