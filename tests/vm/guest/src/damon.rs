//! DAMON on chosen pages of an unmodified process: set up through sysfs, read through a trace instance of its own.
//!
//! Exact to the page while nothing is merged or split. DAMON splits regions while there are at most half of the upper limit, so
//! the limit is their number. It merges neighbours that touch and are accessed alike, up to the size of all regions divided by the
//! lower limit; that alone would do for regions of one size, but for base pages beside huge ones, neighbours are given to two
//! targets in turn, which are the same process. A few big regions do not become pages by splitting: DAMON never splits two pages.
//!
//! Measured on emulated processors, some ten times slower than real ones; a fifth of the pages is accessed:
//!
//! | | 2,000 pages | 16,384 pages |
//! |---|---|---|
//! | set up the regions | 0.3 to 0.4 s | 2.3 to 4.0 s |
//! | kernel thread for each sample, with or without a trace | 10 ms | 39 to 57 ms |
//! | read an aggregation from `trace_pipe_raw` | 0.3 to 3 ms | 5 to 23 ms |
//! | from `trace_pipe`, as text | 32 to 48 ms | 570 ms |
//! | from `tried_regions` of a scheme with the action `stat` | 0.4 s | 1.5 s |
//! | and the kernel thread meanwhile | 51 ms | 770 ms |

use crate::check::{set, text};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

/// How DAMON samples.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Between clearing a page's accessed bit and looking at it.
    pub interval: Duration,
    /// Samples that are counted together: an aggregation.
    pub count: u32,
}

/// A region with the number of samples that found it accessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub range: Range<u64>,
    pub accesses: u32,
}

/// One kernel thread of DAMON. It ends with this value.
pub struct Monitor {
    kdamond: PathBuf,
}

impl Monitor {
    /// Starts to watch regions, at least two, in ascending order.
    pub fn start(pid: u32, sampling: Sampling, regions: &[Range<u64>]) -> Result<Monitor> {
        // DAMON refuses a lower limit below three, and with an upper limit of three it would split a single region.
        ensure!(regions.len() >= 2, "DAMON keeps only two or more regions as they are");
        let limit = regions.len().max(3);
        let kdamonds = PathBuf::from("/sys/kernel/mm/damon/admin/kdamonds");
        set(kdamonds.join("nr_kdamonds"), 1)?;
        let monitor = Monitor { kdamond: kdamonds.join("0") };
        set(monitor.kdamond.join("contexts/nr_contexts"), 1)?;
        let context = monitor.kdamond.join("contexts/0");
        // "vaddr" would replace the regions by all mappings of the process.
        set(context.join("operations"), "fvaddr")?;
        let intervals = context.join("monitoring_attrs/intervals");
        set(intervals.join("sample_us"), sampling.interval.as_micros())?;
        set(intervals.join("aggr_us"), sampling.interval.as_micros() * u128::from(sampling.count))?;
        let limits = context.join("monitoring_attrs/nr_regions");
        set(limits.join("min"), limit)?;
        set(limits.join("max"), limit)?;
        set(context.join("targets/nr_targets"), 2)?;
        for (number, count) in [regions.len().div_ceil(2), regions.len() / 2].iter().enumerate() {
            let target = context.join(format!("targets/{number}"));
            set(target.join("pid_target"), pid)?;
            set(target.join("regions/nr_regions"), count)?;
        }
        monitor.write_regions(regions)?;
        set(monitor.kdamond.join("state"), "on")?;
        Ok(monitor)
    }

    /// Watches as many other regions instead, from the next aggregation on.
    pub fn replace(&self, regions: &[Range<u64>]) -> Result<()> {
        self.write_regions(regions)?;
        set(self.kdamond.join("state"), "commit")
    }

    fn write_regions(&self, regions: &[Range<u64>]) -> Result<()> {
        for (number, region) in regions.iter().enumerate() {
            let folder =
                self.kdamond.join(format!("contexts/0/targets/{}/regions/{}", number % 2, number / 2));
            set(folder.join("start"), region.start)?;
            set(folder.join("end"), region.end)?;
        }
        Ok(())
    }

    /// CPU time of the kernel thread so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        let pid = text(self.kdamond.join("pid"))?;
        let schedstat = text(format!("/proc/{pid}/schedstat"))?;
        let nanoseconds = schedstat.split_whitespace().next().context("schedstat is empty")?;
        Ok(Duration::from_nanos(nanoseconds.parse()?))
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Where the target has ended the thread has ended too.
        let _ = set(self.kdamond.join("state"), "off");
        // What is still set up counts as in use.
        if let Some(kdamonds) = self.kdamond.parent() {
            let _ = set(kdamonds.join("nr_kdamonds"), 0);
        }
    }
}

/// A private trace instance that takes DAMON's report of each aggregation. It is removed with this value.
pub struct Trace {
    instance: PathBuf,
    buffers: Vec<File>,
    format: Format,
    /// Time stamps, and regions of an aggregation that was not complete at the last call.
    records: Vec<(u64, Region)>,
}

