//! The ways of using large pages that are put beside each other.

use super::super::Arguments;
use super::POLICIES;
use crate::error::Failure;
use crate::options::{Job, Setting};
use crate::run::{self, Settings};
use serde::Serialize;
use terrace_model::{Histogram, PageSize, Value};
use terrace_report::RunRecord;

/// A way, ready to run.
pub(super) struct Way {
    /// As the table calls it; the design of its run has this name.
    pub name: String,
    /// How an operator would say it.
    pub meaning: &'static str,
    /// The design by its own name.
    pub design: String,
    /// It needs translation hardware that the machine does not have.
    pub is_other_hardware: bool,
    pub job: Job,
}

/// Base pages first.
const BUILT_IN: [(&str, &str, &str); 4] = [
    ("4k", "native-4k", "base pages only"),
    ("thp-fault", "native-thp", "transparent huge pages at the fault"),
    ("2m", "native-2m", "2 MiB for everything, as from hugetlbfs"),
    ("1g", "native-1g", "1 GiB for everything, as from hugetlbfs"),
];

/// TLBs that use contiguity, which ranger makes.
const OTHER_HARDWARE: [(&str, &str); 2] =
    [("colt", "contiguity in coalesced TLB entries"), ("rmm", "contiguity in a range TLB")];

/// All ways that there are, checked.
pub(super) fn all(arguments: &Arguments) -> Result<Vec<Way>, Failure> {
    for Setting { design, key, .. } in &arguments.designs.sets {
        // A parameter of one policy leaves it to this command which policies there are.
        let is_parameter = design.is_some() && key.starts_with("os.policy.") && key != "os.policy.name";
        if key == "os.pages" || (key.starts_with("os.policy") && !is_parameter) {
            return Err(Failure::usage(format!(
                "--set {key} is what advise --pages varies; leave it out, or compare designs with terrace compare"
            )));
        }
    }
    let way = |name: &str, design: &str, meaning: &'static str| -> Result<Way, Failure> {
        let mut job = arguments.designs.resolve(design, None)?;
        name.clone_into(&mut job.design.design.name);
        Ok(Way { name: name.to_owned(), meaning, design: design.to_owned(), is_other_hardware: false, job })
    };
    let mut ways = Vec::new();
    for (name, design, meaning) in BUILT_IN {
        ways.push(way(name, design, meaning)?);
    }
    let named = !arguments.policies.is_empty();
    let policies: Vec<&str> = match named {
        true => arguments.policies.iter().map(String::as_str).collect(),
        false => POLICIES.into_iter().filter(|name| terrace_policy::find(name).is_ok()).collect(),
    };
    for policy in policies {
        if ways.iter().all(|way| way.name != policy) {
            let meaning = match policy {
                "thp" => "transparent huge pages with khugepaged",
                "trident" => "three page sizes",
                "ranger" => "contiguity by exchanges of frames",
                _ => "a policy",
            };
            ways.push(way(policy, policy, meaning)?);
        }
    }
    if ways.iter().any(|way| way.name == "ranger") {
        for (design, meaning) in OTHER_HARDWARE {
            let mut options = arguments.designs.clone();
            options.sets.push(Setting::of_all("os.policy.name", "ranger"));
            let mut job = options.resolve(design, None)?;
            let name = format!("ranger+{design}");
            name.clone_into(&mut job.design.design.name);
            ways.push(Way { name, meaning, design: design.to_owned(), is_other_hardware: true, job });
        }
    }
    arguments.designs.check_names(ways.iter().map(|way| way.design.as_str()))?;
    Ok(ways)
}

