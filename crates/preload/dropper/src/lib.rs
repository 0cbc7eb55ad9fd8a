//! Preload library by which Terrace learns which pages of a program's shared memory are accessed: a thread that, when
//! asked, takes out page-table entries, so that the next access to each page makes a new one, which shows from outside.
//!
//! The call for that is `madvise(MADV_DONTNEED)`. On shared memory it drops entries and no data: the pages stay in their
//! file.
//! **On private memory it destroys data**, so everything here is about never making it there:
//!
//! - Only mappings are touched that the program made through this library's `mmap`, `mremap` or `shmat`, that are shared
//!   anonymous memory, memfds, tmpfs files or System V segments, and that it has not given up since.
//! - Those functions and `munmap` and `shmdt` keep out a drop while they work, and wait for one under way ([`gate`]). Within
//!   that exclusion the kernel is asked for each piece whether it is shared still (`PROCMAP_QUERY`); only then the call is
//!   made.
//! - A mapping that is not what this library knows of it was changed by system calls that went past it: from then on
//!   nothing is dropped in this process. What no check can exclude is that such a call comes between the check and the drop.
//!
//! The thread waits in `read` for Terrace and ends with it. It takes no signals, and has a table of open files of its own,
//! so that a program that closes every descriptor neither ends it nor gets its number. It is a thread of the C library's, so
//! that it gives up privileges with the others.

#![cfg(target_os = "linux")]

mod areas;
mod calls;
mod gate;

use std::ffi::{c_int, c_void};
use std::mem::{size_of, zeroed};
use std::ops::Range;
use terrace_handover::entries::{BUSY, DONE, DROP, ELSEWHERE, LIST, LOST};
use terrace_handover::{DROPPER, connected, remember, send};

/// Bytes of the largest piece that is dropped while changes of the address space wait.
const PIECE: u64 = 2 << 20;
const PAGE: u64 = 4096;
/// Bytes of the thread's stack.
const STACK: usize = 256 << 10;

/// Run by the dynamic linker when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    gate::begin_anew();
    if !remember() {
        return;
    }
    // SAFETY: the three functions may run around a fork, in the order in which they are given.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    offer();
}

extern "C" fn before_fork() {
    areas::lock();
}

extern "C" fn in_parent() {
    areas::unlock();
}

/// The child has the mappings and no thread but this one.
extern "C" fn in_child() {
    areas::unlock();
    gate::begin_anew();
    offer();
}

/// Hands over one end of a socket and starts the thread that serves the other.
fn offer() {
    let mut ends: [c_int; 2] = [-1; 2];
    // SAFETY: two numbers are filled. The descriptors are this function's until the thread takes one; the thread begins
    // with every signal blocked, as it is created with, and the old mask comes back.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) != 0
        {
            return;
        }
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut attributes: libc::pthread_attr_t = zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        let mut thread: libc::pthread_t = zeroed();
        // The thread copies the table of open files; until it has, its descriptor stays open in this one.
        let ready = libc::eventfd(0, libc::EFD_CLOEXEC);
        let packed = (ready as u32 as u64) << 32 | u64::from(ends[0] as u32);
        let argument = packed as usize as *mut c_void;
        if ready >= 0
            && let Some(socket) = connected()
            && libc::pthread_create(&raw mut thread, &raw const attributes, serve, argument) == 0
        {
            let mut count = 0u64;
            libc::read(ready, (&raw mut count).cast(), 8);
            send(&socket, DROPPER, ends[1]);
        }
        libc::pthread_attr_destroy(&raw mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        if ready >= 0 {
            libc::close(ready);
        }
        libc::close(ends[0]);
        libc::close(ends[1]);
    }
}

/// The thread.
extern "C" fn serve(argument: *mut c_void) -> *mut c_void {
    let packed = argument as usize as u64;
    let (ready, socket) = ((packed >> 32) as c_int, packed as u32 as c_int);
    // SAFETY: from `unshare` on descriptors are this thread's alone; all but its socket are closed again, here only. Whoever
    // created it waits until then.
    let maps = unsafe {
        let own = libc::unshare(libc::CLONE_FILES) == 0;
        let one = 1u64;
        libc::write(ready, (&raw const one).cast(), 8);
        if !own {
            return std::ptr::null_mut();
        }
        if socket > 0 {
            libc::syscall(libc::SYS_close_range, 0, socket - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, socket + 1, u32::MAX, 0);
        libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)
    };
    answer(socket, maps);
    // SAFETY: both are this thread's; a number below 0 is refused.
    unsafe {
        libc::close(maps);
        libc::close(socket);
    }
    std::ptr::null_mut()
}

