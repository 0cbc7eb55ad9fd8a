//! The way from a recorded process to its recorder, besides the shared memory: the recorder's socket.
//!
//! Descriptors opened here are closed again before the program runs: it must not see them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use terrace_protocol::layout::Shared;
use terrace_protocol::session::{MEMORY, Request, SOCKET, abstract_name};

/// The recording's folder.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Remembers where the recorder is found.
pub fn set_folder(path: &[u8]) {
    let _ = FOLDER.set(OsStr::from_bytes(path).into());
}

/// The shared memory: through the link, or from the recorder where that leads nowhere, as in another pid namespace.
pub fn open_memory() -> io::Result<File> {
    let link = folder().join(MEMORY);
    File::options().read(true).write(true).open(link).or_else(|_| receive_memory(&connect_by_path()?))
}

/// Whether the recorder was not reached because it has ended, before the connection was made or after.
pub fn has_ended(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotFound)
}

/// Has the recorder note who owns this place of the table; `false` when it cannot be reached.
pub fn join(shared: Shared, place: usize) -> bool {
    let header = shared.header();
    let by_name = || {
        let name = abstract_name(header.socket_name.load(Relaxed));
        let address = SocketAddr::from_abstract_name(name)?;
        uninterrupted(|| UnixStream::connect_addr(&address))
    };
    let request = Request::Join { secret: header.secret.load(Relaxed), place: place as u64 };
    // The folder may be out of sight, and the name may belong to another network namespace.
    by_name().or_else(|_| connect_by_path()).and_then(|stream| send(&stream, request)).is_ok()
}

fn connect_by_path() -> io::Result<UnixStream> {
    uninterrupted(|| UnixStream::connect(folder().join(SOCKET)))
}

fn folder() -> &'static Path {
    FOLDER.get().map_or(Path::new(""), PathBuf::as_path)
}

fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Unlike `write`, never raises a signal in the program when the recorder ends meanwhile.
fn send(stream: &UnixStream, request: Request) -> io::Result<()> {
    let bytes = request.to_bytes();
    uninterrupted(|| {
        // SAFETY: the pointer and the length describe `bytes`.
        let sent =
            unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    })
}

fn receive_memory(stream: &UnixStream) -> io::Result<File> {
    send(stream, Request::Memory)?;
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: a header of zeroes is empty, and gets valid pointers below; what the kernel returns is read within the
    // bounds that it states.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let received = uninterrupted(|| {
            match libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) {
                ..0 => Err(io::Error::last_os_error()),
                bytes => Ok(bytes),
            }
        })?;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        if received == 0 || head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let descriptor = libc::CMSG_DATA(head).cast::<i32>().read_unaligned();
        Ok(File::from_raw_fd(descriptor))
    }
}
