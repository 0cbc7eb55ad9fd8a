//! The heap: the functions that allocate call the real ones, and then look whether the heap has grown.
//!
//! The C library's allocator grows its heap by 132 KiB at a time, so no huge page fits when memory is first touched. Once
//! the heap is large, it is told to grow by more (`mallopt`), and what it grows by is advised. Allocations that it maps by
//! itself are advised as the program's own mappings are. Another allocator beneath (jemalloc, mimalloc) maps through
//! `mmap`, which is seen there.

use crate::{helper, is_active, log, mapping, quietly, variable};
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use terrace_arena::{BASE, HUGE, system};

type Pointer = *mut c_void;

/// The heap is large from here on.
const LARGE: usize = 8 << 20;
/// It then grows by so much at a time.
const STEP: c_int = 16 << 20;
/// Setting the step ends glibc's own adaption of the size from which it maps an allocation by itself: each time that such an
/// allocation is freed, up to 32 MiB, those of its size come from the heap (malloc.c, `__libc_free`). It goes on here: so
/// many mapped allocations of one program are taken to be one that comes and goes.
const COMES_AND_GOES: usize = 8;
/// `DEFAULT_MMAP_THRESHOLD_MIN` and `DEFAULT_MMAP_THRESHOLD_MAX`.
const MAPPED_FROM: usize = 128 << 10;
const MAPPED_FROM_AT_MOST: usize = 32 << 20;

/// 0: not looked up; 1: being looked up; 2: known.
static STATE: AtomicUsize = AtomicUsize::new(0);
static MALLOC: AtomicUsize = AtomicUsize::new(0);
static CALLOC: AtomicUsize = AtomicUsize::new(0);
static REALLOC: AtomicUsize = AtomicUsize::new(0);
static POSIX_MEMALIGN: AtomicUsize = AtomicUsize::new(0);
static MEMALIGN: AtomicUsize = AtomicUsize::new(0);
static ALIGNED_ALLOC: AtomicUsize = AtomicUsize::new(0);
static MALLOPT: AtomicUsize = AtomicUsize::new(0);
/// Where the C library keeps the end of the heap; 0 where its allocator is not at work.
static BREAK: AtomicUsize = AtomicUsize::new(0);
/// The end of the heap at the last look, and at the start.
static LAST: AtomicUsize = AtomicUsize::new(0);
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// Stretches of 4 MiB in which allocations lay, as far as the table has room: the C library maps the heaps of threads by
/// itself, and by these they are seen to grow.
static STRETCHES: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
const STRETCH: usize = 4 << 20;
/// The user or the program has set how the allocator behaves.
static CHOSEN: AtomicBool = AtomicBool::new(false);
static STEP_SET: AtomicBool = AtomicBool::new(false);
/// From this size on allocations are mapped, as far as is known; and how many were.
static THRESHOLD: AtomicUsize = AtomicUsize::new(MAPPED_FROM);
static MAPPED: AtomicUsize = AtomicUsize::new(0);

fn next(name: &CStr) -> usize {
    // SAFETY: The name ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize }
}

/// Looks up the real functions. Before this has happened there is one thread only.
pub fn resolve() {
    if STATE.compare_exchange(0, 1, Acquire, Acquire).is_err() {
        return;
    }
    let names = [
        (c"malloc", &MALLOC),
        (c"calloc", &CALLOC),
        (c"realloc", &REALLOC),
        (c"posix_memalign", &POSIX_MEMALIGN),
        (c"memalign", &MEMALIGN),
        (c"aligned_alloc", &ALIGNED_ALLOC),
        (c"mallopt", &MALLOPT),
    ];
    for (name, place) in names {
        place.store(next(name), Relaxed);
    }
    STATE.store(2, Release);
}

