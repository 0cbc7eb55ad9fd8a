//! A thread that stands for the recorder towards the recorded processes, as long as the recording lasts.
//!
//! It holds the lease by which they see that the recorder lives, and serves the sockets of the recording: those who
//! ask get the shared memory, and of those who join it notes the process id that the kernel states.

use std::fs::Permissions;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;
use terrace_protocol::layout::{Lease, PROCESSES, Shared};
use terrace_protocol::session::{REQUEST_BYTES, Request, SOCKET, abstract_name};

/// How long a connection may take to say what it wants. It was said when the connection was made, unless its process
/// was stopped or killed between the two.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The thread. Ends when dropped.
pub struct Keeper {
    /// Closed to end the thread: it sees the other end of the pipe hang up.
    alive: Option<io::PipeWriter>,
    /// Closed to end the sockets.
    open: std::sync::Mutex<Option<io::PipeWriter>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts it: from now on the lease is held and the sockets accept.
    ///
    /// # Errors
    /// When the sockets or the thread cannot be made.
    pub fn start(shared: Shared, memory: OwnedFd, folder: &Path) -> io::Result<Keeper> {
        let (number, secret) = (random()?, random()?);
        let header = shared.header();
        header.socket_name.store(number, SeqCst);
        header.secret.store(secret, SeqCst);
        let by_path = UnixListener::bind(folder.join(SOCKET))?;
        // Whatever the umask says.
        std::fs::set_permissions(folder.join(SOCKET), Permissions::from_mode(0o600))?;
        let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(abstract_name(number))?)?;
        by_path.set_nonblocking(true)?;
        by_name.set_nonblocking(true)?;
        let (alive_end, alive) = io::pipe()?;
        let (open_end, open) = io::pipe()?;
        let server = Server { shared, memory, secret };
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("recording".to_owned()).spawn(move || {
            // Must not move as long as the kernel knows it.
            let lease = HeldLease::take(shared);
            let _ = ready.send(());
            server.serve(by_path, by_name, &open_end);
            // Until the other end is closed.
            let _ = (&alive_end).read(&mut [0]);
            drop(lease);
        })?;
        let _ = started.recv();
        Ok(Keeper { alive: Some(alive), open: Some(open).into(), thread: Some(thread) })
    }

    /// Accepts no more: programs that start from now on are not recorded.
    pub fn close(&self) {
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.close();
        self.alive.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Server {
    shared: Shared,
    memory: OwnedFd,
    secret: u64,
}

impl Server {
    /// Serves until the other end of `open` is closed.
    fn serve(&self, by_path: UnixListener, by_name: UnixListener, open: &io::PipeReader) {
        loop {
            let wait = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut waits = [wait(open.as_raw_fd()), wait(by_path.as_raw_fd()), wait(by_name.as_raw_fd())];
            // SAFETY: three valid elements.
            let ready = unsafe { libc::poll(waits.as_mut_ptr(), 3, -1) };
            if ready < 0 && io::Error::last_os_error().kind() != ErrorKind::Interrupted {
                return;
            }
            for (listener, is_in_folder) in [(&by_path, true), (&by_name, false)] {
                // One that hung up or asks nonsense is none of ours: whoever belongs to us sees that it got nothing.
                while let Ok((stream, _)) = listener.accept() {
                    let _ = self.answer(&stream, is_in_folder);
                }
            }
            // After what had connected before: it had been accepted by then.
            if waits[0].revents != 0 {
                return;
            }
        }
    }

    fn answer(&self, mut stream: &UnixStream, is_in_folder: bool) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        let mut bytes = [0; REQUEST_BYTES];
        stream.read_exact(&mut bytes)?;
        match Request::from_bytes(bytes) {
            Request::Memory if is_in_folder => send_descriptor(stream, self.memory.as_raw_fd()),
            Request::Join { secret, place } if secret == self.secret && place < PROCESSES as u64 => {
                self.shared.process(place as usize).seen_pid.store(peer(stream)?, SeqCst);
                Ok(())
            }
            _ => Err(ErrorKind::PermissionDenied.into()),
        }
    }
}

/// The process that made the connection, as this process would name it.
fn peer(stream: &UnixStream) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are valid, and the second says how large what the first points to is.
    let result = unsafe {
        let place = (&raw mut credentials).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut bytes)
    };
    match u32::try_from(credentials.pid) {
        Ok(pid) if result == 0 && pid != 0 => Ok(pid),
        _ => Err(io::Error::last_os_error()),
    }
}

fn send_descriptor(stream: &UnixStream, descriptor: RawFd) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: (&raw const *b"m").cast_mut().cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: a header of zeroes is empty, and gets valid pointers; the one control message fits its buffer.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(descriptor);
        libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: the pointer and the length describe `bytes`.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::Error::last_os_error()) }
}

/// What the kernel looks at when a thread ends (`struct robust_list_head` of Linux).
#[repr(C)]
struct RobustList {
    first: *const u64,
    futex_offset: libc::c_long,
    pending: *const u64,
}

/// The lease, held by the thread that took it.
struct HeldLease {
    lease: &'static Lease,
    list: Box<RobustList>,
}

impl HeldLease {
    /// Takes it for the calling thread, whose own list of robust mutexes, if it has any, is replaced.
    fn take(shared: Shared) -> HeldLease {
        let lease = &shared.header().lease;
        let offset = Lease::FUTEX_OFFSET as libc::c_long;
        let mut list =
            Box::new(RobustList { first: std::ptr::null(), futex_offset: offset, pending: std::ptr::null() });
        // The list has one entry, whose successor is the head again.
        list.first = lease.next.as_ptr();
        lease.next.store(&raw const *list as u64, SeqCst);
        // SAFETY: the list stays where it is until `drop`, which ends it.
        unsafe { libc::syscall(libc::SYS_set_robust_list, &raw const *list, size_of::<RobustList>()) };
        // SAFETY: gettid has no precondition.
        lease.holder.store(unsafe { libc::syscall(libc::SYS_gettid) } as u32, SeqCst);
        HeldLease { lease, list }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.lease.holder.store(0, SeqCst);
        self.list.first = (&raw const *self.list).cast();
        // SAFETY: the kernel forgets the list, which is about to go.
        unsafe {
            libc::syscall(libc::SYS_set_robust_list, std::ptr::null::<RobustList>(), size_of::<RobustList>())
        };
    }
}
