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
/// `_IOR(0xaa, 1, struct uffdio_range)`, `_IOWR(0xaa, 5, struct uffdio_move)`, `_IOWR(0xaa, 6, struct uffdio_writeprotect)`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_aa01;
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

/// The descriptor. The kernel takes back what is registered when it is closed, and lets go whoever waits.
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
        // SAFETY: The numbers are the structure that the request names, of the size that the request tells.
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

    /// From now on whoever stores to the range, or touches a page that is not there, waits until this value is dropped.
    pub fn hold_back(&self, at: usize, bytes: usize) -> bool {
        self.ask(UFFDIO_REGISTER, &mut [at as u64, bytes as u64, MISSING | PROTECT, 0])
            && self.ask(UFFDIO_WRITEPROTECT, &mut [at as u64, bytes as u64, PROTECTED])
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

impl Drop for Userfault {
    fn drop(&mut self) {
        system::close(self.0);
    }
}
