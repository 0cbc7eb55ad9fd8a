//! The helper: a thread that lets the policy look at the program's memory.
//!
//! It is started from a function that allocates, after the real one has returned, so that no lock of an allocator is held;
//! and only in a program that has memory enough. It takes no signals. It has a table of open files of its own, so that a
//! program that closes all its descriptors does not end it and finds no stranger among its own. When all other threads have
//! ended, it ends too.

use crate::{PROCESS, hints, is_active, log, quietly};
use std::ffi::c_void;
use std::mem::{transmute, zeroed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use terrace_arena::Promoter;
use terrace_arena::pages::PageTable;
use terrace_arena::system::{self, File};

/// Growth after which the process is looked at.
const GROWTH: usize = 16 << 20;
/// Memory that it has to have: what a huge page less often missed, and the thread, are worth.
const RESIDENT: u64 = 64 << 20;
/// Bytes of the thread's stack, beside what the C library needs there.
const STACK: usize = 256 << 10;
/// Nanoseconds that it rests at most, so that it ends soon after all others.
const REST: u64 = 1_000_000_000;

/// No helper; it is being started or runs; none is to be started any more.
const NONE: u32 = 0;
const STARTED: u32 = 1;
const NEVER: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(NONE);
static DUE: AtomicBool = AtomicBool::new(false);
static GROWN: AtomicUsize = AtomicUsize::new(0);
/// The word that the thread rests on: 1 asks it to end.
static STOP: AtomicU32 = AtomicU32::new(0);
static THREAD: AtomicU64 = AtomicU64::new(0);
/// The thread's number.
static NUMBER: AtomicI32 = AtomicI32::new(0);
/// How often it is looked whether the kernel has let go of the thread.
const LOOKS: u32 = 10_000;

/// The program has so much more memory.
pub fn grown(bytes: usize) {
    if STATE.load(Relaxed) == NONE && GROWN.fetch_add(bytes, Relaxed) + bytes >= GROWTH {
        GROWN.store(0, Relaxed);
        // SAFETY: All zeros is a value of this structure of numbers, and the call fills it.
        let resident = unsafe {
            let mut usage: libc::rusage = zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage.ru_maxrss as u64 * 1024
        };
        if resident >= RESIDENT {
            wanted();
        }
    }
}

/// The helper is to be started at the next opportunity.
pub fn wanted() {
    if STATE.load(Relaxed) == NONE {
        DUE.store(true, Relaxed);
    }
}

/// Whether it is to be started now.
#[inline(always)]
pub fn is_due() -> bool {
    DUE.load(Relaxed)
}

/// In a forked child, which has no thread but its own. `again`: it may have a helper.
pub fn begin_anew(again: bool) {
    STOP.store(0, Relaxed);
    GROWN.store(0, Relaxed);
    DUE.store(false, Relaxed);
    THREAD.store(0, Relaxed);
    if !again {
        STATE.store(NEVER, Relaxed);
    } else if STATE.load(Relaxed) == STARTED {
        STATE.store(NONE, Relaxed);
    }
}

/// Starts it.
#[cold]
pub fn start() {
    // SAFETY: A number comes back. A child of `vfork`, or of a bare `clone`, is not the process that this memory belongs
    // to.
    if !is_active() || unsafe { libc::getpid() } != PROCESS.load(Relaxed) {
        return;
    }
    DUE.store(false, Relaxed);
    if STATE.compare_exchange(NONE, STARTED, Acquire, Relaxed).is_err() {
        return;
    }
    // SAFETY: The thread begins with every signal blocked, as it is created with, and the old mask comes back.
    let error = quietly(|| unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut attributes: libc::pthread_attr_t = zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK + least_stack(&attributes));
        let mut thread: libc::pthread_t = zeroed();
        let error = libc::pthread_create(&raw mut thread, &raw const attributes, run, std::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        if error == 0 {
            THREAD.store(thread as u64, Release);
        }
        error
    });
    if error != 0 {
        STATE.store(NEVER, Relaxed);
        log::line(format_args!("does not join pages later: the program may have no further thread"));
    }
}

