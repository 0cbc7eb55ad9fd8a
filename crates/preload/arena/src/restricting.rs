//! Calls by which a program restricts itself or its threads: the helper ends first.

use crate::{ACTIVE, helper};
use std::ffi::{c_int, c_long, c_ulong};
use std::sync::atomic::Ordering::Relaxed;

/// A filter of system calls may follow, under which any call could be the end of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    if matches!(option, libc::PR_SET_NO_NEW_PRIVS | libc::PR_SET_SECCOMP) {
        ACTIVE.store(false, Relaxed);
        helper::stop();
    }
    // SAFETY: The caller's own arguments.
    unsafe { libc::syscall(libc::SYS_prctl, c_long::from(option), a, b, c, d) as c_int }
}

/// A process with two threads may not enter a user namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    helper::stop();
    // SAFETY: The caller's own argument.
    unsafe { libc::syscall(libc::SYS_unshare, c_long::from(flags)) as c_int }
}

/// A process with two threads may not enter a user namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(descriptor: c_int, kind: c_int) -> c_int {
    helper::stop();
    // SAFETY: The caller's own arguments.
    unsafe { libc::syscall(libc::SYS_setns, c_long::from(descriptor), c_long::from(kind)) as c_int }
}
