//! The recorder's end of the shared memory.

use crate::keeper::Keeper;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use terrace_protocol::VERSION;
use terrace_protocol::entry::Entry;
use terrace_protocol::layout::{QUEUE, Shared, TOTAL_BYTES, UNKNOWN_ENTRY};
use terrace_protocol::session::MEMORY;

/// Chunks for which a sleeping recorder is woken. Fewer cost the thread a system call and an interrupt of another processor
/// more often, where the recorder mostly wakes by itself in time; more leave too little room in a thread's queue ([`QUEUE`])
/// to go on while the recorder wakes.
const WORTH_WAKING: u64 = QUEUE as u64 * 3 / 4;

/// The shared memory, alive until dropped; processes that still have it mapped keep it for themselves.
pub struct Session {
    file: File,
    shared: Shared,
    /// `None` only while it is dropped.
    keeper: Option<Keeper>,
}

impl Session {
    /// Makes an anonymous file, sized and initialized, and has processes find it through `folder`. It has no name in any
    /// directory, so nothing is left behind however the recorder ends, and it is not subject to the size of `/dev/shm`.
    pub fn new(folder: &Path) -> io::Result<Session> {
        // SAFETY: the name is a valid string.
        let fd = unsafe { libc::memfd_create(c"terrace".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(TOTAL_BYTES as u64)?;
        let memory = file.try_clone()?.into();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping disturbs no other.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), TOTAL_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: mapped just now; `Drop` unmaps it when nothing uses it any more.
        let shared = unsafe { Shared::new(base.cast()) };
        let mut session = Session { file, shared, keeper: None };
        // A name of the same length in every run: programs see it in their environment, and the place of their stack
        // follows from how long that is.
        let descriptor = format!("/proc/{}/fd/{}", std::process::id(), session.file.as_raw_fd());
        std::os::unix::fs::symlink(descriptor, folder.join(MEMORY))?;
        session.keeper = Some(Keeper::start(shared, memory, folder)?);
        let header = shared.header();
        // SAFETY: inside the table, and nobody else has the mapping yet.
        unsafe { shared.entries().add(UNKNOWN_ENTRY as usize).write(Entry::UNKNOWN) };
        header.version.store(VERSION, SeqCst);
        Ok(session)
    }

    /// The mapping.
    pub fn shared(&self) -> Shared {
        self.shared
    }

    /// Ends recording: programs run on unrecorded.
    pub fn stop(&self) {
        self.shared.header().stop.store(1, SeqCst);
        wake_producers(self.shared);
        if let Some(keeper) = &self.keeper {
            keeper.close();
        }
    }

    /// Sleeps until producers have handed over enough to be worth waking for, or one of them sleeps or ends, or
    /// `timeout` has passed. `ready` is asked once more when producers already know that they must wake us.
    pub fn wait(&self, timeout: Duration, ready: impl Fn() -> bool) {
        let header = self.shared.header();
        let seen = header.filled.0.load(SeqCst);
        header.wake_at.store(header.ticket.0.load(SeqCst) + WORTH_WAKING, SeqCst);
        if !ready() {
            let timeout = libc::timespec {
                tv_sec: timeout.as_secs() as i64,
                tv_nsec: i64::from(timeout.subsec_nanos()),
            };
            // SAFETY: both pointers are valid for the call.
            unsafe {
                libc::syscall(libc::SYS_futex, header.filled.0.as_ptr(), libc::FUTEX_WAIT, seen, &timeout)
            };
        }
        header.wake_at.store(0, SeqCst);
    }

    /// Tells producers that wait for room that there is some.
    pub fn wake_producers(&self) {
        let header = self.shared.header();
        std::sync::atomic::fence(SeqCst);
        if header.producers_wait.load(Relaxed) != 0 {
            wake_producers(self.shared);
        }
    }
}

fn wake_producers(shared: Shared) {
    let word = &shared.header().freed.0;
    word.fetch_add(1, SeqCst);
    // SAFETY: the word is valid; waking has no other effect.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop();
        // The keeper writes to the mapping until it ends.
        self.keeper = None;
        // SAFETY: the mapping made in `new`; the collector, which holds the only copies of `Shared`, ends with us.
        unsafe { libc::munmap(self.shared.base().cast(), TOTAL_BYTES) };
    }
}
