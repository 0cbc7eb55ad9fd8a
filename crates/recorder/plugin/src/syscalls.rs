//! System calls: what they do to the address space, which bytes they copy, how long they sleep.
//!
//! QEMU calls back before and after each call; only the callback before sees the arguments, so they are kept per
//! vCPU in between. Numbers are those of x86-64, whatever the host.

use crate::qemu::PluginId;
use crate::{maps, memory, order, removal, ring};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terrace_protocol::control::{Operation, map_kind};
use terrace_protocol::layout::{ADDRESS_BITS, LANES};
use terrace_protocol::marker;

pub mod number {
    pub const READ: i64 = 0;
    pub const WRITE: i64 = 1;
    pub const STAT: i64 = 4;
    pub const FSTAT: i64 = 5;
    pub const LSTAT: i64 = 6;
    pub const POLL: i64 = 7;
    pub const MMAP: i64 = 9;
    pub const MPROTECT: i64 = 10;
    pub const MUNMAP: i64 = 11;
    pub const BRK: i64 = 12;
    pub const PREAD64: i64 = 17;
    pub const PWRITE64: i64 = 18;
    pub const READV: i64 = 19;
    pub const WRITEV: i64 = 20;
    pub const SELECT: i64 = 23;
    pub const MREMAP: i64 = 25;
    pub const MADVISE: i64 = 28;
    pub const SHMAT: i64 = 30;
    pub const PAUSE: i64 = 34;
    pub const NANOSLEEP: i64 = 35;
    pub const ACCEPT: i64 = 43;
    pub const SENDFILE: i64 = 40;
    pub const CONNECT: i64 = 42;
    pub const SENDTO: i64 = 44;
    pub const RECVFROM: i64 = 45;
    pub const SENDMSG: i64 = 46;
    pub const RECVMSG: i64 = 47;
    pub const SHUTDOWN: i64 = 48;
    pub const CLONE: i64 = 56;
    pub const FORK: i64 = 57;
    pub const VFORK: i64 = 58;
    pub const EXECVE: i64 = 59;
    pub const EXIT: i64 = 60;
    pub const WAIT4: i64 = 61;
    pub const KILL: i64 = 62;
    pub const SHMDT: i64 = 67;
    pub const GETCWD: i64 = 79;
    pub const READLINK: i64 = 89;
    pub const RT_SIGTIMEDWAIT: i64 = 128;
    pub const RT_SIGQUEUEINFO: i64 = 129;
    pub const RT_SIGSUSPEND: i64 = 130;
    pub const TKILL: i64 = 200;
    pub const FUTEX: i64 = 202;
    pub const GETDENTS64: i64 = 217;
    pub const CLOCK_NANOSLEEP: i64 = 230;
    pub const EXIT_GROUP: i64 = 231;
    pub const EPOLL_WAIT: i64 = 232;
    pub const TGKILL: i64 = 234;
    pub const WAITID: i64 = 247;
    pub const NEWFSTATAT: i64 = 262;
    pub const READLINKAT: i64 = 267;
    pub const PSELECT6: i64 = 270;
    pub const PPOLL: i64 = 271;
    pub const EPOLL_PWAIT: i64 = 281;
    pub const ACCEPT4: i64 = 288;
    pub const PREADV: i64 = 295;
    pub const PWRITEV: i64 = 296;
    pub const RECVMMSG: i64 = 299;
    pub const SENDMMSG: i64 = 307;
    pub const GETRANDOM: i64 = 318;
    pub const EXECVEAT: i64 = 322;
    pub const PREADV2: i64 = 327;
    pub const PWRITEV2: i64 = 328;
    pub const STATX: i64 = 332;
}

/// Longest vector of buffers that is followed (`UIO_MAXIOV` of Linux).
const MAX_VECTORS: u64 = 1024;
const STAT_BYTES: u64 = 144;
const STATX_BYTES: u64 = 256;
const PAGE: u64 = 4096;

/// A system call in progress.
#[derive(Clone, Copy, Default)]
struct Call {
    arguments: [u64; 6],
    started: u64,
}

struct Calls([UnsafeCell<Call>; LANES]);
// SAFETY: a vCPU's place is touched only by the thread that runs it.
unsafe impl Sync for Calls {}
static CALLS: Calls = Calls([const { UnsafeCell::new(Call { arguments: [0; 6], started: 0 }) }; LANES]);

/// The end of the heap, 0 while unknown.
static BREAK: AtomicU64 = AtomicU64::new(0);
/// Sizes of System V shared memory attached, by address.
static ATTACHED: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(None);

