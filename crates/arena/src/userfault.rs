//! A userfaultfd of this process: pages are moved (Linux 6.8), and stores are held back while others take
//! the place of pages.

use crate::system;
use std::ffi::c_int;
use std::mem::size_of_val;

/// `UFFD_USER_MODE_ONLY`: what any user may have. A system call that stores into memory that is held back fails (`EFAULT`).
const USER_MODE_ONLY: c_int = 1;
/// `UFFD_API`.
const API: u64 = 0xaa;
/// `UFFDIO_REGISTER_MODE_MISSING` and `UFFDIO_REGISTER_MODE_WP`; `UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES`;
/// `UFFDIO_WRITEPROTECT_MODE_WP`.
const MISSING: u64 = 1;
const PROTECT: u64 = 1 << 1;
const HOLES: u64 = 1 << 1;
const PROTECTED: u64 = 1;
/// Requests: `_IOWR(0xaa, 0x3f, struct uffdio_api)`, `_IOWR(0xaa, 0, struct uffdio_register)`,
/// `_IOR(0xaa, 1, struct uffdio_range)`, `_IOR(0xaa, 2, struct uffdio_range)`, `_IOWR(0xaa, 5, struct uffdio_move)`,
/// `_IOWR(0xaa, 6, struct uffdio_writeprotect)`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_aa01;
const UFFDIO_WAKE: libc::Ioctl = 0x8010_aa02;
const UFFDIO_MOVE: libc::Ioctl = 0xc028_aa05;
const UFFDIO_WRITEPROTECT: libc::Ioctl = 0xc018_aa06;

/// What it is to do: the features that the kernel has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Move pages: `UFFD_FEATURE_MOVE`.
    Move = 1 << 16,
    /// Hold back stores, to pages of the kernel's pool too: `UFFD_FEATURE_PAGEFAULT_FLAG_WP`,
    /// `UFFD_FEATURE_WP_HUGETLBFS_SHMEM` (Linux 5.19).
    HoldBack = 1 | 1 << 12,
}

/// The descriptor. The kernel takes back what is registered, and lets go whoever waits, when the last copy of it is closed:
/// a forked child has one. So whoever registers a range gives it back.
#[derive(Debug)]
pub struct Userfault(c_int);

impl Userfault {
    /// A new one; none where the kernel has not all of it.
    pub fn open(what: Use) -> Option<Userfault> {
        // SAFETY: Plain numbers; a new descriptor comes back or an error.
        let number = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
        let userfault = (number >= 0).then_some(Userfault(number as c_int))?;
        userfault.ask(UFFDIO_API, &mut [API, what as u64, 0]).then_some(userfault)
    }

    fn ask(&self, request: libc::Ioctl, numbers: &mut [u64]) -> bool {
        let expected = (request >> 16) as usize & 0x3fff;
        debug_assert_eq!(size_of_val(numbers), expected, "the structure of the request");
        // SAFETY: The numbers are the structure that the request names, of the size that the request states.
        unsafe { libc::ioctl(self.0, request, numbers.as_mut_ptr()) == 0 }
    }

    /// Takes a range over, for moving pages to it.
    pub fn register(&self, at: usize, bytes: usize) -> bool {
        self.ask(UFFDIO_REGISTER, &mut [at as u64, bytes as u64, MISSING, 0])
    }

    /// Gives it back.
    pub fn unregister(&self, at: usize, bytes: usize) {
        self.ask(UFFDIO_UNREGISTER, &mut [at as u64, bytes as u64]);
    }

    /// From now on whoever stores to the range, or touches a page that is not there, waits until what comes back is dropped.
    pub fn hold_back(&self, at: usize, bytes: usize) -> Option<HeldBack<'_>> {
        let registered = self.ask(UFFDIO_REGISTER, &mut [at as u64, bytes as u64, MISSING | PROTECT, 0]);
        let held = registered.then_some(HeldBack { by: self, at, bytes })?;
        held.protect(at, bytes).then_some(held)
    }

    /// What a kernel does that loses the protection of a page.
    #[cfg(test)]
    pub fn unprotect(&self, at: usize, bytes: usize) {
        assert!(self.ask(UFFDIO_WRITEPROTECT, &mut [at as u64, bytes as u64, 0]));
    }

    /// Moves pages; the bytes that were moved before something did not move.
    pub fn shift(&self, to: usize, from: usize, bytes: usize) -> usize {
        let mut done = 0;
        while done < bytes {
            let (to, from, left) = (to + done, from + done, bytes - done);
            let mut order = [to as u64, from as u64, left as u64, HOLES, 0];
            if self.ask(UFFDIO_MOVE, &mut order) {
                return bytes;
            }
            // How far it came, or an error number below zero. It stops short when something changes meanwhile.
            let Ok(moved @ 1..) = usize::try_from(order[4] as i64) else { return done };
            done += moved.min(left);
        }
        done
    }
}

