//! The regions of the program: what each would gain from larger pages, what it would cost, and which size it deserves.

use super::bounds::{Bounds, LEAST_GAIN_OF_A_REGION};
use super::ways::{FaultLatency, SYSTEM, TRANSLATION, cycles_by_part};
use crate::memory_picture;
use serde::Serialize;
use std::collections::BTreeMap;
use terrace_model::PageSize;
use terrace_report::RunRecord;
use terrace_sim::{Part, PartCost, PartUse};
use terrace_trace::demangled;

/// What is known of a region.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    /// The region's name, with its process where there are several.
    pub name: String,
    /// Source file and line of the call that allocates it; empty where unknown.
    pub line: String,
    /// The process it belongs to.
    pub process: u32,
    /// A data structure rather than a mapping.
    pub is_structure: bool,
    /// Share of the walk cycles of the run with base pages.
    pub walk_share: f64,
    /// Page walks with base pages.
    pub walks: u64,
    /// Cycles in them.
    pub walk_cycles: u64,
    /// Resident with base pages, when most was.
    pub touched_bytes: u64,
    /// With 2 MiB, then with 1 GiB.
    pub sizes: [SizedRegion; 2],
    /// The size that the region deserves.
    pub size: &'static str,
    /// What it costs in each way, in the whole run.
    pub costs: Vec<RegionCost>,
}

/// What a way of using pages costs a region.
#[derive(Clone, Debug, Serialize)]
pub struct RegionCost {
    /// The way's name.
    pub way: String,
    /// Page faults.
    pub faults: u64,
    /// Time in them.
    pub fault_seconds: f64,
    /// Time that a fault takes.
    pub fault_latency: FaultLatency,
    /// Bytes of its pages that were copied, to make larger ones of them or to make room.
    pub copied_bytes: u64,
    /// Resident, when most memory was.
    pub resident_bytes: u64,
    /// In pages above 4 KiB, of them.
    pub large_bytes: u64,
}

impl RegionCost {
    fn of(way: &str, uses: &[PartUse], part: &Part) -> RegionCost {
        let nothing = PartCost::default();
        let same = uses.iter().find(|other| other.part == *part);
        let cost = same.map_or(&nothing, |same| &same.cost);
        let [base, huge, giant] = same.map_or([0; 3], |same| same.resident);
        RegionCost {
            way: way.to_owned(),
            faults: cost.fault_latency.count,
            fault_seconds: cost.fault_time.as_secs(),
            fault_latency: FaultLatency::of(&cost.fault_latency),
            copied_bytes: cost.copied_bytes,
            resident_bytes: base + huge + giant,
            large_bytes: huge + giant,
        }
    }
}

/// What a way copied of no region: pages of files, which lay where a large page was to be.
#[derive(Clone, Debug, Serialize)]
pub struct CopiedCost {
    /// The way's name.
    pub way: String,
    /// Bytes that were copied.
    pub copied_bytes: u64,
}

impl CopiedCost {
    pub(super) fn of(way: &str, uses: &[PartUse]) -> CopiedCost {
        let cache = Part::page_cache();
        let theirs = uses.iter().find(|other| other.part == cache);
        CopiedCost { way: way.to_owned(), copied_bytes: theirs.map_or(0, |part| part.cost.copied_bytes) }
    }
}

/// A region in larger pages.
#[derive(Clone, Debug, Serialize)]
pub struct SizedRegion {
    /// `2m` or `1g`.
    pub size: &'static str,
    /// Touched bytes in aligned places of that size that lie in one mapping.
    pub mappable_bytes: u64,
    /// Untouched bytes in these places.
    pub bloat_bytes: u64,
    /// The region's share of the cycles with base pages that the size saves by shorter waits for translation and less time
    /// in faults; absent where the size did not run, and where no place of the region can be mapped by it.
    pub saved_share: Option<f64>,
    /// Run time with base pages over that with so much less, less 1: as a gain of the whole run.
    pub gain: Option<f64>,
}