/// Before a system call.
#[allow(clippy::too_many_arguments)]
pub extern "C" fn begins(
    _id: PluginId,
    vcpu: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    a6: u64,
    _a7: u64,
    _a8: u64,
) {
    if ring::is_discarding() {
        removal::remove_if_safe(vcpu);
        return;
    }
    let call = Call { arguments: [a1, a2, a3, a4, a5, a6], started: 0 };
    let place = CALLS.0[vcpu as usize].get();
    // SAFETY: this thread's own place.
    unsafe { place.write(call) };
    if order::wakes(number, &call.arguments) {
        order::note_wake(vcpu);
    }
    match number {
        marker::SYSCALL => mark(vcpu, &call.arguments),
        number::MUNMAP if a1.is_multiple_of(PAGE) && a2 != 0 => {
            // Before the call: afterwards another thread may already have been given the same addresses.
            ring::emit_sequenced(vcpu, Operation::Unmap, &[a1, a2.next_multiple_of(PAGE)], &[]);
        }
        number::SHMDT => {
            let bytes =
                ATTACHED.lock().unwrap_or_else(|e| e.into_inner()).as_mut().and_then(|m| m.remove(&a1));
            if let Some(bytes) = bytes {
                ring::emit_sequenced(vcpu, Operation::Unmap, &[a1, bytes], &[]);
            }
        }
        number::FORK | number::VFORK | number::CLONE if forks(number, a1) => {
            ring::shared().header().forks.fetch_add(1, SeqCst);
            ring::flush(vcpu);
        }
        number::EXECVE | number::EXECVEAT => {
            let path = memory::read_string(if number == number::EXECVE { a1 } else { a2 }, marker::MAX_NAME);
            let followed = is_qemu(&path);
            let name = if followed { followed_program(a2) } else { path };
            ring::emit(vcpu, Operation::ExecBegin, &[u64::from(followed)], &name);
            ring::flush(vcpu);
        }
        number::EXIT | number::EXIT_GROUP => {
            let pending = ring::lane(vcpu).pending.swap(0, Relaxed);
            if pending > 0 {
                ring::emit(vcpu, Operation::Compute, &[pending >> ADDRESS_BITS], &[]);
            }
            ring::emit(vcpu, Operation::Exit, &[u64::from(number == number::EXIT_GROUP)], &[]);
            ring::flush(vcpu);
        }
        _ if waits(number, &call.arguments) => {
            ring::flush(vcpu);
            // SAFETY: this thread's own place.
            unsafe { (*place).started = now() };
        }
        _ => {}
    }
}

/// After a system call, with its result: an error is a small negative number.
pub extern "C" fn ends(_id: PluginId, vcpu: c_uint, number: i64, result: i64) {
    if ring::is_discarding() {
        return;
    }
    // SAFETY: this thread's own place.
    let call = unsafe { *CALLS.0[vcpu as usize].get() };
    let [a1, a2, a3, a4, a5, a6] = call.arguments;
    match number {
        number::FORK | number::VFORK | number::CLONE if forks(number, a1) => {
            if result == 0 {
                ring::after_fork(vcpu);
            } else if result < 0 {
                ring::shared().header().forks.fetch_sub(1, SeqCst);
            }
            return;
        }
        number::EXECVE | number::EXECVEAT => {
            ring::emit(vcpu, Operation::ExecFailed, &[], &[]);
            return;
        }
        _ => {}
    }
    if call.started != 0 {
        let waited = now().saturating_sub(call.started);
        // A read that only asked whether there is something did not wait; one that ran into its socket's limit did.
        let asked = result == -i64::from(libc::EAGAIN) && reads(number) && waited < SHORTEST_LIMIT;
        if !asked {
            ring::emit(vcpu, Operation::Wait, &[waited], &[]);
        }
    }
    if order::was_woken(number, &call.arguments, result, call.started != 0) {
        order::note_woken(vcpu);
    }
    if let Some(child) = order::ended_child(number, &call.arguments, result) {
        ring::emit(vcpu, Operation::ChildEnded, &[child], &[]);
    }
    let failed = (-4095..0).contains(&result);
    if failed {
        return;
    }
    let value = result as u64;
    let length = |bytes: u64| bytes.next_multiple_of(PAGE);
    match number {
        number::MMAP => mapped(vcpu, value, a2, a3, a4, a5, a6),
        number::MREMAP => {
            ring::emit_sequenced(vcpu, Operation::Remap, &[a1, length(a2), value, length(a3)], &[])
        }
        number::MPROTECT if a2 > 0 => {
            ring::emit_sequenced(vcpu, Operation::Protect, &[a1, length(a2), a3 & 7], &[]);
        }
        number::MADVISE if a2 > 0 => {
            ring::emit_sequenced(vcpu, Operation::Advise, &[a1, length(a2), a3], &[]);
        }
        number::BRK => moved_break(vcpu, value),
        number::SHMAT => {
            if let Some(bytes) = maps::length_at(value) {
                ATTACHED
                    .lock()
                    .unwrap_or_else(|e| e.into_inner())
                    .get_or_insert_default()
                    .insert(value, bytes);
                let words = [value, bytes, map_kind::SHARED_ANONYMOUS | 3 << 8, 0];
                ring::emit_sequenced(vcpu, Operation::Map, &words, &[]);
            }
        }
        number::READ | number::PREAD64 | number::RECVFROM => copied(vcpu, a2, value, true),
        number::WRITE | number::PWRITE64 | number::SENDTO => copied(vcpu, a2, value, false),
        number::READLINK | number::GETDENTS64 => copied(vcpu, a2, value, true),
        number::READLINKAT => copied(vcpu, a3, value, true),
        number::GETCWD | number::GETRANDOM => copied(vcpu, a1, value, true),
        number::STAT | number::FSTAT | number::LSTAT => copied(vcpu, a2, STAT_BYTES, true),
        number::NEWFSTATAT => copied(vcpu, a3, STAT_BYTES, true),
        number::STATX => copied(vcpu, a5, STATX_BYTES, true),
        number::EPOLL_WAIT | number::EPOLL_PWAIT => copied(vcpu, a2, value * 12, true),
        number::POLL | number::PPOLL if value > 0 => copied(vcpu, a1, a2.saturating_mul(8), true),
        number::READV | number::PREADV | number::PREADV2 => vectors(vcpu, a2, a3, value, true),
        number::WRITEV | number::PWRITEV | number::PWRITEV2 => vectors(vcpu, a2, a3, value, false),
        number::RECVMSG => message(vcpu, a2, value, true),
        number::SENDMSG => message(vcpu, a2, value, false),
        number::RECVMMSG => messages(vcpu, a2, value, true),
        number::SENDMMSG => messages(vcpu, a2, value, false),
        _ => {}
    }
}

