//! Memory of the library's own thread. Not the program's `malloc`: that may be interrupted, or be in the middle of calling
//! a function of ours.

use dlmalloc::{Allocator, Dlmalloc};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
/// The thread that forks and holds the lock, by its name in the C library, which the child's thread has too.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
/// Turns for other threads while a fork waits for the lock, which is held for some hundred instructions.
const TURNS: u32 = 100_000;

fn try_lock() -> bool {
    !LOCKED.swap(true, Ordering::Acquire)
}

fn yield_now() {
    // SAFETY: No arguments.
    unsafe { libc::sched_yield() };
}

fn lock() {
    while !try_lock() {
        yield_now();
    }
}

fn unlock() {
    LOCKED.store(false, Ordering::Release);
}

/// Waits until nobody allocates, so that a forked child finds all in order. Whoever still has to wait after so many turns
/// has interrupted its own thread's allocating, in a signal handler.
pub fn before_fork() {
    for _ in 0..TURNS {
        if try_lock() {
            HOLDER.store(this_thread(), Ordering::Relaxed);
            return;
        }
        yield_now();
    }
}

/// The parent goes on, or the child. False: what the child has of the allocator may not be in order.
pub fn after_fork() -> bool {
    let held = HOLDER.compare_exchange(this_thread(), 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if held {
        unlock();
    }
    held
}

fn this_thread() -> usize {
    // SAFETY: A number comes back.
    unsafe { libc::pthread_self() as usize }
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
