//! The winner and the reason, in sentences that are derived from the numbers alone.

use crate::format::{bytes, percent, seconds, slowdown as percent_slower, speedup as times};
use crate::reason::Savings;
use crate::run::ratio;
use crate::{Comparison, RunRecord, SpeedUp};
use serde::Serialize;
use terrace_model::PageSize;

/// The smallest difference that is one: times that are closer than this part of them are called equal, as that is no
/// reason to prefer one design or page size.
pub const SMALLEST_DIFFERENCE: f64 = 0.01;

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conclusion {
    /// The input it is about; `None` for the finding over all inputs.
    pub input: Option<String>,
    /// The fastest contender; `None` where there is none (no clear difference to the baseline, one run, no time simulated).
    pub winner: Option<String>,
    /// The winner's speed-up over the baseline; 1 where the baseline itself is fastest.
    pub speedup: Option<f64>,
    /// Between which values it lies.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// Contenders that are not clearly slower than the winner: the intervals overlap.
    pub rivals: Vec<String>,
    /// The design that the speed-up refers to.
    pub baseline: String,
    /// The finding in a sentence or two.
    pub text: String,
    /// The finding without what `winner`, `speedup` and `baseline` say already: the reason and the bound.
    pub detail: String,
}

/// One conclusion per input, preceded by one over all inputs where there are several.
pub(crate) fn conclude(comparison: &Comparison) -> Vec<Conclusion> {
    let names = comparison.input_names();
    let mut conclusions: Vec<Conclusion> = overall(comparison, &names).into_iter().collect();
    conclusions.extend(names.iter().filter_map(|input| on_input(comparison, input)));
    conclusions
}

fn on_input(comparison: &Comparison, input: &str) -> Option<Conclusion> {
    let baseline = comparison.baseline_of(input)?;
    let base = &baseline.design;
    let finding = |winner: Option<(&RunRecord, SpeedUp)>,
                   rivals: Vec<String>,
                   text: String,
                   detail: String| Conclusion {
        input: Some(input.to_owned()),
        winner: winner.map(|(run, _)| run.design.clone()),
        speedup: winner.map(|(_, speedup)| speedup.value),
        low: winner.map(|(_, speedup)| speedup.low),
        high: winner.map(|(_, speedup)| speedup.high),
        rivals,
        baseline: base.clone(),
        detail: if detail.is_empty() { text.clone() } else { detail },
        text,
    };
    let no_winner = |text: String| finding(None, Vec::new(), text, String::new());
    if baseline.is_live() {
        return Some(no_winner(live(baseline)));
    }
    let mut timed: Vec<(&RunRecord, SpeedUp)> =
        comparison.runs_of(input).filter_map(|run| Some((run, comparison.speedup_of(run)?))).collect();
    if timed.is_empty() && baseline.fidelity == "full" {
        return Some(no_winner(format!("No winner on {input}: it does nothing that takes time in {base}.")));
    }
    if timed.is_empty() {
        return Some(no_winner(format!(
            "No winner on {input}: fidelity {} does not time accesses. Compare what it counts, or take --fidelity full.",
            baseline.fidelity
        )));
    }
    if timed.len() == 1 {
        return Some(no_winner(format!("One design, {base}, on {input}: nothing to compare it with.")));
    }
    timed.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
    let shares = comparison.swept_shares();
    if !shares.is_empty() {
        return Some(no_winner(by_share(comparison, input, &shares, &timed)));
    }
    let contenders: Vec<(&RunRecord, SpeedUp)> =
        timed.iter().copied().filter(|(run, _)| !run.is_bound()).collect();
    let bound = timed.iter().find(|(run, _)| run.is_bound());
    let Some(&(fastest, speedup)) = contenders.first() else {
        return Some(no_winner(format!("Only bounds were run on {input}: no design to recommend.")));
    };
    let (headline, reason, winner) = if fastest.design == *base {
        match contenders.iter().find(|(run, _)| run.design != *base) {
            None => (format!("{base} is the only contender on {input}"), None, Some((fastest, speedup))),
            Some((next, s)) if is_clear(&speedup, s) => (
                format!("{base} wins on {input}: the next best, {}, reaches {}", next.design, in_words(s)),
                Savings::new(baseline, next).and_then(|savings| savings.spent()),
                Some((fastest, speedup)),
            ),
            Some((next, s)) => (no_difference(input, base, next, s), None, None),
        }
    } else if is_clear(&speedup, &SpeedUp::new(1.0, None)) {
        (
            String::new(),
            Savings::new(baseline, fastest).and_then(|savings| savings.saved()),
            Some((fastest, speedup)),
        )
    } else {
        (no_difference(input, base, fastest, &speedup), None, None)
    };
    let rivals: Vec<String> = match winner {
        Some((winner, of_winner)) if winner.design != *base => contenders
            .iter()
            .filter(|(run, s)| run.design != winner.design && run.design != *base && !is_clear(&of_winner, s))
            .map(|(run, _)| run.design.clone())
            .collect(),
        _ => Vec::new(),
    };
    let headline = match (headline.is_empty(), rivals.is_empty()) {
        (false, _) => headline,
        (true, true) => format!("{} wins on {input}: {} {base}", fastest.design, in_words(&speedup)),
        (true, false) => format!("{} leads on {input}: {} {base}", fastest.design, in_words(&speedup)),
    };
    let mut text = match &reason {
        Some(reason) => format!("{headline}, because {reason}."),
        None => format!("{headline}."),
    };
    let mut detail = reason.map_or(String::new(), |reason| sentence(&reason));
    let mut say = |sentence: String| {
        text += &sentence;
        if !detail.is_empty() {
            detail += &sentence;
        }
    };
    if !rivals.is_empty() {
        say(format!(" There is no clear difference to {}.", rivals.join(", ")));
    }
    frontier(comparison, input).into_iter().for_each(&mut say);
    if let Some((bound, of_bound)) = bound {
        say(format!(" The bound, {}, is {}.", bound.design, in_words(of_bound)));
        let is_above = speedup.value > of_bound.value && times(speedup.value) != times(of_bound.value);
        if is_above {
            say(above(bound, fastest));
        }
    }
    Some(finding(winner, rivals, text, detail))
}