/// Whether the call makes a process rather than a thread, as QEMU 7.2 decides it.
fn forks(number: i64, flags: u64) -> bool {
    number != number::CLONE || flags & libc::CLONE_VM as u64 == 0 || flags & libc::CLONE_VFORK as u64 != 0
}

/// Whether the call sleeps: idle time, not memory time.
fn waits(number: i64, arguments: &[u64; 6]) -> bool {
    match number {
        number::FUTEX => order::is_futex_wait(arguments[1]),
        number::POLL
        | number::PPOLL
        | number::SELECT
        | number::PSELECT6
        | number::PAUSE
        | number::NANOSLEEP
        | number::CLOCK_NANOSLEEP
        | number::ACCEPT
        | number::ACCEPT4
        | number::WAIT4
        | number::WAITID
        | number::RT_SIGSUSPEND
        | number::RT_SIGTIMEDWAIT
        | number::EPOLL_WAIT
        | number::EPOLL_PWAIT => true,
        _ => reads(number) && has_nothing_to_read(arguments[0]),
    }
}

/// Whether the call reads what may still have to come: it sleeps only if nothing is there.
pub fn reads(number: i64) -> bool {
    matches!(number, number::READ | number::READV | number::RECVFROM | number::RECVMSG | number::RECVMMSG)
}

/// Whether a read would have to wait: never on a regular file, which is always ready.
fn has_nothing_to_read(descriptor: u64) -> bool {
    let mut poll = libc::pollfd { fd: descriptor as i32, events: libc::POLLIN, revents: 0 };
    // A negative descriptor is left out by `poll`, and refused by a read.
    // SAFETY: one valid element; descriptors are the program's own under QEMU. An error is no 0.
    poll.fd >= 0 && unsafe { libc::poll(&mut poll, 1, 0) == 0 }
}

/// A read that fails with `EAGAIN` sooner than this, in nanoseconds, did not wait: time limits of sockets are longer.
const SHORTEST_LIMIT: u64 = 1_000_000;

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn mapped(vcpu: u32, start: u64, bytes: u64, protection: u64, flags: u64, fd: u64, offset: u64) {
    let has = |flag: i32| flags & flag as u64 != 0;
    let anonymous = has(libc::MAP_ANONYMOUS);
    let kind = match anonymous {
        _ if has(libc::MAP_HUGETLB) => map_kind::HUGE_TLB,
        true if has(libc::MAP_SHARED) => map_kind::SHARED_ANONYMOUS,
        true if has(libc::MAP_STACK) => map_kind::STACK,
        true => map_kind::ANONYMOUS,
        false if has(libc::MAP_SHARED) => map_kind::SHARED_FILE,
        false => map_kind::PRIVATE_FILE,
    };
    let name = match anonymous {
        true => Vec::new(),
        false => std::fs::read_link(format!("/proc/self/fd/{}", fd as i32))
            .map(|path| path.into_os_string().into_encoded_bytes())
            .unwrap_or_default(),
    };
    let words = [start, bytes.next_multiple_of(PAGE), kind | (protection & 7) << 8, offset];
    ring::emit_sequenced(vcpu, Operation::Map, &words, &name);
}

