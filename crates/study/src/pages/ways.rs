//! The ways of using large pages that are put beside each other.

use super::way::Way;
use super::{AdvisePages, POLICIES, hardware};
use crate::Error;
use crate::designs::Setting;
use crate::periods;
use crate::simulation::Settings;
use crate::tiers;
use serde::Serialize;
use terrace_model::{Histogram, PageSize, Value};
use terrace_report::{RunRecord, SpeedUp};
use terrace_sim::PartUse;

/// Base pages first.
const BUILT_IN: [(&str, &str, &str); 4] = [
    ("4k", "native-4k", "base pages only"),
    ("thp-fault", "native-thp", "transparent huge pages at the fault"),
    ("2m", "native-2m", "2 MiB for everything, as from hugetlbfs"),
    ("1g", "native-1g", "1 GiB for everything, as from hugetlbfs"),
];

/// The designs of all ways with the machine's own TLBs.
pub(super) fn designs(asked: &AdvisePages) -> Vec<&str> {
    let built_in = BUILT_IN.into_iter().map(|(_, design, _)| design);
    built_in.chain(policies(asked)).collect()
}

fn policies(asked: &AdvisePages) -> Vec<&str> {
    match asked.policies.is_empty() {
        false => asked.policies.iter().map(String::as_str).collect(),
        true => POLICIES.into_iter().filter(|name| terrace_policy::find(name).is_ok()).collect(),
    }
}

/// All ways that there are, checked.
pub(super) fn all(asked: &AdvisePages) -> Result<Vec<Way>, Error> {
    for Setting { design, key, .. } in &asked.changes.sets {
        // A parameter of one policy leaves it to this command which policies there are.
        let is_parameter = design.is_some() && key.starts_with("os.policy.") && key != "os.policy.name";
        if key == "os.pages" || (key.starts_with("os.policy") && !is_parameter) {
            return Err(Error::request(format!(
                "--set {key} is what advise --pages varies; leave it out, or compare designs with terrace compare"
            )));
        }
    }
    let way = |name: &str, design: &str, meaning: &'static str| -> Result<Way, Error> {
        let mut job = asked.changes.resolve(design, None)?;
        tiers::check_no_gpu("advise --pages", &job.design.design)?;
        name.clone_into(&mut job.design.design.name);
        let (name, design) = (name.to_owned(), design.to_owned());
        Ok(Way { plain: name.clone(), name, meaning, design, tlb: None, job })
    };
    let mut ways = Vec::new();
    for (name, design, meaning) in BUILT_IN {
        ways.push(way(name, design, meaning)?);
    }
    for policy in policies(asked) {
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
    ways.extend(hardware::ways(asked, &ways)?);
    let words = ways.iter().filter(|way| way.tlb.is_none()).map(|way| way.design.as_str());
    let tlbs = asked.tlbs.iter().map(String::as_str);
    let tlbs = tlbs.chain(hardware::DEFAULT.into_iter().filter(|_| asked.tlbs.is_empty()));
    asked.changes.check_names(words.chain(tlbs))?;
    Ok(ways)
}

/// What came of a way.
#[derive(Clone, Debug, Serialize)]
pub struct WayResult {
    /// As tables call it; the design of its run has this name.
    pub name: String,
    /// How an operator would say it.
    pub meaning: &'static str,
    /// The design by its own name.
    pub design: String,
    /// The way without the other TLB.
    pub plain: String,
    /// The TLB, where it is not the machine's.
    pub tlb: Option<String>,
    /// Absent where it could not run.
    pub figures: Option<WayFigures>,
    /// Why it could not run, if it could not.
    pub refused: Option<String>,
    /// Periods of the way's policy in the run.
    pub periods: Option<f64>,
}

/// What a run under a way was like.
#[derive(Clone, Debug, Serialize)]
pub struct WayFigures {
    /// Simulated run time.
    pub seconds_simulated: f64,
    /// Run time of base pages over its own, less 1.
    pub gain: f64,
    /// The values between which that lies; absent where no intervals were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain_interval: Option<[f64; 2]>,
    /// Cycles that waited for translation, of all.
    pub translation_share: f64,
    /// Page walks.
    pub walks: u64,
    /// Cycles in them.
    pub walk_cycles: u64,
    /// Over those of base pages.
    pub walk_cycles_left: f64,
    /// When most was.
    pub resident_bytes: u64,
    /// Share of the resident bytes that lie in pages larger than 4 KiB.
    pub large_share: f64,
    /// Resident beyond what base pages have, over that.
    pub bloat: f64,
    /// In the whole run, as faults and memory are.
    pub copied_bytes: u64,
    /// Bytes of free pages that were zeroed before they were needed.
    pub zeroed_ahead_bytes: u64,
    /// Large pages that were wanted and not to be had.
    pub fallbacks: u64,
    /// Time that a fault takes; absent where no fault is in the input, as in a recording that begins late.
    pub fault_latency: Option<FaultLatency>,
}