/// `1.60x`, and between which values where that is known and they differ from it.
fn in_words(speedup: &SpeedUp) -> String {
    let [low, value, high] = [speedup.low, speedup.value, speedup.high].map(times);
    match low == high {
        true => format!("{value}x"),
        false => format!("{value}x ({low} to {high})"),
    }
}

/// Whether a difference is one: beyond what assumed constants and seeds move, and no smaller than [`SMALLEST_DIFFERENCE`].
fn is_clear(faster: &SpeedUp, slower: &SpeedUp) -> bool {
    faster.is_clearly_above(slower) && faster.value >= slower.value * (1.0 + SMALLEST_DIFFERENCE)
}

fn no_difference(input: &str, base: &str, run: &RunRecord, speedup: &SpeedUp) -> String {
    format!(
        "No clear difference on {input}: the best of the others, {}, reaches {} {base}",
        run.design,
        in_words(speedup)
    )
}

/// How a design can be faster than a bound.
fn above(bound: &RunRecord, winner: &RunRecord) -> String {
    let removes = if bound.is_free_of_translation() {
        "address translation"
    } else if bound.is_free_of_coherence() {
        "the cost of translation coherence"
    } else {
        "waiting for slower memory"
    };
    let more = Savings::new(bound, winner);
    match more.as_ref().and_then(Savings::largest) {
        Some((name, share)) => format!(
            " {} can be above it: {} takes away {removes} alone, and {} spends {} of {}'s cycles less in {name}.",
            winner.design,
            bound.design,
            winner.design,
            percent(share),
            bound.design
        ),
        None => format!(" {} can be above it: {} takes away {removes} alone.", winner.design, bound.design),
    }
}

/// A clause as a sentence.
fn sentence(clause: &str) -> String {
    // A design's name keeps its letters.
    match clause.strip_prefix("it ") {
        Some(rest) => format!("It {rest}."),
        None => format!("{clause}."),
    }
}

/// What a policy did to real processes. Whether they became faster is not known here.
fn live(run: &RunRecord) -> String {
    let mib = |name: &str| bytes(run.stats.integer(name) * PageSize::Base.bytes());
    let share = ratio(run.stats.number("live.cpu_time") * 1e-9, run.wall_seconds);
    let cost = share.map_or(String::new(), |share| format!(" for {} of a core", percent(share)));
    format!(
        "{} {} {} for {}: {} promoted, {} demoted{cost}.",
        run.design,
        if run.parameter("dry_run").is_some() {
            "watched (a dry run, which moves nothing)"
        } else {
            "managed"
        },
        run.input,
        seconds(run.wall_seconds),
        mib("vmstat.pgpromote_success"),
        mib("vmstat.pgdemote_policy"),
    )
}