fn moved_break(vcpu: u32, now: u64) {
    let before = BREAK.swap(now, SeqCst);
    if before == 0 {
        return;
    }
    let (old, new) = (before.next_multiple_of(PAGE), now.next_multiple_of(PAGE));
    if new > old {
        let words = [old, new - old, map_kind::HEAP | 3 << 8, 0];
        ring::emit_sequenced(vcpu, Operation::Map, &words, b"[heap]");
    } else if new < old {
        ring::emit_sequenced(vcpu, Operation::Unmap, &[new, old - new], &[]);
    }
}

fn copied(vcpu: u32, start: u64, bytes: u64, kernel_writes: bool) {
    if bytes > 0 && start != 0 {
        ring::emit(vcpu, Operation::Kernel, &[start, bytes, u64::from(kernel_writes)], &[]);
    }
}

/// `total` bytes spread over `count` buffers at `vector`.
fn vectors(vcpu: u32, vector: u64, count: u64, total: u64, kernel_writes: bool) {
    let mut left = total;
    for i in 0..count.min(MAX_VECTORS) {
        let at = vector + i * 16;
        let (Some(start), Some(bytes)) = (memory::read_word(at), memory::read_word(at + 8)) else {
            return;
        };
        let part = bytes.min(left);
        copied(vcpu, start, part, kernel_writes);
        left -= part;
        if left == 0 {
            return;
        }
    }
}

/// `total` bytes of a `struct msghdr`: its vector lies at byte 16, their number at byte 24.
fn message(vcpu: u32, header: u64, total: u64, kernel_writes: bool) {
    if let (Some(vector), Some(count)) = (memory::read_word(header + 16), memory::read_word(header + 24)) {
        vectors(vcpu, vector, count, total, kernel_writes);
    }
}

/// `count` messages in an array of `struct mmsghdr`, 64 bytes each with the length at byte 56.
fn messages(vcpu: u32, array: u64, count: u64, kernel_writes: bool) {
    for i in 0..count.min(MAX_VECTORS) {
        let at = array + i * 64;
        if let Some(bytes) = memory::read_word(at + 56) {
            message(vcpu, at, bytes & u64::from(u32::MAX), kernel_writes);
        }
    }
}

/// Whether an `execve` by the preload library starts QEMU again: it passes the variable's path unchanged.
fn is_qemu(path: &[u8]) -> bool {
    static QEMU: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let own = QEMU.get_or_init(|| {
        std::fs::read_link("/proc/self/exe")
            .map(|p| p.into_os_string().into_encoded_bytes())
            .unwrap_or_default()
    });
    path == own.as_slice()
        || std::fs::canonicalize(std::ffi::OsStr::new(&*String::from_utf8_lossy(path)))
            .is_ok_and(|p| p.into_os_string().into_encoded_bytes() == *own)
}

/// The program that a relaunched QEMU runs: the argument after `--`, the separator the preload library writes.
fn followed_program(argv: u64) -> Vec<u8> {
    for i in 0..32 {
        let Some(argument) = memory::read_word(argv + i * 8).filter(|&a| a != 0) else {
            break;
        };
        if memory::read_string(argument, 3) == b"--" {
            let program = memory::read_word(argv + (i + 1) * 8).unwrap_or(0);
            return memory::read_string(program, marker::MAX_NAME);
        }
    }
    Vec::new()
}

fn mark(vcpu: u32, arguments: &[u64; 6]) {
    let [operation, a, b, c, d, e] = *arguments;
    let name = |address: u64, length: u64| {
        if address == 0 { Vec::new() } else { memory::read_bytes(address, length, marker::MAX_NAME) }
    };
    match operation {
        marker::REGION_BEGIN | marker::REGION_END => {
            ring::emit_sequenced(vcpu, Operation::Mark, &[operation, 0], &name(a, b));
        }
        marker::PHASE | marker::REQUEST_BEGIN | marker::REQUEST_END => {
            ring::emit(vcpu, Operation::Mark, &[0, operation, c], &name(a, b));
        }
        marker::ALLOC if a != 0 => {
            ring::emit_sequenced(vcpu, Operation::Alloc, &[a, b.max(1), c], &name(d, e));
        }
        marker::FREE if a != 0 => ring::emit_sequenced(vcpu, Operation::Free, &[a], &[]),
        marker::REALLOC_BEGIN => ring::emit_sequenced(vcpu, Operation::ReallocBegin, &[a], &[]),
        marker::REALLOC_END => ring::emit_sequenced(vcpu, Operation::ReallocEnd, &[a, b], &[]),
        marker::HELLO => ring::emit(vcpu, Operation::Hello, &[a], &[]),
        _ => {}
    }
}
