//! A kernel whose files lie below a folder: `/proc` and `/sys` as they were found on some machine.

use super::{Advice, Event, Faults, Kernel, PageRun, PageScan, Probe, Process, Samples};
use crate::facts::text;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Serves file requests from a folder and returns `ENOSYS` for everything else. For tests on machines that are not here.
///
/// Results of probes come from the file `probes` in that folder, a line each: `NAME ANSWER` or `NAME error NUMBER`.
#[derive(Clone, Debug)]
pub struct Rooted {
    root: PathBuf,
}

impl Rooted {
    /// Files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Rooted {
        Rooted { root: root.into() }
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

fn absent<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

impl Kernel for Rooted {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(self.path(path))
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        let path = self.path(path);
        std::fs::OpenOptions::new().write(true).truncate(true).open(&path)?;
        std::fs::write(path, value)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        super::linux::names(&self.path(path))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(self.path(path))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(self.path(path))
    }

    fn stream(&self, path: &Path) -> io::Result<File> {
        File::open(self.path(path))
    }

    fn open(&self, pid: u32) -> io::Result<Process> {
        std::fs::metadata(self.path(Path::new(&format!("/proc/{pid}")))).map(|_| Process {
            pid,
            pidfd: None,
            pagemap: None,
            image: None,
            tracker: None,
        })
    }

    fn is_alive(&self, process: &Process) -> bool {
        self.path(Path::new(&format!("/proc/{}", process.pid))).exists()
    }

    fn has_same_memory(&self, process: &Process) -> bool {
        self.is_alive(process)
    }

    fn shares_memory(&self, _: u32, _: u32) -> bool {
        false
    }

    fn move_pages(&self, _: &Process, _: &[u64], _: Option<&[i32]>, _: &mut [i32]) -> io::Result<()> {
        absent()
    }

    fn advise(&self, _: &Process, _: &[(u64, u64)], _: Advice) -> io::Result<u64> {
        absent()
    }

    fn scan_pages(&self, _: &Process, _: &PageScan, _: &mut [PageRun]) -> io::Result<(usize, u64)> {
        absent()
    }

    fn track_writes(&self, _: &Process, _: u64, _: u64) -> io::Result<()> {
        absent()
    }

    fn faults(&self, _: u32, _: OwnedFd) -> io::Result<Box<dyn Faults>> {
        absent()
    }

    fn pagemap(&self, _: &Process, _: u64, _: &mut [u64]) -> io::Result<usize> {
        absent()
    }

    fn touch(&self, _: &Process, _: &[u64]) -> io::Result<usize> {
        absent()
    }

    fn sample(&self, _: Event, _: u32) -> io::Result<Box<dyn Samples>> {
        absent()
    }

    fn probe(&self, what: Probe) -> io::Result<u64> {
        let answers = std::fs::read_to_string(self.root.join("probes")).or_else(|_| absent())?;
        let line = answers.lines().find_map(|line| line.strip_prefix(what.name())?.strip_prefix(' '));
        match line.map(|answer| (answer, answer.strip_prefix("error "))) {
            Some((_, Some(error))) => match error.trim().parse() {
                Ok(error) => Err(io::Error::from_raw_os_error(error)),
                Err(_) => absent(),
            },
            Some((answer, None)) => text::number(answer).map_or_else(absent, Ok),
            None => absent(),
        }
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) {}
}