/// Looks whose allocator it is.
pub fn begin() {
    // SAFETY: The names end with a zero.
    let of = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize };
    let of_library = of(c"__libc_malloc");
    let (place, malloc) = (of(c"__curbrk"), of(c"malloc"));
    // A program with an allocator of its own never calls ours.
    if of_library == 0
        || of_library != MALLOC.load(Relaxed)
        || malloc != self::malloc as *const () as usize
        || place == 0
    {
        return;
    }
    let chosen =
        [c"MALLOC_TOP_PAD_", c"MALLOC_MMAP_THRESHOLD_", c"MALLOC_TRIM_THRESHOLD_", c"MALLOC_MMAP_MAX_"];
    let tunables = variable(c"GLIBC_TUNABLES").unwrap_or_default();
    let tuned = tunables.windows(13).any(|part| part == b"glibc.malloc.");
    if tuned || chosen.iter().any(|name| variable(name).is_some()) {
        CHOSEN.store(true, Relaxed);
        log::line(format_args!("leaves the heap's steps as the environment sets them"));
    }
    // SAFETY: The C library's variable, which stays where it is.
    let end = unsafe { *(place as *const usize) };
    FIRST.store(end, Relaxed);
    LAST.store(end, Relaxed);
    BREAK.store(place, Relaxed);
}

/// Called after each allocation.
#[inline(always)]
fn after(pointer: Pointer, bytes: usize, is_new: bool) -> Pointer {
    let place = BREAK.load(Relaxed);
    if place != 0 {
        // SAFETY: The C library's variable. It changes in the middle of this, and any of its values will do.
        let end = unsafe { (place as *const usize).read_volatile() };
        if end != LAST.load(Relaxed) {
            changed(end);
        }
        let stretch = pointer as usize / STRETCH;
        let known = &STRETCHES[stretch % STRETCHES.len()];
        if known.load(Relaxed) != stretch {
            known.store(stretch, Relaxed);
            quietly(|| helper::grown(STRETCH));
        }
        if bytes >= MAPPED_FROM {
            allocated(pointer, bytes, is_new);
        }
    }
    if helper::is_due() {
        helper::start();
    }
    pointer
}

/// The heap's end has moved.
#[cold]
fn changed(end: usize) {
    let before = LAST.swap(end, Relaxed);
    let first = FIRST.load(Relaxed);
    // A heap moves only if the program calls `brk` by itself.
    if !is_active() || end < before || end.saturating_sub(first) < LARGE {
        return;
    }
    quietly(|| {
        helper::grown(end - before);
        if !CHOSEN.load(Relaxed) && !STEP_SET.swap(true, Relaxed) {
            set_step();
        }
        // From the start on: its parts are one mapping then, for the kernel as for the C library.
        let start = first.next_multiple_of(BASE);
        let end = end / BASE * BASE;
        if crate::budget::take(end - before.max(start))
            && end > start
            && system::advise_huge(start, end - start)
        {
            log::HEAP.fetch_max((end - start) as u64, Relaxed);
        }
    });
}

/// The allocator's parameters; the calls take its lock, which this thread does not hold between two calls.
fn set_step() {
    set(libc::M_TOP_PAD, STEP);
    set_threshold(THRESHOLD.load(Relaxed));
}

fn set_threshold(bytes: usize) {
    THRESHOLD.store(bytes, Relaxed);
    let bytes = bytes as c_int;
    set(libc::M_MMAP_THRESHOLD, bytes);
    set(libc::M_TRIM_THRESHOLD, (2 * bytes).max(2 * STEP));
}

fn set(parameter: c_int, value: c_int) {
    let set = MALLOPT.load(Relaxed);
    if set != 0 {
        // SAFETY: The C library's function, of this type.
        let set: extern "C" fn(c_int, c_int) -> c_int = unsafe { transmute(set) };
        set(parameter, value);
    }
}

