//! DAMON on chosen pages of an unmodified process, through sysfs.

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
pub struct Attributes {
    /// Between clearing a page's accessed bit and looking at it.
    pub sample: Duration,
    /// Samples that are counted together.
    pub samples: u32,
    /// DAMON splits regions where there are at most half of `max_regions`, and merges neighbours up to the monitored
    /// size divided by `min_regions`. Both equal to the number of regions given: neither ever happens.
    pub min_regions: usize,
    pub max_regions: usize,
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
    /// Sets up everything but does not start. The one scheme counts regions that were accessed at all and does nothing to
    /// them; it exists so that [`Monitor::tried_regions`] has something to answer.
    pub fn new(pid: u32, operations: &str, attributes: Attributes, regions: &[Range<u64>]) -> Result<Monitor> {
        let kdamonds = PathBuf::from("/sys/kernel/mm/damon/admin/kdamonds");
        set(kdamonds.join("nr_kdamonds"), 1)?;
        let kdamond = kdamonds.join("0");
        let contexts = kdamond.join("contexts");
        set(contexts.join("nr_contexts"), 1)?;
        let context = contexts.join("0");
        set(context.join("operations"), operations)?;
        let intervals = context.join("monitoring_attrs/intervals");
        set(intervals.join("sample_us"), attributes.sample.as_micros())?;
        set(intervals.join("aggr_us"), attributes.sample.as_micros() * u128::from(attributes.samples))?;
        let limits = context.join("monitoring_attrs/nr_regions");
        // The kernel checks nothing before the start, so the order is free.
        set(limits.join("min"), attributes.min_regions)?;
        set(limits.join("max"), attributes.max_regions)?;
        set(context.join("targets/nr_targets"), 1)?;
        let target = context.join("targets/0");
        set(target.join("pid_target"), pid)?;
        set(target.join("regions/nr_regions"), regions.len())?;
        for (number, region) in regions.iter().enumerate() {
            let folder = target.join(format!("regions/{number}"));
            set(folder.join("start"), region.start)?;
            set(folder.join("end"), region.end)?;
        }
        set(context.join("schemes/nr_schemes"), 1)?;
        let scheme = context.join("schemes/0");
        set(scheme.join("action"), "stat")?;
        for (what, min) in [("sz", 0), ("nr_accesses", 1), ("age", 0)] {
            let pattern = scheme.join("access_pattern").join(what);
            set(pattern.join("min"), min)?;
            set(pattern.join("max"), u32::MAX)?;
        }
        Ok(Monitor { kdamond })
    }

    pub fn start(&self) -> Result<()> {
        set(self.kdamond.join("state"), "on")
    }

    /// CPU time of the kernel thread so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        let pid = text(self.kdamond.join("pid"))?;
        let schedstat = text(format!("/proc/{pid}/schedstat"))?;
        let nanoseconds = schedstat.split_whitespace().next().context("schedstat is empty")?;
        Ok(Duration::from_nanos(nanoseconds.parse()?))
    }

    /// The accessed regions of the latest aggregation, read from four files each. The kernel thread answers at the end of
    /// its aggregation.
    pub fn tried_regions(&self) -> Result<Vec<Region>> {
        set(self.kdamond.join("state"), "update_schemes_tried_regions")?;
        let folder = self.kdamond.join("contexts/0/schemes/0/tried_regions");
        let mut regions = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                let number = |name| -> Result<u64> { Ok(text(entry.path().join(name))?.parse()?) };
                let range = number("start")?..number("end")?;
                regions.push(Region { range, accesses: number("nr_accesses")? as u32 });
            }
        }
        Ok(regions)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Where the target has ended the thread has ended too.
        let _ = set(self.kdamond.join("state"), "off");
    }
}

/// A private trace instance that takes DAMON's report of each aggregation. It is removed with this value.
pub struct Trace {
    instance: PathBuf,
    buffers: Vec<File>,
    format: Format,
}

/// Where the fields of the event lie in a record.
struct Format {
    identifier: u16,
    start: usize,
    end: usize,
    accesses: usize,
}

impl Trace {
    /// With `accessed_only` the kernel leaves regions out that no sample found accessed.
    pub fn new(accessed_only: bool, buffer_kib: usize) -> Result<Trace> {
        let instance = PathBuf::from("/sys/kernel/tracing/instances/terrace");
        std::fs::create_dir(&instance).context("a trace instance")?;
        let event = instance.join("events/damon/damon_aggregated");
        let format = Format::parse(&text(event.join("format"))?)?;
        let mut trace = Trace { instance, buffers: Vec::new(), format };
        set(trace.instance.join("buffer_size_kb"), buffer_kib)?;
        if accessed_only {
            set(event.join("filter"), "nr_accesses > 0")?;
        }
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

    /// What has come since the last call, in order for each processor on which the kernel thread ran.
    pub fn read(&mut self) -> Result<Vec<Region>> {
        let mut regions = Vec::new();
        let mut page = [0; 4096];
        for buffer in &mut self.buffers {
            loop {
                match buffer.read(&mut page) {
                    Ok(0) => break,
                    Ok(bytes) => self.format.records(&page[..bytes], &mut regions),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).context("trace_pipe_raw"),
                }
            }
        }
        Ok(regions)
    }

    /// The same from the text that the kernel writes, to compare the cost.
    pub fn read_text(&mut self) -> Result<Vec<Region>> {
        let mut pipe = File::open(self.instance.join("trace_pipe"))?;
        // SAFETY: a flag of a descriptor of our own.
        let done = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        ensure!(done == 0, "O_NONBLOCK: {}", io::Error::last_os_error());
        let mut said = String::new();
        match pipe.read_to_string(&mut said) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error).context("trace_pipe"),
            _ => {}
        }
        said.lines().filter_map(|line| line.split_once("nr_regions=")).map(|(_, event)| region(event)).collect()
    }
}

/// `2000 140737-140741: 3 7`: regions, start, end, accesses, age.
fn region(event: &str) -> Result<Region> {
    let numbers: Vec<u64> = event
        .split([' ', '-', ':'])
        .filter(|word| !word.is_empty())
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("event {event:?}"))?;
    let [_, start, end, accesses, _] = numbers[..] else { anyhow::bail!("event {event:?}") };
    Ok(Region { range: start..end, accesses: accesses as u32 })
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
    /// length in words (5 bits) and a time difference; 0 means that the length in bytes follows, 29 is padding, 30 and 31
    /// carry more time.
    fn records(&self, page: &[u8], regions: &mut Vec<Region>) {
        let used = 16 + (word(page, 8) & 0xf_ffff) as usize;
        let mut at = 16;
        while at + 4 <= used.min(page.len()) {
            let kind = word(page, at) & 0x1f;
            let (data, length) = match kind {
                0 => (at + 8, word(page, at + 4) as usize - 4),
                29 => (at + 4, word(page, at + 4) as usize),
                30 | 31 => (at + 4, 4),
                words => (at + 4, words as usize * 4),
            };
            if kind < 29 && word(page, data) as u16 == self.identifier {
                let range = long(page, data + self.start)..long(page, data + self.end);
                regions.push(Region { range, accesses: word(page, data + self.accesses) });
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
