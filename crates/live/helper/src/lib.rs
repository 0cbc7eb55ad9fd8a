//! Preload library by which a program lets Terrace know which of its pages are stored to.
//!
//! When it is loaded, and again in every child that is forked, it opens a userfaultfd with asynchronous write protection for
//! the program's memory, hands it to Terrace through the socket that `TERRACE_HELPER_SOCKET` names, and closes its own.
//! That is all: no thread, no function replaced, nothing left open.
//!
//! Nothing of the program ever waits for Terrace. The kernel resolves a store to a protected page itself and only notes it. The
//! descriptor that Terrace holds is the only one, so when Terrace ends, however it ends, the kernel takes back the
//! registrations. The socket is never waited for: where Terrace does not answer at once, the program goes on without.

#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{size_of, zeroed};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where Terrace listens, for the children too, which may have cleared their environment.
static SOCKET: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// `UFFD_USER_MODE_ONLY`: any user may have one. No fault is ever waited for, so the kernel's own stores are no exception.
const USER_MODE_ONLY: c_int = 1;
/// `UFFD_API`, the version of the interface.
const API: u64 = 0xaa;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
/// `UFFD_FEATURE_WP_HUGETLBFS_SHMEM`, `UFFD_FEATURE_WP_UNPOPULATED`, `UFFD_FEATURE_WP_ASYNC` (Linux 6.7).
const FEATURES: u64 = 1 << 12 | 1 << 13 | 1 << 15;

/// Run by the dynamic linker when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // SAFETY: the name ends with a zero; the answer is null or a string that stays while nobody changes the environment,
    // which no code of the program has had time for.
    unsafe {
        let path = libc::getenv(c"TERRACE_HELPER_SOCKET".as_ptr());
        if path.is_null() {
            return;
        }
        SOCKET.store(libc::strdup(path), Ordering::Relaxed);
        // A child's memory is its own: it has no registration yet.
        libc::pthread_atfork(None, None, Some(offer));
    }
    offer();
}

/// Only system calls, so that it may run in the child of a program with threads.
extern "C" fn offer() {
    let path = SOCKET.load(Ordering::Relaxed);
    if path.is_null() {
        return;
    }
    // SAFETY: the string was copied by `start` and is never freed.
    let path = unsafe { CStr::from_ptr(path) };
    let Some(descriptor) = tracker() else { return };
    if let Some(socket) = connected(path) {
        send(&socket, &descriptor);
    }
}

/// A descriptor that is closed at the end.
struct Descriptor(c_int);

impl Descriptor {
    fn new(number: c_int) -> Option<Descriptor> {
        (number >= 0).then_some(Descriptor(number))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it is ours and open.
        unsafe { libc::close(self.0) };
    }
}

/// A userfaultfd for this program's memory; none where the kernel has no such thing.
fn tracker() -> Option<Descriptor> {
    // SAFETY: plain numbers; a new descriptor comes back or an error.
    let number = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    let descriptor = Descriptor::new(number as c_int)?;
    // `struct uffdio_api`: the version, the features, the requests.
    let mut api = [API, FEATURES, 0];
    // SAFETY: three numbers are the structure that the request names.
    let agreed = unsafe { libc::ioctl(descriptor.0, UFFDIO_API, api.as_mut_ptr()) } == 0;
    agreed.then_some(descriptor)
}

/// A connection to Terrace, if it takes one at once.
fn connected(path: &CStr) -> Option<Descriptor> {
    let bytes = path.to_bytes_with_nul();
    // SAFETY: zeros are a valid address; what is copied fits, and the address is as long as is said.
    unsafe {
        let mut address: libc::sockaddr_un = zeroed();
        if bytes.len() > address.sun_path.len() {
            return None;
        }
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), address.sun_path.as_mut_ptr(), bytes.len());
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = Descriptor::new(libc::socket(libc::AF_UNIX, kind, 0))?;
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        (libc::connect(socket.0, (&raw const address).cast(), length) == 0).then_some(socket)
    }
}

/// Room for one descriptor in a control message.
const CONTROL: usize = 64;

fn send(socket: &Descriptor, descriptor: &Descriptor) {
    let mut byte = [0u8];
    let mut control = [0u64; CONTROL / 8];
    // SAFETY: the message refers to one byte and to a control buffer that has room for one descriptor; both outlive the call.
    unsafe {
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast::<c_void>(), iov_len: 1 };
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<c_int>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(descriptor.0);
        // What does not arrive is not asked for again.
        libc::sendmsg(socket.0, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    }
}
