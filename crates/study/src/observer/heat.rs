//! The heat map: accesses by address (rows) and time (columns), the untouched parts of the address space left out.

use std::collections::BTreeMap;
use terrace_model::AddressRange;
use terrace_report::{HeatMap, HeatRow};

/// Rows that the regions share.
const ROWS: usize = 72;
/// Regions at most, while a wider gap can still join some.
const REGIONS: usize = 24;
/// Regions at most where no gap joins them, which is so between processes: the least used are left out.
const REGIONS_LIMIT: usize = 48;
/// Untouched gaps shorter than this never split a region.
const SMALLEST_GAP: u64 = 64 << 10;
const PAGE: u64 = 4096;

/// A sampled access in eight bytes: its 64-byte line, its process (modulo 4096) and whether it was a store.
/// Order is that of process, then address, loads before stores of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sample(u64);

/// A range of addresses with a name. A row is named by what most of its samples lie in, each counted `weight` times.
#[derive(Clone, Debug)]
pub(super) struct NamedRange {
    pub process: u32,
    pub range: AddressRange,
    pub name: String,
    pub weight: u64,
}

/// Neighbouring touched pages of one process.
#[derive(Debug)]
struct Region {
    process: u32,
    start: u64,
    end: u64,
    samples: u64,
}

impl Sample {
    /// Bits of an address below the line, and those of the widest virtual address (5-level page tables).
    const LINE_SHIFT: u32 = 6;
    const ADDRESS_BITS: u32 = 57;
    const LINE_BITS: u32 = Self::ADDRESS_BITS - Self::LINE_SHIFT;
    const WRITE: u64 = 1 << 63;

    pub(super) fn new(process: u32, address: u64, write: bool) -> Sample {
        let line = (address & ((1 << Self::ADDRESS_BITS) - 1)) >> Self::LINE_SHIFT;
        let process = u64::from(process % 4096) << Self::LINE_BITS;
        Sample(line | process | if write { Self::WRITE } else { 0 })
    }

    fn process(self) -> u32 {
        ((self.0 & !Self::WRITE) >> Self::LINE_BITS) as u32
    }

    fn address(self) -> u64 {
        (self.0 & ((1 << Self::LINE_BITS) - 1)) << Self::LINE_SHIFT
    }

