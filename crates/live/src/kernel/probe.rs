//! Questions about the kernel that can only be answered by trying. Each probe works on Terrace's own process and leaves
//! nothing behind.

use super::{Advice, Kernel, Linux, PageRun, PageScan, category};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Something that the kernel either does or does not, and says so only when asked to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// `PAGEMAP_SCAN` of one page.
    PagemapScan,
    /// A userfaultfd; returns its features, and [`USER_MODE_ONLY`] where only faults of user code may be taken.
    Userfaultfd,
    /// Whether a page just written is marked so in `pagemap`: 1 or 0.
    SoftDirty,
    /// `process_madvise(2)`.
    ProcessMadvise,
    /// `MADV_COLLAPSE`.
    Collapse,
    /// Samples of memory accesses with their addresses.
    AccessSampling(SamplingEvent),
}

/// An event of a processor's performance counters that samples accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SamplingEvent {
    /// The counters' number, from `type` in their folder.
    pub counters: u32,
    /// What to sample.
    pub config: u64,
    /// And its second half.
    pub config1: u64,
    /// How exact the address has to be, 0 to 3.
    pub precise: u8,
}

/// In the answer of [`Probe::Userfaultfd`]: the kernel's own accesses to registered memory fail instead of waiting.
pub const USER_MODE_ONLY: u64 = 1 << 63;

impl Probe {
    /// The word for it in fixtures and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Probe::PagemapScan => "pagemap-scan",
            Probe::Userfaultfd => "userfaultfd",
            Probe::SoftDirty => "soft-dirty",
            Probe::ProcessMadvise => "process-madvise",
            Probe::Collapse => "collapse",
            Probe::AccessSampling(_) => "access-sampling",
        }
    }
}

const PAGE: usize = 4096;
/// `MADV_COLLAPSE`.
const COLLAPSE: libc::c_int = 25;
/// The bit of a `pagemap` entry that says the page was written.
const SOFT_DIRTY: u64 = 1 << 55;
/// `UFFD_USER_MODE_ONLY`.
const ONLY_USER_MODE: libc::c_int = 1;
/// `UFFD_API`, the version of the interface.
const UFFD_API: u64 = 0xaa;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;

/// A page of our own, written once.
struct OwnPage(*mut libc::c_void);

impl OwnPage {
    fn new() -> io::Result<OwnPage> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping anywhere, of which nothing is known to others.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is writable and a page long.
        unsafe { page.cast::<u8>().write_volatile(1) };
        Ok(OwnPage(page))
    }

    fn address(&self) -> u64 {
        self.0 as u64
    }
}

impl Drop for OwnPage {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.0, PAGE) };
    }
}

pub(super) fn probe(kernel: &Linux, what: Probe) -> io::Result<u64> {
    let own = || kernel.open(std::process::id());
    match what {
        Probe::PagemapScan => {
            let page = OwnPage::new()?;
            let scan = PageScan {
                start: page.address(),
                end: page.address() + PAGE as u64,
                any_of: category::PRESENT,
                tell: category::PRESENT,
                ..PageScan::default()
            };
            kernel.scan_pages(&own()?, &scan, &mut [PageRun::default()]).map(|(count, _)| count as u64)
        }
        Probe::Userfaultfd => userfaultfd(0).or_else(|error| match error.raw_os_error() {
            Some(libc::EPERM) => userfaultfd(ONLY_USER_MODE).map(|features| features | USER_MODE_ONLY),
            _ => Err(error),
        }),
        Probe::SoftDirty => {
            let page = OwnPage::new()?;
            let mut entry = [0];
            kernel.pagemap(&own()?, page.address() / PAGE as u64, &mut entry)?;
            Ok(u64::from(entry[0] & SOFT_DIRTY != 0))
        }
        Probe::ProcessMadvise => {
            let page = OwnPage::new()?;
            kernel.advise(&own()?, &[(page.address(), PAGE as u64)], Advice::Cold)
        }
        Probe::Collapse => {
            // The range has no bytes: the kernel checks the advice first.
            // SAFETY: a null range of length 0 names no memory.
            match unsafe { libc::madvise(std::ptr::null_mut(), 0, COLLAPSE) } {
                0 => Ok(0),
                _ => Err(io::Error::last_os_error()),
            }
        }
        Probe::AccessSampling(event) => super::samples::try_accesses(event),
    }
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call that gave this number has just made the descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

fn userfaultfd(flags: libc::c_int) -> io::Result<u64> {
    /// `struct uffdio_api`.
    #[repr(C)]
    struct Api {
        api: u64,
        features: u64,
        ioctls: u64,
    }
    // SAFETY: plain numbers.
    let fd = descriptor(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) })?;
    let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
    // SAFETY: the request fills the structure that it names.
    match unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) } {
        0 => Ok(api.features),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_answer_and_leave_no_descriptor_behind() {
        // Other tests open files meanwhile, but nothing of these kinds.
        let mine = |link: &std::path::Path| {
            let target = std::fs::read_link(link).unwrap_or_default().to_string_lossy().into_owned();
            ["userfaultfd", "perf_event", "pidfd", "pagemap"].iter().any(|kind| target.contains(kind))
        };
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
        let open = || descriptors().filter(|one| mine(&one.path())).count();
        let event = SamplingEvent { counters: 9999, config: 0, config1: 0, precise: 0 };
        let all = [
            Probe::PagemapScan,
            Probe::Userfaultfd,
            Probe::SoftDirty,
            Probe::ProcessMadvise,
            Probe::Collapse,
            Probe::AccessSampling(event),
        ];
        let before = open();
        let answers = all.map(|what| (what, Linux.probe(what)));
        assert_eq!(open(), before);
        for (what, answer) in answers {
            match answer {
                Ok(answer) => assert!(what != Probe::SoftDirty || answer <= 1),
                // A kernel that has none of it still answers, with an error of its own.
                Err(error) => assert!(error.raw_os_error().is_some(), "{}: {error}", what.name()),
            }
        }
        assert!(Linux.probe(Probe::AccessSampling(event)).is_err(), "there are no such counters");
    }
}
