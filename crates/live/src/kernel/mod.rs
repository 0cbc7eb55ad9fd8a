//! Everything that Terrace asks of the kernel, behind one trait, so that tests can answer in its place.

mod faults;
mod image;
mod linux;
mod probe;
mod rooted;
mod samples;

pub use faults::{Answer, Faults};
pub use image::Image;
pub use linux::Linux;
pub use probe::{Probe, SamplingEvent, USER_MODE_ONLY};
pub use rooted::Rooted;
pub use samples::{Event, Sample, Samples};

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// A process that Terrace has taken in hand. The handles stay valid, and harmless, when it ends or its number is reused.
#[derive(Debug)]
pub struct Process {
    /// The process's number.
    pub pid: u32,
    /// Refers to this process and no later one of the same number.
    pub pidfd: Option<OwnedFd>,
    /// `/proc/PID/pagemap`: of the memory that the process had when it was opened, whatever it executes afterwards.
    pub pagemap: Option<File>,
    /// Which memory that was, as far as this user may know.
    pub image: Option<Image>,
    /// A userfaultfd of its memory, which it has handed over ([`crate::help`]).
    pub tracker: Option<OwnedFd>,
}

/// What a process may be advised about its pages from outside (`process_madvise(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// To the end of the inactive list.
    Cold,
    /// To swap.
    PageOut,
    /// Back from swap.
    WillNeed,
    /// Join base pages to huge ones.
    Collapse,
}

/// The bit of an entry of `pagemap` that says the page is in memory.
pub const IN_MEMORY: u64 = 1 << 63;

/// What a page is, in the categories of `PAGEMAP_SCAN`.
pub mod category {
    /// Tracked for writes by a registration of userfaultfd with asynchronous write protection.
    pub const WRITE_TRACKED: u64 = 1 << 0;
    /// Written since it was last protected.
    pub const WRITTEN: u64 = 1 << 1;
    /// Backed by a file, or shared memory.
    pub const FILE: u64 = 1 << 2;
    /// In memory.
    pub const PRESENT: u64 = 1 << 3;
    /// In swap.
    pub const SWAPPED: u64 = 1 << 4;
    /// The page of zeros that all processes share.
    pub const ZERO: u64 = 1 << 5;
    /// Mapped by an entry of 2 MiB.
    pub const HUGE: u64 = 1 << 6;
    /// Written since soft-dirty bits were last cleared.
    pub const SOFT_DIRTY: u64 = 1 << 7;
}

/// A run of pages of the same categories, as `PAGEMAP_SCAN` reports it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRun {
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// See [`category`].
    pub categories: u64,
}

/// What to look for in a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageScan {
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Pages are reported that have one of these.
    pub any_of: u64,
    /// Pages are reported that have all of these.
    pub all_of: u64,
    /// Categories to report.
    pub tell: u64,
    /// Protect the pages that match against writing, so that the next write shows again.
    pub protect: bool,
}

/// The kernel. Numbers are what Linux numbers: nodes, processes; addresses are those of the process.
///
/// Errors are the kernel's own. Every method may fail at any time for a process that has just ended (`ESRCH`).
pub trait Kernel: Send + Sync {
    /// A file of `/proc` or `/sys`, whole.
    ///
    /// # Errors
    /// Those of opening and reading it.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Writes a value into a file of `/proc`, `/sys` or a control file system, in one call.
    ///
    /// # Errors
    /// Those of opening and writing it.
    fn write(&self, path: &Path, value: &str) -> io::Result<()>;

    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// Those of reading it.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Makes a folder in a control file system.
    ///
    /// # Errors
    /// Those of making it.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder of a control file system, with the files that the kernel shows in it.
    ///
    /// # Errors
    /// Those of removing it: something still uses it.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Opens a file for reading, without ever waiting for something to read.
    ///
    /// # Errors
    /// Those of opening it.
    fn stream(&self, path: &Path) -> io::Result<File>;

