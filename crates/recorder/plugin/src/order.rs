//! Which system calls give an order between threads and processes: who wakes, who was woken, and whose child has ended.
//!
//! A call that lets others go on takes a number of the global order before it is made, and a thread that comes back from
//! waiting notes the numbers that were given out by then. Nothing of it is done while one thread is all there is.

use crate::syscalls::{number, reads};
use crate::{memory, ring};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terrace_protocol::control::Operation;

/// Operations of futex(2), without their flags.
mod futex {
    pub const WAIT: u64 = 0;
    pub const WAKE: u64 = 1;
    pub const REQUEUE: u64 = 3;
    pub const CMP_REQUEUE: u64 = 4;
    pub const WAKE_OP: u64 = 5;
    pub const LOCK_PI: u64 = 6;
    pub const UNLOCK_PI: u64 = 7;
    pub const WAIT_BITSET: u64 = 9;
    pub const WAKE_BITSET: u64 = 10;
    pub const WAIT_REQUEUE_PI: u64 = 11;
    pub const CMP_REQUEUE_PI: u64 = 12;
    /// What is no flag.
    pub const OPERATION: u64 = 127;
}

/// Whether a futex operation waits.
pub fn is_futex_wait(operation: u64) -> bool {
    use futex::*;
    matches!(operation & OPERATION, WAIT | LOCK_PI | WAIT_BITSET | WAIT_REQUEUE_PI)
}

fn is_futex_wake(operation: u64) -> bool {
    use futex::*;
    matches!(
        operation & OPERATION,
        WAKE | REQUEUE | CMP_REQUEUE | WAKE_OP | UNLOCK_PI | WAKE_BITSET | CMP_REQUEUE_PI
    )
}

/// Whether a call that is about to be made may let another thread go on that waits.
pub fn wakes(number: i64, arguments: &[u64; 6]) -> bool {
    match number {
        number::FUTEX => is_futex_wake(arguments[1]) && has_several(),
        number::WRITE
        | number::WRITEV
        | number::SENDTO
        | number::SENDMSG
        | number::SENDMMSG
        | number::SENDFILE => has_several() && is_channel(arguments[0]),
        number::CONNECT
        | number::SHUTDOWN
        | number::KILL
        | number::TKILL
        | number::TGKILL
        | number::RT_SIGQUEUEINFO
        | number::EXIT
        | number::EXIT_GROUP => has_several(),
        _ => false,
    }
}

/// Whether a call that has been made returned because of what another thread may have done. `waited` says that it was
/// one that was timed.
pub fn was_woken(number: i64, arguments: &[u64; 6], result: i64, waited: bool) -> bool {
    let woken = match number {
        number::FUTEX => waited && result == 0,
        number::PAUSE | number::RT_SIGSUSPEND => true,
        number::POLL
        | number::PPOLL
        | number::SELECT
        | number::PSELECT6
        | number::EPOLL_WAIT
        | number::EPOLL_PWAIT
        | number::RT_SIGTIMEDWAIT => result > 0,
        number::ACCEPT | number::ACCEPT4 => result >= 0,
        // Also what had come before it was asked for, and the end of what comes.
        _ => reads(number) && result >= 0 && has_several() && (waited || is_channel(arguments[0])),
    };
    woken && has_several()
}

/// Takes a number of the global order for a thread that is about to wake others.
pub fn note_wake(vcpu: u32) {
    ring::emit_numbered(vcpu, Operation::Wake, &[], &[]);
}

/// Notes that what follows on the thread comes after all numbers given out so far, in whatever process.
pub fn note_woken(vcpu: u32) {
    let sequence = ring::shared().header().sequence.0.load(SeqCst);
    ring::emit(vcpu, Operation::After, &[sequence], &[]);
}

/// Whether there has been more than one recorded thread, so that there can be an order between threads.
fn has_several() -> bool {
    ring::shared().header().slots_used.load(Relaxed) > 1
}

/// Whether a descriptor is a pipe, a socket, or an event counter: what is written there wakes who reads.
fn is_channel(descriptor: u64) -> bool {
    // SAFETY: a structure of zeroes is valid.
    let mut state: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid; descriptors are the program's own under QEMU.
    let known = unsafe { libc::fstat(descriptor as i32, &raw mut state) } == 0;
    // Event counters are files of no type.
    known && matches!(state.st_mode & libc::S_IFMT, libc::S_IFIFO | libc::S_IFSOCK | 0)
}

/// The process whose end a call has returned, as the calling process numbers it.
pub fn ended_child(number: i64, arguments: &[u64; 6], result: i64) -> Option<u64> {
    let [a1, a2, a3, a4, ..] = *arguments;
    match number {
        number::WAIT4 if result > 0 => {
            // Without a status to look at, it has ended if nothing else was asked for.
            let others = (libc::WUNTRACED | libc::WCONTINUED) as u64;
            let ended = match memory::read_word(a2).filter(|_| a2 != 0) {
                Some(status) => libc::WIFEXITED(status as i32) || libc::WIFSIGNALED(status as i32),
                None => a3 & others == 0,
            };
            ended.then_some(result as u64)
        }
        number::WAITID if result == 0 => {
            // `struct siginfo` of x86-64: the code at byte 8, the process at byte 16. It may be left out.
            let only_exits = a4 & (libc::WSTOPPED | libc::WCONTINUED) as u64 == 0;
            let Some((code, process)) = memory::read_word(a3 + 8).zip(memory::read_word(a3 + 16)) else {
                return Some(a2).filter(|_| only_exits && a1 == u64::from(libc::P_PID));
            };
            let ended = matches!(code as i32, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
            Some(process & u64::from(u32::MAX)).filter(|&process| ended && process != 0)
        }
        _ => None,
    }
}
