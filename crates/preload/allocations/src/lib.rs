//! Preload library that reports the allocations of a recorded program.
//!
//! The functions that allocate are replaced (`terrace_interpose`): each calls the program's real allocator and then
//! reports the object by the reserved system call, with the address of the call as its site. Objects are reported dead
//! before they are freed, so that no other thread can be given the memory first.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// The functions replaced are those of the C and C++ libraries, and so are their names.
#![allow(missing_docs, non_snake_case, clippy::missing_safety_doc)]

use std::arch::asm;
use terrace_interpose::{Hooks, Pointer};
use terrace_protocol::marker;

/// Issues the reserved system call. Leaves `errno` alone.
fn report(operation: u64, a: u64, b: u64, c: u64) {
    // SAFETY: the number names no system call; nothing happens but an error result, which is ignored. `syscall`
    // overwrites rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") marker::SYSCALL => _,
            in("rdi") operation,
            in("rsi") a,
            in("rdx") b,
            in("r10") c,
            // The optional name.
            in("r8") 0u64,
            in("r9") 0u64,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
}

struct Reported;

impl Hooks for Reported {
    type Resized = ();

    fn start() {
        report(marker::HELLO, 1, 0, 0);
    }

    fn allocated(pointer: Pointer, bytes: usize, site: usize) {
        report(marker::ALLOC, pointer as u64, bytes as u64, site as u64);
    }

    fn freeing(pointer: Pointer) {
        report(marker::FREE, pointer as u64, 0, 0);
    }

    fn resizing(pointer: Pointer) {
        report(marker::REALLOC_BEGIN, pointer as u64, 0, 0);
    }

    fn resized((): (), _: Pointer, new: Pointer, bytes: usize) {
        report(marker::REALLOC_END, new as u64, bytes as u64, 0);
    }
}

terrace_interpose::interpose!(Reported);