/// A range that is held back. Other memory may take its place meanwhile.
#[derive(Debug)]
pub struct HeldBack<'a> {
    by: &'a Userfault,
    at: usize,
    bytes: usize,
}

impl HeldBack<'_> {
    /// Whether all of it is still held back: the kernel has not unmapped it, and nothing else has taken its place.
    pub fn is_there(&self) -> bool {
        self.protect(self.at, self.bytes)
    }

    /// Protects a part of it anew.
    pub fn protect(&self, at: usize, bytes: usize) -> bool {
        self.by.ask(UFFDIO_WRITEPROTECT, &mut [at as u64, bytes as u64, PROTECTED])
    }
}

impl Drop for HeldBack<'_> {
    /// Threads that wait for the range are woken in any case: where other memory took its place, nothing is registered
    /// there.
    fn drop(&mut self) {
        self.by.unregister(self.at, self.bytes);
        self.by.ask(UFFDIO_WAKE, &mut [self.at as u64, self.bytes as u64]);
    }
}

impl Drop for Userfault {
    fn drop(&mut self) {
        system::close(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BASE;
    use crate::memory::{Memory, Pages};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    /// How long a thread that is not let go is waited for.
    const TIMEOUT_POLLS: u32 = 2_000;

    /// Whether it came to be, after a while at most.
    fn comes(what: impl Fn() -> bool) -> bool {
        (0..TIMEOUT_POLLS).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            what()
        })
    }

    /// A thread stores to what is held back, and a child is forked meanwhile, which keeps a copy of the descriptor.
    fn stores_beside_a_child(is_replaced: bool) {
        let _forks = crate::forks();
        let memory = Memory::new(4 * BASE, Pages::Base).unwrap();
        let (start, bytes) = (memory.start() as usize, memory.bytes());
        // SAFETY: Within the memory, aligned, and only used so.
        let word = unsafe { &*memory.start().cast::<AtomicU64>() };
        word.store(1, Relaxed);
        let Some(userfault) = Userfault::open(Use::HoldBack) else { return };
        let held = userfault.hold_back(start, bytes).unwrap();
        std::thread::scope(|scope| {
            let storing = scope.spawn(|| word.store(2, Relaxed));
            // SAFETY: The descriptor and the structure are this function's own.
            let waits = || unsafe {
                libc::fcntl(userfault.0, libc::F_SETFL, libc::O_NONBLOCK);
                let mut asked = libc::pollfd { fd: userfault.0, events: libc::POLLIN, revents: 0 };
                libc::poll(&raw mut asked, 1, 0) == 1 && asked.revents == libc::POLLIN
            };
            assert!(comes(waits), "the store is held back");
            // SAFETY: The child calls only what a forked child may, and ends by itself should this test not come so far.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: As above.
                unsafe {
                    libc::alarm(120);
                    libc::pause();
                    libc::_exit(0);
                }
            }
            if is_replaced {
                let new = Memory::new(bytes, Pages::Base).unwrap();
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let (from, _, _) = new.into_parts();
                // SAFETY: Both ranges are this test's own.
                let moved = unsafe { libc::mremap(from.cast(), bytes, bytes, flags, start) };
                assert_eq!(moved as usize, start);
            }
            drop(held);
            let is_let_go = comes(|| storing.is_finished());
            // SAFETY: The child is this test's own.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
                if !is_let_go {
                    // The last copy closes, so that this test can end.
                    libc::dup2(libc::STDERR_FILENO, userfault.0);
                }
            }
            assert!(is_let_go, "the child keeps a thread of its parent waiting");
        });
        assert_eq!(word.load(Relaxed), 2);
    }

    #[test]
    fn a_forked_child_keeps_nobody_waiting() {
        stores_beside_a_child(false);
        stores_beside_a_child(true);
    }
}