type Run<'a> = (&'a RunRecord, &'a [PartUse]);

/// The regions that matter, those with most walk cycles first.
pub(super) fn weigh(
    base: (&RunRecord, &Vec<PartUse>),
    large: [Option<Run<'_>>; 2],
    ways: &[(&str, &[PartUse])],
    lines: &BTreeMap<String, String>,
    bounds: &Bounds,
) -> Vec<Region> {
    let (run, uses) = base;
    let all: Vec<Part> = uses.iter().map(|part| part.part.clone()).collect();
    let saved = large.map(|large| large.map(|large| savings(run, uses, large)));
    let walk_cycles: u64 = uses.iter().map(|part| part.walk_cycles).sum();
    let mut answers: Vec<Region> = uses
        .iter()
        .enumerate()
        .filter(|(_, part)| part.walks > 0 || part.resident.iter().sum::<u64>() > 0)
        .map(|(at, part)| {
            let places = [(part.mappable_2m, part.bloat_2m), (part.mappable_1g, part.bloat_1g)];
            let sizes = [PageSize::Huge, PageSize::Giant].map(|size| {
                let which = size.index() - 1;
                // What was measured with it everywhere is of other pages than it would have.
                let saved = saved[which].as_ref().filter(|_| places[which].0 > 0).map(|saved| saved[at]);
                SizedRegion {
                    size: size.name(),
                    mappable_bytes: places[which].0,
                    bloat_bytes: places[which].1,
                    saved_share: saved,
                    gain: saved.map(gain_of),
                }
            });
            let touched = part.resident.iter().sum();
            Region {
                name: memory_picture::name(&part.part, &all),
                line: match part.part.is_structure {
                    true => lines.get(&*demangled(&part.part.name)).cloned().unwrap_or_default(),
                    false => String::new(),
                },
                process: part.part.process,
                is_structure: part.part.is_structure,
                walk_share: part.walk_cycles as f64 / walk_cycles.max(1) as f64,
                walks: part.walks,
                walk_cycles: part.walk_cycles,
                touched_bytes: touched,
                size: best(touched, &sizes, bounds),
                sizes,
                costs: ways.iter().map(|(way, run)| RegionCost::of(way, run, &part.part)).collect(),
            }
        })
        .collect();
    answers.sort_by(|a, b| b.walk_cycles.cmp(&a.walk_cycles).then(b.touched_bytes.cmp(&a.touched_bytes)));
    answers
}

/// The share of the cycles with base pages that larger ones save each part: by waiting less for translation, shared out by
/// the walk cycles that they save each part, and by less of the operating system, shared out by the time in faults that
/// they save each. What lies in caches after it is no part's.
fn savings(base: &RunRecord, uses: &[PartUse], (run, larger): Run<'_>) -> Vec<f64> {
    let saved_of = |measure: &dyn Fn(&PartUse) -> f64| -> Vec<f64> {
        let same = |part: &PartUse| larger.iter().find(|other| other.part == part.part).map_or(0.0, measure);
        uses.iter().map(|part| measure(part) - same(part)).collect()
    };
    let walks = saved_of(&|part| part.walk_cycles as f64);
    let faults = saved_of(&|part| part.cost.fault_time.as_secs());
    let busy = cycles_by_part(base).iter().sum::<u64>().max(1);
    let whole = |of: usize| (cycles_by_part(base)[of] as f64 - cycles_by_part(run)[of] as f64) / busy as f64;
    let shares = share_out(whole(TRANSLATION), &walks).into_iter().zip(share_out(whole(SYSTEM), &faults));
    shares.map(|(walks, faults)| walks + faults).collect()
}

/// What the whole run saves by what each part does; nothing where the parts went the other way than the run.
fn share_out(whole: f64, saved: &[f64]) -> Vec<f64> {
    let all: f64 = saved.iter().sum();
    saved.iter().map(|saved| if all * whole > 0.0 { whole * saved / all } else { 0.0 }).collect()
}

/// The gain in time of a run that saves this share of its time.
pub(super) fn gain_of(saved: f64) -> f64 {
    saved / (1.0 - saved)
}

/// The smallest size that is worth it: a larger one has to gain noticeably more, for tolerable bloat.
fn best(touched: u64, sizes: &[SizedRegion; 2], bounds: &Bounds) -> &'static str {
    let (mut best, mut gained) = (PageSize::Base.name(), 0.0);
    for size in sizes {
        let tolerable = size.bloat_bytes as f64 <= bounds.bloat * touched as f64;
        let worth = size.gain.is_some_and(|gain| gain >= gained + LEAST_GAIN_OF_A_REGION);
        // A size that fits almost nowhere cannot have brought what was measured with it everywhere.
        if tolerable && worth && 2 * size.mappable_bytes >= touched {
            (best, gained) = (size.size, size.gain.unwrap_or(0.0));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(size: &'static str, mappable_bytes: u64, bloat_bytes: u64, gain: f64) -> SizedRegion {
        SizedRegion {
            size,
            mappable_bytes,
            bloat_bytes,
            saved_share: Some(gain / (1.0 + gain)),
            gain: Some(gain),
        }
    }

    #[test]
    fn a_larger_size_has_to_gain_more_for_tolerable_bloat() {
        let bounds = Bounds { bloat: 0.1 };
        let best = |huge, giant| best(100, &[huge, giant], &bounds);
        assert_eq!(best(size("2m", 100, 5, 0.2), size("1g", 100, 9, 0.3)), "1g");
        assert_eq!(best(size("2m", 100, 5, 0.2), size("1g", 100, 9, 0.203)), "2m", "hardly more");
        assert_eq!(best(size("2m", 100, 5, 0.2), size("1g", 100, 11, 0.3)), "2m", "too much memory");
        assert_eq!(best(size("2m", 100, 5, 0.2), size("1g", 40, 0, 0.3)), "2m", "fits nowhere");
        assert_eq!(best(size("2m", 100, 11, 0.2), size("1g", 0, 0, 0.3)), "4k");
        assert_eq!(best(size("2m", 100, 0, 0.004), size("1g", 100, 0, 0.004)), "4k");
    }

    /// A run whose cores spent so many cycles on the program, on translation and in the system.
    fn run(base: u64, translation: u64, os: u64) -> RunRecord {
        let mut run = RunRecord::default();
        for (part, cycles) in [("base", base), ("translation", translation), ("os", os)] {
            run.stats.count(format!("core.cycles.{part}"), cycles, terrace_model::Unit::Cycles);
        }
        run
    }

    fn part(name: &str, walk_cycles: u64, fault_ns: u64) -> PartUse {
        let mut part = PartUse { walk_cycles, ..PartUse::default() };
        part.part.name = name.to_owned();
        part.cost.fault_time = terrace_model::Time::from_nanos(fault_ns);
        part
    }

    #[test]
    fn regions_save_waits_for_translation_and_time_in_faults() {
        let base = [part("heap", 300, 900), part("stack", 100, 100)];
        let huge = [part("heap", 0, 100), part("stack", 100, 100)];
        let (before, after) = (run(500, 200, 300), run(500, 100, 100));
        let saved = savings(&before, &base, (&after, &huge));
        // A tenth of the cycles waited for translation and a fifth were in faults; all of it is the heap's.
        assert!((saved[0] - 0.3).abs() < 1e-12 && saved[1].abs() < 1e-12, "{saved:?}");
        assert!((gain_of(saved[0]) - (1000.0 / 700.0 - 1.0)).abs() < 1e-12);
        // A region of interest without faults saves none of the time in faults before it.
        let saved = savings(&run(500, 200, 300), &base, (&run(500, 100, 300), &huge));
        assert!((saved[0] - 0.1).abs() < 1e-12, "{saved:?}");
    }
}
