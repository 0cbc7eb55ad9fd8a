//! One recommendation, with its reason.

use super::bounds::Bounds;
use super::parts::{Region, gain_of};
use super::ways::{WayFigures, WayResult};
use crate::figures::{self, faster, percent, readable, share};
use crate::periods::FEW_PERIODS;
use serde::Serialize;
use terrace_report::SMALLEST_DIFFERENCE;

/// Gains that differ by less are the same: the simpler way is taken.
const SAME_GAIN: f64 = 0.01;

/// Ways from the simplest to run to the one that needs most; what is not in the list comes last.
const SIMPLEST_FIRST: [&str; 4] = ["thp", "thp-fault", "2m", "trident"];

/// The recommendation.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// A way, where one is right for the whole program.
    pub way: Option<String>,
    /// Regions that deserve larger pages by themselves.
    pub regions: Vec<String>,
    /// In one sentence or two.
    pub advice: String,
    /// Why, and at what cost.
    pub reason: String,
    /// Some way is faster than base pages, but none by more than its interval.
    pub is_undecided: bool,
}

impl Verdict {
    /// `small_pieces` is the share of the memory in which transparent huge pages found no place, where a recording took
    /// it in smaller pieces than the program would with them.
    pub(super) fn of(
        ways: &[WayResult],
        parts: &[Region],
        bounds: &Bounds,
        small_pieces: Option<f64>,
    ) -> Verdict {
        let large: Vec<(&WayResult, &WayFigures)> = ways[1..]
            .iter()
            .filter(|way| way.tlb.is_none())
            .filter_map(|way| Some((way, way.figures.as_ref()?)))
            .collect();
        let fastest = large.iter().max_by(|a, b| a.1.gain.total_cmp(&b.1.gain));
        let Some((first, most)) = fastest.copied() else {
            return Verdict::off(
                "No large pages could be had.".to_owned(),
                "None of the ways ran; the table says why.".to_owned(),
                Vec::new(),
            );
        };
        if most.gain < SMALLEST_DIFFERENCE {
            let reason = format!("The best of them, {}, makes the run {}.", first.name, between(most));
            return Verdict::off("Leave huge pages off: they do not pay.".to_owned(), reason, Vec::new());
        }
        if !large.iter().any(|(_, figures)| is_clear(figures)) {
            let reason = format!(
                "The best of them, {}, makes the run {}. What is assumed and chance could turn that around. `terrace check -- \
                 PROGRAM` measures it where the program is to run.",
                first.name,
                between(most)
            );
            let advice = "Undecided: no way of using huge pages gains more than the simulation could be off.";
            let off = Verdict::off(advice.to_owned(), reason, Vec::new());
            return Verdict { is_undecided: true, ..off };
        }
        let fitting = large.iter().filter(|(_, figures)| figures.bloat <= bounds.bloat);
        let fitting: Vec<_> = fitting.filter(|(_, figures)| is_clear(figures)).collect();
        let deserving: Vec<&Region> = parts.iter().filter(|part| part.size != "4k").collect();
        let best = fitting.iter().map(|(_, figures)| figures.gain).fold(0.0, f64::max);
        let chosen =
            fitting.iter().filter(|(_, figures)| figures.gain >= best - SAME_GAIN).min_by_key(|(way, _)| {
                (way.periods.is_some_and(|periods| periods < FEW_PERIODS), place(&way.name))
            });
        let regions: Vec<String> = deserving.iter().map(|part| part.name.clone()).collect();
        match chosen {
            Some((way, figures)) => {
                let mut reason = format!(
                    "Page walks take {} of the cycles that they take with base pages. It holds {} more memory{}",
                    share(figures.walk_cycles_left),
                    share(figures.bloat.max(0.0)),
                    match &figures.fault_latency {
                        Some(latency) =>
                            format!(", and its slowest fault takes {}.", nanoseconds(latency.max_ns)),
                        None => format!(". {NO_FAULTS}"),
                    },
                );
                if figures.copied_bytes > 0 {
                    reason += &format!(" It copies {} to get there.", readable(figures.copied_bytes));
                }
                let others: Vec<&str> = large.iter().map(|(way, _)| way.name.as_str()).collect();
                reason += &right_for(&deserving, &way.name, &others);
                if let Some(pieces) = small_pieces.filter(|_| is_fixed(way)) {
                    reason += &format!(" {} {NEXT_STEP}", no_place(pieces));
                }
                Verdict {
                    is_undecided: false,
                    way: Some(way.name.clone()),
                    regions,
                    advice: format!(
                        "Turn huge pages on: {} ({}) makes the run {}.",
                        way.name,
                        way.meaning,
                        between(figures)
                    ),
                    reason,
                }
            }
            None => {
                let reason = format!(
                    "{} makes the run {}, but holds {} more memory, and {} is tolerated (--bloat).",
                    first.name,
                    faster(most.gain, None),
                    share(most.bloat),
                    percent(bounds.bloat),
                );
                let sized: Vec<String> =
                    deserving.iter().map(|part| format!("{} ({})", part.name, part.size)).collect();
                let saved: f64 = deserving.iter().filter_map(|part| part.saved_share()).sum();
                let of_regions = faster(gain_of(saved), None);
                if let Some(pieces) = small_pieces.filter(|_| is_fixed(first)) {
                    let mut reason = format!("{NEXT_STEP} As recorded, {reason}");
                    if !sized.is_empty() {
                        reason += &format!(" For {} alone: about {of_regions}.", listed(&sized));
                    }
                    let advice = format!("Undecided: {}", lower_first(&no_place(pieces)));
                    return Verdict { is_undecided: true, ..Verdict::off(advice, reason, regions) };
                }
                if regions.is_empty() {
                    let mut transparent = large.iter().filter(|(way, _)| !is_fixed(way)).peekable();
                    let do_not_pay = is_fixed(first)
                        && transparent.peek().is_some()
                        && transparent.all(|(_, figures)| figures.gain < SMALLEST_DIFFERENCE);
                    let advice = match do_not_pay {
                        true => format!(
                            "Leave huge pages off: transparent ones do not pay, and {} costs too much memory.",
                            first.name
                        ),
                        false => "Leave huge pages off: they cost too much memory.".to_owned(),
                    };
                    return Verdict::off(advice, reason, regions);
                }
                let advice = format!(
                    "Leave huge pages off for the program as a whole; ask for them (MADV_HUGEPAGE, 1g from hugetlbfs) for \
                     {}: about {}.",
                    listed(&sized),
                    of_regions,
                );
                Verdict::off(advice, reason, regions)
            }
        }
    }