/// The fastest design at each share of fast memory. More of it always wins, so that no share beats another.
fn by_share(
    comparison: &Comparison,
    input: &str,
    shares: &[String],
    timed: &[(&RunRecord, SpeedUp)],
) -> String {
    let best = shares.iter().filter_map(|share| {
        let mut of_share = timed.iter().filter(|(run, _)| run.share_in_name() == Some(share.as_str()));
        let (run, speedup) = of_share.next()?;
        // The first of equals has not won.
        if of_share.next().is_some_and(|(_, next)| !is_clear(speedup, next)) {
            return Some(format!("no clear difference with {share}"));
        }
        let slowdown = comparison.tiering_of(run).and_then(|tiering| tiering.slowdown);
        let slowdown = slowdown.map_or(String::new(), |slowdown| format!(" ({})", percent_slower(slowdown)));
        let name = run.design.split('@').next().unwrap_or_default();
        Some(format!("{name}{slowdown} with {share}"))
    });
    format!("Fastest on {input} by share of fast memory: {}.", best.collect::<Vec<_>>().join(", "))
}

/// What the least memory in the fastest tier costs in time, in a sentence, where policies are compared.
fn frontier(comparison: &Comparison, input: &str) -> Option<String> {
    let mut best: Vec<(&RunRecord, f64, crate::Tiering)> = comparison
        .runs_of(input)
        .filter(|run| !run.is_bound())
        .filter_map(|run| {
            let tiering = comparison.tiering_of(run)?;
            Some((run, tiering.slowdown?, tiering))
        })
        .collect();
    if best.len() < 2 || best.iter().all(|(_, _, tiering)| tiering.policy.is_none()) {
        return None;
    }
    best.retain(|(_, _, tiering)| tiering.is_pareto);
    best.sort_by(|a, b| a.1.total_cmp(&b.1));
    let points: Vec<String> = best
        .iter()
        .take(3)
        .map(|(run, slowdown, tiering)| {
            let fast = percent(tiering.tiers[0].share);
            let cost = tiering.cost.map_or(String::new(), |cost| format!(", cost {}", percent(cost)));
            format!("{} ({}, {fast} fast{cost})", run.design, percent_slower(*slowdown))
        })
        .collect();
    (!points.is_empty()).then(|| format!(" Not beaten in both time and fast memory: {}.", points.join(", ")))
}

/// The contender with the best geometric mean over the inputs, among the designs that ran on all of them.
fn overall(comparison: &Comparison, inputs: &[&str]) -> Option<Conclusion> {
    if inputs.len() < 2 || !comparison.swept_shares().is_empty() {
        return None;
    }
    let mut means: Vec<(&str, SpeedUp)> = Vec::new();
    for run in comparison.runs.iter().filter(|run| !run.is_bound()) {
        if means.iter().any(|(design, _)| *design == run.design) {
            continue;
        }
        let speedups: Option<Vec<SpeedUp>> = inputs
            .iter()
            .map(|input| {
                comparison.baseline_of(input).filter(|base| base.design == comparison.baseline)?;
                comparison.speedup_of(comparison.runs_of(input).find(|other| other.design == run.design)?)
            })
            .collect();
        if let Some(speedups) = speedups {
            // What moves one input's speed-up moves the others' alike: the ends have a mean as the values have.
            let mean = |of: fn(&SpeedUp) -> f64| {
                (speedups.iter().map(|one| of(one).ln()).sum::<f64>() / inputs.len() as f64).exp()
            };
            let (value, low, high) = (mean(|one| one.value), mean(|one| one.low), mean(|one| one.high));
            means.push((&run.design, SpeedUp { value, low, high, uncertainty: None }));
        }
    }
    if means.len() < 2 {
        return None;
    }
    means.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
    let (best, mean) = means[0];
    let base = &comparison.baseline;
    let n = inputs.len();
    let wins = best != base && is_clear(&mean, &SpeedUp::new(1.0, None));
    let rivals: Vec<String> = means[1..]
        .iter()
        .filter(|(design, other)| wins && design != base && !is_clear(&mean, other))
        .map(|(design, _)| (*design).to_owned())
        .collect();
    let text = match (wins, rivals.is_empty()) {
        (true, true) => format!(
            "Over all {n} inputs {best} is the best choice: {} {base} in the geometric mean.",
            in_words(&mean)
        ),
        (true, false) => format!(
            "Over all {n} inputs {best} leads, {} {base} in the geometric mean, with no clear difference to {}.",
            in_words(&mean),
            rivals.join(", ")
        ),
        _ => format!("Over all {n} inputs no design is clearly faster than {base} in the geometric mean."),
    };
    let (winner, mean) = if wins { (best, mean) } else { (base.as_str(), SpeedUp::new(1.0, None)) };
    Some(Conclusion {
        input: None,
        winner: Some(winner.to_owned()),
        speedup: Some(mean.value),
        low: Some(mean.low),
        high: Some(mean.high),
        rivals,
        baseline: base.clone(),
        detail: text.clone(),
        text,
    })
}

#[cfg(test)]
mod tests;
