//! The kernel that runs here.

use super::{
    Advice, Event, Faults, Image, Kernel, PageRun, PageScan, Probe, Process, Samples, clock, read_text,
};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Linux itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

/// What is asked for at first of a file: all of most.
const READ: usize = 16 << 10;

/// How often a process is opened anew that executes a program meanwhile.
const ATTEMPTS: u32 = 3;
/// `KCMP_VM` of linux/kcmp.h.
const KCMP_VM: libc::c_int = 1;
/// `MPOL_MF_MOVE`: only pages that no other process maps.
const MOVE: libc::c_int = 1 << 1;
/// `_IOWR('f', 16, struct pm_scan_arg)` (linux/fs.h).
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
/// `PM_SCAN_WP_MATCHING`.
const PROTECT_MATCHING: u64 = 1 << 0;

/// `_IOWR(0xaa, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
/// `UFFDIO_REGISTER_MODE_WP`.
const REGISTER_WRITE_PROTECT: u64 = 1 << 1;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

pub(super) fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn checked(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn handle<T: AsRawFd>(handle: &Option<T>) -> io::Result<i32> {
    handle.as_ref().map(AsRawFd::as_raw_fd).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// The memory that a process has now; none where its description is incomplete.
fn image(pid: u32) -> io::Result<Option<Image>> {
    read_text(&Linux, format!("/proc/{pid}/stat")).map(|stat| Image::parse(&stat))
}

impl Kernel for Linux {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // The kernel's files state no length, by which the standard library asks for 32 bytes first, then for twice as many.
        let mut bytes = Vec::with_capacity(READ);
        File::open(path)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        names(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn stream(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
    }

    fn open(&self, pid: u32) -> io::Result<Process> {
        // SAFETY: plain numbers; a new descriptor comes back or an error.
        let pidfd = checked(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        // SAFETY: the kernel has just made this descriptor for us.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd as i32) };
        let mut image = image(pid)?;
        let mut pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        for _ in 0..ATTEMPTS {
            let now = self::image(pid)?;
            if now == image {
                break;
            }
            // The process was executing a program meanwhile, so that the file may show the memory before.
            image = now;
            pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        }
        let process = Process { pid, pidfd: Some(pidfd), pagemap: Some(pagemap), image, tracker: None };
        // Had the number been reused between the two, the first would have ended by now.
        if self.is_alive(&process) { Ok(process) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    }

    fn is_alive(&self, process: &Process) -> bool {
        let Ok(fd) = handle(&process.pidfd) else { return false };
        // SAFETY: no signal is sent with number 0; the other arguments are null and 0 as documented.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, fd, 0, std::ptr::null::<libc::siginfo_t>(), 0) == 0
            // Not ours to signal, but there.
            || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
        }
    }

    fn has_same_memory(&self, process: &Process) -> bool {
        // What cannot be read just now is no evidence of another program.
        let same = |now: Option<Image>| process.image.is_none() || now.is_none() || now == process.image;
        // The kernel shows nothing of a memory that no process has any more. The memory of a parent that waits in `vfork`
        // stays, as does one that is shared by `CLONE_VM`.
        let is_over = || self.pagemap(process, 0, &mut [0]).is_ok_and(|count| count == 0);
        self.is_alive(process) && image(process.pid).is_ok_and(same) && !is_over()
    }

    fn shares_memory(&self, pid: u32, other: u32) -> bool {
        // SAFETY: plain numbers; the last two have no meaning for this question.
        unsafe { libc::syscall(libc::SYS_kcmp, pid, other, KCMP_VM, 0, 0) == 0 }
    }

    fn move_pages(
        &self,
        process: &Process,
        pages: &[u64],
        nodes: Option<&[i32]>,
        status: &mut [i32],
    ) -> io::Result<()> {
        // The call knows a number only, which may be another process's by now.
        if !self.is_alive(process) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        assert!(status.len() >= pages.len() && nodes.is_none_or(|nodes| nodes.len() == pages.len()));
        let nodes = nodes.map_or(std::ptr::null(), <[i32]>::as_ptr);
        // SAFETY: the three arrays hold `pages.len()` elements each, or `nodes` is null, as the call allows.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                process.pid,
                pages.len(),
                pages.as_ptr(),
                nodes,
                status.as_mut_ptr(),
                MOVE,
            )
        };
        // A positive result counts pages that were not moved; `status` says which.
        checked(result).map(|_| ())
    }

    fn advise(&self, process: &Process, ranges: &[(u64, u64)], advice: Advice) -> io::Result<u64> {
        let advice = match advice {
            Advice::Cold => libc::MADV_COLD,
            Advice::PageOut => libc::MADV_PAGEOUT,
            Advice::WillNeed => libc::MADV_WILLNEED,
            Advice::Collapse => 25,
        };
        let vectors: Vec<libc::iovec> = ranges
            .iter()
            .map(|(start, bytes)| libc::iovec { iov_base: *start as *mut _, iov_len: *bytes as usize })
            .collect();
        // SAFETY: the vectors name memory of the other process, which the kernel checks; nothing of ours is written.
        checked(unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                handle(&process.pidfd)?,
                vectors.as_ptr(),
                vectors.len(),
                advice,
                0,
            )
        })
        .map(|bytes| bytes as u64)
    }

    fn scan_pages(
        &self,
        process: &Process,
        scan: &PageScan,
        runs: &mut [PageRun],
    ) -> io::Result<(usize, u64)> {
        let mut arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            flags: if scan.protect { PROTECT_MATCHING } else { 0 },
            start: scan.start,
            end: scan.end,
            vec: runs.as_mut_ptr() as u64,
            vec_len: runs.len() as u64,
            category_mask: scan.all_of,
            category_anyof_mask: scan.any_of,
            return_mask: scan.tell,
            ..ScanArguments::default()
        };
        // SAFETY: `arguments` is the structure that the request names, with its size; `vec` holds `vec_len` runs.
        let count = checked(i64::from(unsafe {
            libc::ioctl(handle(&process.pagemap)?, PAGEMAP_SCAN, &raw mut arguments)
        }))?;
        Ok((count as usize, arguments.walk_end))
    }

    fn track_writes(&self, process: &Process, start: u64, bytes: u64) -> io::Result<()> {
        // `struct uffdio_register`: the range, the mode, the requests that it allows.
        let mut register = [start, bytes, REGISTER_WRITE_PROTECT, 0];
        // SAFETY: four numbers are the structure that the request names; the range is the other process's, and the kernel
        // only marks it.
        let result =
            unsafe { libc::ioctl(handle(&process.tracker)?, UFFDIO_REGISTER, register.as_mut_ptr()) };
        checked(i64::from(result)).map(|_| ())
    }

    fn faults(&self, pid: u32, tracker: OwnedFd) -> io::Result<Box<dyn Faults>> {
        super::faults::serve(pid, tracker)
    }

    fn pagemap(&self, process: &Process, first: u64, entries: &mut [u64]) -> io::Result<usize> {
        let file = process.pagemap.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: any bytes are valid numbers; the slice covers exactly the entries.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(entries.as_mut_ptr().cast::<u8>(), size_of_val(entries))
        };
        Ok(file.read_at(bytes, first * 8)? / 8)
    }

    fn touch(&self, process: &Process, addresses: &[u64]) -> io::Result<usize> {
        let mut read = 0;
        for some in addresses.chunks(libc::UIO_MAXIOV as usize) {
            let mut bytes = vec![0u8; some.len()];
            let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let remote: Vec<libc::iovec> =
                some.iter().map(|address| libc::iovec { iov_base: *address as *mut _, iov_len: 1 }).collect();
            // SAFETY: `local` covers `bytes`; the kernel checks what it reads of the other process.
            let result = unsafe {
                libc::process_vm_readv(process.pid as i32, &local, 1, remote.as_ptr(), remote.len() as u64, 0)
            };
            match checked(result as i64) {
                Ok(count) => read += count as usize,
                // A page that is gone, with all after it in this call.
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn sample(&self, event: Event, cpu: u32) -> io::Result<Box<dyn Samples>> {
        super::samples::open(event, cpu)
    }

    fn probe(&self, what: Probe) -> io::Result<u64> {
        super::probe::probe(self, what)
    }

    fn now(&self) -> Duration {
        clock(libc::CLOCK_BOOTTIME)
    }

    fn cpu_time(&self) -> Duration {
        clock(libc::CLOCK_PROCESS_CPUTIME_ID)
    }

    fn sleep(&self, span: Duration) {
        std::thread::sleep(span);
    }
}