/// Where the fields of the event lie in a record.
struct Format {
    identifier: u16,
    start: usize,
    end: usize,
    accesses: usize,
}

impl Trace {
    /// `buffer_kib` is for each processor; a region takes some 52 bytes for each aggregation that was not read.
    pub fn new(buffer_kib: usize) -> Result<Trace> {
        let instance = PathBuf::from("/sys/kernel/tracing/instances/terrace");
        std::fs::create_dir(&instance).context("a trace instance")?;
        let event = instance.join("events/damon/damon_aggregated");
        let format = Format::parse(&text(event.join("format"))?)?;
        let mut trace = Trace { instance, buffers: Vec::new(), format, records: Vec::new() };
        set(trace.instance.join("buffer_size_kb"), buffer_kib)?;
        set(event.join("enable"), 1)?;
        for cpu in std::fs::read_dir(trace.instance.join("per_cpu"))? {
            let file = File::open(cpu?.path().join("trace_pipe_raw"))?;
            // SAFETY: a flag of a descriptor of our own.
            let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
            ensure!(done == 0, "O_NONBLOCK: {}", io::Error::last_os_error());
            trace.buffers.push(file);
        }
        Ok(trace)
    }

    /// The complete aggregations that have come since the last call, oldest first, when these regions were watched.
    pub fn aggregations(&mut self, regions: &[Range<u64>]) -> Result<Vec<Vec<Region>>> {
        let mut page = [0; 4096];
        for buffer in &mut self.buffers {
            loop {
                match buffer.read(&mut page) {
                    Ok(0) => break,
                    Ok(bytes) => self.format.records(&page[..bytes], &mut self.records),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).context("trace_pipe_raw"),
                }
            }
        }
        // The kernel thread may have changed the processor, and with it the buffer.
        self.records.sort_by_key(|(time, _)| *time);
        let mut complete: Vec<Vec<Region>> = Vec::new();
        let mut rest = Vec::new();
        for (time, region) in self.records.drain(..) {
            if region.range.start == regions[0].start {
                rest.clear();
            }
            rest.push((time, region));
            // A piece of which the kernel has overwritten the rest never gets this long.
            if rest.len() == regions.len() {
                let mut aggregation: Vec<_> = rest.drain(..).map(|(_, region)| region).collect();
                aggregation.sort_by_key(|region| region.range.start);
                complete.push(aggregation);
            }
        }
        self.records = rest;
        Ok(complete)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.buffers.clear();
        // Nothing reads it any more, so nothing keeps it.
        let _ = std::fs::remove_dir(&self.instance);
    }
}

impl Format {
    fn parse(format: &str) -> Result<Format> {
        let field = |name: &str| {
            format
                .lines()
                .filter_map(|line| line.trim().strip_prefix("field:")?.split_once(';'))
                .find(|(declaration, _)| declaration.ends_with(&format!(" {name}")))
                .and_then(|(_, rest)| rest.trim().strip_prefix("offset:")?.split_once(';'))
                .with_context(|| format!("damon_aggregated has no {name}"))
                .and_then(|(offset, _)| Ok(offset.parse::<usize>()?))
        };
        let identifier =
            format.lines().find_map(|line| line.strip_prefix("ID: ")).context("an event without ID")?;
        Ok(Format {
            identifier: identifier.parse()?,
            start: field("start")?,
            end: field("end")?,
            accesses: field("nr_accesses")?,
        })
    }

    /// One page of the kernel's ring buffer: a time stamp, the bytes in use, then records. A record's first word holds its
    /// length in words (5 bits) and a time difference; 0 means that the length in bytes follows, 29 is padding, 30 carries
    /// more of the difference and 31 the time itself.
    fn records(&self, page: &[u8], records: &mut Vec<(u64, Region)>) {
        let mut time = long(page, 0);
        let used = 16 + (word(page, 8) & 0xf_ffff) as usize;
        let mut at = 16;
        while at + 4 <= used.min(page.len()) {
            let kind = word(page, at) & 0x1f;
            let low = u64::from(word(page, at) >> 5);
            let (data, length) = match kind {
                0 => (at + 8, word(page, at + 4) as usize - 4),
                29 => (at + 4, word(page, at + 4) as usize),
                30 | 31 => (at + 4, 4),
                words => (at + 4, words as usize * 4),
            };
            match kind {
                29 => {}
                30 => time += low + (u64::from(word(page, data)) << 27),
                // The highest five bits are those of the time before.
                31 => time = (time >> 59 << 59) | low | (u64::from(word(page, data)) << 27),
                _ => time += low,
            }
            if kind < 29 && word(page, data) as u16 == self.identifier {
                let range = long(page, data + self.start)..long(page, data + self.end);
                let accesses = word(page, data + self.accesses);
                records.push((time, Region { range, accesses }));
            }
            at = data + length;
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