/// Bytes of a stack that the C library uses itself, most of them for the program's variables of each thread (TLS). It has a
/// function for this, which is no part of its interface; Rust's own library asks it too.
fn least_stack(attributes: &libc::pthread_attr_t) -> usize {
    // SAFETY: The name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
    if found.is_null() {
        return 0;
    }
    // SAFETY: This is its type since glibc 2.15.
    let asks: unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize = unsafe { transmute(found) };
    // SAFETY: The attributes are initialised.
    unsafe { asks(attributes) }
}

/// Ends it, if it runs, and waits until it has ended. It may be started again.
pub fn stop() {
    // SAFETY: A number comes back.
    let is_own = unsafe { libc::getpid() } == PROCESS.load(Relaxed);
    let thread = if is_own { THREAD.swap(0, Acquire) } else { 0 };
    if thread == 0 {
        return;
    }
    quietly(|| {
        STOP.store(1, Release);
        // SAFETY: The word is a static; the thread was created joinable, and whoever swapped its name out is the only one
        // who joins it.
        unsafe {
            let how = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            libc::syscall(libc::SYS_futex, STOP.as_ptr(), how, i32::MAX);
            libc::pthread_join(thread as libc::pthread_t, std::ptr::null_mut());
            // The kernel counts it among the threads a little longer.
            let (process, number) = (libc::getpid(), NUMBER.load(Relaxed));
            for _ in 0..LOOKS {
                if number == 0 || libc::syscall(libc::SYS_tgkill, process, number, 0) != 0 {
                    break;
                }
                libc::sched_yield();
            }
        }
        STOP.store(0, Relaxed);
        let _ = STATE.compare_exchange(STARTED, NONE, Release, Relaxed);
    });
}

fn is_stopped() -> bool {
    STOP.load(Relaxed) != 0
}

/// The thread.
extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: A number comes back.
    NUMBER.store(unsafe { libc::gettid() }, Relaxed);
    // Whatever goes wrong here is this thread's affair.
    std::panic::set_hook(Box::new(|_| {}));
    let ended = catch_unwind(AssertUnwindSafe(serve));
    let reason = match &ended {
        Ok(Ok(())) => return std::ptr::null_mut(),
        Ok(Err(reason)) => reason.as_str(),
        Err(_) => "of a mistake in this library",
    };
    STATE.store(NEVER, Relaxed);
    log::line(format_args!("does not join pages later: {reason}"));
    std::ptr::null_mut()
}

fn serve() -> Result<(), String> {
    // SAFETY: From here on descriptors are this thread's alone, and all are closed, here only; but for standard error where
    // lines are wanted.
    unsafe {
        if libc::syscall(libc::SYS_unshare, libc::CLONE_FILES) != 0 {
            return Err("the thread may not have open files of its own".to_owned());
        }
        if log::is_wanted() {
            libc::syscall(libc::SYS_close_range, 0, 1, 0);
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        } else {
            libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        }
        libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, c"terrace".as_ptr());
    }
    let state = File::open(c"/proc/self/stat").ok_or("/proc/self/stat cannot be opened")?;
    let mut promoter = Promoter::open()?;
    let table = PageTable::open().ok_or("the page table cannot be opened")?;
    let mut looked = 0;
    let before = (log::JOINED.load(Relaxed), log::SPLIT.load(Relaxed));
    while !is_stopped() && !is_alone(&state) {
        let rest = promoter.step(&mut |promoted| {
            log::JOINED.store(before.0 + promoted.done, Relaxed);
            log::SPLIT.store(before.1 + promoted.split, Relaxed);
            !is_stopped()
        });
        if hints::are_given() && system::now().saturating_sub(looked) >= REST {
            looked = system::now();
            hints::look(&table, promoter.is_short());
        }
        rest_for(rest.min(REST));
    }
    Ok(())
}

fn rest_for(nanos: u64) {
    let span = libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: The word is a static; the call only compares and sleeps.
    unsafe {
        let how = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, STOP.as_ptr(), how, 0, &raw const span);
    }
}

/// Whether the first thread has ended and this one is the only one that has not: `7 (name) Z 1 … 2 …`, where the threads
/// are the 20th word.
fn is_alone(state: &File) -> bool {
    let mut text = [0u8; 1024];
    let count = state.read_at(&mut text, 0);
    let Some(end) = text[..count].iter().rposition(|byte| *byte == b')') else { return false };
    let mut words = text[end + 1..count].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    words.next() == Some(b"Z") && words.nth(16) == Some(b"2")
}