    fn is_write(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

/// The map of the samples in `bins`, each of which stands for `sample_every` accesses.
pub(super) fn build<'a>(
    bins: &[Vec<Sample>],
    accesses_per_bin: u64,
    sample_every: u64,
    named: impl Iterator<Item = &'a NamedRange>,
) -> HeatMap {
    let mut places: Vec<(u32, u64)> =
        bins.iter().flatten().map(|sample| (sample.process(), sample.address())).collect();
    places.sort_unstable();
    let named: Vec<&NamedRange> = named.collect();
    let mut rows = rows_of(&regions_of(&places));
    for row in &mut rows {
        row.name = name_of(row, &named, &places);
    }

    let mut reads = vec![vec![0; bins.len()]; rows.len()];
    let mut writes = reads.clone();
    for (column, bin) in bins.iter().enumerate() {
        for sample in bin {
            let (process, address) = (sample.process(), sample.address());
            let after = rows.partition_point(|row| (row.process, row.start) <= (process, address));
            let Some(at) = after.checked_sub(1) else { continue };
            if rows[at].process == process && address - rows[at].start < rows[at].bytes {
                let counts = if sample.is_write() { &mut writes } else { &mut reads };
                counts[at][column] += 1;
            }
        }
    }
    HeatMap { accesses_per_bin, sample_every, rows, reads, writes }
}

/// Joins the pages of sorted places into regions, across the smallest gap that leaves at most [`REGIONS`] of them.
fn regions_of(places: &[(u32, u64)]) -> Vec<Region> {
    let mut gap = SMALLEST_GAP;
    loop {
        let mut regions: Vec<Region> = Vec::new();
        for &(process, address) in places {
            let page = address & !(PAGE - 1);
            match regions.last_mut() {
                Some(last) if last.process == process && page <= last.end.saturating_add(gap) => {
                    last.end = last.end.max(page + PAGE);
                    last.samples += 1;
                }
                _ => regions.push(Region { process, start: page, end: page + PAGE, samples: 1 }),
            }
        }
        if regions.len() <= REGIONS || gap >= 1 << Sample::ADDRESS_BITS {
            return regions;
        }
        gap *= 4;
    }
}

/// Shares the rows among the regions, half by their size and half by their use, so that neither a small hot region
/// nor a large cold one vanishes.
fn rows_of(regions: &[Region]) -> Vec<HeatRow> {
    let bytes: u64 = regions.iter().map(|r| r.end - r.start).sum();
    let samples: u64 = regions.iter().map(|r| r.samples).sum();
    let mut by_use: Vec<&Region> = regions.iter().collect();
    by_use.sort_by_key(|region| std::cmp::Reverse(region.samples));
    by_use.truncate(REGIONS_LIMIT);
    let mut rows = Vec::new();
    for region in by_use {
        let span = region.end - region.start;
        let share = 0.5 * span as f64 / bytes as f64 + 0.5 * region.samples as f64 / samples as f64;
        let pages = span / PAGE;
        let wanted = ((share * ROWS as f64).round() as u64).clamp(1, pages);
        let row_bytes = pages.div_ceil(wanted) * PAGE;
        rows.extend((0..span.div_ceil(row_bytes)).map(|at| {
            let start = region.start + at * row_bytes;
            let bytes = row_bytes.min(region.end - start);
            HeatRow { process: region.process, start, bytes, ..HeatRow::default() }
        }));
    }
    rows.sort_by_key(|row| (row.process, row.start));
    rows
}

/// The name of what most samples of a row lie in; empty where that is memory without a name. `places` are those of all
/// samples, sorted.
fn name_of(row: &HeatRow, named: &[&NamedRange], places: &[(u32, u64)]) -> String {
    let (first, end) = (row.start, row.start + row.bytes);
    // A name's first line may begin before it.
    let samples = |from: u64, until: u64| {
        let before = |address: u64| places.partition_point(|place| *place < (row.process, address & !63));
        before(until) - before(from)
    };
    let over = |range: &NamedRange| (first.max(range.range.start.0), end.min(range.range.end().0));
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    let mut scores: BTreeMap<&str, u64> = BTreeMap::new();
    for range in named.iter().filter(|range| range.process == row.process) {
        let (from, until) = over(range);
        if from < until {
            pieces.push((from, until));
            *scores.entry(&range.name).or_default() += samples(from, until) as u64 * range.weight;
        }
    }
    pieces.sort_unstable();
    let (mut covered, mut reached) = (0, first);
    for (from, until) in pieces {
        let from = from.max(reached);
        if from < until {
            covered += samples(from, until);
            reached = until;
        }
    }
    let unnamed = samples(first, end).saturating_sub(covered);
    let best = scores.into_iter().max_by_key(|(_, score)| *score);
    best.filter(|_| unnamed <= covered).map(|(name, _)| name.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sample_keeps_line_process_and_kind() {
        for (process, address, write) in
            [(0, 0, false), (4095, (1 << 57) - 64, true), (7, 0x7fff_ffff_f040, false)]
        {
            let sample = Sample::new(process, address, write);
            assert_eq!((sample.process(), sample.address(), sample.is_write()), (process, address, write));
        }
    }

    #[test]
    fn distant_regions_stand_side_by_side() {
        let heap: Vec<Sample> = (0..64).map(|i| Sample::new(0, 0x1000_0000 + i * PAGE, false)).collect();
        let stack = vec![Sample::new(0, 0x7fff_ffff_e000, true)];
        let table = NamedRange {
            process: 0,
            range: AddressRange::new(0x1000_0000, 64 * PAGE),
            name: "table".to_owned(),
            weight: 1,
        };
        let map = build(&[heap, stack], 64, 1, [&table].into_iter());
        let first = &map.rows[0];
        let last = map.rows.last().unwrap();
        assert_eq!((first.start, first.name.as_str()), (0x1000_0000, "table"));
        assert_eq!((last.start, last.bytes, last.name.as_str()), (0x7fff_ffff_e000, PAGE, ""));
        assert_eq!(map.writes.last().unwrap(), &[0, 1]);
    }

    #[test]
    fn a_row_is_named_by_what_is_accessed_in_it() {
        let named = |from: u64, pages: u64, name: &str, weight| NamedRange {
            process: 0,
            range: AddressRange::new(from, pages * PAGE),
            name: name.to_owned(),
            weight,
        };
        // A large area without a name, and a library right behind it of which one page is read once.
        let (area, library) = (0x1000_0000, 0x1000_0000 + 800 * PAGE);
        let mut samples: Vec<Sample> =
            (0..4000).map(|at| Sample::new(0, area + at % 800 * PAGE, false)).collect();
        samples.push(Sample::new(0, library, false));
        let map = build(&[samples.clone()], 4001, 1, [&named(library, 32, "libgcc", 1)].into_iter());
        let of =
            |name: &str| map.rows.iter().filter(|row| row.name == name).map(|row| row.bytes).sum::<u64>();
        assert_eq!(of(""), 801 * PAGE, "{:?}", map.rows);
        // A structure within the heap names what is accessed there, and the heap the rest.
        let ranges = [named(area, 801, "[heap]", 1), named(area, 400, "table", 2)];
        let map = build(&[samples], 4001, 1, ranges.iter());
        assert_eq!((map.rows[0].name.as_str(), map.rows.last().unwrap().name.as_str()), ("table", "[heap]"));
    }

    proptest! {
        /// Every sample is counted once, rows are sorted and disjoint, and there are not too many.
        #[test]
        fn nothing_is_lost(
            samples in prop::collection::vec((0u32..3, prop_oneof![0u64..1 << 22, 0u64..1 << 47], any::<bool>()), 0..500)
        ) {
            let samples: Vec<Sample> = samples.into_iter().map(|(p, a, w)| Sample::new(p, a, w)).collect();
            let writes = samples.iter().filter(|s| s.is_write()).count() as u32;
            let map = build(std::slice::from_ref(&samples), 500, 1, std::iter::empty());
            let total = |counts: &[Vec<u32>]| counts.iter().flatten().sum::<u32>();
            prop_assert_eq!(total(&map.writes), writes);
            prop_assert_eq!(total(&map.reads) + writes, samples.len() as u32);
            prop_assert!(map.rows.len() <= ROWS + REGIONS_LIMIT);
            for pair in map.rows.windows(2) {
                let (a, b) = (&pair[0], &pair[1]);
                prop_assert!((a.process, a.start + a.bytes) <= (b.process, b.start));
            }
        }
    }
}