    /// Takes a process in hand.
    ///
    /// # Errors
    /// It does not exist, or may not be looked into.
    fn open(&self, pid: u32) -> io::Result<Process>;

    /// Whether the process that was opened still runs.
    fn is_alive(&self, process: &Process) -> bool;

    /// Whether the process still runs, and still has the memory that it had when it was opened. It has another one as
    /// soon as it has executed a program.
    fn has_same_memory(&self, process: &Process) -> bool;

    /// Whether two processes have one memory, as a child has that of its parent between `vfork` and `exec`. False where
    /// the kernel does not say.
    fn shares_memory(&self, pid: u32, other: u32) -> bool;

    /// Moves pages to nodes, or with `nodes` none reports on which node each lies. `status` gets a node or a negated
    /// error number for each page.
    ///
    /// # Errors
    /// Of the call as a whole; `status` is meaningful only where it succeeds.
    fn move_pages(
        &self,
        process: &Process,
        pages: &[u64],
        nodes: Option<&[i32]>,
        status: &mut [i32],
    ) -> io::Result<()>;

    /// Gives advice for ranges of `(address, bytes)`; returns the bytes that were advised, which may be fewer.
    ///
    /// # Errors
    /// Nothing was advised.
    fn advise(&self, process: &Process, ranges: &[(u64, u64)], advice: Advice) -> io::Result<u64>;

    /// Fills `runs`; returns how many and up to which address the scan came.
    ///
    /// # Errors
    /// The kernel has no `PAGEMAP_SCAN` (`ENOTTY`), or the process ended.
    fn scan_pages(
        &self,
        process: &Process,
        scan: &PageScan,
        runs: &mut [PageRun],
    ) -> io::Result<(usize, u64)>;

    /// From now on [`category::WRITTEN`] is reported for the pages in a range, a process's own memory, until it is mapped
    /// anew.
    ///
    /// # Errors
    /// The process has not handed over a userfaultfd (`ESRCH`), uses one itself (`EBUSY`), or the memory is of another kind.
    fn track_writes(&self, process: &Process, start: u64, bytes: u64) -> io::Result<()>;

    /// Takes and answers minor faults of a process's shared memory, by the userfaultfd for those that it has handed over.
    ///
    /// # Errors
    /// No thread can be started for that.
    fn faults(&self, pid: u32, tracker: OwnedFd) -> io::Result<Box<dyn Faults>>;

    /// Entries of `/proc/PID/pagemap` from page number `first`; returns how many.
    ///
    /// # Errors
    /// The process ended, or may not be looked into.
    fn pagemap(&self, process: &Process, first: u64, entries: &mut [u64]) -> io::Result<usize>;

    /// Makes the process's pages present, as its own reading would; returns how many addresses could be read.
    ///
    /// # Errors
    /// The process ended, or may not be read.
    fn touch(&self, process: &Process, addresses: &[u64]) -> io::Result<usize>;

    /// Begins to sample an event on a processor, whatever process runs there.
    ///
    /// # Errors
    /// The kernel or the processor does not have it, or it is not permitted.
    fn sample(&self, event: Event, cpu: u32) -> io::Result<Box<dyn Samples>>;

    /// Tries something on Terrace's own process, without any lasting effect. The answer depends on the question.
    ///
    /// # Errors
    /// The kernel does not have it, or it is not permitted.
    fn probe(&self, what: Probe) -> io::Result<u64>;

    /// Time since some fixed moment, suspensions included.
    fn now(&self) -> Duration;

    /// CPU time that Terrace itself has used, all threads together.
    fn cpu_time(&self) -> Duration;

    /// Lets time pass.
    fn sleep(&self, span: Duration);
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that the call fills; the clocks asked for exist on every Linux.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A file as text; bytes that are no UTF-8 are replaced.
///
/// # Errors
/// As [`Kernel::read`].
pub fn read_text(kernel: &dyn Kernel, path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = kernel.read(path.as_ref())?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}
