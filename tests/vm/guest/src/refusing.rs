//! A kernel that refuses: calls of a Terrace that fail at random, each with an error that it can have.
//!
//! The program runs under a filter of system calls that asks this process about each call of the seam to the kernel
//! (`seccomp_unotify(2)`); most go on as they are.

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_policy::Random;

/// Below these paths lies what the kernel shows and takes, and Terrace's journal.
const FILES: [&str; 3] = ["/proc/", "/sys/", "/run/terrace"];
/// `PAGEMAP_SCAN`; other calls of `ioctl` are left alone.
const PAGEMAP_SCAN: u64 = 0xc060_6610;
/// The longest path that is read from the program.
const PATH: usize = 256;

/// What a call of the seam is about.
#[derive(Clone, Copy)]
enum About {
    /// A process or its memory.
    Process,
    /// The file behind the descriptor in its first argument.
    Descriptor,
    /// The file whose path is its argument of this number.
    Path(usize),
    /// The command in its second argument.
    Command,
}

/// A call, and the errors that it may have (its manual page).
pub struct Call {
    name: &'static str,
    number: libc::c_long,
    about: About,
    errors: &'static [i32],
}

const fn call(name: &'static str, number: libc::c_long, about: About, errors: &'static [i32]) -> Call {
    Call { name, number, about, errors }
}

/// The calls of the seam.
pub const CALLS: [Call; 15] = {
    use About::{Command, Descriptor, Path, Process};
    use libc::{EACCES, EBUSY, EFAULT, EINTR, EINVAL, EIO, EMFILE, ENOENT, ENOMEM, ENOSPC, EPERM, ESRCH};
    [
        call("move_pages", libc::SYS_move_pages, Process, &[ENOMEM, EPERM, ESRCH, EACCES]),
        call("process_madvise", libc::SYS_process_madvise, Process, &[ENOMEM, EPERM, ESRCH, EINTR]),
        call("process_vm_readv", libc::SYS_process_vm_readv, Process, &[ENOMEM, EPERM, ESRCH, EFAULT]),
        call("pidfd_open", libc::SYS_pidfd_open, Process, &[EMFILE, ENOMEM, ESRCH]),
        call("kcmp", libc::SYS_kcmp, Process, &[EPERM, ESRCH]),
        call("perf_event_open", libc::SYS_perf_event_open, Process, &[EMFILE, ENOMEM, EACCES, EBUSY]),
        call("ioctl(PAGEMAP_SCAN)", libc::SYS_ioctl, Command, &[ENOMEM, EINTR]),
        call("pread64", libc::SYS_pread64, Descriptor, &[ENOMEM, EINTR, EIO]),
        call("read", libc::SYS_read, Descriptor, &[ENOMEM, EINTR, ESRCH]),
        call("write", libc::SYS_write, Descriptor, &[ENOMEM, ENOSPC, EINVAL, EBUSY, EINTR]),
        call("openat", libc::SYS_openat, Path(1), &[EMFILE, ENOMEM, EACCES, ENOENT, ENOSPC]),
        call("mkdir", libc::SYS_mkdir, Path(0), &[ENOMEM, ENOSPC, EACCES]),
        call("rmdir", libc::SYS_rmdir, Path(0), &[ENOMEM, EBUSY]),
        call("rename", libc::SYS_rename, Path(0), &[ENOMEM, ENOSPC, EIO]),
        call("unlink", libc::SYS_unlink, Path(0), &[ENOMEM, EACCES, EIO]),
    ]
};

/// How often each call was refused.
#[derive(Debug, Default)]
pub struct Refused([AtomicU64; CALLS.len()]);

impl Refused {
    /// The calls that were, by name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Relaxed));
        CALLS.iter().map(|call| call.name).zip(counts).filter(|(_, count)| *count > 0)
    }
}

/// How often calls fail.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    pub seed: u64,
    /// Only this call fails, by its place among [`CALLS`]; all may where it is none.
    pub only: Option<usize>,
    /// One call in so many fails.
    pub one_in: u64,
    /// The first calls that may fail are left alone.
    pub after: u64,
}

/// Starts a program whose calls fail, and counts which have.
pub fn start(command: &mut Command, refusals: Refusals) -> Result<(Child, Arc<Refused>)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let filter = filter();
    let socket = theirs.as_raw_fd();
    // SAFETY: between fork and exec the closure makes system calls alone, on memory that was filled before.
    unsafe { command.pre_exec(move || send(socket, install(&filter)?)) };
    let refused = Arc::new(Refused::default());
    let counter = Arc::clone(&refused);
    // Before the program starts: it waits for an answer to its first call.
    std::thread::spawn(move || {
        if let Err(error) =
            receive(ours.as_raw_fd()).and_then(|listener| answer(&listener, refusals, &counter))
        {
            println!("FAILED refusing: {error:#}");
        }
    });
    let child = command.spawn().context("starting terrace")?;
    drop(theirs);
    Ok((child, refused))
}

