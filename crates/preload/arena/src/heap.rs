//! The heap: the functions that allocate call the real ones (`terrace_interpose`), and then look whether the heap has grown.
//!
//! The C library's allocator grows its heap by 132 KiB at a time, so no huge page fits when memory is first touched. Once
//! the heap is large, it is set to grow by more (`mallopt`), and what it grows by is advised. Allocations that it maps by
//! itself are advised as the program's own mappings are. Another allocator beneath (jemalloc, mimalloc) maps through
//! `mmap`, which is seen there.

use crate::{helper, hints, is_active, log, mapping, quietly, variable};
use std::ffi::{CStr, c_int};
use std::mem::transmute;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use terrace_arena::{BASE, HUGE, system};
use terrace_interpose::{Hooks, Pointer};
use terrace_placing::Placed;

/// The heap is large from here on.
const LARGE: usize = 8 << 20;
/// A large heap grows by so much at a time.
const STEP: c_int = 16 << 20;
/// Setting the step ends glibc's own adaption of the size from which it maps an allocation by itself: each time that such an
/// allocation is freed, up to 32 MiB, those of its size come from the heap (malloc.c, `__libc_free`). It goes on here: so
/// many mapped allocations of one program are taken to be one that comes and goes.
const COMES_AND_GOES: usize = 8;
/// `DEFAULT_MMAP_THRESHOLD_MIN` and `DEFAULT_MMAP_THRESHOLD_MAX`.
const MAPPED_FROM: usize = 128 << 10;
const MAPPED_FROM_AT_MOST: usize = 32 << 20;

/// The C library's `mallopt`; 0: not looked up.
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
/// Size from which on allocations are mapped, as far as is known; and how many were.
static THRESHOLD: AtomicUsize = AtomicUsize::new(MAPPED_FROM);
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// What is known of an object while its size changes.
pub struct Program;

impl Hooks for Program {
    type Resized = Option<Placed>;

    fn start() {
        crate::start();
    }

    #[inline(always)]
    fn allocated(pointer: Pointer, bytes: usize, site: usize) {
        if hints::are_given() {
            terrace_placing::allocated(pointer as usize, bytes, site);
        }
        after(pointer, bytes, true);
    }

    #[inline(always)]
    fn freeing(pointer: Pointer) {
        if hints::are_given() {
            terrace_placing::freeing(pointer as usize);
        }
    }

    #[inline(always)]
    fn resizing(pointer: Pointer) -> Option<Placed> {
        if hints::are_given() { terrace_placing::resizing(pointer as usize) } else { None }
    }

    #[inline(always)]
    fn resized(object: Option<Placed>, old: Pointer, new: Pointer, bytes: usize) {
        if object.is_some() {
            terrace_placing::resized(object, old as usize, new as usize, bytes);
        }
        if !new.is_null() {
            after(new, bytes, false);
        }
    }
}

terrace_interpose::interpose!(Program);

/// Looks whose allocator it is.
pub fn begin() {
    // SAFETY: The names end with a zero.
    let of = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize };
    let of_library = of(c"__libc_malloc");
    let (place, malloc) = (of(c"__curbrk"), of(c"malloc"));
    // A program with an allocator of its own never calls ours.
    if of_library == 0
        || of_library != terrace_interpose::real::address_of_malloc()
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
fn after(pointer: Pointer, bytes: usize, is_new: bool) {
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

fn real_mallopt() -> usize {
    if MALLOPT.load(Relaxed) == 0 {
        // SAFETY: The name ends with a zero.
        MALLOPT.store(unsafe { libc::dlsym(libc::RTLD_NEXT, c"mallopt".as_ptr()) as usize }, Relaxed);
    }
    MALLOPT.load(Relaxed)
}

fn set(parameter: c_int, value: c_int) {
    let set = real_mallopt();
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

/// A program that sets its allocator is left to its choice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    let real = real_mallopt();
    if real == 0 {
        return 0;
    }
    CHOSEN.store(true, Relaxed);
    // SAFETY: The C library's function, of this type, with the caller's arguments.
    unsafe {
        let real: unsafe extern "C" fn(c_int, c_int) -> c_int = transmute(real);
        real(parameter, value)
    }
}