/// What came of a way.
#[derive(Debug, Serialize)]
pub(super) struct WayAnswer {
    pub name: String,
    pub meaning: &'static str,
    pub design: String,
    pub is_other_hardware: bool,
    /// Absent where it could not run.
    pub figures: Option<WayFigures>,
    pub refused: Option<String>,
    /// Of its policy, in the run.
    pub periods: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct WayFigures {
    pub seconds_simulated: f64,
    /// Run time of base pages over its own, less 1.
    pub gain: f64,
    /// Cycles that waited for translation, of all.
    pub translation_share: f64,
    pub walks: u64,
    pub walk_cycles: u64,
    /// Over those of base pages.
    pub walk_cycles_left: f64,
    /// When most was.
    pub resident_bytes: u64,
    /// Of them in pages larger than 4 KiB.
    pub large_share: f64,
    /// Resident beyond what base pages have, over that.
    pub bloat: f64,
    pub copied_bytes: u64,
    pub zeroed_ahead_bytes: u64,
    /// Large pages that were wanted and not to be had.
    pub fallbacks: u64,
    pub fault_latency: FaultLatency,
}

/// Of all faults of the run, in nanoseconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct FaultLatency {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl WayAnswer {
    pub fn of(way: &Way, run: &RunRecord, base: &RunRecord, settings: &Settings<'_>) -> WayAnswer {
        let [resident, before] = [run, base].map(|run| sizes(run).iter().sum::<u64>());
        let count = |name: &str| run.stats.integer(name);
        let figures = WayFigures {
            seconds_simulated: run.seconds_simulated,
            gain: base.seconds_simulated / run.seconds_simulated - 1.0,
            translation_share: translation_share(run),
            walks: count("walk.count"),
            walk_cycles: count("walk.cycles"),
            walk_cycles_left: count("walk.cycles") as f64 / base.stats.integer("walk.cycles").max(1) as f64,
            resident_bytes: resident,
            large_share: 1.0 - sizes(run)[0] as f64 / resident.max(1) as f64,
            bloat: resident as f64 / before.max(1) as f64 - 1.0,
            copied_bytes: count("policy.copied_bytes"),
            zeroed_ahead_bytes: count("policy.zeroed_bytes"),
            fallbacks: count("os.huge_fallbacks"),
            fault_latency: FaultLatency::of(run),
        };
        let period = run::longest_period(&way.job.design.design, settings);
        WayAnswer {
            figures: Some(figures),
            // Of base pages' run: a slow way must not look better tested.
            periods: period.map(|period| base.seconds_simulated / period),
            ..WayAnswer::refused(way, "")
        }
    }

    pub fn refused(way: &Way, why: &str) -> WayAnswer {
        WayAnswer {
            name: way.name.clone(),
            meaning: way.meaning,
            design: way.design.clone(),
            is_other_hardware: way.is_other_hardware,
            figures: None,
            refused: (!why.is_empty()).then(|| why.to_owned()),
            periods: None,
        }
    }
}

/// Most resident bytes, by page size.
fn sizes(run: &RunRecord) -> [u64; 3] {
    PageSize::ALL.map(|size| run.stats.integer(&format!("os.peak_resident_bytes.{size}")))
}

/// Where cores' busy cycles went.
const CYCLES: [&str; 5] = ["base", "translation", "cache", "memory", "os"];
const TRANSLATION: usize = 1;
pub(super) const OS: usize = 4;

pub(super) fn cycles_by_part(run: &RunRecord) -> [u64; CYCLES.len()] {
    CYCLES.map(|part| run.stats.integer(&format!("core.cycles.{part}")))
}

/// Cycles that waited for translation, of all that cores were busy.
fn translation_share(run: &RunRecord) -> f64 {
    let cycles = cycles_by_part(run);
    cycles[TRANSLATION] as f64 / cycles.iter().sum::<u64>().max(1) as f64
}

impl FaultLatency {
    fn of(run: &RunRecord) -> FaultLatency {
        let mut all = Histogram::default();
        for size in PageSize::ALL {
            let stat = run.stats.get(&format!("os.fault_latency.{size}"));
            if let Some(Value::Histogram(latency)) = stat.map(|stat| &stat.value) {
                all.merge(latency);
            }
        }
        FaultLatency { p50_ns: quantile(&all, 0.5), p99_ns: quantile(&all, 0.99), max_ns: all.max }
    }
}

/// The value that so many do not exceed, rounded up as the buckets, each twice as wide as the last, have it.
fn quantile(histogram: &Histogram, share: f64) -> u64 {
    let wanted = (histogram.count as f64 * share).ceil() as u64;
    let mut seen = 0;
    for (bucket, count) in histogram.buckets.iter().enumerate() {
        seen += count;
        if seen >= wanted && *count > 0 {
            let upper = 1u64.checked_shl(bucket as u32).map_or(u64::MAX, |end| end - 1);
            return upper.min(histogram.max);
        }
    }
    histogram.max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds() {
        let mut histogram = Histogram::default();
        for value in (0..98).map(|_| 500).chain([70_000, 90_000]) {
            histogram.record(value);
        }
        assert_eq!(quantile(&histogram, 0.5), 511);
        assert_eq!(
            quantile(&histogram, 0.99),
            90_000,
            "of the bucket up to 131,071, but no more than the most"
        );
        assert_eq!(quantile(&Histogram::default(), 0.99), 0);
    }
}