/// The filter: calls of the seam are asked about, all others allowed.
fn filter() -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // The number of the call is the first word of what a filter sees.
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for (at, call) in CALLS.iter().enumerate() {
        let to_the_last = (CALLS.len() - at) as u8;
        filter.push(libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: to_the_last,
            jf: 0,
            k: call.number as u32,
        });
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    filter
}

/// Puts this thread, and what it starts, under a filter; returns where the questions come.
fn install(filter: &[libc::sock_filter]) -> io::Result<i32> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program and its statements live until the call has returned, which copies them.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if listener < 0 { Err(io::Error::last_os_error()) } else { Ok(listener as i32) }
}

/// Room for one descriptor beside a message.
#[repr(align(8))]
struct Control([u8; 32]);

/// A message of one byte with room for a descriptor beside it.
fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeros is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: plain arithmetic.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as usize;
    message
}

fn send(socket: i32, descriptor: i32) -> io::Result<()> {
    let mut byte = 0_u8;
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = Control([0; 32]);
    let message = message(&mut vector, &mut control);
    // SAFETY: the first header lies in `control`, which has room for it and one descriptor.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(descriptor);
        libc::sendmsg(socket, &raw const message, 0)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn receive(socket: i32) -> Result<OwnedFd> {
    let mut byte = 0_u8;
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = Control([0; 32]);
    let mut message = message(&mut vector, &mut control);
    // SAFETY: the message and what it refers to live until the call has returned.
    let received = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    ensure!(received == 1, "no listener came: {}", io::Error::last_os_error());
    // SAFETY: the kernel has filled the header, and the descriptor is new and ours.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        ensure!(!header.is_null(), "a message without a listener");
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()))
    }
}

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND` (`linux/seccomp.h`).
const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;

/// Answers until nobody is left who could ask.
fn answer(listener: &OwnedFd, refusals: Refusals, refused: &Refused) -> Result<()> {
    let mut random = Random::new(refusals.seed);
    let mut calls = 0_u64;
    loop {
        let mut asked = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, as the count says.
        if unsafe { libc::poll(&raw mut asked, 1, -1) } < 0 {
            bail!("poll: {}", io::Error::last_os_error());
        }
        if asked.revents & libc::POLLIN == 0 {
            return Ok(());
        }
        // SAFETY: all zeros, as the kernel demands of what it fills.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure of the size that the number of the command carries.
        if unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut call) } != 0 {
            // Killed between the poll and now.
            continue;
        }
        let known = of_the_seam(&call).filter(|known| refusals.only.is_none_or(|only| only == *known));
        calls += u64::from(known.is_some());
        let fails = calls > refusals.after && random.below(refusals.one_in) == 0;
        let error = known.filter(|_| fails).map(|known| {
            refused.0[known].fetch_add(1, Relaxed);
            let errors = CALLS[known].errors;
            errors[random.below(errors.len() as u64) as usize]
        });
        let response = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: -error.unwrap_or(0),
            flags: if error.is_some() { 0 } else { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 },
        };
        // SAFETY: as above. Where it fails, the caller has been killed meanwhile.
        unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const response) };
    }
}

/// Which call of the seam this is, if it is one.
fn of_the_seam(asked: &libc::seccomp_notif) -> Option<usize> {
    let known = CALLS.iter().position(|call| call.number == libc::c_long::from(asked.data.nr))?;
    let of_the_kernel = |path: &str| FILES.iter().any(|start| path.starts_with(start));
    let concerns = match CALLS[known].about {
        About::Process => true,
        About::Command => asked.data.args[1] & 0xffff_ffff == PAGEMAP_SCAN,
        About::Descriptor => {
            let file = std::fs::read_link(format!("/proc/{}/fd/{}", asked.pid, asked.data.args[0] as i32));
            file.is_ok_and(|file| of_the_kernel(&file.to_string_lossy()))
        }
        About::Path(at) => path(asked.pid, asked.data.args[at]).is_some_and(|path| of_the_kernel(&path)),
    };
    concerns.then_some(known)
}

/// A path in the memory of the program that asks.
fn path(pid: u32, address: u64) -> Option<String> {
    let mut bytes = [0; PATH];
    let read = File::open(format!("/proc/{pid}/mem")).ok()?.read_at(&mut bytes, address).ok()?;
    let end = bytes[..read].iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
