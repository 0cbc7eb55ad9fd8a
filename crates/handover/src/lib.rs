//! What the live engine and the libraries that it preloads say to each other: how a library hands over a descriptor, and
//! what is asked of the dropper's thread.
//!
//! What the libraries call here makes only system calls, so that it may run in the child of a program with threads.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{size_of, zeroed};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The variable that names the socket where Terrace listens.
pub const VARIABLE: &CStr = c"TERRACE_HELPER_SOCKET";
/// Bytes of a control message with room for one descriptor.
pub const CONTROL: usize = 64;
/// What the one byte of the message says that hands over a userfaultfd.
pub const TRACKER: u8 = 0;
/// What it says when the descriptor is the other end of the dropper's socket.
pub const DROPPER: u8 = 1;

/// `UFFD_API`, the version of the interface.
const API: u64 = 0xaa;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;

/// The dropper's socket. A request is three numbers of 8 bytes: what, and a range of addresses; an answer is what was asked
/// and a count of pairs, then so many pairs.
pub mod entries {
    /// Request: which areas there are. A pair of its answer is an area's first address and its end.
    pub const LIST: u64 = 1;
    /// Request: to take out the entries of a range. The pair of its answer is the outcome and when it began to, in
    /// nanoseconds of the clock that goes on while a machine is suspended.
    pub const DROP: u64 = 2;
    /// Outcome: the entries are gone.
    pub const DONE: u64 = 0;
    /// Outcome: some of the range is not, or no longer, an area, or is locked.
    pub const ELSEWHERE: u64 = 1;
    /// Outcome: the program is changing its address space; nothing was done.
    pub const BUSY: u64 = 2;
    /// Outcome: mappings were changed past the library; nothing is dropped any more.
    pub const LOST: u64 = 3;
}

/// Where Terrace listens, for the children too, which may have cleared their environment.
static SOCKET: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps in mind where Terrace listens; returns whether anybody said so. For the start of a library.
pub fn remember() -> bool {
    // SAFETY: the name ends with a zero; the answer is null or a string that stays while nobody changes the environment,
    // which no code of the program has had time for.
    unsafe {
        let path = libc::getenv(VARIABLE.as_ptr());
        if !path.is_null() {
            SOCKET.store(libc::strdup(path), Ordering::Relaxed);
        }
    }
    !SOCKET.load(Ordering::Relaxed).is_null()
}

/// Calls `offer`, which makes only system calls, now and in every child that is forked, if anybody said where Terrace
/// listens. For the start of a library.
pub fn offer_in_every_process(offer: extern "C" fn()) {
    if !remember() {
        return;
    }
    // SAFETY: the function makes only system calls. A child's memory is its own: it has no registration yet.
    unsafe { libc::pthread_atfork(None, None, Some(offer)) };
    offer();
}

/// A descriptor that is closed at the end.
#[derive(Debug)]
pub struct Descriptor(c_int);

impl Descriptor {
    /// Takes over what a system call returned; none if that was an error.
    pub fn new(number: c_int) -> Option<Descriptor> {
        (number >= 0).then_some(Descriptor(number))
    }

    /// The descriptor's number, which stays open as long as this value lives.
    pub fn number(&self) -> c_int {
        self.0
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it is ours and open.
        unsafe { libc::close(self.0) };
    }
}

/// A userfaultfd for this program's memory; none where the kernel has no such thing or does not let the program have it.
pub fn userfaultfd(flags: c_int, features: u64) -> Option<Descriptor> {
    // SAFETY: plain numbers; a new descriptor comes back or an error.
    let number = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) };
    let descriptor = Descriptor::new(number as c_int)?;
    // `struct uffdio_api`: the version, the features, the requests.
    let mut api = [API, features, 0];
    // SAFETY: three numbers are the structure that the request names.
    let agreed = unsafe { libc::ioctl(descriptor.number(), UFFDIO_API, api.as_mut_ptr()) } == 0;
    agreed.then_some(descriptor)
}

/// Hands a userfaultfd over, if Terrace takes it at once. The program's own is closed either way.
pub fn hand_over(descriptor: Option<Descriptor>) {
    if let Some(descriptor) = descriptor
        && let Some(socket) = connected()
    {
        send(&socket, TRACKER, descriptor.number());
    }
}

/// A connection to Terrace, if it takes one at once. Who listens has to be root or this program's user: the path may have
/// become another's since Terrace ended.
pub fn connected() -> Option<Descriptor> {
    let path = SOCKET.load(Ordering::Relaxed);
    if path.is_null() {
        return None;
    }
    // SAFETY: the string was copied by `remember` and is never freed; zeros are a valid address; what is copied fits, and
    // the address is as long as is said.
    unsafe {
        let bytes = CStr::from_ptr(path).to_bytes_with_nul();
        let mut address: libc::sockaddr_un = zeroed();
        if bytes.len() > address.sun_path.len() {
            return None;
        }
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), address.sun_path.as_mut_ptr(), bytes.len());
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = Descriptor::new(libc::socket(libc::AF_UNIX, kind, 0))?;
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        let is_connected = libc::connect(socket.0, (&raw const address).cast(), length) == 0;
        (is_connected && is_trusted(&socket)).then_some(socket)
    }
}

/// Whether root or this program's user made the other end.
fn is_trusted(socket: &Descriptor) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: `peer` and `length` are what the option fills, and outlive the call; the second call cannot fail.
    unsafe {
        libc::getsockopt(socket.0, level, option, (&raw mut peer).cast(), &raw mut length) == 0
            && (peer.uid == 0 || peer.uid == libc::geteuid())
    }
}

/// Hands a descriptor over, and says `what` it is. What does not arrive is not asked for again.
pub fn send(socket: &Descriptor, what: u8, descriptor: c_int) {
    send_with(socket.0, &[what], descriptor, libc::MSG_DONTWAIT);
}

/// Sends a text and a descriptor in one message. Returns the bytes of the text that were sent, or -1, as `sendmsg` does;
/// a socket that nobody reads raises no signal.
pub fn send_with(socket: c_int, text: &[u8], descriptor: c_int, flags: c_int) -> isize {
    let mut control = [0u64; CONTROL / 8];
    // SAFETY: the message refers to the text, which is only read, and to a control buffer that has room for one descriptor;
    // both outlive the call.
    unsafe {
        let mut part =
            libc::iovec { iov_base: text.as_ptr().cast_mut().cast::<c_void>(), iov_len: text.len() };
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<c_int>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(descriptor);
        libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL | flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    /// Whether a listener is trusted that a thread of this effective user has made.
    fn is_trusted_as(user: Option<libc::uid_t>) -> bool {
        let name = format!("terrace-handover-{}-{user:?}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listening = address.clone();
        let listener = std::thread::spawn(move || {
            if let Some(user) = user {
                let same = libc::uid_t::MAX;
                // SAFETY: plain numbers. The system call itself, unlike the library's function, changes this thread alone.
                assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, same, user, same) }, 0);
            }
            UnixListener::bind_addr(&listening).unwrap()
        });
        let _listener = listener.join().unwrap();
        let socket = Descriptor::new(UnixStream::connect_addr(&address).unwrap().into_raw_fd()).unwrap();
        is_trusted(&socket)
    }

    #[test]
    fn nothing_is_handed_over_to_another_user() {
        assert!(is_trusted_as(None));
        // SAFETY: this call cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            assert!(!is_trusted_as(Some(65534)), "what nobody listens at");
        }
    }
}
