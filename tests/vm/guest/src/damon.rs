//! DAMON on chosen pages of an unmodified process: set up through sysfs, read through a trace instance of its own.
//!
//! Exact to the page while nothing is merged or split. DAMON splits regions while there are at most half of the upper limit,
//! so the limit is their number. It merges neighbours that touch and are accessed alike, up to the size of all regions
//! divided by the lower limit; that alone would do for regions of one size, but for base pages beside huge ones, neighbours
//! are given to two targets in turn, which are the same process. A few big regions do not become pages by splitting: DAMON
//! never splits two pages.
//!
//! Measured on emulated processors by the host's clock, some ten times slower than real ones; a fifth of the pages is
//! accessed:
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
use std::path::PathBuf;
use std::time::Duration;
use terrace_live::access::ring::Format;
pub use terrace_live::access::ring::Region;
use terrace_live::kernel::{Kernel, Linux};

/// How DAMON samples.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Between clearing a page's accessed bit and looking at it.
    pub interval: Duration,
    /// Samples that are counted together: an aggregation.
    pub count: u32,
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
    /// Regions of an aggregation that was not complete at the last call.
    records: Vec<Region>,
}

impl Trace {
    /// `buffer_kib` is for each processor; a region takes some 52 bytes for each aggregation that was not read.
    pub fn new(buffer_kib: usize) -> Result<Trace> {
        let instance = PathBuf::from("/sys/kernel/tracing/instances/terrace");
        std::fs::create_dir(&instance).context("a trace instance")?;
        let event = instance.join("events/damon/damon_aggregated");
        let format = Format::parse(&text(event.join("format"))?).context("another format of the event")?;
        let mut trace = Trace { instance, buffers: Vec::new(), format, records: Vec::new() };
        set(trace.instance.join("buffer_size_kb"), buffer_kib)?;
        set(event.join("enable"), 1)?;
        for cpu in std::fs::read_dir(trace.instance.join("per_cpu"))? {
            trace.buffers.push(Linux.stream(&cpu?.path().join("trace_pipe_raw"))?);
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
        self.records.sort_by_key(|region| region.time);
        let mut complete: Vec<Vec<Region>> = Vec::new();
        let mut rest = Vec::new();
        for region in self.records.drain(..) {
            if region.start == regions[0].start {
                rest.clear();
            }
            rest.push(region);
            // A piece of which the kernel has overwritten the rest never gets this long.
            if rest.len() == regions.len() {
                let mut aggregation = std::mem::take(&mut rest);
                aggregation.sort_by_key(|region: &Region| region.start);
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
        // No reader is left, so nothing keeps it.
        let _ = std::fs::remove_dir(&self.instance);
    }
}
