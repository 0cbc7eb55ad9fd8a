//! Preload library by which a program lets Terrace know when chosen pages of its shared memory are accessed.
//!
//! When it is loaded, and again in every child that is forked, it opens a userfaultfd for minor faults of shared memory,
//! hands it to Terrace through the socket that `TERRACE_HELPER_SOCKET` names, and closes its own. No thread, no function
//! replaced, nothing left open.
//!
//! **An access to a page that is sampled waits until Terrace has answered.** What bounds that: nothing is registered until
//! Terrace does it, and only around the pages that it samples; and the descriptor that Terrace holds is the only one, so
//! when Terrace ends, however it ends, the kernel takes back the registrations and wakes whoever waits.
//!
//! The descriptor is one for the kernel's own accesses, too: were it not, a system call that is given the address of a
//! sampled page would fail. Such a one is for programs with `CAP_SYS_PTRACE`, or all where `vm.unprivileged_userfaultfd` is
//! 1; the others run without.

#![cfg(target_os = "linux")]

use terrace_handover::{hand_over, offer_in_every_process, userfaultfd};

/// `UFFD_FEATURE_THREAD_ID`, `UFFD_FEATURE_MINOR_SHMEM`, `UFFD_FEATURE_EXACT_ADDRESS` (Linux 5.18). No events: children and
/// memory that has moved are not registered, and nobody waits for an answer about them.
const FEATURES: u64 = 1 << 8 | 1 << 10 | 1 << 11;

/// Run by the dynamic linker when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    offer_in_every_process(offer);
}

/// Only system calls, so that it may run in the child of a program with threads.
extern "C" fn offer() {
    // Terrace looks for faults without waiting.
    hand_over(userfaultfd(libc::O_NONBLOCK, FEATURES));
}
