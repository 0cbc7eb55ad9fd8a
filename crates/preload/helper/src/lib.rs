//! Preload library by which a program lets Terrace know which of its pages are stored to.
//!
//! When it is loaded, and again in every child that is forked, it opens a userfaultfd with asynchronous write protection for
//! the program's memory, hands it to Terrace through the socket that `TERRACE_HELPER_SOCKET` names, and closes its own.
//! That is all: no thread, no function replaced, nothing left open.
//!
//! Nothing of the program ever waits for Terrace. The kernel resolves a store to a protected page itself and only notes it.
//! The descriptor that Terrace holds is the only one, so when Terrace ends, however it ends, the kernel takes back the
//! registrations. The socket is never waited for: where Terrace does not answer at once, the program goes on without.

#![cfg(target_os = "linux")]

use std::ffi::c_int;
use terrace_handover::{hand_over, offer_in_every_process, userfaultfd};

/// `UFFD_USER_MODE_ONLY`: any user may have one. No fault is ever waited for, so the kernel's own stores are no exception.
const USER_MODE_ONLY: c_int = 1;
/// `UFFD_FEATURE_WP_HUGETLBFS_SHMEM`, `UFFD_FEATURE_WP_UNPOPULATED`, `UFFD_FEATURE_WP_ASYNC` (Linux 6.7).
const FEATURES: u64 = 1 << 12 | 1 << 13 | 1 << 15;

/// Run by the dynamic linker when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    offer_in_every_process(offer);
}

/// Only system calls, so that it may run in the child of a program with threads.
extern "C" fn offer() {
    hand_over(userfaultfd(USER_MODE_ONLY, FEATURES));
}