/// Latency of faults, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FaultLatency {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

impl WayResult {
    pub(super) fn of(
        way: &Way,
        (run, uses): (&RunRecord, &[PartUse]),
        base: &RunRecord,
        settings: &Settings<'_>,
    ) -> WayResult {
        let [resident, before] = [run, base].map(|run| sizes(run).iter().sum::<u64>());
        let count = |name: &str| run.stats.integer(name);
        let figures = WayFigures {
            seconds_simulated: run.seconds_simulated,
            gain: base.seconds_simulated / run.seconds_simulated - 1.0,
            gain_interval: run.uncertainty.map(|one| {
                let speedup = SpeedUp::new(base.seconds_simulated / run.seconds_simulated, Some(one));
                [speedup.low - 1.0, speedup.high - 1.0]
            }),
            translation_share: translation_share(run),
            walks: count("walk.count"),
            walk_cycles: count("walk.cycles"),
            walk_cycles_left: count("walk.cycles") as f64 / base.stats.integer("walk.cycles").max(1) as f64,
            resident_bytes: resident,
            large_share: 1.0 - sizes(run)[0] as f64 / resident.max(1) as f64,
            bloat: resident as f64 / before.max(1) as f64 - 1.0,
            copied_bytes: uses.iter().map(|part| part.cost.copied_bytes).sum(),
            zeroed_ahead_bytes: count("policy.zeroed_bytes"),
            fallbacks: count("os.huge_fallbacks"),
            fault_latency: FaultLatency::of_run(run),
        };
        let period = periods::longest_period(&way.job.design.design, settings);
        WayResult {
            figures: Some(figures),
            // The time of base pages' run is taken: a slow way must not look better tested.
            periods: period.map(|period| base.seconds_simulated / period),
            ..WayResult::refused(way, "")
        }
    }

    pub(super) fn refused(way: &Way, why: &str) -> WayResult {
        WayResult {
            name: way.name.clone(),
            meaning: way.meaning,
            design: way.design.clone(),
            plain: way.plain.clone(),
            tlb: way.tlb.clone(),
            figures: None,
            refused: (!why.is_empty()).then(|| why.to_owned()),
            periods: None,
        }
    }
}

/// Most resident bytes, by page size.
pub(super) fn sizes(run: &RunRecord) -> [u64; 3] {
    PageSize::ALL.map(|size| run.stats.integer(&format!("os.peak_resident_bytes.{size}")))
}

/// Where cores' busy cycles went.
const CYCLES: [&str; 5] = ["base", "translation", "cache", "memory", "os"];
pub(super) const TRANSLATION: usize = 1;
pub(super) const SYSTEM: usize = 4;

pub(super) fn cycles_by_part(run: &RunRecord) -> [u64; CYCLES.len()] {
    CYCLES.map(|part| run.stats.integer(&format!("core.cycles.{part}")))
}

/// Cycles that waited for translation, of all that cores were busy.
fn translation_share(run: &RunRecord) -> f64 {
    let cycles = cycles_by_part(run);
    cycles[TRANSLATION] as f64 / cycles.iter().sum::<u64>().max(1) as f64
}

impl FaultLatency {
    pub(super) fn of(faults: &Histogram) -> FaultLatency {
        let [p50_ns, p99_ns] = [0.5, 0.99].map(|share| faults.quantile(share));
        FaultLatency { p50_ns, p99_ns, max_ns: faults.max }
    }

    /// The latency of faults of pages of all sizes; nothing where there were none.
    fn of_run(run: &RunRecord) -> Option<FaultLatency> {
        let mut all = Histogram::default();
        for size in PageSize::ALL {
            let stat = run.stats.get(&format!("os.fault_latency.{size}"));
            if let Some(Value::Histogram(latency)) = stat.map(|stat| &stat.value) {
                all.merge(latency);
            }
        }
        (all.count > 0).then(|| FaultLatency::of(&all))
    }
}
