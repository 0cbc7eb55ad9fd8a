//! Programs that the program starts have the system's placement of memory, and not the one of hints.
//!
//! Where a thread's memory is placed outlives `exec` (`set_mempolicy`). So the functions that execute a program are
//! replaced: each calls the real one, and meanwhile the thread has no placement of this library's. What the program has
//! chosen by itself stays. Without hints they call the real function at once.
//!
//! They may be called in a child of `vfork` or `fork`: nothing is allocated or looked up there, for the real functions are
//! known from the start.

use crate::quietly;
use libc::{FILE, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int};
use std::mem::transmute;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_placement::Wish;

type Strings = *const *const c_char;

/// `MPOL_DEFAULT`.
const DEFAULT: c_int = 0;

/// The placement that this library has set: its mode and its nodes.
static OWN: OnceLock<(c_int, Wish)> = OnceLock::new();

/// The functions, as they stand in [`REAL`].
const NAMES: [&CStr; 13] = [
    c"execve",
    c"execv",
    c"execvp",
    c"execvpe",
    c"fexecve",
    c"execveat",
    c"posix_spawn",
    c"posix_spawnp",
    c"system",
    c"popen",
    c"execl",
    c"execlp",
    c"execle",
];
const EXECL: usize = 10;
/// Where the real ones lie; 0: not looked up, or there is none.
static REAL: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Looks up the real functions.
pub fn begin() {
    (0..NAMES.len()).for_each(|at| {
        real(at);
    });
}

/// Threads that this one starts from now on have this placement, and so has this one.
pub fn keep_from_children(mode: c_int, nodes: Wish) {
    let _ = OWN.set((mode, nodes));
}

/// The real function.
fn real(at: usize) -> usize {
    match REAL[at].load(Relaxed) {
        0 => {
            let found = terrace_interpose::real::next(NAMES[at]);
            REAL[at].store(found, Relaxed);
            found
        }
        known => known,
    }
}

/// Whether this thread has the placement that the library has set.
fn is_own((mode, nodes): &(c_int, Wish)) -> bool {
    let mut now: c_int = 0;
    let mut there = nodes.nodes;
    there.fill(0);
    // SAFETY: The call fills a number and a mask of as many bits as are announced, less one as the kernel counts.
    let asked = unsafe {
        let (mask, bits) = (there.as_mut_ptr(), there.len() * 64 + 1);
        libc::syscall(libc::SYS_get_mempolicy, &raw mut now, mask, bits, 0usize, 0usize)
    };
    asked == 0 && now == *mode && there == nodes.nodes
}

/// Takes the placement from this thread, if it is the library's; returns it.
fn drop_own() -> Option<&'static (c_int, Wish)> {
    let own = OWN.get()?;
    quietly(|| {
        let none = std::ptr::null::<u64>();
        // SAFETY: No mask is read.
        (is_own(own) && unsafe { libc::syscall(libc::SYS_set_mempolicy, DEFAULT, none, 0usize) } == 0)
            .then_some(own)
    })
}

/// Calls `work` while the thread has no placement of this library's.
fn without<R>(work: impl FnOnce() -> R) -> R {
    let had = drop_own();
    let result = work();
    if let Some((mode, nodes)) = had {
        let (mask, bits) = (nodes.nodes.as_ptr(), nodes.nodes.len() * 64 + 1);
        // SAFETY: A mask of as many bits as are announced, less one as the kernel counts.
        quietly(|| unsafe { libc::syscall(libc::SYS_set_mempolicy, *mode, mask, bits) });
    }
    result
}

/// What a call answers whose real function is not there.
fn missing() -> c_int {
    // SAFETY: The error number belongs to this thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

macro_rules! calling {
    ($($at:literal $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty, or $otherwise:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $answer {
            let real = real($at);
            if real == 0 {
                return $otherwise;
            }
            // SAFETY: The C library's function of this name, which has this type.
            let real: unsafe extern "C" fn($($kind),*) -> $answer = unsafe { transmute(real) };
            // SAFETY: The caller's own arguments.
            without(|| unsafe { real($($argument),*) })
        }
    )*};
}

calling! {
    0 execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int, or missing();
    1 execv(path: *const c_char, argv: Strings) -> c_int, or missing();
    2 execvp(file: *const c_char, argv: Strings) -> c_int, or missing();
    3 execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int, or missing();
    4 fexecve(file: c_int, argv: Strings, envp: Strings) -> c_int, or missing();
    5 execveat(folder: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int, or missing();
    6 posix_spawn(
        process: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, argv: Strings, envp: Strings
    ) -> c_int, or libc::ENOSYS;
    7 posix_spawnp(
        process: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, argv: Strings, envp: Strings
    ) -> c_int, or libc::ENOSYS;
    8 system(command: *const c_char) -> c_int, or missing();
    9 popen(command: *const c_char, mode: *const c_char) -> *mut FILE, or { missing(); std::ptr::null_mut() };
}

/// Before a variadic function: returns the real one. Where that fails, the thread goes on without the library's placement.
extern "C" fn before(at: usize) -> usize {
    drop_own();
    match real(at) {
        0 => missing as fn() -> c_int as usize,
        real => real,
    }
}

/// A variadic function, which Rust cannot define: it keeps its arguments, in registers and on the stack, and goes on in the
/// real one (System V ABI for x86-64, section 3.2.3).
macro_rules! going_on {
    ($($at:literal $name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "mov edi, {at}",
                "call {before}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp r11",
                at = const EXECL + $at,
                before = sym before,
            )
        }
    )*};
}

going_on! {
    0 execl;
    1 execlp;
    2 execle;
}