/// Answers requests until the other end is gone.
fn answer(socket: c_int, maps: c_int) {
    let mut list = [(0u64, 0u64); areas::MOST];
    loop {
        let mut request = [0u64; 3];
        if !whole(socket, request.as_mut_ptr().cast(), size_of::<[u64; 3]>(), false) {
            return;
        }
        let count = match request {
            [LIST, ..] => areas::all(&mut list),
            [DROP, start, end] => {
                let mut began = now();
                list[0] = (drop_entries(maps, start..end, &mut began), began);
                1
            }
            _ => return,
        };
        let mut head = [request[0], count as u64];
        let sent = whole(socket, head.as_mut_ptr().cast(), size_of::<[u64; 2]>(), true)
            && whole(socket, list.as_mut_ptr().cast(), count * size_of::<(u64, u64)>(), true);
        if !sent {
            return;
        }
    }
}

/// Sends or receives so many bytes; false when the other end is gone.
fn whole(socket: c_int, bytes: *mut c_void, count: usize, send: bool) -> bool {
    let mut done = 0;
    while done < count {
        // SAFETY: the callers' memory holds `count` bytes.
        let result = unsafe {
            let (at, left) = (bytes.byte_add(done), count - done);
            match send {
                true => libc::send(socket, at, left, libc::MSG_NOSIGNAL),
                false => libc::recv(socket, at, left, 0),
            }
        };
        if result <= 0 {
            return false;
        }
        done += result as usize;
    }
    true
}

/// Nanoseconds of the clock that goes on while a machine is suspended.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Takes out the entries of a range, piece by piece; says when it began with the last one.
fn drop_entries(maps: c_int, range: Range<u64>, began: &mut u64) -> u64 {
    if !range.start.is_multiple_of(PAGE) || !range.end.is_multiple_of(PAGE) {
        return ELSEWHERE;
    }
    let mut at = range.start;
    while at < range.end {
        let piece = at..range.end.min((at / PIECE + 1) * PIECE);
        let Some(_alone) = gate::Dropping::begin() else { return BUSY };
        // From here until the end of this round no function of this library changes the address space.
        *began = now();
        match drop_piece(maps, &piece) {
            DONE => at = piece.end,
            other => return other,
        }
    }
    DONE
}

fn drop_piece(maps: c_int, piece: &Range<u64>) -> u64 {
    if areas::is_lost() {
        return LOST;
    }
    if !areas::contain(piece) {
        return ELSEWHERE;
    }
    let mut outcome = DONE;
    let mut at = piece.start;
    while at < piece.end {
        let Some((end, page)) = shared_until(maps, at) else {
            // The address lies in an area, so it is mapped and shared, as far as this library knows.
            areas::lose();
            return LOST;
        };
        let end = end.min(piece.end);
        // SAFETY: the kernel has just said that this is one shared mapping of base pages, whose data are in its file;
        // nothing of this library changes that while `Dropping` lives. A mapping that is locked refuses, and stays as it is.
        let gone = page == PAGE
            && unsafe { libc::madvise(at as *mut c_void, (end - at) as usize, libc::MADV_DONTNEED) } == 0;
        if !gone {
            outcome = ELSEWHERE;
        }
        at = end;
    }
    outcome
}

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// `_IOWR('f', 17, struct procmap_query)` (Linux 6.11).
const PROCMAP_QUERY: libc::Ioctl = 0xc068_6611;
/// `PROCMAP_QUERY_VMA_SHARED`.
const SHARED: u64 = 1 << 3;

/// Where the mapping ends that holds this address, and the bytes of its pages, if it is shared.
fn shared_until(maps: c_int, address: u64) -> Option<(u64, u64)> {
    let mut query = Query { size: size_of::<Query>() as u64, query_addr: address, ..Query::default() };
    // SAFETY: the structure is the one that the request names, with its size, and asks for no name and no build id.
    let found = unsafe { libc::ioctl(maps, PROCMAP_QUERY, &raw mut query) } == 0;
    let fits = query.vma_flags & SHARED != 0 && query.vma_start <= address && address < query.vma_end;
    (found && fits).then_some((query.vma_end, query.vma_page_size))
}