/// Memory that the C library's allocator may have mapped for this allocation alone. The same advice twice does nothing.
#[cold]
fn allocated(pointer: Pointer, bytes: usize, is_new: bool) {
    if pointer.is_null() || !is_active() {
        return;
    }
    let is_own_step = STEP_SET.load(Relaxed) && !CHOSEN.load(Relaxed);
    if (FIRST.load(Relaxed)..LAST.load(Relaxed)).contains(&(pointer as usize)) {
        if !is_own_step && bytes < MAPPED_FROM_AT_MOST {
            THRESHOLD.fetch_max(bytes + BASE, Relaxed);
        }
        return;
    }
    let may_be_kept =
        is_own_step && is_new && (THRESHOLD.load(Relaxed)..MAPPED_FROM_AT_MOST).contains(&bytes);
    if may_be_kept && MAPPED.fetch_add(1, Relaxed) + 1 >= COMES_AND_GOES {
        MAPPED.store(0, Relaxed);
        quietly(|| set_threshold((bytes + BASE).min(MAPPED_FROM_AT_MOST)));
    }
    if bytes < HUGE {
        return;
    }
    let start = pointer as usize / BASE * BASE;
    // The whole mapping, or its parts would not move together: malloc.c, `sysmalloc_mmap`, of the chunk of `request2size`.
    let chunk = (bytes + 8).next_multiple_of(16);
    let length = (chunk + 8).next_multiple_of(BASE);
    quietly(|| mapping::advise(start, length));
}

/// The address of a real function; 0 while they are being looked up.
#[inline(always)]
fn known(place: &AtomicUsize) -> usize {
    if STATE.load(Acquire) == 0 {
        resolve();
    }
    place.load(Relaxed)
}

/// Looking up the real functions may allocate, if something goes wrong; it then gets nothing, and does without.
#[cold]
fn none() -> Pointer {
    // SAFETY: The error number belongs to this thread.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    std::ptr::null_mut()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> Pointer {
    let real = known(&MALLOC);
    if real == 0 {
        return none();
    }
    // SAFETY: The real function, of this type, with the caller's arguments; so in all functions below.
    let real: unsafe extern "C" fn(usize) -> Pointer = unsafe { transmute(real) };
    // SAFETY: See above.
    after(unsafe { real(bytes) }, bytes, true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> Pointer {
    let real = known(&CALLOC);
    if real == 0 {
        return none();
    }
    // SAFETY: See `malloc`.
    let real: unsafe extern "C" fn(usize, usize) -> Pointer = unsafe { transmute(real) };
    // SAFETY: See `malloc`.
    after(unsafe { real(count, size) }, count.saturating_mul(size), true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: Pointer, bytes: usize) -> Pointer {
    let real = known(&REALLOC);
    if real == 0 {
        return none();
    }
    // SAFETY: See `malloc`.
    let real: unsafe extern "C" fn(Pointer, usize) -> Pointer = unsafe { transmute(real) };
    // SAFETY: See `malloc`.
    after(unsafe { real(old, bytes) }, bytes, old.is_null())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(place: *mut Pointer, alignment: usize, bytes: usize) -> c_int {
    let real = known(&POSIX_MEMALIGN);
    if real == 0 {
        return libc::ENOMEM;
    }
    // SAFETY: See `malloc`.
    let real: unsafe extern "C" fn(*mut Pointer, usize, usize) -> c_int = unsafe { transmute(real) };
    // SAFETY: See `malloc`; on success the pointer has been stored.
    unsafe {
        let error = real(place, alignment, bytes);
        if error == 0 {
            after(*place, bytes, true);
        }
        error
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(alignment: usize, bytes: usize) -> Pointer {
    let real = known(&MEMALIGN);
    if real == 0 {
        return none();
    }
    // SAFETY: See `malloc`.
    let real: unsafe extern "C" fn(usize, usize) -> Pointer = unsafe { transmute(real) };
    // SAFETY: See `malloc`.
    after(unsafe { real(alignment, bytes) }, bytes, true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> Pointer {
    let real = known(&ALIGNED_ALLOC);
    if real == 0 {
        return none();
    }
    // SAFETY: See `malloc`.
    let real: unsafe extern "C" fn(usize, usize) -> Pointer = unsafe { transmute(real) };
    // SAFETY: See `malloc`.
    after(unsafe { real(alignment, bytes) }, bytes, true)
}

/// A program that sets its allocator is left to its choice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    let real = known(&MALLOPT);
    if real == 0 {
        return 0;
    }
    CHOSEN.store(true, Relaxed);
    // SAFETY: See `malloc`.
    let real: unsafe extern "C" fn(c_int, c_int) -> c_int = unsafe { transmute(real) };
    // SAFETY: See `malloc`.
    unsafe { real(parameter, value) }
}
