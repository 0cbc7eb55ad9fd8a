//! DAMON's records, as `damo record` keeps them: JSON, compressed by zlib or not. Older versions kept them in binary, as the
//! kernel's patches with a `record` file wrote them.
//!
//! A record has snapshots of a process's memory: regions, and in how many of a snapshot's samples an access to each was
//! found. DAMON takes the pages of a region for alike. So each page of a region is read as often as the region was found
//! accessed, in rounds: first every region that was found at least once, then every one that was found twice, and so on.
//! Accesses between samples are not known, nor are stores, sizes or the times of accesses: such a trace says which memory
//! is hot, when, and no more.

use super::Parser;
use super::builder::{ImportBuilder, Row};
use super::input::Input;
use crate::{AccessKind, Rules, SourceError};
use serde_json::Value;
use terrace_model::PageSize;

/// How a record in binary begins; the version follows.
const BINARY: &[u8; 16] = b"damon_recfmt_ver";
const PAGE: u64 = PageSize::Base.bytes();
const ACCESS_BYTES: u64 = 8;
/// No record is longer.
const MOST_BYTES: usize = 1 << 28;
/// Pages read in one step.
const PAGES_AT_ONCE: u64 = 1024;
/// A sample is taken every 5 ms and a snapshot every 100 ms by default; more samples than this are a damaged record.
const MOST_SAMPLES: u64 = 1 << 16;

/// Parses DAMON's records.
#[derive(Debug, Default)]
pub(super) struct Damon {
    read: bool,
    snapshots: Vec<Vec<Region>>,
    /// Where the reading is: snapshot, round, region, and the page within it.
    snapshot: usize,
    round: u64,
    region: usize,
    page: u64,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    start: u64,
    pages: u64,
    samples: u64,
}

impl Damon {
    /// Whether a file begins as a record: with the mark of those in binary, or as a list of objects, one of whose keys is in
    /// its first bytes.
    pub(super) fn is_plausible(start: &[u8]) -> bool {
        if start.starts_with(BINARY) {
            return true;
        }
        let start = start.trim_ascii_start();
        let early = &start[..start.len().min(1024)];
        let has = |word: &[u8]| early.windows(word.len()).any(|found| found == word);
        start.starts_with(b"[") && (has(b"\"kdamond_idx\"") || has(b"\"target_id\""))
    }
}

/// A number, or a text of one with commas in it.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.replace(',', "").parse().ok(),
        _ => None,
    }
}

fn region(value: &Value) -> Option<Region> {
    let (start, end) = (number(&value["start"])?, number(&value["end"])?);
    let accesses = &value["nr_accesses"];
    let samples = number(accesses).or_else(|| number(&accesses["samples"]))?;
    plausible(start, end, samples)
}

fn plausible(start: u64, end: u64, samples: u64) -> Option<Region> {
    let first = start / PAGE;
    let pages = end.div_ceil(PAGE).saturating_sub(first);
    let plausible = start < end && end <= Rules::default().user_end() && samples <= MOST_SAMPLES;
    plausible.then_some(Region { start: first * PAGE, pages, samples })
}

/// The snapshots of the one target that a record has.
fn snapshots(record: &Value) -> Result<Vec<Vec<Region>>, String> {
    let [record] = record.as_array().map_or(&[][..], Vec::as_slice) else {
        let targets = record.as_array().map_or(0, Vec::len);
        return Err(format!("expected a record of one target, found {targets}"));
    };
    let Some(found) = record["snapshots"].as_array() else {
        return Err("expected a list of snapshots".to_owned());
    };
    let regions = |(number, snapshot): (usize, &Value)| {
        let regions = snapshot["regions"].as_array();
        let regions: Option<Vec<Region>> = regions.and_then(|all| all.iter().map(region).collect());
        regions.ok_or_else(|| {
            format!("snapshot {number}: expected regions with start, end and nr_accesses in user space")
        })
    };
    found.iter().enumerate().map(regions).collect()
}

/// The fields of a record in binary, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*field))
    }

    fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*field))
    }
}

/// The snapshots of a record in binary: time, number of targets, and of each its number and its regions.
fn snapshots_in_binary(record: &[u8]) -> Result<Vec<Vec<Region>>, String> {
    let mut fields = Fields(&record[BINARY.len()..]);
    let version = fields.u32().ok_or("expected the version of the record")?;
    if version != 1 && version != 2 {
        return Err(format!("expected a record of version 1 or 2, found {version}"));
    }
    let mut found: Vec<Vec<Region>> = Vec::new();
    while !fields.0.is_empty() {
        let number = found.len();
        let short = || format!("snapshot {number}: the record ends within it");
        fields.u64().and_then(|_| fields.u64()).ok_or_else(short)?;
        let targets = fields.u32().ok_or_else(short)?;
        if targets > 1 {
            return Err(format!("snapshot {number}: expected one target, found {targets}"));
        }
        let mut regions = Vec::new();
        if targets == 1 {
            // Version 1 has the number of a process here, version 2 what a kernel calls its target.
            if version == 1 { fields.u32().map(u64::from) } else { fields.u64() }.ok_or_else(short)?;
            let count = fields.u32().ok_or_else(short)?;
            for _ in 0..count {
                let mut next = || Some((fields.u64()?, fields.u64()?, fields.u32()?));
                let (start, end, samples) = next().ok_or_else(short)?;
                // damo ends a record of one snapshot with one that holds an empty region.
                if (start, end) != (0, 0) {
                    regions.push(plausible(start, end, samples.into()).ok_or_else(|| {
                        format!("snapshot {number}: expected regions with start, end and nr_accesses in user space")
                    })?);
                }
            }
        }
        found.push(regions);
    }
    Ok(found)
}

impl Parser for Damon {
    fn step(&mut self, input: &mut Input, out: &mut ImportBuilder) -> Result<bool, SourceError> {
        if !self.read {
            self.read = true;
            self.round = 1;
            let text = input.rest(MOST_BYTES)?;
            let found = if text.starts_with(BINARY) {
                snapshots_in_binary(&text)
            } else {
                let record: Value =
                    serde_json::from_slice(&text).map_err(|error| input.malformed(&error.to_string()))?;
                snapshots(&record)
            };
            self.snapshots = found.map_err(|what| input.malformed(&what))?;
        }
        let Some(regions) = self.snapshots.get(self.snapshot) else { return Ok(false) };
        let Some(&region) = regions.get(self.region) else {
            // A round has ended.
            self.region = 0;
            self.round += 1;
            if regions.iter().all(|region| region.samples < self.round) {
                self.snapshot += 1;
                self.round = 1;
            }
            return Ok(true);
        };
        let end = if region.samples < self.round { 0 } else { region.pages };
        let last = end.min(self.page + PAGES_AT_ONCE);
        for page in self.page..last {
            let addr = region.start + page * PAGE;
            out.access(Row {
                addr,
                bytes: ACCESS_BYTES,
                kind: AccessKind::Read,
                depends_on: 0,
                instructions: 1,
                pc: None,
            })
            .map_err(|what| input.malformed(&what))?;
        }
        self.page = last;
        if self.page >= end {
            self.page = 0;
            self.region += 1;
        }
        Ok(true)
    }
}