    fn off(advice: String, reason: String, regions: Vec<String>) -> Verdict {
        Verdict { way: None, regions, advice, reason, is_undecided: false }
    }
}

impl Region {
    /// Share of the run time that the size saves which the region deserves.
    fn saved_share(&self) -> Option<f64> {
        self.sizes.iter().find(|size| size.size == self.size)?.saved_share
    }
}

/// How much of `regions` a way lays in pages above 4 KiB; nothing where none of them is resident with it.
fn laid_in_large(regions: &[&Region], way: &str) -> Option<f64> {
    let costs = regions.iter().filter_map(|part| part.costs.iter().find(|cost| cost.way == way));
    let [all, large] =
        costs.fold([0; 2], |[all, large], cost| [all + cost.resident_bytes, large + cost.large_bytes]);
    (all > 0).then(|| large as f64 / all as f64)
}

/// For which regions larger pages are right, of those that deserve them: those that `way` lays in such pages, and those that
/// it mostly leaves in small ones, with one of the `others` that does not.
fn right_for(deserving: &[&Region], way: &str, others: &[&str]) -> String {
    let mut said = String::new();
    for (size, words) in [("2m", "2 MiB"), ("1g", "1 GiB")] {
        let of_size = deserving.iter().filter(|part| part.size == size);
        let (left, laid): (Vec<&Region>, Vec<&Region>) =
            of_size.partition(|part| laid_in_large(&[**part], way).is_some_and(|share| share < 0.5));
        let names =
            |parts: &[&Region]| listed(&parts.iter().map(|part| part.name.clone()).collect::<Vec<_>>());
        if !laid.is_empty() {
            said += &format!(" {words} are right for {}.", names(&laid));
        }
        if let Some(share_of_it) = laid_in_large(&left, way) {
            said += &format!(
                " {words} would be right for {} as well, but {way} finds a place for {} of it",
                names(&left),
                share(share_of_it)
            );
            let most = others.iter().filter_map(|other| Some((other, laid_in_large(&left, other)?)));
            let more = most.filter(|(_, share)| *share >= 0.5).min_by_key(|(other, _)| place(other));
            said += &more.map_or(".".to_owned(), |(other, of_it)| format!("; {other} for {}.", share(of_it)));
        }
    }
    said
}

/// Where a way stands among the simplest.
fn place(name: &str) -> usize {
    SIMPLEST_FIRST.iter().position(|other| *other == name).unwrap_or(usize::MAX)
}

/// Whether a way has one size of pages for everything, which only the pool of hugetlbfs gives.
pub(super) fn is_fixed(way: &WayResult) -> bool {
    matches!(way.plain.as_str(), "4k" | "2m" | "1g")
}

/// What to do where the recording took its memory in small pieces.
const NEXT_STEP: &str = "With huge pages turned on glibc's heap can grow by whole ones: record the program with \
                         GLIBC_TUNABLES=glibc.malloc.hugetlb=1 and repeat this, or measure it with `terrace check -- PROGRAM`.";

/// What to say of the faults of a way where the input has none.
const NO_FAULTS: &str = "What its page faults cost is not known: the input has none.";

fn no_place(pieces: f64) -> String {
    format!(
        "As it was recorded, transparent huge pages find no place in {} of the memory: the program takes it in pieces \
         smaller than 2 MiB.",
        share(pieces)
    )
}

fn lower_first(text: &str) -> String {
    text.chars().take(1).flat_map(char::to_lowercase).chain(text.chars().skip(1)).collect()
}

/// Whether a way gains enough to be worth a change, wherever in its interval the gain lies.
fn is_clear(figures: &WayFigures) -> bool {
    figures.gain >= SMALLEST_DIFFERENCE && figures.gain_interval.is_none_or(|[low, _]| low > 0.0)
}

/// `19.9% faster`, with the interval where there is one.
fn between(figures: &WayFigures) -> String {
    faster(figures.gain, figures.gain_interval)
}

fn nanoseconds(nanoseconds: u64) -> String {
    figures::time(nanoseconds as f64 / 1e9)
}

/// `a`, `a and b`, `a, b and 3 more`.
fn listed(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        [one, other] => format!("{one} and {other}"),
        [one, other, third] => format!("{one}, {other} and {third}"),
        [one, other, rest @ ..] => format!("{one}, {other} and {} more", rest.len()),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests;
